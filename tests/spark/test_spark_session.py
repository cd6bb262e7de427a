"""The data source as a PySpark user meets it: a real session, workers in processes of their own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit import golden
from tests.kit.oracle import opened
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive, by_place, expected, rows_of
from tiered.archive.read.objects import ObjectReader
from tiered_spark import TieredDataSource, late_frame, metrics, register, view
from tiered_spark.noted import LOGGING

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """20,000 messages that a real broker wrote, archived."""
    directory = tmp_path_factory.mktemp("spark")
    root = golden.unpack("broker-store", directory) / golden.STORE_DIRS["broker-store"][0]
    return archive(root, directory)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        register(made)
        yield made


def load(spark: SparkSession, url: str, **options: object) -> DataFrame:
    reader = spark.read.format("rocketmq_tiered").option("archive", url)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


@pytest.fixture(scope="module")
def sent(url: str) -> list[dict[str, Any]]:
    return expected(url)


def test_every_row_and_column(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    frame = load(spark, url, decodeBody="false", partitionBytes=1 << 20)
    assert frame.rdd.getNumPartitions() > 5
    rows = by_place(rows_of(frame.toArrow()))
    wanted = by_place(sent)
    assert rows.keys() == wanted.keys()
    assert all(rows[place] == wanted[place] for place in wanted)


def test_views_and_unions_of_filters_lack_nothing(
    spark: SparkSession, url: str, sent: list[dict[str, Any]]
) -> None:
    """Also in a session that hands filters to data sources: Spark would read all of a frame's queries with the plan of one."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        load(spark, url, columns="topic,queue_id,queue_offset").createOrReplaceTempView("messages")
        few = spark.sql(
            "select * from messages where topic = 'OrderEvents' and queue_id = 1 and queue_offset < 9"
        )
        assert few.count() == 9
        assert spark.sql("select count(*) from messages").collect()[0][0] == len(sent)
        both = few.union(
            spark.table("messages").filter("topic = 'AuditTrail' and queue_id = 0 and queue_offset < 5")
        )
        assert sorted((r.topic, r.queue_offset) for r in both.collect()) == [
            *(("AuditTrail", n) for n in range(5)), *(("OrderEvents", n) for n in range(9)),
        ]  # fmt: skip
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_view_has_every_row_and_column(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    frame = late_frame(spark, archive=url, decodeBody=False)
    assert frame.columns == spark.read.format("rocketmq_tiered").option("archive", url).load().columns
    rows, wanted = by_place(rows_of(frame.toArrow())), by_place(sent)
    assert rows.keys() == wanted.keys()
    assert all(rows[place] == wanted[place] for place in wanted)
    shuffled = by_place(
        rows_of(
            frame.repartition(3, "unique_key").select("topic", "queue_id", "queue_offset", "body").toArrow()
        )
    )
    assert {place: row["body"] for place, row in shuffled.items()} == {
        p: row["body"] for p, row in wanted.items()
    }


def test_queries_of_a_view_read_what_they_use(
    spark: SparkSession, url: str, sent: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Every block of one topic is spoilt: what needs none of them does not notice."""
    copy = tmp_path / "copy"
    shutil.copytree(url.removeprefix("file://"), copy)
    _spoil_blocks(f"file://{copy}", "OrderEvents")
    view(spark, "spoilt", archive=f"file://{copy}")
    assert spark.sql("select count(*) from spoilt").collect()[0][0] == len(sent)
    tags = spark.sql("select topic, tags, max(queue_offset) from spoilt group by all").collect()
    assert {row.topic for row in tags} == {row["topic"] for row in sent}
    good = spark.sql(
        "select unique_key, body from spoilt where topic = 'AuditTrail' and queue_offset < 20"
    ).collect()
    assert {row.unique_key for row in good} == {
        row["unique_key"] for row in sent if row["topic"] == "AuditTrail" and row["queue_offset"] < 20
    }
    with pytest.raises(Exception, match="Corrupt"):
        spark.sql("select max(length(body)) from spoilt").collect()


def _spoil_blocks(url: str, topic: str) -> None:
    """A byte in the middle of each block of a topic becomes another."""
    found = opened(url)
    reader: ObjectReader = found.objects
    for run in found.state.runs_all():
        item = found.state.object(run.object)
        assert item is not None
        path = Path(url.removeprefix("file://")) / reader.key_of(item)
        content = bytearray(path.read_bytes())
        for block in reader.block_table(item)[run.first_block : run.first_block + run.block_count]:
            content[int(block["position"]) + int(block["stored_length"]) // 2] ^= (
                0xFF if run.queue.topic == topic else 0
            )
        path.write_bytes(content)


def test_a_table_of_the_catalog(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    """Spark gives a table's options to the source once, among properties of its own, and none when the table is read."""
    spark.sql(
        f"create table kept using rocketmq_tiered options (archive '{url}', columns 'topic,queue_id,queue_offset', "
        "topics 'Order*') comment 'orders' tblproperties ('team' = 'mine')"
    )
    try:
        orders = sum(row["topic"].startswith("Order") for row in sent)
        assert spark.sql("select count(*) from kept").collect()[0][0] == orders > 100
        some = spark.read.option("queueIds", "1").table("kept")
        assert some.columns == ["topic", "queue_id", "queue_offset"]
        assert {row.queue_id for row in some.collect()} == {1}
        spark.sql(f"create table queues using rocketmq_tiered options (archive '{url}', table 'queues')")
        assert spark.table("queues").agg({"messages": "sum"}).collect()[0][0] == len(sent)
        spark.sql(f"create table bare (topic string) using rocketmq_tiered options (archive '{url}')")
        with pytest.raises(Exception, match="without a list of columns"):
            spark.table("bare").count()
        with pytest.raises(Exception, match="did you mean topics"):
            spark.sql(f"create table typo using rocketmq_tiered options (archive '{url}', topcs 'x')")
    finally:
        for name in ("kept", "queues", "bare"):
            spark.sql(f"drop table if exists {name}")


def test_what_a_scan_cost_is_a_table(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    spark.conf.set(LOGGING, "true")
    try:
        load(spark, url, columns="topic,body", minPartitions=3).agg({"body": "max"}).collect()
        found = {row.event: row for row in metrics(spark).groupBy("event").sum().collect()}
        parts = metrics(spark).where("event = 'read'").collect()
    finally:
        spark.conf.unset(LOGGING)
    assert found["read"]["sum(rows)"] == len(sent)
    assert 3 <= len(parts) == found["planned"]["sum(partitions)"]
    assert {row.archive for row in parts} == {f"{url} DefaultCluster/broker-a"}
    assert all(row.requests > 0 and row.bytes > 10_000 for row in parts)


def test_writing_says_which_format_does(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="rocketmq_tiered_replay"):
        spark.range(1).write.format("rocketmq_tiered").mode("append").save()


def test_options_choose_as_filters_do(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    chosen = {
        "topics": "Order*",
        "queueIds": "1,2",
        "tags": "TagA",
        "startingOffset": 100,
        "endingOffset": 900,
    }
    wanted = [
        row for row in sent
        if row["topic"].startswith("Order") and row["queue_id"] in (1, 2) and row["tags"] == "TagA"
        and 100 <= row["queue_offset"] < 900
    ]  # fmt: skip
    assert len(wanted) > 10
    for columns in ("topic,queue_id,queue_offset,tags", "topic,queue_id,queue_offset,body"):
        rows = load(spark, url, columns=columns, **chosen).collect()
        assert {(r.topic, r.queue_id, r.queue_offset) for r in rows} == {
            (w["topic"], w["queue_id"], w["queue_offset"]) for w in wanted
        }
        assert len(rows) == len(wanted)


def test_a_chosen_schema(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    reader = spark.read.format("rocketmq_tiered").option("archive", url)
    frame = reader.schema("queue_offset long, topic string, store_timestamp long").load()
    assert frame.agg({"store_timestamp": "max"}).collect()[0][0] == max(
        row["store_timestamp"] for row in sent
    )


@pytest.mark.parametrize(
    ("schema", "columns", "says"),
    [
        ("topic string, tags string not null", "", "the column tags may be null"),
        ("topic string", "tags", "the option columns and the schema name other columns"),
        ("topic string", "topic,tags", "the option columns and the schema name other columns"),
    ],
)
def test_a_schema_that_is_not_followed_is_refused(
    spark: SparkSession, url: str, schema: str, columns: str, says: str
) -> None:
    reader = spark.read.format("rocketmq_tiered").option("archive", url)
    reader = reader.option("columns", columns) if columns else reader
    with pytest.raises(Exception, match=says):
        reader.schema(schema).load().selectExpr("count(*)").collect()
    if columns != "tags":
        assert reader.schema("tags string, topic string").load().columns == ["tags", "topic"]


def test_tables_about_the_archive(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    queues = load(spark, url, table="queues")
    assert queues.agg({"messages": "sum"}).collect()[0][0] == len(sent)
    assert load(spark, url, table="gaps").count() == 0
    commits = load(spark, url, table="commits").orderBy("commit").collect()
    assert [row.commit for row in commits] == list(range(len(commits)))
    assert commits[0].edits == "OPEN_EPOCH"
    (plan,) = load(spark, url, table="plan", topics="Order*").collect()
    assert (plan.queues, plan.runs_pruned, plan.partitions, plan.commit) == (4, 0, 1, len(commits) - 1)
    late = max(row["store_timestamp"] for row in sent)
    (pruned,) = load(spark, url, table="plan", topics="Order*", startingTimestamp=late).collect()
    assert pruned.runs == plan.runs > pruned.runs_pruned > 0
    assert pruned.bytes < plan.bytes
    blocks = load(spark, url, table="blocks")
    assert blocks.agg({"rows": "sum"}).collect()[0][0] == len(sent)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"onDamage": "perhaps"}, "the option onDamage is wrong"),
        ({"topcs": "Orders"}, "did you mean topics"),
        ({"pushFilters": "true"}, "the option pushFilters is gone"),
        ({"topics": "OrderEvent"}, "no archive here has this topic"),
        ({"startingPosition": "latest"}, "only a stream takes this option"),
        ({"columns": "topic,tag"}, "did you mean tags"),
        ({"asOfCommit": "100000"}, "the archive has no such commit"),
        ({"archive": "file:///nowhere/at/all"}, "no archive is here"),
        ({"archive": "s3://bucket/x?endpoint=http://127.0.0.1:9"}, "127.0.0.1:9"),
    ],
)
def test_what_is_wrong_is_said_in_the_first_line(
    spark: SparkSession, url: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match="tiered") as caught:
        load(spark, **{"url": url, **options}).count() if "archive" not in options else load(
            spark, options["archive"]
        ).count()
    assert says in str(caught.value).splitlines()[0]


def test_damage_is_said_at_the_top(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """Found by a task, on an executor: PySpark puts a line of its own before what a worker says."""
    copy = tmp_path / "copy"
    shutil.copytree(url.removeprefix("file://"), copy)
    damaged = max((p for p in copy.rglob("*") if p.is_file()), key=lambda path: path.stat().st_size)
    content = bytearray(damaged.read_bytes())
    content[2000] ^= 0xFF  # in the first block
    damaged.write_bytes(content)
    with pytest.raises(Exception, match="tiered") as caught:
        load(spark, f"file://{copy}").collect()
    first, second = [line for line in str(caught.value).splitlines() if line.strip()][:2]
    assert first.strip() == "An exception was thrown from the Python worker:"
    assert "Corrupt" in second
    assert damaged.name in second
    assert load(spark, f"file://{copy}", onDamage="skip").count() < load(spark, url).count()


def test_an_archive_of_a_later_format_is_refused_in_the_first_line(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(url.removeprefix("file://"), copy)
    (identity,) = copy.rglob("archive.json")
    told = json.loads(identity.read_text())
    del told["crc32c"]  # it need not be there
    identity.write_text(json.dumps({**told, "format": 99}))
    with pytest.raises(Exception, match="tiered") as caught:
        load(spark, f"file://{copy}").count()
    assert "99" in str(caught.value).splitlines()[0]


def test_the_class_alone_is_enough(spark: SparkSession, url: str, sent: list[dict[str, Any]]) -> None:
    spark.dataSource.register(TieredDataSource)
    assert load(spark, url, columns="topic").count() == len(sent)


def test_nothing_of_the_archive_is_written(spark: SparkSession, url: str) -> None:
    root = Path(url.removeprefix("file://"))
    before = sorted((p, p.stat().st_mtime_ns) for p in root.rglob("*") if p.is_file())
    load(spark, url, columns="topic").count()
    assert sorted((p, p.stat().st_mtime_ns) for p in root.rglob("*") if p.is_file()) == before
