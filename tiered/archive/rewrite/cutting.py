"""Where generations begin anew once what may go is gone: the arithmetic of a trim, over many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.rewrite.histories import Histories
from tiered.archive.rewrite.policy import LegalHold
from tiered.archive.rewrite.trims import TRIM_DTYPE
from tiered.codec.types import Bools, Ints


@dataclass(frozen=True, slots=True)
class Judged:
    """What holds for generations: what is older than ``aged_ms`` may go by age, than ``cutoff_ms`` by age or size; ``covered``:
    by a hold; ``given``: offsets below it were given to all who are waited for."""

    aged_ms: Ints
    cutoff_ms: Ints
    covered: Bools
    given: Ints


def cut(
    seen: Histories, judged: Judged, holds: Sequence[LegalHold], aged_seq: int, planned: Ints | None = None
) -> tuple[npt.NDArray[np.void], Ints]:
    """Trims (``TRIM_DTYPE``, without reasons) of those generations of which something goes, and their places.

    ``planned``: where each may begin at most."""
    items, row, live = seen.items, seen.row, seen.live
    if not len(items):
        return np.zeros(0, TRIM_DTYPE), np.zeros(0, np.int64)
    free = (seen.newest < judged.cutoff_ms[row]) & (items["commit_seq"] <= aged_seq)
    free &= ~live | (items["end"] <= judged.given[row])
    ripe = free.copy()
    held = [
        cover[row] & (items["max_store_time"] >= hold.start_ms) & (items["min_store_time"] < hold.end_ms)
        for hold, cover in zip(holds, judged.covered, strict=True)
    ]
    for one in held:
        free &= ~one
    stays = seen.first_of(~free)
    first = _first_offsets(seen, stays)
    if planned is not None:
        first = np.minimum(first, planned)
    touched = items["start"] < first[row]
    goes = live & (items["end"] <= first[row])
    count = seen.sums(touched)
    at = np.flatnonzero(count)
    made = np.zeros(len(at), TRIM_DTYPE)
    for name in ("generation", "min_offset"):
        made[name] = seen.generations[name][at]
    made["first_offset"], made["cutoff_ms"] = first[at], judged.cutoff_ms[at]
    made["messages"] = seen.sums(np.where(goes, items["end"] - items["start"], 0))[at]
    made["bytes"] = seen.sums(np.where(goes, items["flat_end"] - items["first_flat_offset"], 0))[at]
    made["runs"], made["closed_parts"] = seen.sums(goes)[at], seen.sums(touched & ~live)[at]
    made["newest_ms"] = seen.newest[(seen.first_item + count - 1)[at]]
    made["kept_by"] = -1
    stopped = stays[at]
    for number, one in reversed(list(enumerate(held))):
        made["kept_by"][(stopped >= 0) & (one & ripe)[stopped]] = number
    return made, at


def _first_offsets(seen: Histories, stays: Ints) -> Ints:
    """Where each generation begins when everything before item ``stays``, or all (-1), may go; never inside a live run."""
    items, row = seen.items, seen.row
    ends = np.maximum.reduceat(items["end"], seen.first_item)
    highest = seen.generations["max_offset"].copy()
    highest[~seen.current] = np.maximum(highest, ends)[~seen.current]
    some = stays >= 0
    first = np.where(some, items["start"][stays], highest)
    across = seen.live & some[row] & (items["start"] < first[row]) & (items["end"] > first[row])
    inside = seen.first_of(across)  # a closed part that stays begins inside it
    first = np.where(inside >= 0, items["start"][inside], first)
    found: Ints = np.minimum(first, highest)
    return found
