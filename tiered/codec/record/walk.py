"""From record to record through a body of stored records that may hold, from some place on, anything else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tiered.codec.record.layout import FIXED
from tiered.codec.types import Buffer


class Walked(NamedTuple):
    """A record's offsets, its place [``begin``, ``end``) in the buffer, and its sysFlag, as it says them."""

    queue_offset: int
    physical_offset: int
    begin: int
    end: int
    sys_flag: int


def records_in(buffer: Buffer) -> Iterator[Walked]:
    """The records that lie back to back in a buffer, up to what cannot be one by its size; nothing else is checked."""
    position, size = 0, len(buffer)
    while position + FIXED.size <= size:
        length, _, _, _, _, queue_offset, physical_offset, sys_flag, _ = FIXED.unpack_from(buffer, position)
        if not FIXED.size <= length <= size - position:
            return
        yield Walked(queue_offset, physical_offset, position, position + length, sys_flag)
        position += length
