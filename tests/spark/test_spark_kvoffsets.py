"""The worked example of a stream in a real session: its batches are in the view, and one that comes again is noticed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.httpscene import serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tests.kit.pysparks import session
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive
from tiered.client.sync import KeyValueClient
from tiered_spark import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]
EXAMPLE = Path(__file__).parents[2] / "spark" / "examples" / "kvoffsets.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_kvoffsets_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


EX: Any = loaded()


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        register(made)
        yield made


def test_batches_are_recorded_and_one_that_comes_again_is_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    store, out, checkpoint = tmp_path / "store", tmp_path / "out", tmp_path / "checkpoint"

    def grow(messages: int) -> str:
        words = ("--messages", messages, "--topics", 1, "--queues", 2, "--body-bytes", 100)
        done = tiered("gen", "--store", store, *words)
        assert done.code == 0, done.err
        return archive(store, tmp_path)

    said: list[str] = []
    with serving_key_values(MemoryKeyValues()) as scene, KeyValueClient(scene.url) as client:
        client.create("streams")
        url = grow(200)
        given = EX.parsed(
            ["--archive", url, "--topics", "DemoTopic0", "--out", str(out), "--checkpoint", str(checkpoint),
             "--server", scene.url, "--stream", "demo"]
        )  # fmt: skip
        for messages in (0, 100):
            if messages:
                grow(messages)
            EX.stream(spark, given, EX.BatchLedger(client, "streams", "demo"), said.append)
        entry = client.get("streams", b"demo")
        assert entry is not None
        record = EX.StreamRecord.decode(entry)
        assert (record.done, sum(record.offsets.values()), said) == (True, 300, [])
        last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (last, last.with_name(f".{last.name}.crc")):
            path.unlink(missing_ok=True)  # it died after the batch, before Spark noted it
        EX.stream(spark, given, EX.BatchLedger(client, "streams", "demo"), said.append)
        assert said == [f"batch {record.batch} was applied before: it is left out"]
    assert spark.read.parquet(str(out)).count() == 300
