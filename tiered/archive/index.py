"""Look-up by key and by message id over the live runs of the fold. Hashes narrow, the record itself decides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tiered.archive.entities import RunState
from tiered.archive.flatfile import FlatMessageFile
from tiered.archive.objects import ObjectReader
from tiered.archive.state import ArchiveState
from tiered.codec.columns import key_hash
from tiered.codec.message import Message, decode_message
from tiered.errors import NotFound
from tiered.model import MessageQueue, ObjectRef, PhysicalOffset, QueueOffset


@dataclass(frozen=True, slots=True)
class Located:
    """A message and where it lies in its queue."""

    queue: MessageQueue
    queue_offset: QueueOffset
    record: bytes
    message: Message


def _at(state: ArchiveState, objects: ObjectReader, queue: MessageQueue, offset: int) -> Located | None:
    for stretch in FlatMessageFile(state, objects, queue).read(offset, 1):
        record = bytes(stretch.record(0))
        return Located(queue, QueueOffset(int(stretch.queue_offsets[0])), record, decode_message(record))
    return None


def query_key(
    state: ArchiveState, objects: ObjectReader, topic: str, key: str, *, unique: bool
) -> Iterator[Located]:
    """Messages of ``topic`` with ``key`` among their KEYS (``unique``: as their UNIQ_KEY), by queue and offset.

    The object's filter and hash index narrow; each candidate's own properties are compared, so collisions never leak.
    """
    wanted = key_hash(topic, key)
    for state_of_queue in state.queues(topic):
        queue = state_of_queue.queue
        if state_of_queue.generation is None:
            continue
        looked_at: dict[ObjectRef, list[int]] = {}
        for run in state.runs(queue, state_of_queue.generation):
            if run.object not in looked_at:
                looked_at[run.object] = _offsets_in(state, objects, run, queue, wanted)
            for offset in looked_at[run.object]:
                if run.start <= offset < run.end:
                    found = _at(state, objects, queue, offset)
                    if found is not None and _has_key(found.message, key, unique=unique):
                        yield found


def _offsets_in(
    state: ArchiveState, objects: ObjectReader, run: RunState, queue: MessageQueue, wanted: int
) -> list[int]:
    """Queue offsets that an object's index gives for a hash, in the run's queue and generation; ascending."""
    item = state.object(run.object)
    if item is None:
        return []
    entries = objects.key_entries(item, wanted)
    if not len(entries):
        return []
    directory = objects.directory(item)
    runs = directory.runs[entries["run"]]
    mine = (runs["queue_id"] == queue.queue_id) & (runs["generation"] == run.generation)
    if queue.topic not in directory.topics:
        return []
    mine &= runs["topic"] == directory.topics.index(queue.topic)
    return sorted(set(entries["queue_offset"][mine].tolist()))


def _has_key(message: Message, key: str, *, unique: bool) -> bool:
    return message.unique_key == key if unique else key in message.keys


def find_physical(
    state: ArchiveState, objects: ObjectReader, offset: PhysicalOffset, lineage: int
) -> Located:
    """The live record of ``lineage`` that begins at a physical offset; ``NotFound`` if there is none."""
    for run in state.runs_all():
        if run.lineage != lineage or not run.physical_start <= offset < run.physical_end:
            continue
        item = state.object(run.object)
        if item is None:
            continue
        columns = objects.columns(item, ("physical_offset", "queue_offsets"), run.first_row, run.rows)
        rows = np.flatnonzero(columns["physical_offset"] == offset)
        if not len(rows):
            continue
        owned = columns["queue_offsets"].astype(np.int64)
        queue_offset = run.first_queue_offset + int(owned[: rows[0]].sum())
        if run.start <= queue_offset < run.end:
            found = _at(state, objects, run.queue, queue_offset)
            if found is not None and found.message.physical_offset == offset:
                return found
    raise NotFound(
        "no archived message begins at this physical offset",
        hint="the id may be of another broker, or the record not archived yet: see tiered status",
        physical_offset=offset,
    )
