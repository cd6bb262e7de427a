"""One object's bytes against every checksum of them, each byte read once; on request its records against its tables, too.

``tiered verify --deep`` and the scrub look with the same eyes. A walk over an object is cut into steps, a request each, so that
somebody who has little time or few bytes a second can stop between two of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.agreement import queue_of
from tiered.archive.read.blockwindow import BlockWindow, ContentStep, Heard
from tiered.archive.read.coming import Coming
from tiered.archive.read.held import Range
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import COALESCE_BYTES, coalesced, is_segment
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.format.block import BlockTable
from tiered.codec.format.directory import Directory
from tiered.codec.format.object import FOOTER_BYTES
from tiered.codec.format.sections import SectionKind
from tiered.codec.types import Ints
from tiered.errors import Corrupt, Invalid, NotFound, Refused, Unavailable, damage_hint
from tiered.provider.base import Provider

if TYPE_CHECKING:
    from tiered.archive.read.segments import SealedTables

WINDOW_BYTES = COALESCE_BYTES * 3 // 2
"""An object up to this length is read in one request, as those of most flushes are with their tables; of a larger one, the
tables are, up to this."""

_DESCRIBING = (SectionKind.DIRECTORY, SectionKind.COLUMNS, SectionKind.COLUMN_INDEX, SectionKind.DICTIONARY)
"""Sections without which records cannot be compared with anything."""


_Part = ContentStep | Callable[[], Iterable[ContentStep]]
"""A step, or what finds some and asks the store for nothing: another thread may do it."""


class ContentCheck:
    """Checks objects one after the other. ``spend`` hears of bytes before they are asked for; ``records``: compare records with
    their columns, their queue and their own sums, too, and let ``heard`` have them; ``ahead``: requests under way at once, of
    an object and, where it is known, of those behind it. ``passes_over``: what the store does not give of an object is a step's
    ``unseen``, and the next object is looked at; else it is raised.

    Memory: the tables of one object, and ``ahead`` times ``WINDOW_BYTES``; with ``records`` some of these opened.
    """

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        archive_id: bytes,
        *,
        records: bool,
        spend: Callable[[int], None] = lambda byte_count: None,
        ahead: int = 1,
        heard: Heard | None = None,
        passes_over: bool = False,
    ) -> None:
        self._passes_over = passes_over
        self._held = Coming(provider, spend, ahead)
        self._objects = ObjectReader(self._held, keys, archive_id, cache_bytes=COALESCE_BYTES)
        self._records = records
        self._heard = heard if records else None

    def first_range(self, item: ObjectState) -> Range:
        """What is asked for first of an object: all of it, or its tables, or what tells of these."""
        key, tables = self._objects.key_of(item), min(position for position, _, _ in item.sections.values())
        if item.length <= WINDOW_BYTES:
            return key, 0, item.length
        if is_segment(item):
            return key, tables, tables + item.sections[SectionKind.SEGMENT_FOOTER][1]
        return (
            key,
            tables if item.length - tables <= WINDOW_BYTES else item.length - FOOTER_BYTES,
            item.length,
        )

    def expect(self, ranges: Iterator[Range]) -> None:
        """What is to be looked at next, in this order, by what is asked for first of each; or whole, by ``read``."""
        self._held.expect(ranges)

    def read(self, wanted: Range) -> memoryview:
        """The bytes of something small that is no object."""
        self._held.begin(wanted)
        self._held.expect_parts(())
        return self._held.read(*wanted)

    def end(self) -> None:
        """Let go of what was expected."""
        self._held.end()

    def steps(self, item: ObjectState, runs: Sequence[RunState] = ()) -> Iterator[ContentStep]:
        """Look at all of an object, damage after damage. ``runs``: those of the fold that lie in it, compared with its own."""
        key = self._objects.key_of(item)
        try:
            for part in self._parts(item, runs):
                yield from _steps_of(part, key)
        finally:
            self._held.forget(key)

    def each(
        self, objects: Iterable[tuple[ObjectState, Sequence[RunState]]], threads: int
    ) -> Iterator[tuple[ObjectState, Iterable[ContentStep] | None]]:
        """``steps`` of several objects, and ``None`` behind those of each, in order; ``threads`` parts of them are looked at
        at once, beside the thread that asks the store. So many more windows are in memory."""
        waiting: deque[tuple[ObjectState, Future[Iterable[ContentStep]] | Iterable[ContentStep] | None]] = (
            deque()
        )
        under_way = 0  # of these, what a thread looks at: steps that are done take no place

        def first() -> tuple[ObjectState, Iterable[ContentStep] | None]:
            nonlocal under_way
            item, found = waiting.popleft()
            if found is None:
                self._held.forget(self._objects.key_of(item))
            elif isinstance(found, Future):
                under_way -= 1
                found = found.result()
            return item, found

        with ThreadPoolExecutor(threads, "check") as pool:
            for item, runs in objects:
                key = self._objects.key_of(item)
                for part in self._parts(item, runs):
                    if isinstance(part, ContentStep):
                        waiting.append((item, (part,)))
                    else:
                        under_way += 1
                        waiting.append((item, pool.submit(_steps_of, part, key)))
                    while waiting and (under_way > threads or not isinstance(waiting[0][1], Future)):
                        yield first()
                waiting.append((item, None))
            while waiting:
                yield first()

    def _parts(self, item: ObjectState, runs: Sequence[RunState]) -> Iterator[_Part]:
        key, opening = self._objects.key_of(item), self.first_range(item)
        self._held.begin(opening)
        try:
            yield from (self._segment if is_segment(item) else self._object)(item, key, opening, runs)
        except (NotFound, Corrupt) as error:
            yield _damaged(error, key)
        except (Unavailable, Invalid) as error:
            if not self._passes_over or isinstance(error, Refused) or error.fields.get("key") != key:
                raise
            yield ContentStep(unseen=error)

    def _object(
        self, item: ObjectState, key: str, opening: Range, runs: Sequence[RunState]
    ) -> Iterator[_Part]:
        yield ContentStep(bytes=self._hold_tables(item, opening))
        self._objects.check_footer(item)
        bad = set()
        for number, damage in self._objects.damaged_sections(item):
            bad.add(number)
            yield ContentStep(damage=damage)
        if SectionKind.BLOCK_TABLE in bad:
            return
        table = self._objects.block_table(item)
        directory = None
        if self._records and not bad.intersection(_DESCRIBING):
            directory = self._objects.directory(item)
            if SectionKind.KEYS not in bad:
                yield partial(self._keys, item)
            yield from (ContentStep(damage=e) for e in _misplaced(directory, runs, key))
        yield from self._blocks(item, key, table, directory, runs)

    def _keys(self, item: ObjectState) -> tuple[ContentStep, ...]:
        self._objects.check_keys(item)
        return ()

    def _segment(
        self, item: ObjectState, key: str, opening: Range, runs: Sequence[RunState]
    ) -> Iterator[_Part]:
        """A Parquet segment: every page of it is checked, its records by the sums of their runs."""
        at_once = item.length <= WINDOW_BYTES
        if at_once:
            self._held.expect_parts(())
        held = len(self._held.fetch(*opening))
        if at_once:
            yield ContentStep(bytes=held)
        tables = self._objects.sealed(item)
        directory = tables.segment.directory
        try:
            self._objects.segments().check(tables)
        except Corrupt as error:
            yield ContentStep(damage=error)
        if not at_once:
            yield ContentStep(bytes=item.length - int(directory.groups["stored_length"].sum()))
        yield from (ContentStep(damage=e) for e in _misplaced(tables.directory, runs, key))
        pieces = directory.pieces()
        blocks = np.bincount(tables.band_of, minlength=len(directory.bands))
        head = None
        for (first, end), data in self._windows(key, pieces, coalesced(pieces, 0, len(pieces))):
            begin = int(pieces["position"][first])
            for stretch in _stretches(pieces[first:end]):
                stored = data[int(stretch["position"][0]) - begin :]
                if stretch["band"][0] < 0:
                    head = bytes(stored[: int(stretch["stored_length"][0])])
                looked_at = partial(self._looked_at, tables, stretch, stored, head, runs)
                yield partial(self._stretch, tables, stretch, looked_at, blocks, at_once=at_once)

    def _stretch(
        self,
        tables: SealedTables,
        stretch: npt.NDArray[Any],
        looked_at: Callable[[], Iterator[Corrupt | None]],
        blocks: Ints,
        *,
        at_once: bool,
    ) -> Iterator[ContentStep]:
        bands = tables.segment.directory.bands
        for piece, wrong in zip(stretch, looked_at(), strict=True):
            if wrong is not None:
                yield ContentStep(damage=wrong)
            row, count = bands[piece["band"]], int(blocks[piece["band"]])
            found = (count, int(row["rows"]), int(row["bytes"]) if self._records else 0)
            length = 0 if at_once else int(piece["stored_length"])
            yield ContentStep(length, *(found if piece["band"] >= 0 else ()))

    def _looked_at(
        self,
        tables: SealedTables,
        pieces: npt.NDArray[Any],
        stored: memoryview,
        head: bytes | None,
        runs: Sequence[RunState],
    ) -> Iterator[Corrupt | None]:
        """What is wrong with each of neighbouring bands of a row group, or with its head alone. ``stored`` begins with them."""
        segment, first = tables.segment, int(pieces["band"][0])
        if first >= 0 and self._records:
            for found in tables.each_band((first, first + len(pieces)), stored, head):
                if self._heard is not None and not isinstance(found, Corrupt):
                    self._heard(runs, found.buffer[int(found.edges[0]) : int(found.edges[-1])])
                yield found if isinstance(found, Corrupt) else None
            return
        at = 0
        for length, band in pieces[["stored_length", "band"]].tolist():
            mine, at = stored[at : at + length], at + length
            try:
                if band < 0:
                    segment.check_head(int(pieces["row_group"][0]), mine)
                else:
                    segment.check_band(band, mine)
            except Corrupt as error:
                yield error
            else:
                yield None

    def _hold_tables(self, item: ObjectState, opening: Range) -> int:
        """Have everything in memory but the blocks of a large object; how many bytes that were."""
        if item.length <= WINDOW_BYTES:
            self._held.expect_parts(())
        self._held.fetch(*opening)
        for position, length, _ in item.sections.values():
            self._held.fetch(opening[0], position, position + length)
        return item.length - min(opening[1], *(position for position, _, _ in item.sections.values()))

    def _blocks(
        self,
        item: ObjectState,
        key: str,
        table: BlockTable,
        directory: Directory | None,
        runs: Sequence[RunState],
    ) -> Iterator[_Part]:
        rows = np.append(0, np.cumsum(table["rows"], dtype=np.int64))
        heard = None if self._heard is None else partial(self._heard, runs)
        for (first, end), data in self._windows(key, table, coalesced(table, 0, len(table))):
            window = BlockWindow(first, end, table, rows, directory, key)
            read_bytes = 0 if item.length <= WINDOW_BYTES else len(data)
            yield partial(window.steps, self._objects, item, data, read_bytes, heard)

    def _windows(
        self, key: str, table: npt.NDArray[Any], windows: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, int], memoryview]]:
        """Each window and its bytes, which lie between its first and its last row of the table."""
        ranges: list[Range] = []
        for begin, end in windows:
            last = table[end - 1]
            stop = int(last["position"]) + int(last["stored_length"])
            ranges.append((key, int(table["position"][begin]), stop))
        self._held.expect_parts(ranges)
        return zip(windows, starmap(self._held.read, ranges), strict=True)


def _steps_of(part: _Part, key: str) -> Iterable[ContentStep]:
    """A part, done."""
    if isinstance(part, ContentStep):
        return (part,)
    found: list[ContentStep] = []
    try:
        found.extend(part())
    except (NotFound, Corrupt) as error:
        found.append(_damaged(error, key))
    return found


def _damaged(error: NotFound | Corrupt, key: str) -> ContentStep:
    if isinstance(error, NotFound):
        error = NotFound("an object of the archive is not there", hint=damage_hint({"key": key}), key=key)
    return ContentStep(damage=error)


def _stretches(pieces: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
    """Pieces of row groups, divided into neighbouring bands of one row group each, and heads."""
    head = pieces["band"] < 0
    edges = np.flatnonzero((np.diff(pieces["row_group"]) != 0) | head[1:] | head[:-1]) + 1
    return np.split(pieces, edges)


def _misplaced(directory: Directory, runs: Sequence[RunState], key: str) -> Iterator[Corrupt]:
    """Runs of the fold that are not runs of the object."""
    for run in runs:
        number = int(np.searchsorted(directory.runs["first_row"], run.first_row))
        found = None
        if number < len(directory.runs):
            row = directory.runs[number]
            found = (
                queue_of(directory, number), int(row["generation"]), int(row["first_queue_offset"]), int(row["rows"]),
                int(row["first_row"]), int(row["first_block"]), int(row["block_count"]),
            )  # fmt: skip
        expected = (
            run.queue, run.generation, run.first_queue_offset, run.rows, run.first_row, run.first_block, run.block_count,
        )  # fmt: skip
        if found != expected:
            yield Corrupt(
                "fold and directory disagree on a run", key=key, run=run.id, expected=expected, found=found
            )
