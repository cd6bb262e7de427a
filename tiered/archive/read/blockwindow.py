"""Neighbouring blocks of an object, as they came in one request: their checksums, and their records against the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tiered.archive.read.agreement import NAMES, Columns, agree, check_block, queue_of
from tiered.archive.read.objects import BlockSlice, ObjectReader
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.dictionary import Dictionary
from tiered.codec.format.block import BlockTable, opened
from tiered.codec.format.chunks import ROWS_PER_CHUNK
from tiered.codec.format.directory import Directory
from tiered.codec.format.sections import CODEC_NONE, check_length_and_crc
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, Invalid, NotFound, Unavailable

Heard = Callable[[Sequence[RunState], Buffer], None]
"""Gets records back to back, whole and compared as far as they are sound, and the runs of the fold in their object. By any
thread."""


@dataclass(frozen=True, slots=True)
class ContentStep:
    """What one step looked at. ``bytes``: stored, as they were read. ``damage``: what was wrong, with key and position;
    ``unseen``: why the rest of the object was not looked at."""

    bytes: int = 0
    blocks: int = 0
    messages: int = 0
    record_bytes: int = 0
    damage: Corrupt | NotFound | None = None
    unseen: Unavailable | Invalid | None = None


def _opened(
    data: memoryview, table: BlockTable, key: str, dictionary: Dictionary | None, *, records: bool
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
                    stored, codec=codec, raw_length=raw_length, crc32c=crc, key=key, position=position,
                    dictionary=dictionary,
                )  # fmt: skip
            else:
                check_length_and_crc(
                    stored, length=length, crc=crc, what="a block", key=key, position=position
                )
        except Corrupt as error:
            damaged.append(error)
    return sound, damaged


@dataclass(frozen=True, slots=True)
class BlockWindow:
    """Blocks [first, end) of an object. ``rows``: the row at which each block begins, and their end."""

    first: int
    end: int
    table: BlockTable
    rows: Ints
    directory: Directory | None
    key: str

    def steps(
        self,
        objects: ObjectReader,
        item: ObjectState,
        stored: memoryview,
        read_bytes: int,
        heard: Callable[[Buffer], None] | None,
    ) -> Iterator[ContentStep]:
        """Damage, and then what was looked at. ``stored``: the window's bytes; ``read_bytes``: of them not told before."""
        table, directory = self.table[self.first : self.end], self.directory
        dictionary = None if directory is None else objects.dictionary_of(item, table)
        blocks, damaged = _opened(stored, table, self.key, dictionary, records=directory is not None)
        yield from (ContentStep(damage=e) for e in damaged)
        if directory is not None and blocks:
            plain = len(blocks) == len(table) and (table["codec"] == CODEC_NONE).all()
            records = stored if plain else b"".join(blocks.values())
            found = self._differences(objects, item, records, blocks, directory)
            yield from (ContentStep(damage=e) for e in found)
            if heard is not None:
                heard(records)
        yield ContentStep(
            read_bytes,
            len(table), int(self.rows[self.end] - self.rows[self.first]), sum(map(len, blocks.values())),
        )  # fmt: skip

    def _differences(
        self,
        objects: ObjectReader,
        item: ObjectState,
        records: Buffer,
        blocks: dict[int, Buffer],
        directory: Directory,
    ) -> Iterator[Corrupt]:
        """What the blocks' ``records`` and the columns do not agree on."""
        low = int(self.rows[self.first])
        try:
            columns = self._columns(objects, item)
        except Corrupt as error:
            yield error
            return
        table = self.table[self.first : self.end]
        if len(blocks) == len(table) and agree(records, table, columns, directory):
            return
        run = table["run"]
        edges = [0, *(np.flatnonzero(np.diff(run)) + 1).tolist(), len(run)]
        for begin, end in pairwise(edges):
            numbers = [number for number in range(begin, end) if number in blocks]
            if (
                len(numbers) < end - begin
                or self._wrong(columns, low, blocks, begin, end, directory) is not None
            ):
                found = (
                    self._wrong(columns, low, blocks, number, number + 1, directory) for number in numbers
                )
                yield from (error for error in found if error is not None)

    def _columns(self, objects: ObjectReader, item: ObjectState) -> Columns:
        """Of the window's rows. What a group of rows has is decoded once, although two or three windows may have part of it."""
        low, high = int(self.rows[self.first]), int(self.rows[self.end])
        first, end = low // ROWS_PER_CHUNK, -(-high // ROWS_PER_CHUNK)
        groups = [objects.row_group(item, NAMES, group) for group in range(first, end)]
        skip = low - first * ROWS_PER_CHUNK
        found = {
            name: np.concatenate([group[name] for group in groups])[skip : skip + high - low]
            for name in NAMES
        }
        if len(found["size"]) < high - low:
            return objects.columns(item, NAMES, low, high - low)  # which says what is wrong
        return found

    def _wrong(
        self,
        columns: Columns,
        low: int,
        blocks: dict[int, Buffer],
        begin: int,
        end: int,
        directory: Directory,
    ) -> Corrupt | None:
        """What is wrong with blocks [begin, end) of the window, which are of one run."""
        at = self.first + begin
        first_row, stop = int(self.rows[at]), int(self.rows[self.first + end])
        data = blocks[begin] if end == begin + 1 else b"".join(blocks[n] for n in range(begin, end))
        piece = BlockSlice(int(self.table["first_queue_offset"][at]), stop - first_row, first_row, data)
        part = {name: values[first_row - low : stop - low] for name, values in columns.items()}
        try:
            check_block(piece, part, queue_of(directory, int(self.table["run"][at])), self.key)
        except Corrupt as error:
            return error
        return None
