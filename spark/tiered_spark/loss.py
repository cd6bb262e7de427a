"""What was asked for and is not there any more: bounds beyond what the archive keeps; what retention took from a stream."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tiered.archive.state.keys import GAP, QUEUE
from tiered.archive.state.layout import packed_table
from tiered.archive.state.values import Forgotten, QueueState, gap_table
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Bools, Ints
from tiered.errors import NotFound, Refused
from tiered.model import MessageQueue
from tiered_spark.choice import Choice
from tiered_spark.options import Options
from tiered_spark.positions import Position
from tiered_spark.queues import CHUNK, Queues, Walked, gathered, put_since, read_queues, values_of
from tiered_spark.snapshot import ArchivePlace, Snapshot, past

log = logging.getLogger("tiered.spark")

OF_QUEUES = ("startingoffsets", "endingoffsets", "startingtimestamps", "endingtimestamps")
"""Options with bounds of single queues."""

SHOWN = 5
"""Queues that an error names."""


def check_bounds(options: Options, snapshots: Sequence[Snapshot]) -> None:
    """``NotFound`` for a bound of a queue that is nowhere; ``Refused``, or a warning, where the archive has not what a batch's
    offsets of single queues ask for."""
    lost: list[str] = []
    for bounds, starts in ((options.starting_offsets, True), (options.ending_offsets, False)):
        for bound in bounds:
            for place, state in _matching(options, snapshots, bound.broker, bound.topic, bound.queue_id):
                first, end = state.min_offset, state.max_offset
                if bound.queue_id is not None and starts and bound.value < first:
                    lost.append(f"{place} {state.queue}: {bound.value} to {first} is not kept any more")
                elif bound.queue_id is not None and bound.value > end:
                    lost.append(f"{place} {state.queue}: it ends at {end}, before {bound.value}")
    for bound in (*options.starting_times, *options.ending_times):
        _matching(options, snapshots, bound.broker, bound.topic, bound.queue_id)
    if lost:
        _tell(options, "the archive does not have everything that was asked for", lost)


def _matching(
    options: Options, snapshots: Sequence[Snapshot], broker: str, topic: str, queue_id: int | None
) -> list[tuple[ArchivePlace, QueueState]]:
    """Of each archive that has it the queue, of all of a topic the first. ``NotFound`` if none has."""
    looked = [
        (snapshot.place, _first(snapshot, topic, queue_id))
        for snapshot in snapshots
        if broker in ("", snapshot.place.broker) and snapshot.shows(topic, options)
    ]
    found = [(place, state) for place, state in looked if state is not None]
    if not found:
        raise NotFound(
            "an offset or time is given for a queue that is not read",
            queue=f"{broker or '*'}/{topic}/{'*' if queue_id is None else queue_id}",
            hint="table=queues lists the queues; the options topics, broker and includeSystemTopics choose among them",
        )
    return found


def own_bounds(snapshot: Snapshot, options: Options, given: Mapping[str, str]) -> dict[str, str]:
    """Options as they were given for several archives, for a source that reads this one alone: without bounds of queues that it
    has not, which are those of others, as ``check_bounds`` has said."""
    return {
        name: _own(snapshot, options, text) if _bounds(name, text) else text for name, text in given.items()
    }


def _bounds(name: str, text: str) -> bool:
    """Whether an option has bounds of single queues."""
    return name.lower() in OF_QUEUES and text.lstrip().startswith("{")


def _own(snapshot: Snapshot, options: Options, text: str) -> str:
    def here(topic: str, queue_id: str) -> bool:
        broker, _, name = topic.rpartition("/")
        mine = broker in ("", snapshot.place.broker) and snapshot.shows(name, options)
        return mine and _first(snapshot, name, None if queue_id == "*" else int(queue_id)) is not None

    found = {
        topic: {queue_id: bound for queue_id, bound in queues.items() if here(topic, queue_id)}
        for topic, queues in json.loads(text).items()
    }
    return json.dumps({topic: queues for topic, queues in found.items() if queues})


def _first(snapshot: Snapshot, topic: str, queue_id: int | None) -> QueueState | None:
    state = snapshot.view.state
    if queue_id is not None:
        return state.queue(MessageQueue(topic, queue_id))
    return next(state.queues(topic), None)


def gap_messages(options: Options, snapshots: Iterable[Snapshot]) -> int:
    """Queue offsets of the queues chosen that can never be served. Of other topics nothing is loaded."""
    messages, chosen = 0, frozenset(options.queue_ids) or None
    for snapshot in snapshots:
        for found in values_of(snapshot.view.state, GAP, snapshot.choice(options, chosen)):
            messages += int((gap_table(found.values)["end"].astype(np.int64) - found.offsets).sum())
    return messages


def warn_of_gaps(options: Options, snapshots: Iterable[Snapshot]) -> None:
    """One line, where there are such offsets."""
    messages = gap_messages(options, snapshots)
    if messages:
        log.warning(
            "%d messages of these topics were lost before they could be archived: see table=gaps", messages
        )


def _tell(options: Options, what: str, lost: Sequence[str]) -> None:
    """``Refused``, or a warning if the options say so."""
    named = "; ".join([*lost[:SHOWN], f"and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else lost)
    if options.fail_on_loss:
        hint = "option('failOnDataLoss', 'false') reads what there is, with a warning; of the job pipeline: --skip-lost"
        raise Refused(what, found=named, hint=hint)
    log.warning("%s: %s", what, named)


class RetentionWatch:
    """Of one archive: what retention took away before a stream had read it."""

    def __init__(self) -> None:
        self._seen: tuple[Snapshot, int] | None = None
        self._forgotten = 0

    def check(self, snapshot: Snapshot, options: Options, start: Position) -> None:
        """Compare with the archive as it was at ``start``, which the stream has read up to; only if some queue begins
        later than it did when this was looked at last, or queues were forgotten since. After the first time only queues that
        changed since are looked at."""
        choice = snapshot.choice(options, frozenset(options.queue_ids) or None)
        moved = self._moved(snapshot, choice, start.commit)
        lost: list[str] = []
        head = snapshot.view.state.head()
        gone = Forgotten() if head is None else head.forgotten
        if len(moved.queues) or gone.queues > self._forgotten:
            try:
                then = past(snapshot, options, start.whole) if start.whole >= 0 else None
                read = _read(then, moved, choice)
                if start.queue is not None:  # of the commit that it lies in some was read
                    inside = _read(past(snapshot, options, start.commit), moved, choice)
                    side = start.sides(moved.queues.names())
                    here = np.maximum(read, np.minimum(inside, start.offset))
                    read = np.where(side < 0, inside, np.where(side == 0, here, read))
                lost = _taken(snapshot, moved, read)
                stood = None if then is None else then.head()
                if stood is not None and gone.behind(stood.progress):
                    lost.append(
                        f"{snapshot.place}: queues are forgotten that had messages after commit {start.whole}; how many"
                        " of these topics, nobody knows"
                    )
            except NotFound:
                lost = [
                    f"{snapshot.place}: what was archived after commit {start.whole} cannot be told any more"
                ]
        if lost:
            _tell(options, "retention removed messages that this stream had not read", lost)
        self._seen, self._forgotten = (snapshot, start.commit), gone.queues

    def _moved(self, snapshot: Snapshot, choice: Choice, start: int) -> Walked:
        """Queues of which something was taken since the last look."""
        columns = ("min_offset", "first_offset")
        seen, pairs = None, None
        if self._seen is not None and self._seen[1] <= start:
            seen = self._seen[0]
            pairs = put_since(snapshot.view.state, QUEUE, choice, seen.commit)
        if seen is None or pairs is None:
            now = read_queues(snapshot.view.state, choice, *columns)
        else:
            now = gathered([iter(pairs)], choice, *columns)
        # What a generation began with may be there still: of most archives' queues nothing was ever taken.
        now = now.only(now.columns["min_offset"] > now.columns["first_offset"])
        if seen is None or not len(now.queues):
            return now
        parts = [slice(at, at + CHUNK) for at in range(0, len(now.queues), CHUNK)]
        return now.only(np.concatenate([_later(seen, now, rows) for rows in parts]))


def _later(seen: Snapshot, now: Walked, rows: slice) -> Bools:
    """Which of some queues begin later than they did, or anew."""
    queues, first = now.queues.only(rows), now.columns["min_offset"][rows]
    before, _ = packed_table(seen.view.state.view.get_many([QUEUE + key for key in queues.queue_keys()]))
    later: Bools = (before["generation"] != queues.generation) | (first > before["min_offset"])
    return later


def _read(state: ArchiveState | None, now: Walked, choice: Choice) -> Ints:
    """Where what the archive had then of some queues ends. Of generations that began later it had nothing."""
    then = None if state is None else read_queues(state, choice, "max_offset")
    same = (
        _column(then, now.queues, "generation", np.zeros(len(now.queues), np.int64)) == now.queues.generation
    )
    read = _column(then, now.queues, "max_offset", now.columns["first_offset"])
    return np.where(same, read, now.columns["first_offset"])


def _taken(snapshot: Snapshot, now: Walked, read: Ints) -> list[str]:
    """Queues that begin behind where they were read up to."""
    first = now.columns["min_offset"]
    rows = np.flatnonzero(first > read)
    named = zip(now.queues.only(rows).names(), read[rows].tolist(), first[rows].tolist(), strict=True)
    return [f"{snapshot.place} {queue}: {end} to {begin}" for queue, end, begin in named]


def _column(walked: Walked | None, queues: Queues, name: str, default: Ints) -> Ints:
    """A column of a walk for these queues; ``default`` for those that it has not met."""
    if walked is None:
        return default
    rows = queues.rows_in(walked.queues)
    column = walked.queues.generation if name == "generation" else walked.columns[name]
    return np.where(rows >= 0, np.append(column, 0)[rows], default)
