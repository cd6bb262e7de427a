"""What a verb says of a topic or a queue that is not archived: never an empty answer, which could be one of a typing error."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from itertools import islice

from tiered.archive.state.values import QueueState
from tiered.errors import NotFound

MOST_COMPARED = 10_000
"""Names that a wrong one is compared with."""


def absent_topic(topic: str, known: Iterable[str]) -> NotFound:
    """The error for a topic of which nothing is archived; ``known``: the topics that are, RocketMQ's own among them."""
    near = get_close_matches(topic, list(islice(known, MOST_COMPARED)), 1)
    hint = f"did you mean {near[0]}?" if near else "tiered topics lists the archived topics; names are exact"
    return NotFound("this topic is not archived", topic=topic, hint=hint)


def absent_queue(
    topic: str, queue: int, queues: Iterable[QueueState], topics: Callable[[], Iterable[str]]
) -> NotFound:
    """The error for a queue that is not archived: of a topic that is, with its ``queues``, or of none of the ``topics``."""
    ids = [found.queue.queue_id for found in islice(queues, 1000)]
    if not ids:
        return absent_topic(topic, topics())
    return NotFound(
        "the archive has no such queue",
        topic=topic,
        queue=queue,
        hint=f"tiered queues --topic lists the existing ones: {ids[0]} to {ids[-1]}",
    )
