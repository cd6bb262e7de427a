"""Tenants: whose turn it is, what a budget lets through, that nobody reads around it; and that a node's read is the store's."""

from __future__ import annotations

from tests.mutants import Mutant

_FAIR = "tests/unit/test_fetch_fair.py"
_TENANTS = "tests/unit/test_fetch_tenants.py"
_NODES = "tests/scenes/test_read_nodes.py"

MUTANTS = (
    Mutant(
        "tiered/node/answers.py",
        "            int(result.max_offset),\n",
        "            int(result.max_offset) + 1,\n",
        "tests/scenes/test_gateway_over_nodes.py",
    ),
    Mutant(
        "tiered/fetch/fair.py",
        "        end = self._now + cost\n",
        "        end = self._now\n",
        f"{_FAIR}::test_tenants_that_always_wait_get_the_same_cost",
    ),
    Mutant(
        "tiered/fetch/lanes.py",
        "        self._front.push(job.share, job.size + REQUEST_COST, job)\n",
        "        self._front.push(NOBODY, 0, job)\n",
        f"{_FAIR}::test_a_group_that_reads_a_hundred_times_does_not_starve_another",
    ),
    Mutant(
        "tiered/fetch/budget.py",
        "self._waiting.push(share, size + REQUEST_COST, (size, granted))",
        "self._waiting.push(NOBODY, 0, (size, granted))",
        f"{_FAIR}::test_memory_is_given_out_by_turns",
    ),
    Mutant(
        "tiered/fetch/allowance.py",
        "            if seconds == 0 and not others:\n",
        "            if seconds == 0:\n",
        f"{_TENANTS}::test_groups_of_a_tenant_that_wait_take_turns_and_who_had_least_is_first",
    ),
    Mutant(
        "tiered/fetch/trip.py",
        "        if not self._admitted or self.at > self._begin:\n",
        "        if False:\n",
        f"{_TENANTS}::test_what_the_cache_has_costs_nothing",
    ),
    Mutant(
        "tiered/gateway/nodes/reads.py",
        "                if over.seconds >= left:\n",
        "                if False:\n",
        f"{_NODES}::test_a_tenant_over_a_nodes_budget_is_told_so_and_nobody_reads_around_it",
    ),
    Mutant(
        "tiered/gateway/knowledge/turns.py",
        "TenantGroup(rules.tenant_of(topic), group)",
        'TenantGroup("", "")',
        "tests/unit/test_gateway_parts.py::test_answers_take_turns_by_tenant_and_group",
    ),
    Mutant(
        "tiered/gateway/transport/limits.py",
        "            if not turn.cancelled():\n",
        "            if True:\n",
        "tests/unit/test_gateway_parts.py::test_answers_take_turns_by_tenant_and_group",
    ),
)
