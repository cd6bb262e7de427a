"""Values and byte ranges at many places of one buffer, taken without an object for each: ranges are grouped by length."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Buffer, Ints
from tiered.codec.zstd import each_piece

_MAX_GROUPS = 64
_WINDOWS_EXPONENT = 2  # a range is copied as 4 to 8 windows: at most a quarter of it twice
_WIDEST_EXPONENT = 12
_PASS_BYTES = 1 << 20  # copied at once: stays in the processor's cache between its gather and its scatter
_WHOLE_BYTES = 512  # longer ranges are copied faster as windows
_ALIKE_ROWS = 32  # ranges of one length, on average, that are worth a gather of their own


def gather(buffer: Buffer, positions: Ints, dtype: np.dtype[np.void] | str) -> npt.NDArray[np.void]:
    """The ``dtype`` values that start at byte ``positions``, one per position; each must lie inside the
    buffer.

    A stride-1 array of overlapping items makes this one C-level copy per row, with no index matrix.
    """
    kind = np.dtype(dtype)
    if len(positions) == 0:
        return np.empty(0, kind)
    span = memoryview(buffer).nbytes - kind.itemsize + 1
    opaque = np.dtype((np.void, kind.itemsize)) if kind.names is not None else kind
    windows: npt.NDArray[np.void] = np.ndarray((max(span, 0),), opaque, buffer=buffer, strides=(1,))
    return windows[positions].view(kind)


def groups_by_length(
    buffer: Buffer, positions: Ints, lengths: Ints
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


def pieces(buffer: Buffer, positions: Ints, lengths: Ints) -> list[bytes]:
    """The bytes of each range, in order; the ranges must lie inside the buffer."""
    if len(lengths) and not (lengths == lengths[0]).all() and len(np.unique(lengths)) > _MAX_GROUPS:
        # Groups too small to pay for themselves.
        return list(map(bytes, each_piece(buffer, positions, lengths)))
    cut: npt.NDArray[np.object_] = np.full(len(lengths), b"", object)
    for rows, items in groups_by_length(buffer, positions, lengths):
        if isinstance(rows, slice):
            whole: list[bytes] = items.tolist()
            return whole
        cut[rows] = items.astype(object)
    found: list[bytes] = cut.tolist()
    return found


def copy_ranges(
    source: Buffer, starts: Ints, lengths: Ints, target: bytearray | memoryview, places: Ints
) -> None:
    """Copy ``source[starts[i]:starts[i] + lengths[i]]`` to ``target`` at ``places[i]``; all ranges must lie inside, places must
    not overlap.

    Short ranges of few lengths are copied whole, those of one length at once. Else a range is copied as a few windows of one
    width, the last of which ends with the range and may overlap the one before: two gathers for all ranges of about one length,
    without an object per range and without the interpreter lock.
    """
    if _copied_whole(source, starts, lengths, target, places):
        return
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return
    exponent = np.frexp(lengths[filled].astype(np.float64))[1] - 1  # of the largest power of two that fits
    widths = np.maximum(exponent - _WINDOWS_EXPONENT, 0)
    for width in np.unique(widths).tolist():
        rows = filled[widths == width]
        _copy_windows(
            source, starts[rows], lengths[rows], target, places[rows], 1 << min(width, _WIDEST_EXPONENT)
        )


def _copied_whole(
    source: Buffer, starts: Ints, lengths: Ints, target: bytearray | memoryview, places: Ints
) -> bool:
    """``copy_ranges`` of short ranges of few lengths; whether these are such."""
    if not len(lengths) or int(lengths.max()) > _WHOLE_BYTES:
        return False
    counts = np.bincount(lengths)
    kinds = np.flatnonzero(counts)
    if len(kinds) * _ALIKE_ROWS > len(lengths):
        return False
    order = slice(None) if len(kinds) == 1 else np.argsort(lengths.astype(np.uint16), kind="stable")
    begins, ends = starts[order], np.cumsum(counts[kinds]).tolist()
    places, first = places[order], 0
    for length, end in zip(kinds.tolist(), ends, strict=True):
        if length:
            sources, targets = _windows(source, length), _windows(target, length)
            step = max(1, _PASS_BYTES // length)
            for low in range(first, end, step):
                some = slice(low, min(low + step, end))
                targets[places[some]] = sources[begins[some]]
        first = end
    return True


def _copy_windows(
    source: Buffer, starts: Ints, lengths: Ints, target: Buffer, places: Ints, width: int
) -> None:
    """``copy_ranges`` of ranges that are at least ``width`` long."""
    counts = -(-lengths // width)
    ends = np.cumsum(counts)
    total = int(ends[-1])
    at = (np.arange(total) - np.repeat(ends - counts, counts)) * width
    np.minimum(at, np.repeat(lengths - width, counts), out=at)
    read, write = np.repeat(starts, counts) + at, np.repeat(places, counts) + at
    sources, targets = _windows(source, width), _windows(target, width)
    step = max(1, _PASS_BYTES // width)
    for first in range(0, total, step):
        targets[write[first : first + step]] = sources[read[first : first + step]]


def _windows(buffer: Buffer, width: int) -> npt.NDArray[np.void]:
    """Every ``width`` consecutive bytes as one opaque item."""
    return np.ndarray((memoryview(buffer).nbytes - width + 1,), f"V{width}", buffer=buffer, strides=(1,))
