"""Integer columns <-> bytes: offset from a base or from the value before, narrowest width, byte planes.

Layout of one column of ``rows`` values (FORMAT.md, "Integer column")::

    u1  form      low 4 bits: width w, 1 to 8; bit 4: 1 = differences
    i8  base      plain: the smallest value;  differences: the first value
    i8  step      plain: 0;                   differences: the smallest difference
    w × rows      planes, least significant first: byte p of every row, then byte p + 1 of every row …

All arithmetic is modulo 2⁶⁴, so any 64-bit integers, signed or not, come back as they were. Planes cost
nothing and let zstd shrink columns of similar numbers by about a tenth more than whole integers do. A width
is never 0: a column of n rows takes at least n bytes, so that a row count on the wire cannot claim memory
that its bytes do not back.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt

_HEAD = struct.Struct("<Bqq")
_TABLE = struct.Struct("<IB")
_DIFFERENCES = 0x10
_WHOLE, _HALF = 1 << 64, 1 << 63

RELATIVE: Mapping[str, str] = {
    "max_store_time": "min_store_time",
    "physical_end": "physical_start",
    "queue_offsets": "rows",
    "end": "start",
}
"""Columns stored as the difference to another column of the same table, when that table holds both."""


def pack_ints(values: npt.NDArray[Any]) -> bytes:
    """One column. Same values, same bytes. ``values``: one dimension, any integer type of at most 64 bits."""
    v = _as_int64(values)
    if not len(v):
        return _HEAD.pack(1, 0, 0)
    base, step, form = int(v.min()), 0, 0
    offsets = v.view(np.uint64) - np.uint64(base & 0xFFFF_FFFF_FFFF_FFFF)
    largest = int(offsets.max())
    if len(v) > 1 and largest:
        differences = np.subtract(v[1:].view(np.uint64), v[:-1].view(np.uint64)).view(np.int64)
        smallest = int(differences.min())
        span = int(differences.max()) - smallest  # < 2⁶⁴ for any two int64
        if _width(span) < _width(largest) or not span:
            base, step, form, largest = int(v[0]), smallest, _DIFFERENCES, span
            offsets = np.zeros(len(v), np.uint64)
            offsets[1:] = differences.view(np.uint64) - np.uint64(smallest & 0xFFFF_FFFF_FFFF_FFFF)
    width = _width(largest)
    planes = offsets.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width].T
    return _HEAD.pack(form | width, base, step) + planes.tobytes()


def packed_length(data: Buffer, rows: int, *, key: str, position: int | None) -> int:
    """Bytes that the packed column at the start of ``data`` takes; ``Corrupt`` if they are not all there."""
    form = data[0] if len(data) >= _HEAD.size else 0
    width = form & 0x0F
    length = _HEAD.size + width * rows
    if not 1 <= width <= 8 or form & 0xE0 or length > len(data):
        raise Corrupt(
            "an integer column does not fit its bytes",
            key=key,
            position=position,
            expected=f"{rows} rows of 1 to 8 bytes after a head of {_HEAD.size}",
            found=f"form {form:#04x}, {len(data)} bytes",
        )
    return length


def unpack_ints(data: Buffer, rows: int, *, key: str, position: int | None) -> Ints:
    """The ``rows`` values of one packed column that takes exactly all of ``data``; ``Corrupt`` otherwise."""
    length = packed_length(data, rows, key=key, position=position)
    if length != len(data):
        raise Corrupt(
            "bytes follow an integer column", key=key, position=position, expected=length, found=len(data)
        )
    form, base, step = _HEAD.unpack_from(data)
    if rows == 1:  # most columns of a small commit: a third of the time of the arrays below
        offset = 0 if form & _DIFFERENCES else int.from_bytes(data[_HEAD.size :], "little")
        return np.array([(base + offset + _HALF) % _WHOLE - _HALF], np.int64)
    values = _unsigned(data, form & 0x0F, rows)
    if form & _DIFFERENCES:
        values[1:] += step
        values[:1] = base
        return np.cumsum(values)
    values += base
    return values


def _unsigned(data: Buffer, width: int, rows: int) -> Ints:
    """The planes of a column as integers, which no base has been added to."""
    planes = np.frombuffer(data, np.uint8, width * rows, _HEAD.size).reshape(width, rows)
    if width == 1:
        return planes.reshape(rows).astype(np.int64)
    wide = np.zeros((rows, 8), np.uint8)
    for place in range(width):  # a third of the time of laying them side by side in one go
        wide[:, place] = planes[place]
    return wide.view("<u8").reshape(rows).astype(np.int64, copy=False)


def pack_table(columns: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Columns of equal length, in order: ``u4`` rows, ``u1`` column count, the columns (see ``RELATIVE``)."""
    rows = len(next(iter(columns.values()))) if columns else 0
    parts = [_TABLE.pack(rows, len(columns))]
    parts += [pack_ints(relative(columns, name)) for name in columns]
    return b"".join(parts)


def unpack_table(
    data: Buffer, names: Sequence[str], *, key: str, position: int | None
) -> tuple[dict[str, Ints], Buffer]:
    """Columns by name, and the bytes behind the table. ``Corrupt`` if it holds other than ``names``."""
    view = memoryview(data)
    rows, count = _TABLE.unpack_from(view) if len(view) >= _TABLE.size else (0, -1)
    if count != len(names):
        raise Corrupt(
            "a table has the wrong number of columns",
            key=key,
            position=position,
            expected=len(names),
            found="no head" if count < 0 else count,
        )
    at, columns = _TABLE.size, {}
    for name in names:
        length = packed_length(view[at:], rows, key=key, position=position)
        columns[name] = unpack_ints(view[at : at + length], rows, key=key, position=position)
        at += length
    return absolute(columns), view[at:]


def relative(columns: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """What is stored for column ``name``: itself, or its difference to the column that ``RELATIVE`` names."""
    other = RELATIVE.get(name)
    if other is None or other not in columns:
        return columns[name]
    return _as_int64(columns[name]) - _as_int64(columns[other])


def absolute(columns: dict[str, Ints]) -> dict[str, Ints]:
    """Undo ``relative`` for all columns of a table, in place."""
    for name, other in RELATIVE.items():
        if name in columns and other in columns:
            columns[name] += columns[other]
    return columns


def narrow(
    columns: Mapping[str, Ints], dtype: np.dtype[Any], *, what: str, key: str, position: int | None
) -> npt.NDArray[Any]:
    """Columns as fields of a structured array (other fields are 0); ``Corrupt`` if one does not fit."""
    table = np.zeros(len(next(iter(columns.values()))), dtype)
    for name, values in columns.items():
        check_fits(name, values, table.dtype[name], what=what, key=key, position=position)
        table[name] = values.view(table.dtype[name]) if table.dtype[name].itemsize == 8 else values
    return table


def check_fits(
    name: str, values: Ints, kind: np.dtype[Any], *, what: str, key: str, position: int | None
) -> None:
    """``Corrupt`` if a value of a column is none of this type. Those of 64 bits are taken as they are."""
    limits = np.iinfo(kind)
    if limits.bits < 64 and len(values) and (values.min() < limits.min or values.max() > limits.max):
        raise Corrupt(
            f"{what}: {name} is out of range",
            key=key,
            position=position,
            expected=f"{limits.min} to {limits.max}",
            found=f"{values.min()} to {values.max()}",
        )


def _as_int64(values: npt.NDArray[Any]) -> Ints:
    if values.dtype == np.uint64:
        return np.ascontiguousarray(values).view(np.int64)
    return np.ascontiguousarray(values, dtype=np.int64)


def _width(largest: int) -> int:
    return max(1, (largest.bit_length() + 7) // 8)
