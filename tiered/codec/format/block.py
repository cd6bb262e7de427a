"""Blocks, consecutive records of one queue, and the table of them (FORMAT.md, "Blocks", "Block table")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import crc32c, crc32cs
from tiered.codec.dictionary import Dictionary
from tiered.codec.format.intpack import narrow, pack_table, unpack_table
from tiered.codec.format.sections import (
    CODEC_NONE,
    CODEC_ZSTD,
    CODEC_ZSTD_DICTIONARY,
    Section,
    check_length_and_crc,
    checked,
    unwrap,
    wrap,
)
from tiered.codec.types import Buffer
from tiered.codec.zstd import deflate, deflate_pieces, inflate
from tiered.errors import Corrupt, Invalid

MAX_BLOCK_BYTES = 256 * 1024 * 1024
"""Largest block, raw: one message as large as the largest that a broker can be told to take, with room."""

BLOCK_DTYPE = np.dtype(
    [
        ("run", "<i4"),  # row number in the object's run table
        ("first_queue_offset", "<i8"),
        ("rows", "<i4"),
        ("position", "<i8"),  # in the object
        ("stored_length", "<i4"),
        ("raw_length", "<i4"),
        ("codec", "u1"),
        ("crc32c", "<u4"),  # of the stored bytes
        ("min_store_time", "<i8"),  # ms, as are all times
        ("max_store_time", "<i8"),
    ]
)

_STORED = tuple(name for name in BLOCK_DTYPE.names or () if name != "position")
_MIN_SAVING = 0.9  # compressed only if it shrinks to this part or less
_PART_BYTES = 16 * 1024  # blocks of this size are worth a part each; smaller ones are joined
DICTIONARY_BLOCK_BYTES = 16 * 1024
"""Blocks below this are compressed with the dictionary, where there is one: a longer one soon knows by itself what is in it."""

_QUICK_LEVEL = (
    -1
)  # of zstd: without entropy coding, whose tables are most of the work for a block of one or two messages

BlockTable = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StoredBlocks:
    """Blocks as they are stored, back to back in ``parts``, of which no block crosses two; one entry per block in the arrays:
    stored length in bytes, codec, CRC32C of the stored bytes.

    ``part_ends``: number of blocks in this part and those before it. ``dictionary``: of all blocks of codec 2; ``None`` where
    there is none.
    """

    parts: tuple[Buffer, ...]
    part_ends: tuple[int, ...]
    lengths: npt.NDArray[np.int64]
    codecs: npt.NDArray[np.int64]
    crcs: npt.NDArray[np.uint32]
    dictionary: Dictionary | None = None

    @classmethod
    def of(cls, blocks: Sequence[tuple[Buffer, int, int]]) -> StoredBlocks:
        """From what ``compress`` returned for each."""
        count = len(blocks)
        return cls(
            tuple(stored for stored, _, _ in blocks),
            tuple(range(1, count + 1)),
            np.fromiter((len(stored) for stored, _, _ in blocks), np.int64, count),
            np.fromiter((codec for _, codec, _ in blocks), np.int64, count),
            np.fromiter((crc for _, _, crc in blocks), np.uint32, count),
        )

    @classmethod
    def joined(cls, groups: Sequence[StoredBlocks]) -> StoredBlocks:
        """Blocks of at least one group, one group after the other, all of one dictionary if of any."""
        before = np.cumsum([0, *(len(g) for g in groups)]).tolist()
        return cls(
            tuple(part for g in groups for part in g.parts),
            tuple(start + end for start, g in zip(before, groups, strict=False) for end in g.part_ends),
            np.concatenate([g.lengths for g in groups]),
            np.concatenate([g.codecs for g in groups]),
            np.concatenate([g.crcs for g in groups]),
            next((g.dictionary for g in groups if g.dictionary is not None), None),
        )

    def __len__(self) -> int:
        return len(self.lengths)

    def between(self, first: int, end: int) -> list[Buffer]:
        """The bytes of blocks [first, end), in as few pieces as there are parts; not copied."""
        pieces: list[Buffer] = []
        begin = 0
        for part, part_end in zip(self.parts, self.part_ends, strict=True):
            low, high = max(first, begin), min(end, part_end)
            if low < high:
                start = int(self.lengths[begin:low].sum())
                pieces.append(memoryview(part)[start : start + int(self.lengths[low:high].sum())])
            begin = part_end
        return pieces


def block_starts(
    edges: npt.NDArray[np.int64], run_starts: npt.NDArray[np.int64], block_bytes: int
) -> npt.NDArray[np.int64]:
    """The row at which each block begins, when runs are cut into blocks of about ``block_bytes``, at least one row each.

    ``edges``: the byte at which each row begins, and the end of the last; ``run_starts``: the row at which each run begins.
    """
    counts = np.diff(run_starts, append=len(edges) - 1)
    number = (edges[:-1] - np.repeat(edges[run_starts], counts)) // block_bytes
    begins = np.zeros(len(number), np.bool_)
    begins[1:] = number[1:] != number[:-1]
    begins[run_starts] = True
    return np.flatnonzero(begins)


def compress(raw: Buffer, *, level: int) -> tuple[Buffer, int, int]:
    """Stored bytes, codec and CRC32C of the stored bytes. Pure, thread-safe, lets go of the interpreter lock.

    ``level``: zstd's, 0 for none. Compressed only if that saves 10 %; otherwise the stored bytes are ``raw``
    itself, not a copy. ``Invalid`` if ``raw`` is empty or more than ``MAX_BLOCK_BYTES``.
    """
    _check_raw_lengths(np.array([len(raw)]))
    if level:
        packed = deflate(raw, level=level)
        if len(packed) <= _MIN_SAVING * len(raw):
            return packed, CODEC_ZSTD, crc32c(packed)
    return raw, CODEC_NONE, crc32c(raw)


def compress_pieces(
    raw: Buffer,
    edges: npt.NDArray[np.int64],
    *,
    level: int,
    quick_below: int = 0,
    plain_below: int = 0,
    dictionary: Dictionary | None = None,
) -> StoredBlocks:
    """``compress`` of every ``raw[edges[i]:edges[i + 1]]``; always a copy. At least one. Small blocks share one part.

    At level 1, which asks for speed, blocks of less than ``quick_below`` bytes are compressed without entropy coding, a third
    of the time, and those of less than ``plain_below`` not at all. With a ``dictionary`` all below
    ``DICTIONARY_BLOCK_BYTES`` are compressed with it instead.
    """
    raw_lengths = np.diff(edges)
    _check_raw_lengths(raw_lengths)
    # As they are, until one is found to be smaller compressed.
    blocks: list[Buffer] = list(
        map(memoryview(raw).__getitem__, map(slice, edges[:-1].tolist(), edges[1:].tolist()))
    )
    lengths, codecs = raw_lengths.copy(), np.full(len(raw_lengths), CODEC_NONE)
    for rows, how, with_it in _levels(raw_lengths, level, quick_below, plain_below, dictionary):
        made = deflate_pieces(raw, edges[:-1][rows], raw_lengths[rows], level=how, dictionary=with_it)
        packed = np.fromiter(map(len, made), np.int64, len(made))
        smaller = np.flatnonzero(packed <= _MIN_SAVING * raw_lengths[rows])
        lengths[rows[smaller]] = packed[smaller]
        codecs[rows[smaller]] = CODEC_ZSTD if with_it is None else CODEC_ZSTD_DICTIONARY
        for row, number in zip(rows[smaller].tolist(), smaller.tolist(), strict=True):
            blocks[row] = made[number]
    crcs = crc32cs(blocks)
    used = dictionary if (codecs == CODEC_ZSTD_DICTIONARY).any() else None
    if int(lengths.sum()) >= _PART_BYTES * len(blocks):
        copied = tuple(
            bytes(b) if codec == CODEC_NONE else b for b, codec in zip(blocks, codecs, strict=True)
        )
        return StoredBlocks(copied, tuple(range(1, len(blocks) + 1)), lengths, codecs, crcs, used)
    return StoredBlocks((b"".join(blocks),), (len(blocks),), lengths, codecs, crcs, used)


def _levels(
    lengths: npt.NDArray[np.int64],
    level: int,
    quick_below: int,
    plain_below: int,
    dictionary: Dictionary | None,
) -> Iterator[tuple[npt.NDArray[np.intp], int, Dictionary | None]]:
    """Blocks that are compressed, by zstd's level and with what dictionary."""
    if not level:
        return
    short = lengths < (0 if dictionary is None else DICTIONARY_BLOCK_BYTES)
    quick = ~short & (lengths < (quick_below if level == 1 else 0))
    for rows, how, with_it in (
        (short, level, dictionary),
        (quick & (lengths >= plain_below), _QUICK_LEVEL, None),
        (~short & ~quick, level, None),
    ):
        if rows.any():
            yield np.flatnonzero(rows), how, with_it


def _check_raw_lengths(lengths: npt.NDArray[np.int64]) -> None:
    low, high = int(lengths.min()), int(lengths.max())
    if not 1 <= low <= high <= MAX_BLOCK_BYTES:
        raise Invalid(
            "a block of this size cannot be read again",
            expected=f"1 to {MAX_BLOCK_BYTES} bytes",
            found=low if low < 1 else high,
        )


def decompress(
    stored: Buffer,
    *,
    codec: int,
    raw_length: int,
    crc32c: int,
    key: str,
    position: int,
    dictionary: Dictionary | None = None,
) -> bytes:
    """The records of a block, after its CRC was found right. ``key`` and ``position`` say where it lies; ``dictionary`` is its
    object's.

    ``Corrupt`` if anything disagrees. Allocates at most ``raw_length``, which must not pass ``MAX_BLOCK_BYTES``.
    """
    found = opened(
        stored, codec=codec, raw_length=raw_length, crc32c=crc32c, key=key, position=position, dictionary=dictionary
    )  # fmt: skip
    return found if isinstance(found, bytes) else bytes(found)


def opened(
    stored: Buffer,
    *,
    codec: int,
    raw_length: int,
    crc32c: int,
    key: str,
    position: int,
    dictionary: Dictionary | None = None,
) -> Buffer:
    """``decompress`` without a copy: of a block that is not compressed, ``stored`` itself."""
    check_length_and_crc(stored, length=len(stored), crc=crc32c, what="a block", key=key, position=position)
    if codec == CODEC_ZSTD:
        return inflate(stored, raw_length=raw_length, bound=MAX_BLOCK_BYTES, key=key, position=position)
    if codec == CODEC_ZSTD_DICTIONARY and dictionary is not None:
        return inflate(
            stored, raw_length=raw_length, bound=MAX_BLOCK_BYTES, key=key, position=position, dictionary=dictionary
        )  # fmt: skip
    if codec == CODEC_ZSTD_DICTIONARY:
        raise Corrupt(
            "a block is compressed with a dictionary, and its object has none", key=key, position=position
        )
    if codec != CODEC_NONE or len(stored) != raw_length:
        raise Corrupt(
            "a block does not fit its row in the block table",
            key=key,
            position=position,
            expected=f"codec 0, 1 or 2, {raw_length} bytes",
            found=f"codec {codec}, {len(stored)} bytes stored",
        )
    return stored


def encode_block_table(blocks: BlockTable) -> bytes:
    """The section's bytes. Positions are not stored: blocks lie back to back from byte 0."""
    return wrap(pack_table({name: blocks[name] for name in _STORED}))


def decode_block_table(data: Buffer, section: Section, *, key: str) -> BlockTable:
    """The table, positions filled in. ``Corrupt`` unless CRC, types, lengths and the order of runs are
    right.
    """
    content = unwrap(
        checked(data, section, what="the block table", key=key), key=key, position=section.position
    )
    columns, rest = unpack_table(content, _STORED, key=key, position=section.position)
    blocks = narrow(columns, BLOCK_DTYPE, what="the block table", key=key, position=section.position)
    reason = "bytes behind the table" if len(rest) else block_table_fault(blocks)
    if reason is not None:
        raise Corrupt("the block table makes no sense", key=key, position=section.position, found=reason)
    return place_blocks(blocks)


def place_blocks(blocks: BlockTable) -> BlockTable:
    """Fill in ``position``, in place: each block begins where the one before it ends."""
    ends = np.cumsum(blocks["stored_length"], dtype=np.int64)
    blocks["position"] = ends - blocks["stored_length"]
    return blocks


def block_table_fault(blocks: BlockTable) -> str | None:
    """What is wrong with a table, or ``None``."""
    if not len(blocks):
        return "no block"
    for name in ("rows", "stored_length", "raw_length"):
        if blocks[name].min() < 1:
            return f"{name} {blocks[name].min()}"
    if blocks["raw_length"].max() > MAX_BLOCK_BYTES:
        return f"raw_length {blocks['raw_length'].max()}, at most {MAX_BLOCK_BYTES}"
    run = blocks["run"].astype(np.int64)
    step = np.diff(run)
    if run[0] != 0 or (len(step) and (step.min() < 0 or step.max() > 1)):
        return "runs do not ascend from 0 one by one"
    return None
