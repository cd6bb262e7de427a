"""Which read node reads a queue: rendezvous hashing, so that a node that comes or goes moves only its own share of queues.

Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998): each node is weighed by a hash of its name and
the queue's, the heaviest one has the queue, the next ones follow when it is away. Capacities are weights by the method of
Schindelhauer and Schomaker, "Weighted distributed hash tables" (2005): capacity over −ln of the hash as a fraction, by which a
node of 2 is first for twice as many queues. Busy queues may have a home by a table (``tiered.placement``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from tiered.codec.checksum import xxh3_64
from tiered.model import MessageQueue
from tiered.placement.table import queue_digest

_EQUAL: Mapping[str, int] = {}


def preferred(
    queue: MessageQueue, nodes: Sequence[str], homes: Mapping[int, str], capacity: Mapping[str, int] = _EQUAL
) -> list[str]:
    """``ranked``, but the queue's home comes first, if it has one (by ``queue_digest``) that is among ``nodes``."""
    order = ranked(queue, nodes, capacity)
    home = homes.get(queue_digest(queue)) if homes else None
    if home is not None and home in order:
        order.remove(home)
        order.insert(0, home)
    return order


def ranked(queue: MessageQueue, nodes: Sequence[str], capacity: Mapping[str, int] = _EQUAL) -> list[str]:
    """``nodes`` in the order in which they are asked for the queue; the same for whoever computes it, in any order of names.
    ``capacity``: of each node; empty: all alike, which gives the order that any equal capacities give."""
    key = b"%d/%s/" % (queue.queue_id, queue.topic.encode("utf-8", "surrogatepass"))
    hashes = {node: xxh3_64(key + node.encode()) for node in nodes}
    if len({capacity.get(node, 1) for node in nodes}) < 2:
        return sorted(nodes, key=lambda node: (hashes[node], node), reverse=True)
    weights = {node: capacity.get(node, 1) / -log(_fraction(hashes[node])) for node in nodes}
    return sorted(nodes, key=lambda node: (weights[node], hashes[node], node), reverse=True)


def _fraction(digest: int) -> float:
    """A hash of 64 bits as a number between 0 and 1, which it never is: 52 bits and a half are exact."""
    return ((digest >> 12) + 0.5) / (1 << 52)
