"""A backfill by others that is ended before all of it was given: the sink goes on by itself from what it was given."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from tiered.clock import Clock
from tiered.errors import Conflict
from tiered.sink.backfill import BackfillBook
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.giving import open_part, part_as_it_is
from tiered.sink.kinds import SinkPlace

log = logging.getLogger("tiered.sink")


def end_backfill(
    book: SinkBook,
    backfills: BackfillBook,
    stored: StoredSink,
    place: SinkPlace,
    clock: Clock,
    random_bytes: Callable[[int], bytes],
) -> StoredSink:
    """Take every part that is not done from whoever gives it, and note how far it is; then the next order of the sink, which
    takes up what there is. ``place``: of the sink's log. Run again it does what is left. ``Conflict``: none is under way.
    Errors as of ``Sink``."""
    backfill = stored.under_way
    if backfill is None:
        raise Conflict(
            "no backfill of this sink is under way", sink=stored.name, hint="tiered sink backfill shows it"
        )
    plan = backfills.plan(backfill.backfill_id)
    if plan is None:  # nothing was given
        return book.change(stored.name, clock.now_ms(), random_bytes, unfilled=backfill.backfill_id)
    there = backfills.done(plan)
    for number in range(plan.parts):
        if number in there:
            continue
        ranges = backfills.ranges(plan, number)
        with closing(open_part(stored, plan, number, place)) as sink:
            done = part_as_it_is(number, sink, ranges)
        try:
            backfills.put_done(plan, done, clock.now_ms())
        except Conflict:  # its task was done at this very moment
            log.info("a part was done meanwhile", extra={"sink": stored.name, "part": number})
    return book.change(stored.name, clock.now_ms(), random_bytes, backfilled=backfill.backfill_id)
