"""Laying out tables of text: whole and lined up for files and pipes, fitted to the width of a terminal for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

GUTTER = 2
"""Blank cells between columns."""

FLEXIBLE_LEAST = 16
"""Narrowest that a flexible column gets before other columns are left out for it."""

_MILLISECONDS = re.compile(r"(\d\d:\d\d:\d\d)\.\d{3}Z")


@dataclass(frozen=True, slots=True)
class Fit:
    """How a table fits: the columns shown, whether times lose their milliseconds, and the flexible column's width."""

    shown: tuple[int, ...]
    short_times: bool
    flexible_width: int | None


def shortened(cell: str) -> str:
    """A time without its milliseconds; anything else as it is."""
    return _MILLISECONDS.sub(r"\1Z", cell)


def fit(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    times: Sequence[bool],
    less: Sequence[int],
    flexible: int | None,
    width: int,
) -> Fit:
    """Choose what to show in ``width`` cells so that no row is folded.

    First times lose their milliseconds, then columns are left out, those of the highest ``less`` first; a column of 0 stays,
    whatever the width. ``flexible`` is the column that takes what is left and may be cut.
    """
    widths = [max([cell_len(h), *(cell_len(row[i]) for row in rows)]) for i, h in enumerate(headings)]
    if flexible is not None:
        widths[flexible] = min(widths[flexible], FLEXIBLE_LEAST)
    shown = list(range(len(headings)))

    def needed() -> int:
        return sum(widths[i] for i in shown) + GUTTER * (len(shown) - 1)

    short = needed() > width and any(times)
    if short:
        for i, is_time in enumerate(times):
            if is_time:
                widths[i] = max([cell_len(headings[i]), *(cell_len(shortened(row[i])) for row in rows)])
    while needed() > width:
        victim = max(shown, key=lambda i: (less[i], i))
        if less[victim] == 0:
            break
        shown.remove(victim)
    room = None
    if flexible is not None and flexible in shown:
        room = max(FLEXIBLE_LEAST, width - needed() + widths[flexible])
    return Fit(tuple(shown), short, room)


def aligned(
    rows: Sequence[Sequence[str]], headings: Sequence[str], right: Sequence[bool], title: str | None
) -> str:
    """Columns lined up, every cell whole, one row a line: for files and pipes."""
    lines = [list(headings), *([cell.replace("\n", "\\n") for cell in row] for row in rows)]
    if not any(headings):
        del lines[0]
    widths = [max((cell_len(line[i]) for line in lines), default=0) for i in range(len(headings))]
    text = [title] if title else []
    for line in lines:
        padded = [
            " " * (width - cell_len(cell)) + cell if is_right else cell + " " * (width - cell_len(cell))
            for cell, width, is_right in zip(line, widths, right, strict=True)
        ]
        text.append((" " * GUTTER).join(padded).rstrip())
    return "".join(line + "\n" for line in text)
