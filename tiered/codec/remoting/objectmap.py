"""RocketMQ's texts with a map whose keys are objects (``{"offsetTable":{{"topic":…}:{…},…}}``): read, changed, written.

fastjson writes such maps, and no standard parser reads them. Only the one map is taken apart; what is around it stays as it
is, and entries are written back as compactly as they came. Source: recorded answers to 202 and 222 in ``tests/data/wire``.
For clients in C++ brokers write a list instead, each value beside its key's fields (RocketMQ's ``ResetOffsetBodyForC``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sized
from dataclasses import dataclass
from typing import Any

from tiered.errors import Corrupt

MAX_ENTRIES = 262_144

_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(slots=True)
class ObjectMap:
    """The text before the map, its entries in order (key object, value), and the text after it.

    ``listed``: it is a list of the key objects, with each value in the field of that name.
    """

    before: str
    entries: list[tuple[dict[str, Any], Any]]
    after: str
    listed: str | None = None

    def encode(self) -> bytes:
        """The whole text again."""
        if self.listed is not None:
            items = ",".join(_text({**key, self.listed: value}) for key, value in self.entries)
            return f"{self.before}[{items}]{self.after}".encode()
        entries = ",".join(f"{_text(key)}:{_text(value)}" for key, value in self.entries)
        return f"{self.before}{{{entries}}}{self.after}".encode()


def decode_object_map(body: bytes | memoryview, name: str, *, listed: str | None = None) -> ObjectMap:
    """The map under the first ``"name":`` of ``body``, or the list there whose objects have their value in field ``listed``.

    ``Corrupt`` if there is none, or it is not of this form.
    """
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt("a table is not UTF-8", position=error.start) from None
    found = re.search(rf'"{re.escape(name)}"[ \t\r\n]*:[ \t\r\n]*', text)
    start = len(text) if found is None else found.end()
    opening = text[start : start + 1]
    if listed is not None and opening == "[":
        return _list(text, start, name, listed)
    if opening != "{":
        raise Corrupt("a table is missing", expected=name)
    entries: list[tuple[dict[str, Any], Any]] = []
    position = _skip(text, start + 1)
    while text[position : position + 1] != "}":
        if entries:
            position = _skip(text, _expect(text, position, ","))
        key, position = _value(text, position)
        if not isinstance(key, dict):
            raise Corrupt("a key of a table is not an object", table=name, found=type(key).__name__)
        position = _skip(text, _expect(text, _skip(text, position), ":"))
        value, position = _value(text, position)
        position = _skip(text, position)
        entries.append((key, value))
        _check_count(entries)
    return ObjectMap(text[:start], entries, text[position + 1 :])


def _list(text: str, start: int, name: str, listed: str) -> ObjectMap:
    items, end = _value(text, start)
    if not all(isinstance(item, dict) and listed in item for item in items):
        raise Corrupt("an item of a table lacks a field", table=name, expected=listed)
    _check_count(items)
    return ObjectMap(text[:start], [(item, item[listed]) for item in items], text[end:], listed)


def _check_count(entries: Sized) -> None:
    if len(entries) > MAX_ENTRIES:
        raise Corrupt("a table has too many entries", expected=f"≤ {MAX_ENTRIES}")


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _value(text: str, position: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, position)
    except (ValueError, RecursionError):
        raise Corrupt("a table has an entry that is not JSON", position=position) from None


def _skip(text: str, position: int) -> int:
    found = _BLANKS.match(text, position)
    return position if found is None else found.end()


def _expect(text: str, position: int, what: str) -> int:
    if text[position : position + 1] != what:
        raise Corrupt(
            "a table is not well formed",
            position=position,
            expected=what,
            found=text[position : position + 1],
        )
    return position + 1
