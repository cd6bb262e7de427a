"""Placement that learns: which forecast is believed, what moves, and that a home is asked only while it is there."""

from __future__ import annotations

from tests.mutants import Mutant

_LEARNED = "tests/unit/test_placement_learned.py"

MUTANTS = (
    Mutant(
        "tiered/placement/forecast.py",
        "model < MARGIN * baseline",
        "model < 1000 * baseline",
        f"{_LEARNED}::test_a_model_that_is_worse_is_never_believed",
    ),
    Mutant(
        "tiered/placement/assign.py",
        "        if held[full] <= BOUND * mean:\n            return\n",
        "",
        f"{_LEARNED}::test_known_queues_stay_while_moving_gains_little",
    ),
    Mutant(
        "tiered/placement/assign.py",
        "    order = sorted(loads, key=lambda queue: (-loads[queue], queue))\n",
        "    order = list(loads)\n",
        f"{_LEARNED}::test_everybody_computes_the_same_in_any_order",
    ),
    Mutant(
        "tiered/gateway/nodes/placement.py",
        "    if home is not None and home in order:\n        order.remove(home)\n",
        "    if home is not None:\n",
        f"{_LEARNED}::test_a_home_comes_first_and_only_if_it_is_there",
    ),
    Mutant(
        "tiered/placement/table.py",
        "    number = before + 1\n",
        "    number = before + 2\n",
        f"{_LEARNED}::test_tables_are_numbered_and_the_second_writer_is_told",
    ),
)
