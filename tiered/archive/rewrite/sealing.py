"""Segments made of the runs of a job: their records, window by window; what belongs to other days is written anew.

This needs a store to read from and a place for the file, neither log nor fold: its caller commits what is made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.sealplan import TopicDay
from tiered.archive.rewrite.sources import Gathered, Sources, UnevenCut
from tiered.archive.rewrite.writing import Layout, Rewritten, SourceRecords, place_of, rewrite
from tiered.codec.arrow import share_allocator
from tiered.codec.segment.cutting import RunPart
from tiered.codec.segment.writer import SealedSegment, SegmentWriter
from tiered.codec.types import Buffer, Ints

ROW_BYTES = 96
"""What a row takes in memory while its window is read and waits."""
LEAST_SHARE = 0.25
"""Blocks are not taken to be compressed better than so: those behind may be worse."""


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """``segment_bytes``: a file ends with the run that reaches this length. ``window_bytes``: of rows and stored blocks read at
    once. ``rest_bytes``: a file also ends where it leaves so many bytes of records to other days. ``rest``: how these are
    written. ``row_group_bytes``, ``band_bytes``: of records, before compression."""

    segment_bytes: int
    window_bytes: int
    rest_bytes: int
    rest: Layout
    row_group_bytes: int
    band_bytes: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Queue offsets [start, end) of run ``source`` of a job, whose messages are of another day; flat offsets likewise."""

    source: int
    start: int
    end: int
    flat_start: int
    flat_end: int


@dataclass(frozen=True, slots=True)
class MadeSegment:
    """What became of the first ``used`` runs of a job. ``sealed``: ``None`` where none of them has a message of the day."""

    used: int
    sealed: SealedSegment | None
    rests: tuple[Rest, ...]


@dataclass(slots=True)
class _Progress:
    """How far a file is. ``reached``: queue, generation, queue offset and flat offset where its last run ends."""

    written: int = 0
    rest_bytes: int = 0
    used: int = 0
    reached: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Window:
    """Runs [first, end) of a job: their rows, and their records, which lie back to back between ``edges``."""

    first: int
    end: int
    gathered: Gathered
    edges: Ints
    records: SourceRecords


class SegmentMaker:
    """Makes one segment of a job."""

    def __init__(
        self, job: Job, what: TopicDay, sources: Sources, shape: SegmentShape, pause: Callable[[], None]
    ) -> None:
        """``pause`` is called between windows."""
        share_allocator()  # columns are made by one thread and let go of by another
        self._job, self._what, self._sources, self._shape, self._pause = job, what, sources, shape, pause
        self._rests: list[Rest] = []
        self._progress = _Progress()
        self._stored_share = 1.0  # of the bytes of records

    def make(
        self,
        *,
        archive_id: bytes,
        object_id: bytes,
        write: Callable[[Buffer], None],
        nullable: Collection[str],
    ) -> MadeSegment:
        """Give the bytes of the file to ``write``, in order; ``nullable`` as of ``SegmentWriter``. ``Corrupt`` and ``NotFound``
        name the object that cannot be read, ``UnevenCut`` the runs; ``Refused`` if records cannot be proven, ``LateNulls`` as
        of the writer: in any case nothing was made."""
        with (
            ThreadPoolExecutor(1, thread_name_prefix="write") as beside,
            closing(self._gathered()) as windows,
        ):
            writer = SegmentWriter(
                self._what.topic, archive_id=archive_id, object_id=object_id,
                row_group_bytes=self._shape.row_group_bytes, band_bytes=self._shape.band_bytes, beside=beside,
                nullable=nullable,
            )  # fmt: skip
            for window in windows:
                for part in self._parts(window):
                    for piece in writer.add(part):
                        self._progress.written += len(piece)
                        write(piece)
                self._pause()
                if self._full():
                    break
            if self._progress.reached is None:
                return MadeSegment(self._progress.used, None, tuple(self._rests))
            for piece in writer.close():
                write(piece)
        return MadeSegment(self._progress.used, writer.sealed, tuple(self._rests))

    def _gathered(self) -> Generator[_Window]:
        """The windows, each read while the one before it is opened, proven and written."""
        places = self._windows()
        with ThreadPoolExecutor(1, thread_name_prefix="seal") as pool:
            following: Future[_Window] | None = pool.submit(self._gather, *next(places))
            while following is not None:
                window = following.result()
                stored = sum(len(piece.stored) for piece in window.gathered.pieces)
                self._stored_share = max(LEAST_SHARE, stored / int(window.edges[-1]))
                place = next(places, None)
                following = None if place is None else pool.submit(self._gather, *place)
                yield window

    def _gather(self, first: int, end: int) -> _Window:
        try:
            gathered = self._sources.gather_for_segment(self._job.part(first, end))
        except UnevenCut as uneven:
            raise UnevenCut(uneven.runs + first) from uneven
        edges = np.append(0, np.cumsum(gathered.rows["size"], dtype=np.int64))
        return _Window(first, end, gathered, edges, SourceRecords(gathered, edges))

    def _windows(self) -> Iterator[tuple[int, int]]:
        """Consecutive runs, one at least, that take about ``window_bytes``: their rows, and their blocks, which are taken to be
        compressed like those of the last window that was read."""
        runs = self._job.runs
        raw, rows = runs["flat_end"] - runs["first_flat_offset"], runs["rows"].astype(np.int64)
        first = 0
        while first < len(runs):
            sizes = np.cumsum(raw[first:] * self._stored_share + rows[first:] * ROW_BYTES)
            end = first + max(1, int(np.searchsorted(sizes, self._shape.window_bytes, "right")))
            yield first, end
            first = end

    def _full(self) -> bool:
        at = self._progress
        return at.written >= self._shape.segment_bytes or at.rest_bytes >= self._shape.rest_bytes

    def _parts(self, window: _Window) -> Iterator[RunPart]:
        """The parts that are of the day, of the window's runs up to where the file is full."""
        first, end, gathered, edges = window.first, window.end, window.gathered, window.edges
        rows, source = gathered.rows, gathered.source
        ours = self._what.holds(rows["store_timestamp"])
        cuts = np.flatnonzero((np.diff(source, prepend=-1) != 0) | np.diff(ours, prepend=ours[:1]))
        begins = np.searchsorted(source, np.arange(end - first))  # every run has live rows
        before = -1
        for a, b in zip(cuts.tolist(), [*cuts[1:].tolist(), len(rows)], strict=True):
            number = int(source[a])
            if number != before and self._full():
                self._progress.used = first + number
                return
            before, run = number, self._job.runs[first + number]
            goes_on = b < len(rows) and int(source[b]) == number
            end_offset = int(gathered.queue_offset[b]) if goes_on else int(run["end"])
            flat = int(run["first_flat_offset"] + gathered.skipped[number] + edges[a] - edges[begins[number]])
            size = int(edges[b] - edges[a])
            if not ours[a]:
                start = int(gathered.queue_offset[a])
                self._rests.append(Rest(first + number, start, end_offset, flat, flat + size))
                self._progress.rest_bytes += size
            else:
                yield self._part(window, (a, b), first + number, end_offset, flat)
        self._progress.used = end

    def _part(
        self, window: _Window, rows: tuple[int, int], number: int, end_offset: int, flat: int
    ) -> RunPart:
        gathered, edges, (first, end) = window.gathered, window.edges, rows
        queue, generation = place_of(self._job.keys[number])
        offsets = gathered.queue_offset[first:end]
        place = (queue.queue_id, generation)
        begins = self._progress.reached != (*place, int(offsets[0]), flat)
        self._progress.reached = (*place, end_offset, flat + int(edges[end] - edges[first]))
        return RunPart(
            *place, window.records, edges[first : end + 1], offsets, end_offset, flat, gathered.commit_seq[first:end], begins
        )  # fmt: skip


def rewrite_rests(
    job: Job, rests: tuple[Rest, ...], sources: Sources, layout: Layout, pause: Callable[[], None]
) -> Rewritten:
    """An object of level 1 of what is left to other days."""
    numbers = [rest.source for rest in rests]
    runs = job.runs[numbers]
    for name, values in (
        ("start", [rest.start for rest in rests]),
        ("end", [rest.end for rest in rests]),
        ("flat_end", [rest.flat_end for rest in rests]),
    ):
        runs[name] = values
    places = [place_of(job.keys[number]) for number in numbers]
    goes_on = [
        places[i] == places[i - 1]
        and (rests[i - 1].end, rests[i - 1].flat_end) == (rests[i].start, rests[i].flat_start)
        for i in range(1, len(rests))
    ]
    left = Job(
        tuple(job.keys[number] for number in numbers),
        tuple(job.values[number] for number in numbers),
        runs,
        np.append(0, np.cumsum(~np.array(goes_on, np.bool_))),
        job.objects_of(runs),
    )
    return rewrite(left, sources.gather(left), layout, pause)
