"""Sums: RocketMQ's body CRC and whole-record CRC, the archive's CRC32C, and the key hash's XXH3-64."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import crc32c as _crc32c
import numpy as np
import numpy.typing as npt
import xxhash
from zlib_ng.zlib_ng import crc32 as _crc32

from tiered.codec.types import Buffer
from tiered.codec.zstd import each_piece
from tiered.errors import Corrupt

_CRC_PROPERTY = b"__CRC32#\x01"
_CRC_DIGITS = 10
CRC_PROPERTY_BYTES = len(_CRC_PROPERTY) + _CRC_DIGITS + 1
"""Length of the trailing ``__CRC32#`` property: name, 0x01, ten digits, 0x02."""

_POSITIVE = 0x7FFF_FFFF  # RocketMQ keeps CRCs as non-negative Java ints


_KEEP_LOCK_BYTES = 1 << 20
"""Below this a sum takes less than 0.1 ms: letting go of the interpreter lock for it costs more when other threads are busy."""


def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, continuing from ``value``."""
    if len(data) < _KEEP_LOCK_BYTES:
        return int(_crc32c.crc32c(data, value, 0))
    return int(_crc32c.crc32c(data, value))


def crc32cs(parts: Sequence[Buffer]) -> npt.NDArray[np.uint32]:
    """``crc32c`` of each part, without Python code for each where all are small."""
    if max(map(len, parts), default=0) >= _KEEP_LOCK_BYTES:
        return np.fromiter(map(crc32c, parts), np.uint32, len(parts))
    return np.fromiter(map(_crc32c.crc32c, parts, repeat(0), repeat(0)), np.uint32, len(parts))


def body_crc(body: Buffer) -> int:
    """RocketMQ's bodyCRC: CRC-32 (IEEE) with the top bit cleared; 0 for an empty body."""
    return int(_crc32(body)) & _POSITIVE


def body_crcs(
    buffer: Buffer, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """``body_crc`` of every range [start, end) of ``buffer``, as uint32; the ranges must lie inside it.

    A call for each: RocketMQ clears a bit of every sum, so no sum over all bodies can be made of theirs.
    """
    bodies = each_piece(buffer, starts, ends - starts)
    sums = np.fromiter(map(_crc32, bodies), np.uint32, len(starts))
    return sums & np.uint32(_POSITIVE)


def xxh3_64(data: Buffer) -> int:
    """XXH3-64, seed 0, as an unsigned int."""
    return xxhash.xxh3_64_intdigest(data)


def crc_property(covered: Buffer) -> bytes:
    """The 20 bytes that close a record whose other bytes are ``covered``: digits least significant first."""
    digits = f"{body_crc(covered):0{_CRC_DIGITS}d}"[::-1]
    return _CRC_PROPERTY + digits.encode() + b"\x02"


def verify_crc_property(record: Buffer) -> bool:
    """True if ``record`` ends with a right ``__CRC32#`` property, False if it has none; ``Corrupt`` if it is
    wrong.

    The sum covers the original physical offset, so a re-based copy fails until that offset is put back.
    """
    view = memoryview(record)
    if len(view) < CRC_PROPERTY_BYTES or view[-CRC_PROPERTY_BYTES:][: len(_CRC_PROPERTY)] != _CRC_PROPERTY:
        return False
    found = bytes(view[-CRC_PROPERTY_BYTES:])
    expected = crc_property(view[:-CRC_PROPERTY_BYTES])
    if found != expected:
        raise Corrupt(
            "the whole-record CRC property is not the CRC of the record",
            expected=expected[9:-1].decode("latin-1"),
            found=found[9:-1].decode("latin-1"),
            hint="compare with the broker's own copy; a copy re-based by RocketMQ tieredstore fails here by design",
        )
    return True
