"""Columns of messages, made of the records themselves: whole arrays, each when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered.codec.arrow.arrays import (
    as_text,
    binaries,
    chosen,
    cut,
    edges_of_values,
    hexadecimal,
    picked,
    repeated,
    times,
    words,
)
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.hosts import decode_host
from tiered.codec.record.layout import (
    BORN_HOST_AT,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_COMPRESSION_TYPE,
    SYS_STORE_V6,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    store_host_at,
)
from tiered.codec.record.properties import ENTRY_END, PropertyEntries
from tiered.codec.record.ragged import gather
from tiered.codec.types import Buffer, Ints

BODY_ENCODINGS = ("plain", "zlib", "lz4", "zstd", "zlib", *["unknown"] * 4)
"""Of a body that is not compressed, and by the number of its method, from 0 on: brokers before 5.0 wrote 0 for zlib."""


@dataclass(frozen=True)
class RecordColumns:
    """Records of one buffer, which must not change; ``headers`` has HEADER_DTYPE, rows in buffer order."""

    data: Buffer
    headers: npt.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.headers)

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        """One column by its name; ``kind`` decides between timestamps and numbers. A body is given as it is stored."""
        if name in ("store_timestamp", "born_timestamp"):
            return times(self.headers[name], kind)
        if name == "body_size":
            return pa.array(np.ascontiguousarray(self.headers["body_length"]))
        if name in (self.headers.dtype.names or ()):
            return pa.array(np.ascontiguousarray(self.headers[name]))
        made: pa.Array = _MADE[name](self)
        return made

    def body_encodings(self) -> pa.Array:
        """How clients compressed the bodies: ``plain``, ``zlib``, ``lz4``, ``zstd``, or ``unknown``."""
        flags = self.headers["sys_flag"].astype(np.int64)
        method = (flags & SYS_COMPRESSION_TYPE) >> 8
        return chosen(BODY_ENCODINGS, np.where(flags & SYS_COMPRESSED, 1 + method, 0))

    def bodies(self) -> pa.Array:
        """Bodies as they are stored."""
        return cut(self.data, self.headers["body_position"], self.headers["body_length"].astype(np.int64))

    # ---- properties

    @cached_property
    def _entries(self) -> PropertyEntries:
        """Arrow lays areas side by side in a seventh of the time; those that are not closed must be closed first."""
        lengths = self.headers["properties_length"].astype(np.int64)
        if len(lengths) and lengths.all():
            areas = cut(self.data, self.headers["properties_position"], lengths)
            ends = np.cumsum(lengths) - 1
            blob = memoryview(areas.buffers()[2])[: int(ends[-1]) + 1]
            if (np.frombuffer(blob, np.uint8)[ends] == ENTRY_END).all():
                return PropertyEntries.laid(blob, ends)
        return PropertyEntries.parse(MessageBatch(memoryview(self.data), self.headers, ()))

    @cached_property
    def _values(self) -> pa.Array:
        e = self._entries
        return as_text(cut(e.blob, e.name_end + 1, e.value_end - e.name_end - 1))

    def property(self, name: bytes) -> pa.Array:
        """The property of this name, null where a message has none."""
        return picked(self._values, self._entries.last(name, len(self)))

    def properties(self) -> pa.Array:
        """All of them as maps, in the order in which they are stored; of equal names the last."""
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


def _last_of_each(row: Ints, names: pa.Array) -> Ints:
    """Numbers of the entries that are the last of their name in their row, ascending: of equal names the last counts."""
    if not len(row):
        return np.zeros(0, np.int64)
    if _same_in_each_row(row, names):
        return np.arange(len(row))
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


def _same_in_each_row(row: Ints, names: pa.Array) -> bool:
    """Whether all rows from 0 on have the very names of the first one, which are distinct: as most that one program sent."""
    rows, several = int(row[-1]) + 1, int(np.searchsorted(row, 0, "right"))
    if rows * several != len(row) or not np.array_equal(row, np.repeat(np.arange(rows), several)):
        return False
    edges = edges_of_values(names)
    data = np.frombuffer(names.buffers()[2], np.uint8)[int(edges[0]) : int(edges[-1])]
    lengths = np.diff(edges).reshape(rows, several)
    if (lengths != lengths[0]).any() or (data.reshape(rows, -1) != data[: int(lengths[0].sum())]).any():
        return False
    return len(set(names.slice(0, several).to_pylist())) == several


_MADE: dict[str, Callable[[RecordColumns], pa.Array]] = {
    "body": RecordColumns.bodies,
    "body_encoding": RecordColumns.body_encodings,
    "tags": lambda records: records.property(b"TAGS"),
    "unique_key": lambda records: records.property(b"UNIQ_KEY"),
    "keys": lambda records: words(records.property(b"KEYS")),
    "properties": RecordColumns.properties,
    "born_host": lambda records: records.host("born_host"),
    "store_host": lambda records: records.host("store_host"),
    "msg_id": RecordColumns.message_ids,
}
