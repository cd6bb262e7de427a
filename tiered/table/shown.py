"""Which sealed files a fold shows: pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import RUN, queue_of, split_run_key
from tiered.archive.state.layout import RUN_RECORD_DTYPE, table
from tiered.archive.state.view import ArchiveState

SEGMENT_LEVEL = 2
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A sealed file. ``rows``: those that the archive serves; retention took the others, or a rewind did, and engines see them
    until the file goes."""

    path: str
    length: int
    rows: int


def shown_files(state: ArchiveState, wanted: Callable[[str], bool]) -> dict[str, dict[str, ShownFile]]:
    """Files with at least one live run, by topic and path. A file of nothing but rewound rows is not shown."""
    sealed = {
        (item.ref.commit_seq, item.ref.index): item
        for item in state.objects()
        if item.level == SEGMENT_LEVEL and item.path and item.references and item.retired_by is None
    }
    if not sealed:
        return {}
    numbers = np.array(sorted(sealed), np.int64)
    live = np.zeros(len(numbers), np.int64)
    topics: dict[int, str] = {}
    for keys, runs in _chunks(state):
        places = np.stack([runs["commit_seq"], runs["object"].astype(np.int64)], axis=1)
        at = _found(numbers, places)
        known = np.flatnonzero(at >= 0)
        offsets = runs["end"] - runs["start"]
        cut = offsets < runs["queue_offsets"]
        rows = np.where(cut, np.minimum(offsets, runs["rows"]), runs["rows"].astype(np.int64))
        np.add.at(live, at[known], rows[known])
        firsts = np.unique(at[known], return_index=True)
        for number, first in zip(*(each.tolist() for each in firsts), strict=True):
            if number not in topics:
                topics[number] = queue_of(split_run_key(keys[int(known[first])])[0]).topic
    found: dict[str, dict[str, ShownFile]] = {}
    for number, topic in topics.items():
        if wanted(topic):
            item = sealed[tuple(numbers[number].tolist())]
            found.setdefault(topic, {})[item.path] = ShownFile(item.path, item.length, int(live[number]))
    return found


def _chunks(state: ArchiveState) -> Iterator[tuple[list[bytes], npt.NDArray[np.void]]]:
    """Live runs, a bounded number at a time."""
    pairs = state.view.iterate(RUN)
    while chunk := list(islice(pairs, _CHUNK)):
        yield [key for key, _ in chunk], table([value for _, value in chunk], RUN_RECORD_DTYPE)


def _found(numbers: npt.NDArray[np.int64], places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each place stands among the sorted ``numbers``, or -1."""
    dtype = np.dtype([("seq", "<i8"), ("index", "<i8")])
    known, asked = (np.ascontiguousarray(each).view(dtype).reshape(-1) for each in (numbers, places))
    at = np.searchsorted(known, asked)
    at[at == len(known)] = 0
    return np.where(known[at] == asked, at, -1)
