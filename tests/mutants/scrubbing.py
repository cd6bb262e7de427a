"""Looking after damage."""

from __future__ import annotations

from tests.mutants import Mutant

_CONTENT = "tiered/archive/read/content.py"
_CONTENTS = "tests/unit/test_content.py"

MUTANTS = (
    Mutant(
        _CONTENT,
        "            damaged.append(error)\n",
        "            pass\n",
        f"{_CONTENTS}::test_every_flipped_bit_is_found_and_named",
    ),
    Mutant(
        _CONTENT,
        "            yield Looked(damage=damage)\n",
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
)
