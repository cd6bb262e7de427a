"""Busy queues to nodes: new ones where predicted load is lowest, known ones where they are, unless moving gains enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tiered.model import MessageQueue

BOUND = 1.10
"""A node with less than this times the mean load, for its capacity, is left as it is."""
GAIN = 0.02
"""A queue moves only if the fullest node's load falls by at least this part of the mean."""
MOST_MOVES = 64
"""Queues that one assignment moves from a node that is there: each begins with a cold cache."""

Ranked = Callable[[MessageQueue, Sequence[str]], list[str]]


def assign(
    loads: Mapping[MessageQueue, float],
    nodes: Mapping[str, int],
    before: Mapping[MessageQueue, str],
    ranked: Ranked,
) -> dict[MessageQueue, str]:
    """The node of each queue of ``loads`` (predicted, in any unit). ``nodes``: names and capacities; one of 2 bears twice
    what one of 1 does. ``before``: where queues were. ``ranked``: nodes in the order of hashing, which decides between equals.
    Deterministic, whatever the order of the arguments."""
    if not nodes:
        return {}
    order = sorted(loads, key=lambda queue: (-loads[queue], queue))
    placed = {queue: before[queue] for queue in order if before.get(queue) in nodes}
    held = dict.fromkeys(sorted(nodes), 0.0)
    for queue, node in placed.items():
        held[node] += loads[queue]
    for queue in order:
        if queue in placed:
            continue
        after = {name: (load + loads[queue]) / nodes[name] for name, load in held.items()}
        least = min(after.values())
        equal = [name for name, load in after.items() if load == least]
        node = ranked(queue, equal)[0] if len(equal) > 1 else equal[0]
        placed[queue] = node
        held[node] += loads[queue]
    _level(loads, nodes, order, placed, held)
    return placed


def _level(
    loads: Mapping[MessageQueue, float],
    nodes: Mapping[str, int],
    order: Sequence[MessageQueue],
    placed: dict[MessageQueue, str],
    held: dict[str, float],
) -> None:
    """Move what gains most from the fullest node, by its capacity, to the emptiest, as long as that is worth it."""
    mean = sum(held.values()) / sum(nodes.values())
    for _ in range(MOST_MOVES):
        full = max(held, key=lambda name: (held[name] / nodes[name], name))
        empty = min(held, key=lambda name: (held[name] / nodes[name], name))
        if held[full] <= BOUND * mean * nodes[full]:
            return
        room = held[full] * nodes[empty] - held[empty] * nodes[full]
        most = room / (nodes[full] + nodes[empty])
        # The largest one that leaves the fullest not emptier than the other: its load falls by all of it.
        fitting = (queue for queue in order if placed[queue] == full and loads[queue] <= most)
        queue = next(fitting, None)
        if queue is None or loads[queue] < GAIN * mean * nodes[full]:
            return
        placed[queue] = empty
        held[full] -= loads[queue]
        held[empty] += loads[queue]


def imbalance(
    loads: Mapping[MessageQueue, float], placed: Mapping[MessageQueue, str], nodes: Mapping[str, int]
) -> float:
    """Load of the fullest node, for its capacity, over the mean; 1 is even. 1 also without any load."""
    held = dict.fromkeys(nodes, 0.0)
    for queue, load in loads.items():
        held[placed[queue]] += load
    total = sum(held.values())
    if total <= 0:
        return 1.0
    return max(load / nodes[name] for name, load in held.items()) * sum(nodes.values()) / total
