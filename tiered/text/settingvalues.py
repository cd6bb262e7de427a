"""Text to setting: sizes, durations, flags and lists as people write them, in files, environment and flags.

A whole number is taken in the setting's own unit. Text may carry a unit as ``values.py`` knows them, and ``%`` for percent.

A list is a TOML array, or texts with commas between them; in the environment and in flags both are text. Every list is one of
patterns of names (``*``, ``?``, ``[ab]``), so what can match no name is refused: it is a list that lost, or kept, its quotes.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import Field
from typing import Any

from tiered.errors import Invalid
from tiered.settings import shown
from tiered.text.values import BARE, DURATIONS, SIZES, scaled

_BYTES = {**BARE, **SIZES}
_UNITS: Mapping[str, tuple[Mapping[str, int], str]] = {
    "bytes": (_BYTES, 'a number of bytes or a size such as "32MiB"'),
    "bytes/s": (
        {**_BYTES, **{unit + "/s": scale for unit, scale in SIZES.items()}},
        'bytes per second, or such as "10MiB"',
    ),
    "ms": ({**BARE, **DURATIONS}, 'milliseconds or a time such as "500ms" or "1s"'),
    "%": ({**BARE, "%": 1}, "a whole number of percent"),
}
_PLAIN: tuple[Mapping[str, int], str] = (BARE, "a whole number")

_CLASS = re.compile(r"\[!?[\w%|.-]+\]", re.ASCII)
"""Characters between brackets, as a pattern may have them."""

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def convert(key: str, field: Field[Any], raw: object, *, where: str) -> Any:
    """The value of setting ``key`` from ``raw``, a TOML value or text; ``where`` names its origin in errors.

    Raises ``Invalid`` with key, value, what is wanted and where it stands. Bounds are checked by the section itself.
    """
    default = field.default
    if isinstance(default, bool):
        return _flag(key, field, raw, where)
    if isinstance(default, int):
        return _number(key, field, raw, where)
    if isinstance(default, tuple):
        return _list(key, field, raw, where)
    choices = field.metadata.get("choices") or ()
    if "true" in choices:  # a flag with a word more
        named = ", ".join(choices)
        return raw if raw in choices else str(_flag(key, field, raw, where, f"one of {named}")).lower()
    if isinstance(raw, str):
        if not field.metadata.get("secret") and _array(raw) is not None:
            raise _wrong(key, field, raw, "text, not a list", where)
        return raw
    if isinstance(raw, int) and not isinstance(raw, bool) and key == "source.start":
        return str(raw)
    raise _wrong(key, field, raw, "text in quotes", where)


def _wrong(key: str, field: Field[Any], raw: object, wanted: str, where: str) -> Invalid:
    return Invalid(
        f"{key} must be {wanted}",
        found=shown(field, raw),
        where=where,
        hint="`tiered config default` shows every key with its form and bounds",
    )


def _flag(key: str, field: Field[Any], raw: object, where: str, wanted: str = "true or false") -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.strip().lower() if isinstance(raw, str) else None
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise _wrong(key, field, raw, wanted, where)


def _number(key: str, field: Field[Any], raw: object, where: str) -> int:
    scales, wanted = _UNITS.get(field.metadata.get("unit") or "", _PLAIN)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    value = scaled(raw, scales)
    if value is None:
        raise _wrong(key, field, raw, wanted, where)
    if value.denominator != 1:
        raise _wrong(key, field, raw, wanted + ", without a fraction left over", where)
    return int(value)


def _list(key: str, field: Field[Any], raw: object, where: str) -> tuple[str, ...]:
    parts = raw
    if isinstance(raw, str):
        parts = _array(raw)
        if parts is None:
            parts = [part.strip() for part in raw.split(",") if part.strip()]
            if raw.strip().startswith("[") and raw.strip().endswith("]"):
                raise _misread(key, raw, where)  # the quotes are lost, as a shell does it
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise _wrong(key, field, raw, "a list of texts", where)
    for part in parts:
        if not _matches_names(part):
            raise _misread(key, part, where)
    return tuple(parts)


def _array(text: str) -> list[object] | None:
    """The list that ``text`` is in TOML; ``None`` if it is not one."""
    if not text.strip().startswith("["):
        return None
    try:
        found = tomllib.loads(f"list = {text.strip()}")
    except (ValueError, RecursionError):
        return None
    return found["list"] if set(found) == {"list"} and isinstance(found["list"], list) else None


def _matches_names(pattern: str) -> bool:
    """Whether a pattern may match a name: no name has a quote, and brackets stand around characters that names have."""
    return not set("\"'[]") & set(_CLASS.sub("", pattern))


def _misread(key: str, found: str, where: str) -> Invalid:
    return Invalid(
        f"{key} looks like a list whose quotes were lost or doubled: no name would match",
        found=found,
        where=where,
        expected="patterns with commas between them, or a TOML list with its quotes",
        hint=f"""in a shell outer quotes keep the inner ones: '{key}=["…", "…"]'""",
    )
