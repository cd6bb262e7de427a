"""Typed reads of a fold.

The state lives in an ordered byte map (``MetadataView``), so that it works over RocksDB without loading all
queues. ``tiered.archive.fold.apply`` makes it; nothing in here changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import (
    CLOSED,
    FILE_MARK,
    FLOOR,
    GAP,
    GENERATION,
    HEAD,
    LINEAGE,
    MARK,
    OBJECT,
    OBJECT_PATH,
    PHYS_GAP,
    QUEUE,
    RETIRED,
    RUN,
    U8,
    U8_U4,
    UNDER_WAY,
    generation_prefix,
    lineage_key,
    object_key,
    offset_key,
    prefixed,
    queue_key,
    queue_keys,
    queue_of,
    split_closed_key,
    split_run_key,
    topic_key,
)
from tiered.archive.state.layers import QueueTables
from tiered.archive.state.layout import (
    MARK_STRUCT,
    RUN_RECORD_DTYPE,
    MarkIndex,
    pack_value,
    packed_table,
    table,
    unpack_queue,
    unpack_value,
)
from tiered.archive.state.tallies import records
from tiered.archive.state.values import (
    GapState,
    GenerationState,
    Head,
    ObjectState,
    PhysGapState,
    QueueState,
    Retired,
    RunState,
    gap_state,
    generation_state,
    is_unreferenced,
    queue_state,
    run_state,
    unpack_head,
    unpack_object,
)
from tiered.metadata.base import MetadataView, PointLookups
from tiered.model import MessageQueue, ObjectRef, Progress

_WALKED_AT_ONCE = 1024


class ArchiveState:
    """Typed reads of a fold. Holds nothing but the view, so it is as fresh and as thread-safe as that."""

    __slots__ = ("view",)

    def __init__(self, view: MetadataView) -> None:
        self.view = view

    def head(self) -> Head | None:
        """Where the fold stands; ``None`` for an empty log."""
        value = self.view.get_many((HEAD,))[0]
        return None if value is None else unpack_head(value)

    # ---- queues

    def queue(self, mq: MessageQueue) -> QueueState | None:
        """A queue's current generation; ``None`` for a queue never seen."""
        value = self.view.get_many((QUEUE + queue_key(mq),))[0]
        return None if value is None else queue_state(mq, unpack_queue(value))

    def queues(self, topic: str | None = None, after: MessageQueue | None = None) -> Iterator[QueueState]:
        """Queues by topic (UTF-8 byte order) and id, those above ``after``; read lazily."""
        prefix = b"" if topic is None else topic_key(topic)
        start = None if after is None else QUEUE + queue_key(after) + b"\0"
        for key, value in self.view.iterate(QUEUE + prefix, start=start):
            yield queue_state(queue_of(key[1:]), unpack_queue(value))

    def queue_table(
        self, topics: Sequence[str], queue_ids: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
        """``QUEUE_DTYPE`` records of many queues in order, zeros where unknown; and which are known.
        Vectorised.

        ``generation`` is 0 where a known queue has no current generation; ``highest_generation`` then still
        counts.
        """
        if isinstance(self.view, QueueTables):
            return self.view.queue_table(topics, queue_ids)
        return packed_table(self.view.get_many(prefixed(QUEUE, queue_keys(topics, np.asarray(queue_ids)))))

    def generations(self, mq: MessageQueue) -> Iterator[GenerationState]:
        """Every generation of a queue, ascending."""
        queue = queue_key(mq)
        value = self.view.get_many((QUEUE + queue,))[0]
        current = None if value is None else unpack_queue(value)
        shown = current is None or current.generation == 0
        for _, value in self.view.iterate(GENERATION + queue):
            record = unpack_queue(value)
            if current is not None and not shown and current.generation < record.generation:
                yield generation_state(mq, current, current=True)
                shown = True
            yield generation_state(mq, record, current=False)
        if current is not None and not shown:
            yield generation_state(mq, current, current=True)

    # ---- runs

    def runs(
        self, mq: MessageQueue, generation: int, *, from_offset: int | None = None
    ) -> Iterator[RunState]:
        """Live runs of a generation, ascending; those that end above ``from_offset``."""
        queue = queue_key(mq)
        prefix, start = generation_prefix(RUN, queue, generation), None
        if from_offset is not None and from_offset > 0:
            at = offset_key(RUN, queue, generation, from_offset)
            before = next(iter(self.view.iterate(prefix, start=at, reverse=True)), None)
            start = at if before is None else before[0]
        for _, value in self.view.iterate(prefix, start=start):
            run = run_state(mq, generation, value)
            if from_offset is None or run.end > from_offset:
                yield run

    def run_table(self, mq: MessageQueue, generation: int) -> npt.NDArray[np.void]:
        """Live runs of a generation as ``RUN_RECORD_DTYPE`` records, ascending."""
        prefix = generation_prefix(RUN, queue_key(mq), generation)
        return table([value for _, value in self.view.iterate(prefix)], RUN_RECORD_DTYPE)

    def closed_table(self, mq: MessageQueue, generation: int) -> npt.NDArray[np.void]:
        """Closed parts of a generation as ``RUN_RECORD_DTYPE`` records, by closing commit and offset."""
        prefix = generation_prefix(CLOSED, queue_key(mq), generation)
        return table([value for _, value in self.view.iterate(prefix)], RUN_RECORD_DTYPE)

    def lost_its_end(self, mq: MessageQueue, generation: int, since: int) -> bool:
        """Whether a commit behind ``since`` closed a part of a generation: its offsets may mean other messages now."""
        return bool((self.closed_table(mq, generation)["closed_by"] > since).any())

    def runs_all(self) -> Iterator[RunState]:
        """Every live run, by queue, generation and offset."""
        last, mq = b"", MessageQueue("", 0)
        for key, value in self.view.iterate(RUN):
            queue, generation = split_run_key(key)
            if queue != last:
                last, mq = queue, queue_of(queue)
            yield run_state(mq, generation, value)

    def run_before(self, mq: MessageQueue, generation: int, offset: int) -> RunState | None:
        """The last live run of a generation that begins below ``offset``, an offset where a run begins."""
        queue = queue_key(mq)
        prefix, at = generation_prefix(RUN, queue, generation), offset_key(RUN, queue, generation, offset)
        below = (pair for pair in self.view.iterate(prefix, start=at, reverse=True) if pair[0] != at)
        found = next(below, None)
        return None if found is None else run_state(mq, generation, found[1])

    def runs_above(self, lineage: int, physical_offset: int) -> Iterator[RunState]:
        """Live runs of a lineage that end above a physical offset, of each generation from its last run back: as many as there
        are, and the records of all queues, are looked at."""
        for prefix in (QUEUE, GENERATION):
            for chunk, found in records(self.view, prefix):
                mine = (found["generation"] > 0) & (found["lineage"] == lineage)
                for i in np.flatnonzero(mine & (found["last_physical_end"] > physical_offset)).tolist():
                    queue = chunk[i][0][1:] if prefix == QUEUE else chunk[i][0][1:-4]
                    yield from self._from_the_end(queue, int(found["generation"][i]), physical_offset)

    def _from_the_end(self, queue: bytes, generation: int, physical_offset: int) -> Iterator[RunState]:
        mq = queue_of(queue)
        for _, value in self.view.iterate(generation_prefix(RUN, queue, generation), reverse=True):
            run = run_state(mq, generation, value)
            if run.physical_end <= physical_offset:
                return
            yield run

    def runs_around(self, lineage: int, physical_offset: int, topic: str | None = None) -> Iterator[RunState]:
        """Live runs of a lineage, of a topic or of all, whose live part may hold a physical offset, in any order. Walks over
        all of these runs, as arrays."""
        prefix = RUN if topic is None else RUN + topic_key(topic)
        for chunk, runs in records(self.view, prefix, RUN_RECORD_DTYPE):
            inside = (runs["physical_start"] <= physical_offset) & (runs["physical_end"] > physical_offset)
            for i in np.flatnonzero(inside & (runs["lineage"] == lineage)).tolist():
                queue, generation = split_run_key(chunk[i][0])
                yield run_state(queue_of(queue), generation, chunk[i][1])

    def closed_parts(self, mq: MessageQueue | None = None) -> Iterator[RunState]:
        """Closed parts of a queue or of all, by queue, generation, closing commit and offset."""
        for key, value in self.view.iterate(CLOSED if mq is None else CLOSED + queue_key(mq)):
            queue, generation = split_closed_key(key)
            yield run_state(queue_of(queue), generation, value)

    # ---- objects

    def object(self, ref: ObjectRef) -> ObjectState | None:
        """An object by reference."""
        value = self.view.get_many((object_key(ref),))[0]
        return None if value is None else unpack_object(ref, value)

    def object_at(self, path: str) -> ObjectState | None:
        """An object by its path under the broker's root."""
        value = self.view.get_many((OBJECT_PATH + path.encode(),))[0]
        return None if value is None else self.object(ObjectRef(*U8_U4.unpack(value)))

    def objects(self, behind: ObjectRef | None = None) -> Iterator[ObjectState]:
        """Every object, in the order they were added; or those added behind one. ``references == 0``: no reader needs it any
        more."""
        start = None if behind is None else OBJECT + U8_U4.pack(behind.commit_seq, behind.index + 1)
        for key, value in self.view.iterate(OBJECT, start=start):
            yield unpack_object(ObjectRef(*U8_U4.unpack_from(key, 1)), value)

    def unreferenced(self) -> Iterator[str]:
        """Paths of objects that no run lies in and that no commit named for deletion."""
        for key, value in self.view.iterate(OBJECT):
            if is_unreferenced(value):
                item = unpack_object(ObjectRef(*U8_U4.unpack_from(key, 1)), value)
                if item.path and item.retired_by is None:
                    yield item.path

    def inline_kept(self, below: int) -> Iterator[int]:
        """Commits under number ``below`` that hold data which live runs or closed parts lie in, ascending."""
        for key, value in self.view.iterate(OBJECT):
            seq = U8.unpack_from(key, 1)[0]
            if seq >= below:
                return
            if not is_unreferenced(value) and not unpack_object(ObjectRef(seq, 0), value).path:
                yield seq

    def retirements(self) -> Iterator[tuple[str, int]]:
        """Paths named for deletion and not yet deleted, ascending, with the commit that named each."""
        for key, value in self.view.iterate(RETIRED):
            yield key[1:].decode(), U8.unpack(value)[0]

    def is_retired(self, path: str) -> bool:
        """Whether a commit named this path for deletion and none says that it is gone."""
        return self.view.get_many((RETIRED + path.encode(),))[0] is not None

    def known_paths(self, prefix: str) -> Iterator[str]:
        """Paths of objects below ``prefix``, and those named for deletion, ascending by their bytes; some twice."""
        start = prefix.encode()
        found = (self.view.iterate(kind + start) for kind in (OBJECT_PATH, RETIRED))
        return merge(*((key[1:].decode() for key, _ in pairs) for pairs in found))

    def needed_paths(self, prefix: str, after: str = "", up_to: int | None = None) -> Iterator[str]:
        """Paths of objects below ``prefix`` that runs lie in, those above ``after``, ascending by their bytes. Some are looked
        up at a time, so the fold may change meanwhile: ``up_to`` leaves out what commits behind that number added."""
        kind = OBJECT_PATH + prefix.encode()
        start = max(kind, OBJECT_PATH + after.encode() + b"\0")
        while some := list(islice(self.view.iterate(kind, start=start), _WALKED_AT_ONCE)):
            items = self.view.get_many([OBJECT + value for _, value in some])
            for (key, place), value in zip(some, items, strict=True):
                if value is not None and not is_unreferenced(value):
                    ref = ObjectRef(*U8_U4.unpack(place))
                    if up_to is not None and ref.commit_seq > up_to:
                        continue
                    item = unpack_object(ref, value)
                    if item.retired_by is None:
                        yield key[1:].decode()
            start = some[-1][0] + b"\0"

    def inline_needed(self, first: int, end: int) -> Iterator[int]:
        """Numbers of the commits in [first, end) that runs lie in, ascending."""
        start = OBJECT + U8.pack(first)
        for key, value in self.view.iterate(OBJECT, start=start) if first < end else ():
            ref = ObjectRef(*U8_U4.unpack_from(key, 1))
            if ref.commit_seq >= end:
                return
            if not is_unreferenced(value) and not unpack_object(ref, value).path:
                yield ref.commit_seq

    def objects_of(self, seq: int) -> Iterator[ObjectState]:
        """Objects that commit ``seq`` added, inline data among them."""
        for key, value in self.view.iterate(OBJECT + U8.pack(seq)):
            yield unpack_object(ObjectRef(*U8_U4.unpack_from(key, 1)), value)

    def retired(self) -> Iterator[Retired]:
        """Paths named for deletion and not yet deleted."""
        for key, value in self.view.iterate(RETIRED):
            path = key[1:].decode()
            known = self.object_at(path)
            yield Retired(path, U8.unpack(value)[0], None if known is None else known.ref)

    def floors(self) -> Iterator[tuple[int, int]]:
        """Floor moves, ascending: the floor and the commit that moved it there."""
        for key, value in self.view.iterate(FLOOR):
            yield U8.unpack_from(key, 1)[0], U8.unpack(value)[0]

    # ---- gaps and marks

    def gaps(self, mq: MessageQueue | None = None) -> Iterator[GapState]:
        """Queue offsets that can never be served, of a queue or of all, by generation and offset."""
        for key, value in self.view.iterate(GAP if mq is None else GAP + queue_key(mq)):
            yield gap_state(key, value)

    def phys_gaps(self, lineage: int | None = None) -> Iterator[PhysGapState]:
        """Physical ranges lost before they could be archived, ascending."""
        for key, value in self.view.iterate(PHYS_GAP if lineage is None else lineage_key(PHYS_GAP, lineage)):
            end, reason, seq = unpack_value(value)
            yield PhysGapState(int.from_bytes(key[1:5], "big"), U8.unpack_from(key, 5)[0], end, reason, seq)

    def marks(self, lineage: int) -> Iterator[Progress]:
        """Marks of a lineage, newest first: the newest 4,096, then the last of each older commitlog file
        kept."""
        oldest = None
        for mark in self._marks(MARK, lineage):
            yield mark
            oldest = mark
        for mark in self._marks(FILE_MARK, lineage):
            if oldest is None or mark.physical_offset < oldest.physical_offset:
                yield mark

    def mark_index(self, lineage: int) -> MarkIndex:
        """Which ordinals of marks are kept."""
        value = self.view.get_many((lineage_key(LINEAGE, lineage),))[0]
        return MarkIndex() if value is None else MarkIndex(*unpack_value(value))

    def _marks(self, prefix: bytes, lineage: int) -> Iterator[Progress]:
        for _, value in self.view.iterate(lineage_key(prefix, lineage), reverse=True):
            offset, crc, crc_from = MARK_STRUCT.unpack(value)
            yield Progress(lineage, offset, crc, crc_from)


def dispatch_offsets(
    view: PointLookups, topics: Sequence[str], queue_ids: npt.NDArray[np.integer]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Queue offsets up to which messages were taken in, 0 where none is known; and which are known.

    What was taken in is in the fold, but for the flush that is on its way, whose offsets are kept beside the fold: they are no
    part of it or of its checkpoints.
    """
    ids = np.asarray(queue_ids).astype(np.int64)
    record, known = packed_table(view.get_many(prefixed(QUEUE, queue_keys(topics, ids))))
    known &= record["generation"] > 0
    offsets = np.where(known, record["max_offset"], 0)
    value = view.get_many((UNDER_WAY,))[0]
    if value is None:
        return offsets, known
    names, *columns = unpack_value(value)
    taken_topic, taken_ids, taken = (np.frombuffer(column, "<i8") for column in columns)
    at = {name: number for number, name in enumerate(names)}
    under_way = dict(
        zip(zip(taken_topic.tolist(), taken_ids.tolist(), strict=True), taken.tolist(), strict=True)
    )
    for row, (topic, queue_id) in enumerate(zip(topics, ids.tolist(), strict=True)):
        end = under_way.get((at.get(topic, -1), queue_id))
        if end is not None:
            offsets[row], known[row] = max(end, int(offsets[row])), True
    return offsets, known


def dispatch_pairs(
    topics: Sequence[str], queue_ids: npt.NDArray[np.integer], offsets: npt.NDArray[np.integer]
) -> list[tuple[bytes, bytes]]:
    """What ``MetadataStore.put_many`` keeps of a flush before it is proven, for ``dispatch_offsets``; in the place of what was
    kept of the one before."""
    number = {topic: at for at, topic in enumerate(dict.fromkeys(topics))}
    numbers = np.fromiter(map(number.__getitem__, topics), "<i8", len(topics))
    columns = [np.asarray(column).astype("<i8").tobytes() for column in (numbers, queue_ids, offsets)]
    return [(UNDER_WAY, pack_value([list(number), *columns]))]
