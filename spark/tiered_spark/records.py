"""Blocks of the archive's records: their bodies inflated, and which of them have a tag or a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered.codec.arrow.arrays import words
from tiered.codec.arrow.columns import RecordColumns
from tiered.codec.record.frame import edges_of
from tiered.codec.record.header import read_headers
from tiered.codec.record.layout import SYS_COMPRESSED
from tiered.codec.types import Buffer
from tiered.errors import Corrupt
from tiered_spark.inflate import Inflater


@dataclass(frozen=True)
class RecordBlock:
    """Some rows of a buffer of records. ``headers`` are those of the rows wanted, ``where`` names the place in errors.

    ``bodies``: those that are shown, where they are not as they are stored.
    """

    data: Buffer
    headers: npt.NDArray[np.void]
    where: str
    bodies: pa.Array | None = None

    @classmethod
    def parse(cls, data: Buffer, rows: int, where: str) -> RecordBlock:
        """All records of ``data``, which must be exactly ``rows``; else ``Corrupt``."""
        edges = edges_of(data, rows)
        if edges is None:
            raise Corrupt(
                "a block is not made of the records its table says", key=where, expected=f"{rows} records"
            )
        found = read_headers(data, edges[:-1], np.diff(edges))
        if found.flaw is not None:
            raise Corrupt("a record is not what its header says", key=where, found=found.flaw.reason)
        return cls(data, found.rows, where)

    def only(self, rows: npt.NDArray[Any]) -> RecordBlock:
        """These rows, ascending."""
        return RecordBlock(self.data, self.headers[rows], self.where)

    def __len__(self) -> int:
        return len(self.headers)

    @cached_property
    def _columns(self) -> RecordColumns:
        return RecordColumns(self.data, self.headers)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One column; ``kind`` decides between timestamps and numbers."""
        if name == "body" and self.bodies is not None:
            return self.bodies
        return self._columns.column(name, kind)

    # ---- bodies

    def inflated(self, most: int) -> Iterator[RecordBlock]:
        """The same rows with compressed bodies inflated, in blocks whose inflated bodies have together at most ``most`` bytes,
        or are one. ``Corrupt`` names a body that cannot be inflated."""
        packed = np.flatnonzero(
            (self.headers["sys_flag"] & SYS_COMPRESSED != 0) & (self.headers["body_length"] > 0)
        )
        inflater = Inflater()
        first, size = 0, 0
        done: dict[int, bytes] = {}
        for row in packed.tolist():
            body = self._inflated(inflater, row)
            size += len(body)
            if done and size > most:
                yield self._with(first, row, done)
                first, size, done = row, len(body), {}
            done[row] = body
        yield self._with(first, len(self), done)

    def _with(self, first: int, end: int, inflated: dict[int, bytes]) -> RecordBlock:
        """Rows from ``first``, before ``end``, some bodies inflated."""
        part = (
            self if end - first == len(self) else RecordBlock(self.data, self.headers[first:end], self.where)
        )
        if not inflated:
            return part
        bodies = pa.array(inflated.values(), pa.binary())
        if len(bodies) < len(part):
            mask = np.zeros(len(part), np.bool_)
            mask[np.fromiter(inflated, np.int64) - first] = True
            bodies = pc.replace_with_mask(part._columns.bodies(), mask, bodies)
        return replace(part, bodies=bodies)

    def _inflated(self, inflater: Inflater, row: int) -> bytes:
        start, length = int(self.headers["body_position"][row]), int(self.headers["body_length"][row])
        body = memoryview(self.data)[start : start + length]
        try:
            return inflater.inflate(body, int(self.headers["sys_flag"][row]))
        except ValueError as error:
            raise self._bad_body(row, str(error)) from error

    def _bad_body(self, row: int, found: str) -> Corrupt:
        return Corrupt(
            "a body cannot be decompressed",
            hint="option('decodeBody', 'false') gives bodies as they are stored",
            key=self.where,
            physical_offset=int(self.headers["physical_offset"][row]),
            found=found,
        )

    # ---- properties

    def has_tag(self, tags: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Which rows have one of the tags."""
        return _is_in(self._columns.property(b"TAGS"), tags)

    def has_key(self, keys: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Which rows have one of the keys, among their keys or as their unique key."""
        found = _is_in(self._columns.property(b"UNIQ_KEY"), keys)
        lists = words(self._columns.property(b"KEYS"))
        hits = _is_in(lists.flatten(), keys)
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        found[rows[hits]] = True
        return found


def _is_in(values: pa.Array, wanted: frozenset[str]) -> npt.NDArray[np.bool_]:
    found = pc.is_in(values, pa.array(sorted(wanted), pa.string())).to_numpy(zero_copy_only=False)
    mask: npt.NDArray[np.bool_] = found.astype(np.bool_)
    return mask
