"""Records as columns, and back."""

from __future__ import annotations

from tests.mutants import Mutant

_MESSAGES = "tests/unit/test_arrow_messages.py"

MUTANTS = (
    Mutant(
        "tiered/codec/arrow/proof.py",
        "    if made.equals(source):\n",
        "    if len(made) == len(source):\n",
        f"{_MESSAGES}::test_properties_that_a_map_does_not_hold",
    ),
    Mutant(
        "tiered/codec/arrow/proof.py",
        "    if not assemble(columns).equals(source):\n",
        "    if False:\n",
        f"{_MESSAGES}::test_a_difference_is_never_let_through",
    ),
    Mutant(
        "tiered/codec/arrow/messagerows.py",
        "        place = pa.array(np.cumsum(sound) - 1, mask=~sound)\n",
        "        place = pa.array(np.maximum(np.cumsum(sound) - 1, 0))\n",
        f"{_MESSAGES}::test_a_record_that_is_not_what_its_header_says_is_kept_whole",
    ),
    Mutant(
        "tiered/codec/arrow/columns.py",
        "    return np.sort(len(key) - 1 - first)\n",
        "    return np.sort(first)\n",
        f"{_MESSAGES}::test_properties_that_a_map_does_not_hold",
    ),
)
