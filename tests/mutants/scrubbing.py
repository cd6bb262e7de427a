"""Looking after damage."""

from __future__ import annotations

from tests.mutants import Mutant

_CONTENT = "tiered/archive/read/content.py"
_CONTENTS = "tests/unit/test_content.py"

_WALK = "tiered/archive/care/walk.py"
_NOTES = "tiered/archive/care/notes.py"
_TASK = "tiered/archive/care/scrub.py"
_SCRUB = "tests/unit/test_scrub.py"

MUTANTS = (
    Mutant(
        _CONTENT,
        "            damaged.append(error)\n",
        "            pass\n",
        f"{_CONTENTS}::test_every_flipped_bit_is_found_and_named",
    ),
    Mutant(
        _CONTENT,
        "            yield ContentStep(damage=damage)\n",
        "            pass\n",
        f"{_CONTENTS}::test_every_flipped_bit_is_found_and_named",
    ),
    Mutant(
        _CONTENT,
        "        self._objects.check_footer(item)\n",
        "",
        f"{_CONTENTS}::test_a_missing_and_a_swapped_object",
    ),
    Mutant(
        _CONTENT,
        "            self._held.forget(key)\n",
        "            pass\n",
        f"{_CONTENTS}::test_nothing_of_an_object_is_kept_when_it_was_looked_at",
    ),
    Mutant(
        _WALK,
        '        if not self._needed(path):\n            return Seen(path, note="unneeded")\n',
        '        if self._needed(path):\n            return Seen(path, note="unneeded")\n',
        f"{_SCRUB}::test_what_is_missing_or_cut_is_found_by_the_walk_over_the_listing",
    ),
    Mutant(
        _WALK,
        '            return Seen(path, length=stored.length, note="late")\n        except NotFound:\n',
        '            raise NotFound("late")\n        except NotFound:\n',
        f"{_SCRUB}::test_a_listing_that_lags_is_no_damage",
    ),
    Mutant(
        _WALK,
        "        if stored.length != item.length:\n",
        "        if stored.length > item.length:\n",
        f"{_SCRUB}::test_what_is_missing_or_cut_is_found_by_the_walk_over_the_listing",
    ),
    Mutant(
        _WALK,
        "        if not inline_sound and damage is None:\n",
        "        if damage is None and False:\n",
        f"{_SCRUB}::test_every_flipped_bit_is_found_by_the_walk_over_bytes",
    ),
    Mutant(
        _WALK,
        "            if not item.path and is_needed(item):\n",
        "            if not item.path:\n",
        f"{_SCRUB}::test_bytes_that_no_run_needs_are_no_damage",
    ),
    Mutant(
        _NOTES,
        "        kept = {path: found for path, found in self.findings.items() if found.walk >= number}\n",
        "        kept = dict(self.findings)\n",
        f"{_SCRUB}::test_what_is_no_longer_needed_is_no_damage",
    ),
    Mutant(
        _NOTES,
        "        if known is None and len(self.findings) >= MOST_FINDINGS:\n",
        "        if known is None and len(self.findings) > MOST_FINDINGS:\n",
        f"{_SCRUB}::test_findings_are_bounded_and_counted",
    ),
    Mutant(
        _TASK,
        '        self._next = began + (int(str(figures["bytes"])) / rate if rate else 0.0)\n',
        "        self._next = began\n",
        f"{_SCRUB}::test_bytes_a_second_are_kept",
    ),
    Mutant(
        _TASK,
        "            return seq is not None and written_anew(stored, seq, *whole)\n",
        "            return False\n",
        f"{_SCRUB}::test_a_store_that_lies_about_nothing_but_its_bytes",
    ),
    Mutant(
        _TASK,
        "            self._open.clear()  # the places that are kept are where the next ones begin\n",
        "            pass\n",
        f"{_SCRUB}::test_what_is_stopped_in_the_middle_of_an_object_begins_it_again",
    ),
)
