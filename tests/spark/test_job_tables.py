"""What the pipeline makes of queues that began anew, and whether an audit finds it right; tables of some topics and brokers."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.kit.pipeline import Crafted
from tests.kit.pysparks import session
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive, rows_of
from tiered_jobs.main import main
from tiered_jobs.pipeline.formats import bronze_schema

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOUR = 3_600_000
DECLARATIONS = """
[topics."*"]
format = "text"
table = "texts"
duplicates_within = "1h"
"""


@dataclass(frozen=True)
class Made:
    """An archive of two brokers, and a table of two topics of one. Queue 0 of ``Orders`` began anew between two runs."""

    url: str
    table: Path


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        yield made


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    directory = tmp_path_factory.mktemp("tables")
    table, declarations = directory / "table", directory / "declarations.toml"
    declarations.write_text(DECLARATIONS)
    broker = Crafted(directory / "store", file_bytes=1 << 20)
    other = Crafted(directory / "other", file_bytes=1 << 20)
    url = f"file://{directory / 'archive'}"
    flags = ("--broker", "broker-a", "--topics", "Orders,Bills", "--layers", "bronze,silver")
    pipeline = [
        "pipeline",
        "--archive",
        url,
        "--table",
        str(table),
        "--declarations",
        str(declarations),
        *flags,
    ]

    def send(topic: str, text: str, count: int, key: str | None = None) -> None:
        for number in range(count):
            broker.time_ms += 1000
            broker.send(topic, body=f"{text} {number}".encode(), properties={"UNIQ_KEY": key} if key else {})

    for _ in range(3):
        other.send("Orders")
    send("Books", "not of the table", 2)
    send("Bills", "early", 1, "K")
    broker.time_ms += 3 * HOUR
    send("Bills", "long after", 1, "K")
    send("Orders", "before", 5)
    archive(broker.store, directory)
    places = ("--store", other.store, "--archive", url, "--state", directory / "other-state")
    done = tiered("run", *places, "--once", "--set", "web.port=-1", "--set", "source.broker=broker-b")
    assert done.code == 0, done.err
    assert main(pipeline) == 0
    broker.following["Orders", 0] = 0
    send("Orders", "anew", 3)
    archive(broker.store, directory)
    assert main(pipeline) == 0
    return Made(url, table)


def audit(made: Made, capsys: pytest.CaptureFixture[str], *flags: object) -> tuple[int, dict[str, Any]]:
    """Exit code and summary."""
    capsys.readouterr()
    code = main(["audit", "--archive", made.url, "--quick", *map(str, flags), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_silver_has_both_lives_of_a_queue(spark: SparkSession, made: Made) -> None:
    """Without a unique key nothing is a duplicate, though a queue offset comes again; with one, at any distance in a run."""
    found = spark.read.parquet(str(made.table / "silver" / "texts")).select("topic", "value").collect()
    orders = {row.value for row in found if row.topic == "Orders"}
    assert orders == {f"before {n}" for n in range(5)} | {f"anew {n}" for n in range(3)}
    assert Counter(row.topic for row in found) == Counter({"Orders": 8, "Bills": 1})


def test_a_table_that_has_both_lives_is_sound(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = audit(made, capsys, "--table", made.table)
    assert (code, told["listed"]) == (0, [])
    assert (told["table"]["messages_in_archive"], told["table"]["messages_in_table"]) == (3 + 2, 8 + 2)


def test_topics_narrow_what_the_table_was_made_of(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = audit(made, capsys, "--table", made.table, "--topics", "B*")
    assert (code, told["records"]) == (0, 4)
    assert (told["table"]["messages_in_archive"], told["table"]["messages_in_table"]) == (2, 2)


def test_a_table_of_another_broker(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--archive", made.url, "--quick", "--table", str(made.table), "--broker", "broker-b"]
    assert main(["audit", *flags]) == 2
    said = capsys.readouterr().err
    assert "the table was made from other brokers" in said
    assert "expected=*/broker-a, found=DefaultCluster/broker-b" in said


def test_what_is_wrong_in_a_queue_that_began_anew(
    spark: SparkSession, made: Made, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bronze = tmp_path / "table" / "bronze"
    bronze.mkdir(parents=True)
    shutil.copy(made.table / "bronze" / "_source.json", bronze)
    whole = spark.read.schema(bronze_schema()).parquet(str(made.table / "bronze")).toArrow()
    rows = {bytes(row["body"]): row for row in whole.to_pylist()}
    assert len(rows) == len(rows_of(whole)) == 10
    rows.pop(b"anew 1")
    rows[b"anew 2"]["body_crc"] += 1
    more = [rows[b"before 4"], {**rows[b"early 0"], "queue_offset": 99}]
    pq.write_table(pa.Table.from_pylist([*rows.values(), *more], whole.schema), bronze / "part.parquet")
    code, told = audit(made, capsys, "--table", tmp_path / "table")
    assert code == 1
    assert {(d["what"], d["topic"], d["start_offset"], d["end_offset"]) for d in told["listed"]} == {
        ("messages are not in the table", "Orders", 1, 2),
        ("bodies differ in the table", "Orders", 2, 3),
        ("messages are in the table twice", "Orders", 4, 5),
        ("messages are in the table only", "Bills", 99, 100),
    }
