"""Services, signals, locks, settings, exit codes."""

from __future__ import annotations

from tests.mutants import Mutant

_SERVICE = "tests/unit/test_service.py"
_CLI_MAIN = "tests/unit/test_cli_main.py"
_CLI_PROCESS = "tests/scenes/test_cli_process.py"
_DAEMON_SHELL = "tests/unit/test_daemon_shell.py"
_CONFIG_CHECKS = "tests/unit/test_config_checks.py"
_SETTINGS = "tests/unit/test_settings.py"
_CONFIG_VALUES = "tests/unit/test_config_values.py"

MUTANTS = (
    Mutant(
        "tiered/backoff.py",
        "        return map(self.seconds, count(1))\n",
        "        return map(self.seconds, count(2))\n",
        f"{_SERVICE}::test_backoff_never_overflows",
    ),
    Mutant(
        "tiered/service.py",
        "        if busy >= self._limits.fatal_seconds:\n",
        "        if False:\n",
        f"{_SERVICE}::test_a_step_that_does_not_return_is_visible_then_fatal",
    ),
    Mutant(
        "tiered/service.py",
        "        return Unavailable.exit_code if late else 0\n",
        "        return 0\n",
        f"{_SERVICE}::test_a_worker_too_late_for_the_drain_is_told_by_the_exit_code",
    ),
    Mutant(
        "tiered/service.py",
        "            self.failures_in_a_row += 1\n",
        "            self.failures_in_a_row = 1\n",
        f"{_SERVICE}::test_unavailable_backs_off_doubling_and_recovers",
    ),
    Mutant(
        "tiered/errors.py",
        "    return EXIT_UNEXPECTED\n",
        "    return 1\n",
        "tests/unit/test_errors.py::test_exit_codes",
    ),
    Mutant(
        "tiered/daemon/signals.py",
        "            self._hard_exit(EXIT_HARD)\n            return\n",
        "            return\n",
        f"{_DAEMON_SHELL}::test_first_signal_stops_second_exits",
    ),
    Mutant(
        "tiered/daemon/signals.py",
        "        self._stop.set()\n",
        "",
        f"{_DAEMON_SHELL}::test_first_signal_stops_second_exits",
    ),
    Mutant(
        "tiered/stderr.py",
        " or self._size + len(text) > self._room:",
        ":",
        "tests/unit/test_stderr.py::test_what_finds_no_room_is_dropped_counted_and_told",
    ),
    Mutant(
        "tiered/daemon/logs.py",
        "        unblock()\n",
        "        pass\n",
        "tests/unit/test_stderr.py::test_a_process_ends_although_nobody_reads_its_stderr",
    ),
    Mutant(
        "tiered/daemon/logs.py",
        "            return self._redact(json.dumps(event, default=self._text, ensure_ascii=False))\n",
        "            return json.dumps(event, default=self._text, ensure_ascii=False)\n",
        f"{_DAEMON_SHELL}::test_no_secret_leaves_through_a_log",
    ),
    Mutant(
        "tiered/daemon/logs.py",
        "{_one_line(message)}",
        "{message}",
        f"{_DAEMON_SHELL}::test_a_value_cannot_forge_a_line_or_steer_a_terminal",
    ),
    Mutant(
        "tiered/daemon/lock.py",
        "            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        f"{_DAEMON_SHELL}::test_one_daemon_per_state",
    ),
    Mutant(
        "tiered/daemon/checks.py",
        "            if path and inside(path, broker_path):\n",
        "            if False:\n",
        f"{_CONFIG_CHECKS}::test_contradictions",
    ),
    Mutant(
        "tiered/daemon/checks.py",
        "    _apart(own)\n",
        "",
        f"{_CONFIG_CHECKS}::test_contradictions",
    ),
    Mutant(
        "tiered/settings/option.py",
        "        if high is not None and value > high:\n",
        "        if False:\n",
        f"{_SETTINGS}::test_a_broken_bound_names_key_and_bound",
    ),
    Mutant(
        "tiered/settings/option.py",
        "        if low is not None and value < low:\n",
        "        if False:\n",
        f"{_SETTINGS}::test_a_broken_bound_names_key_and_bound",
    ),
    Mutant(
        "tiered/settings/option.py",
        '    return STARS if f.metadata.get("secret") and value else repr(value)\n',
        "    return repr(value)\n",
        f"{_SETTINGS}::test_a_wrong_secret_is_not_repeated",
    ),
    Mutant(
        "tiered/text/settingvalues.py",
        "        if not _matches_names(part):\n",
        "        if False:\n",
        f"{_CONFIG_VALUES}::test_a_pattern_that_can_match_nothing_is_refused",
    ),
    Mutant(
        "tiered/text/settingvalues.py",
        "    if value.denominator != 1:\n        raise",
        "    if False:\n        raise",
        f"{_CONFIG_VALUES}::test_refused_with_key_place_and_value",
    ),
    Mutant(
        "tiered/text/settingvalues.py",
        '            parts = [part.strip() for part in raw.split(",") if part.strip()]\n',
        '            parts = [part.strip() for part in raw.split(",")]\n',
        f"{_CONFIG_VALUES}::test_accepted",
    ),
    Mutant(
        "tiered/service.py",
        "                service.stop(drain=False)\n",
        "                pass\n",
        "tests/unit/test_service.py::test_the_dying_worker_itself_stops_the_others",
    ),
    Mutant(
        "tiered/daemon/checks.py",
        "    _lasting(settings)\n",
        "",
        f"{_CONFIG_CHECKS}::test_an_archive_that_ends_with_the_process_is_refused",
    ),
    Mutant(
        "tiered/errors.py",
        "        return error.exit_code\n",
        "        return TieredError.exit_code\n",
        f"{_CLI_MAIN}::test_an_error_becomes_its_exit_code",
    ),
    Mutant(
        "tiered/errors.py",
        "    return EXIT_UNEXPECTED\n",
        "    return 2\n",
        f"{_CLI_MAIN}::test_an_error_becomes_its_exit_code",
    ),
    Mutant(
        "tiered/cli/main.py",
        "        drop_stdout()\n        return EXIT_NO_READER\n",
        "        drop_stdout()\n        return 0\n",
        f"{_CLI_PROCESS}::test_a_reader_that_goes_away_is_no_traceback",
    ),
    Mutant(
        "tiered/cli/main.py",
        "        return _tell(unwritten(error) or error, debug=debug, as_json=as_json)\n",
        "        return _tell(error, debug=debug, as_json=as_json)\n",
        f"{_CLI_PROCESS}::test_no_room_for_the_answer",
    ),
    Mutant(
        "tiered/cli/main.py",
        "        return result if isinstance(result, int) and not isinstance(result, bool) else 0\n",
        "        return 0\n",
        f"{_CLI_MAIN}::test_a_verb_may_return_its_own_code",
    ),
    Mutant(
        "tiered/text/commandline.py",
        "        if takes_value and (following in options or following in _HELP):\n",
        "        if False:\n",
        "tests/unit/test_cli_main.py::test_a_flag_is_not_taken_for_a_value",
    ),
)
