"""The port of a sink: what a destination must be able to do to be given a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from tiered.codec.record.batch import MessageBatch
from tiered.codec.types import Ints
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue


@dataclass(frozen=True, slots=True)
class SinkPosition:
    """What a sink has had. ``log``: where its feed goes on. ``queues``: for each queue how far it is; all messages before
    ``Follow.next`` were given, or left out by the sink's own choice."""

    log: FeedPosition = field(default_factory=FeedPosition)
    queues: Mapping[MessageQueue, Follow] = field(default_factory=dict)


class SinkBatch(NamedTuple):
    """Messages to give: ``rows`` of ``messages``, ascending, each queue in its order. The buffer stays as it is until the next
    flush."""

    messages: MessageBatch
    rows: Ints


class Accepted(NamedTuple):
    """What became of a batch: ``messages`` are all of it; of these ``dead_letters`` went to the place for what the destination
    cannot take, ``left_out`` the order's shape did not let pass, and ``came_back`` were not sent since the destination had
    them first."""

    messages: int
    dead_letters: int = 0
    left_out: int = 0
    came_back: int = 0


class Placed(NamedTuple):
    """``messages`` consecutive messages of a queue lie at consecutive offsets of one partition of the destination."""

    queue: MessageQueue
    first_offset: int
    messages: int
    target: str
    partition: int
    target_offset: int


class Rewound(NamedTuple):
    """Queue offsets [``first``, ``end``) of a queue's life ``generation`` that a sink has had and the broker lost. What it has
    now comes behind."""

    queue: MessageQueue
    first: int
    end: int
    generation: int


@dataclass(frozen=True, slots=True)
class SafePoint:
    """Everything up to ``position`` is at the destination for good. ``placed``: where, if the destination has offsets."""

    position: SinkPosition
    placed: tuple[Placed, ...] = ()


@runtime_checkable
class RewindMarking(Protocol):
    """A sink that can tell its readers, among the messages, which of them the broker lost. Others need not have it."""

    def mark(self, rewound: Sequence[Rewound]) -> None:
        """Take marks, to stand behind everything flushed so far and before what is written next. A ``flush`` follows, whose
        position takes these queues back: in one step with it, where the position is kept."""
        ...


class Sink(Protocol):
    """A destination that is open. One thread.

    Errors: ``Unavailable``: away, or an answer was lost; the sink is closed and opened again, and goes on from its position.
    ``Fenced``: another process has this sink now. ``Invalid``: it cannot take what it was given, and will not by waiting
    (rights, a topic that is not there, a schema, a message too large): the sink stops, with that said, and the others go on.
    """

    def position(self) -> SinkPosition | None:
        """What the destination has, where it keeps that in one step with the messages: then each comes exactly once. Complete:
        ``queues`` has every queue ever given. ``None``: it keeps nothing; what the archive knows counts, and what
        was written behind it comes again. Asked once, after opening."""
        ...

    def write(self, batch: SinkBatch) -> Accepted:
        """Take messages; they need not be there for good before ``flush``. Waits while the client's own buffers are full."""
        ...

    def flush(self, position: SinkPosition) -> SafePoint:
        """Everything written is at the destination for good, and with it ``position``, whose ``queues`` holds those that
        changed since the last flush. All or nothing where ``position`` is kept there."""
        ...

    def close(self) -> None:
        """Let go; what was not flushed may or may not be there. Raises nothing."""
        ...
