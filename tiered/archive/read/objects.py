"""Reading objects: their tables through a bounded cache, their blocks in few requests, every byte checked before use.

Data that travels inside a commit is read the same way: its object begins at byte 0 of the commit's key.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.runs import rows_before
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.checksum import crc32c
from tiered.codec.format.block import BlockTable, decode_block_table, decompress
from tiered.codec.format.chunks import ROWS_PER_CHUNK
from tiered.codec.format.directory import Directory, decode_directory
from tiered.codec.format.keyindex import KEY_DTYPE, KeyFilter, KeysReader, decode_keys
from tiered.codec.format.object import FOOTER_BYTES, ColumnsReader, Footer, as_sections, decode_footer
from tiered.codec.format.sections import Section, SectionKind
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, NotFound, damage_hint
from tiered.model import ByteRange
from tiered.provider.base import Provider

COALESCE_BYTES = 8 * 1024 * 1024
"""Largest request made of neighbouring blocks."""

T = TypeVar("T")


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
        self._tables: LRUCache[tuple[str, str], tuple[int, Any]] = LRUCache(
            cache_bytes, getsizeof=lambda v: v[0]
        )
        self._lock = threading.Lock()

    def key_of(self, item: ObjectState) -> str:
        """The provider's key that holds an object."""
        return self._keys.key(item.path) if item.path else self._keys.commit(item.ref.commit_seq)

    def block_table(self, item: ObjectState) -> BlockTable:
        """All blocks of an object."""
        key, section = self.key_of(item), self._section(item, SectionKind.BLOCK_TABLE)
        cached = self._cached(key, "blocks")
        if cached is None:
            if not item.path and item.length <= self._whole_bytes:
                data = self._fetch(key, ByteRange(0, item.length))[section.range.start : section.range.end]
            else:
                data = self._fetch(key, section.range)
            table = decode_block_table(data, section, key=key)
            cached = self._keep(key, "blocks", table, table.nbytes)
        found: BlockTable = cached
        return found

    def cached_block_table(self, item: ObjectState) -> BlockTable | None:
        """``block_table`` if it needs no request."""
        found: BlockTable | None = self._cached(self.key_of(item), "blocks")
        return found

    def cached_directory(self, item: ObjectState) -> Directory | None:
        """``directory`` if it needs no request."""
        found: Directory | None = self._cached(self.key_of(item), "directory")
        return found

    def directory(self, item: ObjectState) -> Directory:
        """Runs, topics and tags of an object."""
        key, section = self.key_of(item), self._section(item, SectionKind.DIRECTORY)
        cached = self._cached(key, "directory")
        if cached is None:
            made = decode_directory(self._fetch(key, section.range), section, key=key)
            cached = self._keep(key, "directory", made, made.runs.nbytes + 64 * len(made.tags))
        directory: Directory = cached
        return directory

    def footer(self, item: ObjectState) -> Footer:
        """The object's own footer, compared with the fold: ``Corrupt`` if another object lies under its key."""
        key = self.key_of(item)
        tail = self._fetch(key, ByteRange(item.length - FOOTER_BYTES, item.length))
        footer = decode_footer(tail, object_length=item.length, key=key)
        if (footer.object_id, footer.archive_id) != (item.object_id, self._archive_id):
            raise Corrupt(
                "another object is stored under this key",
                key=key, expected=item.object_id.hex(), found=footer.object_id.hex(),
            )  # fmt: skip
        if dict(footer.sections) != as_sections(item.sections):
            raise Corrupt("object and fold disagree on its sections", key=key, found=footer.sections)
        return footer

    def check_sections(self, item: ObjectState) -> None:
        """Check every section against the fold, also what no reader asks for. ``Corrupt`` at the first that differs."""
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

    def columns(
        self, item: ObjectState, names: Sequence[str], first_row: int, rows: int
    ) -> dict[str, npt.NDArray[Any]]:
        """Columns of some rows of an object (``ROW_DTYPE`` names)."""
        reader = self._columns_reader(item)
        key = self.key_of(item)
        pieces = [self._fetch(key, r) for r in reader.ranges(names, first_row, rows)]
        return reader.decode(names, first_row, rows, pieces)

    def row_group(self, item: ObjectState, names: Sequence[str], group: int) -> dict[str, npt.NDArray[Any]]:
        """Columns of rows [group, group + 1) × ``ROWS_PER_CHUNK`` of an object, kept with the tables."""
        key, what = self.key_of(item), f"rows {group} {','.join(names)}"
        cached = self._cached(key, what)
        if cached is None:
            first = group * ROWS_PER_CHUNK
            rows = min(ROWS_PER_CHUNK, self._columns_reader(item).rows - first)
            made = self.columns(item, names, first, rows)
            cached = self._keep(key, what, made, sum(column.nbytes for column in made.values()) + 256)
        found: dict[str, npt.NDArray[Any]] = cached
        return found

    def cached_row_group(
        self, item: ObjectState, names: Sequence[str], group: int
    ) -> dict[str, npt.NDArray[Any]] | None:
        """``row_group`` if it needs no request."""
        found: dict[str, npt.NDArray[Any]] | None = self._cached(
            self.key_of(item), f"rows {group} {','.join(names)}"
        )
        return found

    def key_entries(self, item: ObjectState, key_hash: int) -> npt.NDArray[Any]:
        """Entries (hash, run, queue offset) of a key's hash in an object; empty when it has none."""
        key = self.key_of(item)
        sections = as_sections(item.sections)
        if SectionKind.KEYS not in sections:
            return np.zeros(0, KEY_DTYPE)
        reader = self._cached(key, "keys")
        if reader is None:
            index = sections[SectionKind.KEY_INDEX]
            made = KeysReader(self._fetch(key, index.range), sections, key=key)
            reader = self._keep(key, "keys", made, index.length * 4 + 256)
        pieces = [self._fetch(key, r) for r in reader.ranges(key_hash)]
        found: npt.NDArray[Any] = reader.decode(pieces, key_hash)
        return found

    def all_keys(self, item: ObjectState) -> npt.NDArray[Any]:
        """Every entry (``KEY_DTYPE``) of an object's keys, by hash; not kept."""
        key = self.key_of(item)
        sections = as_sections(item.sections)
        if SectionKind.KEYS not in sections:
            return np.zeros(0, KEY_DTYPE)
        index, data = sections[SectionKind.KEY_INDEX], sections[SectionKind.KEYS]
        return decode_keys(self._fetch(key, index.range), self._fetch(key, data.range), sections, key=key)

    def check_keys(self, item: ObjectState) -> int:
        """Decode all keys of an object, its filter too; the number of entries. ``Corrupt`` if the filter denies one."""
        key, entries = self.key_of(item), self.all_keys(item)
        filter_ = self.key_filter(item)
        sample = entries[:: max(1, len(entries) // 1000)]
        for run, key_hash in zip(sample["run"].tolist(), sample["hash"].tolist(), strict=True):
            if filter_ is None or not filter_.may_hold(run, key_hash):
                raise Corrupt("the key filter denies a key that is there", key=key, run=run)
        return len(entries)

    def key_filter(self, item: ObjectState) -> KeyFilter | None:
        """The per-run filter of an object; ``None`` when no message in it has a key."""
        key = self.key_of(item)
        section = as_sections(item.sections).get(SectionKind.KEY_FILTER)
        if section is None:
            return None
        cached = self._cached(key, "filter")
        if cached is None:
            made = KeyFilter(self._fetch(key, section.range), section, key=key)
            cached = self._keep(key, "filter", made, section.length * 2 + 256)
        found: KeyFilter = cached
        return found

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

    def block_bytes(self, item: ObjectState, first_block: int, end_block: int) -> list[bytes]:
        """Consecutive blocks of an object, of whatever runs, decompressed; neighbours come in one request."""
        key, table = self.key_of(item), self.block_table(item)
        if not 0 <= first_block <= end_block <= len(table):
            raise Corrupt("the block table is too short", key=key, expected=end_block, found=len(table))
        result: list[bytes] = []
        for start, end in coalesced(table, first_block, end_block):
            begin = int(table["position"][start])
            stop = int(table["position"][end - 1]) + int(table["stored_length"][end - 1])
            data = memoryview(self._fetch(key, ByteRange(begin, stop)))
            result.extend(_decode_block(data, table[b], begin, key) for b in range(start, end))
        return result

    def _columns_reader(self, item: ObjectState) -> ColumnsReader:
        key = self.key_of(item)
        cached = self._cached(key, "columns")
        if cached is None:
            sections = as_sections(item.sections)
            index = sections[SectionKind.COLUMN_INDEX]
            made = ColumnsReader(self._fetch(key, index.range), sections, key=key)
            cached = self._keep(key, "columns", made, index.length * 8 + 256)
        reader: ColumnsReader = cached
        return reader

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

    def _cached(self, key: str, what: str) -> Any:
        with self._lock:
            found = self._tables.get((key, what))
        return None if found is None else found[1]

    def _keep(self, key: str, what: str, value: T, size: int) -> T:
        with self._lock:
            if size <= self._tables.maxsize:
                self._tables[(key, what)] = (max(1, size), value)
        return value


def coalesced(table: BlockTable, first: int, end: int) -> list[tuple[int, int]]:
    """Numbers [first, end) of neighbouring blocks of at most ``COALESCE_BYTES`` stored, at least one block each."""
    ranges: list[tuple[int, int]] = []
    start = first
    while start < end:
        limit = int(table["position"][start]) + COALESCE_BYTES
        ends = table["position"][start:end] + table["stored_length"][start:end]
        stop = start + max(1, int(np.searchsorted(ends, limit, side="right")))
        ranges.append((start, stop))
        start = stop
    return ranges


def _decode_block(data: memoryview, row: npt.NDArray[Any], begin: int, key: str) -> bytes:
    position = int(row["position"])
    at = position - begin
    return decompress(
        data[at : at + int(row["stored_length"])],
        codec=int(row["codec"]),
        raw_length=int(row["raw_length"]),
        crc32c=int(row["crc32c"]),
        key=key,
        position=position,
    )
