"""Records that tell readers of a topic which of its messages the broker lost: no messages, and told from them by a header."""

from __future__ import annotations

from typing import NamedTuple

from tiered.sink.base import Rewound
from tiered.sink.kafka.records import QUEUE, SINK, TOPIC, Headers

MARKER = "rocketmq.marker"
"""The header that no message has: what the record is."""
REWOUND = b"rewound"
FROM, TO, GENERATION = "rocketmq.from", "rocketmq.to", "rocketmq.generation"


class MarkerRecord(NamedTuple):
    """``key``: of the queue's markers alone, so that compaction takes an older one and never a message. The value is null."""

    key: bytes
    headers: Headers


def marker_of(gone: Rewound, sink: str) -> MarkerRecord:
    """Queue offsets from ``rocketmq.from`` on, before ``rocketmq.to``, of the queue's life ``rocketmq.generation``.
    ``sink``: as of ``SinkPlace.short_id``."""
    topic = gone.queue.topic.encode("utf-8", "surrogateescape")
    headers: Headers = {
        MARKER: REWOUND, TOPIC: topic, QUEUE: b"%d" % gone.queue.queue_id, FROM: b"%d" % gone.first,
        TO: b"%d" % gone.end, GENERATION: b"%d" % gone.generation, SINK: sink,
    }  # fmt: skip
    return MarkerRecord(b"rewound/%s/%d" % (topic, gone.queue.queue_id), headers)
