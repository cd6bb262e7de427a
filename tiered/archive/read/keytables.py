"""What the index of an object's keys says, in as few requests as it takes: filters first, small tables whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.read.runs import is_segment
from tiered.archive.read.tables import TableCache
from tiered.archive.state.values import ObjectState
from tiered.codec.format.block import decode_block_table
from tiered.codec.format.directory import Directory, decode_directory
from tiered.codec.format.keyindex import (
    KEY_DTYPE,
    KeyFilter,
    KeysReader,
    decode_key_columns,
    decode_keys,
)
from tiered.codec.format.object import as_sections
from tiered.codec.format.sections import Section, SectionKind, Sections
from tiered.errors import Invalid
from tiered.model import ByteRange

SMALL_BYTES = 256 * 1024
"""Keys, their index and filter, blocks and directory of an object lie behind one another: up to this they come together."""

FEW_RUNS = 8
"""The filter of an object with so many runs is asked first: with more, one of them says *perhaps* too often."""

Entries = npt.NDArray[Any]
Fetch = Callable[[str, ByteRange], bytes]
Piece = Callable[[Section], bytes | memoryview]

_TABLES = (
    SectionKind.KEYS,
    SectionKind.KEY_INDEX,
    SectionKind.KEY_FILTER,
    SectionKind.BLOCK_TABLE,
    SectionKind.DIRECTORY,
)


class KeyTables:
    """Key tables of objects that are no segments; what is decoded is kept in ``tables``. For any thread."""

    def __init__(self, tables: TableCache, fetch: Fetch, key_of: Callable[[ObjectState], str]) -> None:
        self._tables = tables
        self._fetch = fetch
        self._key_of = key_of

    def entries(self, item: ObjectState, hashed: int) -> Entries:
        """Entries (hash, run, queue offset) of a key's hash in an object; empty when it has none.

        An object with small tables is asked once, and then for what its filter, which is kept, does not deny.
        """
        key, sections = self._sections(item)
        if SectionKind.KEYS not in sections:
            return np.zeros(0, KEY_DTYPE)
        known: KeyFilter | None = self._tables.find(key, "filter")
        together = _together(sections)
        if known is None and together.length <= SMALL_BYTES:
            return self._from_all(key, sections, together, hashed)
        if known is None and item.references <= FEW_RUNS:
            known = self.filter(item)
        if known is not None and not len(known.runs(hashed)):
            return np.zeros(0, KEY_DTYPE)
        reader = self._reader(key, sections, lambda section: self._fetch(key, section.range))
        return reader.decode([self._fetch(key, r) for r in reader.ranges(hashed)], hashed)

    def all(self, item: ObjectState) -> Entries:
        """Every entry (``KEY_DTYPE``) of the keys of an object, by hash; not kept."""
        key, sections = self._sections(item)
        if SectionKind.KEYS not in sections:
            return np.zeros(0, KEY_DTYPE)
        return decode_keys(*self._whole(key, sections), sections, key=key)

    def all_columns(self, item: ObjectState) -> dict[str, npt.NDArray[Any]]:
        """``all`` as one array for each field."""
        key, sections = self._sections(item)
        if SectionKind.KEYS not in sections:
            return {name: np.zeros(0, KEY_DTYPE[name]) for name in KEY_DTYPE.names or ()}
        return decode_key_columns(*self._whole(key, sections), sections, key=key)

    def _whole(self, key: str, sections: Sections) -> tuple[bytes, bytes]:
        """The index of the keys, and all of them."""
        index, data = sections[SectionKind.KEY_INDEX], sections[SectionKind.KEYS]
        return self._fetch(key, index.range), self._fetch(key, data.range)

    def filter(self, item: ObjectState) -> KeyFilter | None:
        """The per-run filter of an object; ``None`` when no message in it has a key."""
        key, sections = self._sections(item)
        section = sections.get(SectionKind.KEY_FILTER)
        if section is None:
            return None
        return self._filter(key, section, lambda of: self._fetch(key, of.range))

    def _from_all(self, key: str, sections: Sections, together: ByteRange, hashed: int) -> Entries:
        """The answer of tables that came in one request. Blocks and directory are kept where there is a message to read."""
        data = memoryview(self._fetch(key, together))

        def piece(section: Section) -> memoryview:
            return data[section.position - together.start :][: section.length]

        reader = self._reader(key, sections, piece)
        pieces = [data[r.start - together.start : r.end - together.start] for r in reader.ranges(hashed)]
        found = reader.decode(pieces, hashed)
        self._filter(key, sections[SectionKind.KEY_FILTER], piece)
        if len(found):
            blocks, directory = sections[SectionKind.BLOCK_TABLE], sections[SectionKind.DIRECTORY]
            self._tables.once(
                key, "blocks", lambda: decode_block_table(piece(blocks), blocks, key=key), lambda t: t.nbytes
            )
            self._tables.once(
                key, "directory", lambda: decode_directory(piece(directory), directory, key=key), weight
            )
        return found

    def _reader(self, key: str, sections: Sections, piece: Piece) -> KeysReader:
        index = sections[SectionKind.KEY_INDEX]
        return self._tables.once(
            key,
            "keys",
            lambda: KeysReader(piece(index), sections, key=key),
            lambda made: index.length * 4 + 256,
        )

    def _filter(self, key: str, section: Section, piece: Piece) -> KeyFilter:
        return self._tables.once(
            key,
            "filter",
            lambda: KeyFilter(piece(section), section, key=key),
            lambda made: section.length * 2 + 256,
        )

    def _sections(self, item: ObjectState) -> tuple[str, Sections]:
        """A segment without a key index must not pass for an object without keys."""
        if is_segment(item):
            raise Invalid("a segment has filters and columns instead of a key index", path=item.path)
        return self._key_of(item), as_sections(item.sections)


def weight(directory: Directory) -> int:
    """Bytes that a directory takes in memory, about."""
    return directory.runs.nbytes + 64 * len(directory.tags)


def _together(sections: Sections) -> ByteRange:
    ranges = [sections[kind].range for kind in _TABLES]
    return ByteRange(min(r.start for r in ranges), max(r.end for r in ranges))
