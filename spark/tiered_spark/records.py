"""Records of the archive, verbatim and back to back, as Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.frame import edges_of
from tiered.codec.record.header import read_headers
from tiered.codec.record.hosts import decode_host
from tiered.codec.record.layout import (
    BORN_HOST_AT,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_STORE_V6,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    store_host_at,
)
from tiered.codec.record.properties import PropertyEntries
from tiered.codec.record.ragged import gather
from tiered.codec.types import Ints
from tiered.errors import Corrupt
from tiered_spark.arrays import as_text, binaries, chosen, cut, hexadecimal, picked, repeated, times, words
from tiered_spark.inflate import Inflater


@dataclass(frozen=True)
class RecordBlock:
    """Some rows of a buffer of records. ``headers`` are those of the rows wanted, ``where`` names the place in errors.

    ``bodies``: those that are shown, where they are not as they are stored.
    """

    data: bytes
    headers: npt.NDArray[np.void]
    where: str
    bodies: pa.Array | None = None

    @classmethod
    def parse(cls, data: bytes, rows: int, where: str) -> RecordBlock:
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

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One column; ``kind`` decides between timestamps and numbers."""
        if name in ("store_timestamp", "born_timestamp"):
            return times(self.headers[name], kind)
        if name == "body":
            return self._stored_bodies() if self.bodies is None else self.bodies
        if name == "body_size":
            return pa.array(np.ascontiguousarray(self.headers["body_length"]))
        if name in (self.headers.dtype.names or ()):
            return pa.array(np.ascontiguousarray(self.headers[name]))
        made: pa.Array = _MADE[name](self)
        return made

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
            bodies = pc.replace_with_mask(part._stored_bodies(), mask, bodies)
        return replace(part, bodies=bodies)

    def _stored_bodies(self) -> pa.Array:
        return cut(self.data, self.headers["body_position"], self.headers["body_length"].astype(np.int64))

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

    @cached_property
    def _entries(self) -> PropertyEntries:
        return PropertyEntries.parse(MessageBatch(memoryview(self.data), self.headers, ()))

    @cached_property
    def _values(self) -> pa.Array:
        e = self._entries
        return as_text(cut(e.blob, e.name_end + 1, e.value_end - e.name_end - 1))

    def property(self, name: bytes) -> pa.Array:
        """The property of this name, null where a message has none."""
        return picked(self._values, self._entries.last(name, len(self)))

    def has_tag(self, tags: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Which rows have one of the tags."""
        return _is_in(self.property(b"TAGS"), tags)

    def has_key(self, keys: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Which rows have one of the keys, among their keys or as their unique key."""
        found = _is_in(self.property(b"UNIQ_KEY"), keys)
        lists = words(self.property(b"KEYS"))
        hits = _is_in(lists.flatten(), keys)
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        found[rows[hits]] = True
        return found

    def _properties(self) -> pa.Array:
        e = self._entries
        names = as_text(cut(e.blob, e.name_start, e.name_end - e.name_start))
        values, row = self._values, e.row
        last = _last_of_each(row, names)
        if len(last) != len(row):
            names, values, row = names.take(pa.array(last)), values.take(pa.array(last)), row[last]
        offsets = np.searchsorted(row, np.arange(len(self) + 1)).astype(np.int32)
        return pa.MapArray.from_arrays(pa.array(offsets), names, values)

    # ---- hosts

    def _host_bytes(self, which: str) -> list[tuple[Ints, npt.NDArray[np.uint8]]]:
        """Groups of rows whose host has one length, with its bytes."""
        flags = self.headers["sys_flag"]
        if which == "store_host":
            at, six = store_host_at(flags.astype(np.int64)), flags & SYS_STORE_V6 != 0
        else:
            at, six = np.full(len(self), BORN_HOST_AT), flags & SYS_BORN_V6 != 0
        at = at + self.headers["position"]
        groups = []
        for rows, width in ((np.flatnonzero(~six), V4_HOST_BYTES), (np.flatnonzero(six), V6_HOST_BYTES)):
            if len(rows):
                raw = gather(self.data, at[rows], f"V{width}")
                groups.append((rows, np.frombuffer(raw.tobytes(), np.uint8).reshape(len(rows), width)))
        return groups

    @cached_property
    def _store_hosts(self) -> list[tuple[Ints, npt.NDArray[np.uint8]]]:
        return self._host_bytes("store_host")

    def host(self, which: str) -> pa.Array:
        """``ip:port`` of born or store host."""
        texts: list[str] = []
        index = np.zeros(len(self), np.int64)
        for rows, raw in self._store_hosts if which == "store_host" else self._host_bytes(which):
            if (raw == raw[0]).all():  # one broker, and often one producer
                index[rows] = len(texts)
                texts.append(decode_host(memoryview(raw[0].tobytes())))
                continue
            codes = binaries(raw).dictionary_encode()
            index[rows] = codes.indices.to_numpy(zero_copy_only=False) + len(texts)
            texts += [decode_host(memoryview(host)) for host in codes.dictionary.to_pylist()]
        return repeated(texts[0], len(self)) if len(texts) == 1 else chosen(texts, index)

    def message_ids(self) -> pa.Array:
        """Store host and physical offset in hexadecimal: the broker's id of a message."""
        parts, order = [], []
        for rows, raw in self._store_hosts:
            place = self.headers["physical_offset"][rows].astype(">i8").view(np.uint8).reshape(len(rows), 8)
            parts.append(hexadecimal(np.concatenate([raw, place], axis=1)))
            order.append(rows)
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return pa.array([], pa.string())
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))


def _is_in(values: pa.Array, wanted: frozenset[str]) -> npt.NDArray[np.bool_]:
    found = pc.is_in(values, pa.array(sorted(wanted), pa.string())).to_numpy(zero_copy_only=False)
    mask: npt.NDArray[np.bool_] = found.astype(np.bool_)
    return mask


def _last_of_each(row: Ints, names: pa.Array) -> Ints:
    """Numbers of the entries that are the last of their name in their row, ascending: of equal names the last counts."""
    if not len(row):
        return np.zeros(0, np.int64)
    encoded = names.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    if len(encoded.dictionary) < 63:  # as nearly always: a bit for each name shows that no row has one twice
        bits = np.left_shift(np.int64(1), codes.astype(np.int64))
        begins = np.flatnonzero(np.diff(row, prepend=-1))
        if np.array_equal(np.add.reduceat(bits, begins), np.bitwise_or.reduceat(bits, begins)):
            return np.arange(len(row))
    key = row * len(encoded.dictionary) + codes
    _, first = np.unique(key[::-1], return_index=True)
    return np.sort(len(key) - 1 - first)


_MADE: dict[str, Callable[[RecordBlock], pa.Array]] = {
    "tags": lambda block: block.property(b"TAGS"),
    "unique_key": lambda block: block.property(b"UNIQ_KEY"),
    "keys": lambda block: words(block.property(b"KEYS")),
    "properties": RecordBlock._properties,
    "born_host": lambda block: block.host("born_host"),
    "store_host": lambda block: block.host("store_host"),
    "msg_id": RecordBlock.message_ids,
}
