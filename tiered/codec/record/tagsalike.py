"""Tags codes of messages whose properties are alike, as nearly all of one application are, without parsing those of each.

Where areas of one length have their marks at the same places, one of them says for all where names and values lie.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tiered.codec.javahash import java_hashes_alike
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.ragged import groups_by_length

_TAGS = np.frombuffer(b"TAGS", "<u4")[0]
_TAGS_BYTES = 4
_NAME_END, _ENTRY_END = 0x01, 0x02
_LARGEST_AREA = 1024
"""Of longer areas the bytes cost more than their marks."""
_ALIKE_ROWS = 32
"""Areas of one shape, on average, that are worth a look of their own."""
_MAX_SHAPES = 4
"""Of areas of one length: tags and keys of few lengths that come to the same sum."""

Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int64]


def codes_of_alike(batch: MessageBatch) -> Codes | None:
    """The hash of every message's tag, 0 where it has none. ``None`` where areas differ too much for this to pay, or a tag is
    not ASCII."""
    lengths = batch.headers["properties_length"].astype(np.int64)
    rows = len(lengths)
    if not rows or int(lengths.max()) > _LARGEST_AREA:
        return None
    if np.count_nonzero(np.bincount(lengths)) * _ALIKE_ROWS > rows + _ALIKE_ROWS:
        return None
    codes = np.zeros(rows, np.int64)
    for which, items in groups_by_length(batch.buffer, batch.headers["properties_position"], lengths):
        areas = items.view(np.uint8).reshape(len(items), -1)
        found = _codes(areas)
        if found is None:
            return None
        codes[which] = found
    return codes


def _codes(areas: Bytes) -> Codes | None:
    """Of areas of one length."""
    codes = np.zeros(len(areas), np.int64)
    left: npt.NDArray[np.intp] | None = None
    for _ in range(_MAX_SHAPES):
        some = areas if left is None else areas[left]
        places = np.flatnonzero(_marks(some[0]))
        alike = _of_one_shape(some, places)
        found = _of_shape(some if alike is None else some[alike], places)
        if found is None:
            return None
        mine = slice(None) if left is None else left
        if alike is None:
            codes[mine] = found
            return codes
        taken = np.flatnonzero(alike) if left is None else left[alike]
        codes[taken] = found
        left = np.flatnonzero(~alike) if left is None else left[~alike]
    return None


def _marks(areas: Bytes) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (areas - np.uint8(_NAME_END)) < 2
    return found


def _of_one_shape(areas: Bytes, places: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_] | None:
    """Which areas have the marks of the first one, where it has them, and no others; ``None``: all."""
    marks = _marks(areas)
    right = areas[:, places] == areas[0, places]
    if np.count_nonzero(marks) == len(areas) * len(places) and right.all():
        return None
    found: npt.NDArray[np.bool_] = right.all(axis=1) & (np.count_nonzero(marks, axis=1) == len(places))
    return found


def _of_shape(areas: Bytes, places: npt.NDArray[np.intp]) -> Codes | None:
    """Of areas with the same marks at the same ``places``: of equal names the last counts, as in any area."""
    codes = np.zeros(len(areas), np.int64)
    open_rows = np.ones(len(areas), np.bool_)
    for begin, divider, end in reversed(list(_entries(areas[0], places))):
        if divider - begin != _TAGS_BYTES:
            continue
        names: npt.NDArray[np.uint32] = np.ndarray(
            len(areas), "<u4", buffer=areas, offset=begin, strides=areas.strides[:1]
        )
        named = (names == _TAGS) & open_rows
        if not named.any():
            continue
        whole = bool(named.all())
        values = areas[:, divider + 1 : end] if whole else areas[named, divider + 1 : end]
        hashes = java_hashes_alike(values)
        if hashes is None:
            return None
        codes[slice(None) if whole else named] = hashes
        if whole:
            break
        open_rows &= ~named
    return codes


def _entries(area: Bytes, places: npt.NDArray[np.intp]) -> Iterator[tuple[int, int, int]]:
    """Well-formed entries of an area: where the name begins, the first 0x01 behind it, and the end of the value."""
    begin, divider = 0, -1
    for place in [*places.tolist(), len(area)]:
        if place < len(area) and area[place] == _NAME_END:
            divider = place if divider < 0 else divider
            continue
        if begin < divider and divider + 1 < place:
            yield begin, divider, place
        begin, divider = place + 1, -1
