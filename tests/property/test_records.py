"""``Records`` is a sequence of records whatever stretches they lie in: compared with a plain list."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.model import Records

CHUNKS = st.lists(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=6), max_size=5)


def made(chunks: list[list[bytes]]) -> tuple[Records, list[bytes]]:
    records = Records(
        [memoryview(b"".join(chunk)) for chunk in chunks],
        [list(accumulate(map(len, chunk), initial=0)) for chunk in chunks],
    )
    return records, [record for chunk in chunks for record in chunk]


@given(CHUNKS, st.integers(-40, 40), st.integers(-40, 40), st.sampled_from((None, 1, 2, -1)))
def test_items_and_slices_are_those_of_a_list(
    chunks: list[list[bytes]], first: int, end: int, step: int | None
) -> None:
    records, plain = made(chunks)
    assert len(records) == len(plain)
    assert records.size_bytes == sum(map(len, plain))
    assert [bytes(record) for record in records] == plain
    assert records == plain
    part = records[first:end:step]
    assert part == plain[first:end:step]
    assert part.size_bytes == sum(map(len, plain[first:end:step]))
    if -len(plain) <= first < len(plain):
        assert records[first] == plain[first]
    else:
        with pytest.raises(IndexError):
            records[first]


@given(CHUNKS, st.integers(1, 30), st.integers(0, 200))
def test_within_takes_what_fits_but_one_at_least(chunks: list[list[bytes]], count: int, size: int) -> None:
    records, plain = made(chunks)
    sizes = list(accumulate(map(len, plain)))
    fit = min(count, sum(1 for total in sizes if total <= size))
    assert records.within(count, size) == plain[: max(fit, 1)]


@given(CHUNKS)
def test_records_that_lie_apart(chunks: list[list[bytes]]) -> None:
    records, plain = made(chunks)
    apart = Records.of([memoryview(record) for record in plain])
    assert apart == records
    assert b"".join(apart.chunks) == b"".join(records.chunks)


def test_others_are_not_equal() -> None:
    records, _ = made([[b"a", b"bc"]])
    assert records != [b"a"]
    assert records != [b"a", b"bd"]
    assert records != 2
    assert records != ()
    assert Records() == ()
