"""What a sink's runner does while a Spark job gives the sink its history: it waits, says how far that is, and takes it up.

The order of the sink says that a backfill is asked for (``SinkBackfill``). The runner opens the destination once under that
order, so that the archive knows where the sink is, and then gives nothing. The job plans on that position and, when every part
is done, puts the next order. Progress of an earlier revision than that was made before it, so the runner takes the ends up:
into the destination in one step with what it must know of the parts, then into the archive with the new revision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tiered.archive.state.offsetmap import OffsetMap
from tiered.archive.state.sinks import SinkState, sink
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.errors import Invalid
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue
from tiered.sink.backfill import BackfillBook, BackfillPlan, check_joins
from tiered.sink.base import JoiningSink, Sink, SinkPosition
from tiered.sink.book import StoredSink
from tiered.sink.keptposition import laid_over
from tiered.sink.mapping import Follows, OffsetMaps
from tiered.sink.progress import SinkPhase, SinkProgress
from tiered.sink.reconciling import tells_apart

log = logging.getLogger("tiered.sink")

LOOK_SECONDS = 5.0
"""Between two looks at how far the job is: a listing of the bucket each."""
PATIENCE_SECONDS = 3_600.0
"""After so long without a part that is done, the sink is said to stand still."""


@dataclass(frozen=True, slots=True)
class WaitingSink:
    """The sink gives nothing. ``opens``: but it has to account for where it is, under this order."""

    phase: SinkPhase
    why: str
    opens: bool = False


@dataclass(frozen=True, slots=True)
class TakenUp:
    """``own``: the position that the destination keeps now, which may be further than ``joined``: where the backfill ends.
    ``maps``: of what the backfill gave."""

    own: SinkPosition | None
    joined: SinkPosition
    maps: OffsetMaps

    def mapped(self, follows: Follows, found: OffsetMaps) -> dict[MessageQueue, OffsetMap]:
        """The maps of a sink that goes on at ``follows``, with what was ``found`` of what it was given behind the backfill."""
        made = {queue: told.cut(follows[queue].next) for queue, told in self.maps.items() if queue in follows}
        for queue, told in found.items():
            made[queue] = made[queue].then(told) if queue in made else told
        return made


class HeldSink:
    """Of one sink's runner; one thread. Without a ``book`` a sink waits for a backfill for good, and says so."""

    def __init__(self, book: BackfillBook | None, clock: Clock, progress: SinkProgress) -> None:
        self._book = book
        self._clock = clock
        self._progress = progress
        self._plan: BackfillPlan | None = None
        self._seen: tuple[bytes, int] | None = None
        self._since = 0.0

    def held(
        self, stored: StoredSink, known: SinkState | None, fold: Callable[[], ArchiveState]
    ) -> WaitingSink | None:
        """Whether the sink waits. ``known``: what this process told the archive of it last."""
        backfill = stored.under_way
        if backfill is None:
            return None
        plan = self._planned(stored)
        if plan is None:
            known = known or sink(fold().view, stored.sink_id)
            opens = known is None or known.revision < backfill.asked or tells_apart(known, fold())
            self._note(backfill.backfill_id, 0)
            return self._told(
                "a Spark job is to give it its history, and has not planned that yet", opens=opens
            )
        assert self._book is not None
        done = self._book.done(plan)
        self._note(backfill.backfill_id, 1 + len(done))
        given = sum(each.messages for each in done.values())
        self._progress.backfilled(plan.messages, given)
        return self._told(f"a Spark job gives it its history: {len(done)} of {plan.parts} parts are done")

    def take_up(
        self,
        stored: StoredSink,
        known: SinkState | None,
        opened: Sink,
        own: SinkPosition | None,
        recorded: SinkPosition | None,
    ) -> TakenUp | None:
        """A backfill that is done and that the sink's progress does not have; flushed, where the destination keeps a position.
        ``own``: as it keeps it; ``recorded``: as the archive does. ``None``: there is nothing to take up.
        ``Invalid`` if it does not begin where the sink is."""  # fmt: skip
        backfill = stored.backfill
        if backfill is None or known is None or recorded is None or known.revision >= stored.given:
            return None
        plan = self._planned(stored)
        if plan is None or self._book is None:
            raise Invalid(
                "the plan of a backfill is not there", sink=stored.name, found=backfill.backfill_id.hex(),
                hint="tiered sink rewind-to ends it",
            )  # fmt: skip
        if (known.revision, known.looked) != (plan.revision, plan.looked):
            raise Invalid(
                "the backfill cannot be taken up: the sink has moved since it was planned", sink=stored.name,
                expected=f"revision {plan.revision}, commit {plan.looked}",
                found=f"revision {known.revision}, commit {known.looked}", hint="tiered sink rewind-to ends it",
            )  # fmt: skip
        done = self._book.done(plan)
        ranges = {number: self._book.ranges(plan, number) for number in range(plan.parts)}
        follows = check_joins(plan, ranges, done, stored.sink_id, recorded.queues)
        joined = laid_over(recorded, SinkPosition(FeedPosition(), follows))
        maps = {queue: told for each in done.values() for queue, told in each.maps.items()}
        self._progress.given_elsewhere(done.values())
        lost = sum(each.lost for each in done.values())
        if lost:
            said = {"sink": stored.name, "messages": lost}
            log.error(
                "a backfill did not find messages in the archive: the sink was never given them", extra=said
            )
        if own is not None:
            parts = [plan.part(number) for number in range(plan.parts)]
            firsts = {each.queue: each.first for part in ranges.values() for each in part}
            if not _has_joined(own, follows, firsts):
                if isinstance(opened, JoiningSink):
                    opened.join(parts, maps)
                opened.flush(SinkPosition(FeedPosition(), follows))
                own = laid_over(own, SinkPosition(FeedPosition(), follows))
            if isinstance(opened, JoiningSink):
                opened.joined(parts)
        return TakenUp(own, joined, maps)

    def _planned(self, stored: StoredSink) -> BackfillPlan | None:
        assert stored.backfill is not None
        if self._plan is not None and self._plan.backfill_id == stored.backfill.backfill_id:
            return self._plan
        self._plan = None if self._book is None else self._book.plan(stored.backfill.backfill_id)
        return self._plan

    def _note(self, backfill_id: bytes, step: int) -> None:
        if self._seen != (backfill_id, step):
            self._seen, self._since = (backfill_id, step), self._clock.monotonic()

    def _told(self, why: str, *, opens: bool = False) -> WaitingSink:
        stood = self._clock.monotonic() - self._since
        if stood < PATIENCE_SECONDS:
            return WaitingSink(SinkPhase.BACKFILLING, why, opens)
        hours = f"{why}; nothing new for more than {int(stood // PATIENCE_SECONDS)} h: run the job again, or end it"
        return WaitingSink(SinkPhase.WAITING, hours, opens)


def _has_joined(own: SinkPosition, follows: Follows, firsts: Mapping[MessageQueue, int]) -> bool:
    """Whether a process before this one did, and ended before the archive had heard of it."""
    moved = [queue for queue, follow in follows.items() if follow.next > firsts[queue]]
    return any(own.queues.get(queue, Follow()).next != firsts[queue] for queue in moved)
