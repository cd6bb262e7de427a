"""DuckDB over sealed files, beside DuckDB over its own Parquet of the same rows, in CPU time of the whole process."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.run import Row, expect
from tests.bench.segments import message_parts, sealed_bytes
from tiered.settings import ONE_DAY_MS

if TYPE_CHECKING:
    import duckdb

DAYS = 3
ROUNDS = 7
FIRST_MS = 1_700_000_000_000 // ONE_DAY_MS * ONE_DAY_MS
QUERIES = {
    "count": "select count(*) from {files}",
    "count by tag": "select tags, count(*), sum(body_size) from {files} group by tags order by tags",
    "one day, count by queue": (
        "select queue_id, count(*), min(queue_offset), max(physical_offset) from {files}"
        " where store_timestamp >= epoch_ms({low}::bigint) and store_timestamp < epoch_ms({high}::bigint)"
        " group by queue_id order by queue_id"
    ),
}


def engines(messages: int) -> list[Row]:
    """One file a day of ours; of DuckDB's likewise, made by it of the rows that it read from ours."""
    import duckdb  # late: a test that reads the names of all benchmarks needs none

    with tempfile.TemporaryDirectory() as scratch, duckdb.connect() as engine:
        engine.execute("set timezone = 'UTC'")
        engine.execute("set threads = 1")
        places = [Path(scratch, name) for name in ("ours", "own", "alike")]
        for place in places:
            place.mkdir()
        for day in range(DAYS):
            parts = message_parts(messages // DAYS, first_ms=FIRST_MS + day * ONE_DAY_MS)
            data, sealed = sealed_bytes(parts)
            (places[0] / f"{day}.parquet").write_bytes(data)
            rows = -(-sealed.rows // pq.ParquetFile(pa.BufferReader(data)).num_row_groups // 2048) * 2048
            for place, options in ((places[1], ""), (places[2], f", row_group_size {rows}")):
                engine.execute(
                    f"copy (from '{places[0]}/{day}.parquet') to '{place}/{day}.parquet'"
                    f" (format parquet, compression zstd{options})"
                )
        return [row for what, query in QUERIES.items() for row in _rows(engine, what, query, places)]


def _rows(engine: duckdb.DuckDBPyConnection, what: str, query: str, places: list[Path]) -> list[Row]:
    """Rounds in turn; the best of each."""
    low = FIRST_MS + ONE_DAY_MS
    texts = [query.format(files=f"'{place}/*.parquet'", low=low, high=low + ONE_DAY_MS) for place in places]
    found: list[list[object]] = [[] for _ in places]
    took: list[list[float]] = [[] for _ in places]
    for _ in range(ROUNDS):
        for at, text in enumerate(texts):
            began = time.process_time()
            found[at] = engine.execute(text).fetchall()
            took[at].append(time.process_time() - began)
    expect(sum(each == found[0] for each in found), len(places), "answers are the same")
    mine, own, alike = (min(each) * 1000 for each in took)
    title = f"DuckDB on sealed files: {what}"
    return [
        Row(title, f"{mine:.1f} ms", f"{own:.1f} ms, its own Parquet", f"{own / mine:.2f}", "≥ 0.9"),
        Row(
            "the same, row groups of as many rows",
            f"{mine:.1f} ms",
            f"{alike:.1f} ms",
            f"{alike / mine:.2f}",
            "–",
        ),
    ]
