"""A whole write path in one thread: memory provider, memory metadata, a clock that moves only when told to.

Nothing here sleeps or starts a thread: ``step`` and ``settle`` do what the daemon's services do. The same provider and a new
``assemble`` is a restart; ``Counting.calls`` is every request the store saw.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.kit.storefakes import Scripted
from tiered.archive import ahead
from tiered.archive.checkpoint import store as checkpoints
from tiered.archive.checkpoint.format import Manifest
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.flush import Proven, Unsettled
from tiered.archive.log.identity import ensure_identity
from tiered.archive.log.line import CommitLine
from tiered.archive.log.planned import PlannedCommit
from tiered.archive.log.reader import LogReader
from tiered.archive.log.resending import ResendEvents, Resending
from tiered.archive.log.writer import CommitLog
from tiered.archive.read import verify
from tiered.archive.read.flatfile import FlatMessageFile, RunReader
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.backoff import Backoff
from tiered.clock import ManualClock
from tiered.codec.format.edits import EditBatch
from tiered.errors import TieredError
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, PhysicalOffset
from tiered.opening.claim import Claimant
from tiered.opening.lineage import BrokerComparison
from tiered.opening.open import Opened, Opening
from tiered.provider.base import Provider, Stored
from tiered.provider.memory import MemoryProvider
from tiered.settings import MIB, Archive, Dispatch, Hold, Settings, Source
from tiered.source.local import LocalCommitLog
from tiered.write.compression import Compression
from tiered.write.dispatcher import Dispatcher, DispatchPace
from tiered.write.draft import Draft
from tiered.write.preparer import Preparer

if TYPE_CHECKING:
    import pytest

KEYS = ArchiveKeys("DefaultCluster", "broker-a")
LATE_SECONDS = 4.0
"""How late ``settle`` wakes a dispatcher at most."""


class Counting(Scripted):
    """A scripted provider that records listings too."""

    def __init__(self, inner: Provider, script: Sequence[str | TieredError] = ()) -> None:
        super().__init__(inner, script)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        self.calls.append(("list", prefix))
        return self.inner.list(prefix, start_after=start_after, limit=limit)

    def say(self, *script: str | TieredError) -> None:
        """What happens to the next requests."""
        self._script.extend(script)


class AtOnce(Executor):
    """A pool without threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done


def memory(clock: ManualClock | None = None, *script: str | TieredError) -> Counting:
    """A fresh store in memory."""
    return Counting(MemoryProvider("", clock or ManualClock()), script)


def one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits, shards and objects are read without threads that ask ahead, for as long as ``monkeypatch`` lasts: for tests of
    hundreds of folds of a store in memory, which answers at once."""
    monkeypatch.setattr(ahead, "MOST_AHEAD", 1)
    monkeypatch.setattr(ahead, "MOST_KNOWN", 1)
    monkeypatch.setattr(checkpoints, "SHARDS_AHEAD", 1)
    monkeypatch.setattr(verify, "READ_AHEAD", 1)


def open_log(
    provider: Provider,
    clock: ManualClock,
    *,
    writer: bytes = b"A" * 16,
    store: Any = None,
    seed: int = 1,
    give_up: threading.Event | None = None,
    events: ResendEvents | None = None,
    follow: bool = True,
    recent_queues: int = 2,
) -> CommitLog:
    """The log of ``KEYS`` in a provider; its identity is made if it is not there."""
    chance = random.Random(seed)
    identity = ensure_identity(provider, KEYS, clock.now_ms(), chance.randbytes)
    log = CommitLog(
        LogReader(provider, KEYS, identity),
        store if store is not None else MemoryStore(),
        Resending(clock, Backoff(1.0), give_up or threading.Event(), events or Heard()),
        writer_id=writer,
        random_bytes=chance.randbytes,
        recent_queues=recent_queues,
    )
    if follow:
        log.follow()
    return log


def put(log: CommitLog, *edits: EditBatch) -> PlannedCommit:
    """One commit of these edits, proven."""
    planned = plan(log, *edits)
    log.put(planned)
    return planned


def plan(log: CommitLog, *edits: EditBatch) -> PlannedCommit:
    """The next commit, of these edits, not proven yet."""
    with log.next_place() as place:
        return log.plan(place, edits)


@dataclass
class Heard:
    """Everything the way in tells. ``said``: of the opening, as messages with fields; ``and_then`` hears of proofs, too."""

    proofs: list[Proven] = field(default_factory=list)
    gaps: list[tuple[int, int, str]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    resent: list[TieredError] = field(default_factory=list)
    vanished: list[TieredError] = field(default_factory=list)
    checkpoints: list[Manifest] = field(default_factory=list)
    damage: list[TieredError] = field(default_factory=list)
    said: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    on_say: Callable[[str], None] = lambda message: None
    and_then: Callable[[Proven], None] = lambda event: None
    on_resend: Callable[[TieredError], None] = lambda error: None

    def proven(self, event: Proven) -> None:
        self.proofs.append(event)
        self.and_then(event)

    def gap(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> None:
        self.gaps.append((start, end, reason))

    def changed(self, detail: str) -> None:
        self.changes.append(detail)

    def resending(self, error: TieredError, first: TieredError, began: float) -> None:
        self.resent.append(error)
        self.on_resend(error)

    def sent(self, first: TieredError) -> None:
        """Nobody counts."""

    def not_kept(self, error: TieredError) -> None:
        self.vanished.append(error)

    def read_back(self, vanished: TieredError | None) -> None:
        if vanished is not None:
            self.vanished.append(vanished)

    def alive(self) -> None:
        """Nobody watches."""

    def checkpointed(self, manifest: Manifest) -> None:
        self.checkpoints.append(manifest)

    def damaged(self, error: TieredError) -> None:
        self.damage.append(error)

    def compared(self, outcome: BrokerComparison, lineage: int) -> None:
        self._say(
            "compared the broker with its archive",
            {
                "relation": outcome.relation.value, "offset": outcome.offset, "lineage": lineage, "why": outcome.reason,
            },
        )  # fmt: skip

    def rewound(self, outcome: BrokerComparison, seq: int) -> None:
        self._say("rewound", {"offset": outcome.offset, "reason": outcome.reason, "commit": seq})

    def standing_by(self, owner: Head | None, wait_ms: int) -> None:
        assert owner is not None
        self._say(
            "another writer owns the archive: waiting until it is silent",
            {"writer": owner.writer_id.hex(), "host": owner.host, "wait_ms": wait_ms},
        )

    def _say(self, message: str, fields: dict[str, object]) -> None:
        self.said.append((message, fields))
        self.on_say(message)


class SteppingLine(CommitLine):
    """A line without a thread: when it is full, submitting proves the oldest, unless told to leave it full."""

    committing = True

    def submit(self, flush: Unsettled) -> Future[Proven | None]:
        done = super().submit(flush)
        if self.committing and not self.room:
            self.step(0)
        return done


@dataclass
class Assembly:
    """Everything one daemon is made of."""

    clock: ManualClock
    provider: Provider
    log: CommitLog
    source: LocalCommitLog
    objects: ObjectReader
    opening: Opening
    opened: Opened
    preparer: Preparer
    line: SteppingLine
    dispatcher: Dispatcher
    give_up: threading.Event
    heard: Heard

    @property
    def proven(self) -> list[Proven]:
        return self.heard.proofs

    @property
    def gaps(self) -> list[tuple[int, int, str]]:
        return self.heard.gaps

    @property
    def changed(self) -> list[str]:
        return self.heard.changes

    @property
    def said(self) -> list[tuple[str, dict[str, object]]]:
        return self.heard.said

    def commit_all(self) -> int:
        """Prove whatever is in line; how many flushes that were."""
        count = 0
        while self.line.step(0):
            count += 1
        return count

    def step(self) -> float:
        """One step of the dispatcher with an idle committer before and after it."""
        self.commit_all()
        wait = self.dispatcher.step()
        self.commit_all()
        return wait

    def settle(self, seconds: float = 20.0) -> None:
        """Go on until the dispatcher only waited for ``seconds`` of the clock with nothing buffered.

        The longer nothing came, the later it is woken, as on a busy machine: it looks twenty times, not a thousand.
        """
        idle = 0.0
        for _ in range(100_000):
            wait = self.step()
            if wait == 0:
                idle = 0.0
                continue
            wait = max(wait, min(idle / 2, LATE_SECONDS))
            self.clock.advance(wait)
            idle += wait
            if idle >= seconds and not self.dispatcher.buffer:
                return
        raise AssertionError("the dispatcher never came to rest")

    @property
    def state(self) -> ArchiveState:
        return self.log.proven()

    def rows(self) -> dict[MessageQueue, list[tuple[int, int, bytes]]]:
        """(generation, queue offset, record) of every live row of every generation."""
        return live_rows(self.state, self.objects)

    def close(self) -> None:
        """Close the source."""
        self.source.close()


def live_rows(state: ArchiveState, objects: ObjectReader) -> dict[MessageQueue, list[tuple[int, int, bytes]]]:
    """(generation, queue offset, record) of every live row, read through blocks and columns."""
    reader = RunReader(state, objects)
    found: dict[MessageQueue, list[tuple[int, int, bytes]]] = {}
    for run in state.runs_all():
        for stretch in reader.stretches(run, run.start, run.end):
            found.setdefault(run.queue, []).extend(
                (run.generation, int(offset), bytes(stretch.record(i)))
                for i, offset in enumerate(stretch.queue_offsets)
            )
    return found


def read_queue(state: ArchiveState, objects: ObjectReader, queue: MessageQueue) -> bytes:
    """A queue as ``--format raw`` gives it."""
    return b"".join(bytes(s.data) for s in FlatMessageFile(state, objects, queue).read(0))


def assemble(
    directory: Path,
    provider: Provider,
    clock: ManualClock,
    *,
    writer: bytes = b"A" * 16,
    metadata: Any = None,
    seed: int = 1,
    take_over: bool = False,
    source: dict[str, Any] | None = None,
    dispatch: dict[str, Any] | None = None,
    archive: dict[str, Any] | None = None,
    forgets: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    on_say: Callable[[str], None] = lambda message: None,
    drafted: Callable[[Draft], None] = lambda draft: None,
) -> Assembly:
    """A daemon over the broker's store in ``directory``, opened: epoch claimed, rewound if need be."""
    source_settings = Source(store_dir=str(directory), **(source or {}))
    dispatch_settings = Dispatch(**(dispatch or {}))
    archive_settings = Archive(url="memory://", **(archive or {}))
    give_up = threading.Event()
    opened_source = LocalCommitLog(source_settings, Hold(max_disk_percent=99), clock)
    opened_source.hold()
    heard = Heard(on_say=on_say)
    log = open_log(provider, clock, writer=writer, store=metadata, seed=seed, give_up=give_up, events=heard)
    objects = ObjectReader(provider, KEYS, log.reader.identity.archive_id, cache_bytes=4 * MIB)
    line = SteppingLine(
        log, AtOnce(), depth=dispatch_settings.pipeline_flushes, release=opened_source.release, events=heard
    )
    opening = Opening(
        line,
        objects,
        opened_source,
        Claimant(
            log,
            archive_settings.takeover_wait_ms,
            take_over,
            stopping,
            heard,
            dispatch_settings.lite_queues,
            forgets,
        ),
        heard,
        start=source_settings.start,
        accept_new_lineage=archive_settings.new_lineage,
    )
    try:
        opened = opening.open()
    except BaseException:
        opened_source.close()
        raise
    policy = TopicPolicy(source_settings.exclude_topics)
    preparer = Preparer(
        opened_source,
        dispatch_settings,
        compression=Compression(AtOnce(), 1, 1, dispatch_settings.dictionary_bytes),
        excluded=policy.is_excluded,
        lineage=opened.lineage,
    )
    settings = Settings(source=source_settings, dispatch=dispatch_settings, archive=archive_settings)
    dispatcher = Dispatcher(
        opened_source,
        preparer,
        line,
        clock,
        DispatchPace.of(settings),
        opening,
        heard,
        mark=opened.mark,
        broker_mark=opened.broker,
        drafted=drafted,
    )
    return Assembly(
        clock, provider, log, opened_source, objects, opening, opened, preparer, line, dispatcher, give_up, heard
    )  # fmt: skip


def progress_of(assembly: Assembly) -> PhysicalOffset:
    """Physical offset below which everything is proven."""
    head = assembly.state.head()
    assert head is not None
    return PhysicalOffset(head.progress[head.lineage].physical_offset)
