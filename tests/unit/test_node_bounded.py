"""Bounded load: nobody has more than ceil((1 + ε) · mean), and as long as there is room a queue stays where it is."""

from __future__ import annotations

from collections import Counter
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from tiered.gateway.nodes.bounded import bound, first_with_room
from tiered.gateway.nodes.placement import ranked
from tiered.model import MessageQueue

NODES = [f"node-{number}" for number in range(5)]
ONE = dict.fromkeys(NODES, 1)


def placed(queues: list[MessageQueue], percent: int, nodes: list[str] = NODES) -> Counter[str]:
    """Reads of these queues, all under way at once."""
    reads: Counter[str] = Counter(dict.fromkeys(nodes, 0))
    for queue in queues:
        name = first_with_room(ranked(queue, nodes), reads, ONE, percent)
        assert name is not None
        reads[name] += 1
        mean = reads.total() / len(nodes)
        assert max(reads.values()) <= ceil((1 + percent / 100) * mean - 1e-9)
    return reads


@given(
    st.lists(st.builds(MessageQueue, st.sampled_from("abc"), st.integers(0, 9)), max_size=150),
    st.sampled_from([1, 25, 50, 300]),
    st.integers(1, 5),
)
def test_nobody_ever_has_more_than_its_bound(queues: list[MessageQueue], percent: int, count: int) -> None:
    assert placed(queues, percent, NODES[:count]).total() == len(queues)


def test_one_queue_that_everybody_reads_spreads_over_all_nodes_in_its_order() -> None:
    queue = MessageQueue("hot", 0)
    reads = placed([queue] * 100, 25)
    assert [reads[name] for name in ranked(queue, NODES)] == [25, 25, 25, 25, 0]
    assert placed([queue] * 100, 25)[ranked(queue, NODES)[0]] == 25


def test_while_there_is_room_a_queue_is_read_where_it_is_cached() -> None:
    for number in range(200):
        queue = MessageQueue("t", number)
        order = ranked(queue, NODES)
        assert first_with_room(order, dict.fromkeys(NODES, 0), ONE, 25) == order[0]
        busy = {**dict.fromkeys(NODES, 0), order[0]: 1}
        assert first_with_room(order, busy, ONE, 25) == order[1]
        assert first_with_room(order, dict.fromkeys(NODES, 4), ONE, 25) == order[0]


def test_capacity_is_a_share() -> None:
    assert (bound(99, 0.5, 0), bound(99, 0.25, 0), bound(0, 0.2, 25)) == (50, 25, 1)
    capacity = {"small": 1, "large": 3}
    reads = Counter(small=0, large=0)
    for _ in range(400):
        name = first_with_room(["small", "large"], reads, capacity, 10)
        assert name is not None
        reads[name] += 1
    assert reads == {"small": 110, "large": 290}
    assert first_with_room([], {}, {}, 25) is None
