"""Record boundaries in a buffer: where each record starts, how long it is, and why the walk stopped.

``scan`` hops from size to size and believes as little as it can; ``verify`` proves whole records. Neither
raises on bad bytes: at a live log's tail bad bytes are ordinary, and the caller decides whether to wait or to
report.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import body_crcs
from tiered.codec.record.header import Headers, read_headers
from tiered.codec.record.layout import (
    BLANK_HEADER_BYTES,
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
    physical_offsets,
)
from tiered.codec.record.ragged import gather
from tiered.codec.record.topics import TopicTable
from tiered.codec.types import Buffer

_SIZE = struct.Struct(">i")
_NO_LIMIT = 1 << 62


class Stop(Enum):
    """Why a walk over a buffer ended."""

    END = "end"  # at a record boundary: the buffer is used up, or a limit on records or bytes was met
    PARTIAL = "partial"  # the next record is longer than what is left of the buffer
    ZERO = "zero"  # bytes never written: size or magic is 0
    BLANK = "blank"  # the filler that closes a commitlog file
    CORRUPT = "corrupt"  # none of these


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole records, back to back: int64 positions in the buffer and lengths in bytes.

    ``end`` is the position after the last record, where ``stop`` happened. ``blank_length`` is the length a
    blank record claims (its 8 header bytes included; *not* bounded by the buffer), for ``Stop.BLANK`` only.
    ``detail`` says what was wrong.
    """

    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    end: int
    stop: Stop
    blank_length: int | None = None
    detail: str = ""

    def __len__(self) -> int:
        """Records found."""
        return len(self.starts)


def scan(
    buffer: Buffer,
    *,
    start: int = 0,
    base: int | None,
    max_record_bytes: int,
    max_records: int | None = None,
    max_bytes: int | None = None,
) -> Frames:
    """Find the records of ``buffer`` from position ``start`` on.

    Checks sizes and magics, and, when ``base`` (the physical offset of buffer[0]) is given, that each
    record's own physical offset is where it lies. Stops at ``max_records`` or before ``max_bytes`` would be
    exceeded, but finds at least one record if one is whole.
    """
    length = memoryview(buffer).nbytes
    if not 0 <= start <= length:
        raise ValueError(f"start {start} is outside a buffer of {length} bytes")
    found, end = _hop(buffer, start, max_record_bytes, max_records, max_bytes)
    stop, blank_length, detail = _why(buffer, end, max_record_bytes)
    starts = np.array(found, np.int64)
    sizes = np.diff(starts, append=np.int64(end))
    frames = Frames(starts, sizes, end, stop, blank_length, detail)
    return frames if base is None else _cut_at_wrong_offset(buffer, frames, base)


def edges_of(buffer: Buffer, rows: int) -> npt.NDArray[np.int64] | None:
    """Where the records of a buffer begin, and its end, if it holds exactly ``rows`` of them and nothing else; else ``None``.

    As strict as ``scan`` is: every size and magic is looked at, and nothing may be left over; but it goes by arrays where
    ``scan`` goes by records. For buffers that passed a checksum. ``scan`` tells what is wrong with one that is refused.
    """
    length = memoryview(buffer).nbytes
    if not 0 < rows <= length // MIN_RECORD_BYTES:
        return None
    if _are_even(buffer, rows, length):
        return np.arange(0, length + 1, length // rows, dtype=np.int64)
    edges = _uneven_edges(buffer, rows, length)
    if edges is None:
        return None
    magics = gather(buffer, edges[:-1] + MAGIC_AT, ">u4")
    return edges if ((magics == MAGIC_V1) | (magics == MAGIC_V2)).all() else None


def _are_even(buffer: Buffer, rows: int, length: int) -> bool:
    """Whether all records are of one size and one magic, as those of many applications are."""
    size, rest = divmod(length, rows)
    found, magic = SIZE_AND_MAGIC.unpack_from(buffer)
    if rest or found != size or magic not in (MAGIC_V1, MAGIC_V2):
        return False
    heads: npt.NDArray[np.uint64] = np.ndarray((rows,), ">u8", buffer=buffer, strides=(size,))
    return bool((heads == (size << 32 | magic)).all())


def _uneven_edges(buffer: Buffer, rows: int, length: int) -> npt.NDArray[np.int64] | None:
    """Edges found by going from size to size; ``None`` if they do not come out at ``length``."""
    read = _SIZE.unpack_from
    found: list[int] = []
    append = found.append
    position = 0
    try:
        for _ in range(rows):
            append(position)
            position += read(buffer, position)[0]
    except struct.error:  # a size led out of the buffer
        return None
    append(position)
    edges = np.array(found, np.int64)
    return None if position != length or (np.diff(edges) < MIN_RECORD_BYTES).any() else edges


def _hop(
    buffer: Buffer, start: int, max_record_bytes: int, max_records: int | None, max_bytes: int | None
) -> tuple[list[int], int]:
    """The one loop that runs per record: positions of whole records with plausible size and magic, and the
    end.
    """
    length = memoryview(buffer).nbytes
    limit = length if max_bytes is None else min(length, start + max_bytes)
    read = SIZE_AND_MAGIC.unpack_from
    magics = (MAGIC_V1, MAGIC_V2)
    found: list[int] = []
    append = found.append
    position = start
    last_header = length - MIN_RECORD_BYTES
    for _ in range(_NO_LIMIT if max_records is None else max_records):
        if position > last_header:
            break
        size, magic = read(buffer, position)
        if magic not in magics or not MIN_RECORD_BYTES <= size <= max_record_bytes:
            break
        following = position + size
        if following > limit:
            if found or following > length:
                break
            limit = length  # the first record may exceed max_bytes
            append(position)
            position = following
            break
        append(position)
        position = following
    return found, position


def _why(buffer: Buffer, position: int, max_record_bytes: int) -> tuple[Stop, int | None, str]:
    """What lies at ``position``, where the hop ended; END if nothing, or a whole record (then a limit was
    met).
    """
    length = memoryview(buffer).nbytes
    left = length - position
    if left == 0:
        return Stop.END, None, ""
    if left < BLANK_HEADER_BYTES:
        if left >= _SIZE.size and _SIZE.unpack_from(buffer, position)[0] == 0:
            return Stop.ZERO, None, ""
        return Stop.PARTIAL, None, f"{left} bytes are left at position {position}"
    size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    if size == 0 or magic == 0:
        return Stop.ZERO, None, ""
    if magic == MAGIC_BLANK:
        if size < BLANK_HEADER_BYTES:
            return Stop.CORRUPT, None, f"blank record of {size} bytes at position {position}"
        return Stop.BLANK, size, ""
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Stop.CORRUPT, None, f"unknown magic 0x{magic:08X} at position {position}"
    if not MIN_RECORD_BYTES <= size <= max_record_bytes:
        allowed = f"{MIN_RECORD_BYTES} to {max_record_bytes}"
        return Stop.CORRUPT, None, f"record of {size} bytes at position {position}, allowed are {allowed}"
    if size > left:
        return Stop.PARTIAL, None, f"record of {size} bytes at position {position}, {left} bytes are left"
    return Stop.END, None, ""


def _cut_at_wrong_offset(buffer: Buffer, frames: Frames, base: int) -> Frames:
    offsets = physical_offsets(buffer, frames.starts)
    wrong = offsets != frames.starts + base
    if not wrong.any():
        return frames
    row = int(wrong.argmax())
    place = base + int(frames.starts[row])
    return _cut(frames, row, f"the record at physical offset {place} says it lies at {int(offsets[row])}")


def _cut(frames: Frames, row: int, detail: str) -> Frames:
    return Frames(
        frames.starts[:row], frames.sizes[:row], int(frames.starts[row]), Stop.CORRUPT, None, detail
    )


def verify(buffer: Buffer, frames: Frames, base: int | None) -> Frames:
    """The records of ``frames`` before the first bad one; if there is one, ``stop`` is CORRUPT and ``detail``
    says why.

    Good means: inner lengths add up exactly, the topic is UTF-8, the body has the CRC the header says (0 for
    an empty body), and with ``base`` the record lies at its physical offset. Raises ``Corrupt`` only if a
    boundary lies outside the buffer.
    """
    return verified(buffer, frames, base)[0]


def verified(
    buffer: Buffer, frames: Frames, base: int | None
) -> tuple[Frames, tuple[Headers, TopicTable] | None]:
    """``verify``, and the headers and topics it had to read; at least as many rows as good records (``None``: no frames)."""
    if len(frames) == 0:
        return frames, None
    headers = read_headers(buffer, frames.starts, frames.sizes)
    if headers.flaw is not None:
        frames = _cut_named(frames, headers.flaw.row, base, headers.flaw.reason)
    topics = TopicTable(buffer, headers.topic_positions, headers.topic_lengths)
    bad_topic = topics.first_not_utf8()
    if bad_topic is not None:
        frames = _cut_named(frames, bad_topic, base, "topic is not UTF-8")
    strange = _strange_numbers(headers.rows[: len(frames)])
    if strange is not None:
        frames = _cut_named(
            frames, strange, base, "numbers of the header, which no checksum covers, are out of range"
        )
    rows = headers.rows[: len(frames)]
    starts, lengths = rows["body_position"], rows["body_length"]
    sums = body_crcs(buffer, starts, starts + lengths)
    wrong = sums != rows["body_crc"]
    if wrong.any():
        row = int(wrong.argmax())
        reason = f"body CRC is 0x{int(sums[row]):08X}, the header says 0x{int(rows['body_crc'][row]):08X}"
        frames = _cut_named(frames, row, base, reason)
    return (frames if base is None else _cut_at_wrong_offset(buffer, frames, base)), (headers, topics)


def lacks_its_end(record: Buffer) -> bool:
    """Whether a record that passes every check may still be cut: a topic with zero bytes, or properties that end in one.

    Body CRC and lengths do not cover topic and properties, so a writer stopped inside them would leave nothing else to see.
    A sound record that looks so is confirmed by the one right behind it.
    """
    view = memoryview(record).cast("B")
    headers = read_headers(view, np.zeros(1, np.int64), np.array([len(view)], np.int64))
    if headers.flaw is not None:
        return False  # it does not pass: its checks say so
    at, length = int(headers.topic_positions[0]), int(headers.topic_lengths[0])
    torn_properties = int(headers.rows["properties_length"][0]) > 0 and view[-1] == 0
    return torn_properties or 0 in view[at : at + length]


_MAX_QUEUE_OFFSET = 1 << 56
_MAX_TIME_MS = 1 << 48  # the year 10889


def _strange_numbers(rows: npt.NDArray[np.void]) -> int | None:
    """First row whose queue or store time no broker would write; the body CRC does not cover them."""
    offset, time = rows["queue_offset"], rows["store_timestamp"]
    bad = (
        (rows["queue_id"] < 0)
        | (offset < 0)
        | (offset > _MAX_QUEUE_OFFSET)
        | (time < 0)
        | (time > _MAX_TIME_MS)
    )
    return int(bad.argmax()) if bad.any() else None


def _cut_named(frames: Frames, row: int, base: int | None, reason: str) -> Frames:
    position = int(frames.starts[row])
    where = f"position {position}" if base is None else f"physical offset {base + position}"
    return _cut(frames, row, f"{reason}: record of {int(frames.sizes[row])} bytes at {where}")
