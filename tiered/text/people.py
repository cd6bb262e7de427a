"""Output for people: Rich tables, paged on a terminal, and lined-up text elsewhere. Cells never carry control characters to a
terminal, whatever a message body holds.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiered.text.human import Kind, human, kind_of, printable, said
from tiered.text.output import Advance, Column, as_column, paragraph, remedy, write_bytes
from tiered.text.tables import Fit, aligned, fit, shortened

_ROWS_PER_TABLE = 1000


class People:
    """Speaks to people through Rich."""

    def __init__(self, out: Console | None = None, err: Console | None = None) -> None:
        self._out = out or Console(highlight=False, markup=False, emoji=False)
        self._err = err or Console(stderr=True, highlight=False, markup=False, emoji=False)

    def table(
        self, columns: Sequence[Column | str], rows: Iterable[Sequence[object]], *, title: str | None = None
    ) -> None:
        """A table; longer than the terminal: through the pager, wider: without its lesser columns, which a note then names. Not
        on a terminal: everything, one row a line."""
        wanted = [as_column(c) for c in columns]
        stream = iter(rows)
        height = self._out.height - 6 if self._out.is_terminal and sys.stdin.isatty() else None
        first = list(islice(stream, _ROWS_PER_TABLE))
        paged = height is not None and len(first) > height
        with self._out.pager(styles=True) if paged else contextlib.nullcontext():
            batch, layout = first, None
            while True:
                layout = self._print(wanted, batch, title, layout)
                batch, title = list(islice(stream, _ROWS_PER_TABLE)), None
                if not batch:
                    break
        if not first:
            self.note("nothing found")
        if layout is not None and len(layout.shown) < len(wanted):
            left_out = ", ".join(_heading(c) for i, c in enumerate(wanted) if i not in layout.shown)
            self.note(
                f"left out for lack of width: {left_out}; a wider terminal, a pipe or --json shows them"
            )

    def _print(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[object]],
        title: str | None,
        layout: Fit | None = None,
    ) -> Fit | None:
        """Print rows; on a terminal in ``layout``, or in one made from these rows, which is returned."""
        cells = [[human(v, c.kind) for v, c in zip(row, columns, strict=True)] for row in rows]
        headings = [_heading(c) for c in columns]
        right = [c.kind in (Kind.COUNT, Kind.SIZE, Kind.SECONDS) for c in columns]
        if not self._out.is_terminal:
            self._out.file.write(aligned(cells, headings, right, title))
            return None
        layout = layout or fit(
            headings,
            cells,
            times=[c.kind is Kind.TIME for c in columns],
            less=[c.less for c in columns],
            flexible=next((i for i, c in enumerate(columns) if c.flexible), None),
            width=self._out.width,
        )
        bare = not any(headings)
        table = Table(title=title, title_justify="left", box=None, show_header=not bare, pad_edge=False)
        for i in layout.shown:
            cut = columns[i].flexible
            table.add_column(
                Text(headings[i]),
                justify="right" if right[i] else "left",
                overflow="ellipsis" if cut else "fold",
                no_wrap=cut,
                max_width=layout.flexible_width if cut else None,
            )
        for row in cells:
            times = layout.short_times
            table.add_row(
                *(
                    Text(shortened(row[i]) if times and columns[i].kind is Kind.TIME else row[i])
                    for i in layout.shown
                )
            )
        self._out.print(table)
        return layout

    def record(
        self,
        values: Mapping[str, object],
        *,
        title: str | None = None,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        """Two columns: name and value; nested values indented below their name."""
        rows = [
            (
                name.replace("_", " "),
                said(value, (kinds or {}).get(name.strip()) or kind_of(name.strip(), value)),
            )
            for name, value in _flat(values)
        ]
        self._print((Column("name", ""), Column("value", "")), rows, title)

    def lines(self, texts: Iterable[str]) -> None:
        """Each text on a line of its own, never wrapped."""
        for text in texts:
            self._out.out(printable(text), highlight=False)

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes to stdout."""
        write_bytes(data)

    def note(self, text: str) -> None:
        """A remark on stderr."""
        self._say(Text(printable(text)))

    def _say(self, text: Text) -> None:
        """Broken between words on a terminal; one line for whatever else reads it."""
        self._err.print(text, soft_wrap=not self._err.is_terminal)

    def error(self, error: BaseException, *, debug: bool = False) -> None:
        """``error: …`` with its fields, and the remedy on a line of its own."""
        if debug:
            self._err.out("".join(traceback.format_exception(error)), end="", highlight=False)
        body = Text("error: ", style="bold red").append(printable(paragraph(error)), style="not bold default")
        self._say(body)
        hint = remedy(error)
        if hint:
            self._say(Text("  → " + printable(hint)))

    @contextlib.contextmanager
    def progress(self, what: str, total: int) -> Iterator[Advance]:
        """A bar on stderr, when that is a terminal."""
        if not self._err.is_terminal:
            yield lambda done: None
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._err, transient=True) as bar:
            task = bar.add_task(what, total=total or None)
            yield lambda done: bar.update(task, completed=done)


def _flat(values: Mapping[str, object], depth: int = 0) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield "  " * depth + name, ""
            yield from _flat(value, depth + 1)
        else:
            yield "  " * depth + name, value


def _heading(column: Column) -> str:
    return column.heading if column.heading is not None else column.name.replace("_", " ")
