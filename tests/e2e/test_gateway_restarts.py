"""Consumers, broker and gateway stop and come back while a consumer is in the middle of old messages.

"Repeated" is judged as RocketMQ itself does: what was consumed and not yet committed when a consumer went away comes again,
and nothing else does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests.kit.coldscene import ColdScene
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tests.kit.laggard import HELD, Laggard, repeats

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

GONE_SECONDS = 1.0
GIVEN = "tiered_cold_messages_total"


@pytest.fixture(scope="module")
def gateway(cold: ColdScene) -> Iterator[Gateway]:
    with cold.gateway("posix").running() as gateway:
        yield gateway


def test_a_consumer_that_ends_in_good_order_goes_on_where_it_was(cold: ColdScene, gateway: Gateway) -> None:
    laggard = Laggard(cold, gateway.address, "restart")
    consumer = laggard.start()
    consumer.wait_taken(laggard.total // 3)
    first = consumer.finish().lines()
    committed = laggard.committed()
    assert all(committed[queue] < low for queue, low in cold.minimum.items()), "it must end among old ones"
    consumer = laggard.start()
    laggard.wait_end(consumer)
    second = consumer.finish().lines()
    found = laggard.judge([*first, *second])
    assert found.complete, str(found)
    # The last batch may have been consumed after the client had committed for the last time.
    assert all(offset >= committed[queue] for queue, offset in repeats(first, second).items())
    assert compare(cold.sent, second, begin=committed).exact


def test_a_consumer_that_crashes_gets_again_only_what_was_not_committed(
    cold: ColdScene, gateway: Gateway
) -> None:
    laggard = Laggard(cold, gateway.address, "crash")
    first = laggard.start(crash_after=laggard.total // 3).crashed()
    committed = laggard.committed()
    consumer = laggard.start()
    laggard.wait_end(consumer)
    second = consumer.finish().lines()
    found = laggard.judge([*first, *second])
    assert found.complete, str(found)
    assert all(offset >= committed[queue] for queue, offset in repeats(first, second).items())
    assert compare(cold.sent, second, begin=committed).exact


def test_two_consumers_share_the_queues_and_one_takes_over(cold: ColdScene, gateway: Gateway) -> None:
    laggard = Laggard(cold, gateway.address, "rebalance")
    one = laggard.start(rate=100)  # It must not have read everything before a second JVM is up.
    one.wait_taken(300)
    two = laggard.start()
    two.wait_taken(300)
    first = one.finish().lines()
    laggard.wait_end(two)
    second = two.finish().lines()
    found = laggard.judge([*first, *second])
    assert found.complete, str(found)
    queues = [{line["queue_id"] for line in lines} for lines in (first, second)]
    assert all(queues), queues
    # A queue changes hands where its owner committed last, which may be what it held before.
    assert len(found.repeated) <= 2 * len(laggard.begin) * HELD, str(found)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_gateway_goes_away_and_comes_back(cold: ColdScene, gateway: Gateway, how: str) -> None:
    away: dict[str, Callable[[], None]] = {"kill": gateway.kill, "stop": gateway.stop}
    laggard = Laggard(cold, gateway.address, f"gateway-{how}")
    consumer = laggard.start()
    consumer.wait_taken(laggard.total // 4)
    away[how]()
    before = consumer.taken()
    time.sleep(GONE_SECONDS)
    gateway.start()
    assert before < laggard.total // 2, "it went away too late"
    laggard.wait_end(consumer)
    found = laggard.judge(consumer.finish().lines())
    assert found.complete, str(found)
    assert not found.disordered, str(found)
    assert len(found.repeated) <= len(laggard.begin) * HELD, str(found)


def test_a_consumer_that_lists_two_gateways_goes_on_when_one_is_killed(cold: ColdScene) -> None:
    """Each of them stands by itself; the consumer uses either, it chooses which."""
    with cold.gateway("posix").running() as one, cold.gateway("posix").running() as other:
        laggard = Laggard(cold, f"{one.address};{other.address}", "two-gateways")
        consumer = laggard.start()
        consumer.wait_taken(laggard.total // 4)
        given = {gateway: gateway.metric(GIVEN) or 0.0 for gateway in (one, other)}
        used, spare = sorted((one, other), key=lambda gateway: given[gateway], reverse=True)
        assert given[spare] == 0.0
        used.kill()
        assert consumer.taken() < laggard.total // 2, "it was killed too late"
        laggard.wait_end(consumer)
        assert (spare.metric(GIVEN) or 0.0) > 0.0
    found = laggard.judge(consumer.finish().lines())
    assert found.complete, str(found)
    assert not found.disordered, str(found)
    assert len(found.repeated) <= len(laggard.begin) * HELD, str(found)


def test_the_broker_is_killed_and_comes_back(cold: ColdScene, gateway: Gateway) -> None:
    laggard = Laggard(cold, gateway.address, "broker-killed")
    consumer = laggard.start()
    consumer.wait_taken(laggard.total // 4)
    cold.broker.kill()
    time.sleep(GONE_SECONDS)
    before = consumer.taken()
    cold.broker.start()
    started = time.monotonic()
    consumer.wait_taken(before + 1)
    stalled = time.monotonic() - started
    laggard.wait_end(consumer)
    found = laggard.judge(consumer.finish().lines())
    assert found.complete, str(found)
    assert not found.disordered, str(found)
    # The broker writes consumer offsets down every 5 seconds: a killed one forgets what was committed since.
    print(f"repeated after the broker was killed: {len(found.repeated)}; stalled for {stalled:.1f} s")
    said = gateway.output()
    assert said.count("a broker is away") == said.count("a broker is back")
    assert said.count("a broker is away") == 1
    # Whoever connects in the moment between the broker's death and the gateway's notice.
    assert said.count("client turned away") < 10
