"""The read-ahead window as a state machine: slow start, additive increase, multiplicative decrease."""

from __future__ import annotations

import pytest

from tiered.fetch.window import PARALLEL, START_UNITS, UNIT_BYTES, ReadAheadWindow
from tiered.settings import MIB


def test_it_begins_small_and_doubles_per_window_read_until_the_threshold() -> None:
    window = ReadAheadWindow(64 * MIB)
    assert window.window_bytes == START_UNITS * UNIT_BYTES == MIB
    assert window.threshold_bytes == 32 * MIB
    sizes = []
    while window.slow_start:
        window.used(window.window_bytes)
        sizes.append(window.window_bytes // MIB)
    assert sizes == [2, 4, 8, 16, 32]


def test_beyond_the_threshold_one_unit_per_window_read() -> None:
    window = ReadAheadWindow(64 * MIB, window_bytes=8 * MIB, threshold_bytes=8 * MIB)
    for grown in range(1, 4):
        before = window.window_bytes
        for _ in range(before // UNIT_BYTES):
            assert window.window_bytes == before
            window.used(UNIT_BYTES)
        assert window.window_bytes == 8 * MIB + grown * UNIT_BYTES


def test_a_load_that_crosses_the_threshold_counts_on_both_sides() -> None:
    window = ReadAheadWindow(64 * MIB, window_bytes=2 * MIB, threshold_bytes=3 * MIB)
    window.used(MIB + 3 * MIB)
    assert window.window_bytes == 3 * MIB + UNIT_BYTES


def test_waste_halves_it_and_it_grows_by_addition_from_there() -> None:
    window = ReadAheadWindow(64 * MIB, window_bytes=16 * MIB)
    assert window.wasted(0)
    assert (window.window_bytes, window.threshold_bytes, window.slow_start) == (8 * MIB, 8 * MIB, False)
    window.used(8 * MIB)
    assert window.window_bytes == 8 * MIB + UNIT_BYTES


def test_one_mistake_counts_once() -> None:
    window = ReadAheadWindow(64 * MIB, window_bytes=16 * MIB)
    assert [window.wasted(0) for _ in range(5)] == [True, False, False, False, False]
    assert not window.pushed_back(0)
    assert window.decreases == 1
    assert window.wasted(window.stamp)
    assert window.window_bytes == 4 * MIB


def test_a_store_that_pushes_back_means_slow_start_to_half() -> None:
    window = ReadAheadWindow(64 * MIB, window_bytes=16 * MIB)
    assert window.pushed_back(0)
    assert (window.window_bytes, window.threshold_bytes) == (UNIT_BYTES, 8 * MIB)
    for _ in range(5):
        window.used(window.window_bytes)
    assert window.window_bytes == 8 * MIB
    window.used(8 * MIB)
    assert window.window_bytes == 8 * MIB + UNIT_BYTES


def test_it_never_leaves_its_bounds() -> None:
    window = ReadAheadWindow(2 * MIB)
    window.used(1000 * MIB)
    assert window.window_bytes == 2 * MIB
    for _ in range(10):
        window.wasted(window.stamp)
    assert window.window_bytes == window.threshold_bytes == UNIT_BYTES
    tiny = ReadAheadWindow(1)
    assert tiny.window_bytes == tiny.ceiling_bytes == UNIT_BYTES


def test_a_reader_that_jumps_starts_small_and_old_loads_do_not_count_against_it() -> None:
    window = ReadAheadWindow(64 * MIB, window_bytes=16 * MIB)
    window.restart()
    assert window.window_bytes == START_UNITS * UNIT_BYTES
    assert not window.wasted(0)
    assert window.decreases == 0


@pytest.mark.parametrize(
    ("window", "largest", "expected"),
    [
        (UNIT_BYTES, 8 * MIB, UNIT_BYTES),
        (MIB, 8 * MIB, UNIT_BYTES),
        (16 * MIB, 8 * MIB, 16 * MIB // PARALLEL),
        (64 * MIB, 8 * MIB, 8 * MIB),
        (64 * MIB, 64 * 1024, 64 * 1024),
    ],
)
def test_requests_grow_with_the_window_until_their_largest_size_then_their_number_does(
    window: int, largest: int, expected: int
) -> None:
    assert ReadAheadWindow(128 * MIB, window_bytes=window).request_bytes(largest) == expected
