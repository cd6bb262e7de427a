"""The ledger's file: records that are each written whole, summed and synced, one behind the other.

Layout: 8 bytes of magic, then per record ``u32 length | u32 CRC-32C of the payload | payload``, big-endian; the payload is
msgpack, ``[number, kind, fields …]``, numbers count up from 1 without a gap. One append is one record and is synced before the
next, so a crash can tear the last record alone: what does not check out at the end is cut off, anywhere else it is ``Corrupt``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from tiered import durable
from tiered.codec.checksum import crc32c
from tiered.errors import Corrupt

MAGIC = b"TRLEDGR1"
MAX_RECORD_BYTES = 1024 * 1024
"""Longest payload; longer news is cut into several records by its caller."""

_HEAD = struct.Struct(">II")
_HINT = (
    "what is owed beyond this place is not known: move the file away and start again; debts are then made anew from what "
    "the broker says now, and `tiered replay --group … --topic … --from …` asks again for what may be missing"
)


@dataclass(frozen=True, slots=True)
class Scanned:
    """Sound records of a file, and where they end; ``torn``: bytes behind that are not."""

    records: list[tuple[int, list[Any]]]
    end: int
    torn: int


def encode(number: int, kind: int, fields: list[Any]) -> bytes:
    """One record."""
    payload: bytes = msgpack.packb([number, kind, fields], use_bin_type=True)
    if len(payload) > MAX_RECORD_BYTES:
        raise ValueError(f"a ledger record of {len(payload)} bytes")
    return _HEAD.pack(len(payload), crc32c(payload)) + payload


def scan_ledger(data: bytes, path: str) -> Scanned:
    """Every sound record as (kind, fields). ``Corrupt`` for damage that no torn write explains."""
    if not data:
        return Scanned([], 0, 0)
    if data[: len(MAGIC)] != MAGIC[: len(data)]:
        raise Corrupt(
            "this file is not a replay ledger",
            path=path,
            expected=MAGIC.decode(),
            found=repr(data[:8]),
            hint=_HINT,
        )
    if len(data) < len(MAGIC):
        return Scanned([], 0, len(data))
    records: list[tuple[int, list[Any]]] = []
    position = len(MAGIC)
    while position < len(data):
        payload = _payload(data, position)
        if payload is None:
            _only_torn(data, position, path)
            break
        number, kind, fields = _fields(payload, position, path)
        if number != len(records) + 1:
            raise Corrupt(
                "the replay ledger lacks a record", path=path, position=position, expected=len(records) + 1,
                found=number, hint=_HINT,
            )  # fmt: skip
        records.append((kind, fields))
        position += _HEAD.size + len(payload)
    return Scanned(records, position, len(data) - position)


def _payload(data: bytes, position: int) -> bytes | None:
    """The payload of the record at ``position`` if there is a sound one."""
    if position + _HEAD.size > len(data):
        return None
    length, expected = _HEAD.unpack_from(data, position)
    start = position + _HEAD.size
    if not 0 < length <= MAX_RECORD_BYTES or start + length > len(data):
        return None
    payload = data[start : start + length]
    return payload if crc32c(payload) == expected else None


def _fields(payload: bytes, position: int, path: str) -> tuple[int, int, list[Any]]:
    try:
        number, kind, fields = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt(
            "a record of the replay ledger is malformed although its checksum is right",
            path=path, position=position, found=str(error)[:100], hint=_HINT,
        ) from None  # fmt: skip
    return int(number), int(kind), fields


def _only_torn(data: bytes, position: int, path: str) -> None:
    """Raise unless what begins at ``position`` can be the torn end: short enough for one record, and no sound one behind."""
    left = len(data) - position
    if left <= MAX_RECORD_BYTES + _HEAD.size and not any(_sound_behind(data, position)):
        return
    raise Corrupt(
        "the replay ledger is damaged", path=path, position=position, expected="a record", found="other bytes",
        hint=_HINT,
    )  # fmt: skip


def _sound_behind(data: bytes, position: int) -> Iterator[bool]:
    for later in range(position + 1, len(data) - _HEAD.size):
        yield _payload(data, later) is not None


class LedgerFile:
    """The open file. ``append`` returns when the record is on disk. After an error it is of no use any more: open it again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._next = 1
        self.size = 0

    def open(self) -> list[tuple[int, list[Any]]]:
        """Open or make the file, cut off what a crash tore; the records. ``OSError``, ``Corrupt``."""
        self.close()
        fresh = not self._path.exists()
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            scanned = scan_ledger(self._path.read_bytes(), str(self._path))
            if scanned.torn or scanned.end == 0:
                os.ftruncate(descriptor, scanned.end)
            os.lseek(descriptor, 0, os.SEEK_END)
            if scanned.end == 0:
                os.write(descriptor, MAGIC)
            if scanned.torn or scanned.end == 0:
                os.fsync(descriptor)
            if fresh:
                durable.sync(self._path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self._next = len(scanned.records) + 1
        self.size = scanned.end or len(MAGIC)
        return scanned.records

    @property
    def usable(self) -> bool:
        """Open, and no append has failed."""
        return self._descriptor is not None

    def append(self, kind: int, fields: list[Any]) -> None:
        """One record, synced. After ``OSError`` the file is closed: whether the record is in it, only opening tells."""
        if self._descriptor is None:
            raise OSError("the ledger is not open")
        data = encode(self._next, kind, fields)
        try:
            if os.write(self._descriptor, data) != len(data):
                raise OSError("a ledger record was written in part")
            os.fdatasync(self._descriptor)
        except OSError:
            self.close()
            raise
        self._next += 1
        self.size += len(data)

    def close(self) -> None:
        """Close it; twice is fine."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def write_whole(path: Path, records: list[tuple[int, list[Any]]]) -> None:
    """A new file of these records, synced, under a name that is not in use."""
    with open(path, "wb") as file:
        file.write(MAGIC)
        for number, (kind, fields) in enumerate(records, 1):
            file.write(encode(number, kind, fields))
        file.flush()
        os.fsync(file.fileno())
