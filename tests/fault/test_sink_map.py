"""Kill the daemon at every point where messages come to Kafka, start it again: the archive's map has the place of every message
that Kafka has, and none is passed over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.kafkabroker import KafkaBroker, committed, kafka_broker
from tests.kit.oracle import opened
from tiered.archive.state.offsetmap import MapPlace, OffsetMap
from tiered.archive.state.sinkmaps import sink_maps
from tiered.archive.state.sinks import sinks
from tiered.crashpoint import SinkPoint
from tiered.model import MessageQueue

pytestmark = pytest.mark.kafka
SETTINGS = {
    **SMALL_FLUSHES, "sinks.look_ms": 100, "sinks.commit_ms": 100, "sinks.flush_ms": 20, "sinks.flush_bytes": 65_536,
}  # fmt: skip


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def maps(url: str) -> dict[MessageQueue, OffsetMap]:
    view = opened(url).state.view
    (known,) = sinks(view)
    return dict(sink_maps(view, known.sink_id))


def reached(url: str) -> dict[MessageQueue, int]:
    return {queue: known.end for queue, known in maps(url).items()}


@pytest.mark.parametrize("point", SinkPoint)
def test_killed_and_started_again(tmp_path: Path, kafka: KafkaBroker, point: SinkPoint) -> None:
    broker = FaultBroker.started(tmp_path / "store", 300)
    url, prefix = f"file://{tmp_path / 'archive'}", point.name
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **SETTINGS)
    assert daemon.once() == 0
    done = tiered(
        "sink", "add", "copy", "--kind", "kafka", "--archive", url, "--option", f"brokers={kafka.address}", "--option",
        f"topic={prefix}.{{topic}}", "--option", "partitions=2", "--option", "replication=1",
    )  # fmt: skip
    assert done.code == 0, done.err
    daemon.start(crash=point, times=3, ready=False)
    for _ in range(1200):
        if not daemon.alive:
            break
        broker.write(20)
        time.sleep(0.05)
    assert daemon.wait() == CRASHED, f"the daemon never reached {point.name}"
    broker.write(100)
    ends = {
        MessageQueue(*queue): records[-1].queue_offset + 1
        for queue, records in broker.oracle.queues().items()
    }
    with daemon.running():
        end = broker.physical_offset

        def caught_up() -> bool:
            said = daemon.status().get("sinks", {}).get("sinks", [])
            return bool(said) and said[0]["position"] == end and said[0]["phase"] == "live"

        daemon.wait_until(caught_up, "everything is in Kafka")
        daemon.wait_until(
            lambda: reached(url) == ends, "the archive knows it, and all queues are mapped to their ends"
        )
        assert "begins anew" not in daemon.output()
        assert daemon.status()["sinks"]["progress"] is None
        assert daemon.stop() == 0, daemon.output()
    found, places = maps(url), 0
    for topic in [
        name for name in kafka.admin().list_topics(timeout=30).topics if name.startswith(f"{prefix}.")
    ]:
        for read in committed(kafka.address, topic):
            said = {name: value.decode() for name, value in read.headers}
            queue, offset = (
                MessageQueue(said["rocketmq.topic"], int(said["rocketmq.queue"])),
                int(said["rocketmq.offset"]),
            )
            place = found[queue].locate(offset)
            assert place is not None, f"{queue} {offset} is not mapped"
            assert place.low <= read.offset <= place.high, (
                f"{queue} {offset} is at {read.offset}, not {place}"
            )
            places += place == MapPlace(read.offset, read.offset)
    assert places > 100, "the newest are exact"
    broker.close()


def test_an_idempotent_sink_notices_a_topic_that_was_made_anew_while_it_was_away(
    tmp_path: Path, kafka: KafkaBroker
) -> None:
    """Kafka keeps no position of it: what its topics were the archive's map says."""
    broker = FaultBroker.started(tmp_path / "store", 60, topics=("Orders",), queues=2)
    url = f"file://{tmp_path / 'archive'}"
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **SETTINGS)
    assert daemon.once() == 0
    done = tiered(
        "sink", "add", "copy", "--kind", "kafka", "--archive", url, "--option", f"brokers={kafka.address}", "--option",
        "topic=away.{topic}", "--option", "mode=idempotent", "--option", "partitions=2", "--option", "replication=1",
    )  # fmt: skip
    assert done.code == 0, done.err

    def sink() -> dict[str, object]:
        said = daemon.status().get("sinks", {}).get("sinks", [])
        return said[0] if said else {}

    end = broker.physical_offset
    with daemon.running():
        daemon.wait_until(lambda: (sink().get("position"), sink().get("phase")) == (end, "live"), "live")
        daemon.wait_until(lambda: sum(reached(url).values()) == 60, "the archive has all places")
        assert daemon.stop() == 0, daemon.output()
    kafka.delete("away.Orders")
    kafka.create("away.Orders", 2)
    with daemon.running():
        daemon.wait_until(lambda: sink().get("phase") in ("stopped", "live"), "it is opened, or told")
        assert sink()["phase"] == "stopped"
        assert "is another one now" in str(sink()["why"])
        assert daemon.stop() == 0, daemon.output()
    assert committed(kafka.address, "away.Orders") == []
    broker.close()
