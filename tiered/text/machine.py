"""Output for machines: JSON with plain values under stable names."""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain

from tiered.errors import TieredError, exit_code
from tiered.text.human import Kind
from tiered.text.output import Advance, Column, as_column, paragraph, remedy, write_bytes


class Machine:
    """Speaks JSON: an array for a table, or with ``lines`` its objects alone; an object for a record, one text object per
    line."""

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines

    def table(
        self, columns: Sequence[Column | str], rows: Iterable[Sequence[object]], *, title: str | None = None
    ) -> None:
        """An array of objects, one a line, or without brackets and commas; written as rows come."""
        names = [as_column(c).name for c in columns]
        stream = (_dump(dict(zip(names, row, strict=True))) for row in rows)
        first = next(stream, None)
        if self._lines:
            if first is not None:
                _write(first + "\n")
                sys.stdout.flush()  # who reads it may begin
            for text in stream:
                _write(text + "\n")
            return
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
        write_bytes(data)

    def note(self, text: str) -> None:
        """Notes are for people: programs read the answer alone."""

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
