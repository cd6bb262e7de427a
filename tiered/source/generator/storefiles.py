"""The files of a broker's store as a broker keeps them: pre-allocated commitlog and consume-queue files,
checkpoint.

Write side, used by the generator only; the reader is ``local``. One thread.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tiered.codec.record.consumequeue import UNIT_BYTES, pre_blank
from tiered.codec.record.frame import Frames, scan, verify
from tiered.codec.record.layout import MAGIC_BLANK
from tiered.codec.types import Buffer
from tiered.errors import Invalid

MAX_RECORD_BYTES = 1 << 30

_CHECKPOINT_BYTES = 4096
_UNIT = struct.Struct(">qiq")
_ZEROS = bytes(1 << 20)


def numbered(directory: Path) -> list[tuple[int, Path]]:
    """(first byte, path) of the files named by 20 digits, ascending."""
    if not directory.is_dir():
        return []
    found = [(int(p.name), p) for p in directory.iterdir() if p.name.isdigit() and len(p.name) == 20]
    return sorted(found)


def scan_file(base: int, path: Path, file_bytes: int) -> tuple[memoryview, Frames]:
    """A commitlog file, and the records in it that are whole. ``Invalid`` if it is not of ``file_bytes``."""
    if path.stat().st_size != file_bytes:
        raise Invalid(
            "the store has commitlog files of another size",
            path=str(path),
            found=path.stat().st_size,
            expected=file_bytes,
            hint="continue it with the file size it was begun with",
        )
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    return data, verify(data, scan(data, base=base, max_record_bytes=MAX_RECORD_BYTES), base)


def allocate(path: Path, length: int) -> None:
    """Create a file of full length that reads as zeros; leaves an existing one alone."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(fd).st_size < length:
            os.ftruncate(fd, length)
    finally:
        os.close(fd)


def write_all(fd: int, data: Buffer, position: int) -> None:
    """``pwrite`` until everything is written."""
    view = memoryview(data).cast("B")
    while len(view):
        done = os.pwrite(fd, view, position)
        view, position = view[done:], position + done


class CommitLogFiles:
    """``commitlog/``: a byte space cut into files of ``file_bytes``. ``ahead`` keeps the next file allocated,
    as brokers do.
    """

    def __init__(self, directory: Path, file_bytes: int, *, ahead: bool) -> None:
        self.directory = directory
        self.file_bytes = file_bytes
        self.ahead = ahead
        self._fd: int | None = None
        self._base = 0

    def path(self, base: int) -> Path:
        """The file whose first byte is ``base``."""
        return self.directory / f"{base:020d}"

    def base_of(self, offset: int) -> int:
        """First byte of the file that holds ``offset``."""
        return offset - offset % self.file_bytes

    def write(self, offset: int, data: Buffer) -> None:
        """Write within one file, creating it if needed."""
        base = self.base_of(offset)
        if self._fd is None or base != self._base:
            self.release()
            allocate(self.path(base), self.file_bytes)
            if self.ahead:
                allocate(self.path(base + self.file_bytes), self.file_bytes)
            self._fd, self._base = os.open(self.path(base), os.O_RDWR), base
        write_all(self._fd, data, offset - base)

    def write_blank(self, offset: int) -> int:
        """Close the file with a blank record; returns the next file's first byte."""
        following = self.base_of(offset) + self.file_bytes
        self.write(offset, struct.pack(">iI", following - offset, MAGIC_BLANK))
        return following

    def truncate(self, offset: int, *, zero: bool) -> None:
        """Drop every file behind ``offset``'s and, with ``zero``, clear the rest of that one."""
        base = self.base_of(offset)
        self.release()
        for first, path in numbered(self.directory):
            if first > base:
                path.unlink()
        if zero and self.path(base).exists():
            for at in range(offset, base + self.file_bytes, len(_ZEROS)):
                self.write(at, _ZEROS[: base + self.file_bytes - at])
        self.release()

    def drop_unused(self, end: int) -> None:
        """Remove files that start at ``end`` or later and hold nothing, as a clean stop does."""
        self.release()
        for first, path in numbered(self.directory):
            if first >= end and first > 0:
                path.unlink()

    def release(self) -> None:
        """Close the open file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class ConsumeQueueFiles:
    """``consumequeue/``: for each queue, units of 20 bytes in pre-allocated files of ``file_units``."""

    def __init__(self, directory: Path, file_units: int) -> None:
        self.directory = directory
        self.file_bytes = file_units * UNIT_BYTES
        self._root = str(directory)

    def make_batch_queue(self, topic: str, queue_id: int) -> None:
        """Make the directory of a queue of inner batches beside these: a broker keeps it in another kind of file."""
        queue = self.directory.with_name("batchconsumequeue") / topic / str(queue_id)
        queue.mkdir(parents=True, exist_ok=True)

    def queues(self) -> Iterator[tuple[str, int, Path]]:
        """(topic, queue id, directory) of every queue there is."""
        if self.directory.is_dir():
            for topic in sorted(self.directory.iterdir()):
                for queue in sorted(topic.iterdir()):
                    yield topic.name, int(queue.name), queue

    def end(self, directory: Path) -> int:
        """The queue offset after the last unit written."""
        return self._count_while(directory, lambda physical, size: size > 0)

    def write(self, topic: str, queue_id: int, queue_offset: int, units: bytes) -> None:
        """Write encoded units from ``queue_offset`` on, over as many files as it takes."""
        position = queue_offset * UNIT_BYTES
        while units:
            base = position - position % self.file_bytes
            # Plain strings: with ten thousand queues this is the generator's hottest path.
            name = f"{self._root}/{topic}/{queue_id}/{base:020d}"
            room = base + self.file_bytes - position
            try:
                fd = os.open(name, os.O_RDWR)
            except FileNotFoundError:
                self._create(Path(name), (position - base) // UNIT_BYTES)
                continue
            try:
                write_all(fd, units[:room], position - base)
            finally:
                os.close(fd)
            position += len(units[:room])
            units = units[room:]

    def _create(self, path: Path, blank_units: int) -> None:
        """A new file; a queue's first one is pre-blank up to its first unit."""
        path.parent.mkdir(parents=True, exist_ok=True)
        first_ever = not numbered(path.parent)
        allocate(path, self.file_bytes)
        if first_ever and blank_units:
            fd = os.open(path, os.O_RDWR)
            try:
                write_all(fd, pre_blank(blank_units), 0)
            finally:
                os.close(fd)

    def truncate(self, directory: Path, physical: int) -> int:
        """Clear the units of records at or behind ``physical``; returns the queue's new end."""
        end = self._count_while(
            directory, lambda at, size: size > 0 and (at < physical or size == 0x7FFFFFFF)
        )
        for base, path in numbered(directory):
            if base >= end * UNIT_BYTES and base > 0:
                path.unlink()
            elif base + self.file_bytes > end * UNIT_BYTES:
                keep = max(0, end * UNIT_BYTES - base)
                os.truncate(path, keep)
                os.truncate(path, self.file_bytes)
        return end

    def delete_below(self, directory: Path, physical: int) -> None:
        """Delete files, the newest excepted, whose last unit points below ``physical``."""
        for _, path in numbered(directory)[:-1]:
            with path.open("rb") as file:
                at, _, _ = _UNIT.unpack(os.pread(file.fileno(), UNIT_BYTES, self.file_bytes - UNIT_BYTES))
            if at >= physical:
                break
            path.unlink()

    def _count_while(self, directory: Path, keep: object) -> int:
        """First queue offset whose unit does not satisfy ``keep(physical, size)``; units that do come
        first.
        """
        assert callable(keep)
        end = 0
        for base, path in reversed(numbered(directory)):
            low, high = 0, self.file_bytes // UNIT_BYTES
            with path.open("rb") as file:
                while low < high:
                    middle = (low + high) // 2
                    raw = os.pread(file.fileno(), UNIT_BYTES, middle * UNIT_BYTES)
                    at, size, _ = _UNIT.unpack(raw.ljust(UNIT_BYTES, b"\0"))
                    low, high = (middle + 1, high) if keep(at, size) else (low, middle)
            end = base // UNIT_BYTES + low
            if low:
                break
        return end


def write_broker_checkpoint(path: Path, *, store_time_ms: int, flushed_offset: int) -> None:
    """The 4,096-byte checkpoint: times of the last record in log, queues and index, flushed and confirmed
    offsets.
    """
    fields = struct.pack(">5q", store_time_ms, store_time_ms, store_time_ms, flushed_offset, flushed_offset)
    path.write_bytes(fields.ljust(_CHECKPOINT_BYTES, b"\0"))
