"""What retention takes and what it must leave."""

from __future__ import annotations

from tests.mutants import Mutant

_RETENTION = (
    "tests/property/test_retention_histories.py::test_what_is_in_range_stays_and_what_went_never_comes_back"
)
_UNIT = "tests/unit/test_retention.py"
_RETAIN = "tiered/archive/rewrite/retain.py"

MUTANTS = (
    Mutant(
        _RETAIN,
        '    free = (history.newest < cutoff_ms) & (runs["commit_seq"] <= aged_seq)\n',
        "    free = history.newest < cutoff_ms\n",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        '    free = (history.newest < cutoff_ms) & (runs["commit_seq"] <= aged_seq)\n',
        '    free = (runs["max_store_time"] <= cutoff_ms) & (runs["commit_seq"] <= aged_seq)\n',
        _RETENTION,
    ),
    Mutant(_RETAIN, "        free &= ~held\n", "        pass\n", _RETENTION),
    Mutant(_RETAIN, "    stays = int(np.argmin(free)) if", "    stays = int(len(free) - 1) if", _RETENTION),
    Mutant(
        _RETAIN,
        "    enough = np.flatnonzero(kept >= keep_bytes)\n",
        "    enough = np.flatnonzero(kept >= keep_bytes // 2)\n",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "    youngest_ms = now_ms - min_age_ms\n",
        "    youngest_ms = now_ms\n",
        _RETENTION,
    ),
    Mutant(
        _RETAIN,
        "    if plan.trimmed_bytes * 100 > plan.live_bytes * max_trim_percent:\n",
        "    if False:\n",
        f"{_UNIT}::test_a_run_that_takes_too_much_asks_first_with_the_figure_that_allows_it",
    ),
    Mutant(
        _RETAIN,
        "        trim = _trim(_history(state, found), cutoff_ms, cutoff_ms, aged_seq, holds, planned)\n",
        "        trim = planned\n",
        f"{_UNIT}::test_a_queue_whose_tail_was_rewound_meanwhile_loses_nothing_that_was_written_anew",
    ),
    Mutant(
        "tiered/archive/rewrite/policy.py",
        "    if abs(local_ms - store_ms) > MOST_APART_MS:\n",
        "    if store_ms - local_ms > MOST_APART_MS:\n",
        f"{_UNIT}::test_now_is_the_earlier_clock_and_clocks_far_apart_stop_everything",
    ),
)
