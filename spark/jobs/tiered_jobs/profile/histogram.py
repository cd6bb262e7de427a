"""Distributions in few numbers: buckets that grow with their value, exact below 64 and at most 1/32 wide above.

A bucket's number is made by Spark where the values are (``bucket_of``) and read here: percentiles and bars come from the same
counts, and counts of several topics can be added.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

LARGEST = (1 << 63) - 1
"""Of a column of whole numbers. Negative ones are counted as 0."""

_SUB = 32  # buckets of an octave
_EDGES = (*range(8), *(q << (e - 2) for e in range(3, 63) for q in range(4, 8)))


def bucket_of(value: Column) -> Column:
    """The bucket of a column of whole numbers."""
    from pyspark.sql import functions as f

    clipped = f.greatest(value, f.lit(0)).cast("long")
    # Half above a whole number: no power of two is missed by the logarithm's last digit. Where doubles are coarser than whole
    # numbers one just below a power may be taken for it: that is the same bucket by its other name.
    octave = f.greatest(f.floor(f.log2(clipped + 0.5)) - 5, f.lit(0)).cast("int")
    return (octave * _SUB + f.call_function("shiftright", clipped, octave)).cast("int")


def bounds(bucket: int) -> tuple[int, int]:
    """Smallest and largest value of a bucket."""
    octave = max(0, bucket // _SUB - 1)
    low = (bucket - octave * _SUB) << octave
    return low, low + (1 << octave) - 1


def percentile(counts: Mapping[int, int], share: float, largest: int) -> int | None:
    """The value that ``share`` of all are not above, at most 1/32 too high, never above ``largest``; ``None`` of nothing."""
    wanted, seen = share * sum(counts.values()), 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        if seen >= wanted:
            return min(bounds(bucket)[1], largest)
    return None


def bars(counts: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """(low, high, count) of neighbouring ranges, four an octave, high not included; from the first to the last with a count."""
    found: dict[int, int] = {}
    for bucket, count in counts.items():
        at = bisect_right(_EDGES, bounds(bucket)[0]) - 1
        found[at] = found.get(at, 0) + count
    if not found:
        return []
    ends: Sequence[int] = (*_EDGES[1:], LARGEST + 1)
    return [(_EDGES[at], ends[at], found.get(at, 0)) for at in range(min(found), max(found) + 1)]
