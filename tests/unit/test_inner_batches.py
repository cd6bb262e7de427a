"""A record says of itself that it is an inner batch; how many queue offsets it owns is for the broker's own files to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.assemble import Assembly, assemble, memory
from tests.kit.pipeline import INNER_BATCH, Crafted
from tiered.clock import ManualClock
from tiered.model import MessageQueue

QUEUE = MessageQueue("Orders", 0)
CLAIM = {"INNER_NUM": "8"}


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    return Crafted(tmp_path / "store", file_bytes=65_536)


def archive(broker: Crafted, *, at_once: bool) -> Assembly:
    """Three plain records, three that claim to be batches of eight, three plain ones; committed one by one, or together."""
    clock = ManualClock()
    one = assemble(broker.store, memory(clock), clock)
    for number in range(9):
        claims = 3 <= number < 6
        broker.send(
            sys_flag=INNER_BATCH if claims else 0, properties=CLAIM if claims else {"KEYS": str(number)}
        )
        if not at_once:
            one.settle(seconds=3)
    one.settle(seconds=3)
    one.close()
    return one


def offsets(one: Assembly) -> list[tuple[int, int]]:
    """(generation, queue offset) of each record."""
    return [(generation, offset) for generation, offset, _ in one.rows()[QUEUE]]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_producers_word_alone_moves_nothing(broker: Crafted, at_once: bool) -> None:
    broker.batch_queues = False
    one = archive(broker, at_once=at_once)
    assert offsets(one) == [(1, n) for n in range(9)]
    assert list(one.state.gaps()) == []
    (queue,) = one.state.queues()
    assert (queue.min_offset, queue.max_offset, queue.generation) == (0, 9, 1)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_queue_that_the_broker_keeps_in_batches(broker: Crafted, at_once: bool) -> None:
    one = archive(broker, at_once=at_once)
    assert offsets(one) == [(1, n) for n in (0, 1, 2, 3, 11, 19, 27, 28, 29)]
    assert list(one.state.gaps()) == []


@pytest.mark.parametrize(("attributes", "end"), [('"attributes":{},', 8), ("", 1)])
def test_without_a_record_behind_it_the_brokers_version_tells(
    broker: Crafted, attributes: str, end: int
) -> None:
    """Brokers of 5.x number any queue by the bit, whatever files they keep it in."""
    broker.batch_queues = False
    config = broker.store / "config"
    config.mkdir()
    (config / "topics.json").write_text(f'{{"topicConfigTable":{{"Orders":{{{attributes}"order":false}}}}}}')
    broker.send(sys_flag=INNER_BATCH, properties=CLAIM)
    clock = ManualClock()
    one = assemble(broker.store, memory(clock), clock)
    one.settle(seconds=3)
    (queue,) = one.state.queues()
    assert queue.max_offset == end
    one.close()
