"""Records as columns and back: byte for byte, whatever a record is made of; columns say what the slow parser says."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.oddrecords import OddRecord, records
from tests.kit.storedrows import expected_row, of_messages, rows_of, shown
from tests.property.test_codec_records import messages
from tiered.codec.arrow.assemble import ASSEMBLED_FROM, assemble
from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA, message_columns
from tiered.codec.arrow.proof import prove
from tiered.codec.record.message import encode_message
from tiered.errors import Corrupt


@settings(max_examples=200, deadline=None)
@given(st.lists(records(), max_size=12))
def test_odd_records_come_back(odd: list[OddRecord]) -> None:
    rows = rows_of(odd)
    proven = prove(rows)
    assert proven.columns.schema.equals(MESSAGE_SCHEMA)
    assert assemble(proven.columns).to_pylist() == [r.raw for r in odd]
    verbatim = proven.columns.column("record")
    assert proven.verbatim == len(odd) - verbatim.null_count
    # Only what would differ is kept whole: without the column that row is another record, or none.
    bare = assemble(message_columns(rows)).to_pylist()
    assert [kept is not None for kept in verbatim.to_pylist()] == [
        made != r.raw for made, r in zip(bare, odd, strict=True)
    ]
    for row, record in zip(shown(proven.columns), odd, strict=True):
        row.pop("record")
        with contextlib.suppress(
            Corrupt
        ):  # not a record by its own lengths, sum or topic: nothing to compare with
            assert row == {**expected_row(record, "T"), "body_crc": row["body_crc"]}


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, max_size=8), st.randoms(use_true_random=False))
def test_what_brokers_write_needs_no_verbatim_copy(batch: list, chance: random.Random) -> None:
    """Sound records of the queue's own topic, with times that a timestamp can hold."""
    batch = [replace(m, topic="T", born_timestamp=m.store_timestamp // 2) for m in batch]
    batch = [replace(m, store_timestamp=min(m.store_timestamp, 253_402_300_799_999)) for m in batch]
    encoded = [encode_message(m) for m in batch]
    proven = prove(rows_of(of_messages(batch, encoded)))
    assert proven.verbatim == 0
    first = chance.randint(0, len(batch))
    part = proven.columns.slice(first, chance.randint(0, len(batch) - first)).select(ASSEMBLED_FROM)
    assert assemble(part).to_pylist() == encoded[first : first + len(part)]


@settings(max_examples=60, deadline=None)
@given(st.lists(records(), min_size=1, max_size=12), st.data())
def test_any_slice_is_assembled_alone(odd: list[OddRecord], data: st.DataObject) -> None:
    columns = prove(rows_of(odd)).columns.select(ASSEMBLED_FROM)
    first = data.draw(st.integers(0, len(odd)))
    end = data.draw(st.integers(first, len(odd)))
    part = columns.slice(first, end - first)
    coded = pa.RecordBatch.from_arrays(
        [c.dictionary_encode() if name in ("topic", "store_host", "born_host") else c
         for name, c in zip(ASSEMBLED_FROM, part.columns, strict=True)],
        names=list(ASSEMBLED_FROM),
    )  # fmt: skip
    expected = [r.raw for r in odd[first:end]]
    assert assemble(part).to_pylist() == expected == assemble(coded).to_pylist()
