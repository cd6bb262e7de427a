"""A stream beside a real broker and its daemon, all of which are killed and started again in the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.kit.broker import Broker
from tests.kit.client import Running
from tests.kit.daemonproc import Daemon, wait_for
from tests.kit.realdaemon import DEFAULTS, Truth
from tests.kit.sparkcluster import Driver
from tests.kit.sparkscene import by_place, expected

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.broker]

TOPIC = "Live"
COLUMNS = "topic,queue_id,queue_offset,store_timestamp,unique_key,body_crc,body_size"


def committed(driver: Driver) -> dict[Path, float]:
    """Files that the sink says are written, and when it first said so."""
    found: dict[Path, float] = {}
    log = driver.rows / "_spark_metadata"
    for path in log.iterdir() if log.is_dir() else ():
        if path.name.split(".")[0].isdigit():
            at = path.stat().st_mtime
            for line in path.read_text().splitlines()[1:]:
                file = Path(json.loads(line)["path"].removeprefix("file://"))
                found[file] = min(at, found.get(file, at))
    return found


def sink(driver: Driver) -> tuple[list[dict[str, Any]], list[float]]:
    """Rows of the table, and for each the seconds from its store time until it could be read there."""
    rows: list[dict[str, Any]] = []
    delays: list[float] = []
    for path, at in committed(driver).items():
        found = pq.read_table(path).to_pylist()
        rows += found
        delays += [at - row["store_timestamp"].timestamp() for row in found]
    return rows, delays


def test_every_message_once_though_all_are_killed(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic(TOPIC, queues=4)
    url = f"file://{tmp_path / 'archive'}"
    truth = Truth(broker, url)
    daemon = Daemon(tmp_path, broker.store_dir, url, **DEFAULTS)
    driver = Driver(tmp_path / "query", "local[2]", archive=url, stream="on", options={"columns": COLUMNS})
    try:
        truth.sent(
            load(broker, 50, first=0).wait()
        )  # an archive must have a commit before a stream of it can begin
        daemon.start()
        daemon.wait_archived(truth.look())
        driver.start()
        wait_for(lambda: len(sink(driver)[0]) == 50, "the first messages in the table")
        running = load(broker, 3000, rate=150, first=1000)
        wait_for(lambda: len(sink(driver)[0]) > 400, "messages of the load in the table")
        before = len(sink(driver)[0])
        for victim in (broker, daemon, driver):
            victim.kill()
        taken = running.taken()
        assert before < taken < 3000, "the load had ended before anything was killed"
        broker.start()
        daemon.start()
        driver.start()
        truth.sent(running.wait())
        wait_for(lambda: len(sink(driver)[0]) >= 3050, "the load in the table", 90)
        last = load(broker, 600, rate=60, first=10_000).wait()
        truth.sent(last)
        total = sum(line["topic"] == TOPIC for line in truth.acknowledged)
        wait_for(lambda: len(sink(driver)[0]) >= total, "every message in the table", 90)
        daemon.wait_archived(truth.look())
        truth.prove(deep=False)
        wanted = by_place(expected(url))
        wait_for(lambda: len(sink(driver)[0]) >= len(wanted), "all that was archived in the table", 30)
        rows, delays = sink(driver)
    finally:
        driver.kill()
        daemon.kill()
    found = by_place(rows)  # no place comes twice
    assert found.keys() == wanted.keys()
    for place, row in found.items():
        made = {**row, "store_timestamp": round(row["store_timestamp"].timestamp() * 1000)}
        assert made == {name: wanted[place][name] for name in COLUMNS.split(",")}, place
    calm = {line["unique_key"] for line in last.lines()}
    waits = sorted(delay for row, delay in zip(rows, delays, strict=True) if row["unique_key"] in calm)
    print(
        f"append to visible, {len(waits)} messages at default settings: median {waits[len(waits) // 2]:.1f} s, "
        f"99 % {waits[len(waits) * 99 // 100]:.1f} s, most {waits[-1]:.1f} s"
    )


def load(broker: Broker, messages: int, **options: object) -> Running:
    """Messages of a client that tries again while the broker is away."""
    return broker.client().start(
        "produce", topic=TOPIC, n=messages, queues=4, min=200, max=1000, tags="a,b", threads=2, retry_seconds=120,
        timeout_ms=3000, **options,
    )  # fmt: skip
