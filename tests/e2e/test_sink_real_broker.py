"""The destination *rocketmq* with a real broker: the contract, and that what comes back from there is known."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import TIERED, Daemon
from tests.kit.fakecluster import FakeCluster
from tests.kit.sinkscene import PLACE
from tiered.broker.client import Dial
from tiered.clock import SystemClock
from tiered.codec.record.frame import scan
from tiered.codec.record.message import Message, decode_message
from tiered.sink.base import Sink
from tiered.sink.comparison.base import ReadBack
from tiered.sink.comparison.found import COUNTS
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import TestedSink
from tiered.sink.contract.samples import Received, batch_of, message_of
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder
from tiered.sink.rocketmq.cluster import DestinationCluster
from tiered.sink.rocketmq.kind import BrokerKind
from tiered.sink.rocketmq.sink import BrokerSending, BrokerSink

pytestmark = pytest.mark.broker
CARRIED = ("TIERED_MSG_ID", "TIERED_QUEUE", "TIERED_OFFSET", "TIERED_ORIGINS", "TIERED_SINK")
_NUMBERS = itertools.count()
BROKERS_OWN = ("WAIT", "__CRC32#", "CLUSTER", "MSG_REGION", "TRACE_ON")


def stored(directory: Path) -> Iterator[Message]:
    """What a broker has in its commitlog, in its order."""
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        frames = scan(data, base=int(path.name), max_record_bytes=16 << 20)
        for start, size in zip(frames.starts.tolist(), frames.sizes.tolist(), strict=True):
            yield decode_message(data[start : start + size])


class TestedRealBroker(TestedSink):
    """Messages of before are not looked at: the checks share one broker. ``name``: the source's, of this check alone."""

    huge = 1_000
    takes_empty_bodies = False
    largest_body = 200 * 1024

    def __init__(self, broker: Broker, name: str = "") -> None:
        self.broker = broker
        self.place = source(name or f"broker-{next(_NUMBERS)}")
        self.before = sum(1 for _ in stored(broker.commitlog_dir))

    def open(self) -> Sink:
        options = {"name_servers": self.broker.name_server.address, "queues": "2"}
        return BrokerKind().open(SinkOrder("orders", "rocketmq", options), self.place)

    def read_back(self) -> ReadBack:
        options = {"name_servers": self.broker.name_server.address}
        return BrokerKind().read_back(SinkOrder("orders", "rocketmq", options), self.place)

    def read(self) -> Iterable[Received]:
        for number, m in enumerate(stored(self.broker.commitlog_dir)):
            if number >= self.before and "TIERED_QUEUE" in m.properties:
                name, _, queue = m.properties["TIERED_QUEUE"].rpartition("/")
                own = {k: v for k, v in m.properties.items() if k not in (*CARRIED, *BROKERS_OWN)}
                assert m.topic == name
                yield Received(name, int(queue), int(m.properties["TIERED_OFFSET"]), m.body, own)


def source(name: str) -> SinkPlace:
    """A broker of another name than the destination's."""
    return replace(PLACE, cluster="Source", broker=name)


class TestRealBrokerSink(SinkContract):
    @pytest.fixture
    def tested(self, broker: Broker) -> TestedRealBroker:
        return TestedRealBroker(broker)


def test_what_the_broker_has_is_not_sent_back_to_its_origin(broker: Broker) -> None:
    """Properties survive in a real broker: a sink of its log knows the origin by them."""
    tested = TestedRealBroker(broker, "broker-s")
    with FakeCluster(cluster="Source", broker="broker-s") as origin:
        sink = tested.open()
        own = message_of("Loop", 0, 0, b"there and back")
        sink.write(batch_of([replace(own, store_host=origin.address)])[0])
        sink.close()
        [there] = [m for m in list(stored(broker.commitlog_dir))[tested.before :] if m.topic == "Loop"]
        dial = Dial()
        cluster = DestinationCluster([origin.address], SystemClock(), dial, 4)
        place = SinkPlace(bytes(16), broker.cluster, broker.name, 1, "back")
        back = BrokerSink(cluster, place, SystemClock(), dial, BrokerSending("g"))
        accepted = back.write(batch_of([there])[0])
        back.close()
        assert (accepted.came_back, origin.sent("Loop")) == (1, [])


def add_sink(archive: str, target: Broker, *settings: str) -> None:
    command = [
        *TIERED, "sink", "add", "copy", "--kind", "rocketmq", "--topic", "Copied", "--archive", archive,
        "--option", f"name_servers={target.name_server.address}", *settings,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def verified(archive: str, *settings: str) -> dict[str, Any]:
    """What ``tiered sink verify`` finds."""
    command = [*TIERED, "sink", "verify", "--sink", "copy", "--archive", archive, "--json", *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def told(broker: Broker, topic: str) -> dict[tuple[str, int], list[Message]]:
    """Messages of a topic by the queue and offset that they had first, in the order of the log."""
    found: dict[tuple[str, int], list[Message]] = {}
    for message in stored(broker.commitlog_dir):
        if message.topic == topic:
            place = message.properties.get("TIERED_QUEUE", f"{message.topic}/{message.queue_id}")
            offset = int(message.properties.get("TIERED_OFFSET", message.queue_offset))
            found.setdefault((place, offset), []).append(message)
    return found


def test_from_one_broker_to_another_through_a_kill_and_nothing_comes_back(
    broker: Broker, rocketmq: str, tmp_path: Path
) -> None:
    """Two clusters that replicate to each other: the second daemon's sink sends nothing back, and says how much it did not."""
    messages, fast = 600, {"sinks.look_ms": 200, "sinks.commit_ms": 200, "sinks.flush_ms": 100}
    broker.create_topic("Copied", 4)
    with (
        NameServer(rocketmq, tmp_path / "namesrv") as names,
        Broker(rocketmq, tmp_path / "there", names, name="broker-b", brokerClusterName="Elsewhere") as there,
    ):
        here = Daemon(tmp_path, broker.store_dir, f"file://{tmp_path}/here", name="here-daemon", **fast)
        elsewhere = {"source.cluster": "Elsewhere", "source.broker": "broker-b"}
        back = Daemon(
            tmp_path, there.store_dir, f"file://{tmp_path}/back", name="back-daemon", **fast, **elsewhere
        )
        try:
            here.start()
            add_sink(here.archive, there)
            back.start()
            add_sink(back.archive, broker, *(f"--set={name}={value}" for name, value in elsewhere.items()))
            load = broker.client().start(
                "produce",
                topic="Copied",
                n=messages,
                rate=150,
                queues=4,
                min=100,
                max=100,
                tags="a,b",
                threads=2,
            )
            here.wait_until(
                lambda: (here.metric("tiered_sink_messages", sink="copy") or 0) >= 150, "a part sent"
            )
            here.kill()
            here.start()
            load.wait()
            here.wait_until(lambda: len(told(there, "Copied")) >= messages, "all of it there")
            copies = sum(map(len, told(there, "Copied").values()))
            back.wait_until(
                lambda: (back.metric("tiered_sink_came_back", sink="copy") or 0) >= copies,
                "all of it known again",
            )
            here.wait_until(
                lambda: verified(here.archive)["not_given_yet"] == 0, "all of it counted as given"
            )
            compared = verified(here.archive)
            came_back = verified(
                back.archive, *(f"--set={name}={value}" for name, value in elsewhere.items())
            )
        finally:
            here.kill()
            back.kill()
        source, target = told(broker, "Copied"), told(there, "Copied")
        assert len(source) == messages
        assert all(len(found) == 1 for found in source.values()), "nothing came back"
        assert target.keys() == source.keys(), "nothing is lost, and nothing invented"
        for place, [first] in source.items():
            for copy in target[place]:  # one that comes twice after the kill is known by its place
                assert copy.body == first.body
                assert copy.properties["TAGS"] == first.properties["TAGS"]
                assert copy.properties["UNIQ_KEY"] == first.properties["UNIQ_KEY"]
                assert copy.properties["TIERED_ORIGINS"].endswith(broker.address)
                assert copy.queue_id == first.queue_id
        for queue in range(4):
            order = [offset for name, offset in target if name == f"Copied/{queue}"]
            assert order == sorted(order), "first copies are in the order of their queue"
        found = {name: compared[name] for name in COUNTS if compared[name]}
        assert found.pop("doubled", 0) == copies - messages, "what the kill made come twice"
        assert found == {"same": messages}, "read back from the real broker, bodies and properties and order"
        assert not any(came_back[name] for name in COUNTS), "what is not sent back is not missed"
        assert (compared["not_compared"], came_back["not_compared"]) == ([], [])
