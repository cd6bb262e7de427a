"""What retention does when the broker says that a topic is gone, or for how long it is to be kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.collecting import HOUR_MS, Sweeping
from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene, scene
from tiered.archive.rewrite.policy import BrokerSays
from tiered.settings import Retain


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


@dataclass
class Told:
    """A broker that says what a test tells it."""

    said: BrokerSays

    def heeded(self, settings: Retain) -> bool:
        return True

    def says(self, *_: object) -> BrokerSays:
        return self.said


def test_a_topic_that_is_gone_is_trimmed_whole_but_for_what_is_young_and_comes_back_as_a_new_generation(
    small: Scene,
) -> None:
    small.broker.time_ms = small.clock.now_ms()
    small.send(20)
    small.clock.advance(2 * HOUR_MS / 1000)
    small.broker.time_ms = small.clock.now_ms()
    small.send(5)
    broker = Told(BrokerSays(expired=frozenset({"Orders"})))
    kept = Sweeping.of(small, keep_ms=0, broker=broker, topics=("Orders=forever",))
    assert kept.retention.plan().jobs == 0
    sweeping = Sweeping.of(small, keep_ms=0, broker=broker)
    outlook = sweeping.retention.plan()
    assert [(row["first_offset"], row["reason"]) for row in outlook.rows] == [(20, "topic deleted")]
    sweeping.all(sweeping.retention)
    small.clock.advance(2 * HOUR_MS / 1000)
    sweeping.all(sweeping.retention)
    assert list(small.state.runs(ORDERS, 1)) == []
    broker.said = BrokerSays()
    small.broker.time_ms = small.clock.now_ms()
    again = [small.broker.send("Orders", 0, b"again %d" % n, queue_offset=n) for n in range(3)]
    small.daemon.settle(SETTLED_SECONDS)
    queue = small.state.queue(ORDERS)
    assert queue is not None
    assert (queue.generation, queue.min_offset, queue.max_offset) == (2, 0, len(again))
    assert sweeping.retention.plan().jobs == 0


def test_reserve_time_trims_a_topic_that_the_settings_keep_for_ever(small: Scene) -> None:
    small.broker.time_ms = small.clock.now_ms()
    small.send(20)
    broker = Told(BrokerSays({"Orders": 1}))
    sweeping = Sweeping.of(small, keep_ms=0, broker=broker)
    assert sweeping.retention.plan().jobs == 0, "nothing goes below the least age, whatever the broker says"
    small.clock.advance(2 * HOUR_MS / 1000)
    assert sweeping.count(sweeping.retention) == {"trimmed_queues": 1}
    assert list(small.state.runs(ORDERS, 1)) == []
