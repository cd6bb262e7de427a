"""Arrow arrays made of whole buffers: nothing here runs once per message, but where a message is not what most are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered.codec.types import Buffer, Ints
from tiered.errors import Invalid

FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999: what a timestamp of Spark may be."""

_MOST_BYTES = (1 << 31) - 1  # offsets have 32 bits


def cut(data: Buffer, starts: Ints, lengths: Ints) -> pa.Array:
    """Binary values ``data[start : start + length]``, in ascending order of their places, without overlap.

    One array over all of ``data`` is made, in which every second value is wanted, and Arrow takes those.
    """
    if not len(starts):
        return pa.array([], pa.binary())
    edges = np.empty(2 * len(starts), np.int32)
    edges[0::2] = starts
    edges[1::2] = starts + lengths
    offsets = pa.py_buffer(edges)
    whole = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, offsets, pa.py_buffer(data)])
    return whole.take(pa.array(np.arange(0, len(edges) - 1, 2)))


def as_text(values: pa.Array) -> pa.Array:
    """Binary values as strings; what is not UTF-8 has its wrong bytes replaced, as ``tiered read`` shows it."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [None if v is None else v.decode("utf-8", "replace") for v in values.to_pylist()]
        return pa.array(decoded, pa.string())


def picked(values: pa.Array, rows: Ints) -> pa.Array:
    """``values[row]``, null where the row is negative."""
    return values.take(pa.array(rows, mask=rows < 0))


def repeated(text: str, rows: int) -> pa.Array:
    """One string, for every row."""
    return pa.repeat(pa.scalar(text, pa.string()), rows)


def chosen(texts: Sequence[str | None], index: npt.NDArray[Any]) -> pa.Array:
    """``texts[index]``."""
    return pa.array(texts, pa.string()).take(pa.array(index))


def times(values: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Times in ms as timestamps, null for what is not a time, or as they are for an integer type."""
    if pa.types.is_timestamp(kind):
        values = values.astype(np.int64)
        wrong = None
        if len(values) and (values.min() < FIRST_MS or values.max() > LAST_MS):
            wrong = (values < FIRST_MS) | (values > LAST_MS)
        return pa.array(values * 1000, mask=wrong).cast(kind)
    return pa.array(values.astype(np.int64)).cast(kind)


def binaries(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes as values of one width."""
    rows, width = matrix.shape
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    return pa.Array.from_buffers(pa.binary(width), rows, [None, data])


def hexadecimal(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes as upper-case hexadecimal strings."""
    rows, width = matrix.shape
    digits = matrix.tobytes().hex().upper().encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(2 * width)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(digits)])


def strung(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes, all of one width, as values of any width: their bytes are not copied."""
    rows, width = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


def back_to_back(data: Buffer, edges: Ints) -> pa.Array:
    """Binary values that lie back to back, between these edges; nothing is copied but the edges. ``Invalid`` above 2 GiB."""
    if len(edges) and int(edges[-1]) > _MOST_BYTES:
        raise Invalid(
            "an array would be too large", expected=f"at most {_MOST_BYTES} bytes", found=int(edges[-1])
        )
    buffers = [None, pa.py_buffer(edges.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(edges) - 1, buffers)


def edges_of_values(values: pa.Array) -> Ints:
    """Where each value of a string or binary array (32-bit offsets) begins in its data, and the last one's end."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    return offsets[values.offset : values.offset + len(values) + 1].astype(np.int64)


def words(texts: pa.Array) -> pa.Array:
    """Lists of the words of each string, divided by blanks, empty ones dropped; an empty list for null."""
    parts = pc.split_pattern(pc.fill_null(texts, ""), " ")
    lengths = parts.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    flat = parts.flatten()
    good = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    row = np.repeat(np.arange(len(texts)), lengths)[good]
    offsets = np.searchsorted(row, np.arange(len(texts) + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat.filter(pa.array(good)))
