"""Text to value: numbers, sizes, durations and times as people write them, in flags, options, settings and files.

A size has a unit of bytes (``"10MB"``, ``"32MiB"``) or none, a duration one of time (``"500ms"``, ``"1.5s"``, ``"2m"``,
``"1h"``, ``"7d"``). Bare ``K`` or ``M`` is refused: it means 1000 to some and 1024 to others. A time is ISO 8601, UTC unless
it says otherwise, or milliseconds since 1970.

Functions that take a ``name`` raise ``Invalid`` with name, text, what is wanted and an example; the others answer ``None``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction

from tiered.errors import Invalid

SIZES: Mapping[str, int] = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
"""Bytes of a unit."""

DURATIONS: Mapping[str, int] = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
"""Milliseconds of a unit."""

BARE: Mapping[str, int] = {"": 1}
"""A number without a unit."""

_MOST = 1 << 62
_NUMBER = re.compile(r"\s*([+-]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-z%/]*)\s*\Z", re.ASCII)


def scaled(text: object, units: Mapping[str, int]) -> Fraction | None:
    """Number times unit, a unit in any case; ``None`` if ``text`` is not of that form."""
    match = _NUMBER.match(text) if isinstance(text, str) and len(text) <= 40 else None
    scale = units.get(match[2].lower()) if match else None
    if match is None or scale is None or "__" in match[1] or "_." in match[1]:
        return None
    return Fraction(match[1].replace("_", "")) * scale


def time_ms(text: str) -> int | None:
    """Milliseconds since 1970; ``None`` if ``text`` is not a time.

    A number of 8 to 11 digits is none: it is a date without dashes, or seconds, and ms of 1970 to 1973 are nobody's."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        value = int(text)
        return None if 10**7 <= value < 10**11 else value
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration(text: str, *, least: int = 1) -> int | None:
    """Milliseconds of a duration, ``least`` or more; ``None`` if ``text`` is not one."""
    return _within(scaled(text, DURATIONS), least)


def whole(name: str, text: str, low: int, high: int, *, hint: str | None = None) -> int:
    """A whole number from ``low`` to ``high``."""
    value = scaled(text, BARE)
    if value is None or value.denominator != 1 or not low <= value <= high:
        raise wrong(name, text, f"a whole number from {low} to {high}", hint or f"such as {name} {low}")
    return int(value)


def number(name: str, text: str, low: float, high: float, *, hint: str | None = None) -> float:
    """A number from ``low`` to ``high``."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise wrong(name, text, f"a number from {low:.12g} to {high:.12g}", hint or f"such as {name} 1")
    return value


def one_of(name: str, text: str, choices: Sequence[str], *, hint: str | None = None) -> str:
    """A word of a list, in any case."""
    word = text.strip().lower()
    if word not in choices:
        raise wrong(name, text, " or ".join(choices), hint or f"such as {name} {choices[0]}")
    return word


def size_bytes(name: str, text: str, *, least: int = 0) -> int:
    """Bytes of a size, ``least`` or more; part of a byte in a size as they are shown, ``2.3TiB``, is rounded."""
    found = scaled(text, {**SIZES, **BARE})
    if found is not None and found >= SIZES["kib"]:
        found = Fraction(round(found))
    value = _within(found, least)
    if value is None:
        raise wrong(name, text, "a size such as 256MiB or 50GB", f"such as {name} 256MiB")
    return value


def duration_ms(name: str, text: str) -> int:
    """Milliseconds of a duration above 0."""
    value = parse_duration(text)
    if value is None:
        raise wrong(name, text, "a time such as 90s, 1h or 30d", f"such as {name} 30d")
    return value


def moment_ms(name: str, text: str) -> int:
    """Milliseconds since 1970 of a time."""
    found = time_ms(text)
    if found is None:
        raise Invalid(
            f"{name} is not a time", found=text, expected="ms since 1970 (13 digits), or ISO 8601 with dashes",
            hint=f"for example {name} 2026-01-31T00:00:00Z",
        )  # fmt: skip
    return found


def wrong(name: str, text: str, expected: str, hint: str) -> Invalid:
    """The error of a value: its name, the text that was found, what it had to be, and how to write it."""
    return Invalid(f"{name} is wrong", found=text, expected=expected, hint=hint)


def _within(value: Fraction | None, least: int) -> int | None:
    return int(value) if value is not None and value.denominator == 1 and least <= value < _MOST else None
