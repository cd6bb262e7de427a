"""Records of damaged objects, found in the broker's commitlog: its files, or the held links of those that it deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tiered.archive.rewrite.regather import RunRecords
from tiered.archive.state.values import RunState
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Stop, scan
from tiered.codec.record.layout import SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION
from tiered.codec.types import Bools, Buffer, Ints
from tiered.errors import NotFound
from tiered.model import OFF_QUEUE_TOPIC, PhysicalOffset
from tiered.settings import MIB
from tiered.source.base import Copies, LogFiles

WINDOW_BYTES = 8 * MIB
ORIGIN = "the broker's commitlog"


class LocalLog(Copies, LogFiles, Protocol):
    """The bytes of a commitlog, and its files."""


@dataclass(slots=True)
class _Found:
    """Records of one run that were met so far."""

    pieces: list[bytes] = field(default_factory=list)
    sizes: list[Ints] = field(default_factory=list)
    offsets: list[Ints] = field(default_factory=list)


class LocalRecords:
    """What a broker's commitlog has of runs. Of one thread; the log may be read by others meanwhile."""

    def __init__(self, log: LocalLog, max_record_bytes: int) -> None:
        self._log = log
        self._max_record_bytes = max_record_bytes

    def records(self, runs: Sequence[RunState], spend: Callable[[int], None]) -> list[RunRecords | None]:
        """The live records of each run; ``None`` where the log does not have all of them. Bytes are copied a window at a time,
        and those between two runs only where the runs lie within each other."""
        found = [_Found() for _ in runs]
        for low, high in _united(runs):
            for batch, data in self._batches(low, high, spend):
                for number, run in enumerate(runs):
                    if run.physical_start < high and run.physical_end > low:
                        _take(found[number], run, batch, data)
        return list(map(_records, runs, found))

    def has(self, run: RunState) -> bool:
        """Whether there is a file where the run's first record lies."""
        return self._log.file_start(PhysicalOffset(run.physical_start)) is not None

    def _batches(
        self, low: int, high: int, spend: Callable[[int], None]
    ) -> Iterator[tuple[MessageBatch, Buffer]]:
        """Records of a physical range, a window at a time, as far as they can be read."""
        at = low
        while at < high:
            base = self._log.file_start(PhysicalOffset(at))
            file = next((f for f in self._log.files() if f.base == base), None)
            if file is None:
                return
            window = WINDOW_BYTES
            while True:
                end = min(at + window, high, file.end)
                spend(end - at)
                try:
                    data = self._log.copy(PhysicalOffset(at), PhysicalOffset(end))
                except NotFound:
                    return
                frames = scan(data, base=at, max_record_bytes=self._max_record_bytes)
                if len(frames) or frames.stop is not Stop.PARTIAL or end in (high, file.end):
                    break
                window *= 2
            good, batch = verify_headers(data, frames, at)
            if len(good):
                yield batch, data
            if len(good) < len(frames):
                return
            if frames.stop is Stop.BLANK or (end == file.end and frames.stop is not Stop.PARTIAL):
                at = file.end
            elif not len(frames):
                return
            else:
                at += frames.end


def _united(runs: Sequence[RunState]) -> Iterator[tuple[int, int]]:
    """The physical ranges of runs, ascending, those that meet as one."""
    low = high = -1
    for start, end in sorted((run.physical_start, run.physical_end) for run in runs):
        if start > high:
            if low >= 0:
                yield low, high
            low, high = start, end
        high = max(high, end)
    if low >= 0:
        yield low, high


def _take(found: _Found, run: RunState, batch: MessageBatch, data: Buffer) -> None:
    headers = batch.headers
    at = headers["physical_offset"]
    kind = headers["sys_flag"] & SYS_TRANSACTION
    off: Bools = (kind == SYS_PREPARED) | (kind == SYS_ROLLBACK)
    mine: Bools = (at >= run.physical_start) & (at < run.physical_end)
    if run.queue.topic == OFF_QUEUE_TOPIC:
        mine &= off
    elif run.queue.topic in batch.topics:
        topic = batch.topics.index(run.queue.topic)
        mine &= ~off & (headers["topic_index"] == topic) & (headers["queue_id"] == run.queue.queue_id)
    else:
        return
    rows = np.flatnonzero(mine)
    view = memoryview(data)
    positions, sizes = headers["position"][rows].tolist(), headers["size"][rows].tolist()
    found.pieces += [bytes(view[p : p + size]) for p, size in zip(positions, sizes, strict=True)]
    found.sizes.append(headers["size"][rows].astype(np.int64))
    found.offsets.append(headers["queue_offset"][rows].astype(np.int64))


def _records(run: RunState, found: _Found) -> RunRecords | None:
    """The live part of what was met; ``None`` unless all of it was."""
    if not found.pieces:
        return None
    sizes, offsets = np.concatenate(found.sizes), np.concatenate(found.offsets)
    if run.queue.topic == OFF_QUEUE_TOPIC:  # numbered by the archive
        cut_at_its_end = run.start == run.first_queue_offset and len(sizes) == run.end - run.start
        if len(sizes) != run.rows and not cut_at_its_end:
            return None
        offsets = run.first_queue_offset + np.arange(len(sizes))
    size = run.flat_end - run.first_flat_offset
    if run.end == run.end_offset and (len(sizes) != run.rows or int(sizes.sum()) != size):
        return None  # of a trimmed run, too, all of it is compared
    live = np.flatnonzero((offsets >= run.start) & (offsets < run.end))
    if not len(live) or (run.dense and len(live) != run.end - run.start):
        return None
    data = b"".join(found.pieces[i] for i in live.tolist())
    return RunRecords(data, sizes[live], offsets[live], None, ORIGIN)
