"""Sealed history by Spark's own reader and the rest by the data source: at every stage of ageing the same rows, each once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.kit.aged import Stage, age, saved
from tests.kit.archiveedits import rewind
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.pysparks import session
from tests.kit.sealedexamples import TOPIC, examples, sealed
from tests.kit.sealing import HOUR_MS, MIDNIGHT_MS, after_midnight, seal_all
from tests.kit.sparkaged import CHOICES, STAGES, SYSTEM, aged_archives, aged_rows
from tests.kit.sparkscene import by_place, rows_of, scan
from tiered.errors import Corrupt, Invalid, NotFound, Refused
from tiered_spark import frame, late_frame, provenfiles, register, sealedfiles, sealedframe
from tiered_spark.columns import COLUMNS, message_schema
from tiered_spark.enginepaths import engine_path
from tiered_spark.options import parse_options
from tiered_spark.snapshot import open_snapshots
from tiered_spark.wanted import first_wish

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Rows = dict[tuple[Any, ...], dict[str, Any]]

QUEUE = (ORDERS.topic, ORDERS.queue_id)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as running:
        register(running)
        yield running


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[Stage, str]:
    """The same messages at every stage."""
    return aged_archives(tmp_path_factory.mktemp("aged"))


def sealed_by_hand(directory: Path, *, then: Callable[[Scene], object] = lambda made: None) -> str:
    """An archive of two sealed days to which something happens."""
    with scene(directory) as made:
        age(made, Stage.SEALED)
        then(made)
        return saved(made, directory / "archive")


def framed(spark: SparkSession, url: str, **options: object) -> Rows:
    """All rows of a frame."""
    made = frame(spark, url, **options)
    wanted = str(options.get("columns", ",".join(COLUMNS))).split(",")
    types = [(f.name, f.dataType) for f in message_schema(wanted)]
    assert [(f.name, f.dataType) for f in made.schema] == types
    return by_place(rows_of(made.toArrow()))


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_the_same_rows(spark: SparkSession, archives: dict[Stage, str], stage: Stage) -> None:
    assert framed(spark, archives[stage], **SYSTEM) == aged_rows(archives, stage, **SYSTEM)


def test_the_example_for_sparks_own_reader_runs_as_printed(spark: SparkSession, tmp_path: Path) -> None:
    expected = sealed(tmp_path / "plain", packed=0)
    names: dict[str, Any] = {"spark": spark}
    exec(examples(tmp_path / "plain")[-1], names)
    found = [
        tuple(row) for row in names["orders"].select("topic", "id", "queue_id", "queue_offset").collect()
    ]
    assert sorted(found) == [(TOPIC, *row) for row in expected]
    sealed(tmp_path / "packed", packed=1)
    exec(examples(tmp_path / "packed")[-1], names)
    with pytest.raises(Exception, match="a compressed body"):
        names["orders"].collect()


def test_bounds_behind_all_times(spark: SparkSession, archives: dict[Stage, str]) -> None:
    """No time of Spark is so late."""
    for far in ("253402300800001", "99999999999999999", str(2**63 - 1)):
        everything = framed(spark, archives[Stage.MIXED], endingTimestamp=far)
        assert everything == aged_rows(archives, Stage.MIXED, endingTimestamp=far)
        assert framed(spark, archives[Stage.MIXED], startingTimestamp=far) == {}
    with pytest.raises(Invalid, match="the option endingTimestamp is wrong"):
        frame(spark, archives[Stage.MIXED], endingTimestamp=str(2**63))


def test_options_are_values_of_python(spark: SparkSession, archives: dict[Stage, str]) -> None:
    texts = {
        "topics": "Orders,Pay*",
        "queueIds": "0,1",
        "tags": "tag-1,tag-2",
        "endingOffsets": '{"Orders": {"*": 9}}',
    }
    wanted = aged_rows(archives, Stage.MIXED, **texts)
    assert wanted
    given: dict[str, Any] = {
        "topics": ["Orders", "Pay*"], "queueIds": (0, 1), "tags": ["tag-1", "tag-2"], "endingOffsets": {"Orders": {"*": 9}},
        "asOfCommit": None, "keys": None,
    }  # fmt: skip
    assert framed(spark, archives[Stage.MIXED], **given) == wanted
    late = late_frame(spark, archive=[archives[Stage.MIXED]], **given)
    assert by_place(rows_of(late.toArrow())) == wanted
    for made in (late_frame, frame):
        for wrong in (
            ["Orders", None],
            [["Orders"]],
            ["a,b"],
            [],
            "['Orders']",
            "('Orders', 'b')",
            "('Orders',)",
        ):
            with pytest.raises(Invalid, match="option topics"):
                made(spark, archive=archives[Stage.MIXED], topics=wrong)


@pytest.mark.parametrize("options", CHOICES, ids=lambda options: "-".join(options))
def test_options_choose_the_same_rows(
    spark: SparkSession, archives: dict[Stage, str], options: dict[str, str]
) -> None:
    wanted = aged_rows(archives, Stage.MIXED, **options)
    assert wanted
    assert framed(spark, archives[Stage.MIXED], **options) == wanted


def test_what_is_sealed_is_scanned_by_spark_alone(spark: SparkSession, archives: dict[Stage, str]) -> None:
    """Columns that a query does not name are not read, its filters are pushed down, and no Python runs."""
    made = (
        frame(spark, archives[Stage.SEALED], decodeBody=False).where("unique_key = 'u7'").select("queue_id")
    )
    plan = made._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in plan
    assert "EqualTo(unique_key,u7)" in plan
    assert "body" not in plan
    assert "BatchScan" not in plan
    assert "Python" not in plan
    assert made.count() == len(
        [r for r in aged_rows(archives, Stage.SEALED).values() if r["unique_key"] == "u7"]
    )
    half = frame(spark, archives[Stage.MIXED], startingTimestamp=str(MIDNIGHT_MS + 2 * HOUR_MS))
    assert "FileScan" not in half._jdf.queryExecution().executedPlan().toString(), (
        "no sealed file is of that time"
    )


def test_keys_are_looked_for_by_the_source(spark: SparkSession, archives: dict[Stage, str]) -> None:
    """Spark's reader would read every row's list of keys."""
    made = frame(spark, archives[Stage.SEALED], keys="u7", decodeBody=False)
    assert "FileScan" not in made._jdf.queryExecution().executedPlan().toString()
    assert made.count() == len(aged_rows(archives, Stage.SEALED, keys="u7"))


def test_a_view_fetches_records_of_sealed_files(spark: SparkSession, archives: dict[Stage, str]) -> None:
    rows = by_place(rows_of(late_frame(spark, archive=archives[Stage.MIXED]).toArrow()))
    assert rows == aged_rows(archives, Stage.MIXED)


def test_a_frame_is_of_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        age(made, Stage.MERGED)
        merged = made.state.head()
        assert merged is not None
        after_midnight(made)
        seal_all(made.daemon)
        url = saved(made, tmp_path / "archive")
        rows = framed(spark, url)
        assert framed(spark, url, asOfCommit=merged.seq) == rows, "before it was sealed"
        before = frame(spark, url)
        made.broker.send("Orders", 0, b"later")
        made.daemon.settle(2.0)
        saved(made, tmp_path / "grown")
        shutil.copytree(tmp_path / "grown", tmp_path / "archive", dirs_exist_ok=True)
        assert by_place(rows_of(before.toArrow())) == rows
        assert frame(spark, url).count() == len(rows) + 1


def test_times_are_those_of_the_files_whatever_a_session_says(spark: SparkSession, tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        made.broker.time_ms = MIDNIGHT_MS - 3 * HOUR_MS
        made.broker.send("Orders", 0, b"old", born_timestamp=-14_000_000_000_000)  # in the year 1526
        made.daemon.settle(2.0)
        age(made, Stage.SEALED)
        url = saved(made, tmp_path / "archive")
    wanted = by_place(scan({"archive": url}))
    assert min(row["born_timestamp"] for row in wanted.values()) == -14_000_000_000_000
    for mode in ("LEGACY", "EXCEPTION"):
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
        try:
            assert framed(spark, url) == wanted
        finally:
            spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_the_other_reader_of_parquet(spark: SparkSession, archives: dict[Stage, str]) -> None:
    spark.conf.set(sealedframe.V1_SOURCES, "csv, json")
    try:
        assert framed(spark, archives[Stage.SEALED]) == aged_rows(archives, Stage.SEALED)
        with pytest.raises(Invalid, match=r"useV1SourceList, found=csv, json.*unset it"):
            frame(spark, archives[Stage.TRIMMED])
    finally:
        spark.conf.unset(sealedframe.V1_SOURCES)


def test_rows_that_a_rewind_closed_are_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    def lose(made: Scene) -> None:
        last = [m for m, _ in made.broker.sent if (m.topic, m.queue_id) == QUEUE][-3]
        rewind(made, last)

    url = sealed_by_hand(tmp_path, then=lose)
    options = parse_options({"archive": url})
    (snapshot,) = open_snapshots(options)
    files = sealedfiles.sealed_files(snapshot, options, first_wish(options))
    assert files.cut
    assert files.whole
    live = {(run.queue.topic, run.queue.queue_id): run.end for run in snapshot.view.state.runs_all()}
    rows = framed(spark, url)
    assert {at[:2] for at in rows} == {at for at in live if not at[0].startswith("!")}
    assert sum(at[:2] == QUEUE for at in rows) == live[QUEUE]
    assert rows[*QUEUE, live[QUEUE] - 1]["body"].startswith(b"anew")


def test_without_footers_rows_are_compared_one_by_one(
    spark: SparkSession, archives: dict[Stage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenfiles, "MAX_FOOTERS", 0)
    assert framed(spark, archives[Stage.SEALED]) == aged_rows(archives, Stage.SEALED)


def last_page(path: Path) -> int:
    """Where the last page of a file's first column of texts ends."""
    column = pq.read_metadata(path).row_group(0).column(0)
    return int(column.dictionary_page_offset + column.total_compressed_size - 1)


def test_damage_is_an_error_and_never_fewer_rows(spark: SparkSession, tmp_path: Path) -> None:
    url = sealed_by_hand(tmp_path)
    files = sorted((tmp_path / "archive").glob("*/*/segment/topic=[OP]*/*/*"))
    one, other = files[:2]
    data = one.read_bytes()
    made = frame(spark, url)

    at = last_page(one)
    one.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(Exception, match=r"(?i)checksum|crc"):
        made.toArrow()

    one.unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=one.name):
            made.toArrow()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    with pytest.raises(NotFound, match=one.name):
        frame(spark, url)

    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    with pytest.raises(Corrupt, match=one.name):
        frame(spark, url)


def denying(path: Path) -> tuple[bytes, str]:
    """The file's bytes with Bloom filters of unique keys that deny every key, and one of its keys."""
    data, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        found = [group.column(n) for n in range(group.num_columns)]
        (column,) = [each for each in found if each.path_in_schema == "unique_key"]
        end = column.bloom_filter_offset + column.bloom_filter_length
        size = (end - column.bloom_filter_offset) // 32 * 32  # whole blocks, behind a header of fewer bytes
        data[end - size : end] = bytes(size)
    keys = pq.read_table(path, columns=["unique_key"], partitioning=None).column(0).to_pylist()
    return bytes(data), next(key for key in keys if key)


def test_filters_and_page_index_are_proven_or_not_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark compares no checksum of them: with a damaged one it would pass over rows."""
    url = sealed_by_hand(tmp_path)
    one = min((tmp_path / "archive").glob("*/*/segment/topic=Orders/*/*"))
    data, key = denying(one)
    wanted = frame(spark, url).where(f"unique_key = '{key}'").count()
    assert wanted
    one.write_bytes(data)
    with pytest.raises(Corrupt, match=f"filters or page index are damaged.*{one.name}"):
        frame(spark, url)
    monkeypatch.setattr(provenfiles, "MAX_INDEX_BYTES", 0)
    provenfiles.forget()
    assert frame(spark, url).where(f"unique_key = '{key}'").count() == wanted
    monkeypatch.setattr(sealedframe, "UNPROVEN", {"bloom": "as ever"})
    assert frame(spark, url).where(f"unique_key = '{key}'").count() < wanted, "the filter was damaged"


def test_no_row_is_passed_over_by_a_damaged_dictionary(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's reader would believe it without comparing its checksum."""
    url = sealed_by_hand(tmp_path)
    one = min((tmp_path / "archive").glob("*/*/segment/topic=Orders/*/*"))
    data, group = one.read_bytes(), pq.read_metadata(one).row_group(0)
    found = [group.column(n) for n in range(group.num_columns)]
    (column,) = [each for each in found if each.path_in_schema == "tags"]
    at = data.index(b"tag-", column.dictionary_page_offset, column.data_page_offset) + len("tag-")
    tag = data[at - 4 : at + 1].decode()
    one.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
    with pytest.raises(Exception, match=r"(?i)checksum|crc"):
        frame(spark, url).where(f"tags = '{tag}'").count()


@pytest.mark.parametrize("footers", [provenfiles.MAX_FOOTERS, 0])
@pytest.mark.parametrize("stage", [Stage.SEALED, Stage.TRIMMED])
def test_no_file_is_passed_over_because_it_became_another(
    spark: SparkSession,
    archives: dict[Stage, str],
    tmp_path: Path,
    stage: Stage,
    footers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark takes a file without a byte for one without rows. It was proven before, and is again; cut files are, too."""
    monkeypatch.setattr(provenfiles, "MAX_FOOTERS", footers)
    shutil.copytree(archives[stage].removeprefix("file://"), tmp_path / "archive")
    url = f"file://{tmp_path / 'archive'}"
    options = parse_options({"archive": url})
    (snapshot,) = open_snapshots(options)
    files = sealedfiles.sealed_files(snapshot, options, first_wish(options))
    for path in (*files.whole, *files.cut):
        here = tmp_path / "archive" / snapshot.view.keys.key(path)
        data = here.read_bytes()
        for other in (b"", data + b"x", data[:-1]):
            here.write_bytes(other)
            with pytest.raises(Corrupt, match=f"another length.*{here.name}"):
                frame(spark, url)
        if footers:
            here.write_bytes(data[:-9] + b"x" + data[-8:])
            os.utime(here, (1, 1))  # whatever its time was before
            with pytest.raises(Corrupt, match=here.name):
                frame(spark, url)
        here.unlink()
        with pytest.raises(NotFound, match=here.name):
            frame(spark, url)
        here.write_bytes(data)
    assert framed(spark, url) == framed(spark, archives[stage])


def test_what_is_refused(spark: SparkSession, archives: dict[Stage, str]) -> None:
    url = archives[Stage.SEALED]
    with pytest.raises(Invalid, match="column"):
        frame(spark, url, columns="topic,record")
    for options in ({"table": "queues"}, {"onDamage": "skip"}, {"sealed": False}):
        with pytest.raises(Invalid, match="of all messages"):
            frame(spark, url, **options)
    with pytest.raises(NotFound, match="no archive here has this topic"):
        frame(spark, url, topics="Nowhere")


def test_a_file_system_that_spark_lacks_is_named(
    spark: SparkSession, archives: dict[Stage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("s3a", "gs"):
        monkeypatch.setattr(
            sealedframe, "engine_path", lambda url, key, named=scheme: f"{named}://bucket/{key}"
        )
        with pytest.raises(Invalid, match=r"no file system for this URL.*hadoop-aws.*rocketmq_tiered"):
            frame(spark, archives[Stage.SEALED])


def test_paths_as_spark_takes_them() -> None:
    assert engine_path("s3://bucket/a%20b?endpoint=http://x", "c/b/k") == "s3a://bucket/a b/c/b/k"
    assert engine_path("file:///a%5Bb%5D", "c/k") == "file:///a\\[b\\]/c/k"
    assert engine_path("fsspec+gs://bucket/x/", "k") == "gs://bucket/x/k"
    for url in ("memory://x", "fsspec+sftp://host/x"):
        with pytest.raises(Refused, match="no file system of its own"):
            engine_path(url, "k")
