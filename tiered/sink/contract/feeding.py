"""A runner in small: gives a log to a sink, breaks off where it is told to, and goes on as the program's runner does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from tiered.codec.record.message import Message
from tiered.errors import Fenced, Unavailable
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue, PhysicalOffset
from tiered.sink.base import SafePoint, Sink, SinkPosition
from tiered.sink.comparison.base import ReadBack
from tiered.sink.contract.samples import LARGE_BODY_BYTES, Received, batch_of


class Interrupted:
    """A request of a driver that is broken: ``happened`` tells whether it came to that."""

    happened = False


class TestedSink:
    """A sink to test: what the checks have to be told of it. ``open`` and ``read`` are the driver's author's to write; the
    rest where it can be had."""

    __test__ = False

    largest_body = LARGE_BODY_BYTES
    """Of a message that the destination takes."""
    takes_empty_bodies = True
    """Whether the destination takes a message without a body."""
    huge = 5_000
    """Messages of a huge batch."""

    def open(self) -> Sink:
        """Open the sink, always the same one, as a daemon does at its start."""
        raise NotImplementedError

    def read(self) -> Iterable[Received]:
        """All that a reader of the destination sees now, each queue in the order that the destination keeps."""
        raise NotImplementedError

    def read_back(self) -> ReadBack | None:
        """The destination opened as ``tiered sink verify`` does. ``None``: the driver does not offer that."""
        return None

    def interrupted(self, request: int, *, done: bool) -> AbstractContextManager[Interrupted] | None:
        """While it is entered, the answer to the driver's request of this number (from 0) is lost, the request itself
        having been carried out or not. ``None``: that cannot be brought about here."""
        return None

    def away(self) -> AbstractContextManager[None] | None:
        """While it is entered, the destination does not answer. ``None``: that cannot be brought about here."""
        return None


class Feeding:
    """The log so far, and what is known of the sink: each message is given with the position behind it."""

    def __init__(self, tested: TestedSink) -> None:
        self.tested = tested
        self.log: list[Message] = []
        self.known = SinkPosition()
        """What the archive knows; it counts where the destination keeps no position."""
        self.keeps: bool | None = None
        """Whether the destination keeps a position; unknown before the first flush."""
        self.may_double: set[tuple[str, int, int]] = set()
        """Messages that were written and perhaps not flushed: where no position is kept they may come again."""
        self._changed: dict[MessageQueue, Follow] = {}
        self._opened: list[Sink] = []

    def add(self, messages: Sequence[Message]) -> list[Message]:
        """Append messages to the log; those it is by now."""
        self.log += messages
        return list(messages)

    def open(self) -> Sink:
        """The sink, opened, and its position looked at."""
        sink = self.tested.open()
        self._opened.append(sink)
        position = sink.position()
        if position is not None:
            self.keeps, self.known = True, position
        else:
            assert not self.keeps, "a sink that kept a position keeps none now"
            self.keeps = False
        self._changed = {}
        return sink

    def behind(self) -> list[Message]:
        """What is still to give, by the position that counts."""
        nexts = {queue: follow.next for queue, follow in self.known.queues.items()}
        return [m for m in self.log if m.queue_offset >= nexts.get(MessageQueue(m.topic, m.queue_id), 0)]

    def write(self, sink: Sink, messages: Sequence[Message]) -> bytearray:
        """Give messages in one batch; its buffer."""
        batch, buffer = batch_of(messages)
        self.may_double.update((m.topic, m.queue_id, m.queue_offset) for m in messages)
        accepted = sink.write(batch)
        assert accepted.messages == len(messages), "as many messages are accepted as were given"
        assert accepted.dead_letters == 0, (
            "no message of the sample goes to the place for those that cannot be taken"
        )
        for message in messages:
            queue = MessageQueue(message.topic, message.queue_id)
            self._changed[queue] = Follow(message.queue_offset + 1, message.physical_offset)
        return buffer

    def flush(self, sink: Sink) -> SafePoint:
        """Flush up to what was written."""
        physical = (self.known.log.physical or 0) + 1
        position = SinkPosition(FeedPosition(PhysicalOffset(physical)), dict(self._changed))
        safe = sink.flush(position)
        assert safe.position.log == position.log, "a flush answers with the position that it was given"
        self.known = SinkPosition(position.log, {**self.known.queues, **position.queues})
        self.may_double -= {(m.topic, m.queue_id, m.queue_offset) for m in self.log if not self._is_behind(m)}
        self._changed = {}
        return safe

    def twin(self) -> Feeding:
        """Another that knows what this one knows: for a process that stands still while another one takes over."""
        other = Feeding(self.tested)
        other.known, other._changed = self.known, dict(self._changed)
        return other

    def finish(self) -> None:
        """Open the sink, give all that is still to give, close it. Tries again where the destination says *away*."""
        for _ in range(20):
            sink = None
            try:
                sink = self.open()
                left = self.behind()
                if left:
                    self.write(sink, left)
                self.flush(sink)
                return
            except (Unavailable, Fenced):
                continue
            finally:
                if sink is not None:
                    sink.close()
        raise AssertionError("a sink does not recover: opened twenty times, and never flushed")

    def judge(self, *, may_double: Iterable[tuple[str, int, int]] = ()) -> None:
        """Compare what a reader of the destination sees with the log. Sinks that were left as they were are closed before."""
        for sink in self._opened:
            sink.close()
        found: defaultdict[tuple[str, int], list[Received]] = defaultdict(list)
        for received in self.tested.read():
            found[received.topic, received.queue_id].append(received)
        wanted: defaultdict[tuple[str, int], dict[int, Message]] = defaultdict(dict)
        for message in self.log:
            wanted[message.topic, message.queue_id][message.queue_offset] = message
        foreign = [queue for queue in found if queue not in wanted]
        assert foreign == [], "the destination has queues that were never given"
        doubled = set() if self.keeps else set(may_double)
        for queue, messages in wanted.items():
            _judge_queue(queue, list(messages.values()), found[queue], doubled)

    def _is_behind(self, message: Message) -> bool:
        follow = self.known.queues.get(MessageQueue(message.topic, message.queue_id))
        return follow is None or message.queue_offset >= follow.next


def _judge_queue(
    queue: tuple[str, int],
    wanted: list[Message],
    found: list[Received],
    may_double: set[tuple[str, int, int]],
) -> None:
    offsets = [received.queue_offset for received in found]
    firsts = list(dict.fromkeys(offsets))
    expected = [message.queue_offset for message in wanted]
    assert set(expected) - set(firsts) == set(), f"messages of {queue} were lost"
    assert set(firsts) - set(expected) == set(), f"messages of {queue} that were not to be given are there"
    assert firsts == expected, f"messages of {queue} are out of order"
    seen: set[int] = set()
    twice = {offset for offset in offsets if offset in seen or seen.add(offset)}  # type: ignore[func-returns-value]
    allowed = {offset for topic, number, offset in may_double if (topic, number) == queue}
    assert twice - allowed == set(), f"messages of {queue} are there twice"
    bodies = {message.queue_offset: message for message in wanted}
    for received in found:
        message = bodies[received.queue_offset]
        where = f"{queue}, offset {received.queue_offset}"
        assert received.body == message.body, f"the body of {where} is another"
        if received.properties is not None:
            assert dict(received.properties) == dict(message.properties), (
                f"the properties of {where} are others"
            )
