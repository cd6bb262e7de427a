"""The job ``audit``: sound archives, damaged ones, and archives that broker or table do not agree with."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from tests.kit import golden
from tests.kit.oracle import opened
from tests.kit.pysparks import session
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive, expected
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.sections import SectionKind
from tiered.errors import NotFound
from tiered_jobs.audit.queues import contiguity, counters
from tiered_jobs.audit.store import broker_queues
from tiered_jobs.main import main

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SMALL = {"dispatch__block_bytes": 65536, "dispatch__inline_bytes": 0}
QUEUE = {"cluster": "c", "broker": "b", "topic": "T", "queue_id": 0}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    return golden.unpack("broker-store", directory) / golden.STORE_DIRS["broker-store"][0]


@pytest.fixture(scope="module")
def url(store: Path) -> str:
    return archive(store, store.parent, **SMALL)


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[SparkSession]:
    with session() as made:
        yield made


@pytest.fixture
def copied(url: str, tmp_path: Path) -> str:
    shutil.copytree(url.removeprefix("file://"), tmp_path / "archive")
    return f"file://{tmp_path / 'archive'}"


Audit = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def audit(capsys: pytest.CaptureFixture[str]) -> Audit:
    """Run it; (exit code, summary)."""

    def run(*flags: object) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["audit", *map(str, flags), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def spoil(url: str, key: str, position: int) -> None:
    path = Path(url.removeprefix("file://")) / key
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def parts(url: str) -> tuple[ArchiveState, ObjectReader]:
    found = opened(url)
    return found.state, found.objects


def test_a_sound_archive_and_its_broker(url: str, store: Path, audit: Audit) -> None:
    code, told = audit("--archive", url, "--store", store)
    records = list(golden.records(store))
    assert (code, told["verdict"], told["listed"]) == (0, "sound", [])
    assert told["records"] == len(records)
    assert told["bytes"] == sum(len(r.raw) for r in records)
    assert told["queues"] == told["store"]["queues"] == len({(r.topic, r.queue_id) for r in records})
    assert told["store"]["messages_behind"] == 0
    state, objects = parts(url)
    assert told["blocks"] == sum(len(objects.block_table(item)) for item in state.objects())
    code, told = audit("--archive", url, "--quick", "--topics", "Order*")
    assert (code, told["blocks"]) == (0, 0)
    assert told["records"] == sum(r.topic == "OrderEvents" for r in records)


def test_damaged_blocks_are_named(copied: str, audit: Audit) -> None:
    state, objects = parts(copied)
    item = next(iter(state.objects()))
    table, key = objects.block_table(item), objects.key_of(item)
    runs = sorted((r for r in state.runs_all() if r.object == item.ref), key=lambda r: r.first_block)
    wanted = set()
    for block in (0, 2, len(table) - 1):
        spoil(copied, key, int(table["position"][block]) + 3)
        run = next(r for r in reversed(runs) if r.first_block <= block)
        first = int(table["first_queue_offset"][block])
        wanted.add(
            (key, block, run.queue.topic, run.queue.queue_id, first, first + int(table["rows"][block]))
        )
    code, told = audit("--archive", copied)
    assert (code, told["verdict"]) == (1, "DIFFERENT")
    names = ("key", "block", "topic", "queue_id", "start_offset", "end_offset")
    assert {tuple(d[name] for name in names) for d in told["listed"]} == wanted
    assert told["kinds"] == {"a block fails its checksum": 3}
    assert told["differences"] == 3
    code, told = audit("--archive", copied, "--limit", 1)
    assert (code, told["differences"], len(told["listed"])) == (1, 3, 1)
    assert audit("--archive", copied, "--quick")[0] == 0  # it reads no block


def test_an_object_that_is_gone_and_one_with_damaged_tables(
    copied: str, audit: Audit, tmp_path: Path
) -> None:
    state, objects = parts(copied)
    gone, *_, damaged = state.objects()
    (Path(copied.removeprefix("file://")) / objects.key_of(gone)).unlink()
    spoil(copied, objects.key_of(damaged), damaged.sections[SectionKind.COLUMNS][0] + 9)
    row = {
        "cluster": "DefaultCluster",
        "broker": "broker-a",
        "topic": "x",
        "queue_id": 0,
        "queue_offset": 0,
        "body_crc": 0,
    }
    table = write([row], tmp_path / "table")
    for flags in ((), ("--quick", "--table", table)):
        code, told = audit("--archive", copied, *flags)
        assert code == 1
        assert ("table" in told) == ("--table" in flags)
        assert told.get("table", "").startswith("not compared") == ("--table" in flags)
        found = {d["key"] for d in told["listed"]}
        assert found == {objects.key_of(gone), objects.key_of(damaged)}
        lost = Counter[tuple[str, int]]()
        for d in told["listed"]:
            if d["key"] == objects.key_of(gone) and d["topic"] is not None:
                lost[d["topic"], d["queue_id"]] += d["end_offset"] - d["start_offset"]
        wanted = Counter[tuple[str, int]]()
        for run in state.runs_all():
            if run.object == gone.ref:
                wanted[run.queue.topic, run.queue.queue_id] += run.end - run.start
        assert lost == wanted


def ranges(spark: SparkSession, *pairs: tuple[int, int], error: str | None = None) -> Any:
    rows = [Row(error=error, **QUEUE, start_offset=a, end_offset=b) for a, b in pairs]
    schema = "error string, cluster string, broker string, topic string, queue_id int, start_offset long, end_offset long"
    return spark.createDataFrame(rows, schema)


def test_offsets_missing_and_twice(spark: SparkSession) -> None:
    queue = "cluster string, broker string, topic string, queue_id int, generation int"
    known = f"{queue}, min_offset long, max_offset long, messages long"
    queues = spark.createDataFrame(
        [("c", "b", "T", 0, 2, 10, 100, 85), ("c", "b", "empty", 0, 1, 7, 7, 0), ("c", "b", "none", 0, 1, 0, 3, 3),
         ("c", "b", "reset", 0, None, 0, 0, 0)], known,
    )  # fmt: skip
    gap = f"{queue}, start_offset long, end_offset long"
    gaps = spark.createDataFrame([("c", "b", "T", 0, 2, 5, 15), ("c", "b", "T", 0, 1, 50, 60)], gap)

    def found(*pairs: tuple[int, int]) -> set[tuple[Any, ...]]:
        made = contiguity(ranges(spark, *pairs), queues, gaps)
        return {
            (r.what.split()[-1], r.start_offset, r.end_offset) for r in made.filter("topic = 'T'").collect()
        }

    assert found((15, 40), (40, 100)) == set()
    assert found((15, 40), (50, 90)) == {("missing", 40, 50), ("missing", 90, 100)}
    assert found((20, 60), (50, 55), (60, 100)) == {("missing", 15, 20), ("twice", 50, 55)}
    assert found((15, 103)) == {("queue", 100, 103)}
    others = contiguity(ranges(spark, (15, 100)), queues, gaps).collect()
    assert [(r.topic, r.what, r.start_offset, r.end_offset) for r in others] == [
        ("none", "queue offsets are missing", 0, 3)
    ]
    wrong = counters(ranges(spark, (15, 40), (50, 100)), queues).collect()
    assert {(r.topic, r.detail) for r in wrong} == {
        ("T", "the archive counts 85, found 75"), ("none", "the archive counts 3, found 0"),
    }  # fmt: skip


def test_queues_of_a_store_as_a_slow_reader_sees_them(store: Path, tmp_path: Path) -> None:
    wanted = {}
    for topic, queue_id, directory in golden.queues(store):
        units = golden.consume_queue(directory)
        wanted[topic, queue_id] = (min(units), max(units) + 1)
    assert {(q.topic, q.queue_id): (q.first, q.end) for q in broker_queues(store)} == wanted
    shutil.copytree(store, tmp_path / "store")
    deleted = sorted((tmp_path / "store" / "commitlog").iterdir())[:12]
    for path in deleted:
        path.unlink()
    first = int(deleted[-1].name) + (1 << 20)
    for topic, queue_id, directory in golden.queues(store):
        units = golden.consume_queue(directory)
        left = [offset for offset, (physical, _, _) in units.items() if physical >= first]
        wanted[topic, queue_id] = (min(left, default=max(units) + 1), max(units) + 1)
    assert {(q.topic, q.queue_id): (q.first, q.end) for q in broker_queues(tmp_path / "store")} == wanted
    with pytest.raises(NotFound, match="no consume queues"):
        list(broker_queues(tmp_path))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """(store with 3,000 messages, the same when it had 2,000, archive of the 2,000)."""
    directory = tmp_path_factory.mktemp("grown")
    new, old = directory / "store", directory / "old"
    assert tiered("gen", "--store", new, "--messages", 2000, "--topics", 2, "--body-bytes", 100).code == 0
    url = archive(new, directory)
    shutil.copytree(new, old)
    assert tiered("gen", "--store", new, "--messages", 1000, "--topics", 2, "--body-bytes", 100).code == 0
    return new, old, url


@pytest.mark.parametrize("left", [3, 0])
def test_a_broker_that_is_ahead_and_one_that_lost_messages(
    grown: tuple[Path, Path, str], audit: Audit, tmp_path: Path, left: int
) -> None:
    new, _, url = grown
    code, told = audit("--archive", url, "--quick", "--store", new)
    assert (code, told["store"]["messages_behind"]) == (0, 1000)
    shutil.copytree(new, tmp_path / "lost")
    for topic, queue_id, directory in golden.queues(
        new
    ):  # its queues, as they are after all that is archived expired
        if (topic, queue_id) != ("DemoTopic0", 0):
            continue
        (path,) = (tmp_path / "lost" / directory.relative_to(new)).iterdir()
        data = bytearray(path.read_bytes())
        end = max(golden.consume_queue(directory)) + 1 - left
        for offset in range(end):
            data[20 * offset : 20 * offset + 12] = bytes(8) + (0x7FFFFFFF).to_bytes(4, "big")
        path.write_bytes(data)
    code, told = audit("--archive", url, "--quick", "--store", tmp_path / "lost")
    (found,) = told["listed"]
    assert (code, found["what"]) == (1, "the broker deleted messages that are not archived")
    assert (found["topic"], found["queue_id"], found["end_offset"]) == ("DemoTopic0", 0, end)


def test_an_archive_that_is_ahead_of_its_broker(
    grown: tuple[Path, Path, str], audit: Audit, tmp_path: Path
) -> None:
    new, old, _ = grown
    code, told = audit(
        "--archive", archive(new, tmp_path), "--quick", "--store", old, "--topics", "DemoTopic0"
    )
    assert code == 1
    assert {d["what"] for d in told["listed"]} == {"the archive ends behind the broker's queue"}
    assert sum(d["end_offset"] - d["start_offset"] for d in told["listed"]) == 500


def rows_of_table(url: str) -> list[dict[str, Any]]:
    names = ("cluster", "broker", "topic", "queue_id", "queue_offset", "body_crc")
    return [{name: row[name] for name in names} for row in expected(url)]


def write(rows: list[dict[str, Any]], directory: Path) -> Path:
    """Not as the pipeline does: numbers are all 64 bits wide, and nothing is partitioned."""
    directory.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), directory / "part.parquet")
    return directory


def test_a_table(grown: tuple[Path, Path, str], audit: Audit, tmp_path: Path) -> None:
    _, _, url = grown
    rows = rows_of_table(url)
    code, told = audit("--archive", url, "--quick", "--table", write(rows, tmp_path / "same"))
    assert (code, told["table"]["messages_in_table"]) == (0, 2000)
    absent, other, twice = rows[3], rows[700], rows[1500]
    neighbour = next(
        r
        for r in rows
        if {**r, "queue_offset": r["queue_offset"] - 1, "body_crc": 0} == {**absent, "body_crc": 0}
    )
    wrong = [dict(row) for row in rows if row not in (absent, neighbour)] + [twice]
    wrong[wrong.index(other)]["body_crc"] += 1
    wrong.append({**rows[5], "queue_offset": 1_000_000})
    wrong.append({**rows[5], "broker": "broker-b"})  # not the one that is audited
    code, told = audit("--archive", url, "--quick", "--table", write(wrong, tmp_path / "wrong"))
    assert code == 1
    assert {
        (d["what"], d["topic"], d["queue_id"], d["start_offset"], d["end_offset"]) for d in told["listed"]
    } == {
        ("messages are not in the table", *where(absent, 2)),
        ("bodies differ in the table", *where(other)),
        ("messages are in the table twice", *where(twice)),
        ("messages are in the table only", *where({**rows[5], "queue_offset": 1_000_000})),
    }


def test_what_a_table_has_is_summed_itself(
    grown: tuple[Path, Path, str], audit: Audit, tmp_path: Path
) -> None:
    """A body, a tag, a key and a property were changed, their ``body_crc`` was kept; one column has another type."""
    url = grown[2]
    names = ("cluster", "broker", "topic", "queue_id", "queue_offset", "body_crc", "tags", "body", "keys")
    rows = [{n: r[n] for n in names} | {"properties": list(r["properties"].items())} for r in expected(url)]
    changed = {
        100: ("body", b"forged"),
        200: ("tags", "forged"),
        300: ("keys", ["a", "b"]),
        301: ("tags", None),
    }
    changed[400] = ("properties", [("forged", "x"), *rows[400]["properties"]])
    told = {}
    for name, of in (("same", {}), ("forged", changed)):
        made = [{**row, **dict([of[i]] if i in of else [])} for i, row in enumerate(rows)]
        table = pa.Table.from_pylist([{**row, "msg_id": 1} for row in made])
        kind = pa.map_(pa.string(), pa.string())
        at = table.schema.get_field_index("properties")
        table = table.set_column(at, "properties", pa.array([row["properties"] for row in made], kind))
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "part.parquet")
        told[name] = audit("--archive", url, "--topics", "DemoTopic*", "--table", tmp_path / name)
    assert (told["same"][0], told["same"][1]["differences"]) == (0, 0)
    assert told["same"][1]["table"]["columns_compared"] == "body_crc, tags, body, keys, properties"
    assert told["same"][1]["table"]["columns_not_compared"] == "msg_id"
    code, found = told["forged"]
    assert code == 1
    assert {
        (d["what"], d["detail"], d["topic"], d["queue_id"], d["start_offset"]) for d in found["listed"]
    } == {
        (f"{'bodies' if name == 'body' else 'other columns'} differ in the table", name, *where(rows[i])[:3])
        for i, (name, _) in changed.items()
    }


def where(row: dict[str, Any], messages: int = 1) -> tuple[Any, ...]:
    return row["topic"], row["queue_id"], row["queue_offset"], row["queue_offset"] + messages


def test_the_pipelines_table_is_compared_with_the_commit_it_has(
    grown: tuple[Path, Path, str], audit: Audit, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, old, _ = grown
    url, table = archive(old, tmp_path), tmp_path / "table"
    assert main(["pipeline", "--archive", url, "--table", str(table), "--layers", "bronze"]) == 0
    assert archive(new, tmp_path) == url
    code, told = audit("--archive", url, "--quick", "--table", table)
    assert (code, told["records"]) == (0, 3000)
    assert (told["table"]["messages_in_archive"], told["table"]["messages_in_table"]) == (2000, 2000)
    assert told["table"]["commits_behind"] > 0


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (("--from", "2026-01-01"), 2, "an audit looks at whole queues"),
        (("--limit", "none"), 2, "--limit is wrong"),
        (("--quick", "--topics", "Orders*,Oders"), 5, "no archive here has this topic (topic=Oders)"),
        (("--quick", "--topics", "Oders*"), 5, "no topic matches (topics=Oders*)"),
        (("--table", "/nowhere/at/all"), 5, "there is no table"),
        (("--store", "/nowhere/at/all"), 5, "no consume queues are here"),
        (("--dry-run", "--store", "/nowhere/at/all"), 5, "no consume queues are here"),
    ],
)
def test_bad_input(
    grown: tuple[Path, Path, str],
    flags: tuple[str, ...],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", "--archive", grown[2], *flags]) == code
    said = capsys.readouterr().err
    assert says in said
    assert "reading" not in said  # what can be refused is refused first


def test_a_table_without_the_columns(
    grown: tuple[Path, Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write([{"topic": "x", "queue_id": 1}], tmp_path / "table")
    assert main(["audit", "--archive", grown[2], "--quick", "--table", str(table)]) == 2
    said = capsys.readouterr().err
    assert "missing=body_crc, broker, cluster, queue_offset" in said
    assert "reading" not in said


def test_a_dry_run_and_what_people_see(url: str, copied: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--archive", url, "--dry-run", "--from", "2026-01-01"]) == 2
    assert main(["audit", "--archive", url, "--dry-run"]) == 0
    assert "would write" in capsys.readouterr().out
    state, objects = parts(copied)
    item = next(iter(state.objects()))
    (Path(copied.removeprefix("file://")) / objects.key_of(item)).unlink()
    assert main(["audit", "--archive", copied, "--quick"]) == 1
    said = capsys.readouterr()
    assert "DIFFERENT" in said.out
    assert objects.key_of(item) in said.out
    assert "tiered verify --deep" in said.err
