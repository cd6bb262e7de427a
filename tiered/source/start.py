"""Where an empty archive begins: ``earliest``, ``latest``, or a store time."""

from __future__ import annotations

from typing import Protocol

from tiered.errors import Invalid
from tiered.model import PhysicalOffset
from tiered.source.base import LogFiles, Tail
from tiered.text.values import time_ms


class DatedFiles(Tail, LogFiles, Protocol):
    """What a start is looked up in."""


def resolve_start(source: DatedFiles, start: str) -> PhysicalOffset:
    """The physical offset that ``source.start`` means: ``earliest``, ``latest``, a store time in ms, or in ISO 8601 (UTC unless
    it names a zone). A time is the first record stored at or after it; files are searched by their first record's time, since
    store times rise but for clock steps. ``Invalid`` for anything else.
    """
    if start == "earliest":
        files = source.files()
        return files[0].base if files else PhysicalOffset(0)
    if start == "latest":
        return source.max_offset()
    return _first_since(source, parse_time_ms(start))


def parse_time_ms(text: str) -> int:
    """Milliseconds since the epoch from decimal ms or ISO 8601. ``Invalid`` names key, value and fix."""
    found = time_ms(text)
    if found is None:
        raise Invalid(
            "source.start is not a start point",
            key="source.start",
            value=text,
            expected="earliest, latest, a store time in ms (13 digits), or ISO 8601 with dashes",
            hint="for example source.start = 2026-01-31T00:00:00Z",
        )
    return found


def _first_since(source: DatedFiles, time_ms: int) -> PhysicalOffset:
    files = source.files()
    low, high = 0, len(files)  # files[:low] begin before the time, files[high:] do not
    while low < high:
        middle = (low + high) // 2
        first = source.first_time(files[middle])
        if first is not None and first < time_ms:
            low = middle + 1
        else:
            high = middle
    if low > 0:
        found = source.find_time(files[low - 1], time_ms)
        if found is not None:
            return found
    if low < len(files) and source.first_time(files[low]) is not None:
        return files[low].base
    return source.max_offset()
