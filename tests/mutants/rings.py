"""Which tests a ring runs, and that it says so."""

from __future__ import annotations

from tests.mutants import Mutant

_DRAWN = "tests/scenes/test_drawn.py"
_KEPT = "tests/scenes/test_kept.py"
_RINGS = "tests/scenes/test_rings.py"

MUTANTS = (
    Mutant(
        "tests/kit/drawn.py",
        "if (turn(item) - self._draw) % self._one_in}\n",
        "if turn(item) % self._one_in}\n",
        f"{_DRAWN}::test_five_draws_in_a_row_run_every_history_once",
    ),
    Mutant(
        "tests/kit/drawn.py",
        "        if not self.left:\n            return\n",
        "        if self.left:\n            return\n",
        f"{_DRAWN}::test_what_was_left_out_is_counted_by_test[workers0]",
    ),
    Mutant(
        "tests/kit/drawn.py",
        "settings(its, max_examples=share)",
        "settings(its, max_examples=its.max_examples)",
        f"{_DRAWN}::test_hypothesis_draws_the_share_of_its_examples_and_what_the_source_names",
    ),
    Mutant(
        "tests/kit/kept.py",
        "        elif path not in self.allowed:\n",
        "        elif False:\n",
        f"{_KEPT}::test_a_module_that_reached_for_more_is_kept_until_anything_changes",
    ),
    Mutant(
        "tests/kit/kept.py",
        "return _NAMES_FILES not in module.read_text() and all(reached <= closure for reached in imported)",
        "return _NAMES_FILES not in module.read_text()",
        f"{_KEPT}::test_what_is_read_when_something_is_imported_counts_as_well",
    ),
    Mutant(
        "tests/kit/kept.py",
        'if report.when == "teardown" and item.stash[_PHASES] == 3:',
        'if report.when == "teardown":',
        f"{_KEPT}::test_only_what_passed_is_kept",
    ),
    Mutant(
        "tests/kit/kept.py",
        "any(file.stat().st_mtime > when for file in files)",
        "False",
        f"{_KEPT}::test_what_passed_while_somebody_wrote_is_not_kept",
    ),
    Mutant(
        "tests/kit/rings.py",
        "        if one.code and not one.failures.failed:\n",
        "        if False:\n",
        f"{_RINGS}::test_what_failed_without_a_test_is_said_by_its_last_lines",
    ),
    Mutant(
        "tests/kit/twice.py",
        "        failures.ran_again(Path(kept), names, passed)\n",
        "        pass\n",
        f"{_RINGS}::test_what_failed_is_said_last_with_the_end_of_its_traceback",
    ),
    Mutant(
        "tests/kit/failures.py",
        "        if room < 0:\n",
        "        if False:\n",
        f"{_RINGS}::test_the_end_is_bounded",
    ),
    Mutant(
        "Makefile",
        "$(SCENES) $(UNIT) --cov ",
        "$(SCENES) $(UNIT) $(KEEP) --cov ",
        f"{_KEPT}::test_the_quick_rings_alone_keep",
    ),
    Mutant(
        "Makefile",
        "$(SCENES) $(UNIT) --cov ",
        "$(SCENES) $(UNIT) $(DRAWN) --cov ",
        f"{_DRAWN}::test_the_quick_rings_alone_draw_by_the_commits",
    ),
)
