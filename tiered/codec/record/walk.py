"""From record to record through a body of stored records that may hold, from some place on, anything else."""

from __future__ import annotations

from collections.abc import Iterator

from tiered.codec.record.layout import WALKED
from tiered.codec.types import Buffer

Walked = tuple[int, int, int, int, int]
"""A record's queue offset and physical offset, its place [begin, end) in the buffer, and its sysFlag, as it says them."""


def records_in(buffer: Buffer) -> Iterator[Walked]:
    """The records that lie back to back in a buffer, up to what cannot be one by its size; nothing else is checked."""
    read, least = WALKED.unpack_from, WALKED.size
    position, size = 0, len(buffer)
    while position + least <= size:
        length, queue_offset, physical_offset, sys_flag = read(buffer, position)
        if not least <= length <= size - position:
            return
        yield queue_offset, physical_offset, position, position + length, sys_flag
        position += length
