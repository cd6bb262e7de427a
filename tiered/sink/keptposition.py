"""A sink's position as destinations keep it that have no place of their own for one: plain values of JSON."""

from __future__ import annotations

import json
from typing import Any

from tiered.errors import Corrupt
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue
from tiered.sink.base import Rewound, SinkPosition


def position_value(position: SinkPosition) -> dict[str, Any]:
    """``log``, and ``queues`` as lists of topic, queue id, next offset, place of the record before it (or null)."""
    queues = sorted(position.queues.items())
    return {
        "log": json.loads(position.log.encode()),
        "queues": [[q.topic, q.queue_id, f.next, f.physical] for q, f in queues],
    }


def position_of(value: Any) -> SinkPosition:
    """The position of such a value; ``Corrupt`` if it is none."""
    try:
        queues = {
            MessageQueue(str(topic), int(number)): Follow(int(following), None if at is None else int(at))
            for topic, number, following, at in value["queues"]
        }
        return SinkPosition(FeedPosition.decode(json.dumps(value["log"]).encode()), queues)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(
            "the position that a destination keeps cannot be read", found=ascii(value)[:120],
            hint="restore what was changed there by hand, or remove the sink and add it under another name",
        ) from error  # fmt: skip


def rewound_value(gone: Rewound) -> dict[str, Any]:
    """What the broker lost, for readers of a destination: queue offsets from ``first`` on, before ``end``."""
    return {
        "topic": gone.queue.topic, "queue_id": gone.queue.queue_id, "first": gone.first, "end": gone.end,
        "generation": gone.generation,
    }  # fmt: skip


def rewound_of(value: Any) -> Rewound:
    """``KeyError``, ``TypeError``, ``ValueError`` if it is none."""
    queue = MessageQueue(str(value["topic"]), int(value["queue_id"]))
    return Rewound(queue, int(value["first"]), int(value["end"]), int(value["generation"]))


def laid_over(before: SinkPosition, changed: SinkPosition) -> SinkPosition:
    """The complete position after a flush that tells what changed."""
    return SinkPosition(changed.log, {**before.queues, **changed.queues})
