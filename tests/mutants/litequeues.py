"""Lite queues that grow old."""

from __future__ import annotations

from tests.mutants import Mutant

_AGEING = "tests/scenes/test_lite_ageing.py"

MUTANTS = (
    Mutant(
        "tiered/archive/fold/agealiases.py",
        "        ok = lowest is None or offset < lowest\n",
        "        ok = True\n",
        f"{_AGEING}::test_the_fold_lets_no_alias_go_whose_record_is_there",
    ),
    Mutant(
        "tiered/archive/fold/agealiases.py",
        "        if before[1].end == pair[1].first_offset:\n",
        "        if True:\n",
        "tests/property/test_lite_histories.py::test_the_model_agrees_after_every_commit",
    ),
    Mutant(
        "tiered/archive/rewrite/aliasplan.py",
        "            first = min(change.first_offset, found.offset) if found.passed else 0\n",
        "            first = change.first_offset\n",
        "tests/unit/test_lite_fold.py::test_what_came_back_at_the_same_offsets_stays",
    ),
    Mutant(
        "tiered/archive/rewrite/aliasplan.py",
        "    due = due_runs(rows, stretch, GROWTH)\n",
        "    due = due_runs(rows, stretch, 1)\n",
        f"{_AGEING}::test_which_runs_are_joined",
    ),
    Mutant(
        "tiered/archive/rewrite/aliascare.py",
        "        sought = Sought(digest != self._seen.digest, self._seen.lineage, above)\n",
        "        sought = Sought(True, self._seen.lineage, above)\n",
        f"{_AGEING}::test_without_a_trim_nothing_is_looked_at",
    ),
    Mutant(
        "tiered/archive/read/keptaliases.py",
        '        kept: Bools = run.rows["offset"] >= minimums[run.rows["target"]]\n',
        '        kept: Bools = run.rows["offset"] > minimums[run.rows["target"]]\n',
        f"{_AGEING}::test_aliases_go_after_their_records",
    ),
    Mutant(
        "tiered/gateway/answers/litenumbers.py",
        "        await self._numbering.require_alike(connection, queue, first, end, high)\n",
        "",
        "tests/unit/test_gateway_lite.py::test_questions_about_a_queue_that_is_numbered_otherwise_are_to_be_asked_again",
    ),
    Mutant(
        "tiered/gateway/pull/litequeues.py",
        "        if result.status is GetMessageStatus.OFFSET_TOO_SMALL and result.min_offset >= bounds.min_offset:\n",
        "        if False:\n",
        "tests/unit/test_gateway_lite.py::test_where_retention_left_less_than_the_broker_has_its_answers_stand",
    ),
    Mutant(
        "tiered/archive/read/aliascheck.py",
        "        missing = np.flatnonzero(~self._seen)\n",
        "        missing = np.flatnonzero(~self._seen)[:0]\n",
        "tests/scenes/test_alias_check.py::test_an_alias_that_no_record_tells_of",
    ),
    Mutant(
        "tiered/archive/read/aliascheck.py",
        "            if run.closed_by is None and run.queue.topic in batch.topics:\n",
        "            if run.queue.topic in batch.topics:\n",
        "tests/scenes/test_alias_check.py::test_what_retention_took_or_the_broker_lost_is_not_missed",
    ),
    Mutant(
        "tiered/store/lite.py",
        "    if begin < hole.next_begin_offset:\n",
        "    if begin <= hole.next_begin_offset:\n",
        "tests/scenes/test_lite_reading.py::test_where_retention_took_the_records_the_queue_begins_later",
    ),
    Mutant(
        "tiered/archive/read/litelookup.py",
        "            if same and generation in (None, number):\n",
        "            if generation in (None, number):\n",
        "tests/scenes/test_lite_queries.py::test_a_record_that_names_a_place_which_it_has_not_is_passed_over",
    ),
    Mutant(
        "tiered/archive/read/lookup.py",
        "                told = found if self._within is None else self._within.narrowed(run, offset, found)\n",
        "                told = found\n",
        "tests/scenes/test_lite_queries.py::test_a_key_is_looked_for_in_the_lite_queue_alone",
    ),
    Mutant(
        "tiered/gateway/answers/litenumbers.py",
        "                if must:\n",
        "                if False:\n",
        "tests/unit/test_gateway_lite.py::test_tables_of_a_queue_that_is_numbered_otherwise",
    ),
    Mutant(
        "tiered/gateway/answers/resets.py",
        '            if not await self._lite.has_more(connection, queue, "reset"):\n',
        "            if False:\n",
        "tests/unit/test_gateway_lite.py::test_a_reset_that_cannot_be_told_is_given_again",
    ),
)
