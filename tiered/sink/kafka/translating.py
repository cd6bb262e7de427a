"""What a group has consumed of queues, as offsets of Kafka: from the archive's map, and where that is wide from Kafka's records
themselves (DESIGN.md, "Sinks", J8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tiered.archive.state.offsetmap import OffsetMap
from tiered.model import MessageQueue
from tiered.sink.kafka.rereading import MAX_REREAD, Found, RecordReader
from tiered.sink.kafka.topics import KafkaTopics

_SCANNED = 2_000
"""Offsets of a partition that are read one after the other, instead of halving them again."""

Belongs = Callable[[MessageQueue, Found], bool]
"""Whether a record with a queue's name is of this archive's broker."""


@dataclass(frozen=True, slots=True)
class QueueOfGroup:
    """A queue of a group. ``committed``: the next offset that it wants; ``None``: it has none, so it consumed nothing.
    ``known``: the sink's map of it. ``named``: the queue as the sink's records name it."""

    queue: MessageQueue
    committed: int | None
    known: OffsetMap
    named: MessageQueue


@dataclass(frozen=True, slots=True)
class Translated:
    """``offset`` of ``partition``: of the first message that the group has not consumed, or behind the last. ``start``: where a
    consumer of the partition has to begin, so that no queue in it loses anything; ``again``: how many messages of this queue
    come a second time then, at most so many where not ``counted``. ``why``: it cannot be said, and why."""

    queue: MessageQueue
    committed: int | None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    start: int | None = None
    again: int | None = None
    counted: bool = True
    why: str | None = None


class Translator:
    """Asks Kafka as little as can be. One thread. Errors as of ``Heard``."""

    def __init__(self, reader: RecordReader, topics: KafkaTopics, belongs: Belongs) -> None:
        self._reader = reader
        self._topics = topics
        self._belongs = belongs

    def translate(self, queues: Iterable[QueueOfGroup]) -> list[Translated]:
        """All queues of a group at one sink, in their order. Those of a partition that has one which cannot be said have no
        ``start``."""
        wanted = list(queues)
        ids = {
            topic.name: topic.id
            for topic in self._topics.find({q.known.target for q in wanted if len(q.known)}).values()
        }
        found = [self._one(queue, ids) for queue in wanted]
        shared: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        for at, queue in enumerate(wanted):
            if len(queue.known):
                shared[queue.known.target, queue.known.partition].append(at)
        for members in shared.values():
            if all(found[at].offset is not None for at in members):
                told = self._together([wanted[at] for at in members], [found[at] for at in members])
                for at, one in zip(members, told, strict=True):
                    found[at] = one
        return found

    def _one(self, wanted: QueueOfGroup, ids: Mapping[str, str]) -> Translated:
        known, committed = wanted.known, wanted.committed
        told = Translated(wanted.queue, committed)
        if not len(known):
            nothing = committed is None or committed >= known.start
            return told if nothing else replace(told, why=_before(known.start))
        told = replace(told, topic=known.target, partition=known.partition)
        if ids.get(known.target) != known.target_id:
            return replace(told, why="the Kafka topic was deleted, or is another one of the same name now")
        offset = known.start if committed is None else committed
        place = known.locate(offset)
        if place is None:
            return replace(told, why=_before(int(known.first[0])))
        low, _ = self._reader.bounds(known.target, known.partition)
        if place.high < low:
            return replace(told, why=f"Kafka has deleted what lies before its offset {low}")
        at = place.low if place.exact else self._search(wanted, offset, max(place.low, low), place.high)
        if at < low:
            return replace(told, why=f"Kafka has deleted what lies before its offset {low}")
        return replace(told, offset=at)

    def _search(self, wanted: QueueOfGroup, offset: int, low: int, high: int) -> int:
        """The offset of the first record of a queue that is this message or a later one, from ``low`` on; else ``high``. Halves
        what lies between, since records of a queue ascend."""
        best, lowest, seen = high, low, False
        while high - low > _SCANNED:
            middle = (low + high) // 2
            found = self._next(wanted, middle, high)
            if found is None:
                high = middle
                continue
            seen = True
            if found.offset >= offset:
                best, high = found.at, middle
            else:
                low = found.at + 1
        for record in self._reader.records(wanted.known.target, wanted.known.partition, low, high):
            if self._is_of(wanted, record):
                seen = True
                if record.offset >= offset:
                    return record.at
        # Records that do not say what they are: none of them may be passed over.
        return best if seen else lowest

    def _next(self, wanted: QueueOfGroup, low: int, high: int) -> Found | None:
        records = self._reader.records(wanted.known.target, wanted.known.partition, low, high)
        return next((record for record in records if self._is_of(wanted, record)), None)

    def _is_of(self, wanted: QueueOfGroup, record: Found) -> bool:
        return record.queue == wanted.named and self._belongs(wanted.queue, record)

    def _together(self, members: list[QueueOfGroup], told: list[Translated]) -> list[Translated]:
        """Queues of one partition: it begins at the smallest of their offsets, and of the others messages come again."""
        offsets = [one.offset or 0 for one in told]
        start, end = min(offsets), max(offsets)
        counts, counted = [0] * len(members), True
        if end > start:
            counted = end - start <= MAX_REREAD
            if counted:
                counts = self._count(members, offsets, start, end)
            else:
                counts = [offset - start for offset in offsets]
        made = []
        for member, one, again in zip(members, told, counts, strict=True):
            ahead = max(0, (member.committed or 0) - member.known.end)  # consumed, and not given to Kafka yet
            made.append(replace(one, start=start, again=again + ahead, counted=counted or not again))
        return made

    def _count(self, members: list[QueueOfGroup], offsets: list[int], start: int, end: int) -> list[int]:
        counts = [0] * len(members)
        named = {member.named: at for at, member in enumerate(members)}
        known = members[0].known
        for record in self._reader.records(known.target, known.partition, start, end):
            at = named.get(record.queue)
            if at is not None and record.at < offsets[at] and self._belongs(members[at].queue, record):
                counts[at] += 1
        return counts


def _before(first: int) -> str:
    return f"before the map began: the first mapped offset is {first}"
