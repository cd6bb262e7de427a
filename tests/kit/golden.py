"""Golden stores written by RocketMQ's own code, and a slow, independent reader of them to compare with.

The reader is plain ``struct`` and shares no code with ``tiered.codec``: when both agree, two readings of the
format agree.
"""

from __future__ import annotations

import shutil
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import rocksdict

DATA = Path(__file__).resolve().parent.parent / "data" / "golden"

STORES = ("broker-store", "rocketmq-store-a", "rocketmq-store-b")
"""Tarballs; ``STORE_DIRS`` names the broker stores inside them."""

STORE_DIRS = {
    "broker-store": ("store",),
    "rocketmq-store-a": ("rmqh1/store",),
    "rocketmq-store-b": ("rmqh3-after-w1/store", "rmqh3/store"),
}

_MAGICS = {0xDAA320A7: 1, 0xDAA320AB: 2}
_BLANK = 0xCBD43194


def unpack(name: str, directory: Path) -> Path:
    """Unpack a tarball into ``directory`` and return that directory."""
    with tarfile.open(DATA / f"{name}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    return directory


def stores(directory: Path) -> Iterator[Path]:
    """Unpack every tarball below ``directory``; yields each broker store's root."""
    for name in STORES:
        root = unpack(name, directory / name)
        for inner in STORE_DIRS[name]:
            yield root / inner


@dataclass(frozen=True, slots=True)
class SlowRecord:
    """One record, parsed field by field."""

    raw: bytes
    version: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    topic: str
    properties: dict[bytes, bytes] = field(hash=False)


def parse_record(raw: bytes) -> SlowRecord:
    """Parse a record byte by byte; raises AssertionError when it does not hold together."""
    position = 0

    def take(form: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(">" + form, raw, position)
        position += struct.calcsize(form)
        return int(value)

    def take_bytes(count: int) -> bytes:
        nonlocal position
        assert 0 <= count <= len(raw) - position
        position += count
        return raw[position - count : position]

    size, magic, crc, queue_id, flag = take("i"), take("I"), take("I"), take("i"), take("i")
    queue_offset, physical_offset, sys_flag, born = take("q"), take("q"), take("i"), take("q")
    take_bytes(20 if sys_flag & 0x10 else 8)
    stored = take("q")
    store_host = take_bytes(20 if sys_flag & 0x20 else 8)
    reconsume, prepared = take("i"), take("q")
    body = take_bytes(take("i"))
    topic = take_bytes(take("b") if _MAGICS[magic] == 1 else take("h"))
    properties: dict[bytes, bytes] = {}
    for entry in take_bytes(take("h")).split(b"\x02"):
        name, _, value = entry.partition(b"\x01")
        if name and value:
            properties[name] = value
    assert size == len(raw) == position
    assert zlib.crc32(body) & 0x7FFFFFFF == crc
    return SlowRecord(
        raw,
        _MAGICS[magic],
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born,
        stored,
        store_host,
        reconsume,
        prepared,
        crc,
        body,
        topic.decode(),
        properties,
    )


def commitlog_files(store: Path) -> list[Path]:
    """The commitlog's files, oldest first."""
    return sorted((store / "commitlog").iterdir())


def records(store: Path) -> Iterator[SlowRecord]:
    """Every record of a store's commitlog, in physical order."""
    for path in commitlog_files(store):
        data, position = path.read_bytes(), 0
        while position + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            if size == 0 or magic == 0:
                break
            if magic == _BLANK:
                assert size == len(data) - position, "a blank fills its file"
                break
            record = parse_record(data[position : position + size])
            assert record.physical_offset == int(path.name) + position
            yield record
            position += size


def queues(store: Path) -> Iterator[tuple[str, int, Path]]:
    """(topic, queue id, directory) of every file consume queue."""
    for topic in sorted((store / "consumequeue").iterdir()):
        for queue in sorted(topic.iterdir()):
            yield topic.name, int(queue.name), queue


ROCKS = "rocksdb-stores"
"""A tarball of RocketMQ 5.5.0's RocksDB stores as they lie on disk: below ``v1``, ``unified`` and ``v2`` the configuration of
a running broker in each of its three layouts; below ``queues`` consume queues and the commitlog of one that was stopped."""


def rocks_queues(store: Path) -> dict[tuple[str, int], dict[int, tuple[int, int, int, int]]]:
    """{(topic, queue id): {queue offset: (physical offset, size, tags code, store time)}} of a consume queue in RocksDB.

    Reads a copy: the wrapper leaves a file of its own beside what it opens.
    """
    found: dict[tuple[str, int], dict[int, tuple[int, int, int, int]]] = {}
    with tempfile.TemporaryDirectory() as copied:
        place = shutil.copytree(store / "consumequeue", Path(copied) / "queues")
        names = rocksdict.Rdict.list_cf(str(place), rocksdict.Options(raw_mode=True))
        families = {name: rocksdict.Options(raw_mode=True) for name in names}
        access = rocksdict.AccessType.read_only()
        db = rocksdict.Rdict(str(place), rocksdict.Options(raw_mode=True), families, access)
        for key, value in db.items():
            (length,) = struct.unpack_from(">i", key)
            topic = key[5 : 5 + length].decode()
            first, queue, second, offset = struct.unpack(">BiBq", key[5 + length :])
            assert (key[4], first, second) == (1, 1, 1), key
            found.setdefault((topic, queue), {})[offset] = struct.unpack(">qiqq", value)
        db.close()
    return found


def consume_queue(directory: Path) -> dict[int, tuple[int, int, int]]:
    """{queue offset: (physical offset, size, tags code)} of one queue, pre-blank units left out."""
    units: dict[int, tuple[int, int, int]] = {}
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        for position in range(0, len(data) - 19, 20):
            physical, size, tags_code = struct.unpack_from(">qiq", data, position)
            if size <= 0:
                break
            if size != 0x7FFFFFFF:
                units[(int(path.name) + position) // 20] = (physical, size, tags_code)
    return units
