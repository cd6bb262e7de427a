"""Bodies by declaration: what JSON, Avro and Protobuf become, what does not fit, what is refused when a sink is added."""

from __future__ import annotations

import io
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.brokensinks import Memory, MemorySink
from tests.kit.sinkscene import PLACE
from tiered.codec.record.message import Message
from tiered.errors import Invalid
from tiered.sink.base import Accepted, Sink, SinkBatch, SinkPosition
from tiered.sink.bodies import Misfit, body_shape
from tiered.sink.comparison.base import Marks
from tiered.sink.comparison.content import marks_of
from tiered.sink.contract.samples import Received, batch_of, message_of
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder
from tiered.sink.shape import MessageShape
from tiered.sink.shapedreading import ShapedReadBack
from tiered.sink.shaping import ShapedKind

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": {"type": "record", "name": "C", "fields": [{"name": "name", "type": "string"}]}},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "lines", "type": {"type": "array", "items": "double"}},
    ],
}  # fmt: skip
ROW = {"id": 1 << 40, "customer": {"name": "Änne"}, "raw": b"\x00\xff", "day": 3, "lines": [1.5]}


def avro(row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    return out.getvalue()


def descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="orders.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate([("id", kinds.TYPE_INT64), ("note", kinds.TYPE_STRING)], 1):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@pytest.fixture
def proto(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "orders.desc"
    path.write_bytes(descriptors())
    return {"shape.body": "protobuf", "shape.schema": f"file:{path}", "shape.message": "shop.Order"}


def made(options: dict[str, str], body: bytes) -> Any:
    shape = body_shape(options)
    assert shape is not None
    return json.loads(shape.value(body))


def misfit(options: dict[str, str], body: bytes) -> str:
    with pytest.raises(Misfit) as caught:
        made(options, body)
    return str(caught.value)


JSON = {"shape.body": "json"}
INLINE = {"shape.body": "avro", "shape.schema": json.dumps(AVRO)}


def test_json_is_projected_and_renamed() -> None:
    body = b'{"id": 1, "customer": {"name": "x", "age": 3}, "big": 12345678901234567890}'
    assert made(JSON, body)["big"] == 12345678901234567890
    fields = {"shape.fields": "id=number, customer.name, note?=memo, customer.none?"}
    assert made(JSON | fields, body) == {"number": 1, "name": "x"}
    assert misfit(JSON | {"shape.fields": "id,customer.mail"}, body) == "it has no field customer.mail"
    assert misfit(JSON | {"shape.fields": "id.deep"}, body) == "it has no field id.deep"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[1]", b"7", b'{"a": NaN}', b"\xff{}", b"[" * 200_000, b'{"a":' * 200_000]
)
def test_what_is_no_json_object_does_not_fit(body: bytes) -> None:
    assert misfit(JSON, body)


def test_avro_becomes_json() -> None:
    assert made(INLINE, avro(ROW)) == {
        "id": 1 << 40, "customer": {"name": "Änne"}, "raw": "AP8=", "day": "1970-01-04", "lines": [1.5],
    }  # fmt: skip
    assert made(INLINE | {"shape.fields": "customer.name=who"}, avro(ROW)) == {"who": "Änne"}
    assert "bytes lie behind" in misfit(INLINE, avro(ROW) + b"x")
    assert misfit(INLINE, avro(ROW)[:-1])
    assert misfit(INLINE, b"")
    assert misfit(INLINE, avro(ROW | {"lines": [float("nan")]})), "JSON has no such number"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_misfit(body: bytes) -> None:
    for options in (JSON, INLINE):
        shape = body_shape(options)
        assert shape is not None
        try:
            value = json.loads(shape.value(body))
        except Misfit:
            continue
        assert isinstance(value, dict)


def test_protobuf_becomes_json_and_what_the_message_does_not_have_is_a_misfit(proto: dict[str, str]) -> None:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))  # type: ignore[no-untyped-call]
    body = order(id=7, note="n").SerializeToString()
    assert made(proto, body) == {"id": "7", "note": "n"}
    assert made(proto | {"shape.fields": "note=memo"}, order().SerializeToString()) == {"memo": ""}
    assert "does not have" in misfit(proto, body + b"\x18\x01"), "a field 3"
    assert misfit(proto, body[:-1])


SELF = {"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]}
NOTHINGS = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}],
}
DEEP: Any = "int"
for _ in range(100):
    DEEP = {"type": "map", "values": DEEP}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shape.body": "xml"}, "options.shape.body"),
        ({"shape.fields": "a"}, "options.shape.fields"),
        (JSON | {"shape.schema": "{}"}, "options.shape.schema"),
        (JSON | {"shape.message": "a"}, "options.shape.message"),
        (JSON | {"shape.fields": "a,b=a"}, "two fields would have one name"),
        (JSON | {"shape.fields": "a..b"}, "options.shape.fields"),
        ({"shape.body": "avro"}, "bodies need a schema"),
        (INLINE | {"shape.schema": "file:/nowhere/x"}, "a schema cannot be read"),
        (INLINE | {"shape.schema": "{"}, "a schema cannot be used"),
        (INLINE | {"shape.schema": '"int"'}, "it is not of a record"),
        (INLINE | {"shape.schema": '{"type":"record","name":"R","fields":[{"name":"a","type":"Q"}]}'}, "cannot be used"),
        (INLINE | {"shape.schema": json.dumps(SELF)}, "contains itself"),
        (INLINE | {"shape.schema": json.dumps(NOTHINGS)}, "takes no bytes"),
        (INLINE | {"shape.schema": json.dumps(DEEP)}, "deeper"),
        (JSON | {"shape.drop_body": "true"}, "either decoded or dropped"),
        ({"shape.dead_letters": "file:///tmp/x"}, "options.shape.dead_letters"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_when_it_is_ordered(options: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        ShapedKind(Kind()).check(SinkOrder("s", "memory", options))


def test_protobuf_is_refused_without_its_message(proto: dict[str, str], tmp_path: Path) -> None:
    for wrong, said in (
        ({"shape.message": ""}, "needs a message's name"),
        ({"shape.message": "shop.Bill"}, r"shop\.Order"),
        ({"shape.schema": "no descriptors"}, "a schema cannot be used"),
    ):
        with pytest.raises(Invalid, match=said):
            body_shape(proto | wrong)


class Kind:
    def __init__(self) -> None:
        self.memory = Memory()

    def check(self, order: SinkOrder) -> None:
        assert not [name for name in order.options if name.startswith("shape.")]

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        return MemorySink(self.memory)


def given_of(options: dict[str, str], messages: list[Message]) -> tuple[list[Received], Accepted]:
    kind = Kind()
    sink = ShapedKind(kind).open(SinkOrder("s", "memory", options), PLACE)
    try:
        accepted = sink.write(batch_of(messages)[0])
        sink.flush(SinkPosition())
    finally:
        sink.close()
    return kind.memory.messages, accepted


def test_bodies_are_given_as_json_and_compressed_ones_too() -> None:
    packed = replace(message_of("T", 0, 0, zlib.compress(b'{"a": 1, "b": 2}'), {"TAGS": "t"}), sys_flag=1)
    found, accepted = given_of(JSON | {"shape.fields": "b=c"}, [packed, message_of("T", 0, 1, b'{"b":3}')])
    assert accepted == Accepted(2)
    assert [(m.queue_offset, m.body) for m in found] == [(0, b'{"c":2}'), (1, b'{"c":3}')]
    assert (found[0].properties or {})["TAGS"] == "t"


def test_a_body_that_does_not_fit_stops_the_sink_or_lies_with_the_dead_letters(tmp_path: Path) -> None:
    messages = [message_of("T", 3, n, b"no" if n % 2 else b'{"n":1}') for n in range(4)]
    with pytest.raises(Invalid, match="not what the sink's shape declares") as caught:
        given_of(JSON, messages)
    assert (caught.value.fields["queue"], caught.value.fields["queue_offset"]) == ("T/3", 1)
    place = JSON | {"shape.dead_letters": f"file://{tmp_path}/dead"}
    for _ in range(2):  # what is given again lies there once
        found, accepted = given_of(place, messages)
        assert accepted == Accepted(4, dead_letters=2)
        assert [m.queue_offset for m in found] == [0, 2]
    lines = [json.loads(path.read_text()) for path in sorted((tmp_path / "dead").rglob("*.ndjson"))]
    assert sorted(line["queue_offset"] for line in lines) == [1, 3]
    assert all(line["body"] == "no" and line["misfit"].startswith("it is no JSON") for line in lines)


def test_what_does_not_fit_is_not_expected_when_a_destination_is_compared() -> None:
    class Inner:
        ordered = True
        rows = 0

        def given(self, batch: SinkBatch) -> Marks:
            self.rows += len(batch.rows)
            return marks_of([], [], [], [])

    inner: Any = Inner()
    body = body_shape(JSON)
    ShapedReadBack(inner, MessageShape(body=body)).given(
        batch_of([message_of("T", 0, n, b"no" if n % 2 else b"{}") for n in range(5)])[0]
    )
    assert inner.rows == 3
