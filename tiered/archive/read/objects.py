"""Reading objects: their tables through a bounded cache, their blocks in few requests, every byte checked before use.

Data that travels inside a commit is read the same way: its object begins at byte 0 of the commit's key. A Parquet segment is
read through ``segments``, and looks the same from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.columnreads import columns_index, index_comes_along, read_columns
from tiered.archive.read.heads import RowGroupHeads
from tiered.archive.read.keytables import KeyTables, weight
from tiered.archive.read.runs import COALESCE_BYTES, KEY_ROW_DTYPE, coalesced, is_segment, rows_before
from tiered.archive.read.tables import TableCache
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.checksum import crc32c
from tiered.codec.dictionary import Dictionary
from tiered.codec.format.block import BlockTable, decode_block_table, decompress
from tiered.codec.format.chunks import ROWS_PER_CHUNK
from tiered.codec.format.directory import Directory, decode_directory
from tiered.codec.format.keyindex import KeyFilter
from tiered.codec.format.object import FOOTER_BYTES, ColumnsReader, as_sections, decode_footer
from tiered.codec.format.sections import CODEC_ZSTD_DICTIONARY, Section, SectionKind
from tiered.codec.format.training import decode_dictionary
from tiered.codec.record.properties import key_hash
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, NotFound, damage_hint
from tiered.model import ByteRange
from tiered.provider.base import Provider

if TYPE_CHECKING:
    from tiered.archive.read.segments import SealedTables, SegmentReader

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class BlockSlice:
    """One block of a run, decompressed. ``first_row`` counts in the object's columns."""

    first_queue_offset: int
    rows: int
    first_row: int
    data: Buffer


class ObjectReader:
    """Tables and blocks of one archive's objects. Thread-safe. ``cache_bytes`` bounds the decoded tables that are kept.

    ``whole_bytes``: inline data up to this is fetched whole with its block table, for a provider that keeps it.
    """

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        archive_id: bytes,
        *,
        cache_bytes: int,
        whole_bytes: int = 0,
    ) -> None:
        self._whole_bytes = whole_bytes
        self._provider = provider
        self._keys = keys
        self._archive_id = archive_id
        self._tables = TableCache(cache_bytes)
        self._keys_of = KeyTables(self._tables, self._fetch, self.key_of)
        self.heads = RowGroupHeads(self._tables, self._fetch)
        self._segments: SegmentReader | None = None

    def key_of(self, item: ObjectState) -> str:
        """The provider's key that holds an object."""
        return self._keys.key(item.path) if item.path else self._keys.commit(item.ref.commit_seq)

    def block_table(self, item: ObjectState) -> BlockTable:
        """All blocks of an object. Their dictionary, if they have one, comes with it."""
        if is_segment(item):
            return self.sealed(item).blocks
        key, section = self.key_of(item), self._section(item, SectionKind.BLOCK_TABLE)

        def make() -> BlockTable:
            wanted = blocks_range(item)
            if not item.path and item.length <= self._whole_bytes:
                wanted = ByteRange(0, item.length)
            data = memoryview(self._fetch(key, wanted))

            def piece(of: Section) -> memoryview:
                return data[of.range.start - wanted.start : of.range.end - wanted.start]

            with_it = as_sections(item.sections).get(SectionKind.DICTIONARY)
            if with_it is not None and wanted.start <= with_it.position < section.position:
                self._dictionary(key, lambda: decode_dictionary(piece(with_it), with_it, key=key))
            return decode_block_table(piece(section), section, key=key)

        return self._tables.once(key, "blocks", make, lambda table: table.nbytes)

    def dictionary(self, item: ObjectState) -> Dictionary | None:
        """What an object's blocks of codec 2 were compressed with; ``None`` if it has no dictionary. ``Corrupt`` if it is not
        what the fold says."""
        key, section = self.key_of(item), as_sections(item.sections).get(SectionKind.DICTIONARY)
        if section is None:
            return None
        return self._dictionary(
            key, lambda: decode_dictionary(self._fetch(key, section.range), section, key=key)
        )

    def cached_block_table(self, item: ObjectState) -> BlockTable | None:
        """``block_table`` if it needs no request."""
        if is_segment(item):
            tables = self.cached_sealed(item)
            return None if tables is None else tables.blocks
        found: BlockTable | None = self._tables.find(self.key_of(item), "blocks")
        return found

    def cached_directory(self, item: ObjectState) -> Directory | None:
        """``directory`` if it needs no request."""
        found: Directory | None = self._tables.find(self.key_of(item), "directory")
        return found

    def directory(self, item: ObjectState) -> Directory:
        """Runs, topics and tags of an object; of a segment no tags, which no column of numbers refers to."""
        if is_segment(item):
            return self.sealed(item).directory
        key, section = self.key_of(item), self._section(item, SectionKind.DIRECTORY)
        return self._tables.once(
            key,
            "directory",
            lambda: decode_directory(self._fetch(key, section.range), section, key=key),
            weight,
        )

    def sealed(self, item: ObjectState) -> SealedTables:
        """The tables of a segment. ``Invalid`` where pyarrow is not installed."""
        key = self.key_of(item)
        return self._tables.once(
            key, "segment", lambda: self.segments().open(item, key), lambda made: made.nbytes
        )

    def cached_sealed(self, item: ObjectState) -> SealedTables | None:
        """``sealed`` if it needs no request."""
        found: SealedTables | None = self._tables.find(self.key_of(item), "segment")
        return found

    def segments(self) -> SegmentReader:
        """What reads segments. ``Invalid`` where pyarrow is not installed."""
        if self._segments is None:
            from tiered.archive.read.segments import SegmentReader  # pyarrow is an extra

            self._segments = SegmentReader(self._fetch, self.heads.get, self._archive_id)
        return self._segments

    def check_footer(self, item: ObjectState) -> None:
        """Compare the object's own footer with the fold: ``Corrupt`` if another object lies under its key."""
        key = self.key_of(item)
        if is_segment(item):
            self.segments().open(item, key)
            return
        tail = self._fetch(key, ByteRange(item.length - FOOTER_BYTES, item.length))
        footer = decode_footer(tail, object_length=item.length, key=key)
        if (footer.object_id, footer.archive_id) != (item.object_id, self._archive_id):
            raise Corrupt(
                "another object is stored under this key",
                key=key, expected=item.object_id.hex(), found=footer.object_id.hex(),
            )  # fmt: skip
        if dict(footer.sections) != as_sections(item.sections):
            raise Corrupt("object and fold disagree on its sections", key=key, found=footer.sections)

    def check_sections(self, item: ObjectState) -> None:
        """Check every section against the fold, also what no reader asks for. ``Corrupt`` at the first that differs."""
        if is_segment(item):
            self.segments().check(self.sealed(item))
        for _, damage in self.damaged_sections(item):
            raise damage

    def damaged_sections(self, item: ObjectState) -> Iterator[tuple[int, Corrupt]]:
        """Number of each section that is not what the fold says, and what is wrong with it."""
        key = self.key_of(item)
        for number, section in sorted(as_sections(item.sections).items()):
            crc = 0
            for start in range(section.position, section.position + section.length, COALESCE_BYTES):
                stop = min(start + COALESCE_BYTES, section.position + section.length)
                crc = crc32c(self._fetch(key, ByteRange(start, stop)), crc)
            if crc != section.crc32c:
                yield number, Corrupt(
                    "a section fails its checksum", key=key, position=section.position, section=number,
                    expected=f"crc32c {section.crc32c:08x}", found=f"{crc:08x}",
                )  # fmt: skip

    def columns(self, item: ObjectState, names: Sequence[str], first_row: int, rows: int) -> Columns:
        """Columns of some rows of an object (``ROW_DTYPE`` names; of a segment without ``tag``)."""
        if is_segment(item):
            return self._sealed_columns(item, names, first_row, rows)
        sections = as_sections(item.sections)
        return read_columns(self._tables, self._fetch, self.key_of(item), sections, names, first_row, rows)

    def columns_come_at_once(self, item: ObjectState) -> bool:
        """Whether all columns of an object, not a segment, come with the next that are asked for: it was not met yet, and they
        are small."""
        return index_comes_along(self._tables, self.key_of(item), as_sections(item.sections))

    def columns_range(self, item: ObjectState, names: Sequence[str], first_row: int, rows: int) -> ByteRange:
        """Where ``columns`` of an object, not a segment, lie, with what lies between them."""
        ranges = self._columns_reader(item).ranges(names, first_row, rows)
        return ByteRange(min(r.start for r in ranges), max(r.end for r in ranges))

    def rows_around(
        self, item: ObjectState, runs: Sequence[RunState], physical_offset: int
    ) -> Iterator[tuple[int, int]]:
        """Stretches of rows (first, count) that hold the record at a physical offset, if one of these runs does."""
        if is_segment(item):
            yield from self.sealed(item).rows_around(runs, physical_offset)
            return
        first = min(run.first_row for run in runs)
        yield first, max(run.first_row + run.rows for run in runs) - first

    def row_group(self, item: ObjectState, names: Sequence[str], group: int) -> Columns:
        """Columns of rows [group, group + 1) × ``ROWS_PER_CHUNK`` of an object, kept with the tables."""

        def make() -> Columns:
            first = group * ROWS_PER_CHUNK
            rows = min(ROWS_PER_CHUNK, self._columns_reader(item).rows - first)
            return self.columns(item, names, first, rows)

        return self._tables.once(self.key_of(item), f"rows {group} {','.join(names)}", make, _size_of)

    def cached_row_group(self, item: ObjectState, names: Sequence[str], group: int) -> Columns | None:
        """``row_group`` if it needs no request."""
        found: Columns | None = self._tables.find(self.key_of(item), f"rows {group} {','.join(names)}")
        return found

    def key_rows(self, item: ObjectState, topic: str, key: str) -> npt.NDArray[Any]:
        """Rows (``KEY_ROW_DTYPE``) of a topic whose messages may have ``key`` as their unique key or among their keys."""
        if is_segment(item):
            tables = self.sealed(item)
            if tables.segment.directory.topic != topic:
                return np.zeros(0, KEY_ROW_DTYPE)
            return self.segments().key_rows(tables, self._filters(item, tables), key)
        entries = self.key_entries(item, key_hash(topic, key))
        directory = self.directory(item) if len(entries) else None
        if directory is None or topic not in directory.topics:
            return np.zeros(0, KEY_ROW_DTYPE)
        runs = directory.runs[entries["run"]]
        mine = runs["topic"] == directory.topics.index(topic)
        found = np.zeros(int(mine.sum()), KEY_ROW_DTYPE)
        for name, column in (("queue_id", runs), ("generation", runs), ("queue_offset", entries)):
            found[name] = column[name][mine]
        return found

    def key_entries(self, item: ObjectState, hashed: int) -> npt.NDArray[Any]:
        """Entries (hash, run, queue offset) of a key's hash in an object, not a segment; empty when it has none."""
        return self._keys_of.entries(item, hashed)

    def all_keys(self, item: ObjectState) -> npt.NDArray[Any]:
        """Every entry (``KEY_DTYPE``) of the keys of an object, not a segment, by hash; not kept."""
        return self._keys_of.all(item)

    def check_keys(self, item: ObjectState) -> int:
        """Decode all keys of an object, its filter too; the number of entries. ``Corrupt`` if the filter denies one.

        0 for a segment: its keys are columns like any other, and ``check_sections`` looks at its filters.
        """
        if is_segment(item):
            return 0
        key, entries = self.key_of(item), self._keys_of.all_columns(item)
        hashes, runs = entries["hash"], entries["run"]
        filter_ = self.key_filter(item)
        if len(hashes):
            denied = 0 if filter_ is None else filter_.first_denied(hashes, runs)
            if denied is not None:
                raise Corrupt("the key filter denies a key that is there", key=key, run=int(runs[denied]))
        return len(hashes)

    def key_filter(self, item: ObjectState) -> KeyFilter | None:
        """The per-run filter of an object, not a segment; ``None`` when no message in it has a key."""
        return self._keys_of.filter(item)

    def blocks(self, item: ObjectState, run: RunState, first_block: int, count: int) -> list[BlockSlice]:
        """Blocks [first_block, first_block + count) of the object, all of ``run``; neighbours come in one request.

        ``Corrupt`` if bytes or tables disagree with their checksums or with the fold.
        """
        key, table = self.key_of(item), self.block_table(item)
        if first_block < run.first_block or first_block + count > run.end_block:
            raise Corrupt(
                "a block range lies outside its run", key=key, expected=run.first_block, found=first_block
            )
        first_row = run.first_row + rows_before(table, run.first_block, first_block)
        result: list[BlockSlice] = []
        for b, block in enumerate(self.block_bytes(item, first_block, first_block + count), first_block):
            rows = int(table["rows"][b])
            result.append(BlockSlice(int(table["first_queue_offset"][b]), rows, first_row, block))
            first_row += rows
        return result

    def block_bytes(self, item: ObjectState, first_block: int, end_block: int) -> list[Buffer]:
        """Consecutive blocks of an object, of whatever runs, decompressed; neighbours come in one request."""
        key, table = self.key_of(item), self.block_table(item)
        if not 0 <= first_block <= end_block <= len(table):
            raise Corrupt("the block table is too short", key=key, expected=end_block, found=len(table))
        if is_segment(item):
            tables = self.sealed(item)
            return list(self.segments().block_bytes(tables, first_block, end_block, COALESCE_BYTES))
        result: list[Buffer] = []
        for start, end in coalesced(table, first_block, end_block):
            begin = int(table["position"][start])
            stop = int(table["position"][end - 1]) + int(table["stored_length"][end - 1])
            data = memoryview(self._fetch(key, ByteRange(begin, stop)))
            with_it = self.dictionary_of(item, table[start:end])
            result.extend(_decode_block(data, table[b], begin, key, with_it) for b in range(start, end))
        return result

    def dictionary_of(self, item: ObjectState, blocks: BlockTable) -> Dictionary | None:
        """``dictionary`` where any of these blocks of an object needs it."""
        return self.dictionary(item) if (blocks["codec"] == CODEC_ZSTD_DICTIONARY).any() else None

    def _columns_reader(self, item: ObjectState) -> ColumnsReader:
        return columns_index(self._tables, self._fetch, self.key_of(item), as_sections(item.sections))

    def _sealed_columns(self, item: ObjectState, names: Sequence[str], first_row: int, rows: int) -> Columns:
        """Columns of a segment; those of each band are kept with the tables."""
        key, tables = self.key_of(item), self.sealed(item)
        firsts = tables.segment.directory.bands["first_row"]
        at, end = first_row, first_row + rows
        parts: list[Columns] = []
        while at < end or not parts:
            band = int(np.searchsorted(firsts, at, side="right")) - 1
            first, count = tables.rows_of(band)
            make = partial(self.segments().columns, tables, names, band)
            made = self._tables.once(key, f"band {band} {','.join(names)}", make, _size_of)
            stop = min(end, first + count)
            if stop <= at and rows:
                raise Corrupt(
                    "a segment lacks the rows asked for", key=key, expected=end, found=first + count
                )
            parts.append({name: column[at - first : stop - first] for name, column in made.items()})
            at = max(stop, at)
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _filters(self, item: ObjectState, tables: SealedTables) -> Buffer:
        return self._tables.once(self.key_of(item), "filters", lambda: self.segments().filters(tables), len)

    def _dictionary(self, key: str, make: Callable[[], Dictionary]) -> Dictionary:
        return self._tables.once(key, "dictionary", make, lambda made: made.nbytes)

    def _section(self, item: ObjectState, kind: SectionKind) -> Section:
        return as_sections(item.sections)[kind]

    def _fetch(self, key: str, wanted: ByteRange) -> bytes:
        try:
            data = self._provider.get(key, wanted.start, wanted.length).data
        except NotFound as e:
            raise NotFound(
                "an object of the archive is not there", hint=damage_hint({"key": key}), key=key
            ) from e
        if len(data) != wanted.length:
            raise Corrupt(
                "an object is shorter than its tables say",
                key=key, position=wanted.start, expected=wanted.length, found=len(data),
            )  # fmt: skip
        return bytes(data)


def _size_of(columns: Columns) -> int:
    return sum(column.nbytes for column in columns.values()) + 256


def blocks_range(item: ObjectState) -> ByteRange:
    """Where an object, not a segment, has its block table and, right before it, the dictionary of its blocks, if it has one."""
    sections = as_sections(item.sections)
    table, dictionary = sections[SectionKind.BLOCK_TABLE], sections.get(SectionKind.DICTIONARY)
    if dictionary is None or dictionary.range.end != table.position:
        return table.range
    return ByteRange(dictionary.position, table.range.end)


def _decode_block(
    data: memoryview, row: npt.NDArray[Any], begin: int, key: str, dictionary: Dictionary | None
) -> bytes:
    position = int(row["position"])
    at = position - begin
    return decompress(
        data[at : at + int(row["stored_length"])],
        codec=int(row["codec"]),
        raw_length=int(row["raw_length"]),
        crc32c=int(row["crc32c"]),
        key=key,
        position=position,
        dictionary=dictionary,
    )
