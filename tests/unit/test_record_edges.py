"""Where the records of a block begin: those of one size are seen at a glance, and no head of any of them may be otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from tiered.codec.record.frame import edges_of
from tiered.codec.record.layout import (
    MAGIC_AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    SIZE_AND_MAGIC,
)

ROWS = 7
SIZE = MIN_RECORD_BYTES + 12


def block(size: int = SIZE, magic: int = MAGIC_V1) -> bytearray:
    return bytearray((SIZE_AND_MAGIC.pack(size, magic) + bytes(size - SIZE_AND_MAGIC.size)) * ROWS)


def even(size: int = SIZE) -> list[int]:
    return list(range(0, (ROWS + 1) * size, size))


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_records_of_one_size(magic: int) -> None:
    found = edges_of(memoryview(block(magic=magic)), ROWS)
    assert found is not None
    assert found.dtype == np.int64
    assert found.tolist() == even()


def test_two_magics_and_sizes_that_happen_to_add_up() -> None:
    mixed = block()
    mixed[3 * SIZE : 3 * SIZE + 8] = SIZE_AND_MAGIC.pack(SIZE, MAGIC_V2)
    found = edges_of(mixed, ROWS)
    assert found is not None
    assert found.tolist() == even()
    one, other = SIZE - 5, SIZE + 5
    uneven = block()
    uneven[: 2 * SIZE] = b"".join(SIZE_AND_MAGIC.pack(n, MAGIC_V1) + bytes(n - 8) for n in (one, other))
    found = edges_of(uneven, ROWS)
    assert found is not None
    assert found.tolist() == [0, one, *even()[2:]]


@pytest.mark.parametrize("row", range(ROWS))
@pytest.mark.parametrize("place", range(SIZE_AND_MAGIC.size))
def test_no_bit_of_a_head_may_differ(row: int, place: int) -> None:
    for bit in range(8):
        damaged = block()
        damaged[row * SIZE + place] ^= 1 << bit
        magic = int.from_bytes(damaged[row * SIZE + MAGIC_AT : row * SIZE + MAGIC_AT + 4], "big")
        if magic in (MAGIC_V1, MAGIC_V2) and place >= MAGIC_AT:
            continue  # one became the other
        assert edges_of(damaged, ROWS) is None, (row, place, bit)


@pytest.mark.parametrize("magic", [0, MAGIC_BLANK, MAGIC_V1 ^ 1, 0xFFFFFFFF])
def test_no_other_magic_however_often(magic: int) -> None:
    assert edges_of(block(magic=magic), ROWS) is None


def test_nothing_more_and_nothing_less() -> None:
    assert edges_of(block() + b"\0", ROWS) is None
    assert edges_of(block()[:-1], ROWS) is None
    for rows in (-1, 0, 1, ROWS - 1, ROWS + 1, 1 << 40):
        assert edges_of(block(), rows) is None
    assert edges_of(b"", 1) is None
    assert edges_of(bytes(MIN_RECORD_BYTES), 1) is None
