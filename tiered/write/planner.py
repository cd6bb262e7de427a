"""One flush, planned: gathered records become objects and edits.

Nothing here talks to the store. The plan for commit n + 1 is made against the fold *as it will be* after commit n; what does
not depend on the fold was done before (``gathered``).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import Area, ObjectKey, build
from tiered.archive.log.flush import DataObject, DispatchOffsets, FlushStatistics
from tiered.archive.log.planned import Place
from tiered.codec.format.block import StoredBlocks
from tiered.codec.format.edits import EditBatch, EditKind
from tiered.codec.format.object import (
    BLOCK_DTYPE,
    RUN_DTYPE,
    EncodedObject,
    MessageKeys,
    ObjectTables,
    encode_object,
)
from tiered.codec.types import Ints
from tiered.write.aliases import alias_edit
from tiered.write.cutter import Cut, flat_offsets, offsets_covered
from tiered.write.gathered import GatheredFlush
from tiered.write.router import QueueEnds, Routed, RowOffsets, Segments, cut_segments, renumbered


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Objects to upload and the edits that name them (without ``Progress``)."""

    objects: tuple[DataObject, ...]
    edits: tuple[EditBatch, ...]
    dispatch_offsets: DispatchOffsets
    archived: FlushStatistics


@dataclass(slots=True)
class _Tables:
    """A gathered flush and what the fold adds to it."""

    gathered: GatheredFlush
    offsets: RowOffsets
    segments: Segments
    blocks: npt.NDArray[np.void]
    runs: npt.NDArray[np.void]
    stored: StoredBlocks


def plan(
    made: GatheredFlush,
    stored: StoredBlocks,
    ends: QueueEnds,
    lineage: int,
    place: Place,
    lite: QueueEnds | None = None,
) -> FlushPlan:
    """Plan one flush at its place in the log. ``stored``: its compressed blocks; ``ends``: the fold's view of its queues,
    ``lite``: of its lite queues, if it has any."""
    routed, pieces = made.routed, made.cut
    offsets = renumbered(made.offsets, routed, ends)
    segments = cut_segments(routed, offsets, ends)
    flush = _Tables(
        made, offsets, segments, _blocks(pieces, made.rows, offsets, stored),
        _runs(pieces, segments, ends, routed, made.rows, offsets), stored,
    )  # fmt: skip
    objects = []
    for number in range(len(pieces.object_block) - 1):
        path, object_id = ("", place.commit_id) if made.inline else _new_object(place.epoch)
        objects.append(DataObject(path, object_id, _object(flush, number, place.archive_id, object_id)))
    last = routed.group_start[1:] - 1
    taken = offsets.queue_offset[last] + offsets.owned[last]
    edits = [_object_edit(objects), *_run_edits(flush, lineage)]
    if made.aliases is not None and lite is not None:
        edits.append(alias_edit(made.aliases, lite, made.rows, routed, offsets, segments))
    return FlushPlan(
        objects=tuple(objects),
        edits=tuple(edits),
        dispatch_offsets=DispatchOffsets(routed.topics, routed.queue_ids, taken),
        archived=FlushStatistics(
            record_bytes=made.raw_bytes,
            store_times=made.rows["store_timestamp"].astype(np.int64),
            gaps=int((segments.gap_start != segments.first_offset).sum()),
            generations=int(segments.is_new.sum()),
            aliases=0 if made.aliases is None or lite is None else len(made.aliases.offset),
        ),
    )


def _new_object(epoch: int) -> tuple[str, bytes]:
    """Path under the broker's root and id of a data object that is about to be made."""
    name = uuid.uuid4().bytes
    return build(ObjectKey(Area.DATA, epoch, name)), name


def _reduce(function: np.ufunc, values: npt.NDArray[np.generic], starts: Ints) -> Ints:
    """``function`` over [starts[i], starts[i + 1])."""
    result: Ints = function.reduceat(values, starts[:-1])
    return result


def _blocks(
    pieces: Cut, rows: npt.NDArray[np.void], offsets: RowOffsets, stored: StoredBlocks
) -> npt.NDArray[np.void]:
    start = pieces.block_start
    blocks = np.zeros(len(start) - 1, dtype=BLOCK_DTYPE)
    blocks["run"] = pieces.block_run
    blocks["first_queue_offset"] = offsets.queue_offset[start[:-1]]
    blocks["rows"] = np.diff(start)
    blocks["raw_length"] = np.diff(pieces.byte_start[start])
    blocks["stored_length"] = stored.lengths
    blocks["codec"] = stored.codecs
    blocks["crc32c"] = stored.crcs
    blocks["min_store_time"] = _reduce(np.minimum, rows["store_timestamp"], start)
    blocks["max_store_time"] = _reduce(np.maximum, rows["store_timestamp"], start)
    return blocks


def _runs(
    pieces: Cut,
    segments: Segments,
    ends: QueueEnds,
    routed: Routed,
    rows: npt.NDArray[np.void],
    offsets: RowOffsets,
) -> npt.NDArray[np.void]:
    """The run table of the whole flush; rows and blocks still count from the flush's first."""
    start = pieces.run_start
    group = segments.group[pieces.run_segment]
    runs = np.zeros(len(start) - 1, dtype=RUN_DTYPE)
    lead, covered = offsets_covered(pieces, offsets)
    runs["topic"] = (
        group  # the flush's queue number for now; _object turns it into the object's own topic index
    )
    runs["queue_id"] = routed.queue_ids[group]
    runs["generation"] = segments.generation[pieces.run_segment]
    runs["first_queue_offset"], runs["queue_offsets"] = lead, covered
    runs["rows"] = np.diff(start)
    runs["first_flat_offset"] = flat_offsets(pieces, segments, ends)
    runs["bytes"] = np.diff(pieces.byte_start[start])
    runs["min_store_time"] = _reduce(np.minimum, rows["store_timestamp"], start)
    runs["max_store_time"] = _reduce(np.maximum, rows["store_timestamp"], start)
    runs["first_row"] = start[:-1]
    runs["first_block"] = pieces.run_block[:-1]
    runs["block_count"] = np.diff(pieces.run_block)
    runs["physical_start"] = rows["physical_offset"][start[:-1]]
    last = start[1:] - 1
    runs["physical_end"] = rows["physical_offset"][last] + rows["size"][last]
    return runs


def _object(flush: _Tables, number: int, archive_id: bytes, object_id: bytes) -> EncodedObject:
    """Encode object ``number``: its part of every table, renumbered from zero."""
    made, pieces = flush.gathered, flush.gathered.cut
    b0, b1 = pieces.object_block[number : number + 2].tolist()
    r0, r1 = np.searchsorted(pieces.run_object, (number, number + 1)).tolist()
    p0, p1 = int(pieces.block_start[b0]), int(pieces.block_start[b1])
    runs = flush.runs[r0:r1].copy()
    runs["first_row"] -= p0
    runs["first_block"] -= b0
    names = list(map(made.routed.topics.__getitem__, runs["topic"].tolist()))
    topics = tuple(dict.fromkeys(names))
    index = {name: i for i, name in enumerate(topics)}
    runs["topic"] = np.fromiter(map(index.__getitem__, names), np.int64, len(names))
    blocks = flush.blocks[b0:b1].copy()
    blocks["run"] -= r0
    rows = made.rows[p0:p1].copy()
    used, rows["tag"] = np.unique(np.append(rows["tag"], 0), return_inverse=True)[0], _renumber(rows["tag"])
    k0, k1 = np.searchsorted(made.key_position, np.array((p0, p1), np.int32)).tolist()
    position = made.key_position[k0:k1]
    keys = MessageKeys(
        made.key_hash[k0:k1],
        (np.searchsorted(pieces.run_start, position, side="right") - 1 - r0).astype(np.int32),
        flush.offsets.queue_offset[position],
    )
    tables = ObjectTables(
        topics=topics,
        runs=runs,
        blocks=blocks,
        stored=flush.stored.between(b0, b1),
        rows=rows,
        tags=[made.tags[t] for t in used.tolist()],
        keys=keys,
        dictionary=flush.stored.dictionary,
    )
    return encode_object(tables, object_id=object_id, archive_id=archive_id, level=0)


def _renumber(tag: npt.NDArray[np.generic]) -> Ints:
    """Tags numbered by the object's own dictionary, in which 0 stays 0 (no tag)."""
    inverse: Ints = np.unique(np.append(tag, 0), return_inverse=True)[1][:-1]
    return inverse


def _object_edit(objects: Sequence[DataObject]) -> EditBatch:
    return EditBatch(
        EditKind.ADD_OBJECT,
        {
            "key": [o.path for o in objects],
            "object_id": [o.object_id for o in objects],
            "level": np.zeros(len(objects), dtype=np.int64),
            "length": np.array([o.encoded.length for o in objects], dtype=np.int64),
            "sections": [{n: list(s) for n, s in o.encoded.sections.items()} for o in objects],
        },
    )


def _run_edits(flush: _Tables, lineage: int) -> list[EditBatch]:
    """New generations, gaps and runs, in waves: within a wave each queue occurs once, so the fold takes it as arrays."""
    pieces, segments, routed = flush.gathered.cut, flush.segments, flush.gathered.routed
    edits: list[EditBatch] = []
    begins = pieces.run_start[:-1] == segments.start[pieces.run_segment]
    for wave in range(int(pieces.run_wave.max()) + 1):
        runs = np.flatnonzero(pieces.run_wave == wave)
        opening = pieces.run_segment[runs[begins[runs]]]
        new = opening[segments.is_new[opening]]
        if len(new):
            edits.append(_new_generations(flush, new, lineage))
        holes = opening[segments.gap_start[opening] != segments.first_offset[opening]]
        if len(holes):
            edits.append(
                EditBatch(
                    EditKind.GAP,
                    {
                        **_queue_columns(routed, segments.group[holes]),
                        "generation": segments.generation[holes],
                        "start": segments.gap_start[holes],
                        "end": segments.first_offset[holes],
                        "reason": ["queue offsets jumped"] * len(holes),
                    },
                )
            )
        edits.append(_append_runs(flush, runs))
    return edits


def _queue_columns(routed: Routed, group: Ints) -> dict[str, object]:
    return {
        "topic": list(map(routed.topics.__getitem__, group.tolist())),
        "queue_id": routed.queue_ids[group],
    }


def _new_generations(flush: _Tables, segments: Ints, lineage: int) -> EditBatch:
    lead = flush.segments.start[segments]
    return EditBatch(
        EditKind.NEW_GENERATION,
        {
            **_queue_columns(flush.gathered.routed, flush.segments.group[segments]),
            "generation": flush.segments.generation[segments],
            "lineage": np.full(len(segments), lineage, dtype=np.int64),
            "first_queue_offset": flush.segments.first_offset[segments],
            "physical_offset": flush.gathered.rows["physical_offset"][lead].astype(np.int64),
        },
    )


def _append_runs(flush: _Tables, runs: Ints) -> EditBatch:
    pieces, table = flush.gathered.cut, flush.runs[runs]
    block0 = pieces.object_block[pieces.run_object[runs]]
    columns: dict[str, object] = _queue_columns(
        flush.gathered.routed, flush.segments.group[pieces.run_segment[runs]]
    )
    for name in (
        "generation", "first_queue_offset", "rows", "queue_offsets", "first_flat_offset", "bytes",
        "min_store_time", "max_store_time", "block_count", "physical_start", "physical_end",
    ):  # fmt: skip
        columns[name] = table[name].astype(np.int64)
    columns["object"] = pieces.run_object[runs]
    columns["first_row"] = table["first_row"] - pieces.block_start[block0]
    columns["first_block"] = table["first_block"] - block0
    return EditBatch(EditKind.APPEND_RUN, columns)
