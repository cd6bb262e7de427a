"""Consume queues of RocketMQ's file store: 20-byte units ↔ arrays, pre-blank units, and the Ext side file's
units.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Buffer
from tiered.errors import Corrupt

UNIT_BYTES = 20
"""physical offset i64, size i32, tags code i64, big endian; the unit of queue offset q is at byte 20 q of the
logical file.
"""

CQ_DTYPE = np.dtype([("phys", "i8"), ("size", "i4"), ("tags_code", "i8")])
"""One consume-queue unit, native byte order: physical offset and size in bytes of the record, its tags
code.
"""

CQ_WIRE_DTYPE = np.dtype([("phys", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
"""The same as it lies in the file."""

PRE_BLANK_SIZE = 0x7FFF_FFFF
"""The size in a unit that only fills the room before a queue's first message."""

Units = npt.NDArray[np.void]

_EXT_ADDRESS_MAX = -(1 << 31) - 1
_EXT_HEAD = struct.Struct(">hqqh")
_MIN_LONG = -(1 << 63)


def decode_units(data: Buffer) -> Units:
    """Every whole unit of ``data`` (CQ_DTYPE), blank, pre-blank and zero ones too; a partial last unit is
    ignored.
    """
    count = memoryview(data).nbytes // UNIT_BYTES
    return np.frombuffer(data, CQ_WIRE_DTYPE, count).astype(CQ_DTYPE)


def encode_units(units: Units) -> bytes:
    """The file's bytes for ``units`` (CQ_DTYPE)."""
    return units.astype(CQ_WIRE_DTYPE).tobytes()


def written(units: Units) -> int:
    """How many units lie before the end of data: the first unit whose size is 0 or less."""
    empty = units["size"] <= 0
    return int(empty.argmax()) if empty.any() else len(units)


def pre_blank(count: int) -> bytes:
    """``count`` units that fill a queue's first file before its first message."""
    return np.array((0, PRE_BLANK_SIZE, 0), CQ_WIRE_DTYPE).tobytes() * count


def is_pre_blank(units: Units) -> npt.NDArray[np.bool_]:
    """Which units only fill room."""
    filler: npt.NDArray[np.bool_] = units["size"] == PRE_BLANK_SIZE
    return filler


def ext_position(tags_code: int) -> int | None:
    """The byte in the queue's Ext file that a unit's tags code points to, or ``None`` if it is an ordinary
    tags code.
    """
    return tags_code - _MIN_LONG if tags_code <= _EXT_ADDRESS_MAX else None


def decode_ext_tags_code(data: Buffer, position: int) -> int:
    """The real tags code, from the Ext unit at ``position`` of the Ext file. ``Corrupt`` if no unit lies
    there.
    """
    view = memoryview(data)
    if not 0 <= position <= view.nbytes - _EXT_HEAD.size:
        raise Corrupt("a consume-queue Ext unit lies outside its file", position=position, found=view.nbytes)
    size, tags_code, _store_time, bit_map = _EXT_HEAD.unpack_from(view, position)
    if size < _EXT_HEAD.size or bit_map < 0 or size != _EXT_HEAD.size + bit_map:
        raise Corrupt(
            "not a consume-queue Ext unit", position=position, found=size, expected=f"{20 + bit_map}"
        )
    return int(tags_code)
