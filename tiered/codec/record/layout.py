"""Where the fields of a record lie: the one description of its bytes, and small readers of single fields.

A record (big endian; RocketMQ's ``MessageDecoder``/``CommitLog``): the first 48 bytes never move (``FIXED``); then bornHost
(8 bytes, or 20 with sysFlag 0x10), storeTimestamp, storeHost (8, or 20 with 0x20), reconsumeTimes,
preparedTransactionOffset, bodyLength, body, topicLength (1 byte in V1, 2 in V2), topic, propertiesLength (2), properties.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import numpy as np

from tiered.codec.record.ragged import gather
from tiered.codec.types import Buffer, Ints

MAGIC_V1 = 0xDAA320A7
"""A record whose topic length is one byte."""

MAGIC_V2 = 0xDAA320AB
"""A record whose topic length is two bytes; written for topics longer than 127 bytes."""

MAGIC_BLANK = 0xCBD43194
"""The filler that closes a commitlog file."""

MAGIC_AT = 4
"""Where a record, and a blank one, keeps its magic."""

MAGIC_BEGIN = MAGIC_V1.to_bytes(4, "big")[:3]
"""What the magics of both kinds of records begin with."""

MIN_RECORD_BYTES = 91
"""A V1 record with IPv4 hosts and no body, topic or properties."""

BLANK_HEADER_BYTES = 8
"""Size and magic of a blank record; the broker keeps at least this much room at the end of a file."""

HEAD_BYTES = 80
"""Enough of a record for all of ``FIXED`` and, behind either kind of born host, the store time."""

MAX_V1_TOPIC_BYTES = 127
"""Brokers read the one-byte length as signed."""

SYS_COMPRESSED = 0x1
SYS_MULTI_TAGS = 0x2
SYS_TRANSACTION = 0xC
SYS_PREPARED = 0x4
SYS_COMMIT = 0x8
SYS_ROLLBACK = 0xC
SYS_BORN_V6 = 0x10
SYS_STORE_V6 = 0x20
SYS_INNER_BATCH = 0x80
SYS_COMPRESSION_TYPE = 0x700

SIZE_AND_MAGIC = struct.Struct(">iI")

FIXED = struct.Struct(">iIIiiqqiq")
"""The 48 bytes that never move: the fields of ``FIXED_DTYPE`` of one record."""

MAGIC_AND_FLAGS = struct.Struct(">4xI28xi")
"""Magic and sysFlag of one record: enough of ``FIXED`` to find what lies behind it."""

WALKED = struct.Struct(">i16xqqi")
"""What a walk needs of ``FIXED``: size, queue offset, physical offset, sysFlag."""

STEPPED = struct.Struct(">i16xq")
"""Size and queue offset of ``FIXED``."""

FIXED_DTYPE = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
"""The 48 bytes that never move, as they lie in the record."""

V4_HOST_BYTES, V6_HOST_BYTES = 8, 20


def head_dtype(born_host_bytes: int, store_host_bytes: int) -> np.dtype[np.void]:
    """All that lies before the body of a record whose hosts have these lengths."""
    return np.dtype(
        [
            *((name, FIXED_DTYPE[name]) for name in FIXED_DTYPE.names or ()),
            ("born_host", f"V{born_host_bytes}"),
            ("store_timestamp", ">i8"),
            ("store_host", f"V{store_host_bytes}"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


V4_HEAD_DTYPE = head_dtype(V4_HOST_BYTES, V4_HOST_BYTES)
"""All that lies before the body of a record with two IPv4 hosts."""

BORN_HOST_AT = FIXED.size
BEFORE_BODY = struct.Struct(">iqi")
"""What lies right before the body: reconsumeTimes, preparedTransactionOffset, bodyLength."""

PREPARED_OFFSET_BEFORE_BODY = 12

_BOTH_OFFSETS = struct.Struct(">20xqq")
BODY_LENGTH = struct.Struct(">i")
"""The last field of ``BEFORE_BODY``."""

_LONG = struct.Struct(">q")
_SHORT = struct.Struct(">h")
_BYTE = struct.Struct(">b")
_V6_MORE = V6_HOST_BYTES - V4_HOST_BYTES
_STORE_TIME_AT = BORN_HOST_AT + V4_HOST_BYTES
_BODY_BEHIND_STORE_TIME = V4_HEAD_DTYPE.itemsize - _STORE_TIME_AT
_PLACES = {name: place[1] for name, place in (FIXED_DTYPE.fields or {}).items()}
_QUEUE_OFFSET_AT, _PHYSICAL_OFFSET_AT = _PLACES["queue_offset"], _PLACES["physical_offset"]

Flags = TypeVar("Flags", int, Ints)

# ---- places that move, counted from the record's start: of one sysFlag, or of an array of them


def store_time_at(sys_flag: Flags) -> Flags:
    """Where the store time lies, behind the born host."""
    return _STORE_TIME_AT + _V6_MORE * ((sys_flag & SYS_BORN_V6) >> 4)


def store_host_at(sys_flag: Flags) -> Flags:
    """Where the store host lies, behind the store time."""
    return store_time_at(sys_flag) + 8


def body_behind(store_time: Flags, sys_flag: Flags) -> Flags:
    """Where the body begins, given where the store time lies."""
    return store_time + _BODY_BEHIND_STORE_TIME + _V6_MORE * ((sys_flag & SYS_STORE_V6) >> 5)


_BODY_AT = {
    hosts: body_behind(store_time_at(hosts), hosts)
    for hosts in (0, SYS_BORN_V6, SYS_STORE_V6, SYS_BORN_V6 | SYS_STORE_V6)
}


def body_at(sys_flag: int) -> int:
    """Where the body of one record begins."""
    return _BODY_AT[sys_flag & (SYS_BORN_V6 | SYS_STORE_V6)]


# ---- single fields of one record, of which perhaps only the start is there


def offsets_of(record: Buffer) -> tuple[int, int] | None:
    """Queue offset and physical offset that a record says it has; ``None`` if the bytes end before they do."""
    if len(record) < _BOTH_OFFSETS.size:
        return None
    queue_offset, physical_offset = _BOTH_OFFSETS.unpack_from(record)
    return queue_offset, physical_offset


def physical_offset_of(record: Buffer) -> int | None:
    """The physical offset that a record says it lies at; ``None`` if the bytes end before it does."""
    return _long(record, _PHYSICAL_OFFSET_AT)


def store_time_of(record: Buffer) -> int | None:
    """A record's store time in ms; ``None`` if the bytes end before it does. ``HEAD_BYTES`` are always enough."""
    if len(record) < FIXED.size:
        return None
    return _long(record, store_time_at(FIXED.unpack_from(record)[7]))


def properties_behind(buffer: Buffer, position: int, magic: int) -> tuple[int, int] | None:
    """Where the properties begin, and their length in bytes, of a record whose body ends at ``position``.

    ``None`` if the topic's length is negative or the buffer ends before the properties' length does. What they claim is not
    compared with the buffer, and may be negative.
    """
    try:
        if magic == MAGIC_V1:
            (topic_length,) = _BYTE.unpack_from(buffer, position)
            end = position + 1 + topic_length
        else:
            (topic_length,) = _SHORT.unpack_from(buffer, position)
            end = position + 2 + topic_length
        (length,) = _SHORT.unpack_from(buffer, end)
    except struct.error:
        return None
    return (end + 2, length) if topic_length >= 0 else None


def _long(record: Buffer, at: int) -> int | None:
    if len(record) < at + _LONG.size:
        return None
    value: int = _LONG.unpack_from(record, at)[0]
    return value


# ---- one field of many whole records, which begin at ``starts``


def queue_offsets(buffer: Buffer, starts: Ints) -> Ints:
    """The queue offsets that records say they have."""
    return gather(buffer, starts + _QUEUE_OFFSET_AT, ">i8").astype(np.int64)


def physical_offsets(buffer: Buffer, starts: Ints) -> Ints:
    """The physical offsets that records say they lie at."""
    return gather(buffer, starts + _PHYSICAL_OFFSET_AT, ">i8").astype(np.int64)


def store_times(buffer: Buffer, starts: Ints) -> Ints:
    """Store times in ms."""
    flags = gather(buffer, starts + _PLACES["sys_flag"], ">i4").astype(np.int64)
    return gather(buffer, starts + store_time_at(flags), ">i8").astype(np.int64)
