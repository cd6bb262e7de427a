"""POP consumers: the real Java remoting client in POP mode, and the scene in which a POP group is far behind.

``PopClient`` runs ``java/Pop.java``; ``produce`` sends numbered messages without a JVM; ``Behind`` is the scene: some messages
consumed, many more sent and archived, then the broker deletes nearly all of its log.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import cache, classarchive
from tests.kit.broker import Broker
from tests.kit.process import Child, ChildError, Scratch
from tiered.broker.client import Dial, RemotingClient, Request
from tiered.clock import SystemClock


@dataclass(slots=True)
class Popping:
    """A consumer that runs beside the test; what it took is in ``path``, a JSON line for each delivery."""

    child: Child
    path: Path
    scratch: Scratch
    _seen: list[dict[str, Any]] = field(default_factory=list)
    _read: int = 0

    def taken(self) -> list[dict[str, Any]]:
        """Deliveries so far. Asked fifty times a second while a test waits, so only what is new is read."""
        if self.path.exists():
            with open(self.path, "rb") as file:
                file.seek(self._read)
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._seen += map(json.loads, whole.split(b"\n"))
                self._read += len(whole) + 1
        return list(self._seen)

    def wait(self, seconds: float = 180.0) -> list[dict[str, Any]]:
        """Wait for its end; every delivery."""
        try:
            code = self.child.wait(seconds)
        finally:
            self.scratch.remove()
        if code != 0:
            raise ChildError(f"the POP client ended with {code}:\n{self.child.output()}")
        return self.taken()

    def kill(self) -> None:
        """kill -9."""
        self.child.kill()
        self.scratch.remove()


class PopClient:
    """Runs Pop.java against one broker."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker = broker
        self._directory = directory
        self._numbers = itertools.count(1)

    def mode(self, topic: str, group: str) -> None:
        """Tell the broker that the group pops the topic."""
        self.start("mode", topic=topic, group=group).wait(60)

    def start(self, command: str, **options: object) -> Popping:
        """Start a command of Pop.java."""
        self._directory.mkdir(parents=True, exist_ok=True)
        name = f"{command}-{next(self._numbers)}"
        path = self._directory / f"{name}.jsonl"
        scratch = Scratch(self._directory / f"{name}-tmp")
        scratch.make()
        java = ["java", "-Xmx256m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += ["--add-opens=java.base/java.util=ALL-UNNAMED", f"-Duser.home={self._directory}"]
        java += [
            "-Drocketmq.client.logLevel=WARN",
            "-Drocketmq.client.rebalance.waitInterval=1000",
            scratch.java_option,
        ]
        servers = {"namesrv": self._broker.name_server.address, "broker": self._broker.address, "out": path}
        arguments = [f"{key}={value}" for key, value in {**servers, **options}.items()]
        java += classarchive.options(cache.ROCKETMQ_5)
        classes = cache.class_path(cache.ROCKETMQ_5, cache.pop_classes(cache.ROCKETMQ_5))
        command_line = [*java, "-cp", classes, "Pop", command, *arguments]
        return Popping(Child(name, command_line, self._directory / f"{name}.out"), path, scratch)

    def push(self, topic: str, group: str, **options: object) -> list[dict[str, Any]]:
        """Consume until ``n`` messages came or none for ``idle`` seconds; every delivery."""
        return self.start("push", topic=topic, group=group, **options).wait()


def produce(address: str, topic: str, numbers: range, *, queues: int = 4, body_bytes: int = 500) -> None:
    """Send messages ``seq`` = each of ``numbers`` round robin to the queues, tagged A, B, C in turn."""
    client = RemotingClient(address, SystemClock(), Dial(20))
    try:
        for first in range(numbers.start, numbers.stop, 200):
            batch = range(first, min(first + 200, numbers.stop))
            answers = client.ask_all([_send(topic, n, n % queues, body_bytes) for n in batch])
            codes = Counter(answer.code if answer is not None else None for answer in answers)
            assert set(codes) == {0}, codes
    finally:
        client.close()


def body_of(number: int, body_bytes: int) -> str:
    """The body of message ``number``."""
    return (f"message {number} " * (body_bytes // 8))[:body_bytes]


def _send(topic: str, number: int, queue_id: int, body_bytes: int) -> Request:
    properties = {
        "seq": number,
        "TAGS": "ABC"[number % 3],
        "KEYS": f"k{number}",
        "UNIQ_KEY": f"{topic}{number:08d}",
    }
    ext = {
        "producerGroup": "kit", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": queue_id, "sysFlag": 0, "bornTimestamp": int(time.time() * 1000), "flag": number % 7,
        "properties": "".join(f"{k}\x01{v}\x02" for k, v in properties.items()), "reconsumeTimes": 0,
        "unitMode": False, "batch": False,
    }  # fmt: skip
    return Request(10, ext, body_of(number, body_bytes).encode())


@dataclass(slots=True)
class Deliveries:
    """What a group was given, all its clients together."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def add(self, lines: Sequence[dict[str, Any]]) -> None:
        """More of it."""
        self.lines += lines

    @property
    def numbers(self) -> Counter[int]:
        """How often each message came."""
        return Counter(line["seq"] for line in self.lines)

    def missing(self, numbers: range) -> list[int]:
        """Messages that never came."""
        came = self.numbers
        return [n for n in numbers if n not in came]

    @property
    def repeats(self) -> int:
        """Deliveries beyond the first of each message."""
        return sum(count - 1 for count in self.numbers.values())


def make_ordered(address: str, group: str) -> None:
    """Configure a group to get its messages in order, as ``mqadmin updateSubGroup -o true`` does."""
    body = {
        "groupName": group,
        "consumeEnable": True,
        "consumeMessageOrderly": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
    }
    client = RemotingClient(address, SystemClock(), Dial())
    try:
        answer = client.ask(200, {}, json.dumps(body).encode())
        assert answer.code == 0, answer.remark
    finally:
        client.close()


def pop_in_order(address: str, topic: str, group: str, count: int) -> None:
    """Take and acknowledge at least ``count`` messages as the Proxy does for a group that wants order."""
    client = RemotingClient(address, SystemClock(), Dial(20))
    try:
        while count > 0:
            ext = {
                "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000,
                "pollTime": 5_000, "bornTime": int(time.time() * 1000), "initMode": 0, "expType": "TAG", "exp": "*",
                "order": True,
            }  # fmt: skip
            popped = client.ask(200050, ext)
            assert popped.code == 0, popped
            starts = dict(entry.rsplit(" ", 1) for entry in popped.ext["startOffsetInfo"].split(";"))
            common = f"{popped.ext['popTime']} {popped.ext['invisibleTime']} {popped.ext['reviveQid']}"
            for entry in popped.ext["msgOffsetInfo"].split(";"):
                key, offsets = entry.rsplit(" ", 1)
                flag, queue_id = key.split(" ")
                for offset in offsets.split(","):
                    handle = f"{starts[key]} {common} {flag} broker-a {queue_id} {offset}"
                    ack = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "offset": offset}
                    answer = client.ask(200051, {**ack, "extraInfo": handle})
                    assert answer.code == 0, answer
                    count -= 1
    finally:
        client.close()
