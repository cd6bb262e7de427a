"""Look-up by key and by physical offset over the live runs of the fold. Hashes narrow, the record itself decides."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tiered.archive.read.flatfile import RunReader
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import KEY_ROW_DTYPE
from tiered.archive.read.view import View
from tiered.archive.state.keys import QUEUE, queue_of
from tiered.archive.state.layout import QUEUE_DTYPE, table
from tiered.archive.state.values import ObjectState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditKind
from tiered.codec.record.message import Message, decode_message
from tiered.model import MessageQueue, ObjectRef, PhysicalOffset, QueueOffset


@dataclass(frozen=True, slots=True)
class Located:
    """A message and where it lies in its queue."""

    queue: MessageQueue
    queue_offset: QueueOffset
    lineage: int
    record: bytes
    message: Message

    @property
    def place(self) -> tuple[int, int]:
        """Where the broker stored it: sorts by age, newer lineages last."""
        return self.lineage, self.message.physical_offset


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Messages of ``topic`` with ``key`` among their KEYS (``unique``: as their UNIQ_KEY).

    Stored in [``begin_ms``, ``end_ms``], both included as in RocketMQ; ``None``: without that bound. Of them the newest
    ``max_count`` (``oldest``: the oldest); fewer, if they are more than ``max_bytes`` together, but at least one.
    """

    topic: str
    key: str
    max_count: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    unique: bool = False
    oldest: bool = False
    max_bytes: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether not a single message is asked for."""
        return self.max_count is not None and self.max_count < 1


class Within(Protocol):
    """Messages that a look-up is kept to: others of the same topic are not its answer."""

    def generations(self, topic: str) -> Iterable[tuple[MessageQueue, int]]:
        """Queue generations of a topic in which such messages lie."""

    def narrowed(self, run: RunState, offset: int, found: Located) -> Located | None:
        """The message at an offset of a run as it is told; ``None`` if it is none of them."""


def query_key(state: ArchiveState, objects: ObjectReader, lookup: KeyLookup) -> list[Located]:
    """The messages that ``lookup`` asks for, in the order in which the broker stored them.

    The objects' filters and hash indexes narrow; each candidate's own properties are compared, so collisions never leak. Runs
    are taken from the wanted end of time and no further than needed.
    """
    return query_topics(state, objects, lookup, (lookup.topic,))


def query_topics(
    state: ArchiveState,
    objects: ObjectReader,
    lookup: KeyLookup,
    topics: Iterable[str],
    within: Within | None = None,
) -> list[Located]:
    """The same of the messages of several topics together, of those ``within`` alone if it is given."""
    if lookup.is_empty:
        return []
    found = _Wanted(lookup.max_count, lookup.max_bytes)
    for topic in topics:
        _search(_Search(state, objects, lookup, topic, within), lookup.oldest, found)
    return found.in_order()


def _search(search: _Search, oldest: bool, found: _Wanted) -> None:
    """Add what a topic has to what is wanted."""
    sign = 1 if oldest else -1
    runs = sorted(
        search.runs(), key=lambda r: (sign * r.lineage, r.physical_start if oldest else -r.physical_end)
    )
    for run in runs:
        edge = run.physical_start if oldest else run.physical_end
        if found.is_beyond((-sign * run.lineage, -sign * edge)):
            break
        for item in search.matches(run, reverse=not oldest):
            if not found.take((-sign * item.place[0], -sign * item.place[1]), item):
                break  # what follows in the run is wanted still less


class _Wanted:
    """The most wanted messages so far. Ranks: the higher, the more wanted."""

    def __init__(self, max_count: int | None, max_bytes: int | None) -> None:
        self._max_count, self._max_bytes = max_count, max_bytes
        self._heap: list[tuple[tuple[int, int], int, Located]] = []  # the one to give up first is on top
        self._given_up: tuple[int, int] | None = None  # the highest rank of those
        self._bytes = self._taken = 0

    def is_beyond(self, rank: tuple[int, int]) -> bool:
        """Whether nothing of this rank or a lower one is wanted any more."""
        if self._max_count is not None and len(self._heap) == self._max_count:
            return rank <= self._heap[0][0]
        return self._given_up is not None and rank <= self._given_up

    def take(self, rank: tuple[int, int], item: Located) -> bool:
        """Keep a message, if it is wanted; whether it is kept."""
        if self.is_beyond(rank):
            return False
        self._taken += 1
        heapq.heappush(self._heap, (rank, self._taken, item))
        self._bytes += len(item.record)
        while len(self._heap) > 1 and self._is_too_much():
            self._given_up, _, gone = heapq.heappop(self._heap)
            self._bytes -= len(gone.record)
        return self._given_up is None or rank > self._given_up

    def in_order(self) -> list[Located]:
        """As the broker stored them."""
        return sorted((item for _, _, item in self._heap), key=lambda item: item.place)

    def _is_too_much(self) -> bool:
        return (self._max_count is not None and len(self._heap) > self._max_count) or (
            self._max_bytes is not None and self._bytes > self._max_bytes
        )


class _Search:
    """One key of one topic; what the objects' indexes say is kept while it lasts."""

    def __init__(
        self, state: ArchiveState, objects: ObjectReader, lookup: KeyLookup, topic: str, within: Within | None
    ) -> None:
        self._state, self._objects, self._reader = state, objects, RunReader(state, objects)
        self._topic, self._key, self._unique = topic, lookup.key, lookup.unique
        self._within = within
        self._begin, self._end = lookup.begin_ms, lookup.end_ms
        self._rows: dict[ObjectRef, npt.NDArray[Any]] = {}

    def runs(self) -> Iterator[RunState]:
        """Runs of the topic's queues whose store times meet the range."""
        for queue, generation in self._generations():
            for run in self._state.runs(queue, generation):
                early = self._begin is not None and run.max_store_time < self._begin
                if not early and not (self._end is not None and run.min_store_time > self._end):
                    yield run

    def _generations(self) -> Iterable[tuple[MessageQueue, int]]:
        if self._within is not None:
            return self._within.generations(self._topic)
        queues = self._state.queues(self._topic)
        return ((queue.queue, queue.generation) for queue in queues if queue.generation is not None)

    def matches(self, run: RunState, *, reverse: bool) -> Iterator[Located]:
        """Messages of a run, in queue order or from its end."""
        offsets = self._offsets(run)
        if not len(offsets):
            return
        if not self._inside(run):
            offsets = self._in_time(run, offsets)
        for offset, record in self._reader.records(run, offsets, reverse=reverse):
            message = decode_message(record)
            if self._has_key(message):
                found = Located(run.queue, QueueOffset(offset), run.lineage, record, message)
                told = found if self._within is None else self._within.narrowed(run, offset, found)
                if told is not None:
                    yield told

    def _inside(self, run: RunState) -> bool:
        """Whether all of the run is in the range."""
        return (self._begin is None or self._begin <= run.min_store_time) and (
            self._end is None or run.max_store_time <= self._end
        )

    def _in_time(self, run: RunState, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Those of ``offsets`` whose rows are in the range."""
        times = self._reader.times_of(run, offsets)
        good = np.ones(len(offsets), np.bool_)
        if self._begin is not None:
            good &= times >= self._begin
        if self._end is not None:
            good &= times <= self._end
        return offsets[good]

    def _offsets(self, run: RunState) -> npt.NDArray[np.int64]:
        """Queue offsets at which the run's object may have the key, inside the run; ascending."""
        rows = self._rows.get(run.object)
        if rows is None:
            item = self._state.object(run.object)
            none = np.zeros(0, KEY_ROW_DTYPE)
            rows = none if item is None else self._objects.key_rows(item, self._topic, self._key)
            self._rows[run.object] = rows
        mine = (rows["queue_id"] == run.queue.queue_id) & (rows["generation"] == run.generation)
        offsets = np.unique(rows["queue_offset"][mine].astype(np.int64))
        return offsets[(offsets >= run.start) & (offsets < run.end)]

    def _has_key(self, message: Message) -> bool:
        return message.unique_key == self._key if self._unique else self._key in message.keys


def locate_physical(
    state: ArchiveState,
    objects: ObjectReader,
    offset: PhysicalOffset,
    lineage: int,
    topic: str | None = None,
) -> Located | None:
    """The live record of ``lineage``, in whatever generation, that begins at a physical offset; ``None`` if there is none, or
    none of ``topic``.

    One request for the physical offsets of an object that has runs around it, and one for the block; of a segment one for
    each row group that has.
    """
    runs = sorted(
        state.runs_around(lineage, offset, topic), key=lambda r: (r.object.commit_seq, r.object.index)
    )
    for ref, group in groupby(runs, key=lambda r: r.object):
        item = state.object(ref)
        found = None if item is None else _in_object(state, objects, item, list(group), offset)
        if found is not None:
            return found
    return None


COMMITS_BACK = 64
"""So many commits are looked through for the newest run before all queues are."""


def newest_in_log(view: View) -> Located | None:
    """The record that the broker stored last in the lineage in force, if one of the last commits says which it is.

    ``None``: they do not, since they append nothing, or what they appended is not live any more.
    """
    head, state = view.head, view.state
    last = -1 if head is None else head.seq
    for seq in range(last, max(-1, last - COMMITS_BACK), -1):
        found = view.log.read(seq)
        appended = (
            []
            if found is None
            else [b for b in found.commit.edits if b.kind is EditKind.APPEND_RUN and len(b)]
        )
        if found is None or head is None:
            return None
        if not appended:
            continue
        rows = max(appended, key=lambda b: int(b.ints("physical_end").max()))
        at = int(rows.ints("physical_end").argmax())
        mq = MessageQueue(rows.columns["topic"][at], int(rows.ints("queue_id")[at]))
        generation = int(rows.ints("generation")[at])
        end = int(rows.ints("first_queue_offset")[at]) + int(rows.ints("queue_offsets")[at])
        known = state.queue(mq)
        if (
            known is None
            or (known.generation, known.max_offset) != (generation, end)
            or known.min_offset >= end
        ):
            return None
        run = next(state.runs(mq, generation, from_offset=end - 1), None)
        if run is None or (run.lineage, run.physical_end) != (
            head.lineage,
            int(rows.ints("physical_end")[at]),
        ):
            return None
        return _last_of(state, view.objects, run)
    return None


def newest_physical(state: ArchiveState, objects: ObjectReader, lineage: int) -> Located | None:
    """The live record of ``lineage`` that the broker stored last; ``None`` without one. Walks over all queues, as arrays."""
    pairs, best, end = state.view.iterate(QUEUE), b"", -1
    while chunk := list(islice(pairs, 8192)):
        queues = table([value for _, value in chunk], QUEUE_DTYPE)
        ends = np.where(
            (queues["lineage"] == lineage) & (queues["runs"] > 0),
            queues["last_physical_end"].astype(np.int64),
            -1,
        )
        at = int(ends.argmax())
        if ends[at] > end:
            best, end = chunk[at][0], int(ends[at])
    if end < 0:
        return None
    mq = queue_of(best[1:])
    known = state.queue(mq)
    if known is None or known.generation is None:
        return None
    run = max(state.runs(mq, known.generation), key=lambda r: r.end, default=None)
    return None if run is None else _last_of(state, objects, run)


def _last_of(state: ArchiveState, objects: ObjectReader, run: RunState) -> Located | None:
    for queue_offset, record in RunReader(state, objects).records(run, np.array([run.end - 1])):
        return Located(run.queue, QueueOffset(queue_offset), run.lineage, record, decode_message(record))
    return None


def _in_object(
    state: ArchiveState, objects: ObjectReader, item: ObjectState, runs: list[RunState], offset: int
) -> Located | None:
    reader = RunReader(state, objects)
    for first, count in objects.rows_around(item, runs, offset):
        rows = objects.columns(item, ("physical_offset",), first, count)["physical_offset"]
        for at in (np.flatnonzero(rows == offset) + first).tolist():
            run = next((r for r in runs if r.first_row <= at < r.first_row + r.rows), None)
            if run is None:
                continue
            queue_offset = reader.offset_of(run, at - run.first_row)
            if not run.start <= queue_offset < run.end:
                continue
            for _, record in reader.records(run, np.array([queue_offset])):
                message = decode_message(record)
                if message.physical_offset == offset:
                    return Located(run.queue, QueueOffset(queue_offset), run.lineage, record, message)
    return None
