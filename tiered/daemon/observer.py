"""What happens, told to metrics and log: the one place where counters and log lines of the write path are made."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiered.archive.checkpoint.format import Manifest
from tiered.archive.log.flush import Proven
from tiered.archive.state.values import Head
from tiered.clock import Clock
from tiered.daemon.once import PresentEnd
from tiered.daemon.outages import LOCAL_STATE, READ_BACK, Outages
from tiered.daemon.status import ProcessTotals
from tiered.errors import TieredError
from tiered.metrics import Metrics
from tiered.model import ByteRange, PhysicalOffset
from tiered.opening.lineage import BrokerComparison, Relation

NOTHING_LOST = (Relation.SAME, Relation.BEHIND)
"""Outcomes of a comparison after which archiving goes on where it ended: why it could say no more is information. What is
missing behind them is recorded, and told, as a gap."""


def let_go(lost: ByteRange) -> None:
    """Say that the hold gave up bytes that were not archived."""
    logging.getLogger("tiered.daemon").error(
        "the hold is over its budget: bytes were let go before they were archived and become a gap",
        extra={"start": lost.start, "end": lost.end, "fix": "raise hold.max_bytes or free disk"},
    )


@dataclass(frozen=True, slots=True)
class Observer:
    """``write.Events``, ``OpeningEvents`` and ``CheckpointEvents``: each is counted and said once.

    ``touch`` is called when a worker waits for the store, so that its long step is not taken for a wedge; ``problem`` with what
    opening waits for. ``outages`` hears of writes to the local state that fail, and that they work again; those to the store it
    sees itself. ``end`` hears of gaps: it judges where ``--once`` ends.
    """

    metrics: Metrics
    log: logging.Logger
    clock: Clock
    totals: ProcessTotals
    touch: Callable[[], None] = lambda: None
    problem: Callable[[str], None] = lambda text: None
    outages: Outages | None = None
    end: PresentEnd | None = None

    def alive(self) -> None:
        """A worker waits for the store."""
        self.touch()

    def compared(self, outcome: BrokerComparison, lineage: int) -> None:
        """The broker was compared with its archive."""
        lost = bool(outcome.reason) and outcome.relation not in NOTHING_LOST
        self.log.log(
            logging.WARNING if lost else logging.INFO,
            "compared the broker with its archive",
            extra={
                "relation": outcome.relation.value,
                "offset": outcome.offset,
                "lineage": lineage,
                "why": outcome.reason,
            },
        )

    def rewound(self, outcome: BrokerComparison, seq: int) -> None:
        """The archive's tail that the broker lost was closed."""
        self.metrics.rewinds.inc()
        self.log.warning(
            "the broker lost its tail: rewound",
            extra={"offset": outcome.offset, "reason": outcome.reason, "commit": seq},
        )

    def standing_by(self, owner: Head | None, wait_ms: int) -> None:
        """Another writer owns the archive."""
        message = "another writer owns the archive: waiting until it is silent"
        host, writer = (owner.host, owner.writer_id.hex()) if owner is not None else ("-", "-")
        self.problem(f"{message} (host={host})")
        self.log.info(message, extra={"writer": writer, "host": host, "wait_ms": wait_ms})

    def resending(self, error: TieredError, first: TieredError, began: float) -> None:
        """A write had no known outcome, or the store does not take it now, and is sent again."""
        self.metrics.resends.inc()
        self.touch()
        said = False
        if self.outages is not None:
            said = self.outages.worst() is not None
            self.outages.failed(_name(first), error, began)
        level = (
            logging.DEBUG if said else logging.WARNING
        )  # a store that is away for days is one line, not one per try
        self.log.log(level, "a write did not get through: sending it again", extra={"error": str(error)})

    def sent(self, first: TieredError) -> None:
        """A write that was sent again got through."""
        if self.outages is not None:
            self.outages.over(_name(first))

    def not_kept(self, error: TieredError) -> None:
        """The store does not have what it had answered for."""
        self.metrics.vanished.inc()
        self.log.error("the store does not have what it answered for", extra={"error": str(error)})

    def read_back(self, vanished: TieredError | None) -> None:
        """What the store had answered for was looked for in the bucket."""
        if vanished is not None:
            self.not_kept(vanished)
        if self.outages is not None and vanished is not None:
            self.outages.failed(READ_BACK, vanished)
        elif self.outages is not None:
            self.outages.over(READ_BACK)

    def checkpointed(self, manifest: Manifest) -> None:
        """A checkpoint was written."""
        self.log.info("checkpoint written", extra={"seq": manifest.seq})

    def damaged(self, error: TieredError) -> None:
        """What was read back of the archive is damaged; archiving goes on, no checkpoint is made."""
        self.log.error("the archive is damaged", extra={"error": str(error)})

    def gap(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> None:
        """A physical gap was planned."""
        self.metrics.gaps.labels("physical").inc()
        self.metrics.gap_bytes.inc(end - start)
        self.log.error(
            "bytes of the commitlog can never be archived: recorded as a gap",
            extra={"start": start, "end": end, "reason": reason},
        )
        if self.end is not None:
            self.end.gap(start, end, reason)

    def changed(self, detail: str) -> None:
        """The broker rewrote bytes that were buffered."""
        self.log.warning("the commitlog changed under the buffer: reading it again", extra={"detail": detail})

    def proven(self, event: Proven) -> None:
        """A flush became real: it, its latency and its objects are counted."""
        flush, commit, metrics = event.flush, event.commit, self.metrics
        self.totals.count(event)
        if self.outages is not None:
            self.outages.over(LOCAL_STATE)
        metrics.commits.inc()
        metrics.messages.inc(flush.messages)
        metrics.message_bytes.inc(flush.archived.record_bytes if flush.archived is not None else 0)
        metrics.commit_seq.set(commit.commit.seq)
        metrics.uploaded("commit", commit.length)
        for item in flush.uploads:
            metrics.uploaded("data", item.encoded.length)
        if flush.archived is not None:
            seconds = (self.clock.now_ms() - flush.archived.store_times) / 1000
            metrics.proven_latency.observe_many(seconds.astype(np.float64))
            metrics.gaps.labels("queue").inc(flush.archived.gaps)
            metrics.generations.inc(flush.archived.generations)
            metrics.aliases.inc(flush.archived.aliases)
        metrics.flush_seconds.labels("total").observe(max(0.0, self.clock.monotonic() - flush.first_seen))
        self.log.debug(
            "commit proven",
            extra={
                "seq": commit.commit.seq,
                "messages": flush.messages,
                "bytes": flush.raw_bytes,
                "progress": flush.next_offset,
            },
        )


def _name(first: TieredError) -> str:
    """The name of a write that is sent again, by what its first try met. Its put has a name of its own (``Watched``), which
    ends with an answer; the write ends when what was answered for is seen."""
    return f"{first.fields['key']}, until it is seen" if "key" in first.fields else LOCAL_STATE
