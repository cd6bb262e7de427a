"""Maps of sinks as the fold keeps them (DESIGN.md, "Sinks", J8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tiered.archive.state.keys import SINK_MAP, queue_of
from tiered.archive.state.layout import damaged, pack_value, unpack_value
from tiered.archive.state.offsetmap import OffsetMap
from tiered.metadata.base import MetadataView, PointLookups
from tiered.model import MessageQueue


def pack_map(known: OffsetMap) -> bytes:
    """Stored form; sink and queue are the key."""
    base, runs = known.pack()
    return pack_value([known.start, known.end, known.target, known.target_id, known.partition, base, runs])


def unpack_map(value: bytes) -> OffsetMap:
    """Inverse of ``pack_map``; ``Corrupt`` on damage."""
    try:
        start, end, target, target_id, partition, base, runs = unpack_value(value)
    except (TypeError, ValueError) as error:
        raise damaged("a sink's map", expected="a map", found=repr(value[:40])) from error
    return OffsetMap.of(start, end, target, target_id, partition, base, runs, key="a sink's map")


def sink_maps(view: MetadataView, sink_id: bytes) -> Iterator[tuple[MessageQueue, OffsetMap]]:
    """The map of each queue that a sink has one of, by the queues' keys."""
    head = SINK_MAP + sink_id
    for key, value in view.iterate(head):
        yield queue_of(key[len(head) :]), unpack_map(value)


def sink_targets(view: MetadataView, sink_id: bytes) -> Iterator[tuple[MessageQueue, str, int, str]]:
    """Queue, target, partition and the target's id of each map that names both, without its runs; by the queues' keys."""
    head = SINK_MAP + sink_id
    for key, value in view.iterate(head):
        try:
            _, _, target, target_id, partition, _, _ = unpack_value(value)
        except (TypeError, ValueError) as error:
            raise damaged("a sink's map", expected="a map", found=repr(value[:40])) from error
        if target and target_id:
            yield queue_of(key[len(head) :]), target, partition, target_id


def sink_maps_of(view: PointLookups, sink_id: bytes, queues: Sequence[bytes]) -> list[OffsetMap | None]:
    """The same of queues by their keys."""
    found = view.get_many([SINK_MAP + sink_id + queue for queue in queues])
    return [None if value is None else unpack_map(value) for value in found]
