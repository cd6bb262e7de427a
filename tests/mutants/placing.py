"""Placement by predicted load: the forecast, what moves, and that a home is asked only while it is there."""

from __future__ import annotations

from tests.mutants import Mutant

_PLACEMENT = "tests/unit/test_placement.py"
_CAPACITY = "tests/unit/test_placement_capacity.py"

MUTANTS = (
    Mutant(
        "tiered/placement/forecast.py",
        "0.25 * self._level + 0.75 * usual * trend",
        "self._level",
        f"{_PLACEMENT}::test_a_day_that_comes_again_is_foreseen_and_the_error_says_so",
    ),
    Mutant(
        "tiered/placement/assign.py",
        "        if held[full] <= BOUND * mean * nodes[full]:\n            return\n",
        "",
        f"{_PLACEMENT}::test_known_queues_stay_while_moving_gains_little",
    ),
    Mutant(
        "tiered/placement/assign.py",
        "    order = sorted(loads, key=lambda queue: (-loads[queue], queue))\n",
        "    order = list(loads)\n",
        f"{_PLACEMENT}::test_everybody_computes_the_same_in_any_order",
    ),
    Mutant(
        "tiered/gateway/nodes/placement.py",
        "    if home is not None and home in order:\n        order.remove(home)\n",
        "    if home is not None:\n",
        f"{_PLACEMENT}::test_a_home_comes_first_and_only_if_it_is_there",
    ),
    Mutant(
        "tiered/placement/table.py",
        "    number = before + 1\n",
        "    number = before + 2\n",
        f"{_PLACEMENT}::test_tables_are_numbered_and_the_second_writer_is_told",
    ),
    Mutant(
        "tiered/placement/assign.py",
        "        after = {name: (load + loads[queue]) / nodes[name] for name, load in held.items()}\n",
        "        after = {name: load + loads[queue] for name, load in held.items()}\n",
        f"{_CAPACITY}::test_a_new_queue_goes_where_it_weighs_least",
    ),
    Mutant(
        "tiered/placement/assign.py",
        "        if held[full] <= BOUND * mean * nodes[full]:\n",
        "        if held[full] <= BOUND * mean * 2:\n",
        f"{_CAPACITY}::test_a_table_gives_a_node_of_two_twice_the_load",
    ),
    Mutant(
        "tiered/gateway/nodes/placement.py",
        "capacity.get(node, 1) / -log(",
        "1 / -log(",
        f"{_CAPACITY}::test_a_node_of_two_is_first_for_twice_as_many_queues",
    ),
    Mutant(
        "tiered/gateway/nodes/fleet.py",
        "preferred(queue, live, self.homes, capacity)",
        "preferred(queue, live, self.homes)",
        f"{_CAPACITY}::test_a_gateway_asks_by_capacity_though_nothing_is_under_way",
    ),
    Mutant(
        "tiered/placement/readloads.py",
        "load * left for queue",
        "load for queue",
        f"{_CAPACITY}::test_averages_come_slowly_forget_and_change_with_steps_alone",
    ),
    Mutant(
        "tiered/placement/readloads.py",
        "            if len(self._now) > 2 * MOST_QUEUES:\n",
        "            if False:\n",
        f"{_CAPACITY}::test_few_queues_are_known_and_the_busiest_are",
    ),
    Mutant(
        "tiered/cli/members.py",
        "        if is_silent(member):\n",
        "        if False:\n",
        "tests/scenes/test_cli_placement.py::test_nodes_are_those_that_have_announced_themselves",
    ),
)
