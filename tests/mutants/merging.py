"""What a merge must keep, leave alone, and let pass."""

from __future__ import annotations

from tests.mutants import Mutant

_MERGE = "tests/unit/test_merge.py"
_LINE = "tests/unit/test_line.py"
_LOOP = "tests/unit/test_maintenance.py"
_REWRITE = "tiered/archive/rewrite"

MUTANTS = (
    Mutant(
        f"{_REWRITE}/swap.py",
        "            if target.queue not in changed\n",
        "            if True\n",
        f"{_MERGE}::test_a_queue_that_was_trimmed_meanwhile_is_left_out",
    ),
    Mutant(
        f"{_REWRITE}/plan.py",
        "            if not gathered or weights[i] > min(gathered, room):\n",
        "            if not gathered:\n",
        f"{_MERGE}::test_a_merged_run_is_merged_again_once_as_much_lies_behind_it",
    ),
    Mutant(
        f"{_REWRITE}/plan.py",
        "            fresh = (level == 0) & (small | objects.inline[at])\n",
        "            fresh = (level == 0) & small\n",
        f"{_MERGE}::test_data_inside_commits_is_not_needed_any_more",
    ),
    Mutant(
        f"{_REWRITE}/sources.py",
        "            raise UnevenCut(self._mine[~even])\n",
        "            pass\n",
        f"{_MERGE}::test_a_trim_into_an_inner_batch_leaves_its_run_as_it_is",
    ),
    Mutant(
        f"{_REWRITE}/sources.py",
        '            runs["commit_seq"][of[live]] if item.level == 0 else columns["commit_seq"][kept].astype(np.int64)\n',
        '            runs["commit_seq"][of[live]]\n',
        f"{_MERGE}::test_commits_of_rows_outlive_a_second_merge",
    ),
    Mutant(
        "tiered/opening/rewind.py",
        "        active = [run for run in active if run.physical_end > high]\n",
        "        active = []\n",
        f"{_MERGE}::test_records_are_compared_with_the_broker_in_its_own_order",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "        return not self._alone and not self._waiting and self._count() < max(1, self._depth - 1)\n",
        "        return not self._alone and not self._waiting and self._count() < self._depth\n",
        f"{_LINE}::test_what_is_offered_takes_a_place_only_where_one_more_may_follow",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "                if not (entry.offered and isinstance(e, Exception)):\n",
        "                if True:\n",
        f"{_LINE}::test_an_offer_that_breaks_a_rule_ends_nothing_but_itself",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "        _ = self._line.room\n",
        "",
        f"{_LOOP}::test_the_end_of_the_line_ends_it",
    ),
    Mutant(
        f"{_REWRITE}/proposals.py",
        "        if made.archive_id != reader.identity.archive_id:\n",
        "        if False:\n",
        "tests/unit/test_proposals.py -k another",
    ),
    Mutant(
        f"{_REWRITE}/proposals.py",
        "        if found is None or found.commit.commit_id != made.commit_id:\n",
        "        if found is None:\n",
        "tests/unit/test_proposals.py -k another",
    ),
    Mutant(
        f"{_REWRITE}/proposals.py",
        "                raise looked.damage\n",
        "                pass\n",
        "tests/unit/test_proposals.py -k flipped",
    ),
    Mutant(
        f"{_REWRITE}/merge.py",
        "        return windows(self._log.frozen(), self._options.bounds, self._avoided())\n",
        "        return windows(self._log.proven(), self._options.bounds, self._avoided())\n",
        f"{_MERGE}::test_what_is_archived_while_a_merge_is_planned_waits_for_the_next",
    ),
)
