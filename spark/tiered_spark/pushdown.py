"""Filters of a query, as far as they say which runs and blocks cannot hold a wanted message.

Every filter stays with Spark, which applies it to the rows: what is taken from it here only saves reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from tiered_spark.options import Options
from tiered_spark.ranges import Range


@dataclass(frozen=True, slots=True)
class Wanted:
    """What messages must be like; ``None``: whatever. ``times`` in ms. ``keys``: one of them, as a key or unique key."""

    topics: frozenset[str] | None = None
    topic_prefix: str = ""
    queue_ids: frozenset[int] | None = None
    offsets: Range = field(default_factory=Range)
    times: Range = field(default_factory=Range)
    tags: frozenset[str] | None = None
    unique_keys: frozenset[str] | None = None
    keys: frozenset[str] | None = None

    @property
    def by_key(self) -> bool:
        """Whether keys or unique keys are asked for."""
        return self.keys is not None or self.unique_keys is not None

    def topic(self, name: str) -> bool:
        """Whether messages of a topic may be wanted."""
        return (self.topics is None or name in self.topics) and name.startswith(self.topic_prefix)

    def runs(self, records: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Which runs (``RUN_DTYPE``) may hold wanted messages."""
        good = (records["start"] <= self.offsets.high) & (records["end"] > self.offsets.low)
        good &= records["min_store_time"] <= self.times.high
        good &= records["max_store_time"] >= self.times.low
        found: npt.NDArray[np.bool_] = good
        return found

    def blocks(self, table: npt.NDArray[Any], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which blocks of a table may hold wanted messages; ``ends``: the queue offset behind each."""
        good = (table["min_store_time"] <= self.times.high) & (table["max_store_time"] >= self.times.low)
        found: npt.NDArray[np.bool_] = (
            good & (table["first_queue_offset"] <= self.offsets.high) & (ends > self.offsets.low)
        )
        return found

    def narrowed(self, given: Filter) -> Wanted:
        """With one more filter; the same if it says nothing here."""
        attribute: tuple[str, ...] = getattr(given, "attribute", ())
        take = _TAKERS.get(attribute[0]) if len(attribute) == 1 else None
        return self if take is None else take(self, given)


def first_wish(options: Options) -> Wanted:
    """What the options say, before any filter."""
    return Wanted(
        queue_ids=frozenset(options.queue_ids) or None,
        offsets=options.offsets,
        times=options.times,
        tags=frozenset(options.tags) or None,
        keys=frozenset(options.keys) or None,
    )


def narrow(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """All filters together."""
    for given in filters:
        wanted = wanted.narrowed(given)
    return wanted


def _equals(given: Filter) -> frozenset[Any] | None:
    """Values that a column must be one of."""
    if isinstance(given, (EqualTo, EqualNullSafe)):
        return None if given.value is None else frozenset((given.value,))
    if isinstance(given, In):
        return frozenset(v for v in given.value if v is not None)
    return None


def _both(old: frozenset[Any] | None, new: frozenset[Any] | None) -> frozenset[Any] | None:
    return old if new is None else new if old is None else old & new


def _one_of(name: str) -> Callable[[Wanted, Filter], Wanted]:
    """For a column whose values ``Wanted`` lists under ``name``."""

    def take(wanted: Wanted, given: Filter) -> Wanted:
        listed: dict[str, Any] = {name: _both(getattr(wanted, name), _equals(given))}
        return replace(wanted, **listed)

    return take


def _topic(wanted: Wanted, given: Filter) -> Wanted:
    if isinstance(given, StringStartsWith):
        return replace(wanted, topic_prefix=max(wanted.topic_prefix, given.value, key=len))
    return _one_of("topics")(wanted, given)


def _range(old: Range, given: Filter, low: Callable[[Any], int], high: Callable[[Any], int]) -> Range:
    """``low`` and ``high``: a literal as a bound from below and from above."""
    values = _equals(given)
    if values is not None:
        return old.cut(min(map(low, values)), max(map(high, values))) if values else old.cut(1, 0)
    if isinstance(given, (GreaterThan, GreaterThanOrEqual)):
        return old.cut(low=low(given.value) + (isinstance(given, GreaterThan) and low is int))
    if isinstance(given, (LessThan, LessThanOrEqual)):
        return old.cut(high=high(given.value) - (isinstance(given, LessThan) and high is int))
    return old


def _offset(wanted: Wanted, given: Filter) -> Wanted:
    return replace(wanted, offsets=_range(wanted.offsets, given, int, int))


def _time(wanted: Wanted, given: Filter) -> Wanted:
    return replace(wanted, times=_range(wanted.times, given, _ms_down, _ms_up))


def _ms_down(value: Any) -> int:
    return int(value) if not isinstance(value, datetime) else _micros(value) // 1000


def _ms_up(value: Any) -> int:
    return int(value) if not isinstance(value, datetime) else -(-_micros(value) // 1000)


def _micros(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    whole = aware.replace(microsecond=0)
    return int(whole.timestamp()) * 1_000_000 + aware.microsecond


_TAKERS: dict[str, Callable[[Wanted, Filter], Wanted]] = {
    "topic": _topic,
    "queue_id": _one_of("queue_ids"),
    "queue_offset": _offset,
    "store_timestamp": _time,
    "tags": _one_of("tags"),
    "unique_key": _one_of("unique_keys"),
}
