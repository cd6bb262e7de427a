"""The rows and blocks of the runs that a job replaces, read out of their objects: each object once, everything checked.

What is kept of an object is its wanted blocks as they are stored, and its tables as arrays; blocks are opened when their turn
comes, in the order of their queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.ahead import read_each
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.held import Held
from tiered.archive.read.objects import ObjectReader, blocks_range
from tiered.archive.read.runs import COALESCE_BYTES, stretch_offsets
from tiered.archive.rewrite.plan import Job, refs_of
from tiered.archive.state.values import ObjectState
from tiered.codec.dictionary import Dictionary
from tiered.codec.format.block import BlockTable, opened
from tiered.codec.format.object import ROW_DTYPE
from tiered.codec.format.sections import SectionKind
from tiered.codec.types import Bools, Buffer, Ints
from tiered.errors import Corrupt
from tiered.model import ObjectRef
from tiered.provider.base import Provider

HOLE_BYTES = 64 * 1024
"""Bytes that nobody wants, fetched nevertheless rather than a request more."""

WHOLE_BYTES = 2 * 1024 * 1024
"""An object up to this length is fetched at once, and not its tables first: nearly all of it is wanted."""

READ_AT_ONCE = 4
"""Objects of a part of a job that are read at once: each request waits for the store, and does little else."""

_NAMES = ROW_DTYPE.names or ()
_NAMES_FOR_SEGMENTS = ("size", "queue_offsets", "store_timestamp", "physical_offset")


@dataclass(frozen=True, slots=True)
class Piece:
    """The live part of one block: ``skip`` bytes into its records, ``take`` bytes of them."""

    stored: Buffer
    key: str
    position: int
    raw_length: int
    codec: int
    crc32c: int
    skip: int
    take: int
    dictionary: Dictionary | None = None

    def records(self) -> Buffer:
        """Its bytes, after its checksum was found right."""
        raw = opened(
            self.stored, codec=self.codec, raw_length=self.raw_length, crc32c=self.crc32c, key=self.key,
            position=self.position, dictionary=self.dictionary,
        )  # fmt: skip
        return raw if self.take == self.raw_length else memoryview(raw)[self.skip : self.skip + self.take]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Live rows and pieces of a job's runs, in the order of its runs; one entry per row in the arrays.

    ``source``: which run a row is of. ``keys``: hash, row of the job's runs and queue offset of each key, in any order.
    ``skipped``: bytes of each run in front of its live part.
    """

    rows: npt.NDArray[np.void]
    commit_seq: Ints
    queue_offset: Ints
    source: Ints
    tags: list[bytes]
    pieces: list[Piece]
    key_hash: npt.NDArray[np.uint64]
    key_source: Ints
    key_offset: Ints
    skipped: Ints


class UnevenCut(Exception):
    """Live parts that do not begin and end with a record. ``runs``: their numbers in the job."""

    def __init__(self, runs: Ints) -> None:
        super().__init__(runs)
        self.runs = runs


class Sources:
    """Reads the objects of one job."""

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        archive_id: bytes,
        spend: Callable[[int], None],
        *,
        table_bytes: int = COALESCE_BYTES,
    ) -> None:
        """``spend`` hears of bytes before they are asked for. ``table_bytes``: of decoded tables that are kept from one call to
        the next, and as much of stored ones."""
        self._held = Held(provider, spend, kept_bytes=table_bytes)
        self._objects = ObjectReader(self._held, keys, archive_id, cache_bytes=table_bytes)
        self._proven: set[ObjectRef] = set()

    def gather(self, job: Job) -> Gathered:
        """Everything about a job's runs but the bytes of their records. ``Corrupt`` and ``NotFound`` name the object;
        ``UnevenCut`` names runs that no job can take."""
        return self._gather(job, {b"": 0})

    def gather_for_segment(self, job: Job) -> Gathered:
        """Part of a larger job: what a segment is made of, which has neither tags nor keys beside its records, so that
        ``tags`` and keys are empty and most columns zero. Tables are read once and only as far as they are needed."""
        return self._gather(job, None)

    def _gather(self, job: Job, tags: dict[bytes, int] | None) -> Gathered:
        refs = refs_of(job.runs)
        skipped = np.zeros(len(job.runs), np.int64)

        def read(item: ObjectState) -> tuple[_Part, Ints, list[Piece]]:
            mine = np.flatnonzero((refs == (item.ref.commit_seq, item.ref.index)).all(axis=1))
            return self._read(item, job.runs[mine], mine, tags, skipped)

        at_once = 1 if tags is not None else READ_AT_ONCE  # tags are numbered as they come
        found = list(map(read, job.objects) if at_once == 1 else read_each(read, list(job.objects), at_once))
        parts = [part for part, _, _ in found]
        pieces = [(numbers, some) for _, numbers, some in found]
        source = np.concatenate([p.source for p in parts])
        order = np.argsort(source, kind="stable")
        piece_source = np.concatenate([numbers for numbers, _ in pieces])
        flat = [piece for _, some in pieces for piece in some]
        return Gathered(
            rows=np.concatenate([p.rows for p in parts])[order],
            commit_seq=np.concatenate([p.commit_seq for p in parts])[order],
            queue_offset=np.concatenate([p.queue_offset for p in parts])[order],
            source=source[order],
            tags=list(tags or ()),
            pieces=[flat[i] for i in np.argsort(piece_source, kind="stable").tolist()],
            key_hash=np.concatenate([p.key_hash for p in parts]),
            key_source=np.concatenate([p.key_source for p in parts]),
            key_offset=np.concatenate([p.key_offset for p in parts]),
            skipped=skipped,
        )

    def _read(
        self,
        item: ObjectState,
        runs: npt.NDArray[np.void],
        mine: Ints,
        tags: dict[bytes, int] | None,
        skipped: Ints,
    ) -> tuple[_Part, Ints, list[Piece]]:
        """One object: its rows (``mine``: numbers of its runs in the job), and the live parts of its blocks."""
        key = self._objects.key_of(item)
        self._fetch_tables(item, key, runs, whole=tags is not None)
        if item.ref not in self._proven:
            self._objects.check_footer(item)  # that it is this object at all
            self._proven.add(item.ref)
        table = self._objects.block_table(item)
        rows = _Rows(item, key, runs, mine, table)
        if tags is None:
            self._held.keep(key, *rows.columns_range(self._objects))
        part, blocks = rows.read(self._objects, tags)
        skipped[mine] = blocks.skipped
        if tags is not None:
            part = part.with_keys(self._objects, item, key, runs, mine)
        stored = _stored(self._held, key, table, blocks.number)
        dictionary = self._objects.dictionary_of(item, some := table[blocks.number])
        self._held.forget(key)
        pieces = [
            Piece(data, key, position, raw_length, codec, crc, skip, take, dictionary)
            for data, (position, raw_length, codec, crc, skip, take) in zip(
                stored,
                zip(
                    some["position"].tolist(), some["raw_length"].tolist(), some["codec"].tolist(),
                    some["crc32c"].tolist(), blocks.skip.tolist(), blocks.take.tolist(), strict=True,
                ),
                strict=True,
            )
        ]  # fmt: skip
        return part, blocks.source, pieces

    def _fetch_tables(self, item: ObjectState, key: str, runs: npt.NDArray[np.void], *, whole: bool) -> None:
        """In one request what is needed of an object beside its blocks, or all of a small one of which most is wanted."""
        small = item.length <= WHOLE_BYTES
        live = int((runs["flat_end"] - runs["first_flat_offset"]).sum())
        if whole:
            tables = min(position for position, _, _ in item.sections.values())
            if live < tables:  # of the columns as little is wanted as of the blocks before them
                self._held.keep(key, item.sections[SectionKind.COLUMN_INDEX][0], item.length)
            else:
                self._held.fetch(key, 0 if small else tables, item.length)
        elif small and 2 * live >= item.length:
            self._held.fetch(key, 0, item.length)
        elif item.ref not in self._proven:
            self._held.fetch(key, blocks_range(item).start, item.length)


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one object that a job takes; names as in ``Gathered``."""

    rows: npt.NDArray[np.void]
    commit_seq: Ints
    queue_offset: Ints
    source: Ints
    key_hash: npt.NDArray[np.uint64]
    key_source: Ints
    key_offset: Ints

    def with_keys(
        self, objects: ObjectReader, item: ObjectState, key: str, runs: npt.NDArray[np.void], mine: Ints
    ) -> _Part:
        """With the keys of its rows."""
        entries = objects.all_keys(item)
        if not len(entries):
            return self
        directory = objects.directory(item)
        # The fold's runs are rows of the directory, which knows them by where their rows begin; live and closed part share one.
        first = directory.runs["first_row"].astype(np.int64)
        row = np.searchsorted(first, runs["first_row"].astype(np.int64))
        if (row >= len(first)).any() or (first[np.minimum(row, len(first) - 1)] != runs["first_row"]).any():
            raise Corrupt("fold and directory disagree on a run", key=key)
        entries = entries[np.isin(entries["run"], row)]
        entries = entries[np.argsort(entries["run"], kind="stable")]
        low = np.searchsorted(entries["run"], row, "left")
        counts = np.searchsorted(entries["run"], row, "right") - low
        at = _ranges(low, counts)
        of = np.repeat(np.arange(len(runs)), counts)
        offset = entries["queue_offset"][at].astype(np.int64)
        live = (offset >= runs["start"][of]) & (offset < runs["end"][of])
        return _Part(
            self.rows, self.commit_seq, self.queue_offset, self.source,
            entries["hash"][at][live], mine[of[live]], offset[live],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks with live rows: number in the object, run of the job, and which bytes of their records. ``skipped``: of each run,
    what lies before its live part."""

    number: Ints
    source: Ints
    skip: Ints
    take: Ints
    skipped: Ints


class _Rows:
    """Runs of one object: their rows, and what of their blocks is live."""

    def __init__(
        self, item: ObjectState, key: str, runs: npt.NDArray[np.void], mine: Ints, table: BlockTable
    ) -> None:
        self._item, self._key, self._runs, self._mine, self._table = item, key, runs, mine, table

    def read(self, objects: ObjectReader, tags: dict[bytes, int] | None) -> tuple[_Part, _Blocks]:
        """Columns of the runs, and their blocks. ``Corrupt`` where columns, block table and fold do not agree. Without ``tags``
        only the columns that a segment is made with."""
        runs, item = self._runs, self._item
        counts = runs["rows"].astype(np.int64)
        names = _NAMES_FOR_SEGMENTS if tags is None else _NAMES
        first, number = self._stretch()
        columns = objects.columns(item, self._asked(names), first, number)
        at = _ranges(runs["first_row"].astype(np.int64) - first, counts)
        of = np.repeat(np.arange(len(runs)), counts)
        sizes = columns["size"][at].astype(np.int64)
        batched: Bools = runs["queue_offsets"] != runs["rows"]
        owned = columns["queue_offsets"][at]
        offsets = stretch_offsets(runs["first_queue_offset"], counts, owned, batched)
        live: Bools = (offsets >= runs["start"][of]) & (offsets < runs["end"][of])
        self._check_cuts(offsets, live)
        blocks = self._blocks(sizes, offsets, live)
        kept = at[live]
        rows = np.zeros(len(kept), ROW_DTYPE)
        for name in names:
            rows[name] = columns[name][kept]
        if tags is not None:
            rows["tag"] = self._tags(objects, tags)[rows["tag"]]
        commits = (
            runs["commit_seq"][of[live]] if item.level == 0 else columns["commit_seq"][kept].astype(np.int64)
        )
        none = np.zeros(0, np.int64)
        return _Part(
            rows, commits, offsets[live], self._mine[of[live]], none.astype(np.uint64), none, none
        ), blocks

    def columns_range(self, objects: ObjectReader) -> tuple[int, int]:
        """Where all columns lie that a segment is made with: they are small, and asked for at once."""
        found = objects.columns_range(self._item, self._asked(_NAMES_FOR_SEGMENTS), *self._stretch())
        return found.start, found.end

    def _asked(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names if self._item.level == 0 else (*names, "commit_seq")

    def _stretch(self) -> tuple[int, int]:
        """First row of all runs, and how many up to their last."""
        first = self._runs["first_row"].astype(np.int64)
        low = int(first.min())
        return low, int((first + self._runs["rows"]).max()) - low

    def _tags(self, objects: ObjectReader, tags: dict[bytes, int]) -> Ints:
        """The number that each tag of the object has among all."""
        own = objects.directory(self._item).tags
        return np.array([tags.setdefault(tag, len(tags)) for tag in own], np.int64)

    def _blocks(self, sizes: Ints, offsets: Ints, live: Bools) -> _Blocks:
        """Compare blocks with rows and with the fold, and find what of them is live."""
        runs, table = self._runs, self._table
        in_run, counts = runs["rows"].astype(np.int64), runs["block_count"].astype(np.int64)
        first = runs["first_block"].astype(np.int64)
        self._check(int((first + counts).max()) <= len(table), "blocks of a run")
        number = _ranges(first, counts)
        rows = table["rows"][number].astype(np.int64)
        self._check(_sums(rows, counts) == in_run, "rows of a run's blocks")
        self._check(_sums(sizes, rows) == table["raw_length"][number], "sizes of a block's rows")
        begins = np.cumsum(rows) - rows
        self._check(offsets[begins] == table["first_queue_offset"][number], "first offsets of blocks")
        lives = sizes * live
        skipped = _sums(sizes * _leading(live, in_run), in_run)
        flat = runs["first_flat_offset"] + skipped + _sums(lives, in_run)
        self._check(flat == runs["flat_end"], "bytes of a run's live part")
        take, skip = _sums(lives, rows), _sums(sizes * _leading(live, rows), rows)
        has = np.flatnonzero(take)
        source = np.repeat(self._mine, counts)
        return _Blocks(number[has], source[has], skip[has], take[has], skipped)

    def _check_cuts(self, offsets: Ints, live: Bools) -> None:
        """Live parts begin and end with a record."""
        runs, counts = self._runs, self._runs["rows"].astype(np.int64)
        number = _sums(live.astype(np.int64), counts)
        first = np.cumsum(counts) - counts + _sums(_leading(live, counts).astype(np.int64), counts)
        behind = first + number  # the row that follows, if it is of the same run
        inside = behind < np.cumsum(counts)
        ends = np.where(
            inside,
            offsets[np.minimum(behind, len(offsets) - 1)],
            runs["first_queue_offset"] + runs["queue_offsets"],
        )
        even = (
            (number > 0)
            & (offsets[np.minimum(first, len(offsets) - 1)] == runs["start"])
            & (ends == runs["end"])
        )
        if not even.all():
            raise UnevenCut(self._mine[~even])

    def _check(self, ok: Bools | bool, what: str) -> None:
        if not np.all(ok):
            raise Corrupt("fold, columns and block table of an object disagree", key=self._key, found=what)


def _sums(values: Ints, counts: Ints) -> Ints:
    """The sum over each of consecutive groups of rows, none of them empty."""
    found: Ints = np.add.reduceat(values, np.cumsum(counts) - counts)
    return found


def _leading(live: Bools, counts: Ints) -> Bools:
    """The rows of each group in front of its first live one; all, where none is."""
    before: Ints = np.cumsum(live) - live
    found: Bools = (before == np.repeat(before[np.cumsum(counts) - counts], counts)) & ~live
    return found


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """start, start + 1, … of each, one range after the other."""
    begins = np.cumsum(counts) - counts
    return np.asarray(np.repeat(starts - begins, counts) + np.arange(int(counts.sum()), dtype=np.int64))


def _stored(held: Held, key: str, table: BlockTable, numbers: Ints) -> list[Buffer]:
    """The stored bytes of blocks, fetched in as few requests as holes and ``COALESCE_BYTES`` allow; in the order given."""
    wanted = np.unique(numbers)
    starts = table["position"][wanted]
    ends = starts + table["stored_length"][wanted]
    found: dict[int, Buffer] = {}
    first = 0
    while first < len(wanted):
        last = first
        while (
            last + 1 < len(wanted)
            and starts[last + 1] - ends[last] <= HOLE_BYTES
            and ends[last + 1] - starts[first] <= COALESCE_BYTES
        ):
            last += 1
        data = held.read(key, int(starts[first]), int(ends[last]))
        base = int(starts[first])
        for i in range(first, last + 1):
            found[int(wanted[i])] = data[int(starts[i]) - base : int(ends[i]) - base]
        first = last + 1
    return [found[number] for number in numbers.tolist()]
