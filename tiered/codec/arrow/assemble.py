"""Records put together again from their columns: one pass over arrays, the bytes laid down once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered.codec.arrow.arrays import edges_of_values, strung
from tiered.codec.arrow.messagerows import RECORD
from tiered.codec.record.hosts import encode_host
from tiered.codec.record.layout import MAGIC_V2, V6_HOST_BYTES, head_dtype
from tiered.codec.types import Ints

ASSEMBLED_FROM = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "born_timestamp", "store_host", "born_host",
    "sys_flag", "flag", "reconsume_times", "prepared_transaction_offset", "body_crc", "magic", "properties", "body", RECORD,
)  # fmt: skip
"""The columns of ``MESSAGE_SCHEMA`` that a record is made of; the others are derived from it."""

_NUMBERS = (
    "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "reconsume_times",
    "prepared_transaction_offset",
)  # fmt: skip

_BEHIND_NAME, _BEHIND_VALUE = "\x01", "\x02"

_Rows = Ints | slice
"""Some rows, or all of them."""


def assemble(columns: pa.RecordBatch) -> pa.Array:
    """The record of every row, as binary values back to back in one buffer.

    ``columns`` has those of ``ASSEMBLED_FROM``, of the types of ``MESSAGE_SCHEMA`` (text may be dictionaries), any slice of
    rows. Where ``record`` is not null it is taken; a row whose fields are null then needs none. ``Invalid`` if a host is none.
    """
    if not len(columns):
        return pa.array([], pa.binary())
    properties, lengths = _property_areas(columns.column("properties"))
    body = columns.column("body")
    heads, between = _heads(columns, body), _between(columns, lengths)
    sizes = np.diff(edges_of_values(heads)) + np.diff(edges_of_values(between)) + lengths
    sizes += pc.fill_null(pc.binary_length(body), 0).to_numpy(zero_copy_only=False)
    parts = _with_sizes(heads, sizes), body, between, properties
    records = pc.binary_join_element_wise(*parts, b"")
    verbatim = columns.column(RECORD)
    return records if verbatim.null_count == len(verbatim) else pc.coalesce(verbatim, records)


def _with_sizes(heads: pa.Array, sizes: Ints) -> pa.Array:
    """The heads with their first four bytes, the record's size, filled in."""
    edges = edges_of_values(heads)
    data: npt.NDArray[np.uint8] = np.frombuffer(heads.buffers()[2], np.uint8)
    if not data.flags.writeable:
        data = data.copy()
    places = np.ndarray((len(data) - 3,), "V4", buffer=data, strides=(1,))
    places[edges[:-1]] = sizes.astype(">i4").view("V4")
    buffers = [None, heads.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(heads), buffers, offset=heads.offset)


def _property_areas(properties: pa.Array) -> tuple[pa.Array, Ints]:
    """The stored form of every row's properties, and its length in bytes."""
    edges = properties.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, entries = int(edges[0]), int(edges[-1] - edges[0])
    names, values = (part.slice(first, entries) for part in (properties.keys, properties.items))
    text = pa.concat_arrays([names, values, pa.array([_BEHIND_NAME, _BEHIND_VALUE], pa.string())])
    order = np.empty((entries, 4), np.int64)
    order[:, 0] = np.arange(entries)
    order[:, 1] = 2 * entries
    order[:, 2] = order[:, 0] + entries
    order[:, 3] = 2 * entries + 1
    laid = text.take(pa.array(order.ravel()))
    ends = edges_of_values(laid)[(edges - first) * 4]
    offsets = pa.py_buffer(ends.astype(np.int32))
    areas = pa.Array.from_buffers(pa.binary(), len(properties), [None, offsets, laid.buffers()[2]])
    return areas, np.diff(ends)


def _heads(columns: pa.RecordBatch, body: pa.Array) -> pa.Array:
    """What lies before the body; sizes are left at 0."""
    born, store = (_Hosts(columns.column(name)) for name in ("born_host", "store_host"))
    values = {name: _numbers(columns.column(name)) for name in _NUMBERS}
    values["magic"] = _numbers(columns.column("magic")) & 0xFFFF_FFFF
    for name in ("born_timestamp", "store_timestamp"):
        values[name] = _numbers(columns.column(name).cast(pa.int64())) // 1000
    values["body_length"] = _numbers(pc.binary_length(body))

    def part(rows: _Rows) -> npt.NDArray[np.void]:
        born_hosts, store_hosts = born.packed(rows), store.packed(rows)
        heads = np.empty(len(born_hosts), head_dtype(born_hosts.itemsize, store_hosts.itemsize))
        heads["size"] = 0
        for name, column in values.items():
            heads[name] = column[rows]
        heads["born_host"], heads["store_host"] = born_hosts, store_hosts
        return heads

    return _by_shape(born.widths * (V6_HOST_BYTES + 1) + store.widths, part)


def _between(columns: pa.RecordBatch, properties_lengths: Ints) -> pa.Array:
    """What lies between body and properties: the topic with its length, and the properties' length."""
    topics = _dictionary(columns.column("topic"))
    texts = [text.encode() for text in topics.dictionary.to_pylist()]
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    v2 = _numbers(columns.column("magic")) & 0xFFFF_FFFF == MAGIC_V2

    def part(rows: _Rows) -> npt.NDArray[np.void]:
        lengths = properties_lengths[rows]
        topic = texts[codes[rows][0]]
        width = 2 if v2[rows][0] else 1
        kind = [("topic", f"V{width + len(topic)}"), ("properties_length", ">u2")]
        between = np.empty(len(lengths), kind)
        prefix = (len(topic) & 0xFFFF).to_bytes(2, "big")[-width:]
        between["topic"] = np.void(prefix + topic)
        between["properties_length"] = lengths & 0xFFFF
        return between

    return _by_shape(codes * 2 + v2, part)


def _by_shape(shape: Ints, part: Callable[[_Rows], npt.NDArray[Any]]) -> pa.Array:
    """Binary values whose rows have one layout for each shape: ``part`` makes those of some rows of one shape."""
    if (shape == shape[0]).all():
        return strung(_bytes_of(part(slice(None))))
    order = np.argsort(shape, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(shape[order])) + 1)
    joined = pa.concat_arrays([strung(_bytes_of(part(rows))) for rows in groups])
    return joined.take(pa.array(np.argsort(order)))


def _bytes_of(items: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    return items.view(np.uint8).reshape(len(items), items.dtype.itemsize)


def _numbers(column: pa.Array) -> Ints:
    """Values of an integer column, 0 for null."""
    whole = pc.fill_null(column, 0) if column.null_count else column
    values: Ints = whole.to_numpy(zero_copy_only=False).astype(np.int64)
    return values


def _dictionary(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


class _Hosts:
    """Hosts as records have them; the distinct ones are read one by one. Null: an IPv4 host of zeros."""

    def __init__(self, column: pa.Array) -> None:
        hosts = _dictionary(column)
        texts = hosts.dictionary.to_pylist()
        self._packed = [encode_host(text) for text in texts]
        self._packed.append(bytes(8))
        indices = pc.fill_null(hosts.indices.cast(pa.int64()), len(texts))
        self._codes = indices.to_numpy(zero_copy_only=False)
        widths = np.fromiter(map(len, self._packed), np.int64, len(self._packed))
        self.widths: Ints = widths[self._codes]

    def packed(self, rows: _Rows) -> npt.NDArray[np.void]:
        """The bytes of rows whose hosts have one width."""
        width = int(self.widths[rows][0])
        table = np.array([host if len(host) == width else bytes(width) for host in self._packed], f"V{width}")
        found: npt.NDArray[np.void] = table[self._codes[rows]]
        return found
