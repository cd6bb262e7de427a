"""Beats: small objects by which the writer of an archive shows that it lives while it has nothing to commit.

They are for those who wait, and prove nothing: that one writer alone commits is the business of create-only commits. What
each says of the log, the writer's word, is for those who read it (``word``). A commit
is a sign of life itself, so a busy writer puts no beat. The last beat, a **goodbye**, says that the writer has ended; it names
the commit that it was said behind, and is void once another one is there. Idle cost: a put, a delete and a look for the next
commit each ``interval_seconds`` (deploy/costs.md).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiered.archive.keys import BEAT_PREFIX, ArchiveKeys, BeatKey, parse
from tiered.archive.log.word import Word, encode_word
from tiered.archive.state.values import Head
from tiered.clock import Clock
from tiered.errors import Conflict, Fenced, TieredError
from tiered.provider.base import Provider, Stored
from tiered.settings.writing import SHORTEST_WAIT_MS

if TYPE_CHECKING:
    from tiered.archive.log.writer import CommitLog

log = logging.getLogger("tiered.daemon")

BEATS_IN_WAIT = 3
"""Beats within the silence after which a writer counts as gone: one or two may be late."""
_LOOKS = 4
_MOST_TRIES = 8
_MOST_DELETED = 1000


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known of another writer. ``rest_ms``: how much longer it must stay silent before it counts as gone (0: it does).
    ``seen_ms``: its last sign of life by the store's clock; ``None`` where the store tells no times: it is only watched."""

    rest_ms: int
    seen_ms: int | None = None


GONE = Sighting(0)


@dataclass(frozen=True, slots=True)
class LastBeat:
    """The newest beat of an epoch."""

    key: BeatKey
    stored: Stored

    def ends(self, head: Head) -> bool:
        """Whether the writer of ``head`` has ended, and committed nothing since it said so."""
        return self.key.ended_at == head.commit_id

    def ends_behind(self, lost: Word) -> bool:
        """Whether it is the goodbye that said so of commits that are lost."""
        return self.key.ended_at == lost.commit_id


def last_beat(provider: Provider, keys: ArchiveKeys, epoch: int) -> LastBeat | None:
    """The newest beat of an epoch, if it has any: one listing."""
    found = None
    for stored in provider.list(_of_epoch(keys, epoch)):
        key = parse(keys.path(stored.key) or "")
        if isinstance(key, BeatKey):
            found = LastBeat(key, stored)
    return found


def beat_seconds(takeover_wait_ms: int) -> float | None:
    """How often a writer shows that it lives, if others wait for so long; ``None``: never."""
    return None if takeover_wait_ms < SHORTEST_WAIT_MS else takeover_wait_ms / 1000 / BEATS_IN_WAIT


class Beats:
    """Those of the epoch that this process has opened. For one thread; ``check`` from any."""

    def __init__(self, commit_log: CommitLog, clock: Clock, interval_seconds: float | None) -> None:
        """``interval_seconds``: how long a writer may show nothing; ``None``: it shows nothing but its commits."""
        self._log = commit_log
        self._clock = clock
        self._interval = interval_seconds
        self._number = 0
        self._looked = self._signed = clock.monotonic()
        self._seq = -1
        self._tidied = False
        self._failing = False
        self._fenced: Fenced | None = None

    def step(self) -> float | None:
        """Show that the writer lives, if that is due. Seconds until the next look; ``None``: it need not be shown."""
        if self._interval is None or self._fenced is not None:
            return None
        now, head = self._clock.monotonic(), self._log.proven().head()
        if head is None or not self._owns(head):
            return self._interval / _LOOKS
        if head.seq != self._seq:  # it came between the last look and now
            self._seq, self._signed = head.seq, self._looked
        self._looked = now
        if now - self._signed >= self._interval:
            try:
                self._beat(head)
                self._failing = False
            except Fenced as error:
                self._fenced = error
                return None
            except TieredError as error:  # shown by every write that matters; others may take it for gone
                if not self._failing:
                    log.warning("the archive does not take a sign of life", extra={"error": str(error)})
                self._failing = True
        return self._interval / _LOOKS

    def check(self) -> None:
        """``Fenced`` if a look found another writer's commit behind ours, though there was nothing to commit."""
        if self._fenced is not None:
            raise self._fenced

    def goodbye(self) -> None:
        """Say that this writer has ended: the next one need not wait. Nothing may be put after it; what lands late all the same
        makes it void. Nothing is said where an outcome is not known, and a goodbye that fails costs the next one its wait."""
        head, tip = self._log.proven().head(), self._log.tip
        if head is None or tip is None or head.commit_id != tip.commit_id or not self._owns(head):
            return
        try:
            self._put(head, head.commit_id)
        except TieredError as error:
            log.info("the archive did not take the goodbye", extra={"error": str(error)})

    def _owns(self, head: Head) -> bool:
        return head.writer_id == self._log.writer_id

    def _beat(self, head: Head) -> None:
        self._log.check_next(head)
        self._put(head, None)
        self._signed = self._clock.monotonic()

    def _put(self, head: Head, ended_at: bytes | None) -> None:
        reader = self._log.reader
        line = encode_word(head, self._clock.now_ms())
        for _ in range(_MOST_TRIES):
            self._number += 1
            try:
                reader.provider.put(reader.keys.beat(head.epoch, self._number, ended_at), [line])
                break
            except Conflict:  # put before, unheard
                continue
        try:
            self._tidy(head.epoch)
        except TieredError as error:  # the sign is there; the next one tries again
            self._tidied = False
            log.debug("older signs of life were not removed", extra={"error": str(error)})

    def _tidy(self, epoch: int) -> None:
        """Remove the beats before this one: at first all that are there, of earlier epochs too."""
        provider, keys = self._log.reader.provider, self._log.reader.keys
        if self._tidied:
            provider.delete(keys.beat(epoch, self._number - 1))
            return
        newest = keys.beat(epoch, self._number)
        old = [stored.key for stored in provider.list(keys.key(BEAT_PREFIX), limit=_MOST_DELETED)]
        for key in old:
            if key < newest:
                provider.delete(key)
        self._tidied = len(old) < _MOST_DELETED


def _of_epoch(keys: ArchiveKeys, epoch: int) -> str:
    return keys.beat(epoch, 0).rpartition("-")[0] + "-"
