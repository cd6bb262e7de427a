"""How verbs speak: one port, two speakers. The answer goes to stdout; notes, errors and progress to stderr.

People get Rich tables (paged on a terminal) with sizes and times made readable; machines get JSON with the plain values
under stable names. Cells never carry control characters to a terminal, whatever a message body holds.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from tiered.errors import TieredError
from tiered.service import exit_code
from tiered.text.human import Kind as Kind
from tiered.text.human import human as human
from tiered.text.human import kind_of, said
from tiered.text.human import moment as moment
from tiered.text.human import printable as printable
from tiered.text.human import size as size
from tiered.text.tables import Fit, aligned, fit, shortened

_ROWS_PER_TABLE = 1000

Advance = Callable[[int], None]
"""Tells a progress bar how much is done in all."""


@dataclass(frozen=True, slots=True)
class Column:
    """A table column or record field: its JSON name, its heading and what it holds.

    On a terminal too narrow for all columns, those of the highest ``less`` are left out first, 0 never; a ``flexible`` one
    takes the width that is left and is cut there. Files, pipes and JSON always get everything.
    """

    name: str
    heading: str | None = None
    kind: Kind = Kind.PLAIN
    less: int = 0
    flexible: bool = False


class Output(Protocol):
    """Where a verb speaks. ``table`` may be given an endless iterable: rows are written as they come."""

    def table(
        self, columns: Sequence[Column | str], rows: Iterable[Sequence[object]], *, title: str | None = None
    ) -> None:
        """Rows under columns."""
        ...

    def record(
        self,
        values: Mapping[str, object],
        *,
        title: str | None = None,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        """One thing with named values."""
        ...

    def lines(self, texts: Iterable[str]) -> None:
        """Plain text as it is."""
        ...

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes as they are, to stdout."""
        ...

    def note(self, text: str) -> None:
        """A remark for people, on stderr; machines do not get it."""
        ...

    def error(self, error: BaseException, *, debug: bool = False) -> None:
        """One paragraph on stderr; the traceback only with ``debug``."""
        ...

    def progress(self, what: str, total: int) -> contextlib.AbstractContextManager[Advance]:
        """A bar on stderr while the block runs, if stderr is a terminal and people read; ``total`` 0: unknown."""
        ...


def _column(column: Column | str) -> Column:
    return Column(column) if isinstance(column, str) else column


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
        wanted = [_column(c) for c in columns]
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
        if layout is not None and len(layout.shown) < len(wanted):
            left_out = ", ".join(_heading(c) for i, c in enumerate(wanted) if i not in layout.shown)
            self.note(
                f"left out for want of width: {left_out}; a wider terminal, a pipe or --json shows them"
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
        _write_bytes(data)

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
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._err, transient=True) as bar:
            task = bar.add_task(what, total=total or None)
            yield lambda done: bar.update(task, completed=done)


class Machine:
    """Speaks JSON: an array for a table, an object for a record, one text object per line."""

    def table(
        self, columns: Sequence[Column | str], rows: Iterable[Sequence[object]], *, title: str | None = None
    ) -> None:
        """An array of objects, one a line, written as rows come."""
        names = [_column(c).name for c in columns]
        stream = (_dump(dict(zip(names, row, strict=True))) for row in rows)
        first = next(stream, None)
        if first is None:
            _write("[]\n")
            return
        _write("[\n")
        for number, text in enumerate(chain((first,), stream)):
            _write((",\n" if number else "") + text)
        _write("\n]\n")

    def record(
        self,
        values: Mapping[str, object],
        *,
        title: str | None = None,
        kinds: Mapping[str, Kind] | None = None,
    ) -> None:
        """One object."""
        _write(_dump(dict(values), indent=2) + "\n")

    def lines(self, texts: Iterable[str]) -> None:
        """``{"line": …}`` for each text."""
        for text in texts:
            _write(_dump({"line": text}) + "\n")

    def raw(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes to stdout."""
        _write_bytes(data)

    def note(self, text: str) -> None:
        """Nothing."""

    def error(self, error: BaseException, *, debug: bool = False) -> None:
        """``{"error": {kind, message, fields, hint, exit_code}}`` on stderr."""
        fields = error.fields if isinstance(error, TieredError) else {}
        told: dict[str, object] = {
            "kind": type(error).__name__,
            "message": error.message if isinstance(error, TieredError) else paragraph(error),
            "fields": {k: str(v) for k, v in fields.items()},
            "hint": remedy(error),
            "exit_code": exit_code(error),
        }
        if debug:
            told["traceback"] = traceback.format_exception(error)
        sys.stderr.write(_dump({"error": told}) + "\n")

    @contextlib.contextmanager
    def progress(self, what: str, total: int) -> Iterator[Advance]:
        """Silent."""
        yield lambda done: None


def speaker(*, json_output: bool) -> Output:
    """The speaker a verb uses: ``--json`` or people."""
    return Machine() if json_output else People()


def paragraph(error: BaseException) -> str:
    """What went wrong in one paragraph, without the remedy."""
    if not isinstance(error, TieredError):
        return (
            f"unexpected {type(error).__name__}: {error}"
            if str(error)
            else f"unexpected {type(error).__name__}"
        )
    fields = ", ".join(f"{k}={v}" for k, v in error.fields.items())
    return f"{error.message} ({fields})" if fields else error.message


def remedy(error: BaseException) -> str | None:
    """What to do about it."""
    return (
        error.hint
        if isinstance(error, TieredError)
        else "run the command again with --debug for the traceback"
    )


def _flat(values: Mapping[str, object], depth: int = 0) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield "  " * depth + name, ""
            yield from _flat(value, depth + 1)
        else:
            yield "  " * depth + name, value


def _heading(column: Column) -> str:
    return column.heading if column.heading is not None else column.name.replace("_", " ")


def _dump(value: object, indent: int | None = None) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, indent=indent)


def _plain(value: object) -> object:
    """JSON form of values that json does not know: numpy numbers, bytes, enums, mappings."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


def _write(text: str) -> None:
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8"))


def _write_bytes(data: bytes | bytearray | memoryview) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
