"""Slow consumers behind the gateway that are led on: only what nobody has is missing, not what they had pulled before.

They are led over a hole (messages that the broker deleted before a daemon could archive them), over what retention trims while
they read it, back by a reset, and, where they ask beyond the queue's end, to where the broker says. A consumer that takes
longer than it pulls holds a part of the queue by then. And consumers that begin at a time wait while the store refuses.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.client import Running, read_lines
from tests.kit.daemonproc import CALM, Daemon, wait_for
from tests.kit.fakes3 import FakeS3
from tests.kit.gatewayproc import Gateway
from tests.kit.goconsumer import GoConsumer
from tests.kit.pop import produce
from tests.kit.process import HURRIED
from tests.kit.realdaemon import expire, log_end
from tests.kit.s3lies import refused, told_to

pytestmark = [pytest.mark.broker, pytest.mark.goclient, pytest.mark.slow]

TOPIC, TRIMMED, FILL = "Holed", "Trimmed", "Fill"
BEFORE, HOLE, BEHIND = range(300), range(300, 320), range(320, 420)
HANDED_OUT = sorted({*BEFORE, *BEHIND})
GOES, STAYS, NEW = range(1000), range(1000, 1200), range(1200, 1250)
"""Of the other topic: what retention takes, what it leaves, and what the broker still has."""
SEARCH_OFFSET, EARLIEST_TIME, SYSTEM_BUSY = 29, 32, 2
RATE = 100
"""Messages a second. Pulls bring 32 each, and a hundred times as many a second."""


Consumer = Running | GoConsumer
"""One in a process of its own."""


@dataclass(frozen=True, slots=True)
class Scene:
    directory: Path
    broker: Broker
    gateway: Gateway
    daemon: Daemon

    def java(self, gateway: Gateway, **options: object) -> Running:
        """A push consumer made with the Java client, in one thread."""
        client = self.broker.client().through(gateway.address)
        return client.start("push", threads=1, **{"idle": 60, "linger": 1, **options})


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    work = tmp_path_factory.mktemp("holes")
    with (
        NameServer(cache.ROCKETMQ_5, work / "namesrv") as name_server,
        Broker(cache.ROCKETMQ_5, work / "broker", name_server) as broker,
    ):
        for topic in (TOPIC, TRIMMED, FILL):
            broker.create_topic(topic, 1)
        archive = f"file://{work / 'archive'}"
        daemon = Daemon(work, broker.store_dir, archive, **{**CALM, "source.broker": broker.name})
        try:
            produce(broker.address, TOPIC, BEFORE, queues=1)
            produce(broker.address, TRIMMED, GOES, queues=1)
            daemon.start().wait_archived(log_end(broker))
            produce(broker.address, TRIMMED, STAYS, queues=1)
            daemon.wait_archived(log_end(broker))
            daemon.kill()
            produce(broker.address, TOPIC, HOLE, queues=1)
            produce(broker.address, FILL, range(300), queues=1, body_bytes=8000)
            shutil.rmtree(work / "daemon-hold")  # links that would save what the broker deletes
            expire(broker)
            produce(broker.address, TOPIC, BEHIND, queues=1)
            produce(broker.address, TRIMMED, NEW, queues=1)
            daemon.start().wait_archived(log_end(broker))
            gateway = Gateway(
                work, name_server.address, archive, waits=True, **{"source.broker": broker.name}
            )
            with gateway.running():
                yield Scene(work, broker, gateway, daemon)
        finally:
            daemon.kill()


def pull_fields(offset: int) -> dict[str, str]:
    """A pull that does not wait, of all messages."""
    return {
        "consumerGroup": "plain", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip


def pulled_slowly(gateway: Gateway) -> list[int]:
    """Offsets that a consumer of a few lines took: it takes one message for each pull, and does by the code of the answer what
    the clients do."""
    held: deque[int] = deque()
    taken: list[int] = []
    offset = 0
    with remoting.Connection(gateway.broker(TOPIC), timeout_seconds=20) as connection:
        while offset < BEHIND.stop or held:
            if offset < BEHIND.stop:
                connection.send(remoting.PULL_MESSAGE, pull_fields(offset))
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
    options: dict[str, Any] = {"topic": TOPIC, "n": len(HANDED_OUT), "rate": RATE}
    push = scene.java(scene.gateway, group="java-push", **options)
    orderly = scene.java(scene.gateway, group="java-orderly", mode="orderly", **options)
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


def offsets(consumer: Consumer) -> list[int]:
    """What a consumer was handed so far, in that order."""
    return [line["queue_offset"] for line in read_lines(consumer.path)]


def up_to(consumer: Consumer, last: int) -> list[int]:
    """What it was handed, once it ends with ``last``."""
    wait_for(lambda: offsets(consumer)[-1:] == [last], f"message {last}")
    return offsets(consumer)


@pytest.fixture(scope="module")
def reset(scene: Scene) -> Iterator[dict[str, Consumer]]:
    """Consumers that held messages when their groups were reset to the beginning. Go's goes on half a minute later: it sleeps
    for ten seconds, and looks for its queues every twenty."""
    consumers: dict[str, Consumer] = {}
    gateway, rate = scene.gateway, RATE // 2
    try:
        for name in ("Go", "Java"):  # one after the other: none is through before its reset
            group = f"reset-{name}"
            consumers[name] = (
                GoConsumer(scene.directory, gateway.address, TOPIC, group, rate=rate)
                if name == "Go"
                else scene.java(gateway, topic=TOPIC, group=group, rate=rate)
            )
            consumers[name].wait_taken(40)
            fields = {"topic": TOPIC, "group": group, "timestamp": "1000", "isForce": "true"}
            order = remoting.INVOKE_BROKER_TO_RESET_OFFSET
            answer = remoting.request(gateway.broker(TOPIC), order, fields)
            assert answer.code == 0, answer
            assert consumers[name].taken() < len(HANDED_OUT), "it holds none any more"
        yield consumers
    finally:
        for consumer in consumers.values():
            consumer.kill()


def first_of(gateway: Gateway, topic: str) -> int:
    """Where the gateway says that the topic's queue begins."""
    fields = {"topic": topic, "queueId": "0"}
    return int(remoting.request(gateway.broker(topic), remoting.MIN_OFFSET, fields).fields["offset"])


@pytest.mark.usefixtures("reset")
def test_what_was_pulled_before_it_was_trimmed_is_handed_out(scene: Scene) -> None:
    gateway, held = scene.gateway, 200
    consumers: dict[str, Consumer] = {
        "Java": scene.java(gateway, topic=TRIMMED, group="trimmed-java", rate=50, cached=held),
        "Go": GoConsumer(scene.directory, gateway.address, TRIMMED, "trimmed-go", rate=50, cached=held),
    }
    scene.daemon.kill()
    ageing: dict[str, Any] = {
        "retain.min_age_ms": 1000, "retain.interval_ms": 1000, "retain.max_trim_percent": 100,
        "retain.topics": f"{TRIMMED}=100KiB",
    }  # fmt: skip
    trimming = Daemon(
        scene.directory, scene.broker.store_dir, scene.daemon.archive, command=HURRIED,
        **{**CALM, "source.broker": scene.broker.name, **ageing},
    )  # fmt: skip
    try:
        for consumer in consumers.values():
            consumer.wait_taken(32)
        assert first_of(gateway, TRIMMED) == 0
        trimming.start()
        wait_for(lambda: first_of(gateway, TRIMMED) >= GOES.stop, "the trim")
        begin = first_of(gateway, TRIMMED)
        taken = {name: consumer.taken() for name, consumer in consumers.items()}
        for name, consumer in consumers.items():
            came = up_to(consumer, NEW.stop - 1)
            before = [offset for offset in came if offset < begin]
            assert taken[name] + held // 2 < len(before) < GOES.stop, f"{name}: {taken[name]}, {len(before)}"
            assert came == [*range(len(before)), *range(begin, NEW.stop)], name
    finally:
        trimming.kill()
        for consumer in consumers.values():
            consumer.kill()


def test_beyond_the_end_the_broker_decides(scene: Scene) -> None:
    """Its queue was cut or begun anew: a client's position has to go back, which 20 would not do."""
    fields = pull_fields(BEHIND.stop + 50)
    direct, through = (
        remoting.request(address, remoting.PULL_MESSAGE, fields)
        for address in (scene.broker.address, scene.gateway.broker(TOPIC))
    )
    assert (through.code, through.remark) == (direct.code, direct.remark) == (21, "OFFSET_OVERFLOW_BADLY")
    assert through.fields["nextBeginOffset"] == direct.fields["nextBeginOffset"] == str(BEHIND.stop)


@contextmanager
def over_s3(scene: Scene, fake: FakeS3) -> Iterator[Gateway]:
    """A gateway over a copy of the archive in a bucket, open, of which it keeps no more than it must."""
    root = scene.directory / "archive"
    for path in filter(Path.is_file, root.rglob("*")):
        fake.objects.put(f"archive/{path.relative_to(root)}", [path.read_bytes()], create_only=True)
    settings: dict[str, Any] = {
        "source.broker": scene.broker.name,
        "fetch.commit_cache_bytes": 0,
        "store.attempts": 2,
    }
    gateway = Gateway(
        scene.directory, scene.broker.name_server.address,
        f"s3://bucket/archive?endpoint={fake.endpoint}&region=us-east-1", name="gateway-s3", waits=True,
        environment={"AWS_ACCESS_KEY_ID": "toy", "AWS_SECRET_ACCESS_KEY": "toy-secret"},
        **settings,
    )  # fmt: skip
    with gateway.running():
        gateway.child.wait_until(gateway.archive_open, 30, "the archive open")
        yield gateway


def test_who_begins_at_a_time_waits_while_the_store_refuses(scene: Scene) -> None:
    """With the broker's own answer it would begin at the first message that the broker still has."""
    since = int(time.time() * 1000) - 3_600_000
    consumers: dict[str, Consumer] = {}
    with FakeS3().running() as fake, over_s3(scene, fake) as gateway:

        def searches() -> float:
            name = "tiered_cold_answers_total"
            return gateway.metric(name, outcome="retry", what="search_offset") or 0

        try:
            with fake.bent(told_to((), refused("ExpiredToken"))):
                consumers["Go"] = GoConsumer(
                    scene.directory, gateway.address, TOPIC, "since-go", since_ms=since
                )
                wait_for(lambda: searches() >= 1, "Go's search")
                asked: dict[str, Any] = {
                    "topic": TOPIC,
                    "group": "since-java",
                    "from": "timestamp",
                    "timestamp": since,
                }
                consumers["Java"] = scene.java(gateway, **asked)
                wait_for(lambda: searches() >= 5, "Java's searches, one a second")
                for code in (SEARCH_OFFSET, remoting.MIN_OFFSET, EARLIEST_TIME):
                    fields = {"topic": TOPIC, "queueId": "0", "timestamp": str(since)}
                    answer = remoting.request(gateway.broker(TOPIC), code, fields)
                    assert answer.code == SYSTEM_BUSY, answer
                assert [consumer.taken() for consumer in consumers.values()] == [0, 0]
            for name, consumer in consumers.items():
                consumer.wait_taken(len(HANDED_OUT))
                assert sorted(offsets(consumer)) == HANDED_OUT, name
        finally:
            for consumer in consumers.values():
                consumer.kill()


def test_after_a_reset_everything_comes_again(reset: dict[str, Consumer]) -> None:
    for name, consumer in reset.items():
        wait_for(lambda: offsets(consumer).count(0) == 2, f"the beginning again, {name}")  # noqa: B023
        came = offsets(consumer)
        assert up_to(consumer, BEHIND.stop - 1)[came.index(0, 1) :] == HANDED_OUT, name
