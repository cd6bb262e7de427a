"""Nodes of different capacity, and how they say they are read: each has its part by hashing, by bounded load, by tables."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.kit.memberships import BucketRegistry, card
from tests.kit.placementsim import backlogs, named, nodes_of, run, zipf_days
from tiered.clock import ManualClock
from tiered.codec.summedline import encode_line
from tiered.daemon.announcing import Announcer
from tiered.errors import Corrupt
from tiered.gateway.nodes.fleet import NodeFleet, NodePlace
from tiered.gateway.nodes.placement import ranked
from tiered.membership.base import MOST_CARD_BYTES, MOST_READS, Card, MemberState
from tiered.membership.bucket import decode_lease, encode_lease
from tiered.metrics import Metrics
from tiered.model import MessageQueue
from tiered.placement.assign import BOUND, assign, imbalance
from tiered.placement.history import MOST_QUEUES
from tiered.placement.readloads import STEP_SECONDS, WRITTEN_SHARE, ReadLoads, node_loads, read_loads
from tiered.placement.table import queue_digest

CAPACITY = {"a": 1, "b": 1, "c": 2}
QUEUES = named(8000)


def first(capacity: dict[str, int]) -> dict[MessageQueue, str]:
    return {queue: ranked(queue, list(capacity), capacity)[0] for queue in QUEUES}


# ---- capacities


def test_a_node_of_two_is_first_for_twice_as_many_queues() -> None:
    shares = Counter(first(CAPACITY).values())
    assert {name: round(4 * count / len(QUEUES), 1) for name, count in shares.items()} == {
        "a": 1.0,
        "b": 1.0,
        "c": 2.0,
    }
    for equal in (1, 7):
        assert first(dict.fromkeys(CAPACITY, equal)) == {
            queue: ranked(queue, list(CAPACITY))[0] for queue in QUEUES
        }, "fleets of alike nodes lie as they did"


def test_a_capacity_that_changes_moves_queues_to_or_from_that_node_alone() -> None:
    before, after = first(CAPACITY), first({**CAPACITY, "c": 3})
    moved = [queue for queue in QUEUES if before[queue] != after[queue]]
    assert {after[queue] for queue in moved} == {"c"}
    assert len(moved) < 0.15 * len(QUEUES), "0.6 - 0.5 of all"


def test_a_gateway_asks_by_capacity_though_nothing_is_under_way() -> None:
    fleet = NodeFleet(lambda address: None, ManualClock(), Metrics(), node_seconds=1.0)  # type: ignore[arg-type, return-value]
    fleet.set_nodes([NodePlace(name, name, capacity) for name, capacity in CAPACITY.items()])
    asked = Counter(node.name for queue in QUEUES[:2000] if (node := fleet.choose(queue, ())) is not None)
    assert asked.total() == 2000
    assert 900 < asked["c"] < 1100


@pytest.mark.parametrize("begun", [False, True])
def test_a_table_gives_a_node_of_two_twice_the_load(begun: bool) -> None:
    """Also where all lay on the small ones before: what moves goes where there is room."""
    loads = dict(zip(QUEUES[:60], zipf_days(60, 7)[:, 0].tolist(), strict=True))
    by_capacity = partial(ranked, capacity=CAPACITY)
    before = {queue: "ab"[number % 2] for number, queue in enumerate(loads)} if begun else {}
    placed = assign(loads, CAPACITY, before, by_capacity)
    held = Counter[str]()
    for queue, name in placed.items():
        held[name] += round(loads[queue])
    assert imbalance(loads, placed, CAPACITY) <= BOUND
    assert 1.6 < 2 * held["c"] / (held["a"] + held["b"]) < 2.4
    assert imbalance(loads, dict.fromkeys(loads, "c"), CAPACITY) == pytest.approx(2.0)


def test_a_new_queue_goes_where_it_weighs_least() -> None:
    one, two = QUEUES[:2]
    assert assign({one: 20.0, two: 10.0}, {"a": 1, "b": 10}, {one: "b"}, ranked)[two] == "b"
    assert assign({one: 20.0, two: 10.0}, {"a": 1, "b": 1}, {one: "b"}, ranked)[two] == "a"


# ---- what leases say


def test_a_lease_without_capacity_is_that_of_a_node_of_one() -> None:
    fields = card(capacity=5).fields()
    del fields["capacity"]
    data = encode_line({"format": 1, "number": 3, "written_ms": 0, **fields})
    found = decode_lease(data, "k", "node-1", 3)
    assert (found.capacity, found.reads) == (1, ())


def test_reads_come_with_the_card_and_a_card_without_them_is_as_it_was() -> None:
    reads = ((1, 5), ((1 << 64) - 1, 1 << 50))
    mine = card().said(MemberState.LIVE, reads)
    assert decode_lease(encode_lease(mine, 3, 9), "k", "node-1", 3) == mine
    assert "reads" not in card().fields()
    longest = Card(
        "\u00e4" * 255, f"{'h' * 249}:65535", "f" * 32, "0." + "1" * 60, 1, 2, 1_000_000, MemberState.DRAINING, 600_000,
        tuple((digest, 1 << 50) for digest in range(MOST_READS)),
    )  # fmt: skip
    assert len(encode_lease(longest, 1 << 60, 1 << 45)) <= MOST_CARD_BYTES
    for wrong in (7, [["0" * 16]], [["xyz", 1]], [["0", -1]], [["0", 1.5]], [[1, 1]]):
        with pytest.raises(Corrupt, match="cannot be read"):
            Card.parse({**card().fields(), "reads": wrong}, name="node-1", where="k")
    many = [["1", 1]] * 1000
    assert len(Card.parse({**card().fields(), "reads": many}, name="node-1", where="k").reads) == MOST_READS


def test_a_node_says_with_its_lease_how_it_is_read() -> None:
    registry, said = BucketRegistry(), [((1, 5),)]
    announcer = Announcer(registry.open(), card(), lambda: True, registry.clock, Metrics(), lambda: said[-1])
    for wanted in (((1, 5),), ((2, 6),)):
        said.append(wanted)
        for _ in range(10):
            announcer.step()
            registry.clock.advance(0.5)
        (found,) = registry.open().members().there
        assert found.card.reads == wanted


# ---- what is counted


def test_averages_come_slowly_forget_and_change_with_steps_alone() -> None:
    clock = ManualClock()
    loads = ReadLoads(clock.monotonic)
    hot, other = MessageQueue("Orders", 1), MessageQueue("Orders", 2)
    rate = 1_000_000
    told = set()
    for second in range(4 * 3600):
        loads.count(hot, rate)
        if second % 100 == 0:
            loads.count(other, 10 * rate)
        clock.advance(1.0)
        told.add(loads.said(5))
    assert len(told) == 4 * 3600 / STEP_SECONDS + 1
    said = dict(loads.said(5))
    assert said[queue_digest(hot)] == pytest.approx(rate * 3600 * (1 - 0.5**8), rel=0.01)
    assert said[queue_digest(other)] == pytest.approx(said[queue_digest(hot)] / 10, rel=0.01)
    assert [digest for digest, _ in loads.said(1)] == [queue_digest(hot)]
    clock.advance(3600.0)
    assert dict(loads.said(1))[queue_digest(hot)] == pytest.approx(said[queue_digest(hot)] / 4, rel=0.01)
    clock.advance(100 * 3600.0)
    assert loads.said(5) == ()


def test_few_queues_are_known_and_the_busiest_are() -> None:
    clock = ManualClock()
    loads = ReadLoads(clock.monotonic)
    for number in range(3 * MOST_QUEUES):
        loads.count(MessageQueue("t", number), 1_000_000 + number)
        assert len(loads._now) <= 2 * MOST_QUEUES
    clock.advance(STEP_SECONDS)
    (busiest,) = loads.said(1)
    assert busiest[0] == queue_digest(MessageQueue("t", 3 * MOST_QUEUES - 1))
    assert len(loads._hourly) == MOST_QUEUES


def test_what_several_nodes_say_is_added_up() -> None:
    assert read_loads([((1, 5), (2, 6)), (), ((2, 10),)]) == {1: 5, 2: 16}


def test_what_is_read_counts_more_than_what_is_written_and_alone_where_it_is_known() -> None:
    one, two, three = QUEUES[:3]
    written = {one: 900.0, two: 100.0}
    assert node_loads(written, {}) == written
    found = node_loads(written, {two: 50.0, three: 50.0})
    assert found == {one: 90 * WRITTEN_SHARE, two: 50 + 10 * WRITTEN_SHARE, three: 50.0}
    assert node_loads({}, {three: 5.0}) == {three: 5.0}


def test_in_simulated_days_of_readers_far_behind_what_nodes_tell_makes_them_more_even() -> None:
    written, read = backlogs(120, 4)
    written, read = written[:, :144], read[:, :144]
    nodes = nodes_of(4)
    hashed, told = run(written, nodes, "hash", read=read), run(written, nodes, "forecast", read=read)
    untold = run(written, nodes, "untold", read=read)
    assert told.mean < 0.85 * hashed.mean
    assert told.mean < 0.85 * untold.mean
