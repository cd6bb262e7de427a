"""Which read node reads a queue: rendezvous hashing, so that a node that comes or goes moves only its own share of queues.

Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998): each node is weighed by a hash of its name and
the queue's, the heaviest one has the queue, the next ones follow when it is away.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiered.codec.checksum import xxh3_64
from tiered.model import MessageQueue


def ranked(queue: MessageQueue, nodes: Sequence[str]) -> list[str]:
    """``nodes`` in the order in which they are asked for the queue; the same for whoever computes it, in any order of names."""
    key = b"%d/%s/" % (queue.queue_id, queue.topic.encode("utf-8", "surrogatepass"))
    return sorted(nodes, key=lambda node: (xxh3_64(key + node.encode()), node), reverse=True)
