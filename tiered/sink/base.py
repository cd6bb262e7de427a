"""The port of a sink: what a destination must be able to do to be given a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from tiered.archive.state.offsetmap import OffsetMap
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
    """``messages`` messages of a queue lie from ``target_offset`` on in one partition of the destination, which knows it by
    ``target_id``. Consecutive on both sides, unless ``left_out`` queue offsets among them are no messages of the sink, or
    ``between`` offsets of the destination hold something else: ends are exact all the same."""

    queue: MessageQueue
    first_offset: int
    messages: int
    target: str
    partition: int
    target_offset: int
    left_out: int = 0
    between: int = 0
    target_id: str = ""


class Unmapped(NamedTuple):
    """Messages of a queue that the destination has and the archive has no places of: from ``first`` (``None``: wherever they
    begin) up to ``end``. They lie at or behind ``target_offset`` of the topic with this id (0 and empty: not known), and in the
    broker's log behind ``after`` and up to ``upto`` (``None``: not known)."""

    first: int | None
    end: int
    target_offset: int = 0
    target_id: str = ""
    after: int | None = None
    upto: int | None = None


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


class WentTo(NamedTuple):
    """Where messages of a queue were put: a partition of the destination, which knows ``target`` by ``target_id``."""

    target: str
    partition: int
    target_id: str


@runtime_checkable
class RemindedSink(Protocol):
    """A sink whose destination may not keep for it where the messages of a queue go. Others need not have it."""

    def remind(self, went: Mapping[MessageQueue, WentTo]) -> None:
        """What the archive knows of that, told once after opening, before anything is written; not to a sink that begins
        anew. Queues go on going there. ``Invalid``: what was there is gone."""
        ...


@runtime_checkable
class JoiningSink(Protocol):
    """A sink that keeps its position, and takes over what parts of a backfill have put beside it."""

    def join(self, parts: Sequence[str], maps: Mapping[MessageQueue, OffsetMap]) -> None:
        """Take over what openings of these ``SinkPlace.part`` have put, in this order. A ``flush`` follows, whose position has
        their queues: in one step with it. They are done, and nobody has them open. ``maps``: where it lies, as far as that is
        known."""
        ...

    def joined(self, parts: Sequence[str]) -> None:
        """Their positions will not be asked for again. May come more than once; raises nothing that is not an error of
        ``Sink``."""
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
        was written behind it comes again. Asked once, after opening. An empty one of
        a destination that was given messages stops the sink: it has forgotten, or is another one."""
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


@runtime_checkable
class OffsetSink(Sink, Protocol):
    """A sink whose destination has offsets of its own, which keep the order: a flush says where everything was put
    (``SafePoint.placed``), and the archive keeps a map of it."""

    def placed_between(
        self, unmapped: Mapping[MessageQueue, Unmapped]
    ) -> dict[MessageQueue, tuple[Placed, ...]]:
        """Find out at the destination where these messages lie, asked once after opening. A queue of which that cannot be
        said for certain is not in the answer."""
        ...
