"""A group of a 4.9 broker is reset to an old time while it consumes: that broker tells its consumers itself (220).

So it does not matter whether the operator's order comes through the gateway, only that the consumers do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import cache, mqadmin, remoting
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.delivery import compare, first_from
from tests.kit.gatewayproc import Gateway
from tests.kit.mqadmin import MqAdmin

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateway(cold_49: ColdScene) -> Iterator[Gateway]:
    with cold_49.gateway("posix").running() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def middle(cold_49: ColdScene, gateway: Gateway) -> tuple[int, dict[int, int]]:
    """A time in the middle of what is archived, which the broker has deleted; and the first offset of each queue from it on."""
    client = cold_49.client(name_server=gateway.address)
    group = cold_49.group("times")
    known = client.run("pull", topic=TOPIC, group=group, start="0", n=len(cold_49.sent)).lines()
    time_ms = sorted(line["store_timestamp"] for line in known)[len(known) // 2]
    begin = first_from(known, time_ms)
    assert all(begin[queue] < low - 100 for queue, low in cold_49.minimum.items()), (begin, cold_49.minimum)
    return time_ms, begin


@pytest.mark.parametrize("operator", ["gateway", "broker"])
def test_running_consumers_go_back_into_the_archive(
    cold_49: ColdScene, gateway: Gateway, middle: tuple[int, dict[int, int]], tmp_path: Path, operator: str
) -> None:
    cold, (time_ms, begin) = cold_49, middle
    client = cold.client(name_server=gateway.address)
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


def test_a_consumer_that_gets_a_list_goes_back_into_the_archive(
    cold_49: ColdScene, gateway: Gateway, middle: tuple[int, dict[int, int]]
) -> None:
    """As one in C++: who gives the order says that the group's clients are."""
    cold, (time_ms, begin) = cold_49, middle
    group = cold.group("listed")
    cold.commit(group, {queue: low + 1 for queue, low in cold.minimum.items()})
    (address,) = remoting.route_addresses(gateway.address, TOPIC)
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "subVersion": 1}],
    }
    beat = {"clientID": "listed", "consumerDataSet": [consumer], "producerDataSet": []}
    order = {"topic": TOPIC, "group": group, "timestamp": str(time_ms), "isForce": "true"}
    with (
        remoting.Connection(address, language="CPP", timeout_seconds=30) as client,
        remoting.Connection(cold.broker.address, language="CPP", timeout_seconds=30) as operator,
    ):
        client.send(remoting.HEART_BEAT, body=json.dumps(beat).encode())
        answers = [client.receive()]
        operator.send(remoting.INVOKE_BROKER_TO_RESET_OFFSET, order)
        while answers[-1][1].code != remoting.RESET_CONSUMER_CLIENT_OFFSET:
            answers.append(client.receive())
        own, told = answers[-1]
    assert own
    assert told.fields["group"] == group
    table = json.loads(told.body)["offsetTable"]
    assert {item["queueId"]: item["offset"] for item in table} == begin
    assert {item["topic"] for item in table} == {TOPIC}
