"""Sinks into memory: two that keep the contract, with a position and without, and such as break it, each in one way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tiered.codec.record.message import decode_message
from tiered.errors import Fenced, Unavailable
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.sink.base import Accepted, SafePoint, Sink, SinkBatch, SinkPosition
from tiered.sink.comparison.base import Marks
from tiered.sink.comparison.content import content_of, marks_of, origin_of
from tiered.sink.contract.feeding import Interrupted, TestedSink
from tiered.sink.contract.samples import Received


@dataclass
class Memory:
    """The destination: what it has, who wrote to it last, and a request of it that is to break."""

    messages: list[Received] = field(default_factory=list)
    position: SinkPosition | None = None
    openings: int = 0
    here: bool = True
    left: int | None = None
    done: bool = False
    cut: Interrupted = field(default_factory=Interrupted)

    def request(self, work: Callable[[], None]) -> None:
        """One request: carried out, or not, or both."""
        if not self.here:
            raise Unavailable("memory is away")
        if self.left == 0:
            self.left = None
            self.cut.happened = True
            if self.done:
                work()
            raise Unavailable("an answer was lost")
        if self.left is not None:
            self.left -= 1
        work()


class MemorySink:
    """Exactly once, if ``keeps``."""

    keeps = True
    reads_bodies = True

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.waiting: list[Received] = []

        def come() -> None:
            memory.openings += 1
            self.opening = memory.openings
            if self.keeps and memory.position is None:
                memory.position = SinkPosition()

        memory.request(come)

    def position(self) -> SinkPosition | None:
        return self.memory.position if self.keeps else None

    @staticmethod
    def received(batch: SinkBatch) -> Iterator[Received]:
        for row in batch.rows.tolist():
            m = decode_message(batch.messages.record(row))
            yield Received(m.topic, m.queue_id, m.queue_offset, m.body, m.properties)

    def write(self, batch: SinkBatch) -> Accepted:
        self.waiting += self.received(batch)
        return Accepted(len(batch.rows))

    def flush(self, position: SinkPosition) -> SafePoint:
        self.memory.request(lambda: self.commit(position))
        self.waiting = []
        return SafePoint(position)

    def commit(self, position: SinkPosition) -> None:
        if self.keeps and self.opening != self.memory.openings:
            raise Fenced("another opening has the sink")
        self.memory.messages += self.waiting
        self.place(position)

    def place(self, position: SinkPosition) -> None:
        before = self.memory.position
        queues: Mapping[MessageQueue, Follow] = {} if before is None else before.queues
        self.memory.position = SinkPosition(position.log, {**queues, **position.queues})

    def close(self) -> None:
        self.waiting = []


class PlainSink(MemorySink):
    """At least once: each write is there at once, and no position."""

    keeps = False

    def write(self, batch: SinkBatch) -> Accepted:
        self.memory.request(lambda: self.memory.messages.extend(self.received(batch)))
        return Accepted(len(batch.rows))

    def place(self, position: SinkPosition) -> None:
        pass


class Doubles(MemorySink):
    def commit(self, position: SinkPosition) -> None:
        super().commit(position)
        self.memory.messages += self.waiting[-1:]


class Drops(MemorySink):
    def write(self, batch: SinkBatch) -> Accepted:
        super().write(batch)
        if len(batch.rows) > 100:
            del self.waiting[77]
        return Accepted(len(batch.rows))


class Reorders(MemorySink):
    def commit(self, position: SinkPosition) -> None:
        self.waiting.sort(key=lambda m: (m.topic, m.queue_id, -m.queue_offset))
        super().commit(position)


class PositionFirst(MemorySink):
    def flush(self, position: SinkPosition) -> SafePoint:
        self.memory.request(lambda: self.place(position))
        return super().flush(position)


class PositionLater(MemorySink):
    def flush(self, position: SinkPosition) -> SafePoint:
        def put() -> None:
            self.memory.messages += self.waiting

        self.memory.request(put)
        self.waiting = []
        self.memory.request(lambda: self.commit(position))
        return SafePoint(position)


class AllRows(MemorySink):
    def write(self, batch: SinkBatch) -> Accepted:
        super().write(SinkBatch(batch.messages, batch.messages.headers["queue_id"].argsort().cumsum() * 0))
        return Accepted(len(batch.rows))


class KeepsReferences(MemorySink):
    """Reads the records of the flush before this one only now."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self.held: list[SinkBatch] = []

    def write(self, batch: SinkBatch) -> Accepted:
        self.held.append(batch)
        return Accepted(len(batch.rows))

    def flush(self, position: SinkPosition) -> SafePoint:
        for batch in self.held[:-1]:
            self.waiting += self.received(batch)
        self.held = self.held[-1:]
        return super().flush(position)


class ForgetsQueues(MemorySink):
    def place(self, position: SinkPosition) -> None:
        self.memory.position = position


class IgnoresEmptyFlushes(MemorySink):
    def flush(self, position: SinkPosition) -> SafePoint:
        return super().flush(position) if self.waiting else SafePoint(position)


class NotFenced(MemorySink):
    def commit(self, position: SinkPosition) -> None:
        self.opening = self.memory.openings
        super().commit(position)


class WritesAtClose(MemorySink):
    def close(self) -> None:
        self.memory.messages += self.waiting
        self.waiting = []


class EmptyBodiesAreNone(MemorySink):
    @staticmethod
    def received(batch: SinkBatch) -> Iterator[Received]:
        return (m for m in MemorySink.received(batch) if m.body)


class TextOnly(MemorySink):
    @staticmethod
    def received(batch: SinkBatch) -> Iterator[Received]:
        return (m._replace(body=m.body.decode(errors="replace").encode()) for m in MemorySink.received(batch))


class CutsProperties(MemorySink):
    @staticmethod
    def received(batch: SinkBatch) -> Iterator[Received]:
        for m in MemorySink.received(batch):
            given = m.properties or {}
            yield m._replace(properties={k: v.partition("\x01")[0] for k, v in given.items()})


class CleansTopics(MemorySink):
    @staticmethod
    def received(batch: SinkBatch) -> Iterator[Received]:
        return (m._replace(topic=m.topic.lower()) for m in MemorySink.received(batch))


class ClosesOnce(MemorySink):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise ValueError("closed")
        self.closed = True


class LeavesOutWildTopics(MemorySink):
    @staticmethod
    def received(batch: SinkBatch) -> Iterator[Received]:
        return (m for m in MemorySink.received(batch) if m.topic.isascii())


class ForeignErrors(MemorySink):
    def flush(self, position: SinkPosition) -> SafePoint:
        try:
            return super().flush(position)
        except Unavailable as error:
            raise ConnectionResetError(str(error)) from error


class SwallowsAbsence(PlainSink):
    def write(self, batch: SinkBatch) -> Accepted:
        with contextlib.suppress(Unavailable):
            return super().write(batch)
        return Accepted(len(batch.rows))

    def flush(self, position: SinkPosition) -> SafePoint:
        return SafePoint(position)


class NothingDurable(PlainSink):
    """Gives at close what it said was there for good."""

    def write(self, batch: SinkBatch) -> Accepted:
        self.waiting += self.received(batch)
        return Accepted(len(batch.rows))

    def flush(self, position: SinkPosition) -> SafePoint:
        self.memory.request(lambda: None)
        return SafePoint(position)

    def close(self) -> None:
        self.memory.messages += self.waiting
        self.waiting = []


class ReadsNoBodies(MemorySink):
    """Its reader leaves out what it should compare."""

    reads_bodies = False


class MemoryReadBack:
    """A memory read back."""

    ordered = True

    def __init__(self, memory: Memory, *, bodies: bool) -> None:
        self.memory, self.bodies = memory, bodies

    def position(self) -> SinkPosition | None:
        return self.memory.position

    def target(self, queue: MessageQueue) -> MessageQueue:
        return queue

    def lane(self, queue: MessageQueue) -> str:
        return ""

    def given(self, batch: SinkBatch) -> Marks:
        return self._marks(list(MemorySink.received(batch)), bodies=True)

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        yield self._marks(self.memory.messages, bodies=self.bodies)

    def buried(self) -> Iterator[Marks]:
        return iter(())

    def begins_late(self, queue: MessageQueue) -> bool:
        return False

    def unread(self) -> str | None:
        return None

    def close(self) -> None: ...

    def _marks(self, given: Sequence[Received], *, bodies: bool) -> Marks:
        return marks_of(
            [(m.topic, m.queue_id) for m in given],
            [m.queue_offset for m in given],
            [origin_of(f"{m.topic}/{m.queue_id}/{m.queue_offset}") for m in given],
            [content_of(m.body if bodies else b"", (m.properties or {}).items()) for m in given],
        )


class TestedMemory(TestedSink):
    """A sink of this class into a memory of its own."""

    huge = 2_000

    def __init__(self, kind: type[MemorySink]) -> None:
        self.kind = kind
        self.memory = Memory()

    def open(self) -> Sink:
        return self.kind(self.memory)

    def read(self) -> Iterable[Received]:
        return self.memory.messages

    def read_back(self) -> MemoryReadBack:
        return MemoryReadBack(self.memory, bodies=self.kind.reads_bodies)

    @contextlib.contextmanager
    def interrupted(self, request: int, *, done: bool) -> Iterator[Interrupted]:
        memory = self.memory
        memory.left, memory.done, memory.cut = request, done, Interrupted()
        yield memory.cut
        memory.left = None

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.memory.here = False
        yield
        self.memory.here = True
