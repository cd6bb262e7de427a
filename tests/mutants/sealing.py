"""What sealing must put where, leave alone, and let pass."""

from __future__ import annotations

from tests.mutants import Mutant

_SEAL = "tests/scenes/test_seal.py"
_REWRITE = "tiered/archive/rewrite"

MUTANTS = (
    Mutant(
        "tiered/archive/rewrite/sealedday.py",
        "            self.nullable |= late.columns\n            spool.restart()\n",
        "            self.nullable |= late.columns\n",
        f"{_SEAL} -k test_columns_that_have_nulls_after_all",
    ),
    Mutant(
        "tiered/archive/rewrite/seal.py",
        "                self._nullable[what.topic] = day.nullable\n",
        "                pass\n",
        f"{_SEAL} -k test_columns_that_have_nulls_after_all",
    ),
    Mutant(
        "tiered/archive/read/held.py",
        "                del self._kept[next(iter(self._kept))]\n",
        "                break\n",
        f"{_SEAL}::test_of_what_is_kept_of_objects_the_newest_stays",
    ),
    Mutant(
        f"{_REWRITE}/sources.py",
        "            self._held.keep(key, *rows.columns_range(self._objects))\n",
        "            pass\n",
        f"{_SEAL}::test_a_window_asks_its_source_for_neighbouring_blocks_and_no_columns_twice",
    ),
    Mutant(
        f"{_REWRITE}/sealing.py",
        "        share_allocator()  # columns are made by one thread and let go of by another\n",
        "",
        f"{_SEAL}::test_what_is_sealed_takes_its_memory_where_the_process_does",
    ),
    Mutant(
        f"{_REWRITE}/sealing.py",
        "                self._stored_share = max(LEAST_SHARE, stored / int(window.edges[-1]))\n",
        "                self._stored_share = LEAST_SHARE\n",
        f"{_SEAL}::test_windows_are_as_long_as_their_blocks_are_short",
    ),
    Mutant(
        f"{_REWRITE}/writing.py",
        "            if self._last.take <= left:\n",
        "            if False:\n",
        f"{_SEAL}::test_blocks_are_opened_when_their_records_are_wanted_and_those_between_are_not",
    ),
    Mutant(
        f"{_REWRITE}/sealing.py",
        "            if not ours[a]:\n",
        "            if False:\n",
        f"{_SEAL}::test_what_a_run_leaves_to_other_days_is_written_anew_and_sealed_with_its_own",
    ),
    Mutant(
        f"{_REWRITE}/sealing.py",
        '            end_offset = int(gathered.queue_offset[b]) if goes_on else int(run["end"])\n',
        '            end_offset = int(run["end"])\n',
        f"{_SEAL}::test_what_a_run_leaves_to_other_days_is_written_anew_and_sealed_with_its_own",
    ),
    Mutant(
        f"{_REWRITE}/sealing.py",
        "        return at.written >= self._shape.segment_bytes or at.rest_bytes >= self._shape.rest_bytes\n",
        "        return at.written >= self._shape.segment_bytes\n",
        f"{_SEAL}::test_what_is_left_to_other_days_is_bounded",
    ),
    Mutant(
        f"{_REWRITE}/sealplan.py",
        "        return (now_ms - self.min_age_ms) // ONE_DAY_MS * ONE_DAY_MS\n",
        "        return now_ms // ONE_DAY_MS * ONE_DAY_MS\n",
        f"{_SEAL}::test_a_day_that_is_not_over_for_long_enough_waits",
    ),
    Mutant(
        f"{_REWRITE}/sealplan.py",
        '    found: Bools = (runs["closed_by"] == what.closed_by) & (',
        '    found: Bools = (runs["closed_by"] >= -1) & (',
        f"{_SEAL}::test_trimmed_and_rewound_runs_keep_their_live_part_and_closed_history_its_own_files",
    ),
    Mutant(
        f"{_REWRITE}/sealplan.py",
        "    found = np.flatnonzero(there)[: bounds.job_objects]\n",
        "    found = np.flatnonzero(there)\n",
        f"{_SEAL}::test_a_job_reads_no_more_objects_and_replaces_no_more_runs_than_it_may",
    ),
    Mutant(
        f"{_REWRITE}/swap.py",
        "        if not targets or any(_epoch(made.data) != place.epoch for made in self.made):\n",
        "        if not targets:\n",
        f"{_SEAL}::test_a_job_of_an_epoch_that_is_over_is_dropped",
    ),
    Mutant(
        f"{_REWRITE}/seal.py",
        "            self._left_out = replace(self._left_out, objects=self._left_out.objects | {damaged.ref})\n",
        "            self._pop()\n",
        f"{_SEAL}::test_a_source_that_is_damaged_is_left_out_and_told",
    ),
    Mutant(
        f"{_REWRITE}/seal.py",
        "            while not wait((put,), LOOK_SECONDS).done:\n                turn.spend(0)\n",
        "            wait((put,))\n",
        f"{_SEAL}::test_a_file_that_is_long_on_its_way_is_no_silent_step",
    ),
    Mutant(
        f"{_REWRITE}/uploads.py",
        "    return isinstance(made, ObjectKey) and (made.epoch < epoch or own_keys.gave_up(path))\n",
        "    return isinstance(made, ObjectKey) and made.epoch <= epoch\n",
        f"{_SEAL}::test_uploads_of_writers_before_and_those_given_up_are_given_up",
    ),
    Mutant(
        "tiered/codec/segment/cutting.py",
        "        if part.begins and stretch:\n",
        "        if stretch:\n",
        "tests/unit/test_segment_file.py::test_a_part_that_goes_on_is_the_same_run",
    ),
    Mutant(
        "tiered/archive/read/held.py",
        "            self._spend(length or 0)\n",
        "            pass\n",
        f"{_SEAL}::test_everything_that_is_read_and_written_is_told",
    ),
    Mutant(
        f"{_REWRITE}/seal.py",
        "        return sealable(self._log.frozen(), self._options.bounds, self._clock.now_ms(), self._avoided())\n",
        "        return sealable(self._log.proven(), self._options.bounds, self._clock.now_ms(), self._avoided())\n",
        f"{_SEAL}::test_what_is_archived_while_a_day_is_planned_waits",
    ),
    Mutant(
        f"{_REWRITE}/seal.py",
        "        if not self._round:\n            self._round = [",
        "        if self._round is None:\n            self._round = [",
        f"{_SEAL}::test_a_round_seals_days_in_which_no_run_began",
    ),
    Mutant(
        f"{_REWRITE}/sealplan.py",
        '(days_of(runs["min_store_time"]) == what.day)\n',
        '(\n        (days_of(runs["min_store_time"]) <= what.day) & (days_of(runs["max_store_time"]) >= what.day)\n    )\n',
        f"{_SEAL}::test_what_lost_its_turn_is_not_written_again_and_again_with_days_behind_it",
    ),
    Mutant(
        f"{_REWRITE}/seal.py",
        "                self._expect_the_rest(what, made)\n",
        "",
        f"{_SEAL}::test_what_is_cut_at_midnight_is_sealed_with_all_else_of_its_day",
    ),
)
