"""A sink that runs beside a writer, in one thread: a log written by hand, its archive in memory, and a destination that
remembers what it was given, survives its process, and fails when told to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.kit.assemble import Assembly, Counting, assemble, memory, progress_of
from tests.kit.brokerlog import BrokerLog
from tiered.archive.log.line import CommitLine
from tiered.archive.read.view import View
from tiered.backoff import Backoff
from tiered.clock import ManualClock
from tiered.errors import Unavailable
from tiered.feed.base import Follow
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.settings import Hold, Source
from tiered.sink.base import Accepted, Rewound, SafePoint, Sink, SinkBatch, SinkPosition
from tiered.sink.book import SinkRewind, StoredSink
from tiered.sink.comparison.comparing import merged
from tiered.sink.comparison.found import Compared
from tiered.sink.comparison.verifying import compare, reader_of, taking, whole_scope
from tiered.sink.kinds import find_kind
from tiered.sink.ledger import SinkCommit, SinkLedger
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase
from tiered.sink.running import UNHEARD, SinkRunner
from tiered.sink.source import SinkPace
from tiered.sink.writersource import WriterArchive, writer_source
from tiered.source.local import LocalCommitLog

Given = tuple[MessageQueue, int, bytes]
"""Queue, queue offset, body."""


@dataclass
class Remembered:
    """A destination. ``keeps``: its position lies there, in one step with the messages. ``fail``: asked before each call."""

    keeps: bool = True
    given: list[Given] = field(default_factory=list)
    position: SinkPosition = field(default_factory=SinkPosition)
    marks: list[Rewound] = field(default_factory=list)
    opened: int = 0
    anew: list[bool] = field(default_factory=list)
    """Of each opening, whether an operator had the sink begin again."""
    fail: Callable[[str], None] = lambda call: None
    half: bool = False
    """Without ``keeps``: what is written is there although it was not flushed."""

    def open(self, stored: StoredSink, anew: bool) -> Sink:
        self.fail("open")
        self.opened += 1
        self.anew.append(anew)
        return RememberingSink(self)

    def of(self, queue: MessageQueue) -> list[int]:
        return [offset for at, offset, _ in self.given if at == queue]


class RememberingSink:
    """One process's hold on it."""

    def __init__(self, there: Remembered) -> None:
        self._there = there
        self._written: list[Given] = []
        self._marks: list[Rewound] = []

    def position(self) -> SinkPosition | None:
        return self._there.position if self._there.keeps else None

    def write(self, batch: SinkBatch) -> Accepted:
        self._there.fail("write")
        messages = batch.messages
        for row in batch.rows.tolist():
            header = messages.headers[row]
            queue = MessageQueue(messages.topics[int(header["topic_index"])], int(header["queue_id"]))
            start = int(header["body_position"])
            body = bytes(messages.buffer[start : start + int(header["body_length"])])
            self._written.append((queue, int(header["queue_offset"]), body))
        if self._there.half:
            self._settle()
        return Accepted(len(batch.rows))

    def mark(self, rewound: Sequence[Rewound]) -> None:
        self._marks += rewound

    def flush(self, position: SinkPosition) -> SafePoint:
        self._there.fail("flush")
        self._settle()
        self._there.marks += self._marks
        self._marks = []
        queues = {**self._there.position.queues, **position.queues}
        self._there.position = SinkPosition(position.log, queues)
        self._there.fail("flushed")
        return SafePoint(position)

    def close(self) -> None:
        self._written = []

    def _settle(self) -> None:
        self._there.given += self._written
        self._written = []


class SinkScene:
    """``log`` is the broker's; ``daemon`` archives it; ``there`` is the destination of the sink that ``begin`` makes."""

    def __init__(
        self,
        directory: Path,
        *,
        keeps: bool = True,
        file_bytes: int = 4096,
        ahead: bool = False,
        **options: Any,
    ) -> None:
        """``options``: as of ``assemble``, for the first process."""
        self.directory = directory
        self.clock = ManualClock()
        self.provider: Counting = memory(self.clock)
        self.log = BrokerLog(directory / "store", file_bytes=file_bytes)
        self.there = Remembered(keeps)
        self.ahead = ahead
        self.next: dict[MessageQueue, int] = {}
        self.wrote: list[Given] = []
        self.stored = StoredSink(b"\7" * 16, SinkOrder("copy", "memory"))
        self.flush_bytes = 1
        self.in_order_bytes = 64 * 1024
        self.salt = ""
        self.start(**options)

    # ------------------------------------------------------------------ the broker and its archive

    def put(self, count: int = 1, topic: str = "Orders", queue_id: int = 0) -> None:
        """Messages of one queue. The log by hand has queue 0 only."""
        assert queue_id == 0
        queue = MessageQueue(topic, queue_id)
        for _ in range(count):
            offset = self.next.get(queue, 0)
            body = f"{topic} {offset} {len(self.wrote)}{self.salt}".encode()
            self.log.append(body, topic=topic.encode(), queue_offset=offset)
            self.next[queue] = offset + 1
            self.wrote.append((queue, offset, body))

    def archive(self) -> None:
        """Everything that the log has."""
        self.daemon.settle()

    def reinstall(self) -> None:
        """Another broker in the place of the one before: its log begins at 0."""
        for base in self.log.bases():
            self.log.path(base).unlink()
        self.log.position = 0
        self.log.records.clear()
        self.next.clear()

    def start(self, **changed: Any) -> None:
        """A writer's process: what it knew in memory is not known any more. ``changed``: as of ``assemble``."""
        self.daemon: Assembly = assemble(
            self.log.store, self.provider, self.clock, metadata=MemoryStore(), **changed
        )
        self.ledger = SinkLedger()
        self.ride(self.daemon.line)
        tail = LocalCommitLog(
            Source(store_dir=str(self.log.store), confirm_reread_ms=1), Hold(max_disk_percent=99), self.clock
        )
        policy = TopicPolicy(cluster="DefaultCluster", broker="broker-a")
        source = writer_source(
            self.daemon.log,
            self.daemon.objects,
            tail,
            policy,
            batch_bytes=64 * 1024,
            ahead=self.ahead,
            runs_ahead=3,
            in_order_bytes=self.in_order_bytes,
        )
        pace = SinkPace(self.flush_bytes, 1.0, 1.0, 0.1, 5.0)
        self.runner = SinkRunner(
            self.stored,
            lambda stored, anew: self.there.open(stored, anew),  # what stands there then
            source,
            self.ledger,
            self.clock,
            pace,
            Backoff(),
        )

    def ride(self, line: CommitLine) -> None:
        line._riders = self.ledger

    def restart(self, **changed: Any) -> None:
        """Killed, and started again."""
        self.daemon.close()
        self.start(**changed)

    # ------------------------------------------------------------------ the sink

    def change(self, **changed: Any) -> None:
        """Another revision of its order: fields of ``StoredSink``; ``rewind_ms``: begin again there."""
        revision = self.stored.revision + 1
        if "rewind_ms" in changed:
            changed["rewind"] = SinkRewind(revision, changed.pop("rewind_ms"))
        self.stored = replace(self.stored, revision=revision, **changed)
        self.runner.change(self.stored)

    def run(self, most: int = 2000, *, commits: bool = True) -> SinkPhase:
        """Step until nothing moves. ``commits``: what the sink waits for comes into the archive."""
        idle = 0
        for _ in range(most):
            wait = self.runner.step().wait_seconds
            if wait == 0:
                idle = 0
                continue
            if self.runner.progress.why == UNHEARD and commits:
                self.commit()
            idle += 1
            if idle > 15:
                return self.runner.progress.phase
            self.clock.advance(wait or 0)
        raise AssertionError(f"the sink does not come to rest: {self.runner.progress.document()}")

    def commit(self) -> None:
        """A commit of its own for what the ledger has, if it has anything."""
        self.daemon.line.offer(SinkCommit(self.ledger, self.clock.monotonic()), 0)
        self.daemon.commit_all()

    def everything(self) -> list[Given]:
        """What the log ever had, by queue, in order."""
        return sorted(self.wrote, key=lambda given: given[0])

    def got(self) -> list[Given]:
        """What the destination has, by queue, each in the order in which it came."""
        return sorted(self.there.given, key=lambda given: given[0])

    @property
    def proven(self) -> int:
        return progress_of(self.daemon)


ARCHIVE = bytes(range(16))


class KindScene(SinkScene):
    """The same with a destination of a kind that there is, which can be compared with the archive afterwards."""

    def __init__(self, directory: Path, order: SinkOrder, sink_id: bytes = b"\7" * 16) -> None:
        super().__init__(directory)
        self.stored = StoredSink(sink_id, order)
        self.runner.change(self.stored)
        self.runner._pace = SinkPace(1 << 20, 1.0, 1.0, 0.1, 5.0)  # one flush: one file
        self.there.open = self._open  # type: ignore[method-assign]

    def _open(self, stored: StoredSink, anew: bool) -> Sink:
        place = stored.place(ARCHIVE, "DefaultCluster", "broker-a", 1, anew=anew)
        return find_kind(stored.order.kind).open(stored.order, place)

    @property
    def view(self) -> View:
        return WriterArchive(self.daemon.log, self.daemon.objects).at()

    def verified(self, topic: str = "") -> Compared:
        """Both sides compared, at once and queue by queue."""
        with closing(reader_of(self.stored, "DefaultCluster", "broker-a", ARCHIVE)) as reader:
            policy = TopicPolicy(cluster="DefaultCluster", broker="broker-a")
            scope = whole_scope(self.view, self.stored, reader, taking(self.stored, policy, topic))
            found = compare(self.view, reader, scope)
            parts = [compare(self.view, reader, scope, {each.queue}) for each in scope.queues]
        joined = merged(parts)
        assert (joined.verdict, joined.queues, joined.unread) == (found.verdict, found.queues, found.unread)
        return found


def away(times: int, *calls: str) -> Callable[[str], None]:
    """A destination that fails at the first ``times`` of some calls."""
    left = [times]

    def fail(call: str) -> None:
        if call in calls and left[0] > 0:
            left[0] -= 1
            raise Unavailable(f"away at {call}")

    return fail


def nexts(position: SinkPosition) -> dict[MessageQueue, int]:
    """How far a position is in each queue."""
    return {queue: follow.next for queue, follow in position.queues.items() if follow != Follow()}
