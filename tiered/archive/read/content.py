"""One object's bytes against every checksum of them, each byte read once; on request its records against its tables, too.

``tiered verify --deep`` and the scrub look with the same eyes. A walk over an object is cut into steps, a request each, so that
somebody who has little time or few bytes a second can stop between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiered.archive.ahead import read_each
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.held import Held
from tiered.archive.read.objects import BlockSlice, ObjectReader
from tiered.archive.read.runs import COALESCE_BYTES, coalesced, is_segment, row_offsets
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.format.block import BlockTable, opened
from tiered.codec.format.directory import Directory
from tiered.codec.format.object import FOOTER_BYTES
from tiered.codec.format.sections import SectionKind, check_length_and_crc
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop, edges_of, scan
from tiered.codec.record.properties import property_columns
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, NotFound, damage_hint
from tiered.model import OFF_QUEUE_TOPIC, MessageQueue
from tiered.provider.base import Provider

if TYPE_CHECKING:
    from tiered.codec.segment.reader import Segment

COMPARED = {
    "size": "size",
    "physical_offset": "physical_offset",
    "store_timestamp": "store_timestamp",
    "born_timestamp": "born_timestamp",
    "sys_flag": "sys_flag",
    "body_crc": "body_crc",
    "body_length": "body_length",
}
"""Columns of an object and the record headers they must equal."""

NAMES = (*COMPARED, "tags_code", "queue_offsets")
"""Columns that records are compared with."""

WINDOW_BYTES = COALESCE_BYTES
"""Of one request. An object up to this length is read at once, and of a larger one all tables are held together."""

_DESCRIBING = (SectionKind.DIRECTORY, SectionKind.COLUMNS, SectionKind.COLUMN_INDEX)
"""Sections without which records cannot be compared with anything."""

Columns = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class ContentStep:
    """What one step looked at. ``bytes``: stored, as they were read. ``damage``: what was wrong, with key and position."""

    bytes: int = 0
    blocks: int = 0
    messages: int = 0
    record_bytes: int = 0
    damage: Corrupt | NotFound | None = None


class ContentCheck:
    """Checks objects one after the other. ``spend`` hears of bytes before they are asked for; ``records``: compare records with
    their columns, their queue and their own sums, too; ``ahead``: requests for blocks under way at once.

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
    ) -> None:
        self._held = Held(provider, spend)
        self._objects = ObjectReader(self._held, keys, archive_id, cache_bytes=COALESCE_BYTES)
        self._records = records
        self._ahead = ahead

    def steps(self, item: ObjectState, runs: Sequence[RunState] = ()) -> Iterator[ContentStep]:
        """Look at all of an object, damage after damage. ``runs``: those of the fold that lie in it, compared with its own."""
        key = self._objects.key_of(item)
        try:
            yield from (self._segment if is_segment(item) else self._steps)(item, key, runs)
        except NotFound:
            gone = NotFound("an object of the archive is not there", hint=damage_hint({"key": key}), key=key)
            yield ContentStep(damage=gone)
        except Corrupt as error:
            yield ContentStep(damage=error)
        finally:
            self._held.forget(key)

    def _steps(self, item: ObjectState, key: str, runs: Sequence[RunState]) -> Iterator[ContentStep]:
        yield ContentStep(bytes=self._hold_tables(item, key))
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
                self._objects.check_keys(item)
            yield from (ContentStep(damage=e) for e in _misplaced(directory, runs, key))
        yield from self._blocks(item, key, table, directory)

    def _segment(self, item: ObjectState, key: str, runs: Sequence[RunState]) -> Iterator[ContentStep]:
        """A Parquet segment: its row groups are checked as a whole, its records by the sums of their runs."""
        at_once = item.length <= WINDOW_BYTES
        if at_once:
            yield ContentStep(bytes=len(self._held.fetch(key, 0, item.length)))
        tables = self._objects.sealed(item)
        segment, groups = tables.segment, tables.segment.directory.groups
        try:
            self._objects.segments().check(tables)
        except Corrupt as error:
            yield ContentStep(damage=error)
        if not at_once:
            yield ContentStep(bytes=item.length - int(groups["stored_length"].sum()))
        yield from (ContentStep(damage=e) for e in _misplaced(tables.directory, runs, key))
        windows = coalesced(groups, 0, len(groups))
        blocks = np.bincount(tables.group_of, minlength=len(groups))
        for (first, end), data in self._windows(key, groups, windows):
            begin = int(groups["position"][first])
            for number in range(first, end):
                row, place = groups[number], segment.range_of(number)
                try:
                    self._look_at_group(segment, number, data[place.start - begin : place.end - begin])
                except Corrupt as error:
                    yield ContentStep(damage=error)
                record_bytes = int(row["bytes"]) if self._records else 0
                stored = 0 if at_once else place.length
                yield ContentStep(stored, int(blocks[number]), int(row["rows"]), record_bytes)

    def _look_at_group(self, segment: Segment, number: int, stored: memoryview) -> None:
        if self._records:
            segment.records(number, stored)
        else:
            segment.check_group(number, stored)

    def _hold_tables(self, item: ObjectState, key: str) -> int:
        """Have everything in memory but the blocks of a large object; how many bytes that were."""
        first = min(position for position, _, _ in item.sections.values())
        if item.length <= WINDOW_BYTES:
            return len(self._held.fetch(key, 0, item.length))
        if item.length - first <= WINDOW_BYTES:
            return len(self._held.fetch(key, first, item.length))
        self._held.fetch(key, item.length - FOOTER_BYTES, item.length)
        for position, length, _ in item.sections.values():
            self._held.fetch(key, position, position + length)
        return item.length - first

    def _blocks(
        self, item: ObjectState, key: str, table: BlockTable, directory: Directory | None
    ) -> Iterator[ContentStep]:
        rows = np.append(0, np.cumsum(table["rows"], dtype=np.int64))
        for (first, end), data in self._windows(key, table, coalesced(table, 0, len(table))):
            opened_blocks, damaged = _opened(data, table[first:end], key, records=directory is not None)
            yield from (ContentStep(damage=e) for e in damaged)
            record_bytes = sum(len(raw) for raw in opened_blocks.values())
            if directory is not None:
                window = _Window(first, end, table, rows, directory, key)
                yield from (
                    ContentStep(damage=e) for e in window.differences(self._objects, item, opened_blocks)
                )
            yield ContentStep(
                0 if item.length <= WINDOW_BYTES else len(data),
                end - first, int(rows[end] - rows[first]), record_bytes,
            )  # fmt: skip

    def _windows(
        self, key: str, table: npt.NDArray[Any], windows: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[tuple[int, int], memoryview]]:
        """Each window and its bytes, which lie between its first and its last row of the table."""

        def read(window: tuple[int, int]) -> memoryview:
            first, last = table[window[0]], table[window[1] - 1]
            end = int(last["position"]) + int(last["stored_length"])
            return self._held.read(key, int(first["position"]), end)

        found = map(read, windows) if self._ahead < 2 else read_each(read, windows, self._ahead)
        return zip(windows, found, strict=True)


def _opened(
    data: memoryview, table: BlockTable, key: str, *, records: bool
) -> tuple[dict[int, Buffer], list[Corrupt]]:
    """Blocks of a window by their number in it, decompressed if ``records``; and those that fail their checksum."""
    begin, sound, damaged = int(table["position"][0]), dict[int, Buffer](), []
    names = ("position", "stored_length", "raw_length", "codec", "crc32c")
    for number, row in enumerate(zip(*(table[name].tolist() for name in names), strict=True)):
        position, length, raw_length, codec, crc = row
        stored = data[position - begin : position - begin + length]
        try:
            if records:
                sound[number] = opened(
                    stored, codec=codec, raw_length=raw_length, crc32c=crc, key=key, position=position
                )
            else:
                check_length_and_crc(
                    stored, length=length, crc=crc, what="a block", key=key, position=position
                )
        except Corrupt as error:
            damaged.append(error)
    return sound, damaged


@dataclass(frozen=True, slots=True)
class _Window:
    """Blocks [first, end) of an object. ``rows``: the row at which each block begins, and their end."""

    first: int
    end: int
    table: BlockTable
    rows: Ints
    directory: Directory
    key: str

    def differences(
        self, objects: ObjectReader, item: ObjectState, blocks: dict[int, Buffer]
    ) -> Iterator[Corrupt]:
        """What the blocks' records and the columns do not agree on."""
        low = int(self.rows[self.first])
        try:
            columns = objects.columns(item, NAMES, low, int(self.rows[self.end]) - low)
        except Corrupt as error:
            yield error
            return
        run = self.table["run"][self.first : self.end]
        edges = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), len(run)]
        for begin, end in pairwise(edges):
            numbers = [number for number in range(begin, end) if number in blocks]
            if len(numbers) < end - begin or self._wrong(columns, low, blocks, begin, end) is not None:
                found = (self._wrong(columns, low, blocks, number, number + 1) for number in numbers)
                yield from (error for error in found if error is not None)

    def _wrong(
        self, columns: Columns, low: int, blocks: dict[int, Buffer], begin: int, end: int
    ) -> Corrupt | None:
        """What is wrong with blocks [begin, end) of the window, which are of one run."""
        at = self.first + begin
        first_row, stop = int(self.rows[at]), int(self.rows[self.first + end])
        data = blocks[begin] if end == begin + 1 else b"".join(blocks[n] for n in range(begin, end))
        piece = BlockSlice(int(self.table["first_queue_offset"][at]), stop - first_row, first_row, data)
        part = {name: values[first_row - low : stop - low] for name, values in columns.items()}
        try:
            check_block(piece, part, _queue(self.directory, int(self.table["run"][at])), self.key)
        except Corrupt as error:
            return error
        return None


def _queue(directory: Directory, run: int) -> MessageQueue:
    row = directory.runs[run]
    return MessageQueue(directory.topics[int(row["topic"])], int(row["queue_id"]))


def _misplaced(directory: Directory, runs: Sequence[RunState], key: str) -> Iterator[Corrupt]:
    """Runs of the fold that are not runs of the object."""
    for run in runs:
        number = int(np.searchsorted(directory.runs["first_row"], run.first_row))
        found = None
        if number < len(directory.runs):
            row = directory.runs[number]
            found = (
                _queue(directory, number), int(row["generation"]), int(row["first_queue_offset"]), int(row["rows"]),
                int(row["first_row"]), int(row["first_block"]), int(row["block_count"]),
            )  # fmt: skip
        expected = (
            run.queue, run.generation, run.first_queue_offset, run.rows, run.first_row, run.first_block, run.block_count,
        )  # fmt: skip
        if found != expected:
            yield Corrupt(
                "fold and directory disagree on a run", key=key, run=run.id, expected=expected, found=found
            )


def check_block(piece: BlockSlice, columns: Columns, queue: MessageQueue, key: str) -> None:
    """The records of a block, or of neighbouring ones of a queue, are whole and are what the columns say. ``Corrupt``
    otherwise."""
    edges = edges_of(piece.data, piece.rows)
    if edges is None:  # not one record behind the other: a walk says where that ends
        frames = scan(piece.data, base=None, max_record_bytes=len(piece.data))
    else:
        frames = Frames(edges[:-1], np.diff(edges), int(edges[-1]), Stop.END)
    whole, batch = verify_headers(piece.data, frames, None)
    if len(whole.starts) != piece.rows or whole.end != len(piece.data):
        raise Corrupt("a block's records are damaged", key=key, position=whole.end, detail=whole.detail)
    for column, header in COMPARED.items():
        if not np.array_equal(columns[column].astype(np.int64), batch.headers[header].astype(np.int64)):
            raise Corrupt("columns and records disagree", key=key, column=column, queue=queue)
    properties = property_columns(batch)
    if not np.array_equal(columns["tags_code"], properties.tags_code):
        raise Corrupt("columns and records disagree", key=key, column="tags_code", queue=queue)
    if queue.topic == OFF_QUEUE_TOPIC:
        return
    offsets = row_offsets(piece.first_queue_offset, piece.rows, columns["queue_offsets"])
    if not np.array_equal(batch.headers["queue_offset"], offsets):
        raise Corrupt("records and their place in the queue disagree", key=key, queue=queue)
    if set(batch.topics) != {queue.topic} or (batch.headers["queue_id"] != queue.queue_id).any():
        raise Corrupt("a block holds records of another queue", key=key, queue=queue, found=batch.topics)
