"""Objects: blocks of many queues, the tables that describe them, footer (FORMAT.md, "Object").

One layout for all levels and for the data that travels inside a commit::

    blocks | columns | column index | keys | key index | key filter | dictionary | block table | directory | footer

Blocks begin at byte 0; the keys' three sections are absent when no message has a key, the dictionary when no block needs
one. The tables that every reader wants lie last, so that one request for the tail usually brings them all.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import crc32c
from tiered.codec.dictionary import Dictionary
from tiered.codec.format.block import (
    BLOCK_DTYPE,
    BlockTable,
    block_table_fault,
    decode_block_table,
    encode_block_table,
)
from tiered.codec.format.chunks import ChunkedColumn, ChunkedTable, encode_chunks
from tiered.codec.format.directory import (
    RUN_DTYPE,
    Directory,
    decode_directory,
    directory_fault,
    encode_directory,
)
from tiered.codec.format.keyindex import KEY_DTYPE, KeyFilter, KeysReader, decode_keys, encode_keys
from tiered.codec.format.sections import (
    CODEC_ZSTD_DICTIONARY,
    FIRST_OPTIONAL_SECTION,
    TRAILER_BYTES,
    Section,
    SectionKind,
    Sections,
    close_footer,
    open_footer,
    refuse_encryption,
    section_of,
    wrap,
)
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Invalid, Refused

__all__ = [
    "BLOCK_DTYPE", "FOOTER_BYTES", "KEY_DTYPE", "ROW_DTYPE", "RUN_DTYPE", "ColumnsReader", "Directory",
    "EncodedObject", "Footer", "KeyFilter", "KeysReader", "MessageKeys", "ObjectTables", "as_sections",
    "check_object", "decode_block_table", "decode_directory", "decode_footer", "decode_keys",
    "encode_object",
]  # fmt: skip

MAGIC = b"RMQTOBJ\n"
FOOTER_BYTES = 512
MAX_SECTIONS = 12

ROW_DTYPE = np.dtype(
    [
        ("size", "<i4"),  # of the record, bytes
        ("tags_code", "<i8"),
        ("physical_offset", "<i8"),
        ("store_timestamp", "<i8"),
        ("born_timestamp", "<i8"),
        ("sys_flag", "<i4"),
        ("body_crc", "<u4"),
        ("body_length", "<i4"),
        ("tag", "<i4"),  # index into the object's tags; 0 = none
        ("queue_offsets", "<i4"),  # owned
    ]
)

_COLUMNS = {  # in the order in which they lie: what a consume queue needs comes first
    "size": ChunkedColumn(1, np.dtype("<i4")),
    "tags_code": ChunkedColumn(2, np.dtype("<i8")),
    "queue_offsets": ChunkedColumn(3, np.dtype("<i4")),
    "tag": ChunkedColumn(4, np.dtype("<i4")),
    "store_timestamp": ChunkedColumn(5, np.dtype("<i8")),
    "born_timestamp": ChunkedColumn(6, np.dtype("<i8")),
    "physical_offset": ChunkedColumn(7, np.dtype("<i8")),
    "sys_flag": ChunkedColumn(8, np.dtype("<i4")),
    "body_crc": ChunkedColumn(9, np.dtype("<u4")),
    "body_length": ChunkedColumn(10, np.dtype("<i4")),
    "commit_seq": ChunkedColumn(11, np.dtype("<i8")),  # merged and sealed objects only
}

_HEAD = struct.Struct("<16s16sQBBxx80sI")  # ids, length, level, section count, encryption field, zero
_ENTRY = struct.Struct("<IIQQ")  # number, CRC32C, position, length
_ENTRIES_AT = 128
_REQUIRED = (
    SectionKind.DIRECTORY,
    SectionKind.BLOCK_TABLE,
    SectionKind.COLUMNS,
    SectionKind.COLUMN_INDEX,
)


@dataclass(frozen=True, slots=True)
class EncodedObject:
    """An object ready to be put: the concatenation of ``parts``. ``sections`` goes into ``AddObject``."""

    parts: list[Buffer]
    length: int
    sections: dict[int, Section]


@dataclass(frozen=True, slots=True)
class Footer:
    """An object's own word on itself; compare ids and sections with the fold."""

    object_id: bytes
    archive_id: bytes
    level: int
    version: int
    length: int
    sections: dict[int, Section]


class ColumnsReader(ChunkedTable):
    """Columns per message. ``names`` are ``ROW_DTYPE``'s, and ``commit_seq`` in merged and sealed objects."""

    def __init__(self, index: Buffer, sections: Sections, *, key: str) -> None:
        """``index``: the column index section. ``Corrupt`` if it is damaged or a column is missing."""
        at = section_of(sections, SectionKind.COLUMN_INDEX, key=key)
        super().__init__(
            index,
            index_section=at,
            section=section_of(sections, SectionKind.COLUMNS, key=key),
            schema=_COLUMNS,
            what="the columns",
            key=key,
        )
        missing = set(ROW_DTYPE.names or ()) - set(self.names)
        if missing or len(self.rest):
            raise Corrupt(
                "the column index makes no sense",
                key=key,
                position=at.position,
                expected="all columns and nothing more",
                found=f"{sorted(missing)} missing, {len(self.rest)} bytes more",
            )


@dataclass(frozen=True, slots=True)
class MessageKeys:
    """Keys of messages: hash, run in the object's table and queue offset of each."""

    hash: npt.NDArray[np.uint64]
    run: npt.NDArray[Any]
    queue_offset: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ObjectTables:
    """What an object is made of, at least one run.

    ``runs`` (``RUN_DTYPE``) in the order of their blocks and rows; ``blocks`` (``BLOCK_DTYPE``, ``position`` ignored) describe
    ``stored``, their bytes back to back in any number of pieces; ``rows`` (``ROW_DTYPE``) in record order; ``tags[0]`` is
    empty. ``commit_seq``: the commit that each row came with; ``None`` where that is the object's own. ``dictionary``: of the
    blocks of codec 2; left out where there is none.
    """

    topics: Sequence[str]
    runs: npt.NDArray[Any]
    blocks: BlockTable
    stored: Sequence[Buffer]
    rows: npt.NDArray[Any]
    tags: Sequence[bytes]
    keys: MessageKeys
    commit_seq: npt.NDArray[np.int64] | None = None
    dictionary: Dictionary | None = None

    @property
    def uses_dictionary(self) -> bool:
        """Whether any block cannot be read without it."""
        return bool((self.blocks["codec"] == CODEC_ZSTD_DICTIONARY).any())


def encode_object(tables: ObjectTables, *, object_id: bytes, archive_id: bytes, level: int) -> EncodedObject:
    """Encode an object. Same input, same bytes (for one version of the zstd library).

    ``Invalid`` if the tables contradict each other: such an object could not be read.
    """
    runs, rows, keys = tables.runs, tables.rows, tables.keys
    fault = _input_fault(tables)
    if fault is not None or not len(object_id) == len(archive_id) == 16:
        raise Invalid("the tables of an object contradict each other", found=fault or "ids are not 16 bytes")
    columns = {name: rows[name] for name in _COLUMNS if name != "commit_seq"}
    if tables.commit_seq is not None:
        columns["commit_seq"] = tables.commit_seq
    chunks, index = encode_chunks(columns, _COLUMNS)
    sections: dict[int, list[bytes]] = {SectionKind.COLUMNS: chunks, SectionKind.COLUMN_INDEX: [index]}
    if len(keys.hash):
        chunks, key_index, key_filter = encode_keys(keys.hash, keys.run, keys.queue_offset, len(runs))
        sections[SectionKind.KEYS] = chunks
        sections[SectionKind.KEY_INDEX] = [key_index]
        sections[SectionKind.KEY_FILTER] = [key_filter]
    if tables.uses_dictionary and tables.dictionary is not None:
        sections[SectionKind.DICTIONARY] = [wrap(tables.dictionary.content)]
    sections[SectionKind.BLOCK_TABLE] = [encode_block_table(tables.blocks)]
    sections[SectionKind.DIRECTORY] = [encode_directory(tables.topics, runs, tables.tags)]
    return _assemble(object_id, archive_id, level, tables.stored, sections)


def _assemble(
    object_id: bytes,
    archive_id: bytes,
    level: int,
    stored: Sequence[Buffer],
    sections: Mapping[int, list[bytes]],
) -> EncodedObject:
    parts: list[Buffer] = list(stored)
    at = sum(map(len, stored))
    placed: dict[int, Section] = {}
    for number, pieces in sections.items():
        crc = 0
        for piece in pieces:
            crc = crc32c(piece, crc)
        length = sum(map(len, pieces))
        placed[int(number)] = Section(at, length, crc)
        parts += pieces
        at += length
    length = at + FOOTER_BYTES
    placed = dict(sorted(placed.items()))
    head = _HEAD.pack(object_id, archive_id, length, level, len(placed), bytes(80), 0)
    entries = b"".join(_ENTRY.pack(n, s.crc32c, s.position, s.length) for n, s in placed.items())
    parts.append(close_footer((head + entries).ljust(FOOTER_BYTES - TRAILER_BYTES, b"\0"), MAGIC))
    return EncodedObject(parts, length, placed)


def decode_footer(tail: Buffer, *, object_length: int, key: str) -> Footer:
    """The footer at the end of ``tail`` (at least the last ``FOOTER_BYTES`` of an object of
    ``object_length`` bytes).

    ``Corrupt`` if it is not one, is damaged or states another length; ``Refused`` if a newer program wrote
    the object, it is encrypted, or holds a section that a reader must know and this one does not.
    """
    at = max(0, object_length - FOOTER_BYTES)
    body, version = open_footer(tail, MAGIC, FOOTER_BYTES, what="an object", key=key, position=at)
    object_id, archive_id, length, level, count, encryption, _ = _HEAD.unpack_from(body)
    refuse_encryption(encryption, what="an object", key=key)
    if length != object_length or length < FOOTER_BYTES or not 1 <= count <= MAX_SECTIONS:
        raise Corrupt(
            "an object is not what its footer says",
            key=key,
            position=at,
            expected=f"{length} bytes, 1 to {MAX_SECTIONS} sections",
            found=f"{object_length} bytes, {count} sections",
        )
    raw = [_ENTRY.unpack_from(body, _ENTRIES_AT + i * _ENTRY.size) for i in range(count)]
    sections = {number: Section(position, size, crc) for number, crc, position, size in raw}
    fault = _sections_fault([r[0] for r in raw], sections, at)
    if fault is not None:
        raise Corrupt("an object's section table makes no sense", key=key, position=at, found=fault)
    known = (*range(SectionKind.DIRECTORY, SectionKind.KEY_FILTER + 1), SectionKind.DICTIONARY)
    unknown = [n for n in sections if n < FIRST_OPTIONAL_SECTION and n not in known]
    if unknown:
        raise Refused(
            "an object holds sections that this program must know to read it",
            hint="use the program version that wrote it or a later one",
            key=key,
            position=at,
            expected="sections 1 to 7 and 10",
            found=unknown,
        )
    return Footer(object_id, archive_id, level, version, length, sections)


def as_sections(raw: Mapping[int, Sequence[int]]) -> dict[int, Section]:
    """Sections as an ``AddObject`` edit holds them, {number: [position, length, crc32c]}."""
    return {int(number): Section(*map(int, entry)) for number, entry in raw.items()}


def check_object(directory: Directory, blocks: BlockTable, columns: ColumnsReader, *, key: str) -> None:
    """Compare the tables of one object with each other; ``Corrupt`` if they disagree."""
    fault = _tables_fault(directory.runs, blocks, columns.rows)
    if fault is not None:
        raise Corrupt("the tables of an object contradict each other", key=key, found=fault)


def _sections_fault(numbers: list[int], sections: Sections, end: int) -> str | None:
    if any(a >= b for a, b in itertools.pairwise(numbers)):
        return "numbers do not ascend"
    missing = [kind.name for kind in _REQUIRED if kind not in sections]
    keys = {SectionKind.KEYS, SectionKind.KEY_INDEX, SectionKind.KEY_FILTER} & set(sections)
    if missing or len(keys) not in (0, 3):
        return f"missing: {missing or 'one of the sections for keys'}"
    at = 0
    for section in sorted(sections.values()):
        if section.position < at or section.position + section.length > end:
            return f"sections overlap or pass the footer at {section.position}"
        at = section.position + section.length
    return None


def _tables_fault(runs: npt.NDArray[Any], blocks: BlockTable, rows: int) -> str | None:
    """What two tables disagree on; each must have passed its own check."""
    per_run = np.bincount(blocks["run"], minlength=len(runs))
    if len(per_run) != len(runs) or (per_run != runs["block_count"]).any():
        return "blocks per run"
    first = runs["first_block"]
    for name, total in (("rows", "rows"), ("raw_length", "bytes")):
        if (np.add.reduceat(blocks[name].astype(np.int64), first) != runs[total]).any():
            return f"{total} of the blocks and of their run"
    if int(runs["rows"].sum()) != rows:
        return f"{int(runs['rows'].sum())} rows of runs, {rows} rows of columns"
    return None


def _input_fault(tables: ObjectTables) -> str | None:
    runs, blocks, rows, keys = tables.runs, tables.blocks, tables.rows, tables.keys
    fault = (
        directory_fault(tables.topics, runs, tables.tags)
        or block_table_fault(blocks)
        or _tables_fault(runs, blocks, len(rows))
    )
    if fault is not None:
        return fault
    if sum(map(len, tables.stored)) != int(blocks["stored_length"].sum(dtype=np.int64)):
        return "stored bytes and block table"
    if tables.uses_dictionary and tables.dictionary is None:
        return "a block of codec 2 and no dictionary"
    if rows["tag"].min() < 0 or rows["tag"].max() >= len(tables.tags):
        return "tag numbers"
    if not len(keys.hash) == len(keys.run) == len(keys.queue_offset):
        return "lengths of the key columns"
    if len(keys.run) and (keys.run.min() < 0 or keys.run.max() >= len(runs)):
        return "runs of keys"
    return None
