"""Slow consumers behind the gateway over a hole: only what nobody has is missing, not what they had pulled before it.

The hole: messages that the broker deleted before a daemon could archive them. A consumer that takes longer than it pulls holds
all that lies before the hole when it is led over it.
"""

from __future__ import annotations

import shutil
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import cache, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import CALM, Daemon
from tests.kit.gatewayproc import Gateway
from tests.kit.goconsumer import GoConsumer
from tests.kit.pop import produce
from tests.kit.realdaemon import expire, log_end

pytestmark = [pytest.mark.broker, pytest.mark.goclient, pytest.mark.slow]

TOPIC, FILL = "Holed", "Fill"
BEFORE, HOLE, BEHIND = range(300), range(300, 320), range(320, 420)
HANDED_OUT = sorted({*BEFORE, *BEHIND})
RATE = 100
"""Messages a second. Pulls bring 32 each, and a hundred times as many a second."""


@dataclass(frozen=True, slots=True)
class Scene:
    directory: Path
    broker: Broker
    gateway: Gateway


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    work = tmp_path_factory.mktemp("holes")
    with (
        NameServer(cache.ROCKETMQ_5, work / "namesrv") as name_server,
        Broker(cache.ROCKETMQ_5, work / "broker", name_server) as broker,
    ):
        broker.create_topic(TOPIC, 1)
        broker.create_topic(FILL, 1)
        archive = f"file://{work / 'archive'}"
        daemon = Daemon(work, broker.store_dir, archive, **{**CALM, "source.broker": broker.name})
        try:
            produce(broker.address, TOPIC, BEFORE, queues=1)
            daemon.start().wait_archived(log_end(broker))
            daemon.kill()
            produce(broker.address, TOPIC, HOLE, queues=1)
            produce(broker.address, FILL, range(300), queues=1, body_bytes=8000)
            shutil.rmtree(work / "daemon-hold")  # links that would save what the broker deletes
            expire(broker)
            produce(broker.address, TOPIC, BEHIND, queues=1)
            daemon.start().wait_archived(log_end(broker))
            gateway = Gateway(
                work, name_server.address, archive, waits=True, **{"source.broker": broker.name}
            )
            with gateway.running():
                yield Scene(work, broker, gateway)
        finally:
            daemon.kill()


def pulled_slowly(gateway: Gateway) -> list[int]:
    """Offsets that a consumer of a few lines took: it takes one message for each pull, and does by the code of the answer what
    the clients do."""
    held: deque[int] = deque()
    taken: list[int] = []
    offset = 0
    with remoting.Connection(gateway.broker(TOPIC), timeout_seconds=20) as connection:
        while offset < BEHIND.stop or held:
            if offset < BEHIND.stop:
                fields = {
                    "consumerGroup": "plain", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset),
                    "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
                    "subscription": "*", "subVersion": "0", "expressionType": "TAG",
                }  # fmt: skip
                connection.send(remoting.PULL_MESSAGE, fields)
                _, answer = connection.receive()
                assert answer.code in (0, 20, 21), answer
                offset = int(answer.fields["nextBeginOffset"])
                if answer.code == 21:  # what the queue holds is dropped
                    held.clear()
                at = 0
                while at < len(answer.body):
                    held.append(int.from_bytes(answer.body[at + 20 : at + 28], "big"))
                    at += int.from_bytes(answer.body[at : at + 4], "big")
            if held:
                taken.append(held.popleft())
    return taken


def test_only_the_hole_is_missing(scene: Scene) -> None:
    java = scene.broker.client().through(scene.gateway.address)
    options = {"topic": TOPIC, "n": len(HANDED_OUT), "rate": RATE, "idle": 20, "linger": 1}
    push = java.start("push", group="java-push", threads=1, **options)
    orderly = java.start("push", group="java-orderly", mode="orderly", **options)
    go = [
        GoConsumer(
            scene.directory, scene.gateway.address, TOPIC, f"go-{kind}", n=len(HANDED_OUT),
            orderly=kind == "orderly", rate=RATE,
        )
        for kind in ("push", "orderly")
    ]  # fmt: skip
    try:
        assert pulled_slowly(scene.gateway) == HANDED_OUT
        for name, lines in (
            ("Java", push.wait(60).lines()),
            ("Java, orderly", orderly.wait(60).lines()),
            *((f"Go {number}", consumer.lines(60)) for number, consumer in enumerate(go)),
        ):
            came = Counter(line["queue_offset"] for line in lines)
            assert sorted(came) == HANDED_OUT, f"{name}: {len(set(HANDED_OUT) - set(came))} skipped"
            assert max(came.values()) == 1, f"{name}: {came.most_common(3)}"
    finally:
        for consumer in (push, orderly, *go):
            consumer.kill()
    assert (scene.gateway.metric("tiered_cold_hole_messages_total") or 0) >= len(HOLE)
