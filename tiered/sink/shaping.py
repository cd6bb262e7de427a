"""A sink around another: gives it the messages that pass, with topics, bodies and properties as the order's shape says.

Positions are the source's all the way: what is left out is behind the sink all the same, and a topic that has another name at
the destination has its own in positions and in where messages were placed.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tiered.archive.state.offsetmap import OffsetMap
from tiered.codec.checksum import body_crc
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.layout import MAGIC_V1, MAX_V1_TOPIC_BYTES, SYS_COMPRESSED
from tiered.errors import Invalid
from tiered.model import MessageQueue
from tiered.sink.base import (
    Accepted,
    JoiningSink,
    OffsetSink,
    Placed,
    RemindedSink,
    RewindMarking,
    Rewound,
    SafePoint,
    Sink,
    SinkBatch,
    SinkPosition,
    Unmapped,
    WentTo,
)
from tiered.sink.comparison.base import ReadBack, open_read_back
from tiered.sink.fitting import MisfitPlace, fitting
from tiered.sink.shape import RENAME, MessageShape, misfits_of, shape_of, without_shape

if TYPE_CHECKING:
    from tiered.sink.kinds import SinkKind, SinkPlace
    from tiered.sink.order import SinkOrder

_HEAD = struct.Struct(">iII")  # size, magic, body CRC
_FLAG_AT, _INT = 36, struct.Struct(">i")


class ShapedKind:
    """A kind, and the shapes that any kind's order may have."""

    def __init__(self, kind: SinkKind) -> None:
        self.kind = kind

    def check(self, order: SinkOrder) -> None:
        shape_of(order)
        if (misfits := misfits_of(order)) is not None:
            misfits.close()
        self.kind.check(replace(order, options=without_shape(order.options)))

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        shape = shape_of(order)
        place = replace(place, renamed=shape.topic)
        sink = self.kind.open(replace(order, options=without_shape(order.options)), place)
        if not shape.filters and not shape.rebuilds:
            return sink
        try:
            misfits = misfits_of(order, make=True)
        except BaseException:
            sink.close()
            raise
        if isinstance(sink, OffsetSink):
            return ShapingOffsetSink(sink, shape, misfits)
        return ShapingSink(sink, shape, misfits)

    def check_parts(self, order: SinkOrder) -> bool:
        """As of ``PartedKind``."""
        from tiered.sink.kinds import PartedKind  # which needs what is here

        if not isinstance(self.kind, PartedKind):
            raise Invalid(
                "sinks of this kind cannot be given to by several processes at once", field="kind", found=order.kind,
                hint="the daemon backfills it by itself",
            )  # fmt: skip
        return self.kind.check_parts(replace(order, options=without_shape(order.options)))

    def lasting(self) -> tuple[str, ...]:
        """As of ``LastingKind``: what topics are called is where messages lie."""
        from tiered.sink.kinds import LastingKind  # which needs what is here

        return (RENAME, *(self.kind.lasting() if isinstance(self.kind, LastingKind) else ()))

    def read_back(self, order: SinkOrder, place: SinkPlace) -> ReadBack:
        """As of ``ReadableKind``."""
        from tiered.sink.shapedreading import ShapedReadBack  # which needs what is here

        shape = shape_of(order)
        inner = open_read_back(self.kind, replace(order, options=without_shape(order.options)), place)
        return ShapedReadBack(inner, shape) if shape.filters or shape.rebuilds else inner


class ShapingSink:
    """What a filter does not let pass is counted (``Accepted.left_out``). ``misfits``: where messages go whose bodies are
    not what was declared; ``None``: the sink stops at them."""

    def __init__(self, sink: Sink, shape: MessageShape, misfits: MisfitPlace | None = None) -> None:
        self._sink, self._shape, self._misfits = sink, shape, misfits
        self._old: dict[str, str] = {}
        """New names of topics, and the old ones."""

    def position(self) -> SinkPosition | None:
        return self._sink.position()

    def write(self, batch: SinkBatch) -> Accepted:
        shape, given = self._shape, batch
        if shape.filters:
            record = batch.messages.record
            passing = [
                row for row in batch.rows.tolist() if all(f.accepts(record(row)) for f in shape.filters)
            ]
            given = SinkBatch(batch.messages, np.array(passing, np.int64))
        left_out = len(batch.rows) - len(given.rows)
        bodies: list[bytes] | None = None
        passed = len(given.rows)
        if shape.body is not None:
            given, bodies = fitting(given, shape.body, self._misfits)
        unfit = passed - len(given.rows)
        if not len(given.rows):
            return Accepted(len(batch.rows), unfit, left_out=left_out)
        accepted = self._sink.write(self._rebuilt(given, bodies) if shape.rebuilds else given)
        dead = accepted.dead_letters + unfit
        return accepted._replace(messages=len(batch.rows), dead_letters=dead, left_out=left_out)

    def join(self, parts: Sequence[str], maps: Mapping[MessageQueue, OffsetMap]) -> None:
        """Parts had the same shape; maps have the source's names of topics."""
        if isinstance(self._sink, JoiningSink):
            self._sink.join(parts, {self._there(queue): told for queue, told in maps.items()})

    def joined(self, parts: Sequence[str]) -> None:
        """Let go of what was needed to join."""
        if isinstance(self._sink, JoiningSink):
            self._sink.joined(parts)

    def mark(self, rewound: Sequence[Rewound]) -> None:
        """With the names that topics have at the destination; nothing where it takes no marks."""
        if isinstance(self._sink, RewindMarking):
            self._sink.mark([gone._replace(queue=self._there(gone.queue)) for gone in rewound])

    def flush(self, position: SinkPosition) -> SafePoint:
        safe = self._sink.flush(position)
        if not self._shape.renames or not safe.placed:
            return safe
        placed = tuple(
            run._replace(
                queue=MessageQueue(self._old.get(run.queue.topic, run.queue.topic), run.queue.queue_id)
            )
            for run in safe.placed
        )
        return replace(safe, placed=placed)

    def close(self) -> None:
        self._sink.close()
        if self._misfits is not None:
            self._misfits.close()

    def _rebuilt(self, batch: SinkBatch, bodies: Sequence[bytes] | None) -> SinkBatch:
        """The rows in a buffer of their own; ``bodies``: instead of theirs."""
        names = [self._renamed(topic).encode() for topic in batch.messages.topics]
        given = [None] * len(batch.rows) if bodies is None else bodies
        records = [
            self._record(batch, row, names, body)
            for row, body in zip(batch.rows.tolist(), given, strict=True)
        ]
        sizes = np.fromiter(map(len, records), np.int64, len(records))
        ends = np.cumsum(sizes)
        frames = Frames(ends - sizes, sizes, int(ends[-1]), Stop.END)
        return SinkBatch(decode_headers(b"".join(records), frames), np.arange(len(records)))

    def _renamed(self, topic: str) -> str:
        """A topic's new name. ``Invalid``: another topic has it already."""
        new = self._shape.topic(topic)
        other = self._old.setdefault(new, topic)
        if other != topic:
            raise Invalid(
                "two topics would become one, and their queues' offsets would mean nothing",
                field=f"options.{RENAME}", found=f"{other} and {topic}", topic=new, hint="give each a name of its own",
            )  # fmt: skip
        return new

    def _there(self, queue: MessageQueue) -> MessageQueue:
        """A queue by its topic's new name. ``Invalid`` as of ``_renamed``."""
        return MessageQueue(self._renamed(queue.topic), queue.queue_id)

    def _record(self, batch: SinkBatch, row: int, names: list[bytes], value: bytes | None) -> bytes:
        """One record with what the shape changes; where it lies in the broker's log and when it came stay what they are."""
        header = batch.messages.headers[row]
        position, body_at = int(header["position"]), int(header["body_position"])
        buffer = batch.messages.buffer
        head = bytearray(buffer[position : body_at - 4])
        body = bytes(buffer[body_at : body_at + int(header["body_length"])])
        if self._shape.drop_body or value is not None:
            body = value or b""
            _INT.pack_into(head, _FLAG_AT, int(header["sys_flag"]) & ~SYS_COMPRESSED)
        begin = int(header["properties_position"])
        properties = bytes(buffer[begin : begin + int(header["properties_length"])])
        if self._shape.properties is not None:
            properties = _kept_of(properties, self._shape.properties)
        topic = names[int(header["topic_index"])]
        _, magic, _ = _HEAD.unpack_from(head)
        wide = magic != MAGIC_V1
        if not wide and len(topic) > MAX_V1_TOPIC_BYTES:
            raise Invalid("a topic's new name is too long", field=f"options.{RENAME}", found=topic.decode())
        length = struct.pack(">h" if wide else ">B", len(topic))
        tail = b"".join(
            (_INT.pack(len(body)), body, length, topic, struct.pack(">h", len(properties)), properties)
        )
        _HEAD.pack_into(head, 0, len(head) + len(tail), magic, body_crc(body))
        return bytes(head) + tail


class ShapingOffsetSink(ShapingSink):
    """The same of a destination with offsets: its answers have the source's names of topics, too."""

    def __init__(self, sink: OffsetSink, shape: MessageShape, misfits: MisfitPlace | None = None) -> None:
        super().__init__(sink, shape, misfits)
        self._offsets = sink

    def placed_between(
        self, unmapped: Mapping[MessageQueue, Unmapped]
    ) -> dict[MessageQueue, tuple[Placed, ...]]:
        names = {self._there(queue): queue for queue in unmapped}
        found = self._offsets.placed_between({name: unmapped[queue] for name, queue in names.items()})
        return {
            names[name]: tuple(run._replace(queue=names[name]) for run in placed)
            for name, placed in found.items()
        }

    def remind(self, went: Mapping[MessageQueue, WentTo]) -> None:
        """The archive's maps have the source's names of topics."""
        if isinstance(self._sink, RemindedSink):
            self._sink.remind({self._there(queue): at for queue, at in went.items()})


def _kept_of(properties: bytes, kept: Collection[str]) -> bytes:
    """The entries of these names, byte for byte."""
    entries = (entry for entry in properties.split(b"\x02") if b"\x01" in entry)
    chosen = [e for e in entries if e.partition(b"\x01")[0].decode("utf-8", "replace") in kept]
    return b"".join(entry + b"\x02" for entry in chosen)
