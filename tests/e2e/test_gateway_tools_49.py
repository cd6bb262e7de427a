"""The ``mqadmin`` of 4.9 with a broker of 4.9, through the gateway: what it says directly, and the old messages."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.kit import cache, mqadmin, remoting
from tests.kit.coldscene import QUEUES, TOPIC, ColdScene
from tests.kit.delivery import compare, first_from
from tests.kit.gatewayproc import Gateway
from tests.kit.mqadmin import MqAdmin

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OLD = 17
"""An offset that the broker has deleted."""


@pytest.fixture(scope="module")
def gateway(cold_49: ColdScene) -> Iterator[Gateway]:
    with cold_49.gateway("posix").running() as gateway:
        yield gateway


class Tools:
    """The tool at the broker's name server and at the gateway, side by side."""

    def __init__(self, direct: MqAdmin, through: MqAdmin, pool: ThreadPoolExecutor) -> None:
        self.direct = direct
        self.through = through
        self._pool = pool

    def both(self, command: str, *, fails_directly: bool = False, **options: Any) -> tuple[str, str]:
        """What it says directly, and through the gateway."""
        direct = self._pool.submit(lambda: self.direct.run(command, fails=fails_directly, **options))
        through = self._pool.submit(lambda: self.through.run(command, **options))
        return direct.result(), through.result()


@pytest.fixture(scope="module")
def tools(cold_49: ColdScene, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    work = tmp_path_factory.mktemp("mqadmin49")
    addresses = (cold_49.name_server.address, gateway.address)
    with ThreadPoolExecutor(2) as pool:
        direct, through = (MqAdmin(cache.ROCKETMQ_4, work, name_server=address) for address in addresses)
        yield Tools(direct, through, pool)


def at(cold: ColdScene, queue: int, offset: int) -> dict[str, Any]:
    """What the producer was told of the message there."""
    return next(line for line in cold.sent if (line["queue_id"], line["queue_offset"]) == (queue, offset))


def check(said: str, sent: dict[str, Any]) -> None:
    """The tool shows the message that was sent."""
    shown = mqadmin.message(said)
    assert (shown["Topic"], shown["Tags"]) == (TOPIC, f"[{sent['tags']}]")
    assert shown["Keys"] == f"[{sent['keys']}]"
    assert (shown["Queue ID"], shown["Queue Offset"]) == (str(sent["queue_id"]), str(sent["queue_offset"]))
    assert f"UNIQ_KEY={sent['unique_key']}" in shown["Properties"]


def test_the_route_is_the_same_but_for_the_address(
    cold_49: ColdScene, gateway: Gateway, tools: Tools
) -> None:
    direct, through = tools.both("topicRoute", t=TOPIC)
    assert cold_49.broker.address in direct
    assert through == direct.replace(cold_49.broker.address, gateway.broker(TOPIC))


def test_progress_of_a_group_is_the_same_and_old_positions_have_a_time(
    cold_49: ColdScene, tools: Tools
) -> None:
    group = cold_49.group("progress")
    cold_49.commit(group, {0: OLD + 1, 1: OLD + 1, 2: cold_49.minimum[2] + 9, 3: cold_49.minimum[3] + 9})
    cold_49.broker.create_topic(f"%RETRY%{group}", 1)  # the tool finds the group's brokers by it
    direct, through = (mqadmin.table(said) for said in tools.both("consumerProgress", g=group))
    ours = [[row for row in rows if row[0] == TOPIC] for rows in (direct, through)]
    assert len(ours[0]) == QUEUES
    # Topic, broker, queue, the broker's offset, the group's; then more, the time the last but one or the last.
    assert [row[:5] for row in ours[1]] == [row[:5] for row in ours[0]]
    assert all("N/A" in row for row in ours[0][:2]), ours[0]
    assert ours[1][2:] == ours[0][2:]
    assert not any("N/A" in row for row in ours[1]), ours[1]


def test_an_old_message_is_found_by_its_id(cold_49: ColdScene, tools: Tools) -> None:
    sent = at(cold_49, 0, OLD)
    _, through = tools.both("queryMsgByUniqueKey", fails_directly=True, i=sent["msg_id"], t=TOPIC)
    check(through, sent)


def test_a_hot_message_is_shown_as_it_is_directly(cold_49: ColdScene, tools: Tools) -> None:
    sent = at(cold_49, 1, cold_49.minimum[1] + 5)
    direct, through = tools.both("queryMsgById", i=sent["offset_msg_id"])
    check(through, sent)
    shown = [mqadmin.message(said) for said in (direct, through)]
    for message in shown:  # in no particular order
        message["Properties"] = ""
    assert shown[1] == shown[0]


def test_an_old_message_is_viewed_at_its_physical_offset(cold_49: ColdScene, gateway: Gateway) -> None:
    """By its offset id the tool goes to the address in the id, past the gateway; who asks the gateway is answered."""
    sent = at(cold_49, 0, OLD)
    fields = {"offset": str(int(sent["offset_msg_id"][-16:], 16))}
    direct, through = (
        remoting.request(address, remoting.VIEW_MESSAGE, fields)
        for address in (cold_49.broker.address, gateway.broker(TOPIC))
    )
    assert direct.code != 0
    assert through.code == 0
    assert sent["unique_key"].encode() in through.body


def test_a_key_of_old_and_hot_messages_finds_both(cold_49: ColdScene, tools: Tools) -> None:
    key = "user-0"
    sent = [line for line in cold_49.sent if key in line["keys"].split()]
    hot = [line for line in sent if line["queue_offset"] >= cold_49.minimum[line["queue_id"]]]
    assert 0 < len(hot) < len(sent)
    direct, through = tools.both("queryMsgByKey", k=key, t=TOPIC)
    ids = [sorted(row[0] for row in mqadmin.table(said)) for said in (direct, through)]
    assert ids == [sorted(line["msg_id"] for line in lines) for lines in (hot, sent)]


@pytest.fixture(scope="module")
def time(cold_49: ColdScene, gateway: Gateway) -> tuple[int, dict[int, int]]:
    """A time among the old messages, and the first offset of each queue from then on."""
    client = cold_49.client(name_server=gateway.address)
    group = cold_49.group("times")
    lines = client.run("pull", topic=TOPIC, group=group, start="0", n=len(cold_49.sent)).lines()
    time_ms = sorted(line["store_timestamp"] for line in lines)[len(lines) // 3]
    begin = first_from(lines, time_ms)
    assert all(begin[queue] < low for queue, low in cold_49.minimum.items())
    return time_ms, begin


@pytest.mark.parametrize("online", [True, False], ids=["with a consumer", "without consumers"])
def test_a_group_is_reset_to_an_old_time(
    cold_49: ColdScene, gateway: Gateway, tools: Tools, time: tuple[int, dict[int, int]], online: bool
) -> None:
    time_ms, begin = time
    ends = {queue: cold_49.broker.offsets(TOPIC, queue).stop for queue in cold_49.minimum}
    client = cold_49.client(name_server=gateway.address)
    group = cold_49.group("reset-49")
    cold_49.commit(group, ends)
    consumer = client.start("push", topic=TOPIC, group=group, idle=30, first_seconds=60) if online else None
    if consumer is not None:
        consumer.child.wait_until(lambda: subscribed(cold_49, group), 60, "its first heartbeat")
    said = tools.through.run("resetOffsetByTime", g=group, t=TOPIC, s=time_ms)
    # Broker, queue, more if it has reset the group by itself because it has no consumer; the new offset.
    assert {int(row[1]): int(row[-1]) for row in mqadmin.table(said)} == begin, said
    if consumer is None:
        consumer = client.start("push", topic=TOPIC, group=group, idle=30)
    consumer.wait_taken(sum(ends[queue] - first for queue, first in begin.items()))
    found = compare(cold_49.sent, consumer.finish().lines(), begin=begin)
    assert found.exact, str(found)


CONSUMERS_OF_GROUP = 38


def subscribed(cold: ColdScene, group: str) -> bool:
    """Whether the broker knows a consumer of the group."""
    return remoting.request(cold.broker.address, CONSUMERS_OF_GROUP, {"consumerGroup": group}).code == 0
