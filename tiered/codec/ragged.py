"""Byte ranges of different lengths taken from one buffer without a slice object per range: grouped by length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import Buffer
from tiered.codec.header import IntArray, gather

_MAX_GROUPS = 64


def groups_by_length(
    buffer: Buffer, positions: IntArray, lengths: IntArray
) -> Iterator[tuple[npt.NDArray[np.intp] | slice, npt.NDArray[np.void]]]:
    """(rows, their bytes as opaque fixed-width items) for each distinct length above 0; ranges must be inside."""
    if len(lengths) == 0:
        return
    first = int(lengths[0])
    if (lengths == first).all():
        if first:
            yield slice(None), gather(buffer, positions, f"V{first}")
        return
    order = np.argsort(lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[order])) + 1
    for rows in np.split(order, cuts):
        length = int(lengths[rows[0]])
        if length:
            yield rows, gather(buffer, positions[rows], f"V{length}")


def pieces(buffer: Buffer, positions: IntArray, lengths: IntArray) -> list[bytes]:
    """The bytes of each range, in order; the ranges must lie inside the buffer."""
    if len(lengths) and not (lengths == lengths[0]).all() and len(np.unique(lengths)) > _MAX_GROUPS:
        # Groups too small to pay for themselves.
        view = memoryview(buffer)
        ends = (positions + lengths).tolist()
        return list(map(bytes, map(view.__getitem__, map(slice, positions.tolist(), ends))))
    cut: npt.NDArray[np.object_] = np.full(len(lengths), b"", object)
    for rows, items in groups_by_length(buffer, positions, lengths):
        if isinstance(rows, slice):
            whole: list[bytes] = items.tolist()
            return whole
        cut[rows] = items.astype(object)
    found: list[bytes] = cut.tolist()
    return found
