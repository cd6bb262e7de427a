"""How a value is written for people: numbers in groups, sizes with a unit, times in ISO 8601, ranges in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from tiered.text.values import DURATIONS, SIZES


class Kind(Enum):
    """What a value is, for people; JSON always gets it plain."""

    PLAIN = "plain"
    COUNT = "count"  # 1,234,567
    SIZE = "size"  # bytes → 1.2 MiB
    TIME = "time"  # ms since 1970 → 2026-01-31T12:00:00.123Z, as every flag takes it
    SECONDS = "seconds"
    RANGES = "ranges"  # [[start, end, reason], …] or [{start, end, reason, lineage}, …] → [5, 1,000) reason


def human(value: object, kind: Kind = Kind.PLAIN) -> str:
    """``value`` for people; ``-`` for ``None``."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if kind is Kind.SIZE:
            return size(int(value))
        if kind is Kind.TIME:
            return moment(int(value))
        if kind is Kind.SECONDS:
            return f"{value:,.3f} s"
        if kind is Kind.COUNT:
            return f"{value:,}"
    if kind is Kind.RANGES and isinstance(value, list | tuple):
        return "; ".join(_range(item) for item in value)
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple):
        return ", ".join(human(v) for v in value)
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name.replace('_', ' ')} {human(v, kind_of(name, v))}" for name, v in value.items()
        )
    return printable(str(value))


def _range(item: Mapping[str, Any] | Sequence[Any]) -> str:
    """A range of offsets in words."""
    where = ""
    if isinstance(item, Mapping):
        start, end, reason = item["start"], item["end"], item.get("reason")
        where = f" (lineage {item['lineage']})" if "lineage" in item else ""
    else:
        start, end, reason = item[0], item[1], item[2] if len(item) > 2 else None
    return f"[{start:,}, {end:,})" + (f" {printable(str(reason))}" if reason else "") + where


_FIRST_MOMENT_MS = 10**11
"""1973: a smaller number of milliseconds is a time that passes."""


def kind_of(name: str, value: object) -> Kind:
    """What a value of a record is by its name, where the verb does not say it: numbers are written alike everywhere."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Kind.PLAIN
    if name == "bytes" or name.endswith("_bytes"):
        return Kind.SIZE
    if name.endswith("_ms") and value >= _FIRST_MOMENT_MS:
        return Kind.TIME
    return Kind.COUNT


def said(value: object, kind: Kind) -> str:
    """``human`` for a value that stands alone: nothing in a list is said, too."""
    return "none" if isinstance(value, list | tuple) and not value else human(value, kind)


def size(value: int) -> str:
    """Bytes with a binary unit: ``1.2 MiB``."""
    scaled = float(value)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(scaled) < 1024 or unit == "TiB":
            return f"{value} B" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    raise AssertionError("unreachable")


def moment(ms: int) -> str:
    """Milliseconds since 1970 as UTC; the number itself when no calendar holds it."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return str(ms)


def second(ms: int) -> str:
    """Milliseconds since 1970 as UTC, to the second: ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(ms: int) -> str:
    """Milliseconds in the largest unit that they fill, three digits: ``1.5 h``."""
    for unit in ("d", "h", "min", "s"):
        if abs(ms) >= DURATIONS[unit]:
            return f"{ms / DURATIONS[unit]:.3g} {unit}"
    return f"{ms} ms"


def exact_size(value: int) -> str:
    """Bytes in the largest binary unit without a fraction, as settings take it: ``32MiB``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if value >= SIZES[unit.lower()] and value % SIZES[unit.lower()] == 0:
            return f"{value // SIZES[unit.lower()]}{unit}"
    return str(value)


def printable(text: str) -> str:
    """``text`` with control characters escaped, so that it cannot steer a terminal."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    )
