"""Placement by predicted load: loads from history, their forecast, and where queues go."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from tests.kit.assemble import KEYS, memory
from tests.kit.placementsim import batch_jobs, flash_crowds, named, nodes_of, run
from tiered.archive.keys import PLACEMENT_PREFIX
from tiered.archive.state.values import RunState
from tiered.clock import ManualClock
from tiered.daemon.placing import Placing
from tiered.errors import Conflict, Corrupt
from tiered.gateway.nodes.fleet import NodeFleet, NodePlace
from tiered.gateway.nodes.placement import preferred, ranked
from tiered.metrics import Metrics
from tiered.model import MessageQueue, ObjectRef, RunId
from tiered.placement.assign import BOUND, MOST_MOVES, assign, imbalance
from tiered.placement.forecast import forecast
from tiered.placement.history import HOUR_MS, MOST_QUEUES, LoadHistory, Loads, load_history
from tiered.placement.table import (
    KEPT,
    PlacementTable,
    decode_table,
    encode_table,
    newest_table,
    publish_table,
    queue_digest,
    table_numbers,
    with_quiet_homes,
)

NODES = nodes_of(4)
QUEUES = named(40)


def alike(nodes: list[str]) -> dict[str, int]:
    """Nodes of capacity 1."""
    return dict.fromkeys(nodes, 1)


def loads_of(seed: int) -> dict[MessageQueue, float]:
    drawn = random.Random(seed)
    return {queue: drawn.lognormvariate(10, 1.2) for queue in QUEUES}


# ---- where queues go


def test_everybody_computes_the_same_in_any_order() -> None:
    loads = loads_of(1)
    before = {queue: NODES[n % 4] for n, queue in enumerate(QUEUES[:20])}
    found = assign(loads, alike(NODES), before, ranked)
    turned = dict(reversed(loads.items()))
    assert found == assign(turned, alike(NODES[::-1]), dict(reversed(before.items())), ranked)
    assert set(found) == set(QUEUES)


def test_new_queues_go_where_predicted_load_is_lowest() -> None:
    known = {QUEUES[0]: 100.0, QUEUES[1]: 50.0, QUEUES[2]: 10.0}
    before = {QUEUES[n]: NODES[n] for n in range(3)}
    found = assign(known | {QUEUES[3]: 30.0, QUEUES[4]: 5.0}, alike(NODES), before, ranked)
    assert found[QUEUES[3]] == NODES[3]
    assert found[QUEUES[4]] == NODES[2]


def test_known_queues_stay_while_moving_gains_little() -> None:
    loads = loads_of(2)
    even = assign(loads, alike(NODES), {}, ranked)
    drawn = random.Random(3)
    nearly = {queue: load * drawn.uniform(0.98, 1.02) for queue, load in loads.items()}
    assert imbalance(nearly, even, alike(NODES)) <= BOUND
    assert assign(nearly, alike(NODES), even, ranked) == even
    at = {QUEUES[0]: NODES[0], QUEUES[1]: NODES[0], QUEUES[2]: NODES[1]}
    assert assign({QUEUES[0]: 102.0, QUEUES[1]: 3.0, QUEUES[2]: 95.0}, alike(NODES[:2]), at, ranked) == at
    assert assign({QUEUES[0]: 118.0, QUEUES[1]: 10.0, QUEUES[2]: 92.0}, alike(NODES[:2]), at, ranked) != at


def test_a_hot_queue_makes_others_move_and_not_more_than_needed() -> None:
    loads = dict.fromkeys(QUEUES, 10.0)
    even = assign(loads, alike(NODES), {}, ranked)
    hot = loads | {QUEUES[0]: 60.0}
    found = assign(hot, alike(NODES), even, ranked)
    moved = [queue for queue in QUEUES if found[queue] != even[queue]]
    assert 0 < len(moved) <= 5
    assert QUEUES[0] not in moved
    assert imbalance(hot, found, alike(NODES)) < imbalance(hot, even, alike(NODES))
    everything = dict.fromkeys(QUEUES, NODES[0])
    assert (
        sum(node != NODES[0] for node in assign(loads, alike(NODES), everything, ranked).values())
        <= MOST_MOVES
    )


def test_a_node_that_goes_moves_its_own_queues_alone() -> None:
    loads = dict.fromkeys(QUEUES, 10.0)
    before = assign(loads, alike(NODES), {}, ranked)
    after = assign(loads, alike(NODES[1:]), before, ranked)
    assert all(after[queue] == before[queue] for queue in QUEUES if before[queue] != NODES[0])
    assert imbalance(loads, after, alike(NODES[1:])) <= BOUND
    assert assign(loads, {}, before, ranked) == {}


# ---- history


def a_run(queue: MessageQueue, first_ms: int, last_ms: int, size: int) -> RunState:
    return RunState(
        queue, 1, 1, RunId(1, 0), ObjectRef(1, 0), 0, 10, 0, 10, 10, 0, size, first_ms, last_ms, 0, 0, 1, 0, size, None
    )  # fmt: skip


def test_bytes_of_a_run_count_over_its_time() -> None:
    base = 100 * HOUR_MS
    half = HOUR_MS // 2
    runs = [
        a_run(QUEUES[0], base + half, base + 2 * HOUR_MS + half - 1, 1000),
        a_run(QUEUES[1], base + 5, base + 5, 70),
        a_run(QUEUES[0], base - 9 * HOUR_MS, base - 8 * HOUR_MS, 5000),  # before all steps
        a_run(QUEUES[1], base + 3 * HOUR_MS, base + 3 * HOUR_MS, 9),  # not over yet
    ]
    history = load_history(runs, base + 3 * HOUR_MS + 17, steps=4)
    assert history.begin_ms == base - HOUR_MS
    assert history.queues == (QUEUES[0], QUEUES[1])
    assert history.loads.round(6).tolist() == [[0, 250, 500, 250], [0, 70, 0, 0]]
    assert load_history([], base, steps=4).loads.shape == (0, 4)


# ---- forecasts


def history(loads: Loads) -> LoadHistory:
    return LoadHistory(named(len(loads)), loads, 0)


def test_a_day_that_comes_again_is_foreseen_and_the_error_says_so() -> None:
    steps = np.arange(240)
    loads = np.stack([np.where((steps + n) % 24 < 2, 1e6, 1e4) for n in range(20)])
    found = forecast(history(loads))
    coming = np.where((240 + np.arange(20)) % 24 < 2, 1e6, 1e4)
    assert np.abs(found.loads - coming).sum() / coming.sum() < 0.5
    assert found.error < 0.5
    noise = np.random.default_rng(1).permuted(loads, axis=1)
    assert forecast(history(noise)).error > 0.8
    assert forecast(history(loads[:, :1])).error == 0.0


def test_a_forecast_is_the_same_for_the_same_history() -> None:
    loads = flash_crowds(50, 9)
    one, other = (forecast(history(loads)) for _ in range(2))
    assert one.loads.tolist() == other.loads.tolist()
    assert np.isfinite(one.loads).all()
    assert (one.loads >= 0).all()


def test_in_simulated_days_a_forecast_is_more_even_than_hashing_and_moves_little() -> None:
    loads = batch_jobs(120, 4)[:, :144]
    hashed, now = (run(loads, NODES, how) for how in ("hash", "now"))
    foreseen = run(loads, NODES, "forecast")
    assert foreseen.mean < 0.9 * hashed.mean
    assert foreseen.mean < now.mean + 0.02
    assert foreseen.moved < 0.1
    assert hashed.moved == 0


# ---- the table, and gateways


def table(homes: dict[MessageQueue, str]) -> PlacementTable:
    digests = {queue_digest(queue): node for queue, node in homes.items()}
    return PlacementTable(tuple(NODES), digests, dict.fromkeys(digests, 7), 1_700_000_000_000)


def test_a_table_comes_back_and_damage_is_found() -> None:
    made = table({queue: NODES[n % 4] for n, queue in enumerate(QUEUES)})
    data = encode_table(made, 9)
    assert decode_table(data, "k", 9) == made
    assert b"Topic" not in data, "it names no topic"
    with pytest.raises(Corrupt):
        decode_table(data, "k", 8)
    for at in range(0, len(data), 97):
        with pytest.raises(Corrupt):
            decode_table(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "k", 9)
    with pytest.raises(Corrupt):
        decode_table(encode_table(replace(made, loads=dict.fromkeys(made.homes, -1)), 9), "k", 9)


def test_a_queue_that_is_quiet_keeps_its_home() -> None:
    before = {1: NODES[0], 2: NODES[1], 3: "gone"}
    assert with_quiet_homes({2: NODES[2]}, before, NODES) == {1: NODES[0], 2: NODES[2]}
    many = dict.fromkeys(range(MOST_QUEUES), NODES[0])
    assert with_quiet_homes(many, {MOST_QUEUES + 1: NODES[0]}, NODES) == many


def test_tables_are_numbered_and_the_second_writer_is_told() -> None:
    store = memory(ManualClock())
    assert newest_table(store, KEYS) == (-1, None)
    for number in range(6):
        assert publish_table(store, KEYS, table({QUEUES[0]: NODES[number % 4]}), number - 1) == number
    assert table_numbers(store, KEYS) == [6 - KEPT + n for n in range(KEPT)]
    assert newest_table(store, KEYS) == (5, table({QUEUES[0]: NODES[1]}))
    assert newest_table(store, KEYS, 5) == (5, None)
    with pytest.raises(Conflict):
        publish_table(store, KEYS, table({QUEUES[0]: NODES[3]}), 4)
    assert len(list(store.list(KEYS.key(PLACEMENT_PREFIX)))) == KEPT


def test_a_home_comes_first_and_only_if_it_is_there() -> None:
    queue, order = QUEUES[3], ranked(QUEUES[3], NODES)
    homes = {queue_digest(queue): order[2]}
    assert preferred(queue, NODES, {}) == order
    assert preferred(queue, NODES, homes) == [order[2], order[0], order[1], order[3]]
    assert preferred(QUEUES[4], NODES, homes) == ranked(QUEUES[4], NODES)
    assert preferred(queue, order[:2], homes) == ranked(queue, order[:2])


def test_a_gateway_follows_the_newest_table_and_keeps_it_when_the_next_is_damaged() -> None:
    clock = ManualClock()
    store, fleet = memory(clock), NodeFleet(lambda address: None, clock, Metrics(), node_seconds=1.0)  # type: ignore[arg-type, return-value]
    placing = Placing(store, KEYS, fleet, clock)
    queue = QUEUES[3]
    last = ranked(queue, NODES)[-1]
    placing.step()
    assert fleet.homes == {}
    publish_table(store, KEYS, table({queue: last}), -1)
    placing.step()
    fleet.set_nodes([NodePlace(name, name) for name in NODES])
    chosen = fleet.choose(queue, ())
    assert chosen is not None
    assert chosen.name == last
    store.put(KEYS.placement(1), [b"damaged"])
    placing.step()
    assert fleet.homes == table({queue: last}).homes
    assert "damaged" in str(placing.status()["problem"])
    publish_table(store, KEYS, table({}), 1)
    placing.step()
    assert (fleet.homes, placing.problem) == ({}, None)
    for stored in list(store.list(KEYS.key(PLACEMENT_PREFIX))):
        store.delete(stored.key)
    placing.step()
    assert placing.status()["table"] is None
