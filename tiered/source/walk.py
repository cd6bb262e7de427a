"""Reading a live commitlog file: bounded windows, single headers, and the walk from record to record.

Everything goes through ``pread``: nothing stays mapped, so a file that shrinks or vanishes cannot kill the process.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

from tiered.codec.record.frame import Frames, Stop, scan, verify
from tiered.codec.record.header import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    PHYSICAL_OFFSET_AT,
    SYS_BORN_V6,
    SYS_STORE_V6,
    gather,
)
from tiered.codec.types import Buffer
from tiered.source.descriptors import Descriptors, data_from, read_into
from tiered.source.files import LogFile
from tiered.source.limit import RecordLimit

HEAD_BYTES = 80
"""Enough of a record for size, magic, physical offset and, behind either kind of born host, store time."""
FIRST_WINDOW_BYTES = 64 * 1024
WALK_BYTES = 4 * 1024 * 1024
_KEPT_BYTES = 16 * 1024 * 1024
"""A window that had to be larger for one record is given back."""
_SYS_FLAG_AT = 36
_STORE_TIME_AT = 56
_V6_EXTRA_BYTES = 12
_BODY_AT = 88
"""Where the body begins, with IPv4 hosts."""
_MOST_BEHIND_BODY = 70_000
"""Two lengths, topic and properties take less."""
_SIZE_AND_MAGIC = struct.Struct(">iI")
_INT = struct.Struct(">i")


class HeadKind(Enum):
    """What 80 bytes at a place in the log look like."""

    RECORD = "record"  # plausible size and magic, and it says it lies here
    BLANK = "blank"  # the filler, exactly as long as the rest of the file
    ZERO = "zero"  # never written, or the file's end
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Head:
    """The header at one place. ``size`` (bytes) and ``store_time_ms`` of records only. ``raw``: the bytes looked at."""

    kind: HeadKind
    raw: bytes
    store_time_ms: int | None = None
    size: int = 0


def store_times(buffer: Buffer, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Store time in ms of the records at ``starts``; each must be whole."""
    flags = gather(buffer, starts + _SYS_FLAG_AT, ">i4").astype(np.int64)
    at = starts + _STORE_TIME_AT + np.where(flags & SYS_BORN_V6, _V6_EXTRA_BYTES, 0)
    return gather(buffer, at, ">i8").astype(np.int64)


class Window:
    """A reusable buffer; each ``load`` replaces what it held, so nothing may keep its views."""

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._buffer = memoryview(bytearray(64 * 1024))

    def load(self, file: LogFile, start: int, size: int) -> memoryview:
        """Bytes from physical offset ``start`` on, ``size`` or up to the file's end."""
        size = max(0, min(size, file.end - start))
        if size > len(self._buffer) or len(self._buffer) > max(_KEPT_BYTES, size):
            self._buffer = memoryview(bytearray(size))
        with self._descriptors.borrow(file) as descriptor:
            count = read_into(descriptor, self._buffer[:size], start - file.base, file.path)
        return self._buffer[:count]


class RecordWindow(Window):
    """A window that starts small and grows while records fill it."""

    def __init__(self, descriptors: Descriptors, limit: RecordLimit) -> None:
        super().__init__(descriptors)
        self._limit = limit
        self._size = FIRST_WINDOW_BYTES

    def records(
        self, file: LogFile, start: int, max_bytes: int, max_records: int
    ) -> tuple[memoryview, Frames]:
        """Bytes and records from ``start`` on: one record more than asked for at most, and at least one if one is whole."""
        size = min(max_bytes, self._size) + HEAD_BYTES
        while True:
            view = self.load(file, start, size)
            frames = scan(view, base=start, max_record_bytes=self._limit.bytes, max_records=max_records + 1)
            left = file.end - start
            whole = size >= min(left, self._limit.bytes + HEAD_BYTES) or len(view) < min(size, left)
            if len(frames) > 0 or frames.stop is not Stop.PARTIAL or whole:
                break
            size = max(size + HEAD_BYTES, int.from_bytes(view[:4], "big") + HEAD_BYTES)
        if frames.end * 2 > len(view):
            self._size = min(4 * self._size, max(max_bytes, FIRST_WINDOW_BYTES))
        else:
            self._size = FIRST_WINDOW_BYTES
        return view, frames


def verified(view: memoryview, frames: Frames, count: int, base: int) -> Frames:
    """The first ``count`` records if the last of them passes every check; else those before the first that does not."""
    chosen = Frames(
        frames.starts[:count],
        frames.sizes[:count],
        int(frames.starts[count - 1] + frames.sizes[count - 1]),
        Stop.END,
    )
    last = Frames(chosen.starts[-1:], chosen.sizes[-1:], chosen.end, Stop.END)
    if len(verify(view, last, base)) == 1:
        return chosen
    return verify(view, chosen, base)


def _ends_exactly(tail: bytes, size: int, *, v2: bool) -> bool:
    """Whether topic and properties, with their lengths, are all that lies behind a body."""
    width = 2 if v2 else 1
    topic = int.from_bytes(tail[:width], "big", signed=True)
    at = width + topic
    if len(tail) < size or topic < 0 or at + 2 > size:
        return False
    properties = int.from_bytes(tail[at : at + 2], "big", signed=True)
    return properties >= 0 and at + 2 + properties == size


class Chain:
    """Looks at files record by record. Not thread-safe: one per reading thread."""

    def __init__(self, descriptors: Descriptors, limit: RecordLimit) -> None:
        self._descriptors = descriptors
        self.limit = limit

    def peek(self, file: LogFile, position: int, size: int) -> bytes:
        """Up to ``size`` bytes at ``position``, fewer at the file's end."""
        size = max(0, min(size, file.end - position))
        buffer = bytearray(size)
        with self._descriptors.borrow(file) as descriptor:
            count = read_into(descriptor, memoryview(buffer), position - file.base, file.path)
        return bytes(buffer[:count])

    def next_stored(self, file: LogFile, position: int) -> int | None:
        """The next place, from ``position`` on, where bytes may be stored; ``None`` if a hole reaches to the file's end."""
        with self._descriptors.borrow(file) as descriptor:
            found = data_from(descriptor, position - file.base)
        return None if found is None else file.base + found

    def head(self, file: LogFile, position: int) -> Head:
        """What lies at ``position``."""
        raw = self.peek(file, position, HEAD_BYTES)
        if len(raw) < _SIZE_AND_MAGIC.size:
            return Head(HeadKind.OTHER if raw.strip(b"\0") else HeadKind.ZERO, raw)
        size, magic = _SIZE_AND_MAGIC.unpack_from(raw)
        left = file.end - position
        if size == 0 or magic == 0:
            return Head(HeadKind.ZERO, raw)
        if magic == MAGIC_BLANK:
            return Head(HeadKind.BLANK if size == left else HeadKind.OTHER, raw)
        plausible = MIN_RECORD_BYTES <= size <= left and len(raw) == HEAD_BYTES
        if magic not in (MAGIC_V1, MAGIC_V2) or not plausible:
            return Head(HeadKind.OTHER, raw)
        if int.from_bytes(raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big") != position:
            return Head(HeadKind.OTHER, raw)
        return Head(HeadKind.RECORD, raw, int(store_times(raw, np.zeros(1, np.int64))[0]), size)

    def whole(self, file: LogFile, position: int) -> bool:
        """True if a record that passes every check lies at ``position``."""
        head = self.head(file, position)
        if head.kind is not HeadKind.RECORD:
            return False
        if head.size > self.limit.bytes:
            return self._whole_in_pieces(file, position, head)
        data = self.peek(file, position, head.size)
        frames = scan(data, base=position, max_record_bytes=self.limit.bytes, max_records=1)
        return len(frames) == 1 and len(verify(data, frames, position)) == 1

    def _whole_in_pieces(self, file: LogFile, position: int, head: Head) -> bool:
        """The same for a record too large to be held: its inner lengths add up, and its body has the CRC that it says."""
        flags = int(gather(head.raw, np.array([_SYS_FLAG_AT]), ">i4")[0])
        body_at = (
            position + _BODY_AT + _V6_EXTRA_BYTES * (bool(flags & SYS_BORN_V6) + bool(flags & SYS_STORE_V6))
        )
        (length,) = _INT.unpack(self.peek(file, body_at - 4, 4).ljust(4, b"\xff"))
        body_end = body_at + length
        rest = position + head.size - body_end
        if length < 0 or not 0 < rest <= _MOST_BEHIND_BODY:
            return False
        if not _ends_exactly(self.peek(file, body_end, rest), rest, v2=head.raw[7] == MAGIC_V2 & 0xFF):
            return False
        window, crc, at = Window(self._descriptors), 0, body_at
        while at < body_end:
            piece = window.load(file, at, min(WALK_BYTES, body_end - at))
            if not piece:
                return False
            crc, at = zlib.crc32(piece, crc), at + len(piece)
        return crc & 0x7FFFFFFF == int.from_bytes(head.raw[8:12], "big")

    def walk(self, file: LogFile, position: int) -> Iterator[tuple[int, memoryview, Frames]]:
        """Records from ``position`` on, window by window: (physical offset of the window, its bytes, its frames).

        Ends where no whole record follows in this file. Bodies are not checked, but of a record too large to be held: of it
        the window shows the head only.
        """
        window, size = Window(self._descriptors), FIRST_WINDOW_BYTES
        while position < file.end:
            view = window.load(file, position, size)
            frames = scan(view, base=position, max_record_bytes=self.limit.bytes)
            if len(frames) == 0:
                if frames.stop is Stop.PARTIAL and len(view) == size < self.limit.bytes:
                    size = self.limit.bytes
                    continue
                head = self.head(file, position)
                if head.size <= self.limit.bytes or not self.whole(file, position):
                    return
                one = np.zeros(1, np.int64)
                yield position, memoryview(head.raw), Frames(one, one + head.size, head.size, Stop.END)
                position += head.size
                continue
            yield position, view, frames
            position += frames.end
            size = min(WALK_BYTES, 4 * size)
            if frames.stop not in (Stop.END, Stop.PARTIAL):
                return

    def end_of(self, file: LogFile, position: int) -> int:
        """Where the chain of records that begins at ``position`` ends in this file."""
        for start, _, frames in self.walk(file, position):
            position = start + frames.end
        return position

    def time_before(self, file: LogFile, position: int) -> int | None:
        """Store time of the record that ends at ``position``; ``None`` if none is found in this file."""
        for reach in (64 * 1024, self.limit.bytes):
            start = max(file.base, position - reach)
            data = self.peek(file, start, position - start)
            at = len(data)
            while (at := data.rfind(b"\xda\xa3\x20", 0, at)) >= 0:
                place = start + at - 4
                if at < 4 or int.from_bytes(data[at - 4 : at], "big") != position - place:
                    continue
                head = self.head(file, place)
                if head.kind is HeadKind.RECORD:
                    return head.store_time_ms
            if start == file.base:
                return None
        return None
