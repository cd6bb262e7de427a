"""What a merge must keep, leave alone, and let pass."""

from __future__ import annotations

from tests.mutants import Mutant

_MERGE = "tests/scenes/test_merge.py"
_PLAN = "tests/unit/test_merge_plan.py"
_ROUNDS = "tests/scenes/test_merge_rounds.py"
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
        f"{_REWRITE}/mergeplan.py",
        "    begins = np.flatnonzero(behind >= growth * largest)\n",
        "    begins = np.flatnonzero(behind > 0)\n",
        f"{_MERGE}::test_a_merged_run_is_merged_again_once_it_grows_as_much_as_is_asked",
    ),
    Mutant(
        f"{_REWRITE}/mergeplan.py",
        "    largest = np.maximum.accumulate((rank + size)[::-1])[::-1] - rank\n",
        "    largest = np.maximum.accumulate(size[::-1])[::-1]\n",
        f"{_PLAN}::test_what_is_due_is_the_longest_end_that_grows_enough",
    ),
    Mutant(
        f"{_REWRITE}/mergeplan.py",
        "        wanted: Bools = (size < bounds.block_bytes) | objects.inline[some.at]\n",
        "        wanted: Bools = size < bounds.block_bytes\n",
        f"{_MERGE}::test_data_inside_commits_is_not_needed_any_more",
    ),
    Mutant(
        f"{_REWRITE}/mergeplan.py",
        "            end = whole or (0 if taken else max(end, 1 + window.level))\n",
        "            pass\n",
        f"{_ROUNDS}::test_the_runs_of_a_queue_are_not_divided_between_jobs",
    ),
    Mutant(
        f"{_REWRITE}/mergeplan.py",
        "        if joined and joined[-1].merged_run_bytes < bounds.settled_bytes and both.jobs(bounds) <= MOST_RANGES:\n",
        "        if False:\n",
        f"{_ROUNDS}::test_small_runs_of_many_flushes_are_taken_by_ranges_of_queues",
    ),
    Mutant(
        f"{_REWRITE}/merge.py",
        "        return self._round is not None or now >= self._next or self._much_is_fresh()\n",
        "        return self._round is not None or now >= self._next\n",
        f"{_ROUNDS}::test_a_round_begins_before_its_time_once_enough_is_fresh",
    ),
    Mutant(
        f"{_REWRITE}/merge.py",
        "        return self._round is not None or now >= self._next or self._much_is_fresh()\n",
        "        return now >= self._next or self._much_is_fresh()\n",
        f"{_ROUNDS}::test_a_round_that_began_before_its_time_comes_to_its_end",
    ),
    Mutant(
        f"{_REWRITE}/merge.py",
        "        if self._round is None or (self._grows and self._much_is_fresh()):\n",
        "        if self._round is None:\n",
        f"{_ROUNDS}::test_what_is_fresh_goes_before_what_grows",
    ),
    Mutant(
        f"{_REWRITE}/merge.py",
        "        waiting = left + sum(each.runs for each in self._round)\n",
        "        waiting = sum(each.runs for each in self._round)\n",
        f"{_ROUNDS}::test_runs_that_never_come_to_grow_are_told",
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
        "tiered/archive/log/line.py",
        "        return Priority.ARCHIVE if self.overdue else self.flush.priority\n",
        "        return self.flush.priority\n",
        f"{_LINE}::test_nothing_that_comes_later_goes_before_what_is_overdue",
    ),
    Mutant(
        "tiered/archive/log/line.py",
        "        return not self._alone and self._count() <= self._depth\n",
        "        return not self._alone\n",
        f"{_LINE}::test_what_is_overdue_takes_a_place_of_its_own_where_archiving_leaves_none",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "            overdue = self._clock.monotonic() >= self.patient_until\n",
        "            overdue = False\n",
        f"{_LOOP}::test_a_turn_commits_after_its_wait_where_no_moment_is_quiet",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "        if not quiet and not self._may_go_beside(record, now):\n",
        "        if not quiet:\n",
        f"{_LOOP}::test_beside_a_line_that_is_never_quiet_a_turn_begins_after_its_wait",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "now + min(REST_FACTOR * worked, REST_WAITS * self._wait_seconds)\n",
        "now\n",
        f"{_LOOP}::test_turns_beside_a_busy_line_take_a_tenth_of_the_time",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "now + min(REST_FACTOR * worked, REST_WAITS * self._wait_seconds)\n",
        "now + REST_FACTOR * worked\n",
        f"{_LOOP}::test_nobody_waits_longer_than_a_wait_a_turn_and_a_rest_of_each",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "                worked = seconds - (self._turn.waited_seconds - waited)\n",
        "                worked = seconds\n",
        f"{_LOOP}::test_a_turn_that_only_waited_needs_no_rest",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "        return max(ready, key=lambda task: self._overdue_seconds(task, now), default=None)\n",
        "        return next(iter(ready), None)\n",
        f"{_LOOP}::test_no_task_keeps_another_from_its_turn_for_ever",
    ),
    Mutant(
        "tiered/daemon/maintenance.py",
        "        _ = self._line.room\n",
        "",
        f"{_LOOP}::test_the_end_of_the_line_ends_it",
    ),
    Mutant(
        f"{_REWRITE}/merge.py",
        "        return windows(self._log.frozen(), self._options.bounds, self._avoided())\n",
        "        return windows(self._log.proven(), self._options.bounds, self._avoided())\n",
        f"{_MERGE}::test_what_is_archived_while_a_merge_is_planned_waits_for_the_next",
    ),
    Mutant(
        "tiered/opening/open.py",
        "        rewind = rewind_edit(self._log.frozen(), ",
        "        rewind = rewind_edit(self._log.proven(), ",
        f"{_MERGE}::test_a_merge_while_a_rewind_is_planned_leaves_nothing_of_the_lost_tail",
    ),
    Mutant(
        f"{_REWRITE}/collection.py",
        "look(log.reader, log.frozen(), ",
        "look(log.reader, log.proven(), ",
        "tests/scenes/test_collection.py -k collection_is_planned",
    ),
    Mutant(
        f"{_REWRITE}/collection.py",
        "        state = self._log.frozen()\n",
        "        state = self._log.proven()\n",
        "tests/scenes/test_collection.py -k walks_over_a_fold_that_changes",
    ),
    Mutant(
        f"{_REWRITE}/retention.py",
        "            log.reader, log.frozen(), ",
        "            log.reader, log.proven(), ",
        "tests/scenes/test_collection.py -k retention_is_planned",
    ),
    Mutant(
        "tiered/archive/care/mend.py",
        "        job = job_of(self._log.frozen(), item, bounds.job_bytes)\n",
        "        job = job_of(self._log.proven(), item, bounds.job_bytes)\n",
        "tests/scenes/test_mend.py -k walk_over_a_fold_that_changes",
    ),
    Mutant(
        "tiered/archive/care/walk.py",
        '            fold.needed_paths(f"{Area.DATA.value}/", after, head.seq),\n',
        '            fold.needed_paths(f"{Area.DATA.value}/", after),\n',
        "tests/scenes/test_scrub.py -k need_not_be_listed",
    ),
    Mutant(
        f"{_REWRITE}/merge.py",
        "            self._objects = KnownObjects.of(state, avoided, self._objects)\n",
        "            self._objects = KnownObjects.of(state, avoided)\n",
        f"{_MERGE}::test_the_jobs_of_a_round_list_objects_once_and_find_what_others_added",
    ),
    Mutant(
        f"{_REWRITE}/seal.py",
        "KnownObjects.of(state, avoided, self._objects)\n",
        "KnownObjects.of(state, avoided)\n",
        "tests/scenes/test_seal.py::test_the_jobs_of_a_round_list_objects_once",
    ),
    Mutant(
        f"{_REWRITE}/plan.py",
        "        usable = ~np.isin(code, ",
        "        usable = np.isin(code, code) | np.isin(code, ",
        f"{_MERGE}::test_a_lost_object_is_left_out",
    ),
)
