"""The work of the job, shared out by what has to be read at the destination; and one part of it, on an executor."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.scope import Scope
from tiered.sink.book import StoredSink
from tiered.sink.comparison.base import ReadBack
from tiered.sink.comparison.found import Compared
from tiered.sink.comparison.scope import QueueScope, SinkScope
from tiered.sink.comparison.verifying import compare, reader_of
from tiered_spark.snapshot import TABLE_CACHE_BYTES, ArchivePlace, shared_provider


@dataclass(frozen=True, slots=True)
class ComparedPart:
    """Some queues of a sink, held against the archive as it was after ``commit``."""

    place: ArchivePlace
    commit: int
    stored: StoredSink
    scope: SinkScope


def shared_out(scope: SinkScope, reader: ReadBack, most: int) -> list[SinkScope]:
    """At most so many parts of about as many messages each; queues of one lane stay together, so that no task reads what
    another reads."""
    lanes: dict[str, list[QueueScope]] = {}
    for each in scope.queues:
        lanes.setdefault(reader.lane(reader.target(each.queue)), []).append(each)
    parts: list[list[QueueScope]] = [[] for _ in range(min(most, len(lanes)))]
    sizes = [0] * len(parts)
    for lane in sorted(lanes.values(), key=_messages, reverse=True):
        least = sizes.index(min(sizes))
        parts[least] += lane
        sizes[least] += _messages(lane) + 1
    return [replace(scope, queues=tuple(part)) for part in parts]


def compare_part(part: ComparedPart) -> Compared:
    """On an executor: read both sides of these queues."""
    place = part.place
    topics: dict[str, set[int]] = {}
    for each in part.scope.queues:
        topics.setdefault(each.queue.topic, set()).add(each.queue.queue_id)
    mine = Scope({topic: frozenset(ids) for topic, ids in topics.items()})
    archive = ArchiveReader(
        shared_provider(place.url),
        ArchiveKeys(place.cluster, place.broker),
        PartialStore(mine),
        table_cache_bytes=TABLE_CACHE_BYTES,
    )
    view = archive.at(part.commit)
    with closing(reader_of(part.stored, place.cluster, place.broker, place.archive_id)) as reader:
        return compare(view, reader, part.scope)


def _messages(lane: list[QueueScope]) -> int:
    return sum(each.end or 0 for each in lane)
