"""Critical lines, each with a change that must make a named test fail.

A ``Mutant`` is a line or a few of the program, changed as a tired programmer would change them. ``python -m tests.mutants``
applies them one at a time to a copy of the tree and runs the test that guards the line: a mutant that *survives* is a line
without a guard.

Left out, because the change cannot matter: a length looked at before a CRC that covers it (``check_length_and_crc``: another
length has another CRC); bounds of a binary remoting header that every text in it is held against again; ``max_ext_len`` of
msgpack, whose hook refuses every extension; whether marks were refuted where no archived byte is local any more
(``lineage.compare``: without local bytes no mark can be refuted).
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """``before`` stands once in ``file``; with ``after`` in its place, ``test`` (a pytest id, or several) must fail."""

    file: str
    before: str
    after: str
    test: str

    @property
    def name(self) -> str:
        """``file: the changed line``, short enough for a table."""
        lines, changed = self.before.splitlines(), self.after.splitlines()
        at = next((i for i, line in enumerate(lines) if i >= len(changed) or line != changed[i]), 0)
        return f"{self.file}: {lines[at].strip()[:60]}"


def table() -> tuple[Mutant, ...]:
    """Every mutant, in the order of the modules that list them."""
    found: list[Mutant] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")):
        found.extend(importlib.import_module(f"{__name__}.{module}").MUTANTS)
    return tuple(found)
