"""Which dictionary small blocks are compressed with, if with any (FORMAT.md, "Dictionary").

A dictionary is made of blocks that are about to be stored, and stored with them: it is never missing where they are there, is
encrypted, checked, replaced and deleted with them, and costs some 1 to 3 KiB an object where it saves half of its small blocks.
"""

from __future__ import annotations

import numpy as np

from tiered.codec.dictionary import Dictionary, trained
from tiered.codec.format.block import DICTIONARY_BLOCK_BYTES
from tiered.codec.format.sections import Section, checked, unwrap
from tiered.codec.types import Buffer, Ints

LEAST_RAW = 8
"""A dictionary is used where small blocks have so many times its bytes: below that it may not save what it takes."""

SAMPLES = 4096
SAMPLE_BYTES = 1024 * 1024
"""What it is made of at most: more takes longer, and gives no better one."""


def worth_it(edges: Ints, size: int) -> bool:
    """Whether blocks ``[edges[i], edges[i + 1])`` have enough that is small for a dictionary of ``size`` bytes; 0 is never."""
    lengths = np.diff(edges)
    return size > 0 and int(lengths[lengths < DICTIONARY_BLOCK_BYTES].sum()) >= LEAST_RAW * size


def trained_on(raw: Buffer, edges: Ints, size: int) -> Dictionary | None:
    """A dictionary of at most ``size`` bytes for small ones of the blocks ``raw[edges[i]:edges[i + 1]]``; ``None`` where it is
    not worth it, or zstd finds nothing that they have in common."""
    if not worth_it(edges, size):
        return None
    lengths = np.diff(edges)
    small = np.flatnonzero(lengths < DICTIONARY_BLOCK_BYTES)
    step = max(1, len(small) // SAMPLES, int(lengths[small].sum()) // SAMPLE_BYTES)
    chosen = small[::step]
    chosen = chosen[np.cumsum(lengths[chosen]) <= SAMPLE_BYTES]
    view = memoryview(raw)
    starts, ends = edges[chosen].tolist(), edges[chosen + 1].tolist()
    return trained([view[a:b] for a, b in zip(starts, ends, strict=True)], size)


def decode_dictionary(data: Buffer, section: Section, *, key: str) -> Dictionary:
    """The dictionary of an object's blocks. ``Corrupt`` unless its CRC is right and it is one."""
    content = unwrap(
        checked(data, section, what="the dictionary", key=key), key=key, position=section.position
    )
    return Dictionary.of(content, key=key, position=section.position)
