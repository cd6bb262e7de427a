"""Opening the archive for writing: comparison with the broker, epoch, rewind. One class, no loop.

The order is what makes it safe: the broker's files are held before anything else, the fold is brought to the end of the log,
the broker is compared with it, and only then an epoch is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tiered.archive.log.flush import Flush
from tiered.archive.log.line import CommitLine
from tiered.archive.log.marks import Mark
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.values import Head
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Refused, Unavailable
from tiered.model import PhysicalOffset
from tiered.opening.claim import Claimant
from tiered.opening.compare import compare_with_archive, rewritten_gap
from tiered.opening.events import OpeningEvents
from tiered.opening.lineage import BrokerComparison, Relation
from tiered.opening.rewind import mark_at, rewind_edit
from tiered.source.base import BrokerMark, CommitLogSource
from tiered.source.start import resolve_start

NO_BROKER = BrokerMark(None, None)


@dataclass(frozen=True, slots=True)
class Opened:
    """Where archiving goes on, in which lineage, and the running mark there."""

    lineage: int
    mark: Mark
    outcome: BrokerComparison
    broker: BrokerMark = NO_BROKER

    @property
    def position(self) -> PhysicalOffset:
        """Where archiving goes on."""
        return self.mark.offset


class Opening:
    """How one broker and its archive find each other: when the daemon starts, and whenever the broker did."""

    def __init__(
        self,
        line: CommitLine,
        objects: ObjectReader,
        source: CommitLogSource,
        claimant: Claimant,
        events: OpeningEvents,
        *,
        start: str,
        accept_new_lineage: bool,
    ) -> None:
        """``start``: where a new lineage begins, as ``source.start`` says it."""
        self._log = line.log
        self._line = line
        self._objects = objects
        self._source = source
        self._claimant = claimant
        self._events = events
        self._start = start
        self._accept_new_lineage = accept_new_lineage

    def open(self) -> Opened:
        """Compare, claim the next epoch, rewind if the broker lost its tail; everything is proven when this returns.

        What counts is a comparison with the fold that the epoch was opened on: commits met while claiming (another writer's
        last ones, or an earlier put of this writer that landed late) ask for another.
        """
        while True:
            head = self._log.tip
            broker = self._source.broker_mark()  # first: a restart after it is then seen by the dispatcher
            outcome = self._compare(head)
            lineage = self._lineage(head, outcome)
            opened = self._claimant.claim(lineage)
            if opened.seq != (0 if head is None else head.seq + 1):
                broker, outcome = self._source.broker_mark(), self._compare(opened)
                if self._lineage(opened, outcome) != lineage:
                    continue
            return replace(self._settle(lineage, outcome), broker=broker)

    def reconcile(self) -> Mark:
        """The same comparison while running, after a restart of the broker: where to go on. Nothing may be in flight."""
        head = self._log.tip
        outcome = self._compare(head)
        if outcome.relation is Relation.NEW:
            raise Refused(
                "the broker was reinstalled under the running daemon",
                hint="if that was meant, start the daemon again with --new-lineage: it goes on in the same archive",
            )
        assert head is not None
        return self._settle(head.lineage, outcome).mark

    def gap_was_rewritten(self) -> bool:
        """Whether the broker has written over bytes that were recorded as a gap: asked while running, every now and then."""
        head = self._log.tip
        try:
            return (
                head is not None and rewritten_gap(self._source, self._log.proven(), head.lineage) is not None
            )
        except Unavailable:  # its files cannot be looked at now: asked again soon, and reading reports it
            return False

    def _lineage(self, head: Head | None, outcome: BrokerComparison) -> int:
        if head is None:
            return 1
        if outcome.relation is Relation.NEW:
            return head.highest_lineage + 1
        return head.lineage

    def _compare(self, head: Head | None) -> BrokerComparison:
        outcome = compare_with_archive(
            self._source,
            self._log.frozen(),
            head,
            self._objects,
            accept_new_lineage=self._accept_new_lineage,
        )
        self._events.compared(outcome, head.lineage if head is not None else 0)
        return outcome

    def _settle(self, lineage: int, outcome: BrokerComparison) -> Opened:
        """Turn an outcome into a position, with the commits it needs."""
        if outcome.relation in (Relation.FRESH, Relation.NEW):
            return self._begin(lineage, outcome)
        if outcome.relation is Relation.REWIND:
            return self._rewind(lineage, outcome)
        head = self._log.tip
        assert head is not None
        return Opened(lineage, Mark.of(head.progress[lineage]), outcome)

    def _begin(self, lineage: int, outcome: BrokerComparison) -> Opened:
        """The first position of a lineage, committed at once: from here on the log decides, not the setting."""
        if outcome.relation is Relation.NEW:
            self._source.disown()
        mark = Mark.at(resolve_start(self._source, self._start))
        self._line.commit(Flush((mark.progress(lineage),), None, self._now()))
        return Opened(lineage, mark, outcome)

    def _rewind(self, lineage: int, outcome: BrokerComparison) -> Opened:
        mark = mark_at(self._source, outcome)
        rewind = rewind_edit(self._log.frozen(), self._objects, lineage, outcome.offset, mark)
        reach(CrashPoint.BEFORE_REWIND)
        # Its release links the files above it again: they hold other bytes now.
        flush = Flush((rewind, mark.progress(lineage)), outcome.offset, self._now())
        proven = self._line.commit(flush)
        reach(CrashPoint.AFTER_REWIND)
        self._events.rewound(outcome, proven.commit.commit.seq)
        return Opened(lineage, mark, outcome)

    def _now(self) -> float:
        return self._log.resending.clock.monotonic()
