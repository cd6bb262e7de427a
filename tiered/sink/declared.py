"""Sinks declared in a file, beside those that verbs order: TOML, a table for each, by its name.

What the bucket has otherwise is changed there; sinks that the file does not name are left alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiered.errors import Conflict, Invalid, NotFound, TieredError, did_you_mean
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.kinds import changed_options, find_kind
from tiered.sink.order import SinkOrder

MAX_FILE_BYTES = 4 << 20
_FIELDS: Mapping[str, type] = {
    "kind": str, "options": dict, "topics": list, "exclude": list, "required": bool, "from_start": bool, "in_order": bool,
    "paused": bool,
}  # fmt: skip

_CHANGED = ("topics", "exclude", "required", "in_order")
"""Of an order, without its options: what a file may change."""


@dataclass(frozen=True, slots=True)
class DeclaredSink:
    """A sink as a file has it. ``paused``: ``None`` leaves that as it is."""

    order: SinkOrder
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class DeclaredChange:
    """What becomes of a declared sink: ``differs`` names what is not as declared, ``order`` is the one that is put then."""

    name: str
    differs: tuple[str, ...]
    order: SinkOrder
    paused: bool | None
    new: bool


def read_declared(path: Path) -> tuple[DeclaredSink, ...]:
    """Every sink of the file. ``Invalid`` with file, table and field; ``NotFound``."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound("the file of sinks does not exist", file=path, hint="name an existing file") from error
    except OSError as error:
        raise Invalid("the file of sinks cannot be read", file=path, why=error.strerror) from error
    if len(data) > MAX_FILE_BYTES:
        raise Invalid("the file of sinks is too long", file=path, expected=f"≤ {MAX_FILE_BYTES} bytes")
    try:
        tables = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # bad TOML, bad UTF-8, a number or a nesting beyond reason
        raise Invalid(
            "the file of sinks is not TOML", file=path, why=error, hint="correct it there"
        ) from error
    return tuple(_declared(path, name, fields) for name, fields in tables.items())


def declared_changes(book: SinkBook, declared: tuple[DeclaredSink, ...]) -> list[DeclaredChange]:
    """What would be put for each declared sink, checked as when it is added or changed by verbs. Nothing is put."""
    there = {stored.name: stored for stored in book.sinks()}
    return [_change(there.get(each.order.name), each) for each in declared]


def put_changes(
    book: SinkBook, changes: list[DeclaredChange], now_ms: int, random_bytes: Callable[[int], bytes]
) -> None:
    """Put what differs. Errors as of ``SinkBook``; run again it puts what is left."""
    for change in changes:
        if change.new:
            book.add(change.order, now_ms, random_bytes)
        if change.differs and (not change.new or change.paused):
            book.change(change.name, now_ms, random_bytes, order=change.order, paused=change.paused)


def _change(stored: StoredSink | None, declared: DeclaredSink) -> DeclaredChange:
    wanted, paused = declared.order, declared.paused
    if stored is None:
        find_kind(wanted.kind).check(wanted)
        return DeclaredChange(wanted.name, ("added",), wanted, paused, True)
    old = stored.order
    if wanted.kind != old.kind:
        raise Conflict(
            "a sink's kind lasts as long as the sink", sink=old.name, found=wanted.kind, expected=old.kind,
            hint="declare another sink, and tiered sink remove this one",
        )  # fmt: skip
    differs = [name for name in _CHANGED if getattr(wanted, name) != getattr(old, name)]
    made = replace(old, **{name: getattr(wanted, name) for name in _CHANGED})
    if dict(wanted.options) != dict(old.options):
        differs.append("options")
        without = [name for name in old.options if name not in wanted.options]
        made = changed_options(made, wanted.options, without)
    elif "in_order" in differs:
        find_kind(made.kind).check(made)
    if paused is not None and paused != stored.paused:
        differs.append("paused")
    return DeclaredChange(old.name, tuple(differs), made, paused, False)


def _declared(path: Path, name: str, fields: object) -> DeclaredSink:
    if not isinstance(fields, dict):
        raise _wrong(path, name, fields, "a table of the sink's fields", f"[{name}] and below it its kind")
    for key, value in fields.items():
        if key not in _FIELDS:
            raise _wrong(path, f"{name}.{key}", value, "a field", did_you_mean(key, _FIELDS, "there are: "))
        if not isinstance(value, _FIELDS[key]):
            raise _wrong(path, f"{name}.{key}", value, f"a {_FIELDS[key].__name__}", "see docs/SINKS.md")
    if "kind" not in fields:
        raise _wrong(path, f"{name}.kind", "nothing", "kafka, file, http, …", 'kind = "file"')
    patterns = {
        key: _texts(path, f"{name}.{key}", fields[key]) for key in ("topics", "exclude") if key in fields
    }
    options = {
        str(key): _text(path, f"{name}.options.{key}", v) for key, v in fields.get("options", {}).items()
    }
    plain = {key: fields[key] for key in ("required", "from_start", "in_order") if key in fields}
    try:
        order = SinkOrder(
            name,
            fields["kind"],
            options,
            patterns.get("topics", ("*",)),
            patterns.get("exclude", ()),
            **plain,
        )
    except TieredError as error:
        raise Invalid(f"a declared sink makes no sense: {error}", file=path, table=name) from error
    return DeclaredSink(order, fields.get("paused"))


def _texts(path: Path, where: str, values: list[Any]) -> tuple[str, ...]:
    if not all(isinstance(value, str) for value in values):
        raise _wrong(path, where, values, "a list of patterns", '["Order*"]')
    return tuple(values)


def _text(path: Path, where: str, value: object) -> str:
    """An option's value as ``tiered sink add`` would be given it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int):
        return str(value)
    raise _wrong(path, where, value, "a text, a number or true or false", "write it as a text")


def _wrong(path: Path, where: str, found: object, expected: str, hint: str) -> Invalid:
    return Invalid(
        "a file of sinks has what it cannot have", file=path, field=where, found=repr(found)[:200], expected=expected,
        hint=hint,
    )  # fmt: skip
