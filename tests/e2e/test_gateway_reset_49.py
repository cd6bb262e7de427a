"""A group of a 4.9 broker is reset to an old time while it consumes: that broker tells its consumers itself (220).

So it does not matter whether the operator's order comes through the gateway, only that the consumers do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import cache, mqadmin
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.delivery import compare, first_from
from tests.kit.gatewayproc import Gateway
from tests.kit.mqadmin import MqAdmin

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateway(cold_49: ColdScene) -> Iterator[Gateway]:
    with cold_49.gateway("posix").running() as gateway:
        yield gateway


@pytest.mark.parametrize("operator", ["gateway", "broker"])
def test_running_consumers_go_back_into_the_archive(
    cold_49: ColdScene, gateway: Gateway, tmp_path: Path, operator: str
) -> None:
    cold = cold_49
    client = cold.client(name_server=gateway.address)
    known = client.run("pull", topic=TOPIC, group=cold.group("times"), start="0", n=len(cold.sent)).lines()
    time_ms = sorted(line["store_timestamp"] for line in known)[len(known) // 2]
    begin = first_from(known, time_ms)
    assert all(begin[queue] < low - 100 for queue, low in cold.minimum.items()), (begin, cold.minimum)
    ends = {queue: cold.broker.offsets(TOPIC, queue).stop for queue in begin}

    group = cold.group("told")
    cold.commit(group, {queue: low + 1 for queue, low in cold.minimum.items()})
    consumer = client.start("push", topic=TOPIC, group=group, idle=60)
    hot = sum(ends[queue] - low - 1 for queue, low in cold.minimum.items())
    consumer.wait_taken(hot)
    address = gateway.address if operator == "gateway" else cold.name_server.address
    tool = MqAdmin(cache.ROCKETMQ_5, tmp_path, name_server=address)
    rows = mqadmin.table(tool.run("resetOffsetByTime", g=group, t=TOPIC, s=time_ms))
    said = {int(row[1]): int(row[2]) for row in rows}
    assert (said == begin) is (operator == "gateway"), "the broker itself names what it has"
    consumer.wait_taken(hot + sum(ends[queue] - first for queue, first in begin.items()))
    lines = consumer.finish().lines()
    found = compare(cold.sent, lines[hot:], begin=begin)
    assert found.exact, str(found)
    assert cold.committed(group) == ends
