"""The archive as a stream, in a real session: exactly once over restarts, in batches as large as asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.kit.daemonproc import Daemon, wait_for
from tests.kit.pysparks import session
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive
from tiered_spark import SteadyQuery, register

pytestmark = [pytest.mark.spark, pytest.mark.slow]
COLUMNS = "topic,queue_id,queue_offset,body_size"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        register(made)
        yield made


class Scene:
    """A generated store that grows, its archive, and a stream of it into Parquet."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark, self.directory = spark, directory
        self.store = directory / "store"
        self.sent = 0

    def grow(self, messages: int) -> None:
        """Append; the store only."""
        done = tiered(
            "gen", "--store", self.store, "--messages", messages, "--topics", 2, "--body-bytes", 300
        )
        assert done.code == 0, done.err
        self.sent += messages

    def archive(self) -> str:
        """Archive all there is, in several commits."""
        return archive(
            self.store, self.directory, dispatch__group_commit_bytes=1 << 20, dispatch__inline_bytes=0
        )

    def stream(self, name: str = "a", *, now: bool = True, **options: object) -> StreamingQuery:
        """Begin, or go on, with the stream of this name."""
        url = f"file://{self.directory / 'archive'}"
        reader = (
            self.spark.readStream.format("rocketmq_tiered").option("archive", url).option("columns", COLUMNS)
        )
        frame = reader.options(**{key: str(value) for key, value in options.items()}).load()
        writer = frame.writeStream.format("parquet").option("path", str(self.directory / f"out-{name}"))
        writer = writer.option("checkpointLocation", str(self.directory / f"checkpoint-{name}"))
        return (
            writer.trigger(availableNow=True) if now else writer.trigger(processingTime="0 seconds")
        ).start()

    def run(self, name: str = "a", **options: object) -> list[dict[str, Any]]:
        """The stream up to the archive's end as it is; what each of its batches was."""
        query = SteadyQuery(lambda: self.stream(name, **options))
        query.wait()
        return [dict(progress) for progress in query.query.recentProgress]

    def rows(self, name: str = "a") -> list[tuple[Any, ...]]:
        """What the stream has written. Spark is told the schema: no file may be committed yet."""
        source = self.spark.read.format("rocketmq_tiered").option("columns", COLUMNS)
        schema = source.option("archive", f"file://{self.directory / 'archive'}").load().schema
        table = self.spark.read.schema(schema).parquet(str(self.directory / f"out-{name}"))
        return sorted(map(tuple, table.select(*COLUMNS.split(",")).collect()))

    def so_far(self, name: str = "a") -> int:
        """How many rows it has written; without a file of them Spark cannot tell."""
        return len(self.rows(name)) if any((self.directory / f"out-{name}").glob("*.parquet")) else 0

    def exact(self, name: str = "a") -> bool:
        """Every message once."""
        rows = self.rows(name)
        return len(rows) == len(set(rows)) == self.sent


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Scene:
    return Scene(spark, tmp_path)


def test_every_message_once_over_restarts(scene: Scene) -> None:
    scene.grow(4000)
    scene.archive()
    scene.run()
    assert scene.exact()
    scene.run()  # nothing new
    assert scene.exact()
    for _ in range(2):
        scene.grow(3000)
        scene.archive()
        scene.run()
        assert scene.exact()


def test_batches_are_as_large_as_asked_for(scene: Scene) -> None:
    scene.grow(30_000)
    scene.archive()
    batches = [b["numInputRows"] for b in scene.run(maxMessagesPerTrigger=6000) if b["numInputRows"]]
    assert scene.exact()
    assert len(batches) > 3
    assert max(batches) <= 6000
    smaller = [b for b in scene.run("b", maxBytesPerTrigger=4 << 20) if b["numInputRows"]]
    assert scene.exact("b")
    assert len(smaller) > 2


def test_a_stream_from_the_latest_gets_only_what_is_new(scene: Scene) -> None:
    scene.grow(2000)
    scene.archive()
    scene.run(startingPosition="latest")
    scene.grow(1000)
    scene.archive()
    scene.run(startingPosition="latest")
    assert len(set(scene.rows())) == len(scene.rows()) == 1000


@pytest.mark.parametrize("batches", [1, 2])
def test_a_batch_done_again_after_a_crash_needs_its_archive(scene: Scene, batches: int) -> None:
    """Spark had planned the last batch and not done it. By another name the archive has none of its rows."""
    for _ in range(batches):
        scene.grow(1000)
        url = scene.archive()
        scene.run()
    for done in (scene.directory / "checkpoint-a" / "commits", scene.directory / "out-a" / "_spark_metadata"):
        last = max(int(path.name) for path in done.iterdir() if path.name.isdigit())
        (done / f"{last}").unlink()
        (done / f".{last}.crc").unlink()
    with pytest.raises(StreamingQueryException, match=r"Refused: the archive ends before.*no such archive"):
        SteadyQuery(lambda: scene.stream(archive=f"{url}/")).wait()
    if batches > 1:
        assert len(scene.rows()) == scene.sent - 1000
    scene.run()
    assert scene.exact()


def test_beside_a_daemon_that_is_killed_and_started_again(scene: Scene) -> None:
    """The query runs all the time, and is itself ended and begun anew once."""
    scene.grow(2000)
    url = f"file://{scene.directory / 'archive'}"
    daemon = Daemon(scene.directory, scene.store, url)
    try:
        daemon.start()
        query = SteadyQuery(lambda: scene.stream(now=False))
        for round_ in range(3):
            scene.grow(1500)
            if round_ == 1:
                daemon.kill()
                daemon.start()
                query.stop()
                query = SteadyQuery(lambda: scene.stream(now=False))
        wait_for(lambda: query.look() and scene.so_far() >= scene.sent, "all messages in the table", 120)
        query.stop()
        assert query.query.exception() is None
        assert scene.exact()
    finally:
        daemon.kill()
