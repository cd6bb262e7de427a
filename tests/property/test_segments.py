"""Segments of any records, cut anywhere: what was written is read, every byte of it accounted for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.oddrecords import OddRecord, records
from tests.kit.segments import KEY, made, parts, read_all
from tiered.codec.checksum import crc32c
from tiered.errors import Corrupt, Refused


@settings(max_examples=25, deadline=None)
@given(st.lists(records(), min_size=1, max_size=25), st.integers(200, 4000), st.data())
def test_what_is_written_is_read(odd: list[OddRecord], row_group_bytes: int, data: st.DataObject) -> None:
    segment = made(parts(odd), row_group_bytes=row_group_bytes)
    ordered = sorted(odd, key=lambda r: (r.queue_id, r.queue_offset))
    found = read_all(segment.data)
    assert found == [r.raw for r in ordered]
    for run in segment.sealed.runs:
        first, end = int(run["first_row"]), int(run["first_row"] + run["rows"])
        assert {r.queue_id for r in ordered[first:end]} == {run["queue_id"]}
        assert run["crc32c"] == crc32c(b"".join(found[first:end]))
    at = data.draw(st.integers(0, len(segment.data) - 1))
    damaged = bytearray(segment.data)
    damaged[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((Corrupt, Refused)) as caught:  # the last letter may become that of encrypted files
        read_all(bytes(damaged))
    assert caught.value.fields["key"] == KEY
