"""Topics whose names hurt: in patterns, in SQL, in paths. The data source, views and frames take them as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.kit.pipeline import Crafted
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive, expected
from tiered_spark import frame, late_frame, register, view
from tiered_spark.options import exactly

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NAMES = (
    "a.b.c", "100%done", "%2F", "tick`s", "it's \"so\"", "grüße-日本", "x" * 127, "語" * 42, "[x]*?", "a=b", "42",
    "a/b c", "null", "__HIVE_DEFAULT_PARTITION__", "!off", "!", "]x",
)  # fmt: skip
"""Dots, percent signs, backticks, quotes, other letters, the longest that a record may have, patterns, paths, numbers."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        register(made)
        yield made


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("names")
    broker = Crafted(directory / "store", file_bytes=1 << 20)
    for number, name in enumerate(NAMES):
        for each in range(3 + number):
            broker.send(name, each % 2, f"{name} {each}".encode(), properties={"KEYS": f"k{each}"})
    return archive(broker.store, directory)


def test_one_topic_of_each_name(spark: SparkSession, url: str) -> None:
    """By its very name, as a source, a view in SQL, and a frame."""
    counts = Counter(row["topic"] for row in expected(url))
    assert sorted(counts) == sorted(NAMES)
    found = spark.read.format("rocketmq_tiered").options(archive=url, columns="topic").load()
    assert {row.topic: row["count"] for row in found.groupBy("topic").count().collect()} == counts
    for name in ("[x]*?", "tick`s"):
        chosen = spark.read.format("rocketmq_tiered").options(archive=url, topics=exactly(name)).load()
        assert {row.topic for row in chosen.collect()} == {name}
        assert frame(spark, url, topics=exactly(name)).count() == counts[name]
    for name in set(NAMES) - {"[x]*?"}:  # as they are, of an archive that has not all of the names
        assert late_frame(spark, archive=url, topics=name).count() == counts[name], name
        assert frame(spark, url, topics=f"{name},nowhere", missingTopics="ignore").count() == counts[name], (
            name
        )
    view(spark, "named", archive=url)
    counted = spark.sql("select count(body) as n from named where topic = 'tick`s'").collect()
    assert counted[0].n == counts["tick`s"]
