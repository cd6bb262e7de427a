"""How far the commitlog is archived, as commits say it: the running mark, ``Progress`` and ``PhysGap``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiered.codec.format.edits import EditBatch, EditKind, batch
from tiered.model import PhysicalOffset, Progress


@dataclass(frozen=True, slots=True)
class Mark:
    """The running CRC of the commitlog: ``offset`` reached, ``crc`` of its bytes since ``crc_from``."""

    offset: PhysicalOffset
    crc: int
    crc_from: PhysicalOffset

    @classmethod
    def at(cls, offset: PhysicalOffset) -> Mark:
        """A mark that sums from ``offset`` on: over no byte yet."""
        return cls(offset, 0, offset)

    @classmethod
    def of(cls, progress: Progress) -> Mark:
        """The running CRC as a ``Progress`` left it."""
        return cls(
            PhysicalOffset(progress.physical_offset), progress.mark_crc, PhysicalOffset(progress.crc_from)
        )

    def progress(self, lineage: int) -> EditBatch:
        """The ``Progress`` that says so."""
        return progress_edit(lineage, [(self.offset, self.crc, self.crc_from)])


def progress_edit(lineage: int, marks: Sequence[tuple[int, int, int]]) -> EditBatch:
    """``Progress`` rows from (physical offset, mark CRC, crc_from), ascending."""
    return EditBatch(
        EditKind.PROGRESS,
        {
            "lineage": np.full(len(marks), lineage, dtype=np.int64),
            "physical_offset": np.array([m[0] for m in marks], dtype=np.int64),
            "mark_crc": np.array([m[1] for m in marks], dtype=np.int64),
            "crc_from": np.array([m[2] for m in marks], dtype=np.int64),
        },
    )


def gap_edit(lineage: int, start: int, end: int, reason: str) -> EditBatch:
    """One ``PhysGap``."""
    return batch(EditKind.PHYS_GAP, lineage=lineage, start=start, end=end, reason=reason)
