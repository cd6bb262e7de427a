"""Opening the archive for writing: identity, fold, comparison with the broker, epoch, rewind. One class, no loop.

The order is what makes it safe: the broker's files are held before anything else, the fold is brought to the end of the log,
the broker is compared with it, and only then an epoch is claimed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace

from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.values import Head
from tiered.clock import Clock
from tiered.codec.checksum import crc32c
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Refused, Unavailable
from tiered.model import PhysicalOffset
from tiered.opening.comparison import compare_with_archive, rewritten_gap
from tiered.opening.lineage import Outcome, Relation
from tiered.opening.rewind import rewind_edit
from tiered.settings import Archive, Source
from tiered.source.base import BrokerMark, CommitLogSource
from tiered.write.planner import progress_edit
from tiered.write.preparer import Mark, mark_of

WAIT_STEP_SECONDS = 0.2
LOOK_AGAIN_SECONDS = 5.0
"""How often a standby looks at the head of the log."""
CRC_WINDOW_BYTES = 8 * 1024 * 1024
NO_BROKER = BrokerMark(None, None)


@dataclass(frozen=True, slots=True)
class Opened:
    """Where archiving goes on, in which lineage, and the running mark there."""

    lineage: int
    position: PhysicalOffset
    mark: Mark
    outcome: Outcome
    broker: BrokerMark = NO_BROKER


class Archiver:
    """The writer of one archive, before and between flushes."""

    def __init__(
        self,
        log: CommitLog,
        objects: ObjectReader,
        source: CommitLogSource,
        clock: Clock,
        archive: Archive,
        source_settings: Source,
        *,
        resolve_start: Callable[[str], PhysicalOffset],
        first_local_ms: Callable[[], int | None],
        take_over: bool,
        say: Callable[[str, dict[str, object]], None],
        stopping: Callable[[], bool],
        waiting: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``say`` hears what happens, ``waiting`` what opening waits for, in a sentence."""
        self._log = log
        self._objects = objects
        self._source = source
        self._clock = clock
        self._archive = archive
        self._source_settings = source_settings
        self._resolve_start = resolve_start
        self._first_local_ms = first_local_ms
        self._take_over = take_over
        self._say = say
        self._stopping = stopping
        self._waiting = waiting

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
            opened = self._log.claim(
                Claim(lineage=lineage, host=socket.gethostname()),
                self._clock.now_ms(),
                before_try=self._before_try,
            )
            if opened.seq != (0 if head is None else head.seq + 1):
                broker, outcome = self._source.broker_mark(), self._compare(opened)
                if self._lineage(opened, outcome) != lineage:
                    continue
            return replace(self._settle(lineage, outcome), broker=broker)

    def reconcile(self) -> tuple[PhysicalOffset, Mark]:
        """The same comparison while running, after a restart of the broker: where to go on. Nothing may be in flight."""
        head = self._log.tip
        outcome = self._compare(head)
        if outcome.relation is Relation.NEW:
            raise Refused(
                "the broker was reinstalled under the running daemon",
                hint="start the daemon again with --new-lineage to go on in the same archive",
            )
        assert head is not None
        opened = self._settle(head.lineage, outcome)
        return opened.position, opened.mark

    def _lineage(self, head: Head | None, outcome: Outcome) -> int:
        if head is None:
            return 1
        if outcome.relation is Relation.NEW:
            return head.highest_lineage + 1
        return head.lineage

    def _compare(self, head: Head | None) -> Outcome:
        lineage = head.lineage if head is not None else 0
        outcome = compare_with_archive(
            self._source,
            self._log.proven(),
            head,
            self._objects,
            first_local_ms=self._first_local_ms,
            accept_new_lineage=self._archive.new_lineage,
        )
        self._say(
            "compared the broker with its archive",
            {
                "relation": outcome.relation.value,
                "offset": outcome.offset,
                "lineage": lineage,
                "why": outcome.reason,
            },
        )
        return outcome

    def gap_was_rewritten(self) -> bool:
        """Whether the broker has written over bytes that were recorded as a gap: asked while running, every now and then."""
        head = self._log.tip
        try:
            return head is not None and self._rewritten_gap(head.lineage) is not None
        except Unavailable:  # its files cannot be looked at now: asked again soon, and reading reports it
            return False

    def _rewritten_gap(self, lineage: int) -> PhysicalOffset | None:
        return rewritten_gap(self._source, self._log.proven(), lineage)

    def _settle(self, lineage: int, outcome: Outcome) -> Opened:
        """Turn an outcome into a position, with the commits it needs."""
        if outcome.relation in (Relation.FRESH, Relation.NEW):
            return self._begin(lineage, outcome)
        if outcome.relation is Relation.REWIND:
            return self._rewind(lineage, outcome)
        head = self._log.tip
        assert head is not None
        return Opened(lineage, outcome.offset, mark_of(head.progress[lineage]), outcome)

    def _begin(self, lineage: int, outcome: Outcome) -> Opened:
        """The first position of a lineage, committed at once: from here on the log decides, not the setting."""
        if outcome.relation is Relation.NEW:
            self._source.disown()
        start = self._resolve_start(self._source_settings.start)
        planned = self._log.plan(self._log.ticket(), [progress_edit(lineage, [(start, 0, start)])])
        self._log.put(planned)
        return Opened(lineage, start, Mark(start, 0, start), outcome)

    def _rewind(self, lineage: int, outcome: Outcome) -> Opened:
        mark = self._mark_at(outcome)
        state = self._log.proven()
        edits = [
            rewind_edit(state, self._objects, lineage, outcome.offset, mark),
            progress_edit(lineage, [(mark.offset, mark.crc, mark.crc_from)]),
        ]
        reach(CrashPoint.BEFORE_REWIND)
        planned = self._log.plan(self._log.ticket(), edits)
        self._log.put(planned)
        self._source.release(outcome.offset)  # files above it are linked again: they hold other bytes now
        reach(CrashPoint.AFTER_REWIND)
        self._say(
            "rewound", {"offset": outcome.offset, "reason": outcome.reason, "commit": planned.commit.seq}
        )
        return Opened(lineage, outcome.offset, mark, outcome)

    def _mark_at(self, outcome: Outcome) -> Mark:
        """The running CRC at the point of the rewind, over the broker's own bytes."""
        offset, matched = outcome.offset, outcome.matched
        if matched is not None and offset == matched.physical_offset:
            return mark_of(matched)
        start = self._source.file_start(offset)
        if start is None or start == offset:
            return Mark(offset, 0, offset)
        crc, position = 0, start
        if matched is not None and start <= matched.crc_from < offset:
            position = PhysicalOffset(matched.crc_from)
            start = position
        while position < offset:
            stop = PhysicalOffset(min(offset, position + CRC_WINDOW_BYTES))
            crc = crc32c(self._source.copy_local(position, stop), crc)
            position = stop
        return Mark(offset, crc, start)

    def _before_try(self, head: Head | None) -> None:
        """Wait until a foreign writer has been silent for ``takeover_wait``, unless told to take over."""
        said = False
        while not self._take_over and not self._stopping():
            rest = self._log.foreign_wait(self._log.tip, self._archive.takeover_wait_ms)
            if rest <= 0:
                return
            if not said:
                message = "another writer owns the archive: waiting until it is silent"
                self._waiting(f"{message} (host={head.host if head else '-'})")
                self._say(
                    message,
                    {
                        "writer": head.writer_id.hex() if head else "-",
                        "host": head.host if head else "-",
                        "wait_ms": rest,
                    },
                )
                said = True
            self._rest(min(LOOK_AGAIN_SECONDS, rest / 1000))
            self._log.follow()
        if self._stopping():
            raise Refused("stopped while waiting for another writer to fall silent")

    def _rest(self, seconds: float) -> None:
        """Wait in small steps, so that a stop is heard."""
        until = self._clock.monotonic() + seconds
        while not self._stopping() and self._clock.monotonic() < until:
            self._clock.wait(min(WAIT_STEP_SECONDS, until - self._clock.monotonic()))
