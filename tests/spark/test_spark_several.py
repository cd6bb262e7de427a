"""Several archives as one frame or view: bounds of a queue that only one of them has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.kit.pipeline import Crafted
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive
from tiered.errors import NotFound
from tiered_spark import frame, late_frame, register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BOUNDS: list[dict[str, object]] = [
    {"startingOffsets": json.dumps({"Orders": {"0": 3}})},
    {"endingOffsets": {"broker-b/Payments": {"0": 2, "*": 9}, "Orders": {"*": 4}}},
    {"startingTimestamps": {"Payments": {"0": "1970-01-02"}}, "startingOffsets": "earliest"},
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        register(made)
        yield made


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A broker with ``Orders``, and another one with ``Payments``."""
    found = []
    for name, topic in (("broker-a", "Orders"), ("broker-b", "Payments")):
        directory = tmp_path_factory.mktemp(name)
        broker = Crafted(directory / "store", file_bytes=1 << 20)
        for number in range(10):
            broker.send(topic, 0, b"%d" % number)
        found.append(archive(broker.store, directory, source__broker=name))
    return ",".join(found)


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: "-".join(bounds))
def test_a_bound_of_one_archive_leaves_the_others_whole(
    spark: SparkSession, urls: str, bounds: dict[str, object]
) -> None:
    texts = {name: bound if isinstance(bound, str) else json.dumps(bound) for name, bound in bounds.items()}
    source = spark.read.format("rocketmq_tiered").options(archive=urls, columns="topic", **texts).load()
    wanted = Counter(row.topic for row in source.collect())
    assert wanted.keys() == {"Orders", "Payments"}
    for made in (frame(spark, urls, **bounds), late_frame(spark, archive=urls, **bounds)):
        assert Counter(row.topic for row in made.select("topic").collect()) == wanted


def test_a_bound_that_no_archive_knows_is_an_error(spark: SparkSession, urls: str) -> None:
    for make in (frame, late_frame):
        for bound in ({"Order": {"0": 1}}, {"broker-a/Payments": {"0": 1}}, {"Orders": {"7": 1}}):
            with pytest.raises(NotFound, match="a queue that is not read"):
                make(spark, archive=urls, startingOffsets=bound)
