"""Thrift's compact protocol, as far as Parquet's metadata and page headers use it: values in, values out, no schema.

A struct is a mapping from field number to ``(type, value)``, in ascending order; a list is ``(type of its values, values)``.
What is read and not understood is written again as it was.
"""

from __future__ import annotations

import struct
from typing import Any

from tiered.codec.types import Buffer

Fields = dict[int, tuple[int, Any]]

TRUE, FALSE, I32, I64, BINARY, LIST, STRUCT = 1, 2, 5, 6, 8, 9, 12
_BYTE, _I16, _DOUBLE, _SET = 3, 4, 7, 10
_DEEPEST = 32


def read_struct(data: Buffer, at: int = 0) -> tuple[Fields, int]:
    """The struct that begins there, and where it ends. ``ValueError`` or ``IndexError`` if there is none."""
    reader = _Reader(memoryview(data), at)
    fields = reader.fields(0)
    return fields, reader.at


def write_struct(fields: Fields) -> bytes:
    """The bytes that ``read_struct`` would give these fields of."""
    out = bytearray()
    _put_fields(out, fields)
    return bytes(out)


def field_head(before: int, number: int, kind: int) -> bytes:
    """What stands in front of a field's value behind the field ``before``, 0 for a struct's first."""
    out = bytearray()
    _put_head(out, before, number, kind)
    return bytes(out)


def list_head(count: int, kind: int) -> bytes:
    """What stands in front of a list's values."""
    out = bytearray()
    _put_list_head(out, count, kind)
    return bytes(out)


def written_number(value: int) -> bytes:
    """A number as a field or a list has it."""
    out = bytearray()
    _put_varint(out, _zigzag(value))
    return bytes(out)


class _Reader:
    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self.at = data, at

    def fields(self, depth: int) -> Fields:
        found: Fields = {}
        number = 0
        if depth > _DEEPEST:
            raise ValueError("structs too deep in one another")
        while head := self._byte():
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found[number] = (kind, kind == TRUE if kind in (TRUE, FALSE) else self._value(kind, depth + 1))
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_I16, I32, I64):
            return self._zigzag()
        if kind == BINARY:
            return bytes(self._take(self._varint()))
        if kind == STRUCT:
            return self.fields(depth)
        if kind in (LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._varint()
            if size > len(self._data) - self.at:
                raise ValueError("a list longer than its bytes")
            return head & 15, [self._value(head & 15, depth) for _ in range(size)]
        if kind in (TRUE, FALSE, _BYTE):  # of a list
            return self._byte()
        if kind == _DOUBLE:
            return bytes(self._take(8))
        raise ValueError(f"no type that Parquet uses: {kind}")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def _take(self, size: int) -> memoryview:
        if size > len(self._data) - self.at:
            raise ValueError("cut off")
        self.at += size
        return self._data[self.at - size : self.at]


def _put_fields(out: bytearray, fields: Fields) -> None:
    last = 0
    for number, (kind, value) in fields.items():
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        _put_head(out, last, number, kind)
        last = number
        if kind not in (TRUE, FALSE):
            _put_value(out, kind, value)
    out.append(0)


def _put_head(out: bytearray, before: int, number: int, kind: int) -> None:
    if 0 < number - before < 16:
        out.append(number - before << 4 | kind)
    else:
        out.append(kind)
        _put_varint(out, _zigzag(number))


def _put_list_head(out: bytearray, count: int, kind: int) -> None:
    out.append(min(count, 15) << 4 | kind)
    if count > 14:
        _put_varint(out, count)


def _put_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (_I16, I32, I64):
        _put_varint(out, _zigzag(value))
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_fields(out, value)
    elif kind in (LIST, _SET):
        of, values = value
        _put_list_head(out, len(values), of)
        for one in values:
            _put_value(out, of, one)
    elif kind == _DOUBLE:
        out += value
    else:
        out += struct.pack("B", value)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else ~value << 1 | 1


def _put_varint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
