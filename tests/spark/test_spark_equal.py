"""The tool that compares millions of rows, over few: it finds equality, and every way in which a row can differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit import golden
from tests.kit.oddrecords import OddRecord
from tests.kit.pysparks import session
from tests.kit.segments import made, parts
from tests.kit.sparkequal import OTHERS, SHOWN, compare, read_lines, report
from tests.kit.sparkscene import PLACE, archive
from tests.kit.variedlog import QUEUES, TOPICS, messages, write
from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA
from tiered_spark import register
from tiered_spark.columns import COLUMNS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MESSAGES = 8_000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as running:
        register(running)
        yield running


def test_rows_of_spark_are_those_of_tiered_read(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "store", MESSAGES, file_bytes=1 << 22)
    url = archive(tmp_path / "store", tmp_path)
    assert read_lines(url, tmp_path / "lines") == QUEUES * len(TOPICS)
    found = compare(spark, url, tmp_path / "lines", MESSAGES)
    said: list[str] = []
    assert report(found, MESSAGES, said.append) == 0, said
    assert (found.lines, found.first) == (MESSAGES, [])

    assert report(found, MESSAGES + 1, said.append) == 1, "messages that neither side has"
    spoiled = {name for name in OTHERS if name not in PLACE}
    _spoil(tmp_path / "lines", sorted(spoiled))
    found = compare(spark, url, tmp_path / "lines", MESSAGES)
    assert {name for name, count in found.differing.items() if count == 1} == spoiled
    assert sum(found.differing.values()) == len(spoiled)
    assert (found.lines, found.scanned, found.paired, found.alone) == (MESSAGES,) * 3 + (1,)
    assert len(found.first) == SHOWN
    assert any(" ≠ " in sentence for sentence in found.first)
    assert report(found, MESSAGES, said.append) == 1
    assert "differs in 1 rows" in "\n".join(said)


def _spoil(directory: Path, names: list[str]) -> None:
    """One value of each column in a line of its own; one line twice, and one not at all."""
    path = max(directory.iterdir(), key=lambda p: p.stat().st_size)
    lines = path.read_text().split("\n")[:-1]  # not splitlines(): texts have other ends of lines in them
    for at, name in enumerate(names, 10):
        row: dict[str, Any] = json.loads(lines[at])
        if name == "body":
            row.pop("body_base64", None)
        row[name] = _other(row.get(name))
        lines[at] = json.dumps(row)
    lines[5] = lines[6]
    path.write_text("".join(f"{line}\n" for line in lines))


def _other(value: Any) -> Any:
    if isinstance(value, int):
        return value - 1
    if isinstance(value, list):
        return [*value, "more"]
    if isinstance(value, dict):
        return {**value, "more": "1"}
    return f"{value}?"


def test_the_messages_vary() -> None:
    """What a comparison of them would else not see."""
    some = list(messages(5000))
    assert {m.sys_flag & 0x701 for m in some} == {0, 0x001, 0x101, 0x201, 0x301}
    assert len({(m.topic, m.queue_id) for m in some}) == QUEUES * len(TOPICS)
    assert len({m.tags for m in some}) == 6
    assert {len(m.keys) for m in some} >= {0, 1, 2, 3}
    assert {m.unique_key is None for m in some} == {True, False}
    assert len({m.born_host for m in some}) == 4
    assert min(m.flag for m in some) < 0 < max(m.flag for m in some)
    assert {len(m.properties) for m in some} >= set(range(2, 7))
    assert min(len(m.body) for m in some) == 0
    assert max(len(m.body) for m in some) > 1000
    assert some[:50] == list(messages(50)), "the same each time"


def test_a_sealed_file_read_by_spark_itself_has_the_rows_of_the_data_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's own reader of Parquet, without a program of ours."""
    write(tmp_path / "store", 2000, file_bytes=1 << 22)
    topic = TOPICS[0]
    records = [
        OddRecord(r.raw, r.queue_id, r.queue_offset)
        for r in golden.records(tmp_path / "store") if r.topic == topic
    ]  # fmt: skip
    segment = made(parts(records), topic, 100_000)
    path = tmp_path / "sealed.parquet"
    path.write_bytes(segment.data)
    assert len(segment.open().directory.groups) > 2

    shared = [name for name in COLUMNS if name in MESSAGE_SCHEMA.names and name != "properties"]
    shared.append("array_sort(map_entries(properties)) as properties")
    url = archive(tmp_path / "store", tmp_path)
    source = spark.read.format("rocketmq_tiered").option("archive", url).option("topics", topic)
    scanned = source.option("decodeBody", "false").load().selectExpr(*shared)
    sealed = spark.read.parquet(str(path)).selectExpr(*shared)
    # All but nullability, which Spark takes from the file.
    assert [(f.name, f.dataType.simpleString()) for f in sealed.schema] == [
        (f.name, f.dataType.simpleString()) for f in scanned.schema
    ]
    assert sealed.count() == scanned.count() == len(records)
    assert sealed.exceptAll(scanned).count() == 0
    key = next(row["unique_key"] for row in sealed.collect() if row["unique_key"])
    assert spark.read.parquet(str(path)).where(f"unique_key = '{key}'").count() == 1
