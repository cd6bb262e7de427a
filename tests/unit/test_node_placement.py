"""Which read node reads a queue: evenly, and a node that comes or goes moves only its own share."""

from __future__ import annotations

from collections import Counter

from tiered.gateway.nodes.placement import ranked
from tiered.model import MessageQueue

NODES = [f"10.0.0.{n}:10930" for n in range(8)]
QUEUES = [MessageQueue(f"topic-{n // 16}", n % 16) for n in range(8000)]


def first(nodes: list[str]) -> dict[MessageQueue, str]:
    return {queue: ranked(queue, nodes)[0] for queue in QUEUES}


def test_everybody_computes_the_same_and_all_nodes_have_a_share() -> None:
    placed = first(NODES)
    assert placed == first(NODES[::-1])
    shares = Counter(placed.values())
    assert shares.keys() == set(NODES)
    assert max(shares.values()) < 1.15 * len(QUEUES) / len(NODES)


def test_only_the_queues_of_a_node_that_goes_are_moved_and_spread() -> None:
    before, after = first(NODES), first(NODES[1:])
    moved = [queue for queue in QUEUES if before[queue] != after[queue]]
    assert {before[queue] for queue in moved} == {NODES[0]}
    assert {after[queue] for queue in moved} == set(NODES[1:])
    assert all(ranked(queue, NODES)[1] == after[queue] for queue in moved)


def test_names_that_hurt_have_a_place() -> None:
    for topic in ("%LMQ%a/b", "ü", "\ud800", "t" * 255):
        assert sorted(ranked(MessageQueue(topic, 2**31 - 1), NODES)) == NODES
