"""Many runs of a fold as one table, of which plans are made. No object is made for a run until one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import compress, islice, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import QUEUE, RUN
from tiered.archive.state.layout import RUN_RECORD_DTYPE, damaged, table
from tiered.archive.state.values import RunState, run_state
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Ints
from tiered.model import ObjectRef
from tiered_spark.choice import Choice
from tiered_spark.queues import CHUNK, Queues, gathered, put_since, read_queues

APART = 64
"""Of so many queues between two chosen ones the runs are passed over rather than looked for a second time."""

_SLICE = np.dtype((np.void, RUN_RECORD_DTYPE.itemsize // 5))
"""What of all records is in memory twice while they are sorted."""
_INDEX_BITS = 20
"""Of an object's place in its commit: a commit holds no more edits."""
_OFFSET_BYTES = 8
_GENERATION_BYTES = 4 + _OFFSET_BYTES
_BEHIND = b"\xff" * (_OFFSET_BYTES + 1)
"""Behind the offset of any run."""


@dataclass(frozen=True, slots=True)
class RunTable:
    """Runs: of each its queue (an index of ``queues``) and its record (``RUN_RECORD_DTYPE``)."""

    queues: Queues
    queue: Ints
    records: npt.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[RunState]:
        used, mine = np.unique(self.queue, return_inverse=True)
        q = self.queues.only(used)
        names, generations = q.names(), q.generation.tolist()
        for queue, record in zip(mine.tolist(), self.records, strict=True):
            yield run_state(names[queue], generations[queue], record.tobytes())

    @property
    def sizes(self) -> Ints:
        """Bytes of the live records of each."""
        found: Ints = self.records["flat_end"] - self.records["first_flat_offset"]
        return found

    @property
    def messages(self) -> Ints:
        """Queue offsets that are alive in each."""
        found: Ints = self.records["end"] - self.records["start"]
        return found

    def only(self, rows: npt.NDArray[Any]) -> RunTable:
        """Some of them, with all queues."""
        if rows.dtype == np.bool_ and rows.all():
            return self
        return replace(self, queue=self.queue[rows], records=self.records[rows])

    def sort(self, order: Ints) -> None:
        """Put them in this order, every row once, where they lie: there are never two of all."""
        if not len(self):
            return  # of no rows numpy cannot tell how wide they are
        slices = self.records.view(_SLICE).reshape(len(self), -1)
        for column in range(slices.shape[1]):
            slices[:, column] = slices[order, column]
        self.queue[:] = self.queue[order]

    def part(self, first: int, end: int) -> RunTable:
        """Rows [first, end), not copied, with all queues."""
        return replace(self, queue=self.queue[first:end], records=self.records[first:end])

    def compact(self) -> RunTable:
        """The same with none but their own queues."""
        used, queue = np.unique(self.queue, return_inverse=True)
        return RunTable(self.queues.only(used), queue, self.records)


def read_runs(state: ArchiveState, choice: Choice, after: int = -1) -> RunTable:
    """Live runs of the queues chosen, of their current generations, by queue and offset; these queues with runs or without.
    ``after``: only runs that later commits made. Of other queues' runs at most those between neighbours are looked at."""
    walked = read_queues(state, choice, "runs")
    queues, room = walked.queues, int(walked.columns["runs"].sum())
    queue, records, filled = np.empty(room, np.int64), np.empty(room, RUN_RECORD_DTYPE), 0
    for rows in walked.stretches(APART):
        keys = queues.only(rows).keys()
        rank = dict(zip(keys, range(rows.start, rows.stop), strict=True))
        end = RUN + keys[-1] + _BEHIND
        prefix = RUN + _common(keys[0], keys[-1])
        pairs = takewhile(lambda pair: pair[0] < end, state.view.iterate(prefix, start=RUN + keys[0]))  # noqa: B023
        while chunk := list(islice(pairs, CHUNK)):
            found = np.array([rank.get(key[1:-_OFFSET_BYTES], -1) for key, _ in chunk], np.int64)
            some = table([value for _, value in chunk], RUN_RECORD_DTYPE)
            current = (found >= 0) & (some["commit_seq"] > after)
            upto = filled + int(current.sum())
            if upto > len(queue):
                raise damaged("the number of a queue's runs", expected=f"{room} runs", found="more")
            queue[filled:upto] = found[current]
            records[filled:upto] = some[current]
            filled = upto
    return RunTable(queues, queue[:filled], records[:filled])


def newer_runs(state: ArchiveState, choice: Choice, after: int) -> RunTable:
    """Live runs of the queues chosen that commits behind number ``after`` made, with their queues: by what is laid over the
    checkpoint, or where that is younger by a walk."""
    pairs = put_since(state, RUN, choice, after)
    if pairs is None:
        return read_runs(state, choice, after)
    records = table([value for _, value in pairs], RUN_RECORD_DTYPE)
    newer = records["commit_seq"] > after
    keys = list(compress((key for key, _ in pairs), newer.tolist()))
    heads = [QUEUE + head for head in dict.fromkeys(key[1:-_GENERATION_BYTES] for key in keys)]
    values = zip(heads, state.view.get_many(heads), strict=True)
    queues = gathered([((key, value) for key, value in values if value is not None)], choice).queues
    rank = {key: row for row, key in enumerate(queues.keys())}
    queue = np.array([rank.get(key[1:-_OFFSET_BYTES], -1) for key in keys], np.int64)
    return RunTable(queues, queue[queue >= 0], records[newer][queue >= 0])


def blocks_of(runs: RunTable) -> tuple[Ints, Ints]:
    """Every block of these runs: of which run (an index), and its number in the object."""
    count, first = (runs.records[name].astype(np.int64) for name in ("block_count", "first_block"))
    before = np.cumsum(count) - count
    run_of = np.repeat(np.arange(len(count)), count)
    return run_of, (first - before)[run_of] + np.arange(len(run_of))


def _common(low: bytes, high: bytes) -> bytes:
    """What both begin with."""
    count = next(
        (at for at, (mine, other) in enumerate(zip(low, high, strict=False)) if mine != other), len(low)
    )
    return low[:count]


def objects_of(runs: RunTable) -> tuple[list[ObjectRef], Ints]:
    """Objects that runs lie in, and of each run its object (an index)."""
    code = (runs.records["commit_seq"] << _INDEX_BITS) | runs.records["object"]
    found, mine = np.unique(code, return_inverse=True)
    return [ObjectRef(each >> _INDEX_BITS, each & (1 << _INDEX_BITS) - 1) for each in found.tolist()], mine
