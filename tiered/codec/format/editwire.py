"""Edit batches <-> bytes: one msgpack value, column-wise (FORMAT.md, "Edits").

::

    [[kind, rows, [column, …]], …]           columns in the order of ``edits.SCHEMA``
    INT    bin: an integer column (``intpack``), possibly relative to another column of the batch
    TEXT   [[distinct text, …], bin]         the bin is an integer column of indexes
    BYTES  [bin, …]
    OBJ    [value, …]                        its form is checked, see ``editvalues``
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tiered.codec.format.edits import RESERVED_KINDS, SCHEMA, Col, EditBatch, EditKind
from tiered.codec.format.editvalues import value_fault
from tiered.codec.format.intpack import absolute, pack_ints, relative, unpack_ints
from tiered.codec.format.wire import pack, unpack
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, Invalid, Refused

MAX_EDIT_ROWS = 1 << 20
"""Rows of all batches of a commit together."""

_KINDS = frozenset(int(kind) for kind in EditKind)


def pack_edits(edits: Sequence[EditBatch]) -> bytes:
    """The bytes of a list of batches, uncompressed. ``Invalid`` if a batch is not what ``edits.SCHEMA``
    says.
    """
    if sum(map(len, edits)) > MAX_EDIT_ROWS:
        raise Invalid(
            "too many edits for one commit", expected=f"at most {MAX_EDIT_ROWS}", found=sum(map(len, edits))
        )
    return pack([[int(b.kind), len(b), _pack_columns(b)] for b in edits])


def unpack_edits(data: Buffer, *, key: str, position: int | None) -> list[EditBatch]:
    """The batches. ``Corrupt`` if they are malformed, ``Refused`` for a kind that only a newer program knows
    how to fold.
    """
    value = unpack(data, what="the edits", key=key, position=position)
    reader = _Reader(key, position)
    if not isinstance(value, list):
        raise reader.corrupt("a list of batches", type(value).__name__)
    return [reader.batch(v) for v in value]


def _pack_columns(b: EditBatch) -> list[Any]:
    schema = SCHEMA.get(b.kind)
    if schema is None:
        raise Invalid("edits of this kind cannot be written", found=b.kind.name)
    if b.columns.keys() != dict(schema).keys():
        raise Invalid("an edit has the wrong columns", kind=b.kind.name, found=sorted(b.columns))
    ints = {name: np.asarray(b.columns[name]) for name, how in schema if how is Col.INT}
    packed: list[Any] = []
    for name, how in schema:
        column = b.columns[name]
        if len(column) != len(b):
            raise Invalid("an edit's columns differ in length", kind=b.kind.name, column=name)
        if how is Col.INT:
            if ints[name].dtype.kind not in "iu" or ints[name].ndim != 1:
                raise Invalid("an edit's column is not integers", kind=b.kind.name, column=name)
            packed.append(pack_ints(relative(ints, name)))
        else:
            packed.append(_pack_objects(b.kind, name, how, list(column)))
    return packed


def _pack_objects(kind: EditKind, name: str, how: Col, column: list[Any]) -> list[Any]:
    if how is Col.OBJ:
        column = unpack(pack(column), what="a value", key="", position=None)  # numpy and tuples become plain
    wrong = _column_fault(name, how, column)
    if wrong is not None:
        raise Invalid(
            "an edit holds a value that cannot be read again", kind=kind.name, column=name, found=wrong
        )
    if how is not Col.TEXT:
        return column
    index = {text: i for i, text in enumerate(dict.fromkeys(column))}
    codes = np.fromiter(map(index.__getitem__, column), np.int64, len(column))
    return [list(index), pack_ints(codes)]


def _column_fault(name: str, how: Col, column: list[Any]) -> str | None:
    if how is Col.OBJ:
        return next((fault for fault in (value_fault(name, v) for v in column) if fault is not None), None)
    wrong = set(map(type, column)) - {str if how is Col.TEXT else bytes}
    return f"{wrong.pop().__name__}" if wrong else None


class _Reader:
    """Decodes batches of one commit; counts their rows."""

    def __init__(self, key: str, position: int | None) -> None:
        self._key, self._position = key, position
        self._rows = 0

    def corrupt(self, expected: object, found: object) -> Corrupt:
        return Corrupt(
            "the edits of a commit make no sense",
            key=self._key,
            position=self._position,
            expected=expected,
            found=found,
        )

    def batch(self, value: Any) -> EditBatch:
        match value:
            case [int(number), int(rows), list(columns)] if type(number) is int and type(rows) is int:
                pass
            case _:
                raise self.corrupt("[kind, rows, columns]", type(value).__name__)
        if number not in _KINDS:
            raise self.corrupt("a kind of edit", number)
        kind = EditKind(number)
        if kind in RESERVED_KINDS:
            raise Refused(
                f"a commit holds {kind.name} edits: it was written by a newer program",
                hint="install that program's version or a later one",
                key=self._key,
                expected=f"one of {sorted(map(int, SCHEMA))}",
                found=number,
            )
        schema = SCHEMA[kind]
        self._rows += max(rows, 0)
        if rows < 0 or self._rows > MAX_EDIT_ROWS or len(columns) != len(schema):
            raise self.corrupt(
                f"{len(schema)} columns, at most {MAX_EDIT_ROWS} rows in all",
                f"{len(columns)} columns, {rows} rows",
            )
        made: dict[str, Any] = {}
        for (name, how), column in zip(schema, columns, strict=True):
            made[name] = (
                self._ints(column, rows) if how is Col.INT else self._objects(name, how, column, rows)
            )
        ints = absolute({name: made[name] for name, how in schema if how is Col.INT})
        return EditBatch(kind, {**made, **ints})

    def _ints(self, column: Any, rows: int) -> Ints:
        if type(column) is not bytes:
            raise self.corrupt("bytes of an integer column", type(column).__name__)
        return unpack_ints(column, rows, key=self._key, position=self._position)

    def _objects(self, name: str, how: Col, column: Any, rows: int) -> list[Any]:
        if how is Col.TEXT:
            column = self._text(name, column, rows)
        if type(column) is not list or len(column) != rows:
            raise self.corrupt(f"{rows} values of {name}", type(column).__name__)
        fault = _column_fault(name, how, column)
        if fault is not None:
            raise self.corrupt(f"a value of {name}", fault)
        return column

    def _text(self, name: str, column: Any, rows: int) -> list[Any]:
        match column:
            case [list(texts), bytes(packed)]:
                codes = self._ints(packed, rows)
            case _:
                raise self.corrupt(f"a dictionary and indexes of {name}", type(column).__name__)
        if rows and (codes.min() < 0 or codes.max() >= len(texts)):
            raise self.corrupt(f"indexes of {name} below {len(texts)}", f"{codes.min()} to {codes.max()}")
        return list(map(texts.__getitem__, codes.tolist()))
