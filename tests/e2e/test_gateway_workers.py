"""A gateway of two workers and a real broker: each worker is killed, groups read what it deleted, one is reset."""

from __future__ import annotations

import itertools
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.kit import remoting
from tests.kit.client import Running
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.daemonproc import wait_for
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tests.kit.ports import free_block
from tiered.codec.remoting.codes import RequestCode, ResponseCode

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

RATE = 4000
GROUPS = 3
SOME = 500
"""Messages after which a consumer is in the middle of reading."""


@pytest.fixture(scope="module")
def gateway(cold: ColdScene) -> Iterator[Gateway]:
    settings = {"gateway.workers": 2, "gateway.http_listen": f"127.0.0.1:{free_block()}"}
    with cold.gateway("posix", **settings).running() as gateway:
        wait_for(lambda: there(gateway) == 2, "both workers", 60)
        yield gateway
        gateway.stop()


def there(gateway: Gateway) -> float | None:
    return gateway.metric("tiered_gateway_workers", state="there")


def pids(gateway: Gateway) -> dict[str, int]:
    return {worker: said["pid"] for worker, said in gateway.status()["workers"].items()}


def given(gateway: Gateway, worker: str) -> float:
    """Old messages that one worker has given."""
    return gateway.metric("tiered_cold_messages_total", worker=worker) or 0.0


@dataclass
class Group:
    """A new group that reads everything, and its consumer."""

    name: str
    consumer: Running

    def wait_end(self, cold: ColdScene) -> None:
        """Wait until it has committed all there is."""
        ends = {queue: cold.broker.offsets(TOPIC, queue).stop for queue in cold.minimum}
        self.consumer.child.wait_until(lambda: cold.committed(self.name) == ends, 90, "everything committed")


@pytest.fixture
def groups(cold: ColdScene, gateway: Gateway) -> Iterator[list[Group]]:
    """Groups in the middle of reading, some by each worker: the kernel chooses by whom."""
    client = cold.client(name_server=gateway.address)
    made: list[Group] = []
    try:
        for number in itertools.count():
            name = cold.group(f"workers-{number}")
            options = {"rate": RATE, "persist_ms": 500, "idle": 90}
            made.append(Group(name, client.start("push", topic=TOPIC, group=name, **options)))
            if number + 1 >= GROUPS:
                for group in made:
                    group.consumer.wait_taken(SOME)
                if given(gateway, "0") and given(gateway, "1"):
                    break
        yield made
    finally:
        for group in made:
            group.consumer.kill()


def reset(gateway: Gateway, group: str) -> None:
    """To the beginning of all. While a worker is made that may not have heard it the answer is *ask again*."""
    ext = {
        "topic": TOPIC,
        "group": group,
        "timestamp": "0",
        "isForce": "true",
        "queueId": "-1",
        "offset": "-1",
    }

    def is_reset() -> bool:
        told = remoting.request(gateway.broker(TOPIC), RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext)
        assert told.code in (0, ResponseCode.SYSTEM_BUSY), told.remark
        return told.code == 0

    wait_for(is_reset, "the reset", 60)


def test_a_worker_is_killed_and_a_group_reset_while_groups_read(
    cold: ColdScene, gateway: Gateway, groups: list[Group]
) -> None:
    before = pids(gateway)
    os.kill(before["1"], signal.SIGKILL)
    wait_for(lambda: "worker 1 is missing: signal 9" in gateway.ask("/readyz")[1].decode(), "its absence", 30)
    again = groups[0]
    early = again.consumer.taken()
    reset(gateway, again.name)
    wait_for(lambda: there(gateway) == 2, "the worker again", 60)
    after = pids(gateway)
    assert after["0"] == before["0"]
    assert after["1"] != before["1"]
    again.consumer.wait_taken(early + len(cold.sent))
    for group in groups:
        group.wait_end(cold)
        lines = group.consumer.finish().lines()
        found = compare(cold.sent, lines)
        assert found.complete, str(found)
        if group is again:
            begun = {(TOPIC, line["queue_id"], 0) for line in lines[:early]}
            assert begun
            assert begun <= set(found.repeated), (
                "what it had read before the reset came again, from the first on"
            )


def page(gateway: Gateway) -> int:
    """What the archive's pages answer; 0 while nobody does."""
    try:
        with urllib.request.urlopen(
            f"http://{gateway.settings['gateway.http_listen']}/v1/topics", timeout=5
        ) as answer:
            return int(answer.status)
    except OSError:
        return 0


def old_pull(gateway: Gateway) -> int:
    """The code of an answer to a pull of the first message, by a new connection."""
    fields = {
        "consumerGroup": "kit_workers", "topic": TOPIC, "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return remoting.request(gateway.broker(TOPIC), RequestCode.PULL_MESSAGE, fields, timeout_seconds=20).code


@dataclass(frozen=True)
class Look:
    """What an operator and a client see at a moment."""

    live: int
    ready: int
    said: str
    there: float | None
    page: int
    pull: int


def test_the_first_worker_is_killed_and_its_pages_are_there_again(cold: ColdScene, gateway: Gateway) -> None:
    """The pages of health are not its own: they say all the while what is missing."""
    before = pids(gateway)
    assert page(gateway) == 200
    os.kill(before["0"], signal.SIGKILL)
    looks: list[Look] = []

    def is_back() -> bool:
        ready, said = gateway.ask("/readyz")
        looks.append(
            Look(
                gateway.ask("/healthz")[0],
                ready,
                said.decode().strip(),
                there(gateway),
                page(gateway),
                old_pull(gateway),
            )
        )
        return (
            looks[-1].there == 2
            and looks[-1].page == 200
            and looks[-1].said == "worker 0: ready; worker 1: ready"
        )

    wait_for(is_back, "the worker and its pages", 60)
    away = [look for look in looks if "worker 0 is missing: signal 9" in look.said]
    assert away
    assert {look.live for look in looks} == {200}
    assert {look.ready for look in looks} == {200}, "the other one serves"
    assert 0 in {look.page for look in away}
    assert 0 in {look.pull for look in away} <= {0, ResponseCode.SYSTEM_BUSY}, (
        "served by the other one, or to be asked again"
    )
    after = pids(gateway)
    assert after["0"] != before["0"]
    assert after["1"] == before["1"]
