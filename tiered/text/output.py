"""How verbs speak: one port, two speakers. The answer goes to stdout; notes, errors and progress to stderr.

People (``people.py``) get Rich tables with sizes and times made readable; machines (``machine.py``) get JSON with the plain
values under stable names; ``speaker.py`` chooses.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tiered.errors import TieredError
from tiered.text.human import Kind

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


def as_column(column: Column | str) -> Column:
    """A column that may be given by its name alone."""
    return Column(column) if isinstance(column, str) else column


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


def write_bytes(data: bytes | bytearray | memoryview) -> None:
    """Bytes as they are to stdout, behind the text written before."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
