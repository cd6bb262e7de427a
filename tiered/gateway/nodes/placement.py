"""Which read node reads a queue: rendezvous hashing, so that a node that comes or goes moves only its own share of queues.

Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998): each node is weighed by a hash of its name and
the queue's, the heaviest one has the queue, the next ones follow when it is away. Busy queues may have a home by a
table that was learned (``tiered.placement``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tiered.codec.checksum import xxh3_64
from tiered.model import MessageQueue
from tiered.placement.table import queue_digest


def preferred(queue: MessageQueue, nodes: Sequence[str], homes: Mapping[int, str]) -> list[str]:
    """``ranked``, but the queue's home comes first, if it has one (by ``queue_digest``) that is among ``nodes``."""
    order = ranked(queue, nodes)
    home = homes.get(queue_digest(queue)) if homes else None
    if home is not None and home in order:
        order.remove(home)
        order.insert(0, home)
    return order


def ranked(queue: MessageQueue, nodes: Sequence[str]) -> list[str]:
    """``nodes`` in the order in which they are asked for the queue; the same for whoever computes it, in any order of names."""
    key = b"%d/%s/" % (queue.queue_id, queue.topic.encode("utf-8", "surrogatepass"))
    return sorted(nodes, key=lambda node: (xxh3_64(key + node.encode()), node), reverse=True)
