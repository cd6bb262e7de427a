"""What readers get from the fold: small frozen values, and how each is read from its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import U8, queue_of, split_run_key
from tiered.archive.state.layout import (
    FOLD_VERSION,
    NO_TIME_HIGH,
    NO_TIME_LOW,
    OPEN,
    QueueRecord,
    damaged,
    pack_value,
    unpack_value,
    unpacked_run,
)
from tiered.model import MessageQueue, ObjectRef, Progress, RunId

_PLAIN_HEAD_FIELDS = (
    "archive_id",
    "seq",
    "commit_id",
    "epoch",
    "writer_id",
    "lineage",
    "highest_lineage",
    "floor",
    "host",
    "source_kind",
    "role",
    "broker_epoch",
    "min_reader",
    "min_writer",
    "required_features",
    "epoch_seq",
    "epoch_store_time_ms",
)


@dataclass(frozen=True, slots=True)
class GenerationState:
    """A generation of a queue. Offsets are queue offsets, half-open; ``min_offset`` moves by retention only.

    ``bytes`` counts a run cut by ``TrimQueue`` in full until it is gone; ``messages`` counts queue offsets
    and is exact. Store times bound the live runs; ``None`` without any. ``last_physical_end`` is the end of
    the last record, or an upper bound of it after a ``Rewind``.
    """

    queue: MessageQueue
    generation: int
    current: bool
    lineage: int
    first_offset: int
    birth_physical: int
    min_offset: int
    max_offset: int
    flat_end: int
    last_physical_end: int
    min_store_time: int | None
    max_store_time: int | None
    messages: int
    bytes: int
    runs: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """A queue as readers see it: its current generation. ``generation`` is ``None`` when a ``Rewind`` left
    none current; the numbers are then 0. Fields as in ``GenerationState``."""

    queue: MessageQueue
    generation: int | None
    highest_generation: int
    lineage: int | None
    min_offset: int
    max_offset: int
    flat_end: int
    last_physical_end: int
    min_store_time: int | None
    max_store_time: int | None
    messages: int
    bytes: int
    runs: int


@dataclass(frozen=True, slots=True)
class RunState:
    """A run, or the closed part of one. Readable are queue offsets [``start``, ``end``): the live bounds; the
    other fields describe the whole run as it lies in its object. ``flat_end`` ends the live part. Physical
    bounds enclose the live part."""

    queue: MessageQueue
    generation: int
    lineage: int
    id: RunId
    object: ObjectRef
    first_queue_offset: int
    queue_offsets: int
    start: int
    end: int
    rows: int
    first_flat_offset: int
    flat_end: int
    min_store_time: int
    max_store_time: int
    first_row: int
    first_block: int
    block_count: int
    physical_start: int
    physical_end: int
    closed_by: int | None

    @property
    def dense(self) -> bool:
        """Whether every record owns one queue offset: there are no inner batches."""
        return self.queue_offsets == self.rows

    @property
    def end_offset(self) -> int:
        """The queue offset behind the whole run, live or not."""
        return self.first_queue_offset + self.queue_offsets

    @property
    def end_block(self) -> int:
        """The number behind that of its last block."""
        return self.first_block + self.block_count


@dataclass(frozen=True, slots=True)
class ObjectState:
    """An object of the archive. ``path`` is relative to the broker's root, "" for data inside the commit
    ``ref.commit_seq``.

    ``references`` counts live runs and closed parts in it: 0 means that no reader needs it. ``retired_by`` is
    the commit that named it for deletion. ``sections``: number to (position, length, crc32c).
    """

    ref: ObjectRef
    path: str
    object_id: bytes
    level: int
    length: int
    sections: Mapping[int, tuple[int, int, int]]
    references: int
    retired_by: int | None


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What is kept of all queues that were forgotten: the highest ``generation`` of any, how many ``queues`` that were, and by
    lineage where the last of their records ended (``ends``)."""

    generation: int = 0
    queues: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)

    def and_of(self, generation: int, queues: int, ends: Mapping[int, int]) -> Forgotten:
        """This and more of them."""
        both = {n: max(self.ends.get(n, 0), ends.get(n, 0)) for n in sorted({*self.ends, *ends})}
        return Forgotten(max(self.generation, generation), self.queues + queues, both)

    def behind(self, progress: Mapping[int, Progress]) -> bool:
        """Whether some of their records may lie behind what was archived up to these positions."""
        return any(n not in progress or progress[n].physical_offset < end for n, end in self.ends.items())


LOST = "lost from the archive with a damaged commit"
"""Reason of gaps that the archive itself made, when it was repaired; the broker may have had what was in them."""


@dataclass(frozen=True, slots=True)
class GapState:
    """Queue offsets [start, end) that can never be served, and why."""

    queue: MessageQueue
    generation: int
    start: int
    end: int
    reason: str
    commit_seq: int


@dataclass(frozen=True, slots=True)
class PhysGapState:
    """Physical range [start, end) of a lineage that was lost before it could be archived."""

    lineage: int
    start: int
    end: int
    reason: str
    commit_seq: int


@dataclass(frozen=True, slots=True)
class Retired:
    """A path named for deletion by commit ``commit_seq``; ``object`` when the fold knows it."""

    path: str
    commit_seq: int
    object: ObjectRef | None


@dataclass(frozen=True, slots=True)
class Head:
    """Where the fold stands: its last commit, the epoch in force and what that epoch's ``OpenEpoch`` said."""

    archive_id: bytes
    seq: int
    commit_id: bytes
    epoch: int
    writer_id: bytes
    lineage: int
    highest_lineage: int
    floor: int
    host: str
    source_kind: str
    role: str
    broker_epoch: int | None
    min_reader: int
    min_writer: int
    required_features: tuple[str, ...]
    epoch_seq: int
    epoch_store_time_ms: int
    progress: Mapping[int, Progress]
    forgotten: Forgotten = Forgotten()

    def position(self) -> bytes:
        """What a metadata store keeps as ``applied``: commit number, commit id, archive id."""
        return position(self.seq, self.commit_id, self.archive_id)

    def pack(self) -> bytes:
        """The stored form."""
        plain = [getattr(self, name) for name in _PLAIN_HEAD_FIELDS]
        rows = [(p.lineage, p.physical_offset, p.mark_crc, p.crc_from) for p in self.progress.values()]
        made: list[object] = [FOLD_VERSION, plain, sorted(rows)]
        gone = self.forgotten
        if gone.queues:  # what nothing was forgotten of stays what it is, byte by byte
            made.append([gone.generation, gone.queues, sorted(gone.ends.items())])
        return pack_value(made)


def position(seq: int, commit_id: bytes, archive_id: bytes) -> bytes:
    """Where a fold stands, as a metadata store keeps it."""
    return seq.to_bytes(8, "big") + commit_id + archive_id


def unpack_head(value: bytes) -> Head:
    """``Head`` from its stored form; ``Corrupt`` if it is damaged or another version's."""
    try:
        version, plain, rows, *more = unpack_value(value)
        if version != FOLD_VERSION:
            raise damaged("the head", expected=f"version {FOLD_VERSION}", found=f"version {version}")
        named = dict(zip(_PLAIN_HEAD_FIELDS, plain, strict=True))
        named["required_features"] = tuple(named["required_features"])
        ((generation, queues, ends),) = more or [[0, 0, []]]
        gone = Forgotten(generation, queues, dict(ends))
        return Head(**named, progress={r[0]: Progress(*r) for r in rows}, forgotten=gone)
    except (TypeError, ValueError, IndexError) as e:
        raise damaged("the head", expected="a head record", found=repr(value[:40])) from e


def time_or_none(value: int) -> int | None:
    """A store-time bound, ``None`` for that of nothing."""
    return None if value in (NO_TIME_LOW, NO_TIME_HIGH) else value


def gap_reason(value: bytes) -> str:
    """Why, by a ``y`` value."""
    return value[_GAP_DTYPE.itemsize :].decode()


_GAP_DTYPE = np.dtype([("end", ">u8"), ("commit_seq", ">u8")])
"""What a ``y`` value begins with; its reason comes behind."""


def gap_state(key: bytes, value: bytes) -> GapState:
    """What readers see of a ``y`` pair."""
    queue, generation = split_run_key(key)
    start, end, seq = (
        U8.unpack_from(key, len(key) - 8)[0],
        U8.unpack_from(value)[0],
        U8.unpack_from(value, 8)[0],
    )
    return GapState(queue_of(queue), generation, start, end, gap_reason(value), seq)


def gap_table(values: Sequence[bytes]) -> npt.NDArray[np.void]:
    """Of many values of ``y`` pairs what numbers they hold: ``end``, ``commit_seq``."""
    joined = b"".join([value[: _GAP_DTYPE.itemsize] for value in values])
    if len(joined) != len(values) * _GAP_DTYPE.itemsize:
        raise damaged("gap", expected=_GAP_DTYPE.itemsize, found=min(map(len, values)))
    return np.frombuffer(joined, _GAP_DTYPE)


def queue_state(queue: MessageQueue, r: QueueRecord) -> QueueState:
    """What readers see of a ``q`` record."""
    some = r.generation > 0
    return QueueState(
        queue,
        r.generation if some else None,
        r.highest_generation,
        r.lineage if some else None,
        r.min_offset,
        r.max_offset,
        r.flat_end,
        r.last_physical_end,
        time_or_none(r.min_store_time),
        time_or_none(r.max_store_time),
        r.messages,
        r.bytes,
        r.runs,
    )


def generation_state(queue: MessageQueue, r: QueueRecord, *, current: bool) -> GenerationState:
    """What readers see of a generation, from a ``q`` or ``g`` record."""
    return GenerationState(
        queue,
        r.generation,
        current,
        r.lineage,
        r.first_offset,
        r.birth_physical,
        r.min_offset,
        r.max_offset,
        r.flat_end,
        r.last_physical_end,
        time_or_none(r.min_store_time),
        time_or_none(r.max_store_time),
        r.messages,
        r.bytes,
        r.runs,
    )


def run_state(queue: MessageQueue, generation: int, value: bytes) -> RunState:
    """What readers see of an ``r`` or ``c`` record."""
    (
        seq, index, number, lineage, rows, first_row, first_block, block_count, queue_offsets, first_queue_offset, start, end,
        first_flat_offset, flat_end, min_store_time, max_store_time, physical_start, physical_end, closed_by,
    ) = unpacked_run(value)  # fmt: skip
    return RunState(
        queue, generation, lineage, RunId(seq, index), ObjectRef(seq, number), first_queue_offset, queue_offsets, start, end,
        rows, first_flat_offset, flat_end, min_store_time, max_store_time, first_row, first_block, block_count,
        physical_start, physical_end, None if closed_by == OPEN else closed_by,
    )  # fmt: skip


def pack_object(o: ObjectState) -> bytes:
    """Stored form of an object; its ``ref`` is the key."""
    sections = [[n, *s] for n, s in sorted(o.sections.items())]
    return pack_value([o.references, o.retired_by, o.path, o.object_id, o.level, o.length, sections])


_UNREFERENCED = pack_value([0, None, "", b"", 0, 0, []])[:2]


def is_unreferenced(value: bytes) -> bool:
    """Whether an object's stored form says that no run lies in it; for looking at a million of them."""
    return value[:2] == _UNREFERENCED


def unpack_object(ref: ObjectRef, value: bytes) -> ObjectState:
    """Inverse of ``pack_object``."""
    references, retired_by, path, object_id, level, length, sections = unpack_value(value)
    return ObjectState(
        ref, path, object_id, level, length, {n: (p, s, c) for n, p, s, c in sections}, references, retired_by
    )
