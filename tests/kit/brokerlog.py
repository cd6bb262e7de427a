"""A commitlog written by hand with ``struct``: a broker small enough to misbehave exactly as a test wants.

It shares no code with ``tiered``: allocates files at full size, writes records and blanks, rolls, deletes, tears, and comes
back after a crash with a shorter log and old bytes behind its end.
"""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

MAGIC = 0xDAA320A7
BLANK = 0xCBD43194


def record(
    physical_offset: int,
    body: bytes,
    *,
    topic: bytes = b"T",
    store_time_ms: int = 1_700_000_000_000,
    queue_offset: int = 0,
    properties: bytes = b"",
    born_v6: bool = False,
) -> bytes:
    """One V1 record."""
    born = bytes(20 if born_v6 else 8)
    head = struct.pack(
        ">IIiiqqiq",
        MAGIC,
        zlib.crc32(body) & 0x7FFFFFFF,
        0,
        0,
        queue_offset,
        physical_offset,
        0x10 if born_v6 else 0,
        store_time_ms,
    )
    tail = struct.pack(">iqi", 0, 0, len(body)) + body + bytes([len(topic)]) + topic
    rest = head + born + struct.pack(">q", store_time_ms) + bytes(8) + tail
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">i", len(rest) + 4) + rest


@dataclass
class BrokerLog:
    """The commitlog below ``store``; ``position`` is where the next record goes, ``records`` what a reader must get."""

    store: Path
    file_bytes: int = 4096
    position: int = 0
    time_ms: int = 1_700_000_000_000
    ahead: bool = False
    records: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    @property
    def directory(self) -> Path:
        return self.store / "commitlog"

    def path(self, offset: int) -> Path:
        return self.directory / f"{offset // self.file_bytes * self.file_bytes:020d}"

    def bases(self) -> list[int]:
        return sorted(int(p.name) for p in self.directory.iterdir())

    def create(self, offset: int) -> None:
        path = self.path(offset)
        if not path.exists():
            with path.open("wb") as file:
                file.truncate(self.file_bytes)

    def write(self, offset: int, data: bytes) -> None:
        """Bytes at a place in one file. Most time of many tests went into paths and buffers here."""
        if self.ahead:
            self.create(offset + self.file_bytes)
        within = offset % self.file_bytes
        try:
            file = os.open(f"{self.store}/commitlog/{offset - within:020d}", os.O_WRONLY)
        except FileNotFoundError:
            self.create(offset)
            file = os.open(self.path(offset), os.O_WRONLY)
        try:
            os.pwrite(file, data, within)
        finally:
            os.close(file)

    def next(self, body: bytes, **fields: object) -> bytes:
        """The record that ``append`` would write, after rolling if it does not fit; not written."""
        data = record(self.position, body, store_time_ms=self.time_ms, **fields)  # type: ignore[arg-type]
        left = self.file_bytes - self.position % self.file_bytes
        if len(data) + 8 > left:
            self.write(self.position, struct.pack(">iI", left, BLANK))
            self.position += left
            return self.next(body, **fields)
        return data

    def append(self, body: bytes, **fields: object) -> bytes:
        data = self.next(body, **fields)
        self.write(self.position, data)
        self.records[self.position] = data
        self.position += len(data)
        return data

    def append_many(self, count: int, body_bytes: int = 50) -> None:
        for number in range(count):
            self.append(number.to_bytes(8, "big") + bytes(body_bytes - 8))

    def delete_oldest(self) -> int:
        """As expiry does; returns the base of the file."""
        base = self.bases()[0]
        self.path(base).unlink()
        return base

    def cut(self, offset: int) -> None:
        """As recovery does: writing goes on at ``offset``, later files are deleted, later bytes in the file stay."""
        self.position = offset
        self.records = {at: data for at, data in self.records.items() if at < offset}
        for base in self.bases():
            if base > offset:
                self.path(base).unlink()

    def mark_started(self, at_ms: int) -> None:
        """``lock`` and ``abort`` as a broker that started then leaves them."""
        for name in ("lock", "abort"):
            (self.store / name).write_bytes(b"lock")
            os.utime(self.store / name, ns=(at_ms * 1_000_000, at_ms * 1_000_000))
