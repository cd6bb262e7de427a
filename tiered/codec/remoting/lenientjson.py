"""Bodies that are nearly JSON: RocketMQ's fastjson writes numbers as keys of objects without quotes (``{"a":{0:1,-1:2}}``).

Maps whose keys are whole objects are for ``objectmap``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from tiered.errors import Corrupt

# The closing quote is optional: a string that never ends is one match, and not one attempt at each of its quotes.
_STRING_OR_BARE_KEY = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|([{,]\s*)(-?\d+)(?=\s*:)', re.DOTALL)
_NUMBERS = re.compile(r"\{\s*-?\d[^{}\"]*\}")
"""An object whose keys are bare numbers, and whose values are no strings and no objects."""
_DECODER = json.JSONDecoder()
_BLANKS = re.compile(r"[ \t\r\n]*")


def decode_json(body: bytes | memoryview) -> Any:
    """The value that ``body`` is, bare numbers as keys made strings; what looks like one inside a string stays as it is.

    ``Corrupt`` if it is not JSON even then.
    """
    data = bytes(body)
    try:
        try:
            return json.loads(data)
        except ValueError:
            return json.loads(_STRING_OR_BARE_KEY.sub(_quoted, data))
    except (ValueError, RecursionError) as error:
        raise Corrupt("a body is not JSON", found=str(error)[:200]) from error


def members_of(body: bytes, table: str) -> Iterator[tuple[str, Any]]:
    """Names and values of the object under a key of the object that ``body`` is, one after the other: as a whole the table of a
    broker with very many topics takes hundreds of megabytes. Nothing if the key is not there.

    ``Corrupt``, perhaps at the end, if ``body`` is not one object, or the table is none.
    """
    given = 0
    try:
        for member in _members(body, table):
            given += 1
            yield member
    except (ValueError, KeyError, TypeError, RecursionError):
        whole = decode_json(body)  # with numbers as keys deep inside, say; what is damaged fails here again
        found = whole.get(table, {}) if isinstance(whole, dict) else None
        if not isinstance(found, dict):
            raise Corrupt("a body is not JSON", found=f"{table} is no object") from None
        yield from islice(found.items(), given, None)


def _members(body: bytes, table: str) -> Iterator[tuple[str, Any]]:
    text = body.decode()
    place = re.search(rf'"{re.escape(table)}"\s*:\s*', text)
    if place is None or text[place.end() : place.end() + 1] != "{":
        raise ValueError("no table")
    at = _behind(text, place.end() + 1)
    while text[at : at + 1] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _behind(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError("no name of a member")
        at = _behind(text, at + 1)
        flat = _NUMBERS.match(text, at)
        if flat is None:
            value, at = _DECODER.raw_decode(text, at)
        else:
            value, at = decode_json(flat[0].encode()), flat.end()
        yield name, value
        at = _behind(text, at)
        if text[at : at + 1] == ",":
            at = _behind(text, at + 1)
        elif text[at : at + 1] != "}":
            raise ValueError("no end of a member")
    if decode_json((text[: place.end()] + "{}" + text[at + 1 :]).encode())[table] != {}:
        raise ValueError("the table is elsewhere, too")


def _behind(text: str, at: int) -> int:
    """Behind blanks."""
    found = _BLANKS.match(text, at)
    return at if found is None else found.end()


def _quoted(found: re.Match[bytes]) -> bytes:
    return found[0] if found[2] is None else found[1] + b'"' + found[2] + b'"'
