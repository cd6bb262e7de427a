"""Forgetting queues of topics that are gone, as a task (DESIGN.md, "Queues that are gone", Q4 and Q5)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from typing import Protocol

from tiered.archive.log.flush import Flush
from tiered.archive.log.maintenance import Done, Figures, Outlook, Turn, WithoutMessages
from tiered.archive.log.planned import Place
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.policy import agreed_now
from tiered.archive.rewrite.storetime import store_now_ms
from tiered.archive.state.forgotten import FORGOTTEN_QUEUES, empty_queues, written_last
from tiered.archive.state.keys import QUEUE, prefixed, queue_of, topic_key
from tiered.archive.state.layout import unpack_queue
from tiered.archive.state.sinks import is_behind, sinks
from tiered.archive.state.tallies import empty_topics
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.codec.format.edits import EditKind, batch
from tiered.settings.keeping import Retain

QUEUES_AT_ONCE = 8192
"""Queues of one commit: archiving waits while it takes its place."""

COMMITS = 64
"""Of one look, which costs something for each queue that there is."""

SHOWN = 10_000
"""Queues that a dry run names one by one."""

WAITS_FOR_A_START = "the epoch in force does not allow it: the next start of the daemon does"


class TopicsGone(Protocol):
    """What is known of topics that the broker deleted."""

    def empty_since(self, topics: Collection[str], now_ms: Callable[[], int]) -> Mapping[str, int]:
        """Of these topics, of which the archive has no message, those that the broker deleted, each with when that was seen
        first; only those of which that is known. ``now_ms``: what host and store agree on, asked only where it matters.
        ``Unavailable`` while nobody knows."""
        ...


class NobodyKnows:
    """No broker is known: no topic is gone."""

    def empty_since(self, topics: Collection[str], now_ms: Callable[[], int]) -> Mapping[str, int]:
        """See ``TopicsGone``."""
        return {}


NOBODY_KNOWS = NobodyKnows()


@dataclass(frozen=True, slots=True)
class ForgetQueues(WithoutMessages):
    """Queues (``keys``, ascending) on their way to their place in the log, with their records as they were when planned
    (``values``). What is not as it was by then is left out."""

    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of what is unchanged; ``None`` if nothing is."""
        # A run changes the record of its queue, and gaps and closed parts come of runs: who has the same record has nothing.
        found = fold.view.get_many(prefixed(QUEUE, self.keys))
        keys = [
            key
            for key, before, now in zip(self.keys, self.values, found, strict=True)
            if before == now is not None
        ]
        if not keys:
            return None
        _, generation, lineage, end = written_last(fold.view, keys)
        queues = list(map(queue_of, keys))
        edit = batch(
            EditKind.FORGET_QUEUES, topic=[queue.topic for queue in queues], queue_id=[queue.queue_id for queue in queues],
            generation=generation, lineage=lineage, physical_end=end,
        )  # fmt: skip
        return Flush((edit,), None, self.now, priority=self.priority)


@dataclass(slots=True)
class _Found:
    """What a look found: topics that are gone and of which nothing is left. Of those in ``over`` (``over_queues``) the time is
    over; ``waiting`` others (``waiting_queues``) wait, the first of them until ``next_ms``. ``why``: nothing is forgotten, of
    ``stuck_queues`` although their time is over."""

    over: list[str] = field(default_factory=list)
    sinks: set[str] = field(default_factory=set)
    """Some queues wait for these, met while ``over`` was gone through."""
    over_queues: int = 0
    waiting: int = 0
    waiting_queues: int = 0
    next_ms: int | None = None
    why: str = ""
    stuck_queues: int = 0


class Forget:
    """The task. A turn looks anew, at settings, clocks and the broker's word, and has up to ``COMMITS`` commits.

    ``settings``: as they are by then; ``grace_ms``: that of a ``Retire``.
    """

    name = "forget"

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        settings: Callable[[], Retain],
        grace_ms: int,
        broker: TopicsGone = NOBODY_KNOWS,
        *,
        opens_epoch: bool = False,
    ) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._grace_ms = grace_ms
        self._broker = broker
        self._opens_epoch = opens_epoch
        self._ended_at = clock.monotonic()

    def due(self, now: float) -> bool:
        """An interval after the last round ended; never where no queue may be forgotten."""
        settings = self._settings()
        return settings.forgets_queues and now >= self._ended_at + settings.interval_ms / 1000

    def plan(self) -> Outlook:
        """See ``Task``."""
        fold = self._log.frozen()
        found = self._look(fold)
        if found.why:
            return Outlook(0, f"no queue is forgotten: {found.why}")
        rows: list[Figures] = [
            {
                "topic": queue.topic,
                "queue_id": queue.queue_id,
                "generation": unpack_queue(value).highest_generation,
            }
            for keys in self._queues(fold, found)
            for queue, value in zip(
                map(queue_of, keys), fold.view.get_many(prefixed(QUEUE, keys)), strict=True
            )
            if value is not None
        ]
        figures: Figures = {
            "queues": len(rows), "topics": len(found.over), "waiting_topics": found.waiting,
            "waiting_queues": found.waiting_queues, "next_ms": found.next_ms,
        }  # fmt: skip
        said = (
            f"{len(rows)} queues of {len(found.over)} deleted topics to be forgotten"
            if rows
            else "nothing to forget"
        )
        waiting = (
            f"; {found.waiting} more topics have nothing left, and their grace is not over"
            if found.waiting
            else ""
        )
        if found.sinks:
            waiting += f"; others wait for sinks: {', '.join(sorted(found.sinks))}"
        return Outlook(-(-len(rows) // QUEUES_AT_ONCE), said + waiting, figures, tuple(rows[:SHOWN]))

    def run_once(self, turn: Turn) -> Done:
        """Forget up to ``QUEUES_AT_ONCE`` queues in each of ``COMMITS`` commits."""
        fold = self._log.frozen()
        found = self._look(fold)
        every = (key for keys in self._queues(fold, found) for key in keys)
        count = 0
        for _ in range(COMMITS):
            keys = list(islice(every, QUEUES_AT_ONCE))
            if keys:
                values = fold.view.get_many(prefixed(QUEUE, keys))
                proven = turn.commit(ForgetQueues(keys, values, self._clock.monotonic()))
                count += 0 if proven is None else len(proven.flush.edits[0])
        if found.over and count and next(every, None) is not None:
            return Done(True, {"forgotten_queues": count})
        return self._ended(found, count)

    def _ended(self, found: _Found, count: int) -> Done:
        """The round is over; what stays is said, and is trouble where only a start of the daemon helps."""
        self._ended_at = self._clock.monotonic()
        overdue = found.stuck_queues or max(0, found.over_queues - count)
        left = {"waiting_queues": found.waiting_queues, "overdue_queues": overdue}
        waits = found.why == WAITS_FOR_A_START
        figures: Figures = (
            {"forgotten_queues": count} if found.over else {"waits_for": found.why} if waits else {}
        )
        if found.sinks:
            figures = {**figures, "waits_for": f"sinks: {', '.join(sorted(found.sinks))}"}
        trouble = (
            f"{overdue} queues of deleted topics are not forgotten: {found.why}"
            if waits and overdue
            else None
        )
        return Done(False, figures, trouble, left)

    def _queues(self, fold: ArchiveState, found: _Found) -> Iterator[list[bytes]]:
        """Those that every sink is behind: one that is not yet has to hear what is missing, and a queue that is forgotten has
        no end by which it could."""
        if not found.over:
            return
        known = sinks(fold.view)
        for keys in empty_queues(fold.view, list(map(topic_key, found.over))):
            if known and keys:
                _, _, lineage, end = written_last(fold.view, keys)
                for sink in known:
                    behind = is_behind(sink, lineage, end)
                    if not behind.all():
                        found.sinks.add(sink.name)
                        keys = [key for key, passed in zip(keys, behind, strict=True) if passed]
                        lineage, end = lineage[behind], end[behind]
            yield keys

    def _look(self, fold: ArchiveState) -> _Found:
        """Which topics are gone, and for how long nothing of them was left."""
        settings, head = self._settings(), fold.head()
        if not settings.forgets_queues or head is None:
            return _Found(why="retain.deleted_topic_ms is 0, or retain.forget_queues is false")
        empty, reader = empty_topics(fold.view), self._log.reader
        now_ms = cache(lambda: agreed_now(self._clock.now_ms(), store_now_ms(reader)))
        found = _Found()
        # Asked also where no topic is empty: what was noted of an earlier life goes then.
        for topic, since_ms in self._broker.empty_since(empty, now_ms).items():
            if now_ms() - since_ms >= self._grace_ms:
                found.over.append(topic)
                found.over_queues += empty[topic]
                continue
            found.waiting += 1
            found.waiting_queues += empty[topic]
            over_ms = since_ms + self._grace_ms
            found.next_ms = over_ms if found.next_ms is None else min(found.next_ms, over_ms)
        if FORGOTTEN_QUEUES not in head.required_features and not self._opens_epoch:
            # Its time goes on meanwhile: the start that allows it need not wait for it once more.
            found.why, found.stuck_queues = WAITS_FOR_A_START, found.over_queues
            found.over, found.over_queues = [], 0
        return found
