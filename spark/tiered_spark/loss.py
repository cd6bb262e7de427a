"""What was asked for and is not there any more: bounds beyond what the archive keeps; what retention took from a stream."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import islice

from tiered.archive.state.keys import QUEUE, queue_of
from tiered.archive.state.layout import QUEUE_DTYPE, table
from tiered.archive.state.view import ArchiveState
from tiered.errors import NotFound, Refused
from tiered.model import MessageQueue
from tiered_spark.options import Options
from tiered_spark.runs import RunTable
from tiered_spark.snapshot import ArchivePlace, Snapshot, past

log = logging.getLogger("tiered.spark")

_CHUNK = 8192

SHOWN = 5
"""Queues that an error names."""


def check_bounds(options: Options, snapshots: Sequence[Snapshot]) -> None:
    """``NotFound`` for a bound of a queue that is nowhere; ``Refused``, or a warning, where the archive has not what a batch's
    offsets of single queues ask for."""
    lost: list[str] = []
    for bounds, starts in ((options.starting_offsets, True), (options.ending_offsets, False)):
        for bound in bounds:
            for place, queue, first, end in _matching(
                options, snapshots, bound.broker, bound.topic, bound.queue_id
            ):
                if bound.queue_id is not None and starts and bound.value < first:
                    lost.append(f"{place} {queue}: {bound.value} to {first} is not kept any more")
                elif bound.queue_id is not None and bound.value > end:
                    lost.append(f"{place} {queue}: it ends at {end}, before {bound.value}")
    for bound in (*options.starting_times, *options.ending_times):
        _matching(options, snapshots, bound.broker, bound.topic, bound.queue_id)
    if lost:
        _tell(options, "the archive does not have everything that was asked for", lost)


def _matching(
    options: Options, snapshots: Sequence[Snapshot], broker: str, topic: str, queue_id: int | None
) -> list[tuple[ArchivePlace, MessageQueue, int, int]]:
    found = [
        (snapshot.place, state.queue, state.min_offset, state.max_offset)
        for snapshot in snapshots
        if broker in ("", snapshot.place.broker) and snapshot.shows(topic, options)
        for state in snapshot.view.state.queues(topic)
        if queue_id in (None, state.queue.queue_id)
    ]
    if not found:
        raise NotFound(
            "an offset or time is given for a queue that is not read",
            queue=f"{broker or '*'}/{topic}/{'*' if queue_id is None else queue_id}",
            hint="table=queues lists the queues; the options topics, broker and includeSystemTopics choose among them",
        )
    return found


def warn_of_gaps(options: Options, found: Sequence[tuple[Snapshot, RunTable]]) -> None:
    """One line, where queue offsets of the queues chosen can never be served. Of other topics nothing is loaded."""
    messages = 0
    for snapshot, runs in found:
        state = snapshot.view.state
        some = [None] if options.topics == ("*",) else runs.queues.names()
        gaps = (gap for queue in some for gap in state.gaps(queue))
        messages += sum(gap.end - gap.start for gap in gaps if snapshot.shows(gap.queue.topic, options))
    if messages:
        log.warning(
            "%d messages of these topics were lost before they could be archived: see table=gaps", messages
        )


def _tell(options: Options, what: str, lost: Sequence[str]) -> None:
    """``Refused``, or a warning if the options say so."""
    named = "; ".join([*lost[:SHOWN], f"and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else lost)
    if options.fail_on_loss:
        raise Refused(
            what, found=named, hint="option('failOnDataLoss', 'false') reads what there is, with a warning"
        )
    log.warning("%s: %s", what, named)


class RetentionWatch:
    """Of one archive: what retention took away before a stream had read it."""

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}

    def check(self, snapshot: Snapshot, options: Options, start: int) -> None:
        """Compare with the archive as it was at commit ``start``, which the stream has read up to; only if some queue begins
        later than it did when this was looked at last."""
        now = dict(_firsts(snapshot.view.state))
        moved = [key for key, first in now.items() if first > self._first.get(key, 0)]
        queues = [queue_of(key[1:]) for key in moved]
        mine = [
            queue for queue in queues
            if snapshot.shows(queue.topic, options) and (not options.queue_ids or queue.queue_id in options.queue_ids)
        ]  # fmt: skip
        lost: list[str] = []
        if mine:
            try:
                then = past(snapshot, start)
            except NotFound:
                then, lost = (
                    None,
                    [f"{snapshot.place}: what was archived after commit {start} cannot be told any more"],
                )
            for queue in mine if then is not None else ():
                lost += _taken(snapshot, then, queue)
        if lost:
            _tell(options, "retention removed messages that this stream had not read", lost)
        self._first = now


def _firsts(state: ArchiveState) -> Iterator[tuple[bytes, int]]:
    pairs = state.view.iterate(QUEUE)
    while chunk := list(islice(pairs, _CHUNK)):
        firsts = table([value for _, value in chunk], QUEUE_DTYPE)["min_offset"].tolist()
        yield from zip((key for key, _ in chunk), firsts, strict=True)


def _taken(snapshot: Snapshot, then: ArchiveState | None, queue: MessageQueue) -> Iterator[str]:
    now = snapshot.view.state.queue(queue)
    before = None if then is None else then.queue(queue)
    if now is None or now.generation is None:
        return
    if before is not None and before.generation == now.generation:
        read = before.max_offset
    else:  # it began after that commit
        read = next(
            g.first_offset for g in snapshot.view.state.generations(queue) if g.generation == now.generation
        )
    if now.min_offset > read:
        yield f"{snapshot.place} {queue}: {read} to {now.min_offset}"
