"""Segments written by earlier programs and other versions of pyarrow: readable, and the same records, for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.oddrecords import OddRecord
from tests.kit.segment_golden import DIRECTORY, golden_records
from tests.kit.segments import opened, read_all, whole
from tests.kit.storedrows import expected_row
from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA
from tiered.codec.checksum import crc32c
from tiered.codec.record.message import decode_message
from tiered.errors import Corrupt

FILES = sorted(DIRECTORY.glob("*.parquet"))
SHOWN = (
    "tags",
    "keys",
    "unique_key",
    "msg_id",
    "body",
    "magic",
    "body_crc",
    "sys_flag",
    "store_host",
    "born_timestamp",
)


def test_there_is_a_golden_segment_of_all_that_is_written_now() -> None:
    """Columns that a writer adds come with a file that has them."""
    newest = pq.read_schema(FILES[-1])
    assert set(pq.read_table(FILES[-1])["body_encoding"].to_pylist()) >= {"plain", "zlib", None}
    assert newest.names == MESSAGE_SCHEMA.names
    assert newest.types == MESSAGE_SCHEMA.types


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_golden_records_come_back(path: Path) -> None:
    data, told = path.read_bytes(), json.loads(path.with_suffix(".json").read_text())
    expected = golden_records(path)
    segment = opened(
        data, archive_id=bytes.fromhex(told["archive_id"]), object_id=bytes.fromhex(told["object_id"])
    )
    assert read_all(data) == expected
    assert (segment.directory.topic, len(segment.directory.groups)) == (told["topic"], told["row_groups"])
    runs = segment.directory.runs()
    assert {name: runs[name].tolist() for name in runs.dtype.names or ()} == told["runs"]
    position, length, crc = told["footer"]
    assert (position, crc) == (segment.footer_position, crc32c(data[position : position + length]))
    assert len(expected) == told["rows"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_golden_columns_say_what_the_records_say(path: Path) -> None:
    data, told = path.read_bytes(), json.loads(path.with_suffix(".json").read_text())
    segment = opened(data)
    names = (*SHOWN, "queue_id", "queue_offset", "record")
    rows = [
        row
        for bands in map(segment.directory.bands_of, range(told["row_groups"]))
        for row in segment.columns(bands, whole(segment, data, bands), names).to_pylist()
    ]
    assert [[row["queue_id"], row["queue_offset"]] for row in rows] == told["queue"]
    assert sum(row["record"] is not None for row in rows) == told["verbatim"] > 0
    sound = 0
    for row, raw in zip(rows, golden_records(path), strict=True):
        try:
            decode_message(raw)
        except Corrupt:
            assert row["record"] == raw
            continue
        sound += 1
        expected = expected_row(OddRecord(raw, row["queue_id"], row["queue_offset"]), told["topic"])
        assert {name: row[name] for name in SHOWN} == {name: expected[name] for name in SHOWN}
    assert sound >= told["rows"] - 1
