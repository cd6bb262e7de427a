"""Shapes of an order: which messages pass, what is dropped, what a topic is called; positions stay the source's."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pytest

from tests.kit.brokensinks import Memory, MemoryReadBack, MemorySink, TestedMemory
from tests.kit.sinkscene import PLACE
from tiered.codec.record.message import Message
from tiered.errors import Invalid
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.sink.base import (
    Accepted,
    Placed,
    RemindedSink,
    Rewound,
    SafePoint,
    Sink,
    SinkPosition,
    Unmapped,
    WentTo,
)
from tiered.sink.comparison.base import ReadBack
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.samples import Received, batch_of, message_of
from tiered.sink.fields import message_values
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder
from tiered.sink.shape import MessageShape, shape_of, without_shape
from tiered.sink.shapedreading import ShapedReadBack
from tiered.sink.shaping import ShapedKind, ShapingOffsetSink, ShapingSink


def shaped(options: dict[str, str], messages: Sequence[Message]) -> tuple[list[Received], Accepted]:
    """What is given of messages, and what is said of it."""
    memory = Memory()
    sink = ShapingSink(MemorySink(memory), shape_of(SinkOrder("s", "memory", options)))
    accepted = sink.write(batch_of(messages)[0])
    sink.flush(SinkPosition())
    return memory.messages, accepted


MESSAGES = [
    message_of("Orders", 1, n, b"%d" % n, {"TAGS": f"t{n % 3}", "price": str(n), "note": "x\x01y"})
    for n in range(6)
]


def test_tags_and_sql_let_pass_what_has_both() -> None:
    given, accepted = shaped({"shape.tags": "t0 || t1"}, MESSAGES)
    assert [m.queue_offset for m in given] == [0, 1, 3, 4]
    assert accepted == Accepted(6, left_out=2)
    given, _ = shaped({"shape.tags": "t0 || t1", "shape.sql": "price > 2"}, MESSAGES)
    assert [m.queue_offset for m in given] == [3, 4]
    assert shaped({"shape.sql": "price > 100"}, MESSAGES) == ([], Accepted(6, left_out=6))


def test_bodies_and_properties_are_dropped_and_the_rest_is_whole() -> None:
    given, _ = shaped({"shape.drop_body": "true", "shape.properties": "TAGS, note"}, MESSAGES)
    assert [(m.body, m.properties) for m in given] == [
        (b"", {"TAGS": f"t{n % 3}", "note": "x\x01y"}) for n in range(6)
    ]
    given, _ = shaped({"shape.properties": ""}, MESSAGES)
    assert [(m.body, m.properties) for m in given] == [(b"%d" % n, {}) for n in range(6)]


def test_topics_get_other_names_and_positions_do_not() -> None:
    class Telling(MemorySink):
        def flush(self, position: SinkPosition) -> SafePoint:
            super().flush(position)
            return SafePoint(position, (Placed(MessageQueue("mirror-Pay1", 0), 0, 1, "x", 0, 9),))

    memory = Memory()
    shape = MessageShape(renames=(("Orders", "OrdersCopy"), ("Pay*", "mirror-Pay*")))
    sink = ShapingSink(Telling(memory), shape)
    sink.write(batch_of([message_of(t, 0, 0, b"x") for t in ("Orders", "Pay1", "Other")])[0])
    position = SinkPosition(queues={MessageQueue("Pay1", 0): Follow(1, 0)})
    [placed] = sink.flush(position).placed
    assert [m.topic for m in memory.messages] == ["OrdersCopy", "mirror-Pay1", "Other"]
    assert placed.queue == MessageQueue("Pay1", 0)
    assert sink.position() == position


def test_marks_have_the_names_of_the_destination() -> None:
    class Marking(MemorySink):
        marks: Sequence[Rewound] = ()

        def mark(self, rewound: Sequence[Rewound]) -> None:
            self.marks = rewound

    inner, gone = Marking(Memory()), Rewound(MessageQueue("Pay1", 3), 5, 9, 2)
    sink = ShapingSink(inner, MessageShape(renames=(("Pay*", "mirror-Pay*"),)))
    sink.mark([gone])
    assert inner.marks == [gone._replace(queue=MessageQueue("mirror-Pay1", 3))]
    ShapingSink(MemorySink(Memory()), MessageShape(drop_body=True)).mark([gone])


def test_two_topics_do_not_become_one() -> None:
    memory = Memory()
    sink = ShapingSink(MemorySink(memory), MessageShape(renames=(("A*", "B*"),)))
    sink.write(batch_of([message_of("Bx", 0, 0, b"x")])[0])
    with pytest.raises(Invalid, match="two topics would become one"):
        sink.write(batch_of([message_of("Ax", 0, 0, b"x")])[0])
    with pytest.raises(Invalid, match="too long"):
        sink.write(batch_of([message_of("A" + "y" * 126, 0, 0, b"x")])[0])  # fits
        MessageShape(renames=(("A*", "long-*"),)).topic("A" + "y" * 126)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shape.tag": "a"}, "no such shape"),
        ({"shape.tags": "||"}, r"shape\.tags"),
        ({"shape.sql": "price >"}, r"shape\.sql"),
        ({"shape.drop_body": "yes"}, "true or false"),
        ({"shape.rename": "A"}, "pair of topics"),
        ({"shape.rename": "A*=B"}, "pair of topics"),
        ({"shape.rename": "A=C,B=C"}, "two topics would become one"),
        ({"shape.rename": "A=" + "x" * 128}, "too long"),
    ],
)
def test_what_does_not_fit_is_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        shape_of(SinkOrder("s", "memory", options))


def test_a_kind_sees_none_of_it() -> None:
    seen: list[SinkOrder] = []

    class Kind:
        def check(self, order: SinkOrder) -> None:
            seen.append(order)

        def open(self, order: SinkOrder, place: object) -> Sink:
            seen.append(order)
            return MemorySink(Memory())

    order = SinkOrder("s", "memory", {"url": "x", "shape.tags": "a"})
    ShapedKind(Kind()).check(order)
    assert isinstance(ShapedKind(Kind()).open(order, PLACE), ShapingSink)
    assert isinstance(ShapedKind(Kind()).open(replace(order, options={"url": "x"}), PLACE), MemorySink)
    assert [o.options for o in seen] == [{"url": "x"}] * 3
    assert without_shape(order.options) == {"url": "x"}


def test_a_compressed_body_is_shown_as_its_consumers_see_it() -> None:
    packed = replace(message_of("T", 0, 0, zlib.compress(b"plain" * 9)), sys_flag=1)
    broken = replace(message_of("T", 0, 1, b"\x78\x9c\x00"), sys_flag=1)
    [(one, plain), (other, stored)] = message_values(batch_of([packed, broken])[0])
    assert (plain, one["sys_flag"], one["body_size"]) == (b"plain" * 9, 0, 45)
    assert (stored, other["sys_flag"], other["body_size"]) == (b"\x78\x9c\x00", 1, 3)


def test_where_messages_went_is_told_by_the_names_that_they_have_there() -> None:
    """So a renamed topic's queues go on where they were."""

    class Reminded(MemorySink):
        went: Mapping[MessageQueue, WentTo]

        def remind(self, went: Mapping[MessageQueue, WentTo]) -> None:
            self.went = went

        def placed_between(
            self, unmapped: Mapping[MessageQueue, Unmapped]
        ) -> dict[MessageQueue, tuple[Placed, ...]]:
            return {}

    inner, at = Reminded(Memory()), WentTo("o", 1, "id")
    sink = ShapingOffsetSink(inner, MessageShape(renames=(("Orders", "o"),)))
    assert isinstance(sink, RemindedSink)
    sink.remind({MessageQueue("Orders", 3): at, MessageQueue("Bills", 0): at})
    assert inner.went == {MessageQueue("o", 3): at, MessageQueue("Bills", 0): at}


def test_a_kind_is_told_what_topics_are_called_at_the_destination() -> None:
    class Kind:
        places: ClassVar[list[SinkPlace]] = []

        def check(self, order: SinkOrder) -> None:
            pass

        def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
            self.places.append(place)
            return MemorySink(Memory())

    for options in ({}, {"shape.rename": "Orders=o,Pay*=p*"}):
        ShapedKind(Kind()).open(SinkOrder("copy", "memory", options), PLACE).close()
    names = ["Orders", "PayIn", "Bills"]
    told = [list(map(place.renamed, names)) for place in Kind.places]
    assert told == [names, ["o", "pIn", "Bills"]]


_OLD = {"o": "Orders", "pments": "Payments"}


class TestedShaped(TestedMemory):
    """A topic has another name at the destination, which the reader knows."""

    shape = MessageShape(renames=(("Orders", "o"), ("Pay*", "p*")))

    def open(self) -> Sink:
        return ShapingSink(super().open(), self.shape)

    def read_back(self) -> ReadBack:
        return ShapedReadBack(MemoryReadBack(self.memory, bodies=True), self.shape)

    def read(self) -> Iterable[Received]:
        return [m._replace(topic=_OLD.get(m.topic, m.topic)) for m in super().read()]


class TestShapingSink(SinkContract):
    @pytest.fixture
    def tested(self) -> TestedShaped:
        return TestedShaped(MemorySink)
