"""The key-value view as a whole: a feed applied to a store, reads of it, and writes that come back through the feed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf

from tiered.clock import Clock
from tiered.errors import BadRequest, Corrupt, NotFound, Refused, Unavailable
from tiered.feed.base import FeedPosition, MessageFeed
from tiered.feed.live import LogCut
from tiered.keyvalue import (
    ALWAYS,
    AT_ONCE,
    MOST_KEYS,
    NOT_DONE,
    PAGE_BYTES,
    Condition,
    Entry,
    Freshness,
    KeyPage,
    ReadRule,
    WriteOutcome,
    check_key,
    check_namespace,
)
from tiered.metadata.base import MetadataView, RedoStore
from tiered.service import AGAIN, Next, pause
from tiered.view.layout import entries_prefix, entry_key, entry_of, namespace_key, split_entry_key
from tiered.view.progress import ViewProgress
from tiered.view.putting import Putter
from tiered.view.redo import Applied, KeyValueRedo, NamespaceState
from tiered.view.sweeping import ExpirySweeper

log = logging.getLogger("tiered.view")

_KEYS_AT_ONCE = 16
"""Values that one look-up of several keys brings before they are counted."""

OpenFeed = Callable[[FeedPosition], MessageFeed]
"""Makes a feed that goes on from a position."""


@dataclass(frozen=True, slots=True)
class ViewPace:
    """``poll_seconds``: pause where nothing is new. ``settle_seconds``: the same while somebody waits for redo.
    ``flush_seconds``: how often what was applied is made durable. ``latest_seconds``: how long a read waits for the latest."""

    poll_seconds: float
    settle_seconds: float
    flush_seconds: float
    latest_seconds: float


class KeyValueView:
    """``KeyValues`` over one store. ``step`` is the step of the one service that applies; all else is for any thread."""

    def __init__(
        self,
        store: RedoStore,
        redo: KeyValueRedo,
        open_feed: OpenFeed,
        progress: ViewProgress,
        pace: ViewPace,
        clock: Clock,
        on_applied: Callable[[Applied], None] = lambda done: None,
    ) -> None:
        self._store = store
        self._redo = redo
        self._open_feed = open_feed
        self._feed = open_feed(redo.position)
        self.progress = progress
        self._pace = pace
        self._clock = clock
        self._on_applied = on_applied
        self._sweeper = ExpirySweeper(store)
        self._flushed = clock.monotonic()
        self._dirty = self._failed = False
        self.putter: Putter | None = None
        """What writes go through; ``None``: this view is for reading."""
        self.end: Callable[[], int] | None = None
        """Where the broker's log ends, for reads of the latest. ``None``: the feed is asked, which is at the master's then."""
        self.nudge: Callable[[], None] = lambda: None
        """Has the service look at once."""
        self.created: set[str] = set()
        self._whole: set[str] = set()
        self._lacking: dict[str, str] = {}
        """Namespaces of which redo saw no message behind the part of the log that it lacks, and what is missing of them."""
        self.rebuilt = 0
        """How often the view began anew because the log was another."""

    # ------------------------------------------------------------------ redo

    def step(self) -> Next:
        """Apply one batch. ``Unavailable``: log, archive or disk are away; it goes on from what is in the store."""
        if self._failed:
            self._reopen()
        try:
            batch = self._feed.poll()
        except LogCut as cut:
            self._begin_anew(str(cut))
            return AGAIN
        if batch is None:
            if self._feed.waiting is None:
                self.progress.at_end(self._feed.looked_seconds())
            self._sweep()
            self._flush_if_due()
            waits = self.progress.expected
            return pause(self._pace.settle_seconds if waits else self._pace.poll_seconds)
        try:
            done = self._redo.apply(batch, with_ids=self.progress.writers > 0)
        except Unavailable:
            self._failed = True
            raise
        self._dirty = True
        self.progress.applied(done, self._redo.states)
        self._on_applied(done)
        self._flush_if_due()
        return AGAIN

    def finish(self) -> None:
        """Make what was applied durable, at the end."""
        self._store.flush()

    def _reopen(self) -> None:
        """After an error of the store it may end earlier: the feed goes on from there."""
        self.progress.goes_back()  # before the store does: nobody may take what is not there again for *not there*
        self._store.reopen()
        self._redo.load()
        self.progress.went_back(self._redo.states, int(self._redo.position.physical or 0))
        self._feed = self._open_feed(self._redo.position)
        self._failed = False

    def _begin_anew(self, why: str) -> None:
        log.error("the view begins anew: the log is not the one that it was made of", extra={"reason": why})
        self.progress.begin_anew()  # before the store is empty
        self._redo.forget()
        self._whole.clear()
        self._lacking.clear()
        self._feed = self._open_feed(self._redo.position)
        self.rebuilt += 1

    def _sweep(self) -> None:
        gone = self._sweeper.some(self._clock.monotonic(), self._redo.newest_ms)
        if not gone:
            return
        try:
            self._store.put_many((), gone)
        except Unavailable:
            self._failed = True
            raise
        self._dirty = True

    def _flush_if_due(self) -> None:
        now = self._clock.monotonic()
        if not self._dirty or now - self._flushed < self._pace.flush_seconds:
            return
        try:
            self._store.flush()
        except Unavailable:
            self._failed = True
            raise
        self._flushed, self._dirty = now, False

    # ------------------------------------------------------------------ reads

    @property
    def waiting(self) -> str | None:
        """Why nothing is applied although the log goes on."""
        return self._feed.waiting

    def lag_bytes(self) -> int:
        """Bytes of the log that are not applied."""
        return max(0, int(self._feed.end()) - self.progress.physical)

    def states(self) -> dict[str, NamespaceState]:
        """What is known of each namespace."""
        return self._redo.states

    def broken(self) -> dict[str, str]:
        """Namespaces that lack messages, and which."""
        states = self._redo.states.items()
        return self._lacking | {name: state.broken for name, state in states if state.broken is not None}

    def stale_ms(self) -> int | None:
        """At most how old an answer is that is made now: how long ago the view was at the log's end; ``None``: never yet."""
        seconds = self.progress.stale_seconds()
        return None if isinf(seconds) else int(seconds * 1000)

    def go_back(self) -> None:
        """After an error of ``step`` that is not ``Unavailable``: the next one goes on from what is in the store."""
        self._failed = True

    def stored_bytes(self) -> int:
        """About how many the store has."""
        return self._store.size().bytes

    def frozen(self) -> MetadataView:
        """The store as it is now: for snapshots. ``Refused`` while it is not whole."""
        life, usable = self.progress.life, self.progress.usable
        frozen: MetadataView = self._store.snapshot()
        if not usable or self.progress.life != life:
            raise Refused("the view is being made, and is not whole yet", hint="ask again later")
        return frozen

    def get(self, namespace: str, key: bytes, rule: ReadRule = AT_ONCE) -> Entry | None:
        """See ``KeyValues``."""
        life = self._ready(namespace, rule)
        [found] = self._store.get_many([entry_key(namespace, check_key(key))])
        self._check_life(life)
        return self._alive(key, found)

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule = AT_ONCE) -> list[Entry | None]:
        """See ``KeyValues``."""
        _bounded("keys", len(keys))
        frozen: MetadataView = self._frozen(namespace, rule)
        found: list[Entry | None] = []
        room = PAGE_BYTES
        for at in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[at : at + _KEYS_AT_ONCE]
            held = frozen.get_many([entry_key(namespace, check_key(key)) for key in some])
            found += map(self._alive, some, held)
            room -= sum(len(entry.value) for entry in found[at:] if entry is not None)
            if room < 0 and len(keys) > 1:
                raise BadRequest(
                    "the values of these keys are too many bytes for one answer", expected=f"at most {PAGE_BYTES} bytes",
                    hint="ask for fewer keys at once",
                )  # fmt: skip
        return found

    def page(
        self, namespace: str, prefix: bytes, *, after: bytes | None, count: int, rule: ReadRule = AT_ONCE
    ) -> KeyPage:
        """See ``KeyValues``."""
        _bounded("entries", count)
        frozen = self._frozen(namespace, rule)
        beginning = entries_prefix(namespace) + prefix
        start = None if after is None else entry_key(namespace, after) + b"\0"
        made: list[Entry] = []
        more: bytes | None = None
        room = PAGE_BYTES
        for stored, value in frozen.iterate(beginning, start=start):
            entry = self._alive(split_entry_key(stored)[1], value)
            if entry is None:
                continue
            if len(made) == count or room <= 0:
                more = made[-1].key
                break
            made.append(entry)
            room -= len(entry.value)
        [told] = frozen.get_many([namespace_key(namespace)])
        applied = 0 if told is None else NamespaceState.decode(told).next
        return KeyPage(tuple(made), more, applied)

    def namespaces(self) -> list[str]:
        """See ``KeyValues``."""
        return sorted(self._redo.states.keys() | self.created)

    def _alive(self, key: bytes, found: bytes | None) -> Entry | None:
        entry = None if found is None else entry_of(key, found)
        if entry is not None and entry.expires_ms is not None and entry.expires_ms <= self._clock.now_ms():
            return None
        return entry

    def _frozen(self, namespace: str, rule: ReadRule) -> MetadataView:
        """The store as the rule asks for it."""
        life = self._ready(namespace, rule)
        frozen = self._store.snapshot()
        self._check_life(life)
        return frozen

    def _check_life(self, life: int) -> None:
        """``Unavailable`` where the store began to be made again while it was read."""
        if self.progress.life != life:
            raise Unavailable("the view began to be made again during the read", hint="ask again")

    def _ready(self, namespace: str, rule: ReadRule) -> int:
        """Wait for what the rule asks for; the life that is read then. ``NotFound`` for a namespace that is not known."""
        check_namespace(namespace)
        life = self.progress.life
        if rule.freshness is Freshness.LATEST:
            self._wait_latest()
        elif not self.progress.wait_usable(self._pace.latest_seconds):
            raise Unavailable(
                "the view is being made, and is not whole yet", applied=self.progress.physical,
                waiting=self._feed.waiting or "redo", hint="ask again later",
            )  # fmt: skip
        elif rule.max_stale_ms is not None and self.progress.stale_seconds() * 1000 > rule.max_stale_ms:
            raise Unavailable(
                "the view is too old for this read", limit_ms=rule.max_stale_ms, waiting=self._feed.waiting or "redo",
                hint="ask for an older one, or again later",
            )  # fmt: skip
        self._check_whole(namespace)
        if namespace not in self._redo.states and namespace not in self.created:
            raise NotFound(
                "there is no such namespace", namespace=namespace, hint="tiered kv create makes it"
            )
        return life

    def _check_whole(self, namespace: str) -> None:
        """``Corrupt`` for a namespace that lacks messages, or of which nobody can say that it has all."""
        lacks = self._redo.position.lacks
        if lacks is not None and self._in_doubt(namespace, lacks):
            self._ask_whether_whole(namespace, lacks)
        missing = self.broken().get(namespace)
        if missing is not None:
            raise Corrupt(
                "messages of the namespace are missing: nothing of it is served, and no write decided",
                namespace=namespace, missing=missing, outcome=NOT_DONE,
                hint="import a snapshot that covers them, or name an archive that has them, and delete the view's store",
            )  # fmt: skip

    def _in_doubt(self, namespace: str, lacks: int) -> bool:
        """Whether redo has seen nothing of it behind the part of the log that is lacking."""
        state = self._redo.states.get(namespace)
        if namespace in self._whole or (state is not None and (state.physical or 0) >= lacks):
            self._lacking.pop(namespace, None)
            return False
        return True

    def _ask_whether_whole(self, namespace: str, lacks: int) -> None:
        """Of the broker, which counts the messages that it no longer has."""
        if self.putter is None:
            self._lacking[namespace] = f"the log below {lacks} is gone, and no archive is named: nobody knows"
            return
        end = self.putter.next_version(namespace)
        if end is not None and end > self._applied(namespace):
            self._wait_latest()
            if not self._in_doubt(namespace, lacks):
                return
            if end > self._applied(namespace):
                told = f"offsets {self._applied(namespace)} to {end - 1} lay in the log below {lacks}, which is gone"
                self._lacking[namespace] = told
                return
        self._lacking.pop(namespace, None)
        if end is not None:
            self._whole.add(namespace)
            self.created.add(namespace)

    def _applied(self, namespace: str) -> int:
        state = self._redo.states.get(namespace)
        return 0 if state is None else state.next

    def _wait_latest(self) -> None:
        before = self.progress.physical
        end = int(self._feed.end()) if self.end is None else self.end()
        if end < before:
            self.nudge()
            raise Unavailable(
                "the log ends before what was applied: its broker lost a tail, and redo has not looked yet",
                applied=before, end=end, hint="ask again",
            )  # fmt: skip
        with self.progress.expecting():
            if self.progress.physical < end:
                self.nudge()
            reached = self.progress.wait_physical(end, self._pace.latest_seconds)
        if not reached:
            raise Unavailable(
                "the view did not reach the log's end in time", applied=self.progress.physical, end=end,
                waiting=self.progress.ended or self._feed.waiting or "redo", hint="ask again, or for any version",
            )  # fmt: skip

    # ------------------------------------------------------------------ writes

    def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> WriteOutcome:
        """See ``KeyValues``."""
        return self._writer(namespace).put(namespace, key, value, condition, ttl_ms)

    def delete(self, namespace: str, key: bytes, *, condition: Condition = ALWAYS) -> WriteOutcome:
        """See ``KeyValues``."""
        return self._writer(namespace).delete(namespace, key, condition)

    def create(self, namespace: str) -> bool:
        """See ``KeyValues``."""
        made = self._writer(namespace).create(namespace)
        self.created.add(namespace)
        return made

    def _writer(self, namespace: str) -> Putter:
        check_namespace(namespace)
        if self.putter is None:
            raise BadRequest("this view takes no writes", hint="set kv.broker_address")
        if not self.progress.wait_usable(self._pace.latest_seconds):
            raise Unavailable(
                "the view is being made, and is not whole yet: no write is decided", applied=self.progress.physical,
                waiting=self._feed.waiting or "redo", outcome=NOT_DONE, hint="ask again later",
            )  # fmt: skip
        self._check_whole(namespace)
        return self.putter


def _bounded(what: str, count: int) -> None:
    if not 0 < count <= MOST_KEYS:
        raise BadRequest(
            f"a read of so many {what} is not allowed",
            found=count,
            expected=f"1 to {MOST_KEYS}",
            hint="ask for fewer",
        )
