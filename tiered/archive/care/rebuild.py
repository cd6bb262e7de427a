"""Runs of a damaged object, put together again from wherever their records still are.

Tried in turn: objects that were merged or sealed into it and are not collected yet, the broker's commitlog, another copy of
the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tiered.archive.care.commitlog import LocalRecords
from tiered.archive.log.reader import LogReader
from tiered.archive.read.flatfile import RunReader
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import COALESCE_BYTES
from tiered.archive.rewrite.plan import Job, job_of
from tiered.archive.rewrite.regather import RunRecords, regathered
from tiered.archive.rewrite.sources import Gathered
from tiered.archive.rewrite.writing import place_of
from tiered.archive.state.values import ObjectState, RunState, run_state
from tiered.archive.state.view import ArchiveState
from tiered.codec.record.frame import edges_of
from tiered.codec.types import Ints
from tiered.errors import Corrupt, NotFound
from tiered.model import MessageQueue, RunId
from tiered.provider.base import Provider

_ALL = 1 << 62


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Runs of the damaged object, and everything about them."""

    job: Job
    gathered: Gathered


def rebuilt(
    reader: LogReader,
    state: ArchiveState,
    item: ObjectState,
    most_bytes: int,
    spend: Callable[[int], None],
    local: LocalRecords | None,
    copy: Callable[[], Provider] | None,
) -> Rebuilt | None:
    """As many runs of ``item`` as ``most_bytes`` of records allow, of those whose records are found; ``None`` where none are.
    ``Corrupt`` where what is found is something else."""
    whole = job_of(state, item, _ALL)
    if whole is None:
        return None
    runs = [run_state(*place_of(key), value) for key, value in zip(whole.keys, whole.values, strict=True)]
    work = _Work(reader, state, item, spend, most_bytes)
    for find in (work.in_sources, lambda r: work.in_log(r, local), lambda r: work.in_copy(r, copy)):
        found = find(runs)
        have = [number for number, each in enumerate(found) if each is not None]
        if have:
            missing = np.setdiff1d(np.arange(len(runs)), have)
            job = whole.without(missing) if len(missing) else whole.part(0, len(runs))
            if job is not None:
                records = [each for each in found if each is not None]
                return Rebuilt(job, regathered(job, records))
    return None


@dataclass(frozen=True, slots=True)
class _Work:
    reader: LogReader
    state: ArchiveState
    item: ObjectState
    spend: Callable[[int], None]
    most_bytes: int

    def in_sources(self, runs: Sequence[RunState]) -> list[RunRecords | None]:
        """In objects that nothing refers to any more, of lower levels, by their own directories."""
        if not self.item.level:
            return [None] * len(runs)
        objects = self._objects(self.reader.provider)
        wanted = {(run.queue, run.generation) for run in runs}
        older: dict[tuple[MessageQueue, int], list[RunState]] = {}
        for old in self.state.objects():
            if not old.references and old.level < self.item.level:
                for run in _directory_runs(objects, old):
                    if (run.queue, run.generation) in wanted:
                        older.setdefault((run.queue, run.generation), []).append(run)
        read = RunReader(self.state, objects)
        return self._bounded(
            runs, lambda run: self._covering(read, run, older.get((run.queue, run.generation), []))
        )

    def in_log(self, runs: Sequence[RunState], local: LocalRecords | None) -> list[RunRecords | None]:
        """In the broker's commitlog: what is live, of the lineage in force, since that is the log that was compared."""
        head = self.state.head()
        if local is None or head is None:
            return [None] * len(runs)
        chosen: list[int] = []
        left = self.most_bytes
        for number, run in enumerate(runs):
            weight = run.flat_end - run.first_flat_offset
            if run.closed_by is None and run.lineage == head.lineage and local.has(run):
                if chosen and left < weight:
                    break
                chosen.append(number)
                left -= weight
        found: list[RunRecords | None] = [None] * len(runs)
        known = RunReader(self.state, self._objects(self.reader.provider))
        for number, each in zip(chosen, local.records([runs[n] for n in chosen], self.spend), strict=True):
            if each is not None:
                found[number] = self._with_commits(known, runs[number], each)
        return found

    def in_copy(
        self, runs: Sequence[RunState], copy: Callable[[], Provider] | None
    ) -> list[RunRecords | None]:
        """In another copy of the archive, which has the very object."""
        if copy is None:
            return [None] * len(runs)
        read = RunReader(self.state, self._objects(copy()))
        return self._bounded(runs, lambda run: self._covering(read, run, [run]))

    def _bounded(
        self, runs: Sequence[RunState], find: Callable[[RunState], RunRecords | None]
    ) -> list[RunRecords | None]:
        """What is found of each run, until it is enough for one object."""
        found: list[RunRecords | None] = []
        left = self.most_bytes
        for run in runs:
            each = find(run) if left > 0 else None
            left -= 0 if each is None else len(each.data)
            found.append(each)
        return found

    def _covering(self, read: RunReader, run: RunState, stored: Sequence[RunState]) -> RunRecords | None:
        """The live records of a run out of those that are stored elsewhere; ``None`` if some are not, or cannot be read."""
        data: list[bytes] = []
        sizes: list[Ints] = []
        offsets: list[Ints] = []
        commits: list[Ints] = []
        at = run.start
        for old in sorted(stored, key=lambda r: r.start):
            if not old.start <= at < old.end or at >= run.end:
                continue
            try:
                for stretch in read.stretches(old, at, min(old.end, run.end)):
                    self.spend(len(stretch.data))
                    edges = edges_of(stretch.data, len(stretch))
                    if edges is None or int(stretch.queue_offsets[0]) != at:
                        return None
                    data.append(bytes(stretch.data))
                    sizes.append(stretch.sizes)
                    offsets.append(stretch.queue_offsets)
                    commits.append(read.commits_of(old, stretch.queue_offsets))
                    at = int(stretch.next_offset)
            except (Corrupt, NotFound):
                return None
        if at != run.end:
            return None
        return RunRecords(
            b"".join(data), np.concatenate(sizes), np.concatenate(offsets), np.concatenate(commits),
            "another object that has it",
        )  # fmt: skip

    def _with_commits(self, known: RunReader, run: RunState, found: RunRecords) -> RunRecords | None:
        """With the commits of its records, which a damaged object may still say; a level 0 object is of one."""
        try:
            return replace(found, commit_seq=known.commits_of(run, found.offsets))
        except (Corrupt, NotFound):
            return None

    def _objects(self, provider: Provider) -> ObjectReader:
        return ObjectReader(
            provider, self.reader.keys, self.reader.identity.archive_id, cache_bytes=COALESCE_BYTES
        )


def _directory_runs(objects: ObjectReader, old: ObjectState) -> Iterator[RunState]:
    """The runs of an object as its own directory has them; none where that cannot be read."""
    try:
        directory = objects.directory(old)
    except (Corrupt, NotFound):
        return
    for number, row in enumerate(directory.runs):
        first, owned = int(row["first_queue_offset"]), int(row["queue_offsets"])
        flat = int(row["first_flat_offset"])
        yield RunState(
            MessageQueue(directory.topics[row["topic"]], int(row["queue_id"])), int(row["generation"]), 0,
            RunId(old.ref.commit_seq, number), old.ref, first, owned, first, first + owned, int(row["rows"]), flat,
            flat + int(row["bytes"]), int(row["min_store_time"]), int(row["max_store_time"]), int(row["first_row"]),
            int(row["first_block"]), int(row["block_count"]), int(row["physical_start"]), int(row["physical_end"]), None,
        )  # fmt: skip
