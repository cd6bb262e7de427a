"""Look-up by key and by message id in a lite queue: by the indexes of the queues that its records were sent to.

A record names the lite queues that it is in, with its offset in each, and the alias at that offset must name the record: then
it is what a read of the lite queue finds there. So the aliases of few records are looked at, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tiered.archive.read.litefile import known_lite
from tiered.archive.read.lookup import KeyLookup, Located, locate_physical, query_key, query_topics
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.aliases import alias_runs, target_of
from tiered.archive.state.values import QueueState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.aliases import LITE_QUEUE_ID
from tiered.codec.record.message import Message
from tiered.model import MessageQueue, PhysicalOffset, QueueOffset


class LiteRecords:
    """The records of the current generation of a lite queue, as a look-up is kept to them."""

    def __init__(self, state: ArchiveState, known: QueueState, generation: int) -> None:
        self._state = state
        self._queue, self._generation = known.queue, generation
        self._sent_to: dict[str, list[tuple[MessageQueue, int]]] | None = None

    @classmethod
    def of(cls, state: ArchiveState, name: str) -> LiteRecords | None:
        """``None`` for what is no lite queue that the archive knows."""
        known = known_lite(state, MessageQueue(name, LITE_QUEUE_ID))
        return None if known is None or known.generation is None else cls(state, known, known.generation)

    def topics(self) -> Iterable[str]:
        """Topics that the records were sent to."""
        return self._targets()

    def generations(self, topic: str) -> Iterable[tuple[MessageQueue, int]]:
        """Queue generations of a topic that the records were sent to."""
        return self._targets().get(topic, ())

    def narrowed(self, run: RunState, offset: int, found: Located) -> Located | None:
        """A record in the lite queue: with queue and offset there."""
        return self._at(run.queue, run.generation, offset, found)

    def placed(self, found: Located) -> Located | None:
        """The same of a record whose generation is not known: its place in the commitlog tells."""
        return self._at(found.queue, None, found.queue_offset, found)

    def _at(
        self, queue: MessageQueue, generation: int | None, queue_offset: int, found: Located
    ) -> Located | None:
        for stated in offsets_in(found.message, self._queue.topic):
            run = next(alias_runs(self._state.view, self._queue, self._generation, stated), None)
            if run is None or not run.first_offset <= stated < run.end or run.lineage != found.lineage:
                continue
            row = run.rows[stated - run.first_offset]
            target, number = run.target(int(row["target"]))
            same = (target, int(row["offset"]), int(row["physical_offset"])) == (
                queue, queue_offset, found.message.physical_offset,
            )  # fmt: skip
            if same and generation in (None, number):
                return replace(found, queue=self._queue, queue_offset=QueueOffset(stated))
        return None

    def _targets(self) -> dict[str, list[tuple[MessageQueue, int]]]:
        """By topic; of each alias run its head and its targets are looked at."""
        if self._sent_to is None:
            seen: set[bytes] = set()
            for run in alias_runs(self._state.view, self._queue, self._generation):
                seen.update(run.targets)
            self._sent_to = {}
            for queue, generation in map(target_of, sorted(seen)):
                self._sent_to.setdefault(queue.topic, []).append((queue, generation))
        return self._sent_to


def query_in(state: ArchiveState, objects: ObjectReader, lookup: KeyLookup) -> list[Located]:
    """``query_key`` of a topic, or of a lite queue: then places are those in it."""
    lite = LiteRecords.of(state, lookup.topic)
    if lite is None:
        return query_key(state, objects, lookup)
    return query_topics(state, objects, lookup, lite.topics(), lite)


def locate_in(
    state: ArchiveState, objects: ObjectReader, offset: PhysicalOffset, lineage: int, topic: str | None
) -> Located | None:
    """``locate_physical``; ``topic`` may be a lite queue: then the place is that in it."""
    lite = None if topic is None else LiteRecords.of(state, topic)
    if lite is None:
        return locate_physical(state, objects, offset, lineage, topic)
    for each in lite.topics():
        found = locate_physical(state, objects, offset, lineage, each)
        if found is not None:
            return lite.placed(found)
    return None


def offsets_in(message: Message, name: str) -> list[int]:
    """The offsets in a lite queue that a record states for itself; none if it states none, or strange ones."""
    names = message.properties.get("INNER_MULTI_DISPATCH", "").split(",")
    stated = message.properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    return [
        int(offset)
        for each, offset in zip(names, stated, strict=False)
        if each == name and offset.isascii() and offset.isdigit() and len(offset) <= 18
    ]
