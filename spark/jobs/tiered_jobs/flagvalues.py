"""Values of flags as people write them; each parser names flag, value and fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from tiered.errors import Invalid

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_TIMES = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def whole(flag: str, low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from ``low`` to ``high``."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]+", text, re.ASCII) or not low <= int(text) <= high:
            expected = f"a whole number from {low} to {high}"
            raise Invalid(f"{flag} is wrong", found=text, expected=expected, hint=f"such as {flag} {low}")
        return int(text)

    return parse


def number(flag: str, low: float, high: float) -> Callable[[str], float]:
    """A parser of numbers from ``low`` to ``high``."""

    def parse(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            found = float("nan")
        if not low <= found <= high:
            expected = f"a number from {low:g} to {high:g}"
            raise Invalid(f"{flag} is wrong", found=text, expected=expected, hint=f"such as {flag} 1")
        return found

    return parse


def duration(flag: str) -> Callable[[str], int]:
    """A parser of times above 0 with a unit; gives ms."""
    return lambda text: _scaled(flag, text, _TIMES, "a time such as 90s, 1h or 30d", f"{flag} 30d")


def size(flag: str) -> Callable[[str], int]:
    """A parser of sizes above 0; gives bytes."""
    return lambda text: _scaled(flag, text, _SIZES, "a size such as 256MiB or 50GB", f"{flag} 256MiB")


def _scaled(flag: str, text: str, units: Mapping[str, int], expected: str, example: str) -> int:
    found = _NUMBER.fullmatch(text.strip())
    scale = units.get(found[2].lower()) if found else None
    value = 0 if found is None or scale is None else round(float(found[1]) * scale)
    if not 0 < value < 1 << 62:
        raise Invalid(f"{flag} is wrong", found=text, expected=expected, hint=f"such as {example}")
    return value
