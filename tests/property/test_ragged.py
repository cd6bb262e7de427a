"""Ranges of any lengths, copied without an object per range, land where a plain loop puts them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tiered.codec.record.ragged import copy_ranges

RANGES = st.lists(
    st.tuples(st.integers(0, 5000), st.one_of(st.integers(0, 40), st.integers(0, 3000), st.just(70_000)))
)


@given(RANGES, st.integers(0, 3), st.randoms(use_true_random=False))
def test_copied_as_by_a_loop(ranges: list[tuple[int, int]], gap: int, chance: object) -> None:
    source = np.random.default_rng(1).bytes(80_000)
    starts = np.array([start for start, _ in ranges], np.int64)
    lengths = np.array([length for _, length in ranges], np.int64)
    places = np.zeros(len(ranges), np.int64)
    order = list(range(len(ranges)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    end = 0
    for row in order:
        places[row] = end
        end += int(lengths[row]) + gap
    target, expected = bytearray(b"\xaa" * end), bytearray(b"\xaa" * end)
    for start, length, place in zip(starts.tolist(), lengths.tolist(), places.tolist(), strict=True):
        expected[place : place + length] = source[start : start + length]
    copy_ranges(source, starts, lengths, target, places)
    assert target == expected


@given(
    st.lists(st.sampled_from((0, 1, 60, 110, 512)), min_size=1, max_size=4),
    st.integers(100, 400),
    st.integers(0, 9),
)
def test_many_of_few_lengths_are_copied_as_by_a_loop(kinds: list[int], rows: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    lengths = chance.choice(np.array(kinds, np.int64), rows)
    source = chance.bytes(9_000)
    starts = chance.integers(0, len(source) - 511, rows)
    order = chance.permutation(rows)
    places = np.empty(rows, np.int64)
    places[order] = np.cumsum(lengths[order]) - lengths[order]
    target, expected = bytearray(int(lengths.sum())), bytearray(int(lengths.sum()))
    for start, length, place in zip(starts.tolist(), lengths.tolist(), places.tolist(), strict=True):
        expected[place : place + length] = source[start : start + length]
    copy_ranges(source, starts, lengths, target, places)
    assert target == expected


def test_the_last_bytes_of_a_buffer_can_be_read_and_written() -> None:
    source = bytes(range(256))
    target = bytearray(256)
    edges = np.array([0, 1, 4, 20, 101, 256], np.int64)
    copy_ranges(source, edges[:-1], np.diff(edges), target, edges[:-1])
    assert target == source
