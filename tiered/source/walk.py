"""Reading a live commitlog file: bounded windows, single headers, and the walk from record to record.

Everything goes through ``pread``: nothing stays mapped, so a file that shrinks or vanishes cannot kill the process.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tiered.codec.record.frame import Frames, Stop, scan, verify
from tiered.codec.record.layout import (
    BODY_LENGTH,
    FIXED,
    HEAD_BYTES,
    MAGIC_AT,
    MAGIC_BEGIN,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
    body_at,
    physical_offset_of,
    properties_behind,
    store_time_of,
)
from tiered.source.descriptors import Descriptors, read_into, stored_from
from tiered.source.files import LogFile
from tiered.source.limit import RecordLimit

FIRST_WINDOW_BYTES = 64 * 1024
WALK_BYTES = 4 * 1024 * 1024
_KEPT_BYTES = 16 * 1024 * 1024
"""A window that had to be larger for one record is given back."""
_MOST_BEHIND_BODY = 70_000
"""Two lengths, topic and properties take less."""


class HeadKind(Enum):
    """What 80 bytes at a place in the log look like."""

    RECORD = "record"  # plausible size and magic, and it says it lies here
    BLANK = "blank"  # the filler, exactly as long as the rest of the file
    ZERO = "zero"  # never written, or the file's end
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RecordHead:
    """The header at one place. ``size`` (bytes) and ``store_time_ms`` of records only. ``raw``: the bytes looked at."""

    kind: HeadKind
    raw: bytes
    store_time_ms: int | None = None
    size: int = 0


class FileWindow:
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


class RecordWindow(FileWindow):
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
            size = max(size + HEAD_BYTES, SIZE_AND_MAGIC.unpack_from(view)[0] + HEAD_BYTES)
        if frames.end * 2 > len(view):
            self._size = min(4 * self._size, max(max_bytes, FIRST_WINDOW_BYTES))
        else:
            self._size = FIRST_WINDOW_BYTES
        return view, frames


def sound_records(view: memoryview, frames: Frames, count: int, base: int) -> Frames:
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


def _ends_exactly(tail: bytes, size: int, magic: int) -> bool:
    """Whether topic and properties, with their lengths, are all that lies behind a body."""
    found = properties_behind(tail, 0, magic)
    return found is not None and len(tail) >= size and found[1] >= 0 and sum(found) == size


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

    def next_stored(self, file: LogFile, position: int) -> tuple[int, int] | None:
        """The next stretch, from ``position`` on, where bytes may be stored; ``None`` if a hole reaches to the file's end."""
        with self._descriptors.borrow(file) as descriptor:
            found = stored_from(descriptor, position - file.base, file.length)
        if found is None or found[0] >= file.length:
            return None
        return file.base + found[0], min(file.base + found[1], file.end)

    def head(self, file: LogFile, position: int) -> RecordHead:
        """What lies at ``position``."""
        raw = self.peek(file, position, HEAD_BYTES)
        if len(raw) < SIZE_AND_MAGIC.size:
            return RecordHead(HeadKind.OTHER if raw.strip(b"\0") else HeadKind.ZERO, raw)
        size, magic = SIZE_AND_MAGIC.unpack_from(raw)
        left = file.end - position
        if size == 0 or magic == 0:
            return RecordHead(HeadKind.ZERO, raw)
        if magic == MAGIC_BLANK:
            return RecordHead(HeadKind.BLANK if size == left else HeadKind.OTHER, raw)
        plausible = MIN_RECORD_BYTES <= size <= left and len(raw) == HEAD_BYTES
        if magic not in (MAGIC_V1, MAGIC_V2) or not plausible:
            return RecordHead(HeadKind.OTHER, raw)
        if physical_offset_of(raw) != position:
            return RecordHead(HeadKind.OTHER, raw)
        return RecordHead(HeadKind.RECORD, raw, store_time_of(raw), size)

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

    def _whole_in_pieces(self, file: LogFile, position: int, head: RecordHead) -> bool:
        """The same for a record too large to be held: its inner lengths add up, and its body has the CRC that it says."""
        _, magic, body_crc, _, _, _, _, sys_flag, _ = FIXED.unpack_from(head.raw)
        begin = position + body_at(sys_flag)
        before = self.peek(file, begin - BODY_LENGTH.size, BODY_LENGTH.size)
        length = BODY_LENGTH.unpack(before)[0] if len(before) == BODY_LENGTH.size else -1
        end = begin + length
        rest = position + head.size - end
        if length < 0 or not 0 < rest <= _MOST_BEHIND_BODY:
            return False
        if not _ends_exactly(self.peek(file, end, rest), rest, magic):
            return False
        window, crc, at = FileWindow(self._descriptors), 0, begin
        while at < end:
            piece = window.load(file, at, min(WALK_BYTES, end - at))
            if not piece:
                return False
            crc, at = zlib.crc32(piece, crc), at + len(piece)
        return bool(crc & 0x7FFFFFFF == body_crc)

    def walk(self, file: LogFile, position: int) -> Iterator[tuple[int, memoryview, Frames]]:
        """Records from ``position`` on, window by window: (physical offset of the window, its bytes, its frames).

        Ends where no whole record follows in this file. Bodies are not checked, but of a record too large to be held: of it
        the window shows the head only.
        """
        window, size = FileWindow(self._descriptors), FIRST_WINDOW_BYTES
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
            at = len(data) - 1  # a hit at the very end would be the beginning of less than a magic
            while (at := data.rfind(MAGIC_BEGIN, 0, at)) >= 0:
                place = start + at - MAGIC_AT
                if at < MAGIC_AT or SIZE_AND_MAGIC.unpack_from(data, at - MAGIC_AT)[0] != position - place:
                    continue
                head = self.head(file, place)
                if head.kind is HeadKind.RECORD:
                    return head.store_time_ms
            if start == file.base:
                return None
        return None
