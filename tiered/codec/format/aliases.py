"""``QueueAlias``: which archived records are in lite queues, packed (FORMAT.md, "Aliases")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tiered.codec.format.edits import EditBatch, EditKind, Rows, batch
from tiered.codec.format.intpack import pack_table, unpack_table
from tiered.codec.types import Ints
from tiered.errors import Corrupt

RUN_COLUMNS = ("queue", "generation", "first_offset", "rows")
ALIAS_COLUMNS = ("target", "offset", "physical_offset", "store_time")

LITE_QUEUES = "lite-queues"
"""Feature that an epoch requires whose commits hold aliases."""

LITE_QUEUE_ID = 0
"""Every lite queue is queue 0 of its topic."""


@dataclass(frozen=True, slots=True)
class Aliases:
    """Aliases of one batch, by lite queue and offset there.

    ``queues``: names of lite queues. ``topics``, ``queue_ids``, ``generations``: the targets, queues that records were sent to.
    ``runs`` (``RUN_COLUMNS``): stretches of offsets that follow each other: ``queue`` is an index into ``queues``,
    ``first_offset`` and ``rows`` say which offsets. ``rows`` (``ALIAS_COLUMNS``): the aliases of all runs, one after the other:
    the target (an index), the record's offset there, its physical offset, its store time.
    """

    queues: Sequence[str]
    topics: Sequence[str]
    queue_ids: Sequence[int]
    generations: Sequence[int]
    runs: Mapping[str, Ints]
    rows: Mapping[str, Ints]

    def edit(self) -> EditBatch:
        """The edit that says so: one row."""
        targets = {
            "topic": list(self.topics),
            "queue_id": list(self.queue_ids),
            "generation": list(self.generations),
        }
        return batch(
            EditKind.QUEUE_ALIAS,
            lite_queues=Rows([list(self.queues)]),
            alias_targets=targets,
            alias_runs=pack_table({name: self.runs[name] for name in RUN_COLUMNS}),
            aliases=pack_table({name: self.rows[name] for name in ALIAS_COLUMNS}),
        )

    @classmethod
    def of(cls, edits: EditBatch, row: int, *, commit: int) -> Aliases:
        """Read back from a row of a ``QueueAlias`` batch; ``Corrupt`` if its tables make no sense."""
        key = f"commit {commit}"
        values = edits.row(row)
        runs, behind = unpack_table(values["alias_runs"], RUN_COLUMNS, key=key, position=None)
        rows, last = unpack_table(values["aliases"], ALIAS_COLUMNS, key=key, position=None)
        if len(behind) or len(last):
            raise Corrupt(
                "bytes follow the tables of a QueueAlias", commit=commit, found=len(behind) or len(last)
            )
        targets = values["alias_targets"]
        return cls(
            values["lite_queues"], targets["topic"], targets["queue_id"], targets["generation"], runs, rows
        )
