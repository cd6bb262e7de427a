"""What the daemon says when nothing moves, and what it waits for instead of ending."""

from __future__ import annotations

from tests.mutants import Mutant

_SAID = "tests/unit/test_stillness.py"
_APP = "tests/scenes/test_app.py"
_SHELL = "tests/unit/test_daemon_shell.py"

MUTANTS = (
    Mutant(
        "tiered/daemon/stillness.py",
        "            if max(unseen, still) < self._limit:\n",
        "            if still < self._limit:\n",
        f"{_SAID}::test_a_look_that_hangs_is_a_stall_too",
    ),
    Mutant(
        "tiered/daemon/stillness.py",
        "            elif self._since is None or proven != self._proven:\n",
        "            elif self._since is None:\n",
        f"{_SAID}::test_progress_and_idleness_are_no_stall",
    ),
    Mutant(
        "tiered/daemon/stillness.py",
        "            if local_end <= (proven or 0):\n",
        "            if proven is None or local_end <= proven:\n",
        f"{_SAID}::test_an_archive_that_does_not_open_is_a_stall",
    ),
    Mutant(
        "tiered/daemon/checkpointer.py",
        "            self._unsaved_since = self._clock.monotonic()\n",
        "            pass\n",
        "tests/unit/test_status.py::test_commits_that_no_checkpoint_holds_are_told_after_a_few_intervals",
    ),
    Mutant(
        "tiered/daemon/status.py",
        "max(age, self._stillness.seconds())",
        "age",
        f"{_SAID}::test_lag_in_seconds_is_a_number_whatever_the_clock_and_the_bytes_say",
    ),
    Mutant(
        "tiered/daemon/status.py",
        "self._source.min_offset() or PhysicalOffset(0)",
        "self._source.max_offset()",
        f"{_SAID}::test_before_the_first_position_is_known_lag_is_what_lies_there",
    ),
    Mutant(
        "tiered/daemon/outages.py",
        "            self._outages.failed(name, error, began)\n",
        "            self._outages.failed(name, error)\n",
        f"{_SAID}::test_a_try_counts_from_its_begin_and_another_key_does_not_end_it",
    ),
    Mutant(
        "tiered/daemon/outages.py",
        "    return area if area in _NEW_AT_EVERY_TRY else key\n",
        "    return key\n",
        f"{_SAID}::test_keys_that_are_new_at_every_try_share_a_name_and_a_conflict_ends_a_write",
    ),
    Mutant(
        "tiered/daemon/outages.py",
        "        if self._stop.is_set():\n",
        "        if False:\n",
        f"{_SAID}::test_after_a_stop_no_request_begins",
    ),
    Mutant(
        "tiered/daemon/outages.py",
        "            if not self.worked:\n",
        "            if True:\n",
        f"{_SAID}::test_a_refusal_of_a_store_that_worked_may_pass",
    ),
    Mutant(
        "tiered/daemon/observer.py",
        "            self.outages.over(LOCAL_STATE)\n",
        "            pass\n",
        f"{_SAID}::test_a_local_state_that_fails_is_an_outage_until_a_flush_is_proven",
    ),
    Mutant(
        "tiered/daemon/parts.py",
        "    watched[0].worked = True\n",
        "",
        f"{_APP}::test_a_checkpoint_that_is_denied_for_a_moment_ends_no_daemon",
    ),
    Mutant(
        "tiered/daemon/app.py",
        "        problem = own or self._watch.problem() or self._problem\n",
        "        problem = self._problem\n",
        f"{_APP}::test_a_stall_and_failing_writes_are_no_ready_daemon",
    ),
    Mutant(
        "tiered/daemon/app.py",
        "        forget_fence(self._state)\n",
        "",
        f"{_APP}::test_a_fence_is_recorded_where_a_restart_finds_it",
    ),
    Mutant(
        "tiered/daemon/lock.py",
        "        if error.errno not in PASSING_ERRNOS:\n",
        "        if True:\n",
        f"{_SHELL}::test_a_full_disk_is_no_wrong_setting",
    ),
    Mutant(
        "tiered/cli/entry.py",
        "        early.install()",
        "        pass",
        "tests/scenes/test_cli_process.py::test_a_service_that_is_told_to_stop_before_it_listens_ends_well",
    ),
    Mutant(
        "tiered/daemon/starved.py",
        "        starved = seconds >= LEAST_SECONDS and worst >= STARVED_SHARE * seconds\n",
        "        starved = worst >= STARVED_SHARE * seconds\n",
        "tests/unit/test_starved.py::test_a_moment_is_not_told",
    ),
    Mutant(
        "tiered/daemon/starved.py",
        "        while now - self._samples[0][0] > 2 * WINDOW_SECONDS:\n",
        "        while False:\n",
        "tests/unit/test_starved.py::test_what_was_before_a_long_pause_is_not_counted",
    ),
    Mutant(
        "tiered/daemon/starved.py",
        "max((waits[thread] - before[thread] for",
        "max((waits[thread] for",
        "tests/unit/test_starved.py::test_a_thread_that_waits_for_most_of_the_time_is_told",
    ),
)
