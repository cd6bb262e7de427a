"""The archive's log, writing side: claim an epoch, plan commits ahead, put one at a time, know what a success is worth.

The rules are DESIGN.md, "Opening", "Taking over", "Writing a commit", and were model-checked (``tests/model``). One commit is
in flight at a time; its bytes are fixed when it is planned and sent again unchanged until its key can be read back. A success
counts, or is proven against the head (``counting``). A proven commit enters the local fold before anything else happens: a fold
that missed one is never built upon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from tiered.archive.fold.apply import apply
from tiered.archive.fold.logedits import DICTIONARIES, ENCRYPTION, refuse_older_writer, refuse_plain_writer
from tiered.archive.log.again import ReadCommit
from tiered.archive.log.beat import GONE, Sighting, last_beat
from tiered.archive.log.counting import CountedSuccess
from tiered.archive.log.planned import Place, PlannedCommit
from tiered.archive.log.readback import CommitReadBack
from tiered.archive.log.reader import LogReader
from tiered.archive.log.resending import Resending, Result
from tiered.archive.log.word import remove_words
from tiered.archive.state.forgotten import FORGOTTEN_QUEUES
from tiered.archive.state.layers import Changes, Overlay, store_changes
from tiered.archive.state.recentqueues import RECENT_QUEUES, Planning, RecentQueues
from tiered.archive.state.sinks import SINK_MAPS, SINKS
from tiered.archive.state.values import Head, position
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.aliases import LITE_QUEUES
from tiered.codec.format.commit import encode_commit
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, batch
from tiered.codec.types import Buffer
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Conflict, Corrupt, Fenced, Invalid, Refused, TieredError, Unavailable
from tiered.metadata.base import MetadataStore
from tiered.provider.base import Encryptor
from tiered.provider.resolve import ask_clock, bind, make_durable
from tiered.text.human import second
from tiered.version import MIN_READER, MIN_WRITER

ZERO_ID = bytes(16)
ARCHIVER = "master"
MAINTAINER = "maintenance"
"""The role of an epoch in which nothing is archived: of a command that merges, trims, collects or mends."""
BY_ROLE = {ARCHIVER: "a daemon, or tiered run", MAINTAINER: "a command of maintenance"}
_NO_OBJECTS: Mapping[str, Callable[[], None]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _Success:
    """A commit is there and ours: since when, and the answer that said so; both by the store's clock."""

    store_time_ms: int
    date_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What an ``OpenEpoch`` says of this writer."""

    lineage: int
    host: str
    source_kind: str = "commitlog"
    role: str = ARCHIVER
    broker_epoch: int | None = None
    lite_queues: bool = False
    """Whether it archives aliases; once an epoch did, all later ones say so."""
    forgets_queues: bool = False
    """Whether queues may be forgotten; once in an epoch, in all later ones."""


class CommitLog:
    """The writer's end of the log. ``plan`` may run ahead of ``put`` (one thread each); ``put`` is called in plan order."""

    def __init__(
        self,
        reader: LogReader,
        store: MetadataStore,
        resending: Resending,
        *,
        writer_id: bytes,
        random_bytes: Callable[[int], bytes],
        recent_queues: int = RECENT_QUEUES,
    ) -> None:
        """``recent_queues``: see ``RecentQueues``."""
        self.reader = reader
        self.store = store
        self.resending = resending
        self.writer_id = writer_id
        self._random_bytes = random_bytes
        self._planning = threading.Lock()
        self._place: Place | None = None
        self._lock = threading.Lock()
        self._pending: list[Changes] = []
        self._recent = RecentQueues(recent_queues)
        self._tip: Head | None = None
        self._watched: tuple[bytes, float] | None = None  # a foreign sign, and since when it is the last
        self._missed: BaseException | None = None
        self._counted = CountedSuccess(reader)
        self.read_back = CommitReadBack(reader, resending, self._is_ours, self._floor)
        self.edit_bytes = 0
        """Edits of all commits proven by this process, decompressed: what a process that opens behind them has to fold."""

    # ---- the fold, proven and planned

    def proven(self) -> ArchiveState:
        """The fold of everything proven: what readers may be told."""
        return ArchiveState(self.store)

    def _floor(self) -> int:
        head = self.proven().head()
        return 0 if head is None else head.floor

    def frozen(self) -> ArchiveState:
        """``proven`` as it is now, and stays: for a walk over objects and then over runs, beside which archiving goes on."""
        return ArchiveState(self.store.snapshot())

    def planned(self) -> ArchiveState:
        """The fold as it will be when everything planned is proven, for the moment."""
        return ArchiveState(self._overlay())

    def planning(self) -> ArchiveState:
        """``planned`` for the next plan, which asks for the records of many queues twice, and most were in the last ones.
        Only for the one who has ``next_place``, and while it is held."""
        if self._place is None:
            raise RuntimeError("a commit is planned while its place is held")
        return ArchiveState(Planning(self._overlay(), self._recent))

    def _overlay(self) -> Overlay:
        with self._lock:
            return Overlay(self.store, list(self._pending))

    @property
    def tip(self) -> Head | None:
        """Head of the planned fold."""
        with self._lock:
            return self._tip

    # ---- opening

    def follow(self, progress: Callable[[int], None] | None = None) -> Head | None:
        """Fold to the end of the log (nothing may be planned)."""
        head = self.reader.fold(self.store, progress)
        if head is not None:  # a head whose writer died between link and fsync must not be built upon
            make_durable(self.reader.provider, self.reader.keys.commit(head.seq))
        self._recent.clear()
        self.read_back.forget()
        with self._lock:
            self._pending = []
            self._tip = head
            self._missed = None
        return head

    def foreign_writer(self, head: Head | None, takeover_wait_ms: int) -> Sighting:
        """How long the writer of ``head``, if it is another one, must still stay silent before this one may take over."""
        if head is None or head.writer_id == self.writer_id:
            return GONE
        provider, keys = self.reader.provider, self.reader.keys
        ask_clock(provider, keys.identity)  # both times of an answer are then of one clock, the store's
        found = self.reader.read(head.seq)
        if found is None:
            return Sighting(1)
        beat = last_beat(provider, keys, head.epoch)
        answered = self.reader.answered
        if beat is not None and (beat.ends(head) or (answered is not None and beat.ends_behind(answered))):
            return GONE
        if found.last_modified_ms is None:
            sign = head.commit_id if beat is None else beat.stored.key.encode()
            return Sighting(max(0, takeover_wait_ms - self._watched_ms(sign)))
        seen_ms, now_ms = found.last_modified_ms, found.date_ms
        if beat is not None:
            seen_ms, now_ms = max(seen_ms, beat.stored.last_modified_ms), max(now_ms, beat.stored.date_ms)
        rested_ms = max(0, now_ms - seen_ms)  # a file's time may be a tick ahead of the clock's
        return Sighting(max(0, takeover_wait_ms - rested_ms), seen_ms)

    def _watched_ms(self, sign: bytes) -> int:
        """How long this process has seen no later sign: what there is to go by where the store tells no times of objects."""
        now = self.resending.clock.monotonic()
        if self._watched is None or self._watched[0] != sign:
            self._watched = (sign, now)
        return int((now - self._watched[1]) * 1000)

    def check_next(self, head: Head) -> None:
        """``Fenced`` if the commit behind ``head``, the proven one, is there and another writer's."""
        found = self.reader.read(head.seq + 1)
        if found is not None and found.commit.writer_id != self.writer_id:
            raise _fenced(self.reader.keys.commit(head.seq + 1), None, found)

    def claim(self, claim: Claim, store_time_ms: int, *, before_try: Callable[[Head | None], None]) -> Head:
        """Put an ``OpenEpoch`` at the end. A commit met there is applied and the claim tried at the next number.

        ``before_try`` is called with the head before every try: it waits for a foreign writer to fall silent, or raises.
        """
        encryptor, root = self.reader.provider.capabilities.encryptor, self.reader.keys.root
        while True:
            before_try(self.tip)
            if self.reader.goes_on_behind(self.tip):
                self.follow()
                continue
            self._counted.begin()
            if self.tip is not None:
                refuse_older_writer(self.tip)
                if encryptor is None:
                    refuse_plain_writer(self.tip)
            with self.next_place(opens_epoch=True) as place:
                planned = self.plan(place, [self._open_epoch(place, claim, store_time_ms)])
            reach(CrashPoint.BEFORE_OPEN_EPOCH)
            try:
                self.put(planned)
            except Fenced:
                self.follow()
                continue
            reach(CrashPoint.AFTER_OPEN_EPOCH)
            head = self.tip
            assert head is not None
            if self.reader.answered is not None:
                remove_words(self.reader, head.epoch)
            if encryptor is not None:
                self._encrypt_from(encryptor, root, head)
            return head

    def _encrypt_from(self, encryptor: Encryptor, root: str, head: Head) -> None:
        """Have the data key of a fresh epoch stored, before anything else of it."""
        self.resending.until_done(lambda: encryptor.open_epoch(root, head.archive_id, head.epoch))

    def _open_epoch(self, place: Place, claim: Claim, store_time_ms: int) -> EditBatch:
        features = [] if self.reader.provider.capabilities.encryptor is None else [ENCRYPTION]
        asked = {
            LITE_QUEUES: claim.lite_queues, FORGOTTEN_QUEUES: claim.forgets_queues, SINKS: False, SINK_MAPS: False,
            DICTIONARIES: False,
        }  # fmt: skip
        for feature, wanted in asked.items():
            if wanted or (self.tip is not None and feature in self.tip.required_features):
                features.append(feature)
        return batch(
            EditKind.OPEN_EPOCH,
            epoch=place.epoch,
            writer_id=self.writer_id,
            host=claim.host,
            store_time_ms=store_time_ms,
            lineage=claim.lineage,
            source_kind=claim.source_kind,
            role=claim.role,
            broker_epoch=claim.broker_epoch,
            min_reader=MIN_READER,
            min_writer=MIN_WRITER,
            required_features=Rows([features]),
        )

    # ---- planning and putting

    @contextmanager
    def next_place(self, *, opens_epoch: bool = False) -> Iterator[Place]:
        """The next free place after everything planned. It is the caller's alone until the block ends: others wait."""
        with self._planning:
            self._place = self._free_place(opens_epoch=opens_epoch)
            try:
                yield self._place
            finally:
                self._place = None

    def _free_place(self, *, opens_epoch: bool) -> Place:
        tip = self.tip
        epoch = tip.epoch if tip is not None else 0
        return Place(
            archive_id=self.reader.identity.archive_id,
            seq=tip.seq + 1 if tip is not None else 0,
            epoch=epoch + 1 if opens_epoch else epoch,
            commit_id=self._random_bytes(16),
            previous_id=tip.commit_id if tip is not None else ZERO_ID,
        )

    def plan(
        self,
        place: Place,
        edits: Sequence[EditBatch],
        inline: Sequence[Buffer] = (),
        fold: ArchiveState | None = None,
    ) -> PlannedCommit:
        """Fix the bytes of the commit at ``place``, once in the block of ``next_place``, and its changes.

        ``fold``: ``planning``, asked in the same block, if it was. A commit that breaks a rule is refused here (``Corrupt``),
        unwritten.
        """
        if place is not self._place:
            raise RuntimeError("a commit is planned once, while its place is held")
        commit = Commit(
            seq=place.seq,
            epoch=place.epoch,
            archive_id=place.archive_id,
            commit_id=place.commit_id,
            previous_id=place.previous_id,
            writer_id=self.writer_id,
            edits=edits,
            inline_length=sum(len(p) for p in inline),
        )
        self._check_whole()
        changes = apply((fold or self.planning()).view, commit)
        parts = tuple(encode_commit(commit, inline))
        self._recent.planned(changes)
        with self._lock:
            self._pending.append(changes)
            self._tip = changes.head
        self._place = None
        return PlannedCommit(commit, parts, changes)

    def put(self, planned: PlannedCommit, objects: Mapping[str, Callable[[], None]] = _NO_OBJECTS) -> int:
        """Make a planned commit real and enter it in the local cache. Returns the store's time of it in ms.

        ``objects``: keys that the commit names, and how to put each again: a disk under a POSIX archive may have gone away
        since, and another have come in its place. The commit is put only where they are, behind the commit before it.
        ``Fenced``: the number belongs to somebody else. ``Unavailable``: told to give up while the outcome was unknown, or
        while the local fold could not be written: nothing more can be planned or put then until ``follow`` folded again.
        """
        self._check_whole()
        reach(CrashPoint.BEFORE_COMMIT)
        success = self._put_until_known(planned, objects)
        reach(CrashPoint.AFTER_COMMIT)
        self._patiently(planned, lambda: self._counted.count(planned.commit.seq, success.date_ms))
        try:
            self.keep(lambda: self._enter(planned))
        except BaseException as e:
            with self._lock:
                self._missed = e
            raise
        self.edit_bytes += planned.edit_bytes
        with self._lock:
            self._pending.pop(0)
        reach(CrashPoint.AFTER_METADATA)
        self.read_back.add(planned)
        return success.store_time_ms

    def keep(self, write: Callable[[], None]) -> None:
        """Do a write of local state for as long as its disk is full or away; ``Unavailable`` once told to give up."""
        self.resending.until_done(write)

    def _enter(self, planned: PlannedCommit) -> None:
        """Enter a proven commit in the local fold, which must stand right before it (or at it: a write may fail when done)."""
        commit, applied = planned.commit, self.store.applied()
        before = position(commit.seq - 1, commit.previous_id, commit.archive_id) if commit.seq else None
        if applied not in (before, planned.changes.head.position()):
            raise Corrupt(
                "the local fold missed a commit of the archive",
                hint="start the daemon again: it folds the log from where its own state ends",
                commit=commit.seq,
                expected=None if before is None else before.hex(),
                found=None if applied is None else applied.hex(),
            )
        store_changes(self.store, [planned.changes])

    def _check_whole(self) -> None:
        """Nothing is built on a fold that lacks what the archive has, whatever tried to go on after the error."""
        with self._lock:
            missed = self._missed
        if missed is not None:
            raise TieredError(
                "a commit of the archive did not enter the local fold: nothing can be built on it",
                hint="fix the cause and start the daemon again: it folds the log from where its own state ends",
                cause=missed,
            ) from missed

    def _put_until_known(
        self, planned: PlannedCommit, objects: Mapping[str, Callable[[], None]] = _NO_OBJECTS
    ) -> _Success:
        seq = planned.commit.seq
        key = self.reader.keys.commit(seq)
        builds_on = seq and not self.reader.has_stand_in(seq - 1)
        needs = [*objects, *([self.reader.keys.commit(seq - 1)] if builds_on else [])]

        def put() -> _Success:
            try:
                for lost in bind(self.reader.provider, key, needs):
                    if lost in objects:
                        objects[lost]()
                    else:
                        self._counted.behind_nothing(seq)
                date_ms = self.reader.provider.put(key, planned.parts, create_only=True).date_ms
                return _Success(date_ms, date_ms)
            except Fenced:
                raise
            except Conflict:
                return self._read_back(planned, key)

        return self._patiently(planned, put)

    def _patiently(self, planned: PlannedCommit, ask: Callable[[], Result]) -> Result:
        """What the store answers, however long it is away; ``Unavailable`` once told to give up."""
        try:  # Invalid too: rights come back, a daemon that ended does not
            return self.resending.until_done(ask, (Unavailable, Invalid))
        except Refused:
            raise
        except (Unavailable, Invalid) as unknown:
            raise Unavailable(
                "stopped while the outcome of a commit was unknown",
                hint="start the daemon again: it reads the log and goes on where it ends",
                key=self.reader.keys.commit(planned.commit.seq),
                cause=unknown.message,
            ) from unknown

    def _read_back(self, planned: PlannedCommit, key: str) -> _Success:
        """After a 412: our own commit id is our own success (a lost answer looks just like this), anything else a fence."""
        found = self.reader.read(planned.commit.seq)
        if found is None or found.commit.commit_id != planned.commit.commit_id:
            raise _fenced(key, planned.commit.commit_id, found)
        make_durable(self.reader.provider, key)
        known_ms = found.last_modified_ms
        return _Success(found.date_ms if known_ms is None else known_ms, found.date_ms)

    def _is_ours(self, seq: int, commit_id: bytes) -> bool:
        """Whether a commit that was put lies under its number; ``Fenced`` if another one does."""
        found = self.reader.read(seq)
        if found is not None and found.commit.commit_id != commit_id:
            raise _fenced(self.reader.keys.commit(seq), commit_id, found)
        return found is not None


def _fenced(key: str, expected: bytes | None, found: ReadCommit | None) -> Fenced:
    """The error of a writer whose place ``found`` has. ``expected``: the commit that it put there, if it put one."""
    return Fenced(
        "another writer took this archive over",
        hint="is the other one meant to have it? Then stop this one; else stop that, and start this one with --take-over",
        **_other_writer(found),
        key=key,
        expected="nothing" if expected is None else expected.hex(),
        found="nothing" if found is None else found.commit.commit_id.hex(),
    )


def _other_writer(found: ReadCommit | None) -> dict[str, object]:
    """Who wrote the commit that stands in our place, on which host and when by the store's clock, as far as it tells."""
    if found is None:
        return {}
    opening = next((e for e in found.commit.edits if e.kind is EditKind.OPEN_EPOCH), None)
    written_ms = found.last_modified_ms if found.last_modified_ms is not None else found.date_ms
    return {
        "by": "unknown" if opening is None else BY_ROLE.get(opening.row(0)["role"], "unknown"),
        "host": "unknown" if opening is None else opening.row(0)["host"],
        "time": second(written_ms),
        "writer": found.commit.writer_id.hex(),
    }
