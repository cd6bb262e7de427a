"""Values of options: a parser takes an option's name and its text; ``Invalid`` has both, and the fix."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches

from tiered.errors import Invalid
from tiered.text import values

MOST = 2**63 - 1
"""Of offsets, and of ms since 1970."""

Parsers = Mapping[str, tuple[str, Callable[[str, str], object]]]
"""Options by name: the field that each fills, and its parser."""


_PYTHONS = re.compile(r"""\s*([\[(])(['"]).*\2,?[\])]\s*""", re.DOTALL)
"""A list or tuple of texts, as Python shows it."""


def parsed(parsers: Parsers, name: str, value: str) -> tuple[str, object]:
    """Field and value of an option; its name is compared without case, as Spark does. The value of one that is not known is not
    repeated: it may be a secret."""
    known = {spelled.lower(): spelled for spelled in parsers}
    if name.lower() not in known:
        near = get_close_matches(name.lower(), known, 1)
        hint = f"did you mean {known[near[0]]}?" if near else "options: " + ", ".join(sorted(parsers))
        raise Invalid("unknown option", option=name, hint=hint)
    spelled = known[name.lower()]
    field, parse = parsers[spelled]
    return field, parse(spelled, value)


def by_name(given: Mapping[str, object]) -> dict[str, str]:
    """Options that Python's values were given for, as texts: ``None`` is one that was not given, several texts or numbers are
    what the option has for several, a mapping is JSON. ``Invalid`` names an option that has no such text."""
    return {name: _as_text(name, value) for name, value in given.items() if value is not None}


def _as_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value, default=str)  # times, as where a time alone is the value
    if not isinstance(value, list | tuple | set | frozenset):
        return str(value)
    parts = list(value)
    if not all(
        isinstance(part, str) or (isinstance(part, int) and not isinstance(part, bool)) for part in parts
    ):
        raise wrong(name, repr(value), "a text, or a list of texts")
    if name.lower() in _JSON_LISTS and parts:
        return json.dumps([str(part) for part in parts])
    divided = [part for part in parts if isinstance(part, str) and "," in part]
    if divided:
        raise wrong(name, repr(divided[0]), "texts without a comma; for one in a name a pattern has a ?")
    return ",".join(map(str, parts))


_JSON_LISTS = ("keys", "tags")
"""Options that take a text with a comma, in a JSON list."""


def moment(name: str, value: str) -> int:
    """Ms since 1970 of ISO 8601 (UTC unless it says otherwise) or of a number of ms."""
    found = values.time_ms(value)
    if found is None or abs(found) > MOST:
        raise wrong(name, value, "a time such as 2026-01-01T00:00:00Z, or ms since 1970 (13 digits)")
    return found


def wrong(name: str, value: str, expected: str) -> Invalid:
    """The error of a value, with what it had to be."""
    return values.wrong(f"the option {name}", value, expected, _hint(name))


def words(name: str, value: str) -> tuple[str, ...]:
    """Texts joined with commas, at least one."""
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        raise wrong(name, repr(value), "one or several, joined with commas")
    if _PYTHONS.fullmatch(value):  # Spark makes this of a list, and as a pattern it is for one letter
        raise wrong(name, value, "one or several, joined with commas: ','.join(…) of a list")
    return found


def listed(name: str, value: str) -> tuple[str, ...]:
    """Texts joined with commas, or a JSON list of texts, for those that have a comma; at least one."""
    if not value.lstrip().startswith("["):
        return words(name, value)
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one for one in found):
        raise wrong(
            name, value, """one or several, joined with commas, or a JSON list such as ["a,b", "c"]"""
        )
    return tuple(found)


def numbers(name: str, value: str) -> tuple[int, ...]:
    """Numbers joined with commas, at least one."""
    one = whole(0, 2**31 - 1)
    return tuple(one(name, word) for word in words(name, value))


def flag(name: str, value: str) -> bool:
    """``true`` or ``false``."""
    if value.strip().lower() not in ("true", "false"):
        raise wrong(name, value, "true or false")
    return value.strip().lower() == "true"


def text(name: str, value: str) -> str:
    """Whatever it is."""
    return value


def whole(low: int, high: int) -> Callable[[str, str], int]:
    """A whole number from ``low`` to ``high``."""
    return lambda name, value: values.whole(f"the option {name}", value, low, high, hint=_hint(name))


def number(low: float, high: float) -> Callable[[str, str], float]:
    """A number from ``low`` to ``high``."""
    return lambda name, value: values.number(f"the option {name}", value, low, high, hint=_hint(name))


def _hint(name: str) -> str:
    return f"option('{name}', …)"


def one_of(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    """A word of a list, in any case."""
    return lambda name, value: values.one_of(f"the option {name}", value, choices, hint=_hint(name))
