"""The store behind the gateway fails in every way: consumers wait, never more, and get everything once it is back.

The archive lies on the real S3 server behind a fault proxy. Each fault meets a gateway that has fetched nothing yet and keeps
no commits that it folded, so that no answer can come out of its memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.kit import remoting
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.faultproxy import Action, FaultProxy, Rule
from tests.kit.gatewayproc import Gateway
from tests.kit.laggard import Laggard
from tests.kit.s3server import REGION

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

IMPATIENT = {
    "gateway.read_timeout_ms": 1000,
    "store.connect_timeout_ms": 500,
    "store.read_timeout_ms": 500,
    "store.attempts": 2,
    "store.retry_base_ms": 10,
    "store.retry_max_ms": 50,
    "fetch.commit_cache_bytes": 0,
}
"""A gateway that gives up on its store soon."""

FAULTS = {
    "503": [Rule(Action.STATUS, status=503)],
    "hang": [Rule(Action.SWALLOW)],
    "cut": [Rule(Action.CUT_ANSWER, after_bytes=500)],
    "refused": [Rule(Action.REFUSE)],
    # Headers of objects are short; what is longer than this is data.
    "corrupt": [Rule(Action.CORRUPT, after_bytes=at, probability=0.5) for at in (0, 300)]
    + [Rule(Action.CORRUPT)],
}
MIXED = [
    Rule(Action.STATUS, status=503, probability=0.2),
    Rule(Action.CUT_ANSWER, after_bytes=2000, probability=0.1),
    Rule(Action.CORRUPT, after_bytes=1000, probability=0.1),
    Rule(Action.REFUSE, probability=0.1),
    Rule(Action.SWALLOW, probability=0.05),
]
WAIT_SECONDS = 4.0
RETRY = 2
"""SYSTEM_BUSY: every client asks again later."""
FOUND = 0


@pytest.fixture
def proxy(cold: ColdScene) -> Iterator[FaultProxy]:
    endpoint = cold.archives["s3"].url.partition("endpoint=http://")[2].partition("&")[0]
    with FaultProxy(endpoint, seed=7) as proxy:
        yield proxy


@pytest.fixture
def gateway(cold: ColdScene, proxy: FaultProxy) -> Iterator[Gateway]:
    """A fresh one, whose way to the store leads through the proxy."""
    place = cold.archives["s3"].url.partition("?")[0]
    url = f"{place}?endpoint={proxy.url}&region={REGION}"
    with cold.gateway("s3", url=url, **IMPATIENT).running() as gateway:
        gateway.child.wait_until(gateway.archive_open, 30, "the archive open")
        yield gateway


def pull(gateway: Gateway, offset: int, queue: int = 0) -> remoting.Answer:
    """One pull, as a lite consumer with its own subscription sends it."""
    fields = {
        "consumerGroup": "kit_raw",
        "topic": TOPIC,
        "queueId": str(queue),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return remoting.request(gateway.broker(TOPIC), remoting.PULL_MESSAGE, fields, timeout_seconds=20)


@pytest.mark.parametrize("fault", FAULTS)
def test_while_the_store_fails_consumers_only_wait(
    cold: ColdScene, gateway: Gateway, proxy: FaultProxy, fault: str
) -> None:
    laggard = Laggard(cold, gateway.address, f"fault-{fault}")
    hot = cold.minimum[0] + 10
    proxy.set(*FAULTS[fault])
    consumer = laggard.start(rate=0)
    answer = pull(gateway, 0)
    assert answer.code == RETRY, answer
    assert pull(gateway, hot).code == FOUND, "hot messages must flow all the same"
    consumer.child.wait_until(lambda: proxy.count() > 4, 30, "requests to the store")
    time.sleep(WAIT_SECONDS)
    assert consumer.taken() == 0
    assert laggard.committed() == laggard.begin
    assert pull(gateway, 0).code == RETRY
    assert proxy.count(FAULTS[fault][0].action) > 0
    proxy.set()
    laggard.wait_end(consumer)
    found = laggard.judge(consumer.finish().lines())
    assert found.exact, str(found)


def test_among_many_faults_everything_comes_once(
    cold: ColdScene, gateway: Gateway, proxy: FaultProxy
) -> None:
    laggard = Laggard(cold, gateway.address, "faults-mixed", behind=3000)
    proxy.set(*MIXED)
    consumer = laggard.start(rate=0)
    laggard.wait_end(consumer, 120)
    found = laggard.judge(consumer.finish().lines())
    assert found.exact, str(found)
    hit = {rule.action for rule in MIXED if proxy.count(rule.action)}
    assert len(hit) >= 2, proxy.exchanges


def test_a_store_that_is_away_from_the_start_cuts_no_hot_traffic(cold: ColdScene, proxy: FaultProxy) -> None:
    place = cold.archives["s3"].url.partition("?")[0]
    url = f"{place}?endpoint={proxy.url}&region={REGION}"
    proxy.down()
    with cold.gateway("s3", url=url, **IMPATIENT).running() as gateway:
        hot = cold.minimum[0] + 10
        assert pull(gateway, hot).code == FOUND
        assert pull(gateway, 0).code == RETRY
        proxy.up()
        gateway.child.wait_until(lambda: pull(gateway, 0).code != RETRY, 30, "the first old message")
        assert pull(gateway, 0).code == FOUND
