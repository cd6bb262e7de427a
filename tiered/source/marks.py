"""A mark of the archive held against the broker's own bytes (DESIGN.md, "Marks")."""

from __future__ import annotations

from enum import Enum

from tiered.codec.checksum import crc32c
from tiered.codec.record.frame import Stop, scan
from tiered.errors import NotFound
from tiered.model import PhysicalOffset, Progress
from tiered.source.base import Copies

WINDOW_BYTES = 8 * 1024 * 1024


class MarkVerdict(Enum):
    """What a mark says."""

    MATCH = "match"
    MISMATCH = "mismatch"
    UNKNOWN = "unknown"  # its bytes are not all local


def check_mark(source: Copies, mark: Progress) -> MarkVerdict:
    """Compare one mark with the broker's own bytes."""
    start, end = PhysicalOffset(mark.crc_from), PhysicalOffset(mark.physical_offset)
    if end <= start:
        return MarkVerdict.UNKNOWN
    try:
        value = _mark_crc(source, start, end)
    except NotFound:
        return MarkVerdict.UNKNOWN
    return MarkVerdict.MATCH if value == mark.mark_crc else MarkVerdict.MISMATCH


def _mark_crc(source: Copies, start: PhysicalOffset, end: PhysicalOffset) -> int | None:
    """CRC32C of [start, end) as marks define it: of a blank record only its 8 header bytes. ``None``: cannot be a match."""
    ends_file = source.file_start(end) != source.file_start(PhysicalOffset(end - 1))
    if ends_file:
        return _whole_file_crc(source, start, end)
    value, position = 0, start
    while position < end:
        stop = PhysicalOffset(min(end, position + WINDOW_BYTES))
        value = crc32c(source.copy_local(position, stop), value)
        position = stop
    return value


def _whole_file_crc(source: Copies, start: PhysicalOffset, end: PhysicalOffset) -> int | None:
    """The mark at a file's end: hop to the blank record, then sum what lies before it and its header."""
    value, position, size = 0, start, WINDOW_BYTES
    while position < end:
        window = source.copy_local(position, PhysicalOffset(min(end, position + size)))
        frames = scan(window, base=position, max_record_bytes=end - position)
        value = crc32c(memoryview(window)[: frames.end], value)
        position = PhysicalOffset(position + frames.end)
        if frames.stop is Stop.BLANK:
            header = memoryview(window)[frames.end : frames.end + 8]
            return crc32c(header, value) if position + (frames.blank_length or 0) == end else None
        if frames.end == 0 and frames.stop is not Stop.END:
            if frames.stop is not Stop.PARTIAL or position + len(window) >= end:
                return None
            size *= 2  # one record is longer than the window
    return value
