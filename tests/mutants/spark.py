"""Rows of a scan and batches of a stream: none lost, none twice."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = (
    Mutant(
        "spark/tiered_spark/rows.py",
        "        if commits is not None and appended_by is not None:\n            good",
        "        if False:\n            good",
        "tests/spark/test_spark_edits.py::test_a_stream_across_merges",
    ),
    Mutant(
        "spark/tiered_spark/stream.py",
        "        _check(asked, ends)\n",
        "",
        "tests/spark/test_spark_edits.py::test_a_batch_that_is_done_again_needs_what_was_planned",
    ),
    Mutant(
        "spark/tiered_spark/stream.py",
        "        return max(over - 1, int(commits.min()))\n",
        "        return over\n",
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
        "    whole[at] = np.array(counts, np.int64) == np.add.reduceat(rows, starts)[at]\n",
        "",
        "tests/spark/test_spark_aged.py::test_a_file_whose_last_rows_are_dead_is_cut",
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
        "tests/spark/test_spark_aged.py -k test_options_choose_the_same_rows",
    ),
)
