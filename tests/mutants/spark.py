"""Rows of a scan and batches of a stream: none lost, none twice."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "spark/tiered_spark/there.py",
        "    if gone is not None:\n",
        "    if False:\n",
        "tests/spark/test_spark_edits.py::test_the_past_before_a_trim",
    ),
    Mutant(
        "spark/tiered_spark/snapshot.py",
        "    if made is None:\n        return reader.view\n",
        "    return reader.view\n",
        "tests/spark/test_spark_archives.py::test_a_broker_whose_log_is_lost_is_damage",
    ),
    Mutant(
        "spark/tiered_spark/rows.py",
        "        if commits is not None and appended_by is not None:\n            queues",
        "        if False:\n            queues",
        "tests/spark/test_spark_edits.py::test_a_stream_across_merges",
    ),
    Mutant(
        "spark/tiered_spark/positions.py",
        "        inside = (side < 0) | ((side == 0) & (offsets < self.offset))\n",
        "        inside = (side <= 0)\n",
        "tests/spark/test_spark_edits.py -k larger_than_a_batch",
    ),
    Mutant(
        "spark/tiered_spark/stream.py",
        "        _check(asked, ends)\n",
        "",
        "tests/spark/test_spark_edits.py::test_a_batch_that_is_done_again_needs_what_was_planned",
    ),
    Mutant(
        "spark/tiered_spark/stream.py",
        "            return Position(over - 1)\n",
        "            return Position(over)\n",
        "tests/spark/test_spark_edits.py::test_limits_do_not_reach_beyond_an_edit",
    ),
    Mutant(
        "spark/tiered_spark/ranges.py",
        "_HIGH if end is None else end - 1)",
        "_HIGH if end is None else end)",
        "tests/spark/test_spark_rows.py -k test_offsets",
    ),
    Mutant(
        "spark/tiered_spark/rows.py",
        "        good &= (self.offsets >= first) & (self.offsets <= last) & (stored_at",
        "        good &= (stored_at",
        "tests/spark/test_spark_rows.py -k test_offsets",
    ),
    Mutant(
        "tiered/archive/read/runs.py",
        "        found: Bools = (offsets >= low) & (offsets < high)\n",
        "        found: Bools = (offsets >= low) & (offsets <= high)\n",
        "tests/spark/test_spark_edits.py -k test_a_plan_made_before_an_edit_gives_its_snapshot",
    ),
    Mutant(
        "tiered/archive/read/runs.py",
        "        found: Bools = (offsets >= low) & (offsets < high)\n",
        "        found: Bools = offsets < high\n",
        "tests/spark/test_spark_edits.py -k test_scans_beside_edits_at_random",
    ),
    Mutant(
        "spark/tiered_spark/sealedfiles.py",
        "    whole &= proof.known & (proof.rows == np.add.reduceat(rows, starts))\n",
        "    whole &= proof.known\n",
        "tests/spark/test_spark_aged.py::test_a_file_whose_last_rows_are_dead_is_cut",
    ),
    Mutant(
        "spark/tiered_spark/provenfiles.py",
        "    if found.length != item.length:\n",
        "    if found.length > item.length:\n",
        "tests/spark/test_spark_frame.py -k test_no_file_is_passed_over_because_it_became_another",
    ),
    Mutant(
        "spark/tiered_spark/provenfiles.py",
        "    if kept is not None and kept.stored == told and kept.indexed:\n",
        "    if kept is not None and kept.indexed:\n",
        "tests/spark/test_spark_frame.py -k test_no_file_is_passed_over_because_it_became_another",
    ),
    Mutant(
        "spark/tiered_spark/provenfiles.py",
        "        reader.filters(tables)\n",
        "        pass\n",
        "tests/spark/test_spark_frame.py -k test_filters_and_page_index_are_proven_or_not_used",
    ),
    Mutant(
        "spark/tiered_spark/sealedframe.py",
        '    "parquet.filter.bloom.enabled": "false",\n',
        "",
        "tests/spark/test_spark_frame.py -k test_filters_and_page_index_are_proven_or_not_used",
    ),
    Mutant(
        "spark/tiered_spark/plan.py",
        "    return runs if options.sealed else",
        "    return runs if True else",
        "tests/spark/test_spark_aged.py::test_what_is_not_sealed_yet",
    ),
    Mutant(
        "spark/tiered_spark/pruning.py",
        "            good |= mine & (firsts <= offset) & (offset < ends)\n",
        "            good |= mine & (firsts > offset) & (offset < ends)\n",
        "tests/spark/test_spark_aged.py -k test_tasks_find_keys_in_sealed_files_by_themselves",
    ),
    Mutant(
        "spark/tiered_spark/plan_keys.py",
        "offsets[high - 1] + 1, True\n",
        "offsets[high - 1], True\n",
        "tests/spark/test_spark_aged.py -k test_of_a_sealed_file_the_plan_names_the_rows_that_have_a_key",
    ),
    Mutant(
        "spark/tiered_spark/snapshot.py",
        "    store = PartialStore(scope_of(options))\n    reader",
        "    store = PartialStore()\n    reader",
        "tests/spark/test_spark_queues.py -k test_topics_among_many_take_few_requests",
    ),
    Mutant(
        "spark/tiered_spark/queues.py",
        "        walked += CHUNK ",
        "        walked += 0 ",
        "tests/spark/test_spark_queues.py -k test_topics_among_many_take_few_requests",
    ),
    Mutant(
        "spark/tiered_spark/runs.py",
        "        self.queue[:] = self.queue[order]\n",
        "        pass\n",
        "tests/spark/test_job_queues.py::test_partitions_hold_every_run_of_its_own_queue_in_the_order_of_objects",
    ),
    Mutant(
        "spark/tiered_spark/runs.py",
        "found = np.array([rank.get(key[1:-_OFFSET_BYTES], -1) for",
        "found = np.array([rank.get(key[1:-_OFFSET_BYTES], 0) for",
        "tests/spark/test_spark_queues.py -k test_runs_of_chosen_queues_are_those_of_a_walk_over_all",
    ),
    Mutant(
        "tiered/archive/checkpoint/partial.py",
        "if layers.begun <= seq else None",
        "if layers.begun <= seq + 1 else None",
        "tests/spark/test_spark_queues.py::test_what_a_batch_adds_is_found_without_a_walk",
    ),
    Mutant(
        "spark/tiered_spark/loss.py",
        "pairs = put_since(snapshot.view.state, QUEUE, choice, seen.commit)",
        "pairs = None",
        "tests/spark/test_job_queues.py::test_a_batch_looks_only_at_queues_that_changed",
    ),
    Mutant(
        "spark/tiered_spark/loss.py",
        "| (first > before[",
        "| (first < before[",
        "tests/spark/test_spark_bounds.py::test_what_retention_took_from_a_stream",
    ),
    Mutant(
        "spark/tiered_spark/queues.py",
        'good, topics = choice.takes(tails["id"]), _Topics(choice)',
        'good, topics = tails["offset"] > 0, _Topics(choice)',
        "tests/spark/test_job_queues.py -k test_tables_after_any_history",
    ),
)
