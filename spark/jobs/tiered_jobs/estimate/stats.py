"""What an archive is made of: from its fold and a bounded listing; no object is opened.

Blocks lie at the beginning of an object and its tables behind them: the fold, which knows where tables are, knows both sizes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import Area, CommitKey, split_key
from tiered.archive.state.keys import RUN
from tiered.archive.state.layout import NO_TIME_HIGH, NO_TIME_LOW, RUN_RECORD_DTYPE
from tiered.archive.state.tallies import records
from tiered.codec.types import Ints
from tiered.settings.option import ONE_DAY_MS
from tiered_jobs.estimate.model import Lengths, Load
from tiered_spark.groups import GROUP_BYTES
from tiered_spark.snapshot import Snapshot

LISTED = 1000
"""Keys of one listing."""

WINDOWS = 100
"""Listings over the log at most: more commits than these hold are sampled evenly."""


@dataclass(frozen=True, slots=True)
class ArchiveStats:
    """Of one archive or several. Bytes: ``raw`` of live records, ``blocks`` as stored, ``tables`` of objects, ``checkpoints``
    with their shards. ``scan_gets``: requests to read every record once. ``data``: length of every object; ``commits``: of
    listed commits, one in ``commit_weight`` of all. Spans in ms: of store times, and from the first commit to the last."""

    messages: int
    raw: int
    blocks: int
    tables: int
    scan_gets: int
    data: Lengths
    commits: Lengths
    commit_weight: float
    checkpoint_objects: int
    checkpoints: int
    message_span: int
    commit_span: int

    @property
    def commit_count(self) -> int:
        """Commits in all."""
        return round(len(self.commits) * self.commit_weight)

    @property
    def stored(self) -> float:
        """Bytes in the bucket."""
        return float(self.data.sum() + self.commits.sum() * self.commit_weight + self.checkpoints)


def live_bytes(runs: npt.NDArray[np.void]) -> Ints:
    """Of the records of each run that can be read."""
    found: Ints = runs["flat_end"] - runs["first_flat_offset"]
    return found


def stats_of(snapshot: Snapshot) -> ArchiveStats:
    """Of one archive."""
    runs = _of_runs(snapshot)
    lengths, blocks, tables = array("d"), 0, 0
    for item in snapshot.view.state.objects():
        first = min(
            (position for position, length, _ in item.sections.values() if length), default=item.length
        )
        blocks += first
        tables += item.length - first
        if item.path:
            lengths.append(item.length)
    commits, weight, commit_span = _log(snapshot)
    checkpoints = _checkpoints(snapshot)
    return ArchiveStats(
        runs.messages, runs.raw, blocks, tables, runs.scan_gets, np.array(lengths, np.float64), commits, weight,
        len(checkpoints), sum(checkpoints), runs.message_span, commit_span,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _LiveRuns:
    """What all live runs say together; fields as of ``ArchiveStats``."""

    messages: int
    raw: int
    scan_gets: int
    message_span: int


def _of_runs(snapshot: Snapshot) -> _LiveRuns:
    """One walk, as arrays."""
    messages, low, high = 0, NO_TIME_LOW, NO_TIME_HIGH
    objects, bytes_of = [np.zeros(0, _OBJECT)], [np.zeros(0, np.int64)]
    for _, runs in records(snapshot.view.state.view, RUN, RUN_RECORD_DTYPE):
        messages += int((runs["end"] - runs["start"]).sum())
        low, high = min(low, int(runs["min_store_time"].min())), max(high, int(runs["max_store_time"].max()))
        places = np.empty(len(runs), _OBJECT)
        places["seq"], places["number"] = runs["commit_seq"], runs["object"]
        found, sums = _summed(places, live_bytes(runs))
        objects.append(found)
        bytes_of.append(sums)
    _, raw = _summed(np.concatenate(objects), np.concatenate(bytes_of))
    gets = int((1 - (-raw // GROUP_BYTES)).sum())
    return _LiveRuns(messages, int(raw.sum()), gets, high - low if messages else 0)


_OBJECT = np.dtype([("seq", "<i8"), ("number", "<i4")])


def _summed(places: npt.NDArray[np.void], amounts: Ints) -> tuple[npt.NDArray[np.void], Ints]:
    """Each place once, and what its amounts are together."""
    found, mine = np.unique(places, return_inverse=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, mine, amounts)
    return found, sums


def load_of(stats: ArchiveStats) -> Load:
    """A day of an archive as it was measured. Bytes come in the span of store times; requests in that or the log's own, the
    longer: an archive may have been filled long after its messages were stored, and its log outlives what retention took."""
    bytes_a_day = ONE_DAY_MS / max(1, stats.message_span or stats.commit_span)
    writes_a_day = ONE_DAY_MS / max(1, stats.message_span, stats.commit_span)
    puts = len(stats.data) + stats.commit_count + stats.checkpoint_objects
    return Load(
        raw=stats.raw * bytes_a_day, blocks=stats.blocks * bytes_a_day, tables=stats.tables * bytes_a_day,
        puts=puts * writes_a_day, gets=stats.scan_gets * bytes_a_day, data=stats.data, data_a_day=bytes_a_day,
        commits=stats.commits, commits_a_day=stats.commit_weight * writes_a_day, standing=float(stats.checkpoints),
    )  # fmt: skip


def scaled(load: Load, bytes_a_day: float) -> Load:
    """The same archive with another amount of records a day; objects and requests in proportion."""
    by = bytes_a_day / load.raw
    return replace(
        load, raw=bytes_a_day, blocks=load.blocks * by, tables=load.tables * by, puts=load.puts * by, gets=load.gets * by,
        data_a_day=load.data_a_day * by, commits_a_day=load.commits_a_day * by,
    )  # fmt: skip


def _log(snapshot: Snapshot) -> tuple[Lengths, float, int]:
    """Lengths of commits, how many each stands for, and ms from the first to the last."""
    keys, reader = snapshot.view.keys, snapshot.view.log
    head = snapshot.view.head
    floor = 0 if head is None else head.floor
    count = snapshot.commit - floor + 1
    windows = min(WINDOWS, -(-count // LISTED))
    starts = np.linspace(floor, max(floor, snapshot.commit - LISTED + 1), windows).astype(np.int64)
    found: dict[int, tuple[int, int]] = {}
    for start in starts.tolist() if count > WINDOWS * LISTED else [floor]:
        limit = LISTED if count > WINDOWS * LISTED else count
        after = keys.commit(start - 1) if start > 0 else None
        for item in reader.provider.list(keys.commit_prefix, start_after=after, limit=limit):
            seq = _commit_number(item.key)
            if seq is not None and floor <= seq <= snapshot.commit:
                found[seq] = (item.length, item.last_modified_ms)
    if not found:
        return np.zeros(0), 1.0, 0
    times = [modified for _, modified in found.values()]
    lengths = np.array([length for length, _ in found.values()], np.float64)
    return lengths, count / len(found), max(times) - min(times)


def _commit_number(key: str) -> int | None:
    parts = split_key(key)
    return parts[2].seq if parts is not None and isinstance(parts[2], CommitKey) else None


def _checkpoints(snapshot: Snapshot) -> list[int]:
    """Lengths of checkpoints and their shards, as many as one listing of each holds times ``WINDOWS``."""
    keys, provider = snapshot.view.keys, snapshot.view.log.provider
    return [
        item.length
        for prefix in (keys.checkpoint_prefix, keys.prefix(Area.SHARD))
        for item in provider.list(prefix, limit=LISTED * WINDOWS)
    ]
