"""Jobs of Spark that meet trouble in the middle: a worker that is killed, an archive that shrinks under them, a time or commit
that is not kept. All rows, each once, or an error that says what to do; never fewer rows."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit.aged import saved
from tests.kit.archiveedits import Edits
from tests.kit.daemonproc import wait_for
from tests.kit.fetchscene import ORDERS, scene
from tests.kit.pysparks import session
from tests.kit.sparkedits import QUEUES, send
from tests.kit.sparkscene import by_place, expected, rows_of, scan
from tests.kit.sparktrouble import GO, KillingSource, WaitingSource
from tiered_spark import frame, late_frame, register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = "topic,queue_id,queue_offset,body"
SMALL = {"columns": COLUMNS, "minPartitions": "6"}
"""A task for each object or two."""
FEW = {"columns": COLUMNS}
TRIES = 4


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session(f"local[2,{TRIES}]") as made:
        register(made)
        made.dataSource.register(KillingSource)
        made.dataSource.register(WaitingSource)
        yield made


class Shrinking:
    """An archive in a directory as it was, and what retention and collection leave of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with scene(directory / "made") as made:
            for _ in range(6):
                send(made, 40, lambda n: QUEUES[n % 4])
            edits = Edits(made)
            head = made.state.head()
            assert head is not None
            self.head = head.seq
            self.url = saved(made, directory / "archive")
            edits.trim(ORDERS, 30)
            edits.merge(QUEUES[1], edits.runs(QUEUES[1])[:3])
            for queue in QUEUES[2:]:
                edits.trim(queue, 20)
            merged = made.state.head()
            assert merged is not None
            self.whole_since = merged.seq
            assert edits.retire()
            assert edits.delete()
            saved(made, directory / "later")
        self.rows = expected(self.url)

    def shrink(self) -> None:
        """What was retired is deleted, and the log says so."""
        here, later = self.directory / "archive", self.directory / "later"
        files = {path.relative_to(later) for path in later.rglob("*") if path.is_file()}
        for name in sorted(files):
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(later / name, here / name)
        for path in [path for path in here.rglob("*") if path.is_file()]:
            if path.relative_to(here) not in files:
                path.unlink()


@pytest.fixture
def shrinking(tmp_path: Path) -> Shrinking:
    return Shrinking(tmp_path)


def load(spark: SparkSession, url: str, kind: str = "", **options: object) -> DataFrame:
    """``kind``: of a scan in trouble, with many tasks."""
    chosen = {
        "archive": url,
        **(SMALL if kind else FEW),
        **{name: str(value) for name, value in options.items()},
    }
    return spark.read.format(kind or "rocketmq_tiered").options(**chosen).load()


def marks_in(directory: Path) -> Path:
    made = directory / "marks"
    made.mkdir()
    return made


def test_a_worker_that_is_killed_in_the_middle_of_a_scan(
    spark: SparkSession, shrinking: Shrinking, tmp_path: Path
) -> None:
    """Spark does its task again: every row, none twice, in a result and in a table that the job writes."""
    marks, wanted = marks_in(tmp_path), by_place(scan({"archive": shrinking.url, **SMALL}))
    found = load(spark, shrinking.url, "killing", marks=marks, kills=TRIES - 1)
    assert by_place(rows_of(found.toArrow())) == wanted
    killed = os.listdir(marks)
    assert len(killed) == TRIES - 1
    for name in killed:
        (marks / name).unlink()
    found.write.parquet(str(tmp_path / "table"))
    assert len(os.listdir(marks)) == TRIES - 1
    assert by_place(rows_of(spark.read.parquet(str(tmp_path / "table")).toArrow())) == wanted
    assert len(wanted) == 240


def test_a_worker_that_is_killed_in_the_middle_of_a_batch_of_a_stream(
    spark: SparkSession, shrinking: Shrinking, tmp_path: Path
) -> None:
    marks, wanted = marks_in(tmp_path), by_place(scan({"archive": shrinking.url, **SMALL}))
    options = {
        "archive": shrinking.url,
        **SMALL,
        "marks": str(marks),
        "kills": "2",
        "maxMessagesPerTrigger": "100",
    }
    rows = spark.readStream.format("killing").options(**options).load()
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "table"))
    query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert len(os.listdir(marks)) == 2
    assert by_place(rows_of(spark.read.parquet(str(tmp_path / "table")).toArrow())) == wanted


def test_workers_that_are_killed_again_and_again_fail_the_job(
    spark: SparkSession, shrinking: Shrinking, tmp_path: Path
) -> None:
    found = load(spark, shrinking.url, "killing", marks=marks_in(tmp_path), kills=1000)
    with pytest.raises(Exception, match="crashed"):
        found.write.parquet(str(tmp_path / "table"))
    assert not list((tmp_path / "table").glob("*.parquet"))


def test_an_archive_that_is_collected_under_a_running_job(
    spark: SparkSession, shrinking: Shrinking, tmp_path: Path
) -> None:
    """A task has given rows, the objects of others go away: the job fails with what to do, and done again it is right."""
    marks = marks_in(tmp_path)
    running = load(spark, shrinking.url, "waiting", marks=marks)
    met: list[BaseException] = []

    def write() -> None:
        try:
            running.write.parquet(str(tmp_path / "table"))
        except BaseException as error:
            met.append(error)

    job = threading.Thread(target=write)
    job.start()
    wait_for(lambda: len(os.listdir(marks)) > 2 or not job.is_alive(), "two tasks wait", 180)
    assert job.is_alive()
    shrinking.shrink()
    (marks / GO).touch()
    job.join(300)
    (error,) = met
    assert re.search(r"NotFound: .*is not there.*run it again", str(error), re.DOTALL), str(error)
    assert not list((tmp_path / "table").glob("*.parquet"))
    again = load(spark, shrinking.url)
    wanted = by_place(scan({"archive": shrinking.url, **SMALL}))
    assert by_place(rows_of(again.toArrow())) == wanted
    kept = {
        place
        for place in by_place(shrinking.rows)
        if place[2] >= {("Orders", 0): 30, ("Orders", 1): 0}.get(place[:2], 20)
    }
    assert wanted.keys() == kept


def test_a_frame_that_was_loaded_before_what_it_names_was_deleted(
    spark: SparkSession, shrinking: Shrinking
) -> None:
    """Spark keeps the plan of a loaded frame: it says to make it anew, also where it is a view or a frame of sealed files."""
    loaded = load(spark, shrinking.url)
    made = [loaded, late_frame(spark, archive=shrinking.url), frame(spark, shrinking.url)]
    assert [each.count() for each in made] == [240] * 3
    shrinking.shrink()
    for each in made:
        with pytest.raises(
            Exception, match=r"(?s)NotFound: .*(run it again|is the oldest that can be chosen)"
        ):
            each.select("topic", "body").toArrow()
    assert load(spark, shrinking.url).count() == 30 + 60 + 40 + 40


def test_commits_and_times_that_are_not_kept(spark: SparkSession, shrinking: Shrinking) -> None:
    """Each way to ask names what can be asked for, before a task begins."""
    shrinking.shrink()
    ways = {
        "source": lambda **past: load(spark, shrinking.url, **past).count(),
        "view": lambda **past: late_frame(spark, archive=shrinking.url, **past).count(),
        "frame": lambda **past: frame(spark, shrinking.url, **past).count(),
    }
    asked: list[tuple[dict[str, object], str]] = [
        ({"asOfCommit": shrinking.head}, f"commit {shrinking.whole_since} is the oldest that can be chosen"),
        ({"asOfCommit": 10_000}, r"no such commit .*expected=commits 0 to \d+.*choose one of these"),
        ({"asOfTimestamp": "1971-01-01"}, r"no commit at this time .*is the oldest that can be chosen"),
        ({"asOfCommit": -1}, "asOfCommit"),
        ({"asOfTimestamp": "never"}, "asOfTimestamp"),
    ]
    for name, ask in ways.items():
        for past, said in asked if name == "source" else asked[:1]:
            with pytest.raises(Exception, match=f"(?s){said}"):
                ask(**past)
        assert ask(asOfCommit=shrinking.whole_since) == 30 + 60 + 40 + 40, name
    assert ways["source"](asOfTimestamp="2100-01-01") == 30 + 60 + 40 + 40
