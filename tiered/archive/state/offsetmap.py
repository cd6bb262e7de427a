"""Where the messages of a queue lie at a destination that has offsets of its own (DESIGN.md, "Sinks", J8).

A run is a stretch of a queue's messages and the stretch of the destination's offsets that they lie in. It is exact where its
messages follow each other on both sides. As runs get many the older ones become wider ones, whose two ends are still exact and
which say how much else lies in them; the newest stay as they are. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tiered.codec.format.intpack import pack_table, unpack_table
from tiered.codec.types import Bools, Ints
from tiered.errors import Corrupt

MAX_RUNS = 128
"""Of one queue at one sink. What is more becomes half as many."""

COLUMNS = ("skipped", "messages", "left_out", "before", "between")
"""Of the packed table: queue offsets between the run before and this one, messages, queue offsets in the run that are none of
them; offsets of the destination between the run before and this one, and those in it that hold something else."""
_LIMIT = 2**60


class MapPlace(NamedTuple):
    """Where to begin at the destination for a queue offset: at ``low`` nothing is lost. ``low`` is ``high``: exactly there.
    Else the exact place is one of those from ``low`` to ``high``, by the archive alone."""

    low: int
    high: int

    @property
    def exact(self) -> bool:
        """Whether the archive knows it."""
        return self.low == self.high


@dataclass(frozen=True, slots=True, eq=False)
class OffsetMap:
    """Of one queue: all its messages from queue offset ``start`` up to ``end`` that the destination was given lie in the runs,
    in offsets of ``partition`` of ``target``. ``target_id``: the destination's own id of it, so that one that was made anew is
    told apart. The arrays are the runs, ascending on both sides: ``first`` and ``target_offset`` of their first message,
    ``messages``, ``left_out`` and ``between`` as in ``COLUMNS``."""

    start: int
    end: int
    target: str
    target_id: str
    partition: int
    first: Ints
    messages: Ints
    left_out: Ints
    target_offset: Ints
    between: Ints

    def __len__(self) -> int:
        return len(self.first)

    @property
    def ends(self) -> Ints:
        """Behind the last message of each run."""
        return self.first + self.messages + self.left_out

    @property
    def target_ends(self) -> Ints:
        """The same at the destination."""
        return self.target_offset + self.messages + self.between

    def locate(self, offset: int) -> MapPlace | None:
        """Where to begin for this queue offset and all behind it. ``None``: nothing that is known says it, for the offset lies
        before the map, or no message was given yet."""
        if offset < self.start or not len(self):
            return None
        at = int(np.searchsorted(self.ends, offset, side="right"))
        if at == len(self):
            last = int(self.target_ends[-1])
            return MapPlace(last, last)
        first, target = int(self.first[at]), int(self.target_offset[at])
        inside = offset - first
        if inside <= 0:
            return MapPlace(target, target)
        if self.left_out[at]:
            return MapPlace(target + 1, int(self.target_ends[at]))
        return MapPlace(target + inside, target + inside + int(self.between[at]))

    def then(self, later: OffsetMap) -> OffsetMap:
        """This, and behind it what was learned later, which is believed where the two do not fit: a hole between them, or
        another place, begins the map anew."""
        if later.start > self.end:
            return later
        kept = self.cut(later.start)
        if not len(later):
            return replace(kept, end=later.end)
        begins = int(later.target_offset[0])
        if len(kept) and (self._place != later._place or begins <= kept.target_offset[-1]):
            return later
        kept = kept._ending(begins)
        if not len(kept):
            return replace(later, start=kept.start)
        columns: dict[str, Any] = {n: np.concatenate((getattr(kept, n), getattr(later, n))) for n in _ARRAYS}
        return replace(later, start=kept.start, **columns)._joined().coarser(MAX_RUNS)

    def cut(self, offset: int) -> OffsetMap:
        """What is known below a queue offset. A run across it that is not exact has at most the messages that it says."""
        if offset >= self.end:
            return self
        kept = self._rows(self.first < offset)
        over = kept.ends - offset
        if len(kept) and over[-1] > 0:
            messages, left_out, between = kept.messages.copy(), kept.left_out.copy(), kept.between.copy()
            length = offset - int(kept.first[-1])
            exact = not left_out[-1] and not between[-1]
            most = (
                length if not left_out[-1] else max(1, length - 1)
            )  # with a hole it keeps one: nobody knows where
            messages[-1] = min(int(messages[-1]), most)
            left_out[-1] = length - messages[-1]
            if not exact:
                between[-1] = kept.target_ends[-1] - kept.target_offset[-1] - messages[-1]
            kept = replace(kept, messages=messages, left_out=left_out, between=between)
        return replace(kept, start=min(kept.start, offset), end=offset)

    def trimmed(self, first: int) -> OffsetMap:
        """Without runs that lie wholly below the first offset that is still kept."""
        if first <= self.start:
            return self
        kept = self._rows(self.ends > first)
        return replace(kept, start=min(first, self.end, *kept.first[:1].tolist()))

    def coarser(self, limit: int) -> OffsetMap:
        """This in at most ``limit`` runs: half of them if there are more, the newest of these as they are, and the older ones
        made of as many each. So a run that was made wider once becomes still wider with age."""
        count = len(self)
        if count <= limit:
            return self
        newest = limit // 4
        groups = max(1, limit // 2 - newest)
        old = count - newest
        starts = np.concatenate((np.arange(groups) * old // groups, np.arange(old, count)))
        return self._grouped(starts)

    def pack(self) -> tuple[int, bytes]:
        """The destination's offset of the first message (0 if there is none), and the runs, packed."""
        ends, target_ends = self.ends, self.target_ends
        base = int(self.target_offset[0]) if len(self) else 0
        columns = {
            "skipped": self.first - np.concatenate(([self.start], ends[:-1]))[: len(self)],
            "messages": self.messages,
            "left_out": self.left_out,
            "before": self.target_offset - np.concatenate(([base], target_ends[:-1]))[: len(self)],
            "between": self.between,
        }
        return base, pack_table({name: columns[name] for name in COLUMNS})

    @classmethod
    def of(
        cls,
        start: int,
        end: int,
        target: str,
        target_id: str,
        partition: int,
        base: int,
        runs: bytes,
        *,
        key: str,
    ) -> OffsetMap:
        """Inverse of ``pack``. ``Corrupt`` if the runs make no sense: lengths, signs, order, bounds."""
        columns, behind = unpack_table(runs, COLUMNS, key=key, position=None)
        rows = len(columns["messages"])
        sound = not len(behind) and rows <= MAX_RUNS and 0 <= start <= end <= _LIMIT and 0 <= base <= _LIMIT
        for name in COLUMNS if sound else ():
            column, least = columns[name], 1 if name == "messages" else 0
            sound &= not rows or (
                int(column.min()) >= least and int(column.max()) <= _LIMIT // (4 * MAX_RUNS)
            )
        if not sound:
            raise Corrupt(
                "the runs of a sink's map make no sense", key=key, found=f"{rows} runs from {start} to {end}"
            )
        length = columns["messages"] + columns["left_out"]
        width = columns["messages"] + columns["between"]
        first = start + np.cumsum(columns["skipped"]) + np.concatenate(([0], np.cumsum(length)[:-1]))[:rows]
        offset = base + np.cumsum(columns["before"]) + np.concatenate(([0], np.cumsum(width)[:-1]))[:rows]
        made = cls(
            start, end, target, target_id, partition, first, columns["messages"], columns["left_out"], offset,
            columns["between"],
        )  # fmt: skip
        if rows and int(made.ends[-1]) > end:
            raise Corrupt(
                "a sink's map ends before its runs", key=key, expected=f"≤ {end}", found=int(made.ends[-1])
            )
        return made

    def _ending(self, target: int) -> OffsetMap:
        """With a last run that ends at this offset of the destination at the latest: the one across a cut ends somewhere before
        what came behind the cut, which was not known of it."""
        if not len(self) or self.target_ends[-1] <= target:
            return self
        messages, left_out, between = self.messages.copy(), self.left_out.copy(), self.between.copy()
        width = target - int(self.target_offset[-1])
        messages[-1] = min(int(messages[-1]), width)
        left_out[-1] = self.ends[-1] - self.first[-1] - messages[-1]
        between[-1] = width - messages[-1]
        return replace(self, messages=messages, left_out=left_out, between=between)

    @property
    def _place(self) -> tuple[str, str, int]:
        return self.target, self.target_id, self.partition

    def _joined(self) -> OffsetMap:
        """Exact runs that follow each other on both sides, as one."""
        exact = (self.left_out == 0) & (self.between == 0)
        goes_on = (self.ends[:-1] == self.first[1:]) & (self.target_ends[:-1] == self.target_offset[1:])
        goes_on &= exact[:-1] & exact[1:]
        return self._grouped(np.flatnonzero(np.concatenate(([True], ~goes_on)))) if goes_on.any() else self

    def _grouped(self, starts: Ints) -> OffsetMap:
        """Runs from each of these row numbers up to the next, as one."""
        last = np.append(starts[1:], len(self)) - 1
        first, offset = self.first[starts], self.target_offset[starts]
        messages: Ints = np.add.reduceat(self.messages, starts)
        left_out = self.ends[last] - first - messages
        between = self.target_ends[last] - offset - messages
        return replace(
            self, first=first, messages=messages, left_out=left_out, target_offset=offset, between=between
        )

    def _rows(self, chosen: Bools) -> OffsetMap:
        return replace(self, **{name: getattr(self, name)[chosen] for name in _ARRAYS})


_ARRAYS = ("first", "messages", "left_out", "target_offset", "between")


def map_of_runs(
    start: int, end: int, target: str, target_id: str, partition: int, runs: Mapping[str, Any]
) -> OffsetMap:
    """A map of columns (``_ARRAYS``; without ``left_out`` and ``between``: exact runs), within its bounds of size."""
    first = np.asarray(runs["first"], np.int64)
    none = np.zeros(len(first), np.int64)
    made = OffsetMap(
        start, end, target, target_id, partition, first, np.asarray(runs["messages"], np.int64),
        np.asarray(runs.get("left_out", none), np.int64), np.asarray(runs["target_offset"], np.int64),
        np.asarray(runs.get("between", none), np.int64),
    )  # fmt: skip
    return (made._joined() if len(first) else made).coarser(MAX_RUNS)


def nothing_given(start: int, end: int) -> OffsetMap:
    """That between two offsets of a queue the destination was given nothing."""
    return map_of_runs(start, end, "", "", 0, {"first": [], "messages": [], "target_offset": []})
