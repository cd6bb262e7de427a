"""Messages that a broker skips for a POP group, seen in its own answers. On the event loop only."""

from __future__ import annotations

import logging

from cachetools import LRUCache

from tiered.codec.remoting.codes import parse_pop_starts, text_field
from tiered.codec.remoting.frame import Command
from tiered.gateway.knowledge.minimums import Minimums
from tiered.metrics import Metrics

log = logging.getLogger("tiered.gateway")

MAX_GROUPS = 16_384


class PopWatch:
    """POP answers as evidence: a broker that skips messages for a POP group still names the position it began at."""

    def __init__(self, minimums: Minimums, metrics: Metrics) -> None:
        self._minimums = minimums
        self._metrics = metrics
        self._told: LRUCache[tuple[str, str, int], int] = LRUCache(MAX_GROUPS)

    def look(self, request: Command, answer: Command) -> None:
        """Count a skip that this answer shows. ``Invalid`` if its fields make no sense."""
        topic, group = text_field(request.ext, "topic"), text_field(request.ext, "consumerGroup")
        for start in parse_pop_starts(answer.ext.get("startOffsetInfo", "")):
            name = (topic, f"%RETRY%{group}_{topic}", f"%RETRY%{group}+{topic}")[
                start.kind if 0 <= start.kind < 3 else 0
            ]
            minimum = self._minimums.get(name, start.queue_id)
            if minimum is None or not 0 <= start.offset < minimum:
                continue
            key = (group, name, start.queue_id)
            if self._told.get(key, -1) >= minimum:
                continue
            skipped = minimum - max(start.offset, self._told.get(key, 0))
            self._told[key] = minimum
            self._metrics.gateway_pop_skips.inc()
            self._metrics.gateway_pop_skipped_messages.inc(skipped)
            log.warning(
                "the broker skipped messages of a POP group; tiered replay can send them again",
                extra={
                    "group": group,
                    "topic": name,
                    "queue": start.queue_id,
                    "from": start.offset,
                    "to": minimum,
                },
            )
