"""Archives for Spark, scans without a JVM, and what their rows must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from tests.kit.oracle import opened, records_of
from tests.kit.realdaemon import tiered
from tiered.archive.read.flatfile import RunReader
from tiered.codec.record.message import decode_message, message_fields
from tiered.codec.record.systemtopics import is_system_topic
from tiered_spark.columns import arrow_schema, message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.options import parse_options

PLACE = {"cluster": "DefaultCluster", "broker": "broker-a"}


def archive(store: Path, directory: Path, **settings: object) -> str:
    """Archive a broker's store once; the archive's URL."""
    url = f"file://{directory / 'archive'}"
    sets = ["--set", "web.port=-1"]
    for name, value in settings.items():
        sets += ["--set", f"{name.replace('__', '.')}={value}"]
    state = directory / "state"
    done = tiered("run", "--store", store, "--archive", url, "--state", state, "--once", *sets)
    assert done.code == 0, done.err
    return url


def expected(url: str, *, system: bool = False, key_file: str = "") -> list[dict[str, Any]]:
    """Every readable message as ``tiered read`` shows it, with its body as stored. ``key_file``: of an encrypted archive."""
    found = opened(url, key_file=key_file)
    reader = RunReader(found.state, found.objects)
    rows = []
    for queue in found.state.queues():
        if queue.generation is None or (is_system_topic(queue.queue.topic) and not system):
            continue
        for run in found.state.runs(queue.queue, queue.generation):
            for offset, raw in records_of(reader.stretches(run, run.start, run.end)):
                message = decode_message(raw)
                fields = {
                    **message_fields(offset, message),
                    "topic": queue.queue.topic,
                    "queue_id": queue.queue.queue_id,
                }
                rows.append({**PLACE, **fields, "body": message.body})
    return rows


def scan(options: Mapping[str, str], schema: StructType | None = None) -> list[dict[str, Any]]:
    """What a scan hands to Spark, in one process."""
    batches = list(batches_of(options, schema))
    return [] if not batches else rows_of(pa.Table.from_batches(batches))


def batches_of(options: Mapping[str, str], schema: StructType | None = None) -> Iterator[pa.RecordBatch]:
    """Its Arrow batches, checked as Spark checks them."""
    parsed = parse_options(options)
    names = tuple(parsed.columns.split(",")) if parsed.columns else None
    chosen = schema or (message_schema(names) if names else message_schema())
    reader = MessageReader(parsed, chosen)
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert batch.schema.equals(arrow_schema(chosen))
            batch.validate(full=True)
            yield batch


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Plain rows: times in ms, properties as mappings."""
    rows = []
    for row in table.to_pylist():
        for name in ("store_timestamp", "born_timestamp"):
            if name in row and not isinstance(row[name], int):
                row[name] = round(row[name].timestamp() * 1000)
        if "properties" in row:
            row["properties"] = dict(row["properties"])
        rows.append(row)
    return rows


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows by topic, queue and offset, each of which may come once."""
    found = {(row["topic"], row["queue_id"], row["queue_offset"]): row for row in rows}
    assert len(found) == len(rows)
    return found
