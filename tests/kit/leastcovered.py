"""The end of a coverage report that is worth printing: the total, and the files with the most left to cover."""

from __future__ import annotations

import json
from pathlib import Path

WORST = 15


def table(path: Path) -> str:
    """Of coverage's JSON report: the total, and the ``WORST`` files by their share, least first; the file has all."""
    report = json.loads(path.read_text())
    shares = sorted(
        (found["summary"]["percent_covered"], name)
        for name, found in report["files"].items()
        if found["summary"]["num_statements"]
    )
    total = report["totals"]["percent_covered"]
    head = f"coverage {total:.1f} %; the least of {len(shares)} files (all of them, line by line: {path})"
    return "\n".join([head, *(f"{share:7.1f} %  {name}" for share, name in shares[:WORST])])
