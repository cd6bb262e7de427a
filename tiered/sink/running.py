"""One sink: a feed of the log given to a destination, flush by flush, from where the destination or the archive knows it.

The order is law: messages are written, then flushed, and only then is their position told to the ledger, from which it comes
into the archive. So the destination has at least what the archive says, and what is written and not flushed is given again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tiered.archive.state.sinks import SinkState, sink, sink_queues
from tiered.archive.state.view import ArchiveState
from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.codec.format.edits import SinkStep
from tiered.crashpoint import SinkPoint, reach
from tiered.errors import BadRequest, Fenced, Invalid, TieredError, Unavailable
from tiered.feed.base import FeedBatch, Follow
from tiered.feed.live import LogCut
from tiered.model import MessageQueue
from tiered.service import AGAIN, Next, pause
from tiered.sink.backfill import BackfillBook
from tiered.sink.base import RewindMarking, Rewound, Sink, SinkBatch, SinkPosition
from tiered.sink.book import StoredSink
from tiered.sink.choosing import Chooser, LostRange
from tiered.sink.held import LOOK_SECONDS, HeldSink, WaitingSink
from tiered.sink.ledger import SinkAdvance, SinkLedger
from tiered.sink.mapping import Follows, OffsetMaps, found_again, maps_of_flush, remind
from tiered.sink.openedsink import OpenedSink
from tiered.sink.progress import SinkPhase, SinkProgress
from tiered.sink.reconciling import (
    begun,
    check_not_forgotten,
    is_empty,
    place_of,
    reconcile,
    step_to,
    tells_apart,
    widened,
)
from tiered.sink.source import SinkPace, SinkSource
from tiered.sink.telling import tell_anew, tell_lost, tell_phase

log = logging.getLogger("tiered.sink")

UNHEARD = "the archive does not know yet that the sink has accounted for what the broker lost"
"""Were more given before it does, a process that is killed then would account for the same loss once more, and give again."""
REST_SECONDS = 5.0
"""Between two looks of a sink that is paused or stopped; a change of its order wakes it."""


PATIENCE = Backoff()
_FRESH: tuple[SinkPhase, str | None] = SinkPhase.OPENING, None


class _NotYet(Unavailable):
    """The archive is on its way to where the sink can go on."""


@contextmanager
def _archive_side() -> Iterator[None]:
    """What goes wrong inside is the archive's or the broker's: it may pass, whatever it is, and does not end the sink."""
    try:
        yield
    except BadRequest:  # the order's own
        raise
    except Invalid as error:
        raise _NotYet(error.message, hint=error.hint, **error.fields) from error


class SinkRunner:
    """``step`` and ``finish`` are for the one service that runs it; ``change`` and ``progress`` for any thread."""

    def __init__(
        self,
        stored: StoredSink,
        open_sink: Callable[[StoredSink, bool], Sink],
        source: SinkSource,
        ledger: SinkLedger,
        clock: Clock,
        pace: SinkPace,
        backoff: Backoff = PATIENCE,
        backfills: BackfillBook | None = None,
    ) -> None:
        self._stored = stored
        self._wanted = stored
        self._open_sink = open_sink
        self._source, self._ledger = source, ledger
        self._clock = clock
        self._pace = pace
        self._backoff = backoff
        self._bucket = pace.bucket(clock)
        self._open: OpenedSink | None = None
        self._failures = 0
        """Of the destination, since it last took what it was given."""
        self._source_failures = 0
        self._stopped: StoredSink | None = None
        self._cut = False
        self._said: tuple[SinkPhase, str | None] | None = None
        self._standing = _FRESH
        """How it stands while a destination has not taken anything."""
        self._last: SinkState | None = None
        self._had: dict[MessageQueue, Follow] = {}
        """With ``_last``: what was flushed last and told to the ledger, which the archive may not have yet."""
        self.progress = SinkProgress(clock)
        self._held = HeldSink(backfills, clock, self.progress)

    @property
    def stored(self) -> StoredSink:
        """Its order, as it was told last."""
        return self._wanted

    def change(self, stored: StoredSink) -> None:
        """The order is another one from the next step on."""
        self._wanted = stored

    def step(self) -> Next:
        """One unit of work. Errors of the destination and of the source end in a phase of the sink, and are logged once."""
        try:
            return self._step()
        except LogCut as cut:
            self._cut = True
            return self._retry(
                SinkPhase.WAITING, f"the broker's log is another one below where the sink is: {cut}"
            )
        except _NotYet as error:
            return self._retry(SinkPhase.WAITING, str(error))
        except Unavailable as error:
            return self._retry(SinkPhase.AWAY, str(error))
        except (Invalid, Fenced) as error:
            self._stop(str(error))
        except TieredError as error:
            return self._retry(SinkPhase.WAITING, str(error))
        except Exception as error:  # a driver may be anybody's: its failure must not reach anything else
            log.exception("a sink failed unexpectedly", extra={"sink": self._stored.name})
            return self._retry(SinkPhase.AWAY, f"unexpected: {error!r}")
        return pause(REST_SECONDS)

    def finish(self) -> None:
        """Flush what is written, at the end; what cannot be is given again by the next process."""
        try:
            if self._open is not None:
                self._flush(self._open)
        except TieredError as error:
            said = {"sink": self._stored.name, "error": str(error)}
            log.warning("a sink could not flush at its end: what was written is given again", extra=said)
        except Exception:  # as of ``step``
            log.exception("a sink failed at its end", extra={"sink": self._stored.name})
        self.close()

    def close(self) -> None:
        """Let go of the destination."""
        if self._open is not None:
            self._open.sink.close()
            self._open = None

    # ------------------------------------------------------------------ one step

    def _step(self) -> Next:
        if self._wanted is not self._stored:
            self._take_over_order()
        if self._stored.paused:
            self._enter(SinkPhase.PAUSED, "by an operator: tiered sink resume")
            return pause(REST_SECONDS)
        if self._stopped is self._stored:
            return pause(REST_SECONDS)
        with _archive_side():
            held = self._held.held(self._stored, self._last, self._source.fold)
        if held is not None:
            return self._hold(held)
        if self._open is not None and self._open.looked < self._ledger.rewound:
            self.close()  # what is not flushed is given again, as far as it is still there
        if self._open is None:
            self._open = self._opened()
        opened = self._open
        if opened.unheard and not self._heard(opened):
            self._enter(SinkPhase.WAITING, UNHEARD)
            return pause(self._pace.poll_seconds)
        rest = opened.goes_on_at - self._clock.monotonic()
        if rest > 0:
            self._flush_if_due(opened)
            return pause(min(rest, REST_SECONDS))
        try:
            with _archive_side():
                batch = opened.feed.poll()
        except Unavailable as error:  # the source's; the destination stays open
            self._flush_if_due(opened)
            self._source_failures += 1
            self._enter(SinkPhase.WAITING, str(error))
            return pause(self._backoff.seconds(self._source_failures))
        self._source_failures = 0
        if batch is None:
            return self._at_end(opened)
        self._give(opened, batch)
        self._flush_if_due(opened)
        return AGAIN

    def _hold(self, held: WaitingSink) -> Next:
        """Give nothing; the archive comes to know where the sink is."""
        if held.opens:
            self.close()
            self._open = self._opened()
            self._failures, self._standing = 0, _FRESH
        self.close()
        if (self._said or (None,))[0] is not held.phase:  # and not at each part that is done
            self._enter(held.phase, held.why)
        self.progress.enter(held.phase, held.why)
        return pause(LOOK_SECONDS)

    def _heard(self, opened: OpenedSink) -> bool:
        """Whether the archive knows up to which commit this opening has accounted for rewinds."""
        with _archive_side():
            known = sink(self._source.fold().view, self._stored.sink_id)
        if known is None or (known.lineage, known.looked) < (opened.lineage, opened.looked):
            return False
        opened.unheard = False
        return True

    def _take_over_order(self) -> None:
        """Another order: what is written is flushed under the old one, and the sink is opened anew."""
        if self._open is not None:
            self._flush(self._open)
        self.close()
        self._stored = self._wanted
        self._failures, self._standing = 0, _FRESH

    def _at_end(self, opened: OpenedSink) -> Next:
        waiting = opened.feed.waiting
        if opened.is_due(self._pace, self._clock.monotonic(), at_end=True):
            self._flush(opened)
        if opened.since is None:
            self._took(opened)  # or there is nothing that it could refuse
        self._move(opened, SinkPhase.LIVE if waiting is None else SinkPhase.WAITING, waiting)
        if opened.since is None and waiting is None:
            self.progress.at_end()
        self._measure(opened)
        return pause(self._pace.poll_seconds)

    def _give(self, opened: OpenedSink, batch: FeedBatch) -> None:
        chosen = opened.chooser.choose(batch)
        if batch.position.physical is not None:
            opened.log = batch.position
            opened.backfills = False
            self._move(opened, SinkPhase.LIVE)
        else:
            if not opened.backfills:
                opened.backfills = True
                with _archive_side():
                    backlog = self._source.backlog(opened.chooser)
                self.progress.begin_backfill(backlog + len(chosen.rows))
            self._move(opened, SinkPhase.BACKFILLING)
            if self._bucket is not None and len(chosen.rows):
                opened.goes_on_at = self._clock.monotonic() + self._bucket.take(len(batch.messages.buffer))
        self._tell("missing", chosen.lost, chosen.anew)
        if len(chosen.rows):
            accepted = opened.sink.write(SinkBatch(batch.messages, chosen.rows))
            self.progress.gave(accepted)
            opened.pending_bytes += len(batch.messages.buffer)
            if opened.since is None:
                opened.since = self._clock.monotonic()
        self._measure(opened)

    def _flush_if_due(self, opened: OpenedSink) -> None:
        if opened.is_due(self._pace, self._clock.monotonic()):
            self._flush(opened)

    def _flush(self, opened: OpenedSink) -> None:
        """Make what is written safe, at the destination and then in the ledger."""
        if opened.since is None and not opened.chooser.changed and opened.log == opened.flushed_log:
            return
        reach(SinkPoint.BEFORE_SINK_FLUSH)
        changed = dict(opened.chooser.changed)
        safe = opened.sink.flush(SinkPosition(opened.log, changed))
        reach(SinkPoint.AFTER_SINK_FLUSH)
        maps = maps_of_flush(opened.sink, safe, self._had, changed)
        self._keep(opened, changed, SinkStep.BACK if opened.chooser.back else SinkStep.ON, maps)
        opened.chooser.changed.clear()
        opened.chooser.back = False
        opened.pending_bytes, opened.since = 0, None
        opened.flushed_at, opened.flushed_log = self._clock.monotonic(), opened.log
        self.progress.flushes += 1
        self._took(opened)

    # ------------------------------------------------------------------ opening

    def _opened(self) -> OpenedSink:
        """Open the destination, find out where it is, and hold that against the archive."""
        self.progress.enter(*self._standing)
        with _archive_side():
            fold = self._source.fold()
        head = fold.head()
        if self._ledger.rewound > (-1 if head is None else head.seq):
            raise _NotYet("the broker lost a tail, and the archive does not have that yet")
        known, _ = self._recorded(fold)
        anew = known is not None and known.revision < self._stored.anew
        opened = self._open_sink(self._stored, anew)
        try:
            return self._placed(opened, fold, anew=anew)
        except BaseException:
            opened.close()
            raise

    def _placed(self, opened: Sink, fold: ArchiveState, *, anew: bool) -> OpenedSink:
        stored = self._stored
        known, recorded = self._recorded(fold)
        own, taken = opened.position(), None
        if not anew:
            check_not_forgotten(stored.name, own, recorded)
            taken = self._held.take_up(stored, known, opened, own, recorded)
            if taken is not None:
                own, recorded = taken.own, taken.joined
        position = recorded if own is None or is_empty(own) else own
        afresh = position is None or anew
        if afresh:
            find = _archive_side()(partial(self._source.find, fold, self.takes))
            found = begun(position, fold, self.takes, find, stored.rewind, from_start=stored.order.from_start)
        else:
            assert position is not None
            found = reconcile(position, known, fold, cut=self._cut)
            if known is None or known.revision != stored.revision:
                # A backfill had all queues that there were when it was planned.
                from_start = stored.order.from_start or taken is not None
                found = widened(found, known, fold, self.takes, from_start=from_start)
            remind(opened, stored.sink_id, fold)
        self._cut = False
        self._tell("source", found.lost, found.anew)
        if found.lost and isinstance(opened, RewindMarking):
            opened.mark([Rewound(gone.queue, gone.first, gone.end, gone.generation) for gone in found.lost])
        if afresh or found.changed or (position is not None and found.position.log != position.log):
            opened.flush(found.position if afresh else replace(found.position, queues=found.changed))
        chooser = Chooser(found.position.queues, self.takes, self._source.counts_inner)
        feed = self._source.feed(found.position.log, chooser, stored.order.in_order)
        log_position, now = found.position.log, self._clock.monotonic()
        made = OpenedSink(
            opened, chooser, feed, found.looked, found.lineage, log_position, log_position, flushed_at=now
        )
        made.unheard = not afresh and known is not None and tells_apart(known, fold)
        self._had = {}
        step = SinkStep.ANEW if afresh or known is None else step_to(known, recorded, found)
        maps = {} if afresh else found_again(opened, stored, recorded, found.position, fold)
        maps = maps if taken is None else taken.mapped(found.position.queues, maps)
        self._keep(made, found.position.queues, step, maps)
        return made

    def takes(self, topic: str) -> bool:
        """Whether a topic is replicated."""
        return self._stored.order.takes(topic, system=self._source.system(topic))

    def _recorded(self, fold: ArchiveState) -> tuple[SinkState | None, SinkPosition | None]:
        """What is known of the sink: what this process flushed last, else what the archive has."""
        if self._last is not None:
            return self._last, SinkPosition(place_of(self._last), dict(self._had))
        known = sink(fold.view, self._stored.sink_id)
        if known is None:
            return None, None
        found = sink_queues(fold.view, self._stored.sink_id)
        queues = {queue: Follow(at.next, at.physical) for queue, at in found}
        return known, SinkPosition(place_of(known), queues)

    def _keep(self, opened: OpenedSink, queues: Follows, step: SinkStep, maps: OffsetMaps) -> None:
        """Tell the ledger what is safe, and remember it."""
        stored, at = self._stored, opened.log
        name = (stored.sink_id, stored.name, stored.revision)
        advance = SinkAdvance(*name, opened.lineage, opened.looked, at, dict(queues), step, maps=maps)
        self._ledger.keep(advance)
        self._last = SinkState(*name, opened.lineage, at.physical, at.anchor, opened.looked, 0)
        self._had.update(queues)

    # ------------------------------------------------------------------ what is said

    def _took(self, opened: OpenedSink) -> None:
        """The destination has taken what it was given."""
        opened.took, self._failures, self._standing = True, 0, (SinkPhase.OPENING, None)

    def _move(self, opened: OpenedSink, phase: SinkPhase, why: str | None = None) -> None:
        """It moves; but it goes on when it has flushed, not when it was opened: else one that opens and refuses says both in
        turn."""
        if opened.took:
            self._enter(phase, why)
        else:
            self.progress.enter(*self._standing)

    def _retry(self, phase: SinkPhase, why: str) -> Next:
        """Let go and try again: what was not flushed is given again."""
        self.close()
        self._failures += 1
        self._standing = phase, why
        self._enter(phase, why)
        return pause(self._backoff.seconds(self._failures))

    def _stop(self, why: str) -> None:
        self.close()
        self._stopped = self._stored
        self._enter(SinkPhase.STOPPED, why)

    def _enter(self, phase: SinkPhase, why: str | None = None) -> None:
        self.progress.enter(phase, why)
        if phase is SinkPhase.OPENING or self._said == (phase, why):
            return
        self._said = (phase, why)
        tell_phase(self._stored.name, phase, why)

    def _tell(self, kind: str, lost: tuple[LostRange, ...], anew: tuple[MessageQueue, ...]) -> None:
        if lost:
            self.progress.missing(kind, lost)
            tell_lost(self._stored.name, kind, lost)
        if kind == "source":  # what lost its tail from its first message on is told with what it lost
            taken = {gone.queue for gone in lost}
            anew = tuple(queue for queue in anew if queue not in taken)
        if anew:
            self.progress.anew(anew)
            tell_anew(self._stored.name, anew)

    def _measure(self, opened: OpenedSink) -> None:
        physical = opened.log.physical
        self.progress.physical = physical
        self.progress.lag_bytes = None if physical is None else max(0, int(opened.feed.end()) - physical)
