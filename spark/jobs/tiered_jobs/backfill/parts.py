"""What is to be given, shared out by queues; and one part of it, given on an executor."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.state.scope import Scope
from tiered.clock import Clock, SystemClock
from tiered.errors import Conflict, Invalid, NotFound
from tiered.sink.backfill import MAX_PART_QUEUES, MAX_PARTS, BackfillBook, BackfillPlan, QueueRange
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.giving import PartPace, give_part, is_as_planned, open_part
from tiered_spark.snapshot import TABLE_CACHE_BYTES, ArchivePlace, shared_provider

CHECK_SECONDS = 10.0
"""Between two looks whether the backfill is still wanted."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """A part of a plan."""

    place: ArchivePlace
    stored: StoredSink
    plan: BackfillPlan
    number: int
    flush_bytes: int
    job: int
    """``BackfillBook.begin_job``."""


def shared_out(ranges: Iterable[QueueRange], most: int) -> list[list[QueueRange]]:
    """Parts of about as many messages each, at most ``most`` unless there are too many queues; a queue is in one alone."""
    wanted = sorted(ranges, key=lambda each: (each.first - each.end, each.queue))
    count = min(len(wanted), max(most, -(-len(wanted) // MAX_PART_QUEUES)))
    if count > MAX_PARTS:
        raise Invalid(
            "a backfill has no more queues than this", found=len(wanted), expected=f"≤ {MAX_PARTS * MAX_PART_QUEUES}",
            hint="give topics to several sinks",
        )  # fmt: skip
    parts: list[list[QueueRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for each in wanted:
        open_parts = [at for at in range(count) if len(parts[at]) < MAX_PART_QUEUES]
        least = min(open_parts, key=lambda at: (sizes[at], at))
        parts[least].append(each)
        sizes[least] += each.end - each.first
    return parts


def give(task: PartTask) -> int:
    """On an executor: give a part, unless it is done; its number. Errors of the destination end the task, for Spark to try
    again."""
    place, clock = task.place, SystemClock()
    provider, keys = shared_provider(place.url), ArchiveKeys(place.cluster, place.broker)
    book = BackfillBook(provider, keys, place.archive_id)
    orders = SinkBook(provider, keys, place.archive_id)
    if task.number in book.done(task.plan):
        return task.number
    ranges = book.ranges(task.plan, task.number)
    check = _Wanted(orders, book, task, clock)
    check.now()  # before the opening takes the destination from whoever has it
    at = task.stored.place(place.archive_id, place.cluster, place.broker, task.plan.epoch)
    with closing(open_part(task.stored, task.plan, task.number, at)) as sink:
        # Asked behind the opening: a task that slept meanwhile finds no position where the sink has joined its part.
        check.now()
        if task.number in book.done(task.plan):
            return task.number
        done = give_part(task.number, _view(task, ranges), sink, ranges, PartPace(task.flush_bytes, check))
    book.put_done(task.plan, done, clock.now_ms())
    return task.number


def _view(task: PartTask, ranges: tuple[QueueRange, ...]) -> View:
    """The archive's newest fold where it has what was planned, else the one that was planned on. ``NotFound``."""
    topics: dict[str, set[int]] = {}
    for each in ranges:
        topics.setdefault(each.queue.topic, set()).add(each.queue.queue_id)
    scope = Scope({topic: frozenset(ids) for topic, ids in topics.items()})
    provider, keys = shared_provider(task.place.url), ArchiveKeys(task.place.cluster, task.place.broker)

    def reader() -> ArchiveReader:
        return ArchiveReader(provider, keys, PartialStore(scope), table_cache_bytes=TABLE_CACHE_BYTES)

    view = reader().at()
    if is_as_planned(task.plan, ranges, view.state):
        return view
    try:
        return reader().at(task.plan.commit)
    except NotFound as error:
        raise Conflict(
            "the archive has not any more what was planned: the broker took messages back, or a topic was deleted",
            sink=task.stored.name, found=error.message,
            hint="tiered sink backfill NAME --end: the sink goes on by itself from what it was given",
        ) from error  # fmt: skip


class _Wanted:
    """Raises where the backfill was ended meanwhile, by an operator or with its sink, or a later job gives it."""

    def __init__(self, orders: SinkBook, book: BackfillBook, task: PartTask, clock: Clock) -> None:
        self._orders, self._book, self._task, self._clock = orders, book, task, clock
        self._next = 0.0

    def __call__(self) -> None:
        if self._clock.monotonic() >= self._next:
            self.now()

    def now(self) -> None:
        """However short a while ago it was asked last."""
        self._next = self._clock.monotonic() + CHECK_SECONDS
        stored = self._task.stored
        found = self._orders.sink(stored.name)
        if found.sink_id != stored.sink_id or found.backfill != stored.backfill:
            raise Conflict("this backfill of the sink was ended meanwhile", sink=stored.name)
        self._book.check_job(self._task.plan, self._task.job)
