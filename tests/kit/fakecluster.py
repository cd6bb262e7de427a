"""A destination cluster in one process: the fake broker, which is its own name server too."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from tests.kit.fakebroker import FakeBroker, FakeQueue
from tiered.codec.record.message import Message, encode_message
from tiered.codec.remoting.frame import Command
from tiered.sink.contract.feeding import Interrupted

_MOST_PULLED = 32


class FakeCluster(FakeBroker):
    """Topics are those that were made or filled. Requests break, or all do, as told: the connection ends. A pull is answered
    with records of what was sent, and with the properties that brokers add."""

    def __init__(self, *, cluster: str = "Other", broker: str = "broker-o") -> None:
        super().__init__()
        self.names = cluster, broker
        self.made: dict[str, int] = {}
        self.refused_topics: set[str] = set()
        self.left: int | None = None
        self.done = False
        self.here = True
        self.cut_one = Interrupted()

    @contextlib.contextmanager
    def broken(self, request: int, *, done: bool) -> Iterator[Interrupted]:
        self.left, self.done, self.cut_one = request, done, Interrupted()
        yield self.cut_one
        self.left = None

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.here = False
        yield
        self.here = True

    def _answer(self, asked: Command) -> Command | None:
        cut = self.left == 0
        if self.left is not None:
            self.left -= 1
        self.cut_one.happened |= cut
        if not self.here or (cut and not self.done):
            self.cut()
            return None
        answer = super()._answer(asked)
        if cut:
            self.cut()
        return answer

    def _do_17(self, asked: Command) -> Command:
        topic = asked.ext["topic"]
        if topic in self.refused_topics or not topic.isascii():
            return Command(1, remark=f"The specified topic {topic} contains illegal characters")
        self.made[topic] = int(asked.ext["writeQueueNums"])
        for number in range(self.made[topic]):
            self.queues[topic].setdefault(number, FakeQueue())
        return Command(0)

    def _do_105(self, asked: Command) -> Command:
        topic = asked.ext["topic"]
        if topic not in self.made:
            return Command(17, remark="No topic route info")
        _, broker = self.names
        told: dict[str, Any] = {
            "brokerDatas": [{"brokerName": broker, "brokerAddrs": {"0": self.address}}],
            "queueDatas": [{"brokerName": broker, "writeQueueNums": self.made[topic], "perm": 6}],
        }
        return Command(0, body=json.dumps(told).encode())

    def _do_106(self, asked: Command) -> Command:
        cluster, broker = self.names
        table = {broker: {"cluster": cluster, "brokerName": broker, "brokerAddrs": {"0": self.address}}}
        return Command(
            0, body=json.dumps({"brokerAddrTable": table, "clusterAddrTable": {cluster: [broker]}}).encode()
        )

    def _do_11(self, asked: Command) -> Command:
        topic, first = asked.ext["topic"], int(asked.ext["queueOffset"])
        queue = self._queue(asked)
        end = min(queue.maximum, first + min(_MOST_PULLED, int(asked.ext["maxMsgNums"])))
        bounds = {"minOffset": str(queue.minimum), "maxOffset": str(queue.maximum)}
        if first < queue.minimum:
            return Command(21, ext={**bounds, "nextBeginOffset": str(queue.minimum)})
        if first >= end:
            return Command(19, ext={**bounds, "nextBeginOffset": str(first)})
        records = []
        for offset in range(first, end):
            stored = queue.sent[offset]
            properties = {
                "UNIQ_KEY": "the broker's",
                **stored.properties,
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            }
            message = Message(
                topic, int(asked.ext["queueId"]), offset, 1_000 * offset, stored.body, properties,
                sys_flag=int(stored.ext["sysFlag"]), flag=int(stored.ext["flag"]),
            )  # fmt: skip
            records.append(encode_message(message))
        return Command(0, ext={**bounds, "nextBeginOffset": str(end)}, body=b"".join(records))
