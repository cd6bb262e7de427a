"""RocketMQ's own ``mqadmin`` through the gateway: what it says directly, and the old messages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache, mqadmin, remoting
from tests.kit.coldscene import QUEUES, TOPIC, ColdScene, ending
from tests.kit.delivery import compare, first_from
from tests.kit.gatewayproc import Gateway
from tests.kit.mqadmin import MqAdmin

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

OLD = 17
"""An offset that the broker has deleted."""


@pytest.fixture(scope="module")
def gateway(cold: ColdScene) -> Iterator[Gateway]:
    with cold.gateway("posix").running() as gateway:
        yield gateway


@dataclass
class Tools:
    """The tool at the broker's name server and at the gateway. Each call is a JVM, so calls run side by side."""

    direct: MqAdmin
    gateway: MqAdmin
    pool: ThreadPoolExecutor

    def both(self, command: str, **options: object) -> tuple[str, str]:
        """What it says directly, and through the gateway."""
        asked = [self.pool.submit(tool.run, command, **options) for tool in (self.direct, self.gateway)]
        return asked[0].result(), asked[1].result()

    def only_through(self, command: str, **options: object) -> str:
        """What it says through the gateway of what it cannot find directly."""
        found: Future[str] = self.pool.submit(self.gateway.run, command, **options)
        self.pool.submit(self.direct.run, command, fails=True, **options).result()
        return found.result()


@pytest.fixture(scope="module")
def tools(cold: ColdScene, gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    work: Path = tmp_path_factory.mktemp("mqadmin")
    with ThreadPoolExecutor(2) as pool:
        yield Tools(
            MqAdmin(cache.ROCKETMQ_5, work, name_server=cold.name_server.address),
            MqAdmin(cache.ROCKETMQ_5, work, name_server=gateway.address),
            pool,
        )


def at(cold: ColdScene, queue: int, offset: int) -> dict[str, Any]:
    """What the producer was told of the message there."""
    return next(line for line in cold.sent if (line["queue_id"], line["queue_offset"]) == (queue, offset))


def check(said: str, sent: dict[str, Any]) -> None:
    """The tool shows the message that was sent."""
    shown = mqadmin.message(said)
    assert shown["Topic"] == TOPIC
    assert shown["Tags"] == f"[{sent['tags']}]"
    assert shown["Keys"] == f"[{sent['keys']}]"
    assert (shown["Queue ID"], shown["Queue Offset"]) == (str(sent["queue_id"]), str(sent["queue_offset"]))
    for name in ("UNIQ_KEY", "seq", "region", "名前"):
        assert f"{name}={sent['properties'][name]}" in shown["Properties"]
    assert hashlib.sha256(mqadmin.body(said)).hexdigest() == sent["body_sha256"]


def test_the_route_is_the_same_but_for_the_address(cold: ColdScene, gateway: Gateway, tools: Tools) -> None:
    direct, through = tools.both("topicRoute", t=TOPIC)
    assert cold.broker.address in direct
    assert through == direct.replace(cold.broker.address, gateway.broker(TOPIC))


def test_the_status_of_a_topic_shows_the_whole_history(cold: ColdScene, tools: Tools) -> None:
    direct, through = (mqadmin.table(said) for said in tools.both("topicStatus", t=TOPIC))
    lows = [row[2] for row in direct]
    assert lows == [str(low) for low in cold.minimum.values()]
    assert [row[2] for row in through] == ["0"] * QUEUES
    assert [row[:2] + row[3:] for row in through] == [row[:2] + row[3:] for row in direct]


def test_progress_of_a_group_is_the_same_and_old_positions_have_a_time(cold: ColdScene, tools: Tools) -> None:
    group = cold.group("progress")
    cold.commit(group, {0: OLD + 1, 1: OLD + 1, 2: cold.minimum[2] + 9, 3: cold.minimum[3] + 9})
    cold.broker.create_topic(f"%RETRY%{group}", 1)  # the tool finds the group's brokers by it
    direct, through = (mqadmin.table(said) for said in tools.both("consumerProgress", g=group))
    ours = [[row for row in rows if row[0] == TOPIC] for rows in (direct, through)]
    assert len(ours[0]) == QUEUES
    # Topic, broker, queue, the broker's offset, the group's; then the difference and the time.
    assert [row[:5] for row in ours[1]] == [row[:5] for row in ours[0]]
    assert [row[-1] for row in ours[0][:2]] == ["N/A", "N/A"], ours[0]
    assert ours[1][2:] == ours[0][2:]
    assert all(row[-1][:2] == "20" for row in ours[1]), ours[1]


def test_a_hot_message_is_shown_as_it_is_directly(cold: ColdScene, tools: Tools) -> None:
    sent = at(cold, 1, cold.minimum[1] + 5)
    for command, options in (
        ("queryMsgById", {"i": sent["msg_id"], "t": TOPIC}),
        ("queryMsgByOffset", {"t": TOPIC, "b": cold.broker.name, "i": 1, "o": sent["queue_offset"]}),
    ):
        direct, through = tools.both(command, **options)
        check(through, sent)
        shown = [mqadmin.message(said) for said in (direct, through)]
        for message in shown:  # its properties are shown in no particular order, and have the queue's minimum
            message["Properties"] = ""
        assert shown[1] == shown[0]


def test_an_old_message_is_found_by_its_id(cold: ColdScene, tools: Tools) -> None:
    sent = at(cold, 0, OLD)
    check(tools.only_through("queryMsgById", i=sent["msg_id"], t=TOPIC), sent)


def test_an_old_message_is_found_by_its_key(cold: ColdScene, tools: Tools) -> None:
    sent = at(cold, 0, OLD)
    ((found, queue, rest),) = mqadmin.table(tools.only_through("queryMsgByKey", k=sent["keys"], t=TOPIC))
    assert (found, queue, rest.split()[0]) == (sent["msg_id"], "0", str(OLD))


def test_an_old_message_is_found_by_its_offset(cold: ColdScene, tools: Tools) -> None:
    sent = at(cold, 0, OLD)
    where = {"t": TOPIC, "b": cold.broker.name, "i": 0, "o": OLD}
    direct, through = tools.both("queryMsgByOffset", **where)
    assert mqadmin.message(direct) == {}
    check(through, sent)


def test_a_key_of_old_and_hot_messages_finds_both(cold: ColdScene, tools: Tools) -> None:
    key = "user-0"
    sent = [line for line in cold.sent if key in line["keys"].split()]
    hot = [line for line in sent if line["queue_offset"] >= cold.minimum[line["queue_id"]]]
    assert 0 < len(hot) < len(sent)
    direct, through = tools.both("queryMsgByKey", k=key, t=TOPIC, m=500)
    ids = [sorted(row[0] for row in mqadmin.table(said)) for said in (direct, through)]
    assert ids[0] == sorted(line["msg_id"] for line in hot)
    assert ids[1] == sorted(line["msg_id"] for line in sent)


def test_an_old_message_is_viewed_at_its_physical_offset(cold: ColdScene, gateway: Gateway) -> None:
    """By its offset id a client goes to the address in the id, past the gateway; who asks the gateway is answered."""
    sent = at(cold, 0, OLD)
    physical = int(sent["offset_msg_id"][-16:], 16)
    fields = {"offset": str(physical), "topic": TOPIC}
    direct = remoting.request(cold.broker.address, remoting.VIEW_MESSAGE, fields)
    through = remoting.request(gateway.broker(TOPIC), remoting.VIEW_MESSAGE, fields)
    assert direct.code != 0
    assert through.code == 0
    assert sent["unique_key"].encode() in through.body
    wrong = remoting.request(
        gateway.broker(TOPIC), remoting.VIEW_MESSAGE, {**fields, "offset": str(physical + 1)}
    )
    assert wrong.code != 0


@pytest.fixture(scope="module")
def times(cold: ColdScene, gateway: Gateway) -> tuple[int, dict[int, int]]:
    """A time among the old messages, and the first offset of each queue from then on."""
    client = cold.client(name_server=gateway.address)
    lines = client.run("pull", topic=TOPIC, group=cold.group("times"), start="0", n=len(cold.sent)).lines()
    time_ms = sorted(line["store_timestamp"] for line in lines)[len(lines) // 2]
    begin = first_from(lines, time_ms)
    assert all(begin[queue] < low - 500 for queue, low in cold.minimum.items())
    return time_ms, begin


def reset(tools: Tools, group: str, time_ms: int) -> dict[int, int]:
    """Reset a group through the gateway; the offsets that the tool says it has reset to."""
    said = tools.gateway.run("resetOffsetByTime", g=group, t=TOPIC, s=time_ms)
    return {int(row[1]): int(row[2]) for row in mqadmin.table(said)}


def test_a_running_consumer_is_reset_to_an_old_time(
    cold: ColdScene, gateway: Gateway, tools: Tools, times: tuple[int, dict[int, int]]
) -> None:
    time_ms, begin = times
    group = cold.group("reset-online")
    cold.commit(group, {queue: low + 1 for queue, low in cold.minimum.items()})
    consumer = cold.client(name_server=gateway.address).start("push", topic=TOPIC, group=group, idle=40)
    hot = len(cold.sent) - cold.cold() - len(begin)
    consumer.wait_taken(hot)
    assert reset(tools, group, time_ms) == begin
    ends = {queue: cold.broker.offsets(TOPIC, queue).stop for queue in begin}
    consumer.wait_taken(hot + sum(ends[queue] - first for queue, first in begin.items()))
    lines = consumer.finish().lines()
    found = compare(cold.sent, lines[hot:], begin=begin)
    assert found.exact, str(found)
    assert cold.committed(group) == ends


def test_a_group_without_consumers_is_reset_to_an_old_time(
    cold: ColdScene, gateway: Gateway, tools: Tools, times: tuple[int, dict[int, int]]
) -> None:
    time_ms, begin = times
    group = cold.group("reset-offline")
    cold.commit(group, {queue: cold.broker.offsets(TOPIC, queue).stop for queue in begin})
    assert reset(tools, group, time_ms) == begin
    left = sum(cold.broker.offsets(TOPIC, queue).stop - first for queue, first in begin.items())
    outcome = cold.client(name_server=gateway.address).run("push", topic=TOPIC, group=group, **ending(left))
    found = compare(cold.sent, outcome.lines(), begin=begin)
    assert found.exact, str(found)
