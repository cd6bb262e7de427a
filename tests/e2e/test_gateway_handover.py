"""From old messages to hot ones while producers go on and the broker deletes from under the consumers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kit import remoting
from tests.kit.client import Running
from tests.kit.coldscene import QUEUES, TAGS, ColdScene, cold_scene
from tests.kit.daemonproc import wait_for
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway

pytestmark = [pytest.mark.broker, pytest.mark.slow]

HISTORY = 6000
BEFORE = 6000
MEANWHILE = 9000
RATE = 600
LEVEL = {"rate": 1200, "cached": 64, "mode": "orderly"}
"""About as fast as the broker deletes: it reads where the minimum is, again and again."""

CONSUMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "fast": ("push", {}),
    "level": ("push", LEVEL),
    "lite": ("lite", {"start": "begin"}),
    "tagged": ("push", {**LEVEL, "sub": "paid", "rate": 400}),
}


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdScene]:
    """A scene of its own: the broker deletes all the time, and others need what it has."""
    with cold_scene(tmp_path_factory.mktemp("handover"), messages=HISTORY) as scene:
        yield scene


@pytest.fixture(scope="module")
def gateway(cold: ColdScene) -> Iterator[Gateway]:
    with cold.gateway("posix").running() as gateway:
        yield gateway


@contextmanager
def deleting(cold: ColdScene) -> Iterator[None]:
    """The broker deletes every file that is full, again and again."""
    end = threading.Event()

    def ask() -> None:
        while not end.wait(1.0):
            remoting.request(cold.broker.address, remoting.DELETE_EXPIRED_LOG, timeout_seconds=15)

    cold.broker.set_conf("fileReservedTime", 0)
    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        cold.broker.set_conf("fileReservedTime", 72)


def test_nothing_is_skipped_or_repeated_where_old_and_hot_meet(cold: ColdScene, gateway: Gateway) -> None:
    """Producers go on all the time; consumers overtake the broker's minimum, which moves away under them."""
    topic = cold.group("Live")
    cold.broker.create_topic(topic, QUEUES)
    sent = cold.send(topic, BEFORE)
    through = cold.client(name_server=gateway.address)
    with deleting(cold):
        wait_for(lambda: all(low > 500 for low in cold.minimums(topic).values()), "old messages", 100)
        first = cold.minimums(topic)
        load = through.start(
            "produce", topic=topic, n=MEANWHILE, first=BEFORE, rate=RATE, queues=QUEUES, tags=TAGS, unicode=1
        )
        consumers: dict[str, Running] = {}
        for name, (command, options) in CONSUMERS.items():
            chosen = {
                "topic": topic,
                "group": cold.group(name),
                "n": (BEFORE + MEANWHILE) // (3 if "sub" in options else 1),
                "idle": 60,
                "first_seconds": 180,  # four clients start beside a load: a lock of queues has a second each time
                **options,
            }
            consumers[name] = through.start(command, **chosen)
        sent += load.wait().lines()
        outcomes = {name: consumer.wait() for name, consumer in consumers.items()}
        moved = cold.minimums(topic)
    assert all(moved[queue] > low + 500 for queue, low in first.items()), (first, moved)
    wanted = {
        name: [m for m in sent if m["tags"] == options.get("sub", m["tags"])]
        for name, (_, options) in CONSUMERS.items()
    }
    found = {name: compare(wanted[name], outcome.lines()) for name, outcome in outcomes.items()}
    assert all(delivery.exact for delivery in found.values()), "\n".join(
        [*(f"{n}: {d}" for n, d in found.items()), through.logged()]
    )


def test_a_consumer_that_is_there_hears_of_new_messages_at_once(cold: ColdScene, gateway: Gateway) -> None:
    """Long polling: a pull at the end is held by the broker and answered when something comes."""
    topic = cold.group("Quiet")
    cold.broker.create_topic(topic, 1)
    through = cold.client(name_server=gateway.address)
    consumer = through.start("push", topic=topic, group=cold.group("long-poll"), n=20, idle=60)
    time.sleep(4.0)
    through.run("produce", topic=topic, n=20, rate=10, queues=1)
    lines = consumer.wait().lines()
    assert len(lines) == 20
    late = sorted(line["arrived_ms"] - line["store_timestamp"] for line in lines[1:])
    assert late[len(late) // 2] < 1000, late
