"""What a shaped sink was given, read back: a batch is expected at the destination as the shape leaves it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tiered.model import MessageQueue
from tiered.sink.base import Accepted, SafePoint, SinkBatch, SinkPosition
from tiered.sink.comparison.base import Marks, ReadBack
from tiered.sink.comparison.content import marks_of
from tiered.sink.shape import MessageShape
from tiered.sink.shaping import ShapingSink


class _Caught:
    """A sink that keeps what it is given last, and nothing else."""

    batch: SinkBatch | None = None

    def position(self) -> None:
        return None

    def write(self, batch: SinkBatch) -> Accepted:
        self.batch = batch
        return Accepted(len(batch.rows))

    def flush(self, position: SinkPosition) -> SafePoint:
        return SafePoint(position)

    def close(self) -> None:
        self.batch = None


class _Elsewhere:
    """Bodies that do not fit are with the dead letters of the shape, where nothing looks for them: not expected."""

    def bury(self, name: str, lines: bytes, messages: int) -> None:
        pass

    def close(self) -> None:
        pass


class ShapedReadBack:
    """``inner``: the destination, which knows nothing of shapes. Dead letters of a shape are not compared."""

    def __init__(self, inner: ReadBack, shape: MessageShape) -> None:
        self._inner, self._shape = inner, shape
        self._caught = _Caught()
        self._shaping = ShapingSink(self._caught, shape, _Elsewhere())
        self.ordered = inner.ordered

    def position(self) -> SinkPosition | None:
        return self._inner.position()

    def target(self, queue: MessageQueue) -> MessageQueue:
        return self._inner.target(MessageQueue(self._shape.topic(queue.topic), queue.queue_id))

    def lane(self, queue: MessageQueue) -> str:
        return self._inner.lane(queue)

    def given(self, batch: SinkBatch) -> Marks:
        self._caught.batch = None
        self._shaping.write(batch)
        passed = self._caught.batch
        return marks_of([], [], [], []) if passed is None else self._inner.given(passed)

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        return self._inner.read(queues)

    def buried(self) -> Iterator[Marks]:
        return self._inner.buried()

    def begins_late(self, queue: MessageQueue) -> bool:
        return self._inner.begins_late(queue)

    def unread(self) -> str | None:
        return self._inner.unread()

    def close(self) -> None:
        self._inner.close()
