"""Executors in processes of their own, in a standalone cluster: rows, filters and streams are the same there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit import golden
from tests.kit.encryption import KEY
from tests.kit.pysparks import end_jvm, session
from tests.kit.sparkcluster import Cluster, cluster
from tests.kit.sparkscene import archive, by_place, expected, rows_of
from tiered_spark import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEY_FILE = "TIERED_ENCRYPTION_KEY_FILE"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """20,000 messages that a real broker wrote, archived in many commits."""
    directory = tmp_path_factory.mktemp("cluster-archive")
    root = golden.unpack("broker-store", directory) / golden.STORE_DIRS["broker-store"][0]
    small = {"dispatch__group_commit_bytes": 1 << 20, "dispatch__inline_bytes": 0}
    return archive(root, directory, **small, encryption__key_file="")


@pytest.fixture(scope="module")
def sent(url: str) -> list[dict[str, Any]]:
    return expected(url)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with the key of encrypted archives. This process's environment names it, and so that of a driver it starts."""
    made = tmp_path_factory.mktemp("key") / "archive-key"
    made.write_text(KEY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_FILE, str(made))
        yield made


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Iterator[Cluster]:
    environment = {KEY_FILE: str(key)}
    with cluster(tmp_path_factory.mktemp("cluster"), workers=2, environment=environment) as made:
        yield made


@pytest.fixture(scope="module")
def spark(workers: Cluster) -> Iterator[SparkSession]:
    end_jvm()  # the driver's own must know the key's place, and later ones must not
    with session(workers.url, spark__executor__memory="1g") as made:
        register(made)
        yield made
    end_jvm()


def load(spark: SparkSession, url: str, **options: object) -> DataFrame:
    reader = spark.read.format("rocketmq_tiered").option("archive", url)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def test_every_row_and_column(
    spark: SparkSession, workers: Cluster, url: str, sent: list[dict[str, Any]]
) -> None:
    frame = load(spark, url, decodeBody="false", partitionBytes=1 << 20)
    assert frame.rdd.getNumPartitions() > 5
    rows, wanted = by_place(rows_of(frame.toArrow())), by_place(sent)
    assert rows.keys() == wanted.keys()
    assert len(rows) > 10_000
    for place, row in wanted.items():
        assert rows[place] == row, place
    assert len(list(workers.work.glob("*/app-*/*/stderr"))) == 2  # both workers had an executor


def test_an_encrypted_archive(
    spark: SparkSession, workers: Cluster, key: Path, tmp_path: Path, sent: list[dict[str, Any]]
) -> None:
    """The key is named in the environment of every machine; plans, tasks and logs know nothing of it."""
    root = golden.unpack("broker-store", tmp_path) / golden.STORE_DIRS["broker-store"][0]
    small = {"dispatch__group_commit_bytes": 1 << 20, "dispatch__inline_bytes": 1 << 18}
    url = archive(root, tmp_path, encryption__key_file=key, **small)
    frame = load(spark, url, decodeBody="false", partitionBytes=1 << 20)
    rows, wanted = by_place(rows_of(frame.toArrow())), by_place(sent)
    assert rows.keys() == wanted.keys()
    for place, row in wanted.items():
        assert rows[place] == row, place
    text = frame._jdf.queryExecution().toString() + "".join(
        log.read_text() for log in workers.work.glob("*/app-*/*/std*")
    )
    assert KEY not in text
    assert str(key) not in text


def test_filters(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    frame = load(spark, url, columns="topic,queue_id,queue_offset,tags").filter(
        "topic like 'Order%' and queue_id = 1 and tags in ('TagA', 'TagB') and queue_offset >= 50"
    )
    found = {(row.topic, row.queue_offset, row.tags) for row in frame.drop("queue_id").collect()}
    wanted = {
        (row["topic"], row["queue_offset"], row["tags"]) for row in sent
        if row["topic"].startswith("Order") and row["queue_id"] == 1 and row["tags"] in ("TagA", "TagB")
        and row["queue_offset"] >= 50
    }  # fmt: skip
    assert found == wanted
    assert len(found) > 100


def test_a_stream_to_its_end(
    spark: SparkSession, url: str, sent: list[dict[str, Any]], tmp_path: Path
) -> None:
    reader = spark.readStream.format("rocketmq_tiered").option("archive", url).option("decodeBody", "false")
    frame = reader.option("maxMessagesPerTrigger", "6000").load()
    writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(180)
    assert len([p for p in query.recentProgress if p["numInputRows"]]) > 2
    rows = by_place(rows_of(spark.read.parquet(str(tmp_path / "out")).toArrow()))
    wanted = by_place(sent)
    assert rows.keys() == wanted.keys()
    for place, row in wanted.items():
        assert rows[place] == row, place


def test_executors_are_not_given_the_drivers_modules(spark: SparkSession, url: str, workers: Cluster) -> None:
    """They run this scan's code from their own installation, in a directory of their own."""

    def look(_: Any) -> Iterator[Any]:
        import os

        import tiered_spark

        yield os.getcwd(), os.getppid(), tiered_spark.__file__

    import os

    found = spark.sparkContext.parallelize(range(2), 2).mapPartitions(look).collect()
    assert {str(workers.work) in where for where, _, _ in found} == {True}
    assert os.getpid() not in {parent for _, parent, _ in found}
