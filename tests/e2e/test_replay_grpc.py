"""gRPC consumers far behind, through the real Proxy: SimpleConsumer and PushConsumer, of Java and of Python.

The broker names no group that comes through a Proxy: ``replay.groups`` does. One group is not named, and shows the loss.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import CALM, Daemon, wait_for
from tests.kit.pop import Deliveries, Popping, body_of, produce
from tests.kit.proxy import Proxy, create_typed_topic
from tests.kit.realdaemon import expire, log_end, settled_minimums
from tiered.replay.drain import BATCH

pytestmark = [pytest.mark.broker, pytest.mark.proxy, pytest.mark.slow, pytest.mark.timeout(600)]

ALL = range(6000)
FIRST = range(1000)
COLD, HOT = range(FIRST.stop, ALL.stop - 40), range(ALL.stop - 40, ALL.stop)
"""The second come when the broker has noted down most of what it notes for itself: some are left when full files go."""
BODY = 500
PYTHON = "python "
NAMED = {"simple": "Gsimple", "push": "Gpush", "python push": "Gpython", "python simple": "Gpythonsimple"}


@dataclass
class Scene:
    """The broker after the deletion, and what each group had consumed before."""

    broker: Broker
    proxy: Proxy
    daemon: Daemon
    before: dict[str, Deliveries]

    def consume(self, kind: str, group: str, idle: int, wanted: int = 1 << 30) -> Popping:
        """A consumer of this kind for a group. It ends seconds after so many messages, or ``idle`` after its last."""
        if kind.startswith(PYTHON):
            return self.proxy.python(kind.removeprefix(PYTHON), "T", group, idle, wanted)
        return self.proxy.java(kind, topic="T", group=group, idle=idle, n=wanted, linger=3)


@pytest.fixture(scope="module")
def scene(rocketmq: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """6,000 messages; each group has all of the first thousand; then the broker deletes all full files."""
    path: Path = tmp_path_factory.mktemp("replay-grpc")
    with (
        NameServer(rocketmq, path / "ns") as ns,
        Broker(rocketmq, path / "broker", ns) as broker,
        Proxy(broker, path / "proxy") as proxy,
    ):
        create_typed_topic(broker, "T")
        daemon = Daemon(
            path, broker.store_dir, f"file://{path / 'archive'}",
            **{
                **CALM, "replay.enabled": True, "replay.broker_address": broker.address, "replay.groups": "G*",
                "replay.poll_ms": 1000, "replay.window_messages": 500,
            },
        )  # fmt: skip
        with daemon.running():
            produce(broker.address, "T", FIRST, body_bytes=BODY)
            scene = Scene(broker, proxy, daemon, {})
            groups = {**NAMED, "lost": "Lost"}  # side by side: each waits most of its time
            started = {
                g: scene.consume("simple" if k == "lost" else k, g, 12, len(FIRST)) for k, g in groups.items()
            }
            scene.before = {group: Deliveries(took.wait()) for group, took in started.items()}
            wait_for(
                lambda: daemon.status()["replay"].get("watched_groups") == len(NAMED),
                "the named groups watched",
            )
            for numbers in COLD, HOT:
                produce(broker.address, "T", numbers, body_bytes=BODY)
                daemon.wait_archived(log_end(broker))
            expire(broker)
            settled_minimums(broker, "T")
            yield scene


def test_without_replay_the_history_is_skipped_silently(scene: Scene) -> None:
    got = scene.before["Lost"]
    assert got.missing(FIRST) == []
    cold = sum(max(0, scene.broker.offsets("T", q).start - FIRST.stop // 4) for q in range(4))
    assert cold > 2000
    got.add(scene.consume("simple", "Lost", 25, len(ALL) - len(FIRST) - cold).wait())
    assert len(got.missing(ALL)) == cold


@pytest.mark.parametrize("kind", NAMED)
def test_with_replay_every_message_arrives(scene: Scene, kind: str) -> None:
    group = NAMED[kind]
    got = scene.before[group]
    consumer = scene.consume(kind, group, 90)
    try:
        had = {line["seq"] for line in got.lines}
        consumer.child.wait_until(
            lambda: had | {line["seq"] for line in consumer.taken()} >= set(ALL), 120, "every message"
        )
        time.sleep(2)
    finally:
        consumer.kill()
    got.add(consumer.taken())
    assert got.missing(ALL) == []
    assert got.repeats <= BATCH
    assert {line["attempt"] for line in got.lines} == {1}
    for line in got.lines:
        assert line["body"] == body_of(line["seq"], BODY)
        assert line["tags"] == "ABC"[line["seq"] % 3]
    if not kind.startswith(PYTHON):
        assert len({line["properties"] for line in got.lines}) == 1, "no property more or less than before"
    assert scene.daemon.status()["replay"]["holes"] == 0
