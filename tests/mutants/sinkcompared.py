"""A sink held against its archive: what would be called the same and is not."""

from __future__ import annotations

from tests.mutants import Mutant

_UNIT = "tests/unit/test_sink_comparison.py"
_COMPARING = "tiered/sink/comparison/comparing.py"

MUTANTS = (
    Mutant(
        _COMPARING,
        "            same[hit] = marks.content[place[hit]] == there.content[hit]\n",
        "            same[hit] = True\n",
        f"{_UNIT}::test_each_difference_is_found_once",
    ),
    Mutant(
        _COMPARING,
        "            ours[hit] = marks.origin[place[hit]] == there.origin[hit]\n",
        "            ours[hit] = True\n",
        f"{_UNIT}::test_each_difference_is_found_once",
    ),
    Mutant(
        _COMPARING,
        "        self._lose_all(at, self._archive.between(scope.queue, begin, scope.end))\n",
        "",
        f"{_UNIT}::test_each_difference_is_found_once",
    ),
    Mutant(
        _COMPARING,
        '        if not different and (unread or totals["not_comparable"]):\n',
        "        if False:\n",
        f"{_UNIT}::test_what_is_not_there_on_one_side_for_a_reason_is_not_compared",
    ),
    Mutant(
        "tiered/sink/comparison/holes.py",
        "        left = [part for part in ((first, offset), (offset + 1, end)) if part[0] < part[1]]\n",
        "        left = [(first, end)]\n",
        f"{_UNIT}::test_random_destinations_against_plain_counting",
    ),
)
