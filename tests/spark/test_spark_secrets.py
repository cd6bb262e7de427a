"""A real broker's messages on the real S3 server, read by a standalone cluster: every row, jobs, and no secret anywhere.

Driver and workers have their credentials from the standard chain, as variables and as a file; nothing else of them is told.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.kit.broker import Broker
from tests.kit.daemonproc import Daemon
from tests.kit.pipeline import files_of
from tests.kit.process import PATIENCE
from tests.kit.pysparks import home, quick_jvm
from tests.kit.realdaemon import TIERED, Truth
from tests.kit.s3server import REGION, SECRET, S3Server
from tests.kit.sparkcluster import ROOT, Cluster, Driver, cluster, table_of
from tests.kit.sparkscene import by_place, expected, rows_of, scan
from tiered.errors import Invalid
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.options import parse_options
from tiered_spark.stream import MessageStreamReader

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.broker, pytest.mark.s3server]

TOPIC = "Kinds"
EVENTS = "spark.eventLog."


@dataclass
class World:
    """An archive on the S3 server and a cluster. ``directory``: all that Spark writes lies below it."""

    directory: Path
    url: str
    truth: Truth
    workers: Cluster
    environment: dict[str, str]

    def driver(self, name: str, *, alone: bool = False, **task: Any) -> Driver:
        """A driver that keeps every log it can; ``alone``: without the cluster, where that is not the point."""
        directory = self.directory / name
        (directory / "events").mkdir(parents=True)
        conf = {
            f"{EVENTS}enabled": "true", f"{EVENTS}dir": f"file://{directory / 'events'}", f"{EVENTS}compress": "false",
            "spark.eventLog.logBlockUpdates.enabled": "true", "spark.sql.debug.maxToStringFields": "1000",
            "spark.log.level": "INFO",
        }  # fmt: skip
        return Driver(
            directory,
            "local[1]" if alone else self.workers.url,
            environment=self.environment,
            archive=self.url,
            **{"conf": conf, **task},
        )

    def job(self, name: str, *words: object, submit: bool) -> tuple[int, dict[str, Any]]:
        """A job on the cluster, by spark-submit or by ``tiered spark``, as a process: (exit code, its summary, which is all of
        its stdout)."""
        directory = self.directory / f"job-{name}"
        (directory / "events").mkdir(parents=True)
        flags: list[object] = ["--archive", self.url, "--json", *words]
        told = {
            f"{EVENTS}enabled": "true", f"{EVENTS}dir": f"file://{directory / 'events'}", f"{EVENTS}compress": "false",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
            "spark.local.dir": str(directory / "local"), "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": quick_jvm(), "spark.executor.extraJavaOptions": quick_jvm(),
        }  # fmt: skip
        if submit:
            command = [home() / "bin" / "spark-submit", "--master", self.workers.url]
            command += [part for pair in told.items() for part in ("--conf", "=".join(pair))]
            command += [ROOT / "spark" / "jobs" / "submit.py", name, *flags]
        else:
            command = [*TIERED, "spark", name, "--master", self.workers.url, *flags]
            command += [part for pair in told.items() for part in ("--conf", "=".join(pair))]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **self.environment}
        done = subprocess.run(
            [*map(str, command)], capture_output=True, env=environment, timeout=120 * PATIENCE, cwd=directory
        )
        (directory / "stdout").write_bytes(done.stdout)
        (directory / "stderr").write_bytes(done.stderr)
        assert done.stdout, done.stderr.decode()[-5000:]
        return done.returncode, json.loads(done.stdout)

    def leaks(self) -> list[str]:
        """Files below the directory that hold the secret, in the forms in which bytes are written."""
        forms = [
            SECRET.encode(), SECRET.encode("utf-16-le"), SECRET.encode("utf-16-be"),
            *(base64.b64encode(b"x" * shift + SECRET.encode())[4:12] for shift in range(3)),
        ]  # fmt: skip
        return [
            str(path.relative_to(self.directory)) for path in files_of(self.directory)
            if any(form in path.read_bytes() for form in forms)
        ]  # fmt: skip


@pytest.fixture(scope="module")
def world(broker: Broker, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    work, directory = tmp_path_factory.mktemp("s3-archive"), tmp_path_factory.mktemp("s3-spark")
    url = s3_server.url(s3_server.bucket(), "archive")
    broker.create_topic(TOPIC, queues=4)
    client, common = broker.client(), {"topic": TOPIC, "tags": "blau,süß,C", "unicode": 1}
    truth = Truth(broker, url, s3_server.store())
    started = [
        client.start("produce", n=2000, min=0, max=3000, **common),
        client.start("produce", n=30, first=400_000, min=2000, max=9000, compress_over=500, **common),
    ]
    truth.sent(*(running.wait() for running in started))
    daemon = Daemon(
        work,
        broker.store_dir,
        url,
        environment=s3_server.environment(),
        **{"dispatch.group_commit_bytes": 1 << 18},
    )
    with daemon.running():
        daemon.wait_archived(truth.look())
        assert daemon.stop() == 0, daemon.output()
    credentials = work / "credentials"
    credentials.write_text(f"[default]\naws_access_key_id = test-access\naws_secret_access_key = {SECRET}\n")
    with cluster(directory / "cluster", environment=s3_server.environment()) as workers:
        file = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_DEFAULT_REGION": REGION}
        yield World(directory, url, truth, workers, file)


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch, s3_server: S3Server) -> None:
    """The credentials of this process."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def read(world: World) -> Driver:
    """A driver that has scanned the archive, and then streamed it in the same session."""
    options = {"maxMessagesPerTrigger": "700"}
    stream = {
        "directory": str(world.directory / "stream"),
        "archive": world.url,
        "stream": "now",
        "options": options,
    }
    driver = world.driver(
        "scan", options={"partitionBytes": str(1 << 20), "decodeBody": "false"}, then=stream
    )
    assert driver.run() == 0, driver.output()
    return driver


@pytest.mark.usefixtures("chain")
def test_every_row_and_column_and_no_secret(world: World, read: Driver) -> None:
    driver = read
    rows, wanted = by_place(rows_of(table_of(driver.rows))), by_place(expected(world.url))
    assert rows.keys() == wanted.keys()
    assert len(rows) == 2030
    for place, row in wanted.items():
        assert rows[place] == row, place
    world.truth.prove(deep=False)
    assert driver.said("rows") == [2030]
    assert "rocketmq_tiered" in driver.said("plan")[0] + driver.said("logical")[0]
    assert list((driver.directory / "events").rglob("events_*")) or list(
        (driver.directory / "events").iterdir()
    )
    assert list(world.workers.work.glob("*/app-*/*/stderr"))
    assert world.leaks() == []


@pytest.mark.usefixtures("chain")
def test_a_stream_with_decoded_bodies_and_no_secret(world: World, read: Driver) -> None:
    directory = world.directory / "stream"
    rows = by_place(rows_of(table_of(directory / "rows")))
    sent = {
        (line["topic"], line["queue_id"], line["queue_offset"]): line for line in world.truth.acknowledged
    }
    assert rows.keys() == sent.keys()
    for place, line in sent.items():
        assert hashlib.sha256(rows[place]["body"]).hexdigest() == line["body_sha256"], place
        assert rows[place]["unique_key"] == line["unique_key"]
    assert any(row["sys_flag"] & 1 for row in rows.values())
    assert sum(read.said("progress")[0]) == 2030
    assert list((directory / "checkpoint" / "offsets").iterdir())
    assert world.leaks() == []


DECLARATIONS = """
[topics."Kinds"]
format = "text"
"""


def parquet(directory: Path) -> list[dict[str, Any]]:
    """Rows of all files below a directory, without the columns that its folders' names tell."""
    files = [path for path in directory.rglob("*.parquet") if "_checkpoint" not in path.parts]
    return [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]


def test_the_pipeline_and_an_audit_of_its_table_and_no_secret(world: World) -> None:
    """The archive is on S3, the table in a directory that all share. Both jobs against what the broker acknowledged."""
    table, declarations = world.directory / "table", world.directory / "declarations.toml"
    declarations.write_text(DECLARATIONS)
    flags = ("--table", table, "--topics", TOPIC)
    code, made = world.job("pipeline", *flags, "--declarations", declarations, submit=True)
    assert code == 0
    sent = {line["unique_key"]: line for line in world.truth.acknowledged}
    assert made["bronze"]["rows"] == len(sent) == 2030
    bronze = {row["unique_key"]: row for row in parquet(table / "bronze")}
    silver = {row["unique_key"]: row for row in parquet(table / "silver")}
    dead = {row["unique_key"]: row for row in parquet(table / "dead_letter")}
    for key, line in sent.items():
        place = (bronze[key]["queue_id"], bronze[key]["queue_offset"])
        assert place == (line["queue_id"], line["queue_offset"])
        body = silver[key]["value"].encode() if key in silver else dead[key]["body"]
        for found in (bronze[key]["body"], body):
            assert hashlib.sha256(found).hexdigest() == line["body_sha256"]
    assert bronze.keys() == sent.keys() == silver.keys() | dead.keys()
    assert (made["silver"]["Kinds"]["rows"], made["silver"]["Kinds"]["dead_letters"]) == (
        len(silver),
        len(dead),
    )
    assert len(silver) + len(dead) == len(sent)
    hours: Counter[str] = Counter()
    for row in parquet(table / "gold"):
        hours[row["tag"]] += row["messages"]
    assert hours == Counter(line["tags"] for line in sent.values())
    store = world.truth.broker.store_dir
    code, told = world.job("audit", *flags, "--store", store, submit=False)
    assert (code, told["verdict"], told["listed"]) == (0, "sound", [])
    assert told["records"] == len(sent)
    figures = ("messages_in_archive", "messages_in_table", "commits_behind")
    assert [told["table"][name] for name in figures] == [2030, 2030, 0]
    queues = len({line["queue_id"] for line in sent.values()})
    assert (told["store"]["queues_compared"], told["store"]["messages_behind"]) == (queues, 0)
    assert len(list(world.directory.glob("job-*/events/*"))) == 2
    assert world.leaks() == []


def test_a_failure_and_no_secret(world: World) -> None:
    """A driver without credentials is told so; one with wrong options too. Neither repeats a secret."""
    nobody = world.driver("nobody", alone=True, options={"columns": "topic"})
    nobody._environment["AWS_SHARED_CREDENTIALS_FILE"] = str(world.directory / "nothing")
    nobody._environment["AWS_EC2_METADATA_DISABLED"] = "true"
    assert nobody.run() == 1
    assert "credentials" in nobody.said("error")[0]
    assert world.leaks() == []


def test_the_search_finds_a_secret(world: World) -> None:
    """In what a driver prints, in an event log and in a file of bytes; otherwise the tests above prove nothing."""
    careless = world.driver("careless", alone=True, say=f"key {SECRET}", idle=True)
    careless._task["conf"]["spark.app.name"] = f"app {SECRET}"
    try:
        assert careless.run() == 0, careless.output()
        encoded = careless.directory / "encoded"
        encoded.write_bytes(base64.b64encode(b"ab" + SECRET.encode() + b"cd"))
        found = world.leaks()
        assert {"careless/driver.log", "careless/encoded"} <= set(found)
        assert [name for name in found if name.startswith("careless/events/")]
    finally:
        for path in files_of(careless.directory):
            path.unlink()
        for path in world.workers.directory.rglob("*"):
            if path.is_file() and path.suffix != ".log" and SECRET.encode() in path.read_bytes():
                path.unlink()


@pytest.mark.usefixtures("chain")
def test_what_goes_to_executors_holds_no_secret(world: World) -> None:
    options = parse_options({"archive": world.url})
    reader = MessageReader(options, message_schema())
    plan = reader.partitions()
    assert [
        row for part in plan for batch in reader.read(part) for row in batch.to_pylist()
    ]  # its store is open
    stream = MessageStreamReader(options, message_schema())
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    sent = [
        *map(pickle.dumps, plan), pickle.dumps(stream), *map(pickle.dumps, stream.partitions(start, end)),
        repr((plan, options, start, end)).encode(),
    ]  # fmt: skip
    assert len(sent) > 3
    assert not [data for data in sent if SECRET.encode() in data]
    assert any(world.url.encode() in data for data in sent)


@pytest.mark.parametrize(
    "options",
    [
        {"archive": "s3://AKIAKEY:hush-hush@bucket/x"},
        {"archive": "s3://bucket/x?secret_key=hush-hush"},
        {"archive": "s3://bucket/x?aws_secret_access_key=hush-hush&endpoint=http://127.0.0.1:9"},
        {"archive": "s3://bucket/x?endpoint=http://me:hush-hush@127.0.0.1:9"},
        {"archive": "file:///tmp/x,s3://AKIAKEY:hush-hush@bucket"},
        {"archive": "AKIAKEY:hush-hush@bucket"},
        {"archive": "s3://bucket/x#hush-hush"},
        {"archive": "file:///tmp/x", "secretKey": "hush-hush"},
        {"archive": "file:///tmp/x", "fs.s3a.secret.key": "hush-hush"},
        {"archive": "file:///tmp/x", "path": "s3://AKIAKEY:hush-hush@bucket"},
    ],
)
def test_a_secret_among_the_options_is_refused_and_not_repeated(
    options: dict[str, str], tmp_path: Path
) -> None:
    made = {name: value.replace("/tmp/x", str(tmp_path)) for name, value in options.items()}
    with pytest.raises(Exception) as caught:
        scan(made)
    assert "hush-hush" not in str(caught.value) + repr(caught.value)
    if "," not in options["archive"]:
        assert isinstance(caught.value, Invalid)
