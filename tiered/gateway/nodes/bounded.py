"""No node gets more than its share of what is under way, and a bit: consistent hashing with bounded loads.

Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads" (2016, arXiv 1608.01350): who is first in the order
for a queue is asked, unless it has (1 + ε) times the mean of what is under way already; then the next one is. So a queue stays
where its cache is while that node has room, and a queue that everybody reads spreads over as many nodes as it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil


def bound(under_way: int, share: float, percent: int) -> int:
    """The most reads that a node may have when one more is given to somebody: ``under_way`` at all nodes now, ``share``: the
    node's part of all capacity, ``percent``: ε."""
    return ceil((100 + percent) * (under_way + 1) * share / 100 - 1e-9)


def first_with_room(
    order: Sequence[str], under_way: Mapping[str, int], capacity: Mapping[str, int], percent: int
) -> str | None:
    """The first of ``order`` that is below its bound; all of them are there. ``None`` only if there is nobody."""
    reads = sum(under_way[name] for name in order)
    whole = sum(capacity[name] for name in order)
    for name in order:
        if under_way[name] < bound(reads, capacity[name] / whole, percent):
            return name
    return None
