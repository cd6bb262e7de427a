"""A segment is a plain table to any reader of Parquet: its values are those of a parser that goes message by message."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kit import variedlog
from tests.kit.oddrecords import OddRecord
from tests.kit.segments import made, part, parts, read_all
from tests.kit.storedrows import expected_row, shown
from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA
from tiered.codec.record.message import Message, encode_message
from tiered.codec.segment.writer import DECLARED, LateNulls


@dataclass(frozen=True, slots=True)
class Sealed:
    """A file, its rows as they must be, and which of them are stored verbatim."""

    path: Path
    rows: list[dict[str, Any]]
    verbatim: dict[int, bytes]


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Sealed:
    records = [
        OddRecord(encode_message(m), m.queue_id, m.queue_offset)
        for m in variedlog.messages(900) if m.topic == "Orders"
    ]  # fmt: skip
    last = records[-1]
    offset = max(r.queue_offset for r in records if r.queue_id == last.queue_id)
    records.append(OddRecord(last.raw, last.queue_id, offset + 5))  # says another offset itself
    segment = made(parts(records), "Orders", 60_000)
    path = tmp_path_factory.mktemp("sealed") / "s.parquet"
    path.write_bytes(segment.data)
    records.sort(key=lambda r: (r.queue_id, r.queue_offset))
    rows = [expected_row(r, "Orders") for r in records]
    odd = [n for n, r in enumerate(records) if r.queue_offset == offset + 5 and r.queue_id == last.queue_id]
    assert segment.sealed.verbatim == len(odd) == 1
    assert len(segment.open().directory.groups) >= 3
    return Sealed(path, rows, {n: records[n].raw for n in odd})


def check(found: list[dict[str, Any]], sealed: Sealed) -> None:
    kept = {n: record for n, row in enumerate(found) if (record := row.pop("record")) is not None}
    assert kept == sealed.verbatim
    for row, expected in zip(found, sealed.rows, strict=True):
        row.pop("commit_seq", None)
        assert row == expected


def test_pyarrow(sealed: Sealed) -> None:
    check(shown(pq.read_table(sealed.path)), sealed)


def test_pandas(sealed: Sealed) -> None:
    import pandas as pd  # late, as the other engines: a worker that does not run this module needs none

    frame = pd.read_parquet(sealed.path)
    rows: list[dict[str, Any]] = frame.astype(object).where(frame.notna(), None).to_dict("records")
    for row in rows:
        row["properties"], row["keys"] = dict(row["properties"]), list(row["keys"])
    check(rows, sealed)


def test_duckdb(sealed: Sealed) -> None:
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("set timezone = 'UTC'")
        found = engine.execute(f"from '{sealed.path}'")
        names = [column[0] for column in found.description]
        check([dict(zip(names, row, strict=True)) for row in found.fetchall()], sealed)


def test_one_key_by_filters_and_statistics(sealed: Sealed) -> None:
    """Engines that skip row groups by bloom filters and statistics find the message all the same."""
    import duckdb
    import pyarrow.dataset as ds

    key = next(row["unique_key"] for row in sealed.rows if row["unique_key"])
    by_key = sum(row["unique_key"] == key for row in sealed.rows)
    word = next(row["keys"][0] for row in reversed(sealed.rows) if row["keys"])
    by_word = sum(word in row["keys"] for row in sealed.rows)
    first = sealed.rows[len(sealed.rows) // 2]["store_timestamp"]
    later = sum(row["store_timestamp"] >= first for row in sealed.rows)
    found = ds.dataset(sealed.path).to_table(filter=ds.field("unique_key") == key)
    assert found.num_rows == by_key
    with duckdb.connect() as engine:

        def count(condition: str, *values: object) -> int:
            row = engine.execute(f"select count(*) from '{sealed.path}' where {condition}", values).fetchone()
            assert row is not None
            return int(row[0])

        assert count("unique_key = ?", key) == by_key
        assert count("unique_key = 'no such key'") == 0
        assert count("list_contains(keys, ?)", word) == by_word
        assert count("store_timestamp >= ?", first) == later


def test_what_helps_engines_is_there(sealed: Sealed) -> None:
    """Checksums of pages, page index, statistics, filters, compression."""
    metadata = pq.read_metadata(sealed.path)
    group = metadata.row_group(0)
    columns = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
    assert all(c.compression == "ZSTD" and c.has_offset_index for c in columns.values())
    assert {path for path, c in columns.items() if c.bloom_filter_offset} == {
        "unique_key",
        "keys.list.element",
    }
    assert {"body", "record"}.isdisjoint(path for path, c in columns.items() if c.is_stats_set)
    times = columns["store_timestamp"].statistics
    rows = sealed.rows[: group.num_rows]
    assert (times.min, times.max) == (
        min(r["store_timestamp"] for r in rows), max(r["store_timestamp"] for r in rows),
    )  # fmt: skip
    assert [c.column_index for c in group.sorting_columns] == [metadata.schema.names.index("queue_id")]


def test_columns_without_nulls_are_declared_so_where_that_is_asked_for() -> None:
    """As the first row group has them; a later one that has some is found before anything wrong is written."""
    tagged = [_keyed(n) for n in range(40)]
    records = part(tagged)
    found = made([records], row_group_bytes=500, nullable=("topic", "unique_key"))
    schema = pq.read_schema(pa.BufferReader(found.data))
    full = {field.name for field in schema if not field.nullable}
    assert set(DECLARED) - full == {"tags", "unique_key"}, "no message has a tag; topic never is null"
    assert read_all(found.data) == [r.raw for r in tagged]
    assert pq.read_schema(pa.BufferReader(made([records]).data)).equals(MESSAGE_SCHEMA)
    other = OddRecord(encode_message(Message("T", 0, 40, 40, b"", {"KEYS": "k"})), 0, 40)
    with pytest.raises(LateNulls) as late:
        made([part([*tagged, other])], row_group_bytes=500, nullable=())
    assert late.value.columns == {"unique_key"}


def test_filters_are_made_for_the_rows_of_a_row_group() -> None:
    """Some 1 % of what is not there seems to be."""
    segment = made([part([_keyed(n) for n in range(3000)])], row_group_bytes=1 << 20)
    column = segment.open().metadata.row_group(0)
    sizes = {
        column.column(n).path_in_schema: column.column(n).bloom_filter_length
        for n in range(column.num_columns)
    }
    assert 3000 <= sizes["unique_key"] <= 3 * 3000  # bytes: about 10 bits a key, rounded up to a power of two
    assert 4 * 3000 <= sizes["keys.list.element"] <= 12 * 3000


def _keyed(number: int) -> OddRecord:
    keys = " ".join(f"{number}-{n}" for n in range(4))
    message = Message("T", 0, number, number, b"", {"UNIQ_KEY": f"{number:032X}", "KEYS": keys})
    return OddRecord(encode_message(message), 0, number)


KEY = bytes(range(32))
MODES = ((False, "AES_GCM_V1"), (True, "AES_GCM_V1"), (False, "AES_GCM_CTR_V1"))


@pytest.mark.parametrize(("plain_footer", "algorithm"), MODES)
def test_why_encrypted_archives_are_not_sealed(
    tmp_path: Path, sealed: Sealed, algorithm: str, plain_footer: bool
) -> None:
    """What DESIGN says of Parquet's own encryption with a given key, as long as it is so: DuckDB reads one mode of it, and not
    the one that would leave a footer for the checks that make a file ours."""
    import duckdb
    from pyarrow.parquet import encryption

    table, path = pq.read_table(sealed.path, columns=["queue_offset", "body"]), tmp_path / "e.parquet"
    options = {"plaintext_footer": plain_footer, "encryption_algorithm": algorithm}
    with_key = encryption.create_encryption_properties(KEY, **options)
    pq.write_table(table, path, encryption_properties=with_key)
    assert path.read_bytes()[-4:] == (b"PAR1" if plain_footer else b"PARE")
    unlock = encryption.create_decryption_properties
    assert pq.read_table(path, decryption_properties=unlock(KEY)).equals(table)
    with pytest.raises((OSError, pa.ArrowInvalid), match="crypt"):
        pq.read_table(path, decryption_properties=unlock(KEY[::-1]))
    with duckdb.connect() as engine:
        engine.execute(f"PRAGMA add_parquet_key('k', '{base64.b64encode(KEY).decode()}')")
        asked = (
            f"select queue_offset, body from read_parquet('{path}', encryption_config={{footer_key: 'k'}})"
        )
        if (plain_footer, algorithm) == MODES[0]:
            assert engine.execute(asked).fetchall() == list(
                zip(*(table[name].to_pylist() for name in ("queue_offset", "body")), strict=True)
            )
            return
        for question in (asked, f"select queue_offset, body from read_parquet('{path}')"):
            with pytest.raises(duckdb.InvalidInputException):
                engine.execute(question).fetchall()
