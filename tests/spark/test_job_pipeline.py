"""The job ``pipeline`` in a real session: each layer against what was archived, over runs, growth and crashes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.daemonproc import wait_for
from tests.kit.pysparks import quick_jvm, session
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive, by_place, expected, rows_of
from tiered.clock import ManualClock, SystemClock
from tiered.codec.record.message import Message
from tiered.errors import Invalid, Refused, Unavailable
from tiered.source.generator.store import GeneratorOptions, StoreGenerator
from tiered_jobs.main import main
from tiered_jobs.pipeline import silver
from tiered_jobs.pipeline.claim import BEAT_SECONDS, DEAD_SECONDS, TableClaim
from tiered_jobs.pipeline.declarations import read_declarations
from tiered_jobs.pipeline.formats import FORMATS, NO_PARTITION, bronze_schema
from tiered_jobs.pipeline.table import Files, Table
from tiered_spark import register

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HOUR = 3_600_000
START = 1_760_000_400_000  # 2025-10-09 09:00 UTC
DECLARATIONS = """
[topics."orders-eu"]
format = "json"
table = "eu"
schema = "id long not null"

[topics."orders*"]
format = "json"
schema = "id long not null, amount double"
duplicates_within = "30m"

[topics.audit]
format = "text"
"""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        register(made)
        yield made


class Scene:
    """A store that a test writes message by message, its archive, and a table of it."""

    def __init__(self, spark: SparkSession, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.spark, self.directory, self.capsys = spark, directory, capsys
        self.store, self.table = directory / "store", directory / "table"
        self.url = f"file://{directory / 'archive'}"
        self.declarations = directory / "declarations.toml"
        self.declarations.write_text(DECLARATIONS)

    def send(self, *messages: tuple[str, bytes, int, str | None], retries: int = 0) -> None:
        """Topic, body, minutes after ``START`` at which it is stored, unique key; archived."""
        with StoreGenerator(GeneratorOptions(self.store, file_bytes=1 << 20), SystemClock()) as generator:
            for number, (topic, body, minute, key) in enumerate(messages):
                at = START + minute * 60_000
                properties = {"TAGS": f"T{number % 2}"} | ({"UNIQ_KEY": key} if key else {})
                generator.append_message(
                    Message(topic, number % 2, 0, 0, body, properties, store_timestamp=at,
                            born_timestamp=at - number, reconsume_times=retries)
                )  # fmt: skip
        archive(self.store, self.directory)

    def generate(self, messages: int, commit_bytes: int = 1 << 20) -> None:
        """More of the generator's own messages; archived in several commits."""
        done = tiered(
            "gen", "--store", self.store, "--messages", messages, "--topics", 3, "--body-bytes", 300
        )
        assert done.code == 0, done.err
        sizes = {
            "group_commit_bytes": commit_bytes,
            "block_bytes": min(commit_bytes, 1 << 18),
            "inline_bytes": 0,
        }
        settings = {f"dispatch__{name}": value for name, value in sizes.items()}
        archive(self.store, self.directory, **settings)

    def words(self, *flags: object) -> list[str]:
        return ["pipeline", "--archive", self.url, "--table", str(self.table), "--json", *map(str, flags)]

    def run(self, *flags: object) -> dict[str, Any]:
        """A run that ends well, and its summary."""
        self.capsys.readouterr()
        code = main(self.words(*flags))
        said = self.capsys.readouterr()
        assert code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)
        return found

    def refused(self, *flags: object) -> dict[str, Any]:
        """A run that does not; what it says."""
        self.capsys.readouterr()
        code = main(self.words(*flags))
        said = self.capsys.readouterr()
        error: dict[str, Any] = json.loads(said.err.splitlines()[-1])["error"]
        assert code == error["exit_code"] != 0
        assert said.out == ""
        return error

    def bronze(self) -> list[dict[str, Any]]:
        frame = self.spark.read.schema(bronze_schema()).parquet(str(self.table / "bronze"))
        return rows_of(frame.drop("store_date").toArrow())

    def rows(self, *layer: str) -> list[dict[str, Any]]:
        return rows_of(self.spark.read.parquet(str(self.table.joinpath(*layer))).toArrow())

    def bronze_is_exact(self) -> None:
        """Every message once, in every column."""
        found, wanted = by_place(self.bronze()), by_place(expected(self.url))
        assert found == wanted


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scene:
    return Scene(spark, tmp_path, capsys)


def order(number: int) -> bytes:
    return json.dumps({"id": number, "amount": number / 4}).encode()


def test_bronze_and_gold_over_runs_and_growth(scene: Scene) -> None:
    scene.generate(3000)
    first = scene.run()
    assert first["bronze"]["rows"] == 3000
    assert "silver" not in first
    ((place, (begin, end)),) = first["bronze"]["commits"].items()
    assert place.startswith(f"{scene.url} DefaultCluster/broker-a")
    assert begin == 0 < end
    scene.bronze_is_exact()
    assert first["bronze"]["bytes"] == sum(len(row["body"]) for row in scene.bronze())
    gold = sorted(map(str, scene.rows("gold", "hourly")))
    files = sorted(scene.table.rglob("*.parquet"))

    again = scene.run()
    assert again["bronze"] == {"rows": 0, "bytes": 0, "commits": {}}
    assert again["gold"] == {"rows": 0, "topic_days": 0}
    assert sorted(scene.table.rglob("*.parquet")) == files

    scene.generate(2000)
    more = scene.run("--batch-bytes", "200KiB")
    assert more["bronze"]["rows"] == 2000
    assert next(iter(more["bronze"]["commits"].values()))[0] == end + 1
    scene.bronze_is_exact()
    assert sorted(map(str, scene.rows("gold", "hourly"))) != gold
    gold_is_exact(scene)


HURTING = (
    "a.b.c", "100%done", "%RETRY%g", "%2F", "tick`s", "it's \"so\"", "x" * 127, "語" * 42, "a=b", "42", "a/b c", "null",
    "select", "Twin", "twin", NO_PARTITION,
)  # fmt: skip
"""Names that are something else in a path, a pattern, SQL, or a directory of a partition."""


def test_topics_whose_names_hurt(scene: Scene) -> None:
    """Each has its own rows, byte for byte, in bronze and in what is made of it."""
    scene.send(*((name, b"%d" % n, n, None) for n, name in enumerate(HURTING * 3)))
    done = scene.run("--include-system-topics")
    assert done["bronze"]["rows"] == 3 * len(HURTING)
    bronze = FORMATS["parquet"].read(scene.spark, str(scene.table / "bronze")).drop("store_date")
    assert by_place(rows_of(bronze.toArrow())) == by_place(expected(scene.url))
    counted = Counter[str]()
    for row in scene.rows("gold", "hourly"):
        counted[row["topic"] or NO_PARTITION] += row[
            "messages"
        ]  # what a plain reader makes of that directory
    assert counted == dict.fromkeys(HURTING, 3)


def gold_is_exact(scene: Scene) -> None:
    """Counted again in plain Python; percentiles as the smallest value that covers the share."""
    hours: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in expected(scene.url):
        hours[row["topic"], row["tags"], row["store_timestamp"] // HOUR * HOUR].append(row)
    found = {}
    for row in scene.rows("gold", "hourly"):
        place = (row["topic"], row["tag"], round(row["hour"].timestamp() * 1000))
        assert place not in found
        found[place] = row
    assert found.keys() == hours.keys()
    for place, rows in hours.items():
        delays = sorted(row["store_timestamp"] - row["born_timestamp"] for row in rows)
        one = found[place]
        assert one["messages"] == len(rows)
        assert one["bytes"] == sum(row["body_size"] for row in rows)
        assert one["delay_max_ms"] == delays[-1]
        assert one["delay_p50_ms"] == delays[-(-len(delays) * 50 // 100) - 1]
        assert one["delay_p99_ms"] == delays[-(-len(delays) * 99 // 100) - 1]
        assert one["retries"] == sum(row["reconsume_times"] > 0 for row in rows)


def test_silver_decodes_and_names_what_is_wrong(scene: Scene) -> None:
    bad = {
        b"{oops": "not JSON",
        b"[1]": "not a JSON object",
        b'{"id": 1, "amount": "much"}': "does not fit the schema: amount",
        b'{"amount": 1}': "the field id is missing",
        b"\xff\xfe": "not UTF-8",
    }
    scene.send(*((f"orders-{i % 3}", order(i), i, f"K{i}") for i in range(20)))
    scene.send(*(("orders-0", body, 5, None) for body in bad), retries=2)
    scene.send(
        ("orders-eu", b'{"id": 7}', 6, "E"), ("audit", "grüß".encode(), 6, None), ("audit", b"\xff", 6, None)
    )
    scene.send(("other", b"not declared", 6, None))
    summary = scene.run("--declarations", scene.declarations)
    none = {"late": 0, "duplicates": 0}
    sizes = sum(len(order(i)) for i in range(20))
    assert summary["silver"] == {
        "eu": {"rows": 1, "bytes": 9, "dead_letters": 0, **none},
        "orders": {"rows": 20, "bytes": sizes, "dead_letters": len(bad), **none},
        "audit": {"rows": 1, "bytes": 6, "dead_letters": 1, **none},
    }
    found = by_place(scene.rows("silver", "orders"))
    sent = {place: row for place, row in by_place(expected(scene.url)).items() if place in found}
    assert len(sent) == 20
    for place, row in found.items():
        assert row["value"] == json.loads(sent[place]["body"])
        assert all(
            row[name] == sent[place][name] for name in ("store_timestamp", "tags", "keys", "unique_key")
        )
    assert [row["value"] for row in scene.rows("silver", "eu")] == [{"id": 7}]
    assert [row["value"] for row in scene.rows("silver", "audit")] == ["grüß"]
    dead = by_place(scene.rows("dead_letter"))
    assert Counter((row["body"], row["reason"]) for row in dead.values()) == Counter(
        [*bad.items(), (b"\xff", "not UTF-8")]
    )
    messages = by_place(expected(scene.url))
    assert all(row["body"] == messages[place]["body"] for place, row in dead.items())
    gold_is_exact(scene)

    again = scene.run("--declarations", scene.declarations)
    assert all(set(one.values()) == {0} for one in again["silver"].values())
    assert by_place(scene.rows("silver", "orders")) == found


def test_duplicates_and_late_messages(scene: Scene) -> None:
    """Keys are known for 30 minutes; what is older than the watermark is kept and marked."""
    flags = ("--declarations", scene.declarations, "--layers", "bronze,silver")
    scene.send(("orders", order(1), 0, "A"), ("orders", order(1), 1, "A"), ("orders", order(2), 2, "B"))
    scene.send(("orders", order(3), 2, None), ("orders", order(3), 2, None), ("orders-x", order(1), 2, "A"))
    assert scene.run(*flags)["silver"]["orders"]["duplicates"] == 1
    scene.send(
        ("orders", order(2), 20, "B"), ("orders", order(4), 120, "C")
    )  # again, and the watermark moves on
    second = scene.run(*flags)["silver"]["orders"]
    assert (second["rows"], second["duplicates"], second["late"]) == (1, 1, 0)
    scene.send(("orders", order(5), 3, "D"), ("orders", order(4), 121, "C"))  # D comes late
    third = scene.run(*flags)["silver"]["orders"]
    assert (third["rows"], third["duplicates"], third["late"]) == (1, 1, 1)
    rows = scene.rows("silver", "orders")
    assert Counter((row["unique_key"], row["topic"]) for row in rows) == Counter(
        {("A", "orders"): 1, ("A", "orders-x"): 1, ("B", "orders"): 1, ("C", "orders"): 1, ("D", "orders"): 1,
         (None, "orders"): 2}
    )  # fmt: skip
    assert {row["unique_key"] for row in rows if row["late"]} == {"D"}


def test_a_driver_that_is_killed_and_one_beside_it(scene: Scene) -> None:
    """While it is at work, another run is refused; after its death the next one goes on at once."""
    scene.generate(6000, commit_bytes=1 << 16)
    words = scene.words("--layers", "bronze", "--batch-bytes", "64KiB", "--master", "local[1]")
    code = "import sys; from tiered_jobs.main import main; sys.exit(main(sys.argv[1:]))"
    driver = subprocess.Popen(
        [sys.executable, "-c", code, *words, "--conf", "spark.driver.memory=600m"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, "SPARK_SUBMIT_OPTS": quick_jvm()},
    )  # fmt: skip
    log = scene.table / "bronze" / "_spark_metadata"
    try:
        wait_for(lambda: (log / "1").exists() or driver.poll() is not None, "a second batch", 180)
        assert driver.poll() is None
        beside = scene.refused("--layers", "bronze")
        assert (beside["kind"], beside["fields"]["pid"]) == ("Refused", str(driver.pid))
        assert "at work on this table" in beside["message"]
        assert driver.poll() is None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # driver and JVM: a session of its own
        driver.wait()
    assert 0 < len(scene.bronze()) < 6000
    claim = scene.table / "_running.json"
    assert claim.exists()
    rest = scene.run("--layers", "bronze")
    assert 0 < rest["bronze"]["rows"] < 6000
    scene.bronze_is_exact()
    assert not claim.exists()


class Others(ManualClock):
    """What other runs do to the claim on a table, said by how long a run waits."""

    def __init__(self) -> None:
        super().__init__()
        self.deeds: list[Callable[[], object]] = []

    def wait(self, seconds: float, event: threading.Event | None = None) -> bool:
        for deed in self.deeds:
            deed()
        return super().wait(seconds, event)


def test_one_claim_on_a_table(spark: SparkSession, tmp_path: Path) -> None:
    files, table, clock = Files(spark), Table(str(tmp_path)), Others()
    path, said = tmp_path / "_running.json", list[str]()

    def claim() -> TableClaim:
        return TableClaim(files, table, clock, said.append)

    def written(beats: int) -> None:
        files.replace(
            str(path), json.dumps({"run": "other", "host": "far", "pid": 1, "beats": beats}).encode()
        )

    written(1)
    began = clock.monotonic()
    with claim() as mine:  # of a machine far away, without a sign of life
        assert clock.monotonic() - began >= DEAD_SECONDS
        assert str(path) in said[0]
        with pytest.raises(Refused, match="at work on this table"), claim():  # of this process
            pass
        before = path.read_bytes()
        mine.beat()
        assert path.read_bytes() == before
        clock.advance(BEAT_SECONDS)
        mine.beat()
        assert path.read_bytes() != before
        written(1)
        clock.advance(BEAT_SECONDS)
        with pytest.raises(Refused, match="taken this table over"):
            mine.beat()
    assert path.exists()  # it is the other's
    began = clock.monotonic()
    clock.deeds.append(lambda: written(2))
    with pytest.raises(Refused, match=r"at work on this table .*host=far"), claim():
        pass
    assert clock.monotonic() - began < 5
    path.unlink()
    with (
        pytest.raises(Refused, match="taken this table over"),
        claim(),
    ):  # both wrote at once, the other one last
        pass
    clock.deeds[:] = []
    path.write_bytes(b"")  # as a machine leaves it that loses its power
    with claim():
        assert path.exists()
    assert not path.exists()


def test_a_crash_between_sink_and_checkpoint(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink has a batch that the checkpoint does not know; silver ends between its two tables."""
    flags = ("--declarations", scene.declarations)
    scene.send(*(("orders", order(i) if i % 2 else b"?", i, f"K{i}") for i in range(10)))
    write = silver.Silver._write

    def torn(*args: Any) -> None:
        write(*args)
        raise Unavailable("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(silver.Silver, "_write", torn)
        assert "the power is gone" in scene.refused(*flags)["message"]
    last = max((scene.table / "bronze/_checkpoint/commits").glob("[0-9]*"))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink()
    scene.send(*(("orders", order(i), i, f"K{i % 12}") for i in range(10, 14)))
    scene.run(*flags)
    scene.bronze_is_exact()
    rows = by_place(scene.rows("silver", "orders"))
    assert sorted(row["value"]["id"] for row in rows.values()) == [
        1,
        3,
        5,
        7,
        9,
        10,
        11,
    ]  # 12 and 13: K0 and K1 again
    assert len(by_place(scene.rows("dead_letter"))) == 5
    gold_is_exact(scene)


def test_what_is_refused(scene: Scene) -> None:
    scene.send(("orders", order(1), 0, "A"))
    assert "--declarations" in scene.refused("--layers", "silver")["hint"]
    assert scene.refused("--layers", "bronze,golden")["fields"]["found"] == "golden"
    assert scene.refused("--layers", "gold")["kind"] == "NotFound"
    assert scene.refused("--as-of-commit", 1)["fields"]["flag"] == "--as-of-commit"
    assert scene.refused("--batch-bytes", "4 apples")["exit_code"] == 2
    assert scene.refused("--format", "csv")["fields"]["found"] == "csv"
    assert [scene.refused("--format", name)["kind"] for name in ("delta", "iceberg")] == [
        "Refused",
        "Refused",
    ]
    for place in ("s3a://bucket/table", "gopher://table"):
        told = scene.refused("--table", place)
        assert (told["kind"], told["fields"]["url"]) == ("Invalid", f"{place}/_running.json")
        assert "spark.jars.packages" in told["hint"]
    assert not scene.table.exists()
    scene.run("--layers", "bronze")
    changed = scene.refused("--layers", "bronze", "--topics", "orders")
    assert (changed["kind"], changed["fields"]["expected"], changed["fields"]["found"]) == (
        "Refused",
        "*",
        "orders",
    )
    flags = ("--layers", "silver", "--declarations", scene.declarations)
    scene.run(*flags)
    scene.declarations.write_text(DECLARATIONS.replace("amount double", "amount long"))
    assert "with another schema" in scene.refused(*flags)["message"]


def test_a_dry_run_writes_nothing(scene: Scene) -> None:
    scene.send(("orders", order(1), 0, "A"))
    told = scene.run("--dry-run", "--declarations", scene.declarations)
    layers = ("bronze", "silver/eu", "silver/orders", "silver/audit", "dead_letter", "gold/hourly")
    assert told["would_write"] == [str(scene.table / layer) for layer in layers]
    assert not scene.table.exists()


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("[topics.a]\nformat = 'jsn'", "format", "did you mean json"),
        ("[topics.a]\nformat = 'json'", "schema", "json needs this key"),
        ("[topics.a]\nformat = 'text'\nshema = 'x'", "shema", "unknown key"),
        (
            "[topics.a]\nformat = 'text'\nduplicates_within = 'long'",
            "duplicates_within",
            "this is not a duration",
        ),
        ("[topics.'*']\nformat = 'text'", "table", "the table's name is not usable"),
        ("[topics.'a*']\nformat = 'text'\n[topics.a]\nformat = 'text'", "table", "fill one table"),
        ("[topic.a]\nformat = 'text'", None, "tables below [topics]"),
        ("[topics", None, "this is not TOML"),
    ],
)
def test_a_wrong_declaration(tmp_path: Path, text: str, key: str | None, says: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(Invalid) as caught:
        read_declarations(str(path))
    assert says in str(caught.value)
    assert caught.value.fields["file"] == str(path)
    assert caught.value.fields.get("key") == key


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("format = 'json'\nschema = 'id lonk'", "key=schema, found=id lonk"),
        ("format = 'avro'\nschema_file = 'gone.avsc'", "key=schema_file, found=gone.avsc"),
        ("format = 'avro'\nschema_file = 'a.avsc'", "spark-avro_2.13"),
        ("format = 'protobuf'\ndescriptor = 'a.desc'\nmessage = 'A'", "spark-protobuf_2.13"),
    ],
)
def test_what_spark_refuses_is_said_before_anything_is_written(
    scene: Scene, declared: str, says: str
) -> None:
    scene.send(("orders", order(1), 0, "A"))
    (scene.directory / "a.avsc").write_text('{"type": "record", "name": "A", "fields": []}')
    (scene.directory / "a.desc").write_bytes(b"")
    scene.declarations.write_text(f"[topics.orders]\n{declared}\n")
    error = scene.refused("--declarations", scene.declarations)
    fields = ", ".join(f"{name}={value}" for name, value in error["fields"].items())
    assert says in f"{fields} {error['hint']}"
    assert error["fields"]["topics"] == "orders"
    assert not scene.table.exists()


def test_the_example_is_right(spark: SparkSession) -> None:
    found = read_declarations("config/pipeline-example.toml")
    assert [one.table for one in found] == ["orders", "audit"]
    assert len(silver.prepare(spark, found)) == 2
