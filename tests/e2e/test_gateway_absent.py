"""Without the gateway: what unmodified consumers lose for good when the broker has deleted what they had not read."""

from __future__ import annotations

import pytest

from tests.kit import cache
from tests.kit.client import Running
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.delivery import compare

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

OLD = 100
"""Where the groups that exist already are in each queue."""

CONSUMERS = {
    "old group, push, 5.5": (cache.ROCKETMQ_5, "push", OLD, {}),
    "old group, push, 4.9": (cache.ROCKETMQ_4, "push", OLD, {}),
    "new group, push from the first offset": (cache.ROCKETMQ_5, "push", 0, {"from": "first"}),
    "lite pull, seek to begin": (cache.ROCKETMQ_5, "lite", 0, {"start": "begin"}),
    "classic pull at 0": (cache.ROCKETMQ_5, "pull", 0, {"start": "0"}),
}


@pytest.fixture(scope="module")
def consumers(cold: ColdScene) -> dict[str, tuple[str, Running]]:
    """All of them at once, since they mostly wait; with the groups they are in."""
    started = {}
    for name, (version, command, old, options) in CONSUMERS.items():
        group = cold.group(name)
        if old:
            cold.commit(group, dict.fromkeys(cold.minimum, old))
        client = cold.client(version)
        hot = len(cold.sent) - cold.cold()
        started[name] = (group, client.start(command, topic=TOPIC, group=group, n=hot, idle=60, **options))
    return started


@pytest.mark.parametrize("name", CONSUMERS)
def test_what_the_broker_has_deleted_is_skipped(
    cold: ColdScene, consumers: dict[str, tuple[str, Running]], name: str
) -> None:
    received = consumers[name][1].wait().lines()
    begin = dict.fromkeys(cold.minimum, CONSUMERS[name][2])
    found = compare(cold.sent, received, begin=begin)
    print(f"{name}: {len(found.skipped):,} of {found.expected:,} messages skipped")
    assert not found.different
    assert not found.foreign
    assert found.skipped == tuple(place for place in found.skipped if place[2] < cold.minimum[place[1]])
    assert len(found.skipped) == cold.cold() - sum(begin.values()) > 10_000


def test_and_the_group_never_comes_back_to_it(
    cold: ColdScene, consumers: dict[str, tuple[str, Running]]
) -> None:
    group, consumer = consumers["old group, push, 5.5"]
    consumer.child.wait(60)
    committed = cold.committed(group)
    assert all(committed[queue] >= low for queue, low in cold.minimum.items()), committed
