"""Busy queues to nodes: new ones where predicted load is lowest, known ones where they are, unless moving gains enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heapreplace

from tiered.model import MessageQueue

BOUND = 1.10
"""A node with less than this times the mean load is left as it is."""
GAIN = 0.02
"""A queue moves only if the fullest node's load falls by at least this part of the mean."""
MOST_MOVES = 64
"""Queues that one assignment moves from a node that is there: each begins with a cold cache."""

Ranked = Callable[[MessageQueue, Sequence[str]], list[str]]


def assign(
    loads: Mapping[MessageQueue, float],
    nodes: Sequence[str],
    before: Mapping[MessageQueue, str],
    ranked: Ranked,
) -> dict[MessageQueue, str]:
    """The node of each queue of ``loads`` (predicted, in any unit). ``before``: where queues were. ``ranked``: nodes in the
    order of hashing, which decides between equals. Deterministic, whatever the order of the arguments."""
    names = sorted(set(nodes))
    if not names:
        return {}
    order = sorted(loads, key=lambda queue: (-loads[queue], queue))
    placed = {queue: before[queue] for queue in order if before.get(queue) in names}
    held = dict.fromkeys(names, 0.0)
    for queue, node in placed.items():
        held[node] += loads[queue]
    heap = [(load, name) for name, load in held.items()]
    heapify(heap)
    for queue in order:
        if queue in placed:
            continue
        least = heap[0][0]
        equal = [name for name, load in held.items() if load == least]
        node = ranked(queue, equal)[0] if len(equal) > 1 else heap[0][1]
        placed[queue] = node
        held[node] += loads[queue]
        while held[heap[0][1]] != heap[0][0]:
            heapreplace(heap, (held[heap[0][1]], heap[0][1]))
    _level(loads, order, placed, held)
    return placed


def _level(
    loads: Mapping[MessageQueue, float],
    order: Sequence[MessageQueue],
    placed: dict[MessageQueue, str],
    held: dict[str, float],
) -> None:
    """Move what gains most from the fullest node to the emptiest, as long as that is worth it."""
    mean = sum(held.values()) / len(held)
    for _ in range(MOST_MOVES):
        full = max(held, key=lambda name: (held[name], name))
        empty = min(held, key=lambda name: (held[name], name))
        if held[full] <= BOUND * mean:
            return
        half = (held[full] - held[empty]) / 2
        # The largest one that does not overshoot the middle: the fullest node gets lighter by all of it.
        fitting = (queue for queue in order if placed[queue] == full and loads[queue] <= half)
        queue = next(fitting, None)
        if queue is None or loads[queue] < GAIN * mean:
            return
        placed[queue] = empty
        held[full] -= loads[queue]
        held[empty] += loads[queue]


def imbalance(
    loads: Mapping[MessageQueue, float], placed: Mapping[MessageQueue, str], nodes: Sequence[str]
) -> float:
    """Load of the fullest node over the mean; 1 is even. 1 also without any load."""
    held = dict.fromkeys(nodes, 0.0)
    for queue, load in loads.items():
        held[placed[queue]] += load
    total = sum(held.values())
    return max(held.values()) * len(held) / total if total > 0 else 1.0
