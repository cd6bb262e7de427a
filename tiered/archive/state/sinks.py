"""How far sinks are, as the fold keeps it (DESIGN.md, "Sinks")."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tiered.archive.state.keys import SINK, SINK_QUEUE, queue_of
from tiered.archive.state.layout import damaged, pack_value, unpack_value
from tiered.codec.types import Bools, Ints
from tiered.metadata.base import MetadataView, PointLookups
from tiered.model import MessageQueue

SINKS = "sinks"
"""A feature that the fold itself requires, of all later epochs too, from the first ``SinkProgress`` on."""

SINK_MAPS = "sinkmap"
"""The same from the first ``SinkMap`` on."""

SINK_ID_BYTES = 16
_QUEUE = struct.Struct(">qq")
NOWHERE = -1
"""A physical offset of a queue whose last message lies in another log: all that this log has is behind it."""
_UNKNOWN = -2


@dataclass(frozen=True, slots=True)
class SinkState:
    """A sink's position: in ``lineage`` everything below ``physical`` was given (``None``: the archive is still being read),
    the last record before it is ``anchor`` (start, size, CRC-32C). ``revision``: of the order that it was reached under.
    Rewinds and new generations up to commit ``looked`` are accounted for. ``commit_seq``: the commit that said so last."""

    sink_id: bytes
    name: str
    revision: int
    lineage: int
    physical: int | None
    anchor: tuple[int, int, int] | None
    looked: int
    commit_seq: int

    def pack(self) -> bytes:
        """Stored form; ``sink_id`` is the key."""
        return pack_value(
            [self.name, self.revision, self.lineage, self.physical, self.anchor, self.looked, self.commit_seq]
        )


@dataclass(frozen=True, slots=True)
class SinkQueue:
    """How far a sink is in a queue: as ``Follow``."""

    next: int
    physical: int | None

    def pack(self) -> bytes:
        """Stored form."""
        return _QUEUE.pack(self.next, _UNKNOWN if self.physical is None else self.physical)


def sink_state(sink_id: bytes, value: bytes) -> SinkState:
    """Inverse of ``SinkState.pack``; ``Corrupt`` on damage."""
    try:
        name, revision, lineage, physical, anchor, looked, seq = unpack_value(value)
        return SinkState(
            sink_id, name, revision, lineage, physical, None if anchor is None else tuple(anchor), looked, seq
        )
    except (TypeError, ValueError) as error:
        raise damaged("a sink", expected="a sink's record", found=repr(value[:40])) from error


def sink_queue(value: bytes) -> SinkQueue:
    """Inverse of ``SinkQueue.pack``; ``Corrupt`` on damage."""
    try:
        following, physical = _QUEUE.unpack(value)
    except struct.error as error:
        raise damaged("a sink's queue", expected=f"{_QUEUE.size} bytes", found=len(value)) from error
    return SinkQueue(following, None if physical == _UNKNOWN else physical)


def sinks(view: MetadataView) -> list[SinkState]:
    """Every sink of which something is known, by id. Needs a view of everything."""
    return [sink_state(key[1:], value) for key, value in view.iterate(SINK)]


def sink(view: PointLookups, sink_id: bytes) -> SinkState | None:
    """One of them."""
    value = view.get_many((SINK + sink_id,))[0]
    return None if value is None else sink_state(sink_id, value)


def is_behind(sink: SinkState, lineage: Ints, end: Ints) -> Bools:
    """Of places in logs, whether a sink was given everything below them; of none while it reads the archive."""
    if sink.physical is None:
        return np.zeros(len(end), np.bool_)
    passed: Bools = (lineage < sink.lineage) | ((lineage == sink.lineage) & (end <= sink.physical))
    return passed


def sink_queues(view: MetadataView, sink_id: bytes) -> Iterator[tuple[MessageQueue, SinkQueue]]:
    """Each queue that a sink was given something of, by the queues' keys."""
    head = SINK_QUEUE + sink_id
    for key, value in view.iterate(head):
        yield queue_of(key[len(head) :]), sink_queue(value)


def sink_queues_of(view: PointLookups, sink_id: bytes, queues: Sequence[bytes]) -> list[SinkQueue | None]:
    """The same of queues by their keys."""
    head = SINK_QUEUE + sink_id
    found = view.get_many([head + queue for queue in queues])
    return [None if value is None else sink_queue(value) for value in found]
