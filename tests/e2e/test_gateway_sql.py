"""Consumers with an SQL92 filter, far behind: the archive's part of their messages is chosen as the broker chooses its own.

What was to come is computed from what the producer sent, so broker and archive are both judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit import cache
from tests.kit.client import Running
from tests.kit.coldscene import TOPIC, ColdScene, ending
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tests.kit.process import ChildError

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

SWITCH = "enablePropertyFilter"


@dataclass(frozen=True, slots=True)
class Choice:
    """An expression, the version of the client that asks with it, and the same in Python, of tag and sequence number."""

    version: str
    sql: str
    takes: Callable[[Mapping[str, Any], int], bool]


CHOICES = {
    "numbers and tags": Choice(
        cache.ROCKETMQ_5,
        "seq BETWEEN 500 AND 19500 AND TAGS IN ('paid', 'shipped')",
        lambda line, seq: 500 <= seq <= 19_500 and line["tags"] in ("paid", "shipped"),
    ),
    "text of another alphabet": Choice(
        cache.ROCKETMQ_5,
        "region = '东区' OR (seq < 1200 AND region <> 'süd')",
        lambda line, seq: region(line) == "东区" or (seq < 1200 and region(line) != "süd"),
    ),
    "something that no message has": Choice(
        cache.ROCKETMQ_4,
        "(absent IS NULL AND NOT (absent > 3 OR seq > 2000)) OR (absent IS NULL AND seq > 14000.5)",
        # absent > 3 is unknown, so the first part never holds.
        lambda line, seq: seq > 14_000,
    ),
    "all but a few": Choice(
        cache.ROCKETMQ_4, "NOT (seq = 7 OR seq = 19007)", lambda line, seq: seq % 19_000 != 7
    ),
}


def region(line: Mapping[str, Any]) -> str:
    return str(line["properties"]["region"])


def wanted(cold: ColdScene, choice: Choice) -> list[dict[str, Any]]:
    """What the expression selects of everything that was sent."""
    return [line for line in cold.sent if choice.takes(line, int(line["properties"]["seq"]))]


@pytest.fixture(scope="module")
def filtering(cold: ColdScene) -> Iterator[ColdScene]:
    """The scene, its broker filtering by SQL92 until the end of this module."""
    cold.broker.set_conf(SWITCH, "true")
    yield cold
    cold.broker.set_conf(SWITCH, "false")


@pytest.fixture(scope="module")
def gateway(filtering: ColdScene) -> Iterator[Gateway]:
    with filtering.gateway("posix").running() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def consumers(filtering: ColdScene, gateway: Gateway) -> Iterator[dict[str, Running]]:
    """All of them, side by side; they end when nothing has come for a while, so that they may take too much."""
    started = {}
    for name, choice in CHOICES.items():
        client = filtering.client(choice.version, name_server=gateway.address)
        group = filtering.group(name)
        started[name] = client.start(
            "push", topic=TOPIC, group=group, sql=choice.sql, **ending(len(wanted(filtering, choice)))
        )
    yield started
    for consumer in started.values():
        consumer.kill()


@pytest.mark.parametrize("name", CHOICES)
def test_every_matching_message_comes_once_and_none_else(
    filtering: ColdScene, consumers: dict[str, Running], name: str
) -> None:
    chosen = wanted(filtering, CHOICES[name])
    hot = sum(line["queue_offset"] >= filtering.minimum[line["queue_id"]] for line in chosen)
    cold = len(chosen) - hot
    found = compare(chosen, consumers[name].wait().lines())
    print(f"{name}: {cold:,} from the archive, {hot:,} from the broker; {found}")
    assert found.exact, str(found)
    assert cold > 0 < hot


def test_the_gateway_dies_in_the_middle_and_learns_the_expression_anew(
    filtering: ColdScene, gateway: Gateway
) -> None:
    """A pull of a push consumer carries no expression: until the next heartbeat nobody may guess it."""
    choice = CHOICES["numbers and tags"]
    chosen = wanted(filtering, choice)
    client = filtering.client(choice.version, name_server=gateway.address)
    group = filtering.group("sql-gateway-killed")
    slowly: dict[str, Any] = {"rate": 3000, "cached": 64, "persist_ms": 500, "idle": 60}
    consumer = client.start("push", topic=TOPIC, group=group, sql=choice.sql, **slowly)
    consumer.wait_taken(len(chosen) // 4)
    gateway.kill()
    before = consumer.taken()
    gateway.start()
    assert before < len(chosen) // 2, "it died too late"
    consumer.wait_taken(len(chosen), 90)
    found = compare(chosen, consumer.finish().lines())
    assert found.complete, str(found)
    assert not found.disordered, str(found)


def test_an_expression_that_is_none_is_refused_as_the_broker_refuses_it(
    filtering: ColdScene, gateway: Gateway
) -> None:
    said = []
    for name_server in (None, gateway.address):
        client = filtering.client(name_server=name_server)
        with pytest.raises(ChildError, match="MQClientException") as refused:
            client.run("push", topic=TOPIC, group=filtering.group("bad"), sql="seq >", first_seconds=5)
        said.append([line for line in str(refused.value).splitlines() if "MQClientException" in line])
    assert "ParseException" in said[0][0]
    assert said[1] == said[0]
