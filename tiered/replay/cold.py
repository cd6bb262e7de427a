"""Reads what is owed from the archive: the next messages of a debt, as requests.

A debt is owed messages of one generation of its queue, the one that the archive showed when it was first read for it. When the
topic was deleted and made again since, the same offsets are other messages: the rest of the debt is a hole then.
"""

from __future__ import annotations

from dataclasses import dataclass

from tiered.broker.client import Request
from tiered.errors import NotFound
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.base import RowFilter
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue
from tiered.replay.base import Debt, GroupQueue
from tiered.replay.records import request_for
from tiered.store import MessageStore

_NOT_YET = frozenset(
    {
        GetMessageStatus.OFFSET_OVERFLOW_ONE,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
        GetMessageStatus.NO_MESSAGE_IN_QUEUE,
    }
)


@dataclass(slots=True)
class Batch:
    """Messages of one read: offsets and requests; up to ``end`` everything is one of them, filtered, or a hole. ``lost``: why
    there are holes."""

    items: list[tuple[int, Request | None]]
    end: int
    generation: int | None
    holes: tuple[tuple[int, int], ...] = ()
    lost: str = "owed messages are in no archive: they are lost to the group"


def read_debt(
    store: MessageStore, debt: Debt, topic: str, count: int, size: int, row_filter: RowFilter | None
) -> Batch:
    """The next messages of a debt for the retry topic ``topic``, at most ``count`` and ``size`` bytes.

    ``NotFound`` while the archive does not have them yet.
    """
    queue = debt.queue
    if debt.generation is None:
        store.follow()  # an old view could show an old generation
    generation = _generation(store, queue)
    if debt.generation is not None and generation not in (None, debt.generation):
        return Batch(
            [], debt.end, debt.generation, holes=((debt.drained, debt.end),),
            lost="the topic was deleted and created again: the rest of the old one is lost to the group",
        )  # fmt: skip
    reader = ReaderId(queue.group)
    found = store.get_message(
        Pull(reader, queue.topic, queue.queue_id, debt.drained, count, size, row_filter)
    )
    if _generation(store, queue) != generation:
        raise NotFound(
            "the archive's queue began or was made anew while it was being read", queue=str(queue),
            hint="it will be read again automatically",
        )  # fmt: skip
    return _batch(debt, found, topic, generation)


def _batch(debt: Debt, found: GetMessageResult, topic: str, generation: int | None) -> Batch:
    end = min(found.next_begin_offset, debt.end)
    if found.status in _NOT_YET or end <= debt.drained:
        raise NotFound(
            "the owed messages are not archived yet", queue=str(debt.queue), offset=debt.drained,
            hint="check whether source.exclude_topics excludes the topic; otherwise they are sent as soon as they are archived",
        )  # fmt: skip
    if found.status in (GetMessageStatus.OFFSET_FOUND_NULL, GetMessageStatus.OFFSET_TOO_SMALL):
        return Batch([], end, generation, holes=((debt.drained, end),))
    items = [
        (int(offset), request_for(record, debt.queue.group, topic))
        for offset, record in zip(found.queue_offsets, found.records, strict=True)
        if offset < debt.end
    ]
    return Batch(items, end, generation)


def _generation(store: MessageStore, queue: GroupQueue) -> int | None:
    """Of a queue as the archive has it; ``None`` if it has none."""
    found = store.loaded(MessageQueue(queue.topic, queue.queue_id))
    return None if found is None else found.generation
