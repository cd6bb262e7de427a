"""The destination *rocketmq* with a real broker: the contract, and that what comes back from there is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.broker import Broker
from tests.kit.fakecluster import FakeCluster
from tests.kit.sinkscene import PLACE
from tiered.broker.client import Dial
from tiered.clock import SystemClock
from tiered.codec.record.frame import scan
from tiered.codec.record.message import Message, decode_message
from tiered.sink.base import Sink
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import TestedSink
from tiered.sink.contract.samples import Received, batch_of, message_of
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder
from tiered.sink.rocketmq.cluster import DestinationCluster
from tiered.sink.rocketmq.kind import BrokerKind
from tiered.sink.rocketmq.sink import BrokerSending, BrokerSink

pytestmark = pytest.mark.broker
CARRIED = ("TIERED_MSG_ID", "TIERED_QUEUE", "TIERED_OFFSET", "TIERED_ORIGINS")
BROKERS_OWN = ("WAIT", "__CRC32#", "CLUSTER", "MSG_REGION", "TRACE_ON")


def stored(directory: Path) -> Iterator[Message]:
    """What a broker has in its commitlog, in its order."""
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        frames = scan(data, base=int(path.name), max_record_bytes=16 << 20)
        for start, size in zip(frames.starts.tolist(), frames.sizes.tolist(), strict=True):
            yield decode_message(data[start : start + size])


class TestedRealBroker(TestedSink):
    """Messages of before are not looked at: the checks share one broker."""

    huge = 1_000
    takes_empty_bodies = False
    largest_body = 200 * 1024

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.before = sum(1 for _ in stored(broker.commitlog_dir))

    def open(self) -> Sink:
        options = {"name_servers": self.broker.name_server.address, "queues": "2"}
        return BrokerKind().open(SinkOrder("orders", "rocketmq", options), source())

    def read(self) -> Iterable[Received]:
        for number, m in enumerate(stored(self.broker.commitlog_dir)):
            if number >= self.before and "TIERED_QUEUE" in m.properties:
                name, _, queue = m.properties["TIERED_QUEUE"].rpartition("/")
                own = {k: v for k, v in m.properties.items() if k not in (*CARRIED, *BROKERS_OWN)}
                assert m.topic == name
                yield Received(name, int(queue), int(m.properties["TIERED_OFFSET"]), m.body, own)


def source() -> SinkPlace:
    """A broker of another name than the destination's."""
    return replace(PLACE, cluster="Source", broker="broker-s")


class TestRealBrokerSink(SinkContract):
    @pytest.fixture
    def tested(self, broker: Broker) -> TestedRealBroker:
        return TestedRealBroker(broker)


def test_what_the_broker_has_is_not_sent_back_to_its_origin(broker: Broker) -> None:
    """Properties survive in a real broker: a sink of its log knows the origin by them."""
    tested = TestedRealBroker(broker)
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
        back.write(batch_of([there])[0])
        back.close()
        assert (back.came_back, origin.sent("Loop")) == (1, [])
