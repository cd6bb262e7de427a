"""What a store answered for is seen in the bucket before the hold lets go of what it was made from (law 3).

A success says what the store, or whoever stood in its place, answered. So commits are looked for in a listing, many at once, by
their numbers and lengths; until then their bytes are in hand, and what is not there is put again, the very same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.log.named import commits_listed
from tiered.archive.log.planned import PlannedCommit
from tiered.archive.log.reader import LogReader, commits_lost
from tiered.archive.log.resending import Resending
from tiered.archive.log.standin import stand_in
from tiered.archive.log.word import Word, word_behind
from tiered.archive.state.scope import Scope
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.commit import COMMIT_FOOTER_BYTES
from tiered.errors import Conflict, Invalid, NotFound, Unavailable
from tiered.metadata.base import MetadataStore
from tiered.model import PhysicalOffset
from tiered.provider.resolve import bind

READ_BACK_COMMITS = 64
"""Most commits in hand."""
READ_BACK_BYTES = 16 * 1024 * 1024
"""And about the most bytes of them: a commit is no larger than what travels inside it and its edits."""
READ_BACK_SECONDS = 60.0
"""How long a commit is in hand where few follow it."""

LOOKED_AT_START = 1000
"""How many of the newest commits a start looks for: one page of a listing."""

LetGo = Callable[[PhysicalOffset], None]
HasAll = Callable[[Head, Head], bool]
"""Whether the broker or its hold has every byte from where the first head ends to where the second does."""

log = logging.getLogger("tiered.archive")


@dataclass(frozen=True, slots=True)
class UnseenCommit:
    """A commit that the store answered for and that was not seen yet."""

    seq: int
    commit_id: bytes
    data: bytes


class CommitReadBack:
    """The commits of one writer that were not seen in the bucket yet, and how far the hold may let go once they were.

    ``is_ours``: whether our commit lies under its number; false if nothing does, ``Fenced`` if another one does. ``floor``: the
    log's; a checkpoint that was verified stands for what is before it, which collection removes. Thread-safe.
    """

    def __init__(
        self,
        reader: LogReader,
        resending: Resending,
        is_ours: Callable[[int, bytes], bool],
        floor: Callable[[], int],
    ) -> None:
        self._reader = reader
        self._resending = resending
        self._is_ours = is_ours
        self._floor = floor
        self._lock = threading.RLock()
        self._unread: list[UnseenCommit] = []
        self._since = 0.0
        self._release: tuple[LetGo, PhysicalOffset] | None = None
        self._released = PhysicalOffset(0)
        self._gone: list[int] = []

    def add(self, planned: PlannedCommit) -> None:
        """A commit that was answered for just now. Where as much is in hand as may be, all of it is looked for: errors as of
        ``step``."""
        commit = planned.commit
        with self._lock:
            if not self._unread:
                self._since = self._resending.clock.monotonic()
            self._unread.append(UnseenCommit(commit.seq, commit.commit_id, b"".join(planned.parts)))
            held = sum(len(each.data) for each in self._unread)
            if len(self._unread) >= READ_BACK_COMMITS or held >= READ_BACK_BYTES:
                self.step()

    def release(self, let_go: LetGo, up_to: PhysicalOffset) -> None:
        """Have ``let_go`` called with ``up_to`` once all commits so far were seen; at once where it lies before what was said
        last: the broker cut its log, and writes other bytes there."""
        with self._lock:
            self._release = let_go, up_to
            if up_to < self._released:
                self.step()
            self._released = up_to

    def step_if_due(self) -> None:
        """``step`` if a commit has been in hand for long."""
        with self._lock:
            now = self._resending.clock.monotonic()
            if self._unread and now - self._since >= READ_BACK_SECONDS:
                self.step()

    def step(self) -> None:
        """Look for all commits in hand, put again what is not there, and have the hold let go; for as long as it takes.

        ``Fenced`` if another writer's commit lies in a place of ours, ``Corrupt`` if nothing can be put again where it was;
        ``Unavailable`` once told to give up.
        """
        with self._lock:
            if self._unread:
                self._resending.until_done(self._see, (Unavailable, Invalid))
            self._seen()

    def step_once(self) -> None:
        """``step`` for a process that ends: it waits for no store, for the next start looks as well."""
        with self._lock:
            try:
                if self._unread:
                    self._see()
            except (Unavailable, Invalid) as error:
                log.warning("stopped before the last commits were looked for", extra={"error": str(error)})
                return
            self._seen()

    def forget_lost_end(self, store: MetadataStore, has_all: HasAll) -> bool:
        """At a start: whether the bucket lacks the newest commits of the local fold, or of the last writer's word, and their
        messages can be archived again. ``store`` is empty then.

        A process that is killed before it looked leaves no more than may be in hand, and their messages in the hold. More is
        nothing that a store never kept: what is missing then was there, and the fold is refused as before.
        """
        reader, seen = self._reader, ArchiveState(store).head()
        if seen is not None and (seen.archive_id != reader.identity.archive_id or self._has(seen.seq)):
            seen = None
        word = word_behind(reader, -1)
        if seen is None and (word is None or self._has(word.seq)):
            return False
        end = LogReader(reader.provider, reader.keys, reader.identity, hears=False).fold(
            PartialStore(Scope({}))
        )
        if end is None:
            return False
        word = word_behind(reader, end.seq)
        if word is not None and (seen is None or seen.seq < word.seq):
            seen = _as_said(end, word)
        if seen is None or not 0 < seen.seq - end.seq <= READ_BACK_COMMITS or not has_all(end, seen):
            return False
        reader.answered = word
        store.clear()
        store.cleared = f"commits {end.seq + 1} to {seen.seq} are not in the bucket"
        vanished = Unavailable(
            "the store does not have the newest commits that it had answered for: their messages are archived again",
            key=reader.keys.commit(end.seq + 1), expected=f"commits {end.seq + 1} to {seen.seq}", found="nothing",
            hint="find out what answers in the store's place, or deletes from the bucket",
        )  # fmt: skip
        self._resending.events.read_back(vanished)
        return True

    def _has(self, seq: int) -> bool:
        """Whether the bucket has a commit, or what stands for it."""
        reader = self._reader
        there = reader.read(seq) is not None or reader.checkpoint_above(seq - 1)
        return there or stand_in(reader, seq) is not None

    def look_for_holes(self, head: Head | None) -> None:
        """At a start: tell of commits that the local fold has and the bucket lacks, although later ones are there.

        The hold lets go of nothing before ``repair`` has mended them: it may have their messages alone."""
        if head is None:
            return
        reader, lowest = self._reader, head.floor + 1 if head.floor else 0
        first = max(lowest, head.seq + 1 - LOOKED_AT_START)
        lengths = commits_listed(reader.provider, reader.keys, first, head.seq)
        short = (seq for seq in range(first, head.seq + 1) if lengths.get(seq, 0) < COMMIT_FOOTER_BYTES)
        self._gone = gone = [seq for seq in short if self._is_gone(seq)]
        if gone:
            named = next(seq for seq in range(gone[0] + 1, head.seq + 2) if seq not in gone)
            error = commits_lost(reader.keys, gone[0], named)
            error.hint = "run tiered repair while the broker still has their messages"
            self._resending.events.read_back(error)

    def _is_gone(self, seq: int) -> bool:
        """Whether nothing that could be a commit lies under its number, or stands for it."""
        reader = self._reader
        try:
            length = reader.provider.head(reader.keys.commit(seq)).length
        except NotFound:
            length = 0
        return length < COMMIT_FOOTER_BYTES and stand_in(reader, seq) is None

    def _seen(self) -> None:
        self._unread.clear()
        if self._gone:
            try:
                self._gone = [seq for seq in self._gone if self._is_gone(seq)]
            except (Unavailable, Invalid) as error:
                log.debug("lost commits cannot be looked for now", extra={"error": str(error)})
        if self._release is not None and not self._gone:
            let_go, up_to = self._release
            let_go(up_to)
            self._release = None

    def forget(self) -> None:
        """The log was folded anew: what this process put before is in it, or is put anew from the broker."""
        with self._lock:
            self._unread.clear()
            self._release = None

    def _see(self) -> None:
        reader = self._reader
        grows = reader.provider.capabilities.encryptor is not None
        floor = self._floor()
        sought = [each for each in self._unread if each.seq >= floor]
        lengths = (
            commits_listed(reader.provider, reader.keys, sought[0].seq, sought[-1].seq) if sought else {}
        )
        for each in sought:
            length, wanted = lengths.get(each.seq, -1), len(each.data)
            if length != wanted and not (grows and length > wanted):
                self._see_one(each)
        self._resending.events.read_back(None)

    def _see_one(self, each: UnseenCommit) -> None:
        """One that the listing does not show as it was put: it is there all the same, or put again."""
        if self._is_ours(each.seq, each.commit_id):
            return
        key = self._reader.keys.commit(each.seq)
        vanished = Unavailable(
            "the store answered that it took a commit, and does not have it: it is put again",
            key=key, hint="find out what answers in the store's place, or deletes from the bucket",
        )  # fmt: skip
        self._resending.events.read_back(vanished)
        before = self._reader.keys.commit(each.seq - 1)
        there = not each.seq or self._reader.is_there(each.seq - 1) or self._reader.has_stand_in(each.seq - 1)
        if not there and self._reader.provider.capabilities.mount is not None:
            raise vanished  # another disk lies there, and this one comes back
        if not there:
            raise commits_lost(self._reader.keys, each.seq - 1, each.seq + 1)
        with suppress(Conflict):  # by now something is there
            bind(self._reader.provider, key, [before] if each.seq else [])
            self._reader.provider.put(key, [each.data], create_only=True)
        if not self._is_ours(each.seq, each.commit_id):
            raise vanished
        log.warning("a commit that the store had not kept was put again", extra={"key": key})


def _as_said(end: Head, word: Word) -> Head | None:
    """How far the log was by the writer's word, ``end`` being what is there; ``None`` where it does not tell."""
    if word.progress is None:
        return None
    progress = {**end.progress, word.progress.lineage: word.progress}
    return replace(end, seq=word.seq, lineage=word.progress.lineage, progress=progress)
