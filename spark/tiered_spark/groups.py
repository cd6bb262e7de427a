"""Neighbouring blocks of an object that a task asks for and decodes together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tiered.archive.state.values import ObjectState
from tiered.codec.types import Ints
from tiered.settings import MIB
from tiered_spark.plan import Piece, Portion
from tiered_spark.pruning import KeptBlocks

GROUP_BYTES = 8 * MIB
"""Blocks decoded together, raw, and one Arrow batch; at least one block."""


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Consecutive blocks of an object, with the piece (an index), the rows and the first queue offset of each."""

    item: ObjectState
    first_block: int
    pieces: tuple[Piece, ...]
    piece_of: Ints
    rows: Ints
    first_offsets: Ints
    raw_bytes: int

    @property
    def end_block(self) -> int:
        """The number behind the last block's."""
        return self.first_block + len(self.rows)

    def block(self, number: int) -> BlockGroup:
        """A single block of the group."""
        part = slice(number, number + 1)
        size = self.raw_bytes // len(self.rows)
        return BlockGroup(
            self.item, self.first_block + number, self.pieces, self.piece_of[part], self.rows[part],
            self.first_offsets[part], size,
        )  # fmt: skip


def groups_of(portion: Portion, kept: KeptBlocks) -> Iterator[BlockGroup]:
    """Blocks of a portion in groups, ascending."""
    numbers, sizes = kept.numbers, kept.raw_bytes
    start = 0
    while start < len(numbers):
        stop, size = start, 0
        while stop < len(numbers) and numbers[stop] - numbers[start] == stop - start:
            if size and size + sizes[stop] > GROUP_BYTES:
                break
            size += int(sizes[stop])
            stop += 1
        part = slice(start, stop)
        first, last = int(kept.piece_of[start]), int(kept.piece_of[stop - 1])
        yield BlockGroup(
            portion.object, int(numbers[start]), portion.pieces[first : last + 1], kept.piece_of[part] - first,
            kept.rows[part], kept.first_offsets[part], size,
        )  # fmt: skip
        start = stop
