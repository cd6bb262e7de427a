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
from typing import Any

from tests.kit.storefakes import Scripted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.identity import ensure_identity
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog
from tiered.archive.read.flatfile import FlatMessageFile, RunReader
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.view import ArchiveState
from tiered.backoff import Backoff
from tiered.clock import ManualClock
from tiered.codec.format.block import compress
from tiered.errors import TieredError
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, PhysicalOffset
from tiered.opening.archiver import Archiver, Opened
from tiered.provider.base import Provider, Stored
from tiered.provider.memory import MemoryProvider
from tiered.settings import MIB, Archive, Dispatch, Hold, Source
from tiered.source.local import LocalCommitLog
from tiered.source.start import resolve_start
from tiered.write.committer import Committer, Proven
from tiered.write.dispatcher import Dispatcher, Hooks
from tiered.write.preparer import CompressionInPlace, Preparer

KEYS = ArchiveKeys("DefaultCluster", "broker-a")
ARCHIVE_MS = 1_700_000_000_000
LATE_SECONDS = 0.5
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


def compress_all(raws: Sequence[memoryview]) -> list[Any]:
    """Blocks compressed one after the other."""
    return [compress(raw, level=1) for raw in raws]


def memory(clock: ManualClock | None = None, *script: str | TieredError) -> Counting:
    """A fresh store in memory."""
    return Counting(MemoryProvider("", clock or ManualClock()), script)


def open_log(
    provider: Provider,
    clock: ManualClock,
    *,
    writer: bytes = b"A" * 16,
    store: Any = None,
    seed: int = 1,
    give_up: threading.Event | None = None,
    on_unknown: Callable[..., None] = lambda *_: None,
    follow: bool = True,
) -> CommitLog:
    """The log of ``KEYS`` in a provider; its identity is made if it is not there."""
    chance = random.Random(seed)
    identity = ensure_identity(provider, KEYS, clock.now_ms(), chance.randbytes)
    log = CommitLog(
        LogReader(provider, KEYS, identity),
        store if store is not None else MemoryStore(),
        clock,
        writer_id=writer,
        random_bytes=chance.randbytes,
        backoff=Backoff(1.0),
        give_up=give_up or threading.Event(),
        on_unknown=on_unknown,
    )
    if follow:
        log.follow()
    return log


@dataclass
class Assembly:
    """Everything one daemon is made of."""

    clock: ManualClock
    provider: Provider
    log: CommitLog
    source: LocalCommitLog
    objects: ObjectReader
    archiver: Archiver
    opened: Opened
    preparer: Preparer
    committer: Committer
    dispatcher: Dispatcher
    give_up: threading.Event
    proven: list[Proven] = field(default_factory=list)
    gaps: list[tuple[int, int, str]] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    said: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    committing: bool = True
    """Whether flushes are proven as soon as the line is full; off, the line stays full."""

    def commit_all(self) -> int:
        """Prove whatever is in line; how many flushes that were."""
        count = 0
        while self.committer.step(0):
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

        The longer nothing came, the later it is woken, as on a busy machine: it looks a hundred times, not a thousand.
        """
        idle = 0.0
        for _ in range(100_000):
            wait = self.step()
            if wait == 0:
                idle = 0.0
                continue
            wait = max(wait, min(idle / 10, LATE_SECONDS))
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
    stopping: Callable[[], bool] = lambda: False,
    on_say: Callable[[str], None] = lambda message: None,
) -> Assembly:
    """A daemon over the broker's store in ``directory``, opened: epoch claimed, rewound if need be."""
    source_settings = Source(store_dir=str(directory), **(source or {}))
    dispatch_settings = Dispatch(**(dispatch or {}))
    archive_settings = Archive(url="memory://", **(archive or {}))
    give_up = threading.Event()
    opened_source = LocalCommitLog(source_settings, Hold(max_disk_percent=99), clock)
    opened_source.hold()
    log = open_log(provider, clock, writer=writer, store=metadata, seed=seed, give_up=give_up)
    objects = ObjectReader(provider, KEYS, log.reader.identity.archive_id, cache_bytes=4 * MIB)
    said: list[tuple[str, dict[str, object]]] = []

    def say(message: str, fields: dict[str, object]) -> None:
        said.append((message, fields))
        on_say(message)

    def first_local_ms() -> int | None:
        oldest = opened_source.min_offset()
        return next((opened_source.first_time(f) for f in opened_source.files() if f.base == oldest), None)

    archiver = Archiver(
        log,
        objects,
        opened_source,
        clock,
        archive_settings,
        source_settings,
        resolve_start=lambda start: resolve_start(opened_source, start),
        first_local_ms=first_local_ms,
        take_over=take_over,
        say=say,
        stopping=stopping,
    )
    try:
        opened = archiver.open()
    except BaseException:
        opened_source.close()
        raise
    proven: list[Proven] = []
    gaps: list[tuple[int, int, str]] = []
    changed: list[str] = []
    policy = TopicPolicy(source_settings.exclude_topics)
    preparer = Preparer(
        opened_source,
        log,
        dispatch_settings,
        compression=CompressionInPlace(compress_all),
        excluded=policy.is_excluded,
        lineage=opened.lineage,
        mark=opened.mark,
    )
    committer = Committer(
        log,
        AtOnce(),  # type: ignore[arg-type]
        clock=clock,
        depth=dispatch_settings.pipeline_flushes,
        backoff=Backoff(1.0),
        give_up=give_up,
        release=opened_source.release,
        on_proven=proven.append,
    )

    def prepared(flush: object) -> None:
        if made.committing and not made.committer.room:
            made.committer.step(0)

    dispatcher = Dispatcher(
        opened_source,
        log,
        preparer,
        committer,
        clock,
        dispatch_settings,
        source_settings,
        position=opened.position,
        broker_mark=opened.broker,
        reconcile=archiver.reconcile,
        healed=archiver.gap_was_rewritten,
        beat_seconds=archive_settings.takeover_wait_ms / 3000 if archive_settings.standby_beat else None,
        hooks=Hooks(
            gap=lambda start, end, reason: gaps.append((start, end, reason)),
            changed=changed.append,
            prepared=prepared,
        ),
    )
    made = Assembly(
        clock, provider, log, opened_source, objects, archiver, opened, preparer, committer, dispatcher, give_up,
        proven, gaps, changed, said,
    )  # fmt: skip
    return made


def progress_of(assembly: Assembly) -> PhysicalOffset:
    """Physical offset below which everything is proven."""
    head = assembly.state.head()
    assert head is not None
    return PhysicalOffset(head.progress[head.lineage].physical_offset)
