"""From records in log order to segments by queue: one stable sort, then arrays.

A *segment* is a stretch of one queue's records, inside one flush, whose queue offsets follow each other. The first segment of
a queue starts where the archive's fold ends, or a gap or a new generation says otherwise; further segments of the same
queue exist only when offsets jump inside the flush.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.state.view import ArchiveState
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION
from tiered.codec.record.properties import PropertyColumns
from tiered.codec.types import Ints
from tiered.model import OFF_QUEUE_TOPIC

CountsInner = Callable[[str, int], bool]
"""Whether the broker numbers a queue (topic, queue id) by the messages that its inner batches hold."""


@dataclass(frozen=True, slots=True)
class Routed:
    """Rows of a batch by queue.

    ``order``: batch row of each sorted position. ``group``: queue number of each sorted position (ascending).
    ``group_start``: first sorted position of each queue, one more entry at the end. ``topics``/``queue_ids``: one per queue.
    ``off_queue``: number of the queue that takes prepared and rollback records, or ``None``. ``excluded``: rows left out.
    """

    order: Ints
    group: Ints
    group_start: Ints
    topics: tuple[str, ...]
    queue_ids: Ints
    off_queue: int | None
    excluded: int


def route(batch: MessageBatch, excluded: Callable[[str], bool]) -> Routed:
    """Sort the rows by (topic, queue id), keeping log order inside a queue; topics by name, as the fold's map is ordered.

    ``excluded`` is asked once per distinct topic. Prepared and rollback records (by sysFlag) go to the off-queue queue.
    """
    headers = batch.headers
    ranks = _ranks(batch.topics)
    topic = ranks[headers["topic_index"]]
    queue_id = headers["queue_id"].astype(np.int64)
    kind = headers["sys_flag"] & SYS_TRANSACTION
    off = (kind == SYS_PREPARED) | (kind == SYS_ROLLBACK)
    names = [*sorted(batch.topics), OFF_QUEUE_TOPIC]
    left_out = np.fromiter(map(excluded, names[:-1]), dtype=bool, count=len(batch.topics))
    kept = np.flatnonzero(~left_out[topic]) if left_out.any() else None
    topic = np.where(off, len(batch.topics), topic)
    queue_id = np.where(off, 0, queue_id)
    key = (topic << 32) | (queue_id & 0xFFFFFFFF)
    if kept is not None:
        order = kept[np.argsort(key[kept], kind="stable")]
    else:
        order = np.argsort(key, kind="stable")
    ordered = key[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(order) else order
    group = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(order))))
    lead = order[first]
    topics = tuple(map(names.__getitem__, topic[lead].tolist()))
    off_queue = topics.index(OFF_QUEUE_TOPIC) if off.any() and OFF_QUEUE_TOPIC in topics else None
    return Routed(
        order=order,
        group=group,
        group_start=np.append(first, len(order)).astype(np.int64),
        topics=topics,
        queue_ids=queue_id[lead],
        off_queue=off_queue,
        excluded=len(headers) - len(order),
    )


def _ranks(topics: Sequence[str]) -> Ints:
    """Place of each topic among all of them, by name."""
    ranks = np.empty(len(topics), dtype=np.int64)
    ranks[sorted(range(len(topics)), key=topics.__getitem__)] = np.arange(len(topics))
    return ranks


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """What the fold knows of each queue of a flush, in ``Routed`` order.

    ``present``: the queue has a current generation in this lineage. ``generation``/``max_offset``/``flat_end`` are of that
    generation; ``highest_generation`` is the highest number ever used, for a queue that is not
    known that of all forgotten ones (DESIGN.md, "Queues that are gone").
    """

    present: npt.NDArray[np.bool_]
    generation: Ints
    max_offset: Ints
    flat_end: Ints
    highest_generation: Ints


def unknown_ends(queues: int) -> QueueEnds:
    """Ends of queues nobody asked the fold for: enough to find where the cuts are."""
    zeros = np.zeros(queues, dtype=np.int64)
    return QueueEnds(np.zeros(queues, dtype=bool), zeros, zeros, zeros, zeros)


def queue_ends(state: ArchiveState, routed: Routed, lineage: int) -> QueueEnds:
    """What the planned fold knows of the queues of a flush."""
    table, present = state.queue_table(routed.topics, routed.queue_ids)
    head = None if present.all() else state.head()
    return ends_of(table, present, lineage, 0 if head is None else head.forgotten.generation)


def ends_of(
    table: npt.NDArray[np.void], present: npt.NDArray[np.bool_], lineage: int, forgotten: int = 0
) -> QueueEnds:
    """The same from the queues' records; ``present``: which are known; ``forgotten``: the highest generation that any queue had
    that is not."""
    same = present & (table["lineage"] == lineage) & (table["generation"] > 0)
    return QueueEnds(
        present=same,
        generation=table["generation"].astype(np.int64),
        max_offset=table["max_offset"].astype(np.int64),
        flat_end=table["flat_end"].astype(np.int64),
        highest_generation=np.where(present, table["highest_generation"], forgotten).astype(np.int64),
    )


@dataclass(frozen=True, slots=True)
class Segments:
    """Stretches of contiguous queue offsets, in sorted order.

    ``start``: first sorted position of each, one more entry at the end. ``group``, ``generation``: one per segment.
    ``is_new``: the segment begins a generation. ``gap_start``: where the missing queue offsets begin, or the segment's own
    first offset when none are missing. ``ordinal``: its number among its queue's segments.
    """

    start: Ints
    group: Ints
    generation: Ints
    is_new: npt.NDArray[np.bool_]
    gap_start: Ints
    first_offset: Ints
    ordinal: Ints


@dataclass(frozen=True, slots=True)
class RowOffsets:
    """Queue offset and number of queue offsets owned, of each sorted position."""

    queue_offset: Ints
    owned: Ints


def row_offsets(
    batch: MessageBatch, properties: PropertyColumns, routed: Routed, counts_inner: CountsInner
) -> RowOffsets:
    """Queue offsets in sorted order; the off-queue queue's are numbered from 0 until ``renumbered``.

    ``counts_inner`` is asked of inner batches where the record behind them does not tell.
    """
    offset = batch.headers["queue_offset"][routed.order].astype(np.int64)
    owned = properties.queue_offsets[routed.order].astype(np.int64)
    if routed.off_queue is not None:
        lo, hi = routed.group_start[routed.off_queue : routed.off_queue + 2].tolist()
        offset[lo:hi] = np.arange(hi - lo)
        owned[lo:hi] = 1
    _correct_inner(offset, owned, routed, counts_inner)
    return RowOffsets(offset, np.maximum(owned, 1))


def _correct_inner(offset: Ints, owned: Ints, routed: Routed, counts_inner: CountsInner) -> None:
    """Believe a record that it is an inner batch of many only where the broker numbered its queue so.

    Any producer can set the bit. The next record of the queue tells by its own offset; if it does not, the broker's files must.
    """
    rows = np.flatnonzero(owned > 1)
    if not len(rows):
        return
    has_next = rows + 1 < routed.group_start[routed.group[rows] + 1]
    steps = np.where(has_next, offset[np.minimum(rows + 1, len(offset) - 1)] - offset[rows], 0)
    unsure = (steps != 1) & (steps != owned[rows])
    owned[rows[steps == 1]] = 1
    for group in np.unique(routed.group[rows[unsure]]).tolist():
        if not counts_inner(routed.topics[group], int(routed.queue_ids[group])):
            owned[rows[unsure & (routed.group[rows] == group)]] = 1


def renumbered(offsets: RowOffsets, routed: Routed, ends: QueueEnds) -> RowOffsets:
    """``row_offsets`` with those of the off-queue queue numbered on from its end."""
    if routed.off_queue is None or not ends.present[routed.off_queue]:
        return offsets
    lo, hi = routed.group_start[routed.off_queue : routed.off_queue + 2].tolist()
    offset = offsets.queue_offset.copy()
    offset[lo:hi] += int(ends.max_offset[routed.off_queue])
    return RowOffsets(offset, offsets.owned)


def cut_segments(routed: Routed, offsets: RowOffsets, ends: QueueEnds) -> Segments:
    """Cut every queue's rows where offsets do not follow each other; decide gap or new generation for each cut.

    An offset above what is expected leaves a gap; one below it means that the queue began again: a new generation. Where the
    cuts are depends on the rows alone (``start``, ``group``, ``first_offset``, ``ordinal``); the rest on the fold's ``ends``.
    """
    group, first = routed.group, routed.group_start[:-1]
    offset = offsets.queue_offset
    expected = np.empty_like(offset)
    expected[1:] = offset[:-1] + offsets.owned[:-1]
    expected[first] = np.where(ends.present, ends.max_offset, -1)
    is_first = np.zeros(len(offset), dtype=bool)
    is_first[first] = True
    cut = np.flatnonzero(is_first | (offset != expected))
    lead_offset, lead_expected, lead_group = offset[cut], expected[cut], group[cut]
    unseen = is_first[cut] & ~ends.present[lead_group]
    is_new = unseen | (lead_offset < lead_expected)
    gap_start = np.where(is_new, lead_offset, lead_expected)
    segment_first = np.flatnonzero(is_first[cut])
    ordinal = np.arange(len(cut)) - np.repeat(segment_first, np.diff(np.append(segment_first, len(cut))))
    restarts = np.cumsum(is_new)
    before: Ints = restarts[segment_first] - is_new[segment_first]
    within: Ints = restarts - np.repeat(before, np.diff(np.append(segment_first, len(cut))))
    generation = np.where(
        within == 0, ends.generation[lead_group], ends.highest_generation[lead_group] + within
    )
    return Segments(
        start=np.append(cut, len(offset)).astype(np.int64),
        group=lead_group.astype(np.int64),
        generation=generation.astype(np.int64),
        is_new=is_new,
        gap_start=gap_start.astype(np.int64),
        first_offset=lead_offset.astype(np.int64),
        ordinal=ordinal.astype(np.int64),
    )
