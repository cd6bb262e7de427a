"""What happens, told to metrics and log: the one place where counters and log lines of the write path are made."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from tiered.clock import Clock
from tiered.daemon.outages import LOCAL_STATE, Outages
from tiered.daemon.status import Reporter
from tiered.errors import TieredError
from tiered.metrics import Metrics
from tiered.model import ByteRange, PhysicalOffset
from tiered.opening.lineage import Relation
from tiered.write.committer import Proven

NOTHING_LOST = (Relation.SAME.value, Relation.BEHIND.value)
"""Outcomes of a comparison after which archiving goes on where it ended: why it could say no more is information. What is
missing behind them is recorded, and told, as a gap."""


class Observer:
    """Callbacks for the components below; each counts and says one thing."""

    def __init__(
        self,
        metrics: Metrics,
        log: logging.Logger,
        alive: Callable[[], None] = lambda: None,
        outages: Outages | None = None,
    ) -> None:
        """``alive`` is called when a worker waits for the store, so that its long step is not taken for a wedge. ``outages``
        hears of writes to the local state that fail, and that they work again; those to the store it sees itself."""
        self._metrics = metrics
        self._outages = outages
        self._alive = alive
        self._log = log

    def say(self, message: str, fields: dict[str, object]) -> None:
        """One log line with fields."""
        if fields.get("why") and fields.get("relation") not in NOTHING_LOST:
            self._log.warning(message, extra=fields)
            return
        if message == "rewound":
            self._metrics.rewinds.inc()
            self._log.warning("the broker lost its tail: rewound", extra=fields)
            return
        self._log.info(message, extra=fields)

    def let_go(self, lost: ByteRange) -> None:
        """The hold gave up bytes that were not archived."""
        self._log.error(
            "the hold is over its budget: bytes were let go before they were archived and become a gap",
            extra={"start": lost.start, "end": lost.end, "fix": "raise hold.max_bytes or free disk"},
        )

    def resend(self, error: TieredError) -> None:
        """A write had no known outcome, or the store does not take it now, and is sent again."""
        self._metrics.resends.inc()
        self._alive()
        said = False
        if self._outages is not None:
            said = self._outages.worst() is not None
            if "key" not in error.fields:
                self._outages.failed(LOCAL_STATE, error)
        level = (
            logging.DEBUG if said else logging.WARNING
        )  # a store that is away for days is one line, not one per try
        self._log.log(level, "a write did not get through: sending it again", extra={"error": str(error)})

    def damaged(self, error: TieredError) -> None:
        """What was read back of the archive is damaged; archiving goes on, no checkpoint is made."""
        self._log.error("the archive is damaged", extra={"error": str(error)})

    def gap(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> None:
        """A physical gap was planned."""
        self._metrics.gaps.labels("physical").inc()
        self._metrics.gap_bytes.inc(end - start)
        self._log.error(
            "bytes of the commitlog can never be archived: recorded as a gap",
            extra={"start": start, "end": end, "reason": reason},
        )

    def changed(self, detail: str) -> None:
        """The broker rewrote bytes that were buffered."""
        self._log.warning(
            "the commitlog changed under the buffer: reading it again", extra={"detail": detail}
        )

    def proven_by(self, reporter: Reporter, clock: Clock) -> Callable[[Proven], None]:
        """The committer's callback: counts a flush, its latency, its objects."""

        def proven(event: Proven) -> None:
            flush, metrics = event.flush, self._metrics
            reporter.proven(event)
            if self._outages is not None:
                self._outages.over(LOCAL_STATE)
            metrics.commits.inc()
            metrics.messages.inc(flush.messages)
            metrics.message_bytes.inc(flush.plan.raw_bytes if flush.plan is not None else 0)
            metrics.commit_seq.set(flush.planned.commit.seq)
            metrics.uploaded("commit", flush.planned.length)
            for item in flush.objects:
                if item.path:
                    metrics.uploaded("data", item.encoded.length)
            if flush.plan is not None:
                seconds = (clock.now_ms() - flush.plan.store_times) / 1000
                metrics.proven_latency.observe_many(seconds.astype(np.float64))
                metrics.gaps.labels("queue").inc(flush.plan.gaps)
                metrics.generations.inc(flush.plan.generations)
            metrics.flush_seconds.labels("total").observe(max(0.0, clock.monotonic() - flush.first_seen))
            self._log.debug(
                "commit proven",
                extra={
                    "seq": flush.planned.commit.seq,
                    "messages": flush.messages,
                    "bytes": flush.raw_bytes,
                    "progress": flush.next_offset,
                },
            )

        return proven
