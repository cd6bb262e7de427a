"""A read of a lite queue: its aliases say which records of which queues it is; those are fetched as from their own queues.

The answers are those of ``tiered.store.answer``, with offsets of the lite queue; the records are as they are stored. Holes are
what lies between alias runs, and aliases whose records retention took while one before them is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice

from msgspec import structs

from tiered.archive.read.keptaliases import MOST_SKIPPED, KeptAliases, readable_from
from tiered.archive.read.litefile import known_lite
from tiered.archive.state.aliases import AliasRun, alias_runs
from tiered.archive.state.values import QueueState
from tiered.archive.state.view import ArchiveState
from tiered.codec.record.layout import physical_offset_of
from tiered.errors import Corrupt, TieredError
from tiered.fetch.base import FetchedRecords
from tiered.fetch.pull import Pull
from tiered.fetch.steps import Steps
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue, QueueOffset, Records

Fetch = Callable[[Pull, int], Future[FetchedRecords]]
"""Fetches from one generation of a queue."""


@dataclass(frozen=True, slots=True)
class _Alias:
    offset: int
    queue: MessageQueue
    generation: int
    queue_offset: int
    physical_offset: int
    target: bytes

    def precedes(self, other: _Alias) -> bool:
        """Whether the record of ``other`` is the next one of the same queue."""
        same = (self.queue, self.generation) == (other.queue, other.generation)
        return same and self.queue_offset + 1 == other.queue_offset


@dataclass(frozen=True, slots=True)
class LitePlace:
    """Where a read goes on: aliases at offsets that follow each other, from the one asked for on, at least one. ``answer``:
    what it is told, still without records."""

    aliases: tuple[_Alias, ...]
    answer: GetMessageResult


def decide_lite(state: ArchiveState, pull: Pull) -> GetMessageResult | LitePlace | None:
    """The answer that needs no record, or where the records are; ``None`` if this is no lite queue that the archive knows."""
    known = known_lite(state, pull.queue)
    if known is None or known.generation is None:
        return None
    low, high, offset = QueueOffset(known.min_offset), QueueOffset(known.max_offset), pull.offset

    def answered(status: GetMessageStatus, following: int) -> GetMessageResult:
        return GetMessageResult(status, QueueOffset(following), low, high)

    if offset < low:
        return answered(GetMessageStatus.OFFSET_TOO_SMALL, low)
    if offset >= high:
        beyond = (
            GetMessageStatus.OFFSET_OVERFLOW_BADLY if offset > high else GetMessageStatus.OFFSET_OVERFLOW_ONE
        )
        return answered(beyond, high)
    if pull.max_count < 1:
        return answered(GetMessageStatus.OFFSET_FOUND_NULL, offset)
    kept = KeptAliases(state)

    def has(alias: _Alias) -> bool:
        return alias.queue_offset >= kept.minimum(alias.target)

    coming = _aliases(alias_runs(state.view, known.queue, known.generation, offset), offset)
    looked = offset
    for lead in islice(coming, MOST_SKIPPED):
        if has(lead):
            break
        looked = lead.offset + 1
    else:
        return _passed(
            state, known, answered(GetMessageStatus.OFFSET_FOUND_NULL, looked if next(coming, None) else high)
        )
    if lead.offset != offset:
        return _passed(state, known, answered(GetMessageStatus.OFFSET_FOUND_NULL, lead.offset))
    found = [lead]
    for alias in islice(coming, pull.max_count - 1):
        if alias.offset != found[-1].offset + 1 or not has(alias):
            break
        found.append(alias)
    return LitePlace(tuple(found), answered(GetMessageStatus.FOUND, offset))


def _passed(state: ArchiveState, known: QueueState, hole: GetMessageResult) -> GetMessageResult:
    """The answer where a read goes on behind what it asked for: it asked for less than there still is, or a hole."""
    begin = QueueOffset(readable_from(state, known))
    if begin < hole.next_begin_offset:
        return hole
    return structs.replace(
        hole, status=GetMessageStatus.OFFSET_TOO_SMALL, next_begin_offset=begin, min_offset=begin
    )


def _aliases(runs: Iterable[AliasRun], offset: int) -> Iterator[_Alias]:
    """The aliases of ascending runs from an offset on; a run is unpacked when it is come to."""
    for run in runs:
        targets = [run.target(number) for number in range(len(run.targets))]
        first = max(0, offset - run.first_offset)
        for at, row in enumerate(run.rows[first:].tolist(), run.first_offset + first):
            target, queue_offset, physical_offset, _ = row
            queue, generation = targets[target]
            yield _Alias(at, queue, generation, queue_offset, physical_offset, run.targets[target])


def read_lite(place: LitePlace, pull: Pull, fetch: Fetch) -> Steps[GetMessageResult]:
    """The answer with records: fetched queue by queue, those that follow each other there at once. An error is raised where
    there is no record before it."""
    records: list[memoryview] = []
    offsets: list[QueueOffset] = []
    size, following = 0, place.aliases[0].offset
    for part in _stretches(place.aliases):
        lead = part[0]
        wanted = structs.replace(
            pull, topic=lead.queue.topic, queue_id=lead.queue.queue_id, offset=lead.queue_offset,
            max_count=len(part), max_bytes=max(1, pull.max_bytes - size), row_filter=None,
        )  # fmt: skip
        fetching = fetch(wanted, lead.generation)
        yield fetching
        try:
            fetched = fetching.result()
        except TieredError:
            if following > place.aliases[0].offset:
                break
            raise
        held = dict(zip(fetched.queue_offsets, fetched.records, strict=True))
        for alias in part:
            record = held.get(QueueOffset(alias.queue_offset))
            if record is None or (records and size + len(record) > pull.max_bytes):
                break
            _check(alias, record)
            following = alias.offset + 1
            if pull.row_filter is None or pull.row_filter.accepts(record):
                records.append(record)
                offsets.append(QueueOffset(alias.offset))
                size += len(record)
        if following <= part[-1].offset:
            break
    if following == place.aliases[0].offset:  # the record lies in a gap: it was lost
        missing = GetMessageStatus.OFFSET_FOUND_NULL
        return structs.replace(place.answer, status=missing, next_begin_offset=QueueOffset(following + 1))
    status = GetMessageStatus.FOUND if records else GetMessageStatus.NO_MATCHED_MESSAGE
    return structs.replace(
        place.answer, status=status, next_begin_offset=QueueOffset(following),
        records=Records.of(records), queue_offsets=tuple(offsets),
    )  # fmt: skip


def _stretches(aliases: tuple[_Alias, ...]) -> Iterator[list[_Alias]]:
    """Aliases whose records follow each other in one queue."""
    part = [aliases[0]]
    for alias in aliases[1:]:
        if not part[-1].precedes(alias):
            yield part
            part = []
        part.append(alias)
    yield part


def _check(alias: _Alias, record: memoryview) -> None:
    """``Corrupt`` if the record is not the one that was put into the lite queue."""
    found = physical_offset_of(record)
    if found != alias.physical_offset:
        raise Corrupt(
            "an alias names another record than the one that is there",
            queue=str(alias.queue),
            offset=alias.queue_offset,
            expected=alias.physical_offset,
            found=found,
        )
