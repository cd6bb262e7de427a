"""The kinds of edit a commit can carry and the columns of each (DESIGN.md, "Edits"); declarations only.

An edit list is a list of ``EditBatch``: one kind, column-wise, rows in row order. Integer columns are numpy arrays,
so a commit with ten thousand runs costs a handful of arrays. The byte layout is in ``codec/format/editwire.py``, the
meaning of applying them in ``archive/fold/apply.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from tiered.codec.types import Ints


class EditKind(IntEnum):
    """Numbers on the wire. Never reused; 13 and 17 are reserved: meeting one means *refuse to open*."""

    OPEN_EPOCH = 1
    ADD_OBJECT = 2
    APPEND_RUN = 3
    PROGRESS = 4
    PHYS_GAP = 5
    GAP = 6
    REWIND = 7
    NEW_GENERATION = 8
    REPLACE_RUNS = 9
    TRIM_QUEUE = 10
    RETIRE = 11
    DELETED = 12
    BROKER_CONFIG = 13
    SINK_PROGRESS = 14
    SINK_MAP = 15
    QUEUE_ALIAS = 16
    PHYS_MAP = 17
    LOSS = 18
    FORGET_QUEUES = 19
    REPLACE_ALIASES = 20


RESERVED_KINDS = frozenset((EditKind.BROKER_CONFIG, EditKind.PHYS_MAP))


class Col(Enum):
    """How a column is held in memory.

    INT: int64 array. TEXT: list of str, dictionary-coded on the wire (repeats are cheap). BYTES: list of bytes.
    OBJ: list of msgpack-able values (None, bool, int, str, bytes, list, dict), for kinds that are rare.
    """

    INT = "int"
    TEXT = "text"
    BYTES = "bytes"
    OBJ = "obj"


SCHEMA: Mapping[EditKind, Sequence[tuple[str, Col]]] = {
    EditKind.OPEN_EPOCH: (
        ("epoch", Col.INT),
        ("writer_id", Col.BYTES),  # 16 random bytes of the local state directory
        ("host", Col.TEXT),
        ("store_time_ms", Col.INT),  # the store's clock as the writer last saw it
        ("lineage", Col.INT),  # number of the physical-offset space this epoch writes
        ("source_kind", Col.TEXT),  # commitlog | dledger | ha
        ("role", Col.TEXT),  # master | slave
        ("broker_epoch", Col.OBJ),  # int, or None when the broker has none
        ("min_reader", Col.INT),  # format versions
        ("min_writer", Col.INT),
        ("required_features", Col.OBJ),  # list of str
    ),
    EditKind.ADD_OBJECT: (
        ("key", Col.TEXT),  # object key under the broker's root; "" = the inline data of this very commit
        ("object_id", Col.BYTES),  # 16 bytes, as in the object's own footer; the commit id for inline data
        ("level", Col.INT),
        ("length", Col.INT),  # bytes; of the inline part for inline data
        ("sections", Col.OBJ),  # {section number: [position, length, crc32c]} as in the object's footer
    ),
    EditKind.APPEND_RUN: (
        ("topic", Col.TEXT),
        ("queue_id", Col.INT),
        ("generation", Col.INT),
        ("first_queue_offset", Col.INT),
        ("rows", Col.INT),  # records
        ("queue_offsets", Col.INT),  # queue offsets owned (an inner batch owns several)
        ("first_flat_offset", Col.INT),
        ("bytes", Col.INT),  # raw record bytes
        ("min_store_time", Col.INT),
        ("max_store_time", Col.INT),
        ("object", Col.INT),  # row number among this commit's ADD_OBJECT rows
        ("first_row", Col.INT),  # in the object's columns
        ("first_block", Col.INT),  # in the object's block table
        ("block_count", Col.INT),
        ("physical_start", Col.INT),  # of the first record
        ("physical_end", Col.INT),  # end of the last record
    ),
    EditKind.PROGRESS: (
        ("lineage", Col.INT),
        ("physical_offset", Col.INT),
        ("mark_crc", Col.INT),
        ("crc_from", Col.INT),
    ),
    EditKind.PHYS_GAP: (("lineage", Col.INT), ("start", Col.INT), ("end", Col.INT), ("reason", Col.TEXT)),
    EditKind.GAP: (
        ("topic", Col.TEXT),
        ("queue_id", Col.INT),
        ("generation", Col.INT),
        ("start", Col.INT),
        ("end", Col.INT),
        ("reason", Col.TEXT),
    ),
    EditKind.REWIND: (
        ("lineage", Col.INT),
        ("physical_offset", Col.INT),  # records from here on are closed
        ("mark_crc", Col.INT),
        ("crc_from", Col.INT),
        # {"topic": [...], "queue_id": [...], "generation": [...], "max_offset": [...], "flat_end": [...]}
        ("queues", Col.OBJ),
    ),
    EditKind.NEW_GENERATION: (
        ("topic", Col.TEXT),
        ("queue_id", Col.INT),
        ("generation", Col.INT),  # the new one
        ("lineage", Col.INT),
        ("first_queue_offset", Col.INT),
        ("physical_offset", Col.INT),
    ),
    EditKind.REPLACE_RUNS: (
        # {"commit_seq": [...], "index": [...], "start": [...], "end": [...], "closed_by": [... or None]}: queue-offset bounds
        ("sources", Col.OBJ),
        (
            "targets",
            Col.OBJ,
        ),  # columns as APPEND_RUN plus "closed_by"; "object" counts this commit's ADD_OBJECT rows
    ),
    EditKind.TRIM_QUEUE: (
        ("topic", Col.TEXT),
        ("queue_id", Col.INT),
        ("generation", Col.INT),
        ("first_offset", Col.INT),  # first readable queue offset
    ),
    EditKind.RETIRE: (("keys", Col.OBJ), ("floor", Col.OBJ)),  # list of object keys; int or None
    EditKind.DELETED: (("keys", Col.OBJ),),
    EditKind.QUEUE_ALIAS: (  # records that are in lite queues, too: codec/format/aliases.py
        ("lite_queues", Col.OBJ),  # list of names
        ("alias_targets", Col.OBJ),  # {"topic": [...], "queue_id": [...], "generation": [...]}
        ("alias_runs", Col.BYTES),  # packed table
        ("aliases", Col.BYTES),  # packed table
    ),
    EditKind.REPLACE_ALIASES: (  # ageing of lite queues
        ("topic", Col.TEXT),  # the lite queue
        ("generation", Col.INT),
        ("first_offset", Col.INT),  # aliases below it go; 0: none
        (
            "start",
            Col.INT,
        ),  # offsets [start, end): alias runs in it that follow each other become one; equal: none
        ("end", Col.INT),
    ),
    EditKind.SINK_PROGRESS: (  # a row for each sink
        ("sink_id", Col.BYTES),  # 16 bytes
        ("sink", Col.TEXT),  # its name
        ("step", Col.INT),  # SinkStep
        ("revision", Col.INT),  # of the sink's order that its position was reached under
        ("lineage", Col.INT),  # of the log that the position is in
        (
            "sink_position",
            Col.OBJ,
        ),  # [physical offset or None, None or [start, size, crc32c] of the last record]
        ("looked", Col.INT),  # the commit up to which rewinds and new generations are accounted for
        # what changed: {"topic": [...], "queue_id": [...], "next": [...], "physical": [... or None]}
        ("sink_queues", Col.OBJ),
    ),
    EditKind.SINK_MAP: (  # a row for each queue of a sink that went on, behind its SINK_PROGRESS: archive/state/offsetmap.py
        ("sink_id", Col.BYTES),  # 16 bytes
        ("topic", Col.TEXT),
        ("queue_id", Col.INT),
        ("start", Col.INT),  # queue offsets [start, end) that the row tells of
        ("end", Col.INT),
        ("target", Col.TEXT),  # the destination's topic; "" where nothing was given
        ("target_id", Col.TEXT),  # by which the destination tells it from another of that name
        ("partition", Col.INT),
        ("target_offset", Col.INT),  # of the first message; 0 where nothing was given
        ("map_runs", Col.BYTES),  # packed table
    ),
    EditKind.LOSS: (  # what was archived and is gone; only in what stands for a damaged commit
        ("topic", Col.TEXT),
        ("queue_id", Col.INT),
        ("generation", Col.INT),
        ("start", Col.INT),  # queue offsets
        ("end", Col.INT),
        ("bytes", Col.INT),  # raw record bytes
        ("physical_end", Col.INT),  # the lost records end here at the latest
    ),
    EditKind.FORGET_QUEUES: (  # ascending by the keys of the queues (archive/state/keys.py)
        ("topic", Col.TEXT),
        ("queue_id", Col.INT),
        ("generation", Col.INT),  # the highest that the queue has had
        ("lineage", Col.INT),  # that it was written in last
        ("physical_end", Col.INT),  # of its last record there
    ),
}


class SinkStep(IntEnum):
    """What a row of ``SINK_PROGRESS`` does to what is known of its sink. Numbers on the wire."""

    ON = 0  # nothing goes back
    BACK = 1  # some goes back: the source lost messages that the sink has had, or the sink has fewer than it said
    ANEW = 2  # what was known of it is forgotten first
    REMOVED = 3  # and nothing comes in its place


@dataclass(frozen=True, slots=True)
class EditBatch:
    """Rows of one kind, column-wise; every column of ``SCHEMA[kind]`` is there and all have the same length.

    INT columns are int64 arrays, the others lists.
    """

    kind: EditKind
    columns: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def ints(self, name: str) -> Ints:
        """An INT column."""
        column: Ints = self.columns[name]
        return column

    def take(self, rows: Ints) -> EditBatch:
        """Some of the rows."""
        numbers = rows.tolist()
        return EditBatch(
            self.kind,
            {
                n: c[rows] if isinstance(c, np.ndarray) else [c[i] for i in numbers]
                for n, c in self.columns.items()
            },
        )

    def row(self, i: int) -> dict[str, Any]:
        """One row as a dict of plain Python values: for rare kinds, errors and tests."""
        return {n: int(c[i]) if isinstance(c, np.ndarray) else c[i] for n, c in self.columns.items()}


def batch(kind: EditKind, **columns: Any) -> EditBatch:
    """Make a batch: scalars become one-row columns, INT columns become int64 arrays. ``ValueError`` on a schema mismatch."""
    declared = dict(SCHEMA[kind])
    if set(columns) != set(declared):
        raise ValueError(f"{kind.name}: columns {sorted(columns)} are not {sorted(declared)}")
    made: dict[str, Any] = {}
    for name, how in declared.items():
        value = columns[name]
        if how is Col.INT:
            made[name] = np.atleast_1d(np.asarray(value, dtype=np.int64))
        elif isinstance(value, list) and how is not Col.OBJ:
            made[name] = value
        elif how is Col.OBJ and isinstance(value, Rows):
            made[name] = list(value)
        else:
            made[name] = [value]
    if len({len(c) for c in made.values()}) != 1:
        raise ValueError(f"{kind.name}: columns differ in length")
    return EditBatch(kind, made)


class Rows(list[Any]):
    """Marks a list given to ``batch`` for an OBJ column as the column itself (a plain list is one value)."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the log, decoded. ``inline_length`` bytes of object data lie in front of the edits."""

    seq: int
    epoch: int
    archive_id: bytes
    commit_id: bytes
    previous_id: bytes  # 16 zero bytes for the first
    writer_id: bytes
    edits: Sequence[EditBatch]
    inline_length: int = 0
