"""The table of mutants stays true while the program changes: a line that moved away is noticed here, not months later."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

from tests.mutants import table
from tests.mutants.__main__ import try_mutant

ROOT = Path(__file__).parents[2]


def test_every_mutant_still_has_its_line_and_its_test() -> None:
    wrong = []
    for mutant in table():
        found = (ROOT / mutant.file).read_text().count(mutant.before)
        words = mutant.test.split()
        files = [word.partition("::") for word in words if word.startswith("tests/")]
        names = [re.split(r"\[|::", name)[-1 if "::" in name else 0] for _, _, name in files if name]
        known = all((ROOT / file).is_file() for file, _, _ in files)
        text = "".join((ROOT / file).read_text() for file, _, _ in files) if known else ""
        chosen = [after for word, after in pairwise(words) if word == "-k"]
        if (
            found != 1
            or not files
            or not known
            or not all(part in text for part in chosen)
            or not all(re.search(rf"(def|class) {name}\b", text) for name in names)
        ):
            wrong.append((mutant.name, found, mutant.test))
        if mutant.before == mutant.after:
            wrong.append((mutant.name, found, "changes nothing"))
    assert wrong == []


def test_no_mutant_is_listed_twice() -> None:
    assert [m for m, n in Counter((m.file, m.before, m.after) for m in table()).items() if n > 1] == []


def test_a_mutant_nobody_notices_is_said_to_survive(tmp_path: Path) -> None:
    """The runner itself: green for a guarded line and green for an unguarded one must not be the same green."""
    from tests.mutants import Mutant

    (tmp_path / "program.py").write_text("def double(x):\n    return x * 2\n")
    test = "import program\ndef test_double():\n    assert program.double(2) == 4\n"
    (tmp_path / "test_program.py").write_text(test)
    (tmp_path / "test_nothing.py").write_text("import program\ndef test_nothing():\n    pass\n")
    (tmp_path / "test_red.py").write_text("def test_red():\n    assert False\n")

    def verdict(test: str, before: str = "x * 2") -> str:
        return try_mutant(tmp_path, Mutant("program.py", before, "x * 3", test)).verdict

    assert verdict("test_program.py") == "caught"
    assert verdict("test_nothing.py") == "survived"
    assert verdict("test_red.py") == "invalid"
    assert verdict("test_absent.py") == "invalid"
    assert verdict("test_program.py", "no such line") == "invalid"
    assert (tmp_path / "program.py").read_text() == "def double(x):\n    return x * 2\n"
