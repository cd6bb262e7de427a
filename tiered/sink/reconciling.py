"""A position held against the archive: what the source took back, which queues are others now (DESIGN.md, "Sinks", J3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tiered.archive.state.listing import list_queues
from tiered.archive.state.sinks import NOWHERE, SinkState
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import SinkStep
from tiered.errors import Invalid
from tiered.feed.base import FeedPosition, Follow, LogAnchor
from tiered.model import MessageQueue, PhysicalOffset
from tiered.sink.base import SinkPosition
from tiered.sink.book import SinkRewind
from tiered.sink.choosing import LostRange

LOST_AT_SOURCE = "the sink has them, and the broker lost them"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """``position`` to go on from. ``lost``: what the sink has had and the broker lost. ``anew``: queues whose topics were
    deleted and made again. ``changed``: queues that are otherwise than before. ``looked``: the commit that was looked at."""

    position: SinkPosition
    looked: int
    lineage: int
    lost: tuple[LostRange, ...] = ()
    anew: tuple[MessageQueue, ...] = ()
    changed: Mapping[MessageQueue, Follow] = field(default_factory=dict)


def beginning(state: ArchiveState, takes: Callable[[str], bool], *, from_start: bool) -> SinkPosition:
    """Where a sink begins: at the first message that the archive has of each queue, or behind the last one."""
    follows: dict[MessageQueue, Follow] = {}
    for listed in list_queues(state.view):
        queue = listed.queue
        first = queue.min_offset if from_start else queue.max_offset
        if queue.generation is not None and first > 0 and takes(queue.queue.topic):
            follows[queue.queue] = Follow(first)
    head = state.head()
    reached = None if head is None else head.progress.get(head.lineage)
    if from_start or reached is None:
        return SinkPosition(FeedPosition(), follows)
    return SinkPosition(FeedPosition(reached.physical_offset), follows)  # type: ignore[arg-type]


def begun(
    position: SinkPosition | None,
    state: ArchiveState,
    takes: Callable[[str], bool],
    find: Callable[[int], Mapping[MessageQueue, Follow]],
    rewind: SinkRewind | None,
    *,
    from_start: bool,
) -> Reconciled:
    """Where a new sink begins, or one that was told to begin again. ``position``: what the destination has; ``find``: where the
    messages of a time begin."""
    head = state.head()
    start = beginning(state, takes, from_start=from_start or rewind is not None)
    queues = dict(start.queues)
    if rewind is not None and rewind.time_ms is not None:
        queues.update(find(rewind.time_ms))
    if position is not None:  # what the destination keeps of other queues goes back as well
        queues = {**dict.fromkeys(position.queues, Follow()), **queues}
    looked, lineage = (0, 1) if head is None else (head.seq, head.lineage)
    return Reconciled(SinkPosition(start.log, queues), looked, lineage)


def widened(
    found: Reconciled,
    known: SinkState | None,
    state: ArchiveState,
    takes: Callable[[str], bool],
    *,
    from_start: bool,
) -> Reconciled:
    """The order is another than the position was reached under, or nobody knows: it may take queues that it did not. They
    begin as a new sink would begin them, and what is behind that comes by way of the archive. A queue that began behind where
    the sink was is none that was left out: it begins at its first message in any case."""
    had = found.position.queues
    start = beginning(state, takes, from_start=from_start).queues
    more = {queue: follow for queue, follow in start.items() if queue not in had}
    if more and not from_start and known is not None:
        first = beginning(state, takes, from_start=True).queues
        for queue in _born_behind(list(more), known, state):
            more[queue] = first.get(queue, Follow())
    position = SinkPosition(FeedPosition(), {**had, **more})
    return replace(found, position=position, changed={**found.changed, **more})


def _born_behind(queues: list[MessageQueue], known: SinkState, state: ArchiveState) -> list[MessageQueue]:
    """Those of these queues that began behind what the sink was given of the log."""
    found, _ = state.queue_table([q.topic for q in queues], np.array([q.queue_id for q in queues], np.int64))
    later = found["lineage"] > known.lineage
    if known.physical is not None:
        behind = found["birth_physical"].astype(np.int64) >= known.physical
        later |= (found["lineage"] == known.lineage) & behind
    return [queues[at] for at in np.flatnonzero(later).tolist()]


def reconcile(
    position: SinkPosition, known: SinkState | None, state: ArchiveState, *, cut: bool = False
) -> Reconciled:
    """A position as the archive's newest fold allows it. ``cut``: the log ends before the position, or is another one there:
    what lies behind the archive's end is asked for again."""
    head = state.head()
    if head is None:
        return Reconciled(position, 0, 1)
    lineage, looked = (head.lineage, head.seq) if known is None else (known.lineage, known.looked)
    follows = dict(position.queues)
    anew = _others(follows, lineage, state)
    anew += _reborn(follows, looked, frozenset(anew), state)
    lost = [*_closed(follows, looked, anew, state), *(_behind(follows, head, state) if cut else ())]
    for queue in anew:
        follows[queue] = Follow()
    for gone in lost:
        if gone.queue not in anew:
            before = follows[gone.queue]
            follows[gone.queue] = Follow(min(before.next, gone.first))
    if lineage < head.lineage:
        met = frozenset(anew)
        follows = {queue: f if queue in met else Follow(f.next, NOWHERE) for queue, f in follows.items()}
    rewound = any(part.closed_by is not None and part.closed_by > looked for part in state.closed_parts())
    log = FeedPosition() if cut or rewound else _log(position.log, lineage, head)
    return Reconciled(
        SinkPosition(log, follows),
        head.seq,
        head.lineage,
        _joined(lost),
        tuple(anew),
        {queue: follow for queue, follow in follows.items() if position.queues[queue] != follow},
    )


def _log(log: FeedPosition, lineage: int, head: Head) -> FeedPosition:
    """Where the log goes on: of another lineage, or behind what is archived of it, by way of the archive."""
    if lineage < head.lineage:
        return FeedPosition()
    reached = head.progress.get(head.lineage)
    end = 0 if reached is None else reached.physical_offset
    return FeedPosition() if log.physical is not None and log.physical > end else log


def _others(follows: Mapping[MessageQueue, Follow], lineage: int, state: ArchiveState) -> list[MessageQueue]:
    """Queues that began again behind what the sink has of them."""
    queues = [queue for queue, follow in follows.items() if follow.next > 0]
    if not queues:
        return []
    found, known = state.queue_table(
        [q.topic for q in queues], np.array([q.queue_id for q in queues], np.int64)
    )
    physical = np.array([-1 if p is None else p for p in (follows[q].physical for q in queues)], np.int64)
    told = np.array([follows[q].physical is not None for q in queues])
    later = found["lineage"] > lineage
    behind = (found["lineage"] == lineage) & told & (found["birth_physical"].astype(np.int64) > physical)
    other = known & ((found["generation"] == 0) | later | behind)
    return [queues[at] for at in np.flatnonzero(other).tolist()]


def _reborn(
    follows: Mapping[MessageQueue, Follow], looked: int, others: frozenset[MessageQueue], state: ArchiveState
) -> list[MessageQueue]:
    """Queues that the broker lost from their first message on, and that began again at or before where the sink was."""
    found = []
    for part in state.closed_parts():
        physical = follows.get(part.queue, Follow()).physical
        if part.queue in others or physical is None or not looked < (part.closed_by or 0):
            continue
        queue = state.queue(part.queue)
        reborn = queue is not None and queue.generation != part.generation
        if reborn and part.physical_start <= physical < part.physical_end:
            found.append(part.queue)
    return found


def _closed(
    follows: Mapping[MessageQueue, Follow], looked: int, anew: list[MessageQueue], state: ArchiveState
) -> list[LostRange]:
    """What rewinds since then took from below where the sink is."""
    lost = []
    others = frozenset(anew)
    for part in state.closed_parts():
        follow = follows.get(part.queue)
        if follow is None or part.closed_by is None or part.closed_by <= looked or part.start >= follow.next:
            continue
        found = state.queue(part.queue)
        if part.queue in others or (found is not None and found.generation == part.generation):
            end = min(part.end, follow.next)
            lost.append(LostRange(part.queue, part.start, end, LOST_AT_SOURCE, part.generation))
    return lost


def _behind(follows: Mapping[MessageQueue, Follow], head: Head, state: ArchiveState) -> list[LostRange]:
    """What a sink that may be ahead of the archive had from behind its end."""
    reached = head.progress.get(head.lineage)
    end = 0 if reached is None else reached.physical_offset
    lost = []
    for queue, follow in follows.items():
        if follow.physical is not None and follow.physical >= end:
            found = state.queue(queue)
            first = 0 if found is None else found.max_offset
            if first < follow.next:
                lost.append(
                    LostRange(
                        queue,
                        first,
                        follow.next,
                        "perhaps lost by the broker; given again as it has them now",
                        0 if found is None or found.generation is None else found.generation,
                    )
                )
    return lost


def _joined(lost: list[LostRange]) -> tuple[LostRange, ...]:
    """Ranges that touch, as one."""
    made: list[LostRange] = []
    for gone in sorted(lost, key=lambda g: (g.queue, g.first)):
        last = made[-1] if made else None
        same = last is not None and (last.queue, last.generation) == (gone.queue, gone.generation)
        if last is not None and same and gone.first <= last.end:
            made[-1] = last._replace(end=max(last.end, gone.end))
        else:
            made.append(gone)
    return tuple(made)


def place_of(known: SinkState) -> FeedPosition:
    """Where the archive says that a sink is in the log."""
    anchor = None if known.anchor is None else LogAnchor(*known.anchor)
    return FeedPosition(None if known.physical is None else PhysicalOffset(known.physical), anchor)


def is_empty(position: SinkPosition) -> bool:
    """Whether a destination that keeps its position was never flushed."""
    return not position.queues and position.log.physical is None


def tells_apart(known: SinkState, state: ArchiveState) -> bool:
    """Whether a position would be held against this fold with another outcome once messages came behind it: there was a rewind,
    or another lineage, that the sink had not accounted for."""
    head = state.head()
    rewound = any(
        part.closed_by is not None and part.closed_by > known.looked for part in state.closed_parts()
    )
    return rewound or (head is not None and known.lineage < head.lineage)


def check_not_forgotten(name: str, own: SinkPosition | None, recorded: SinkPosition | None) -> None:
    """``Invalid`` where a destination keeps its position, and has none although the archive knows of messages that it was
    given: the archive's is an older one, and messages would come twice in silence."""
    if own is None or not is_empty(own) or recorded is None:
        return
    if any(follow.next > 0 for follow in recorded.queues.values()):
        raise Invalid(
            "the destination does not know any more what it had of this sink", sink=name,
            hint=f"its position was deleted, or it is another destination: tiered sink rewind-to {name} TIME, or start; "
            "what it still has from then on comes twice",
        )  # fmt: skip


def step_to(known: SinkState | None, recorded: SinkPosition | None, found: Reconciled) -> SinkStep:
    """Whether what the sink goes on from is anywhere before what the archive has of it."""
    assert known is not None
    assert recorded is not None
    before, now = known.physical, found.position.log.physical
    log_back = before is not None and (now is None or now < before)
    queues = found.position.queues
    queue_back = any(
        queues.get(queue, Follow()).next < follow.next for queue, follow in recorded.queues.items()
    )
    return SinkStep.BACK if log_back or queue_back else SinkStep.ON
