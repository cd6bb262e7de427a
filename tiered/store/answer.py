"""What a read of a queue is answered: RocketMQ's status table, decided on a frozen view; no I/O.

    no such queue archived            NO_MATCHED_LOGIC_QUEUE   next = asked
    nothing ever in it                NO_MESSAGE_IN_QUEUE      next = asked
    offset < min                      OFFSET_TOO_SMALL         next = min
    offset = max                      OFFSET_OVERFLOW_ONE      next = max
    offset > max                      OFFSET_OVERFLOW_BADLY    next = max
    offset in a hole (recorded gap)   OFFSET_FOUND_NULL        next = behind the hole
    something found                   FOUND                    next = last examined + 1, never behind a hole
    the filter took none              NO_MATCHED_MESSAGE       next = last examined + 1, never behind a hole
    asked for no message at all       OFFSET_FOUND_NULL        next = asked

A hole is never stepped over silently: an answer ends where it begins, and a read that begins in it says so. RocketMQ answers
OFFSET_FOUND_NULL with the position behind a consume queue file that is not there, and clients go on from there; so here. Where
RocketMQ turns an error of its back end into OFFSET_FOUND_NULL, an error is raised: the gateway tells consumers to
retry.
"""

from __future__ import annotations

from msgspec import Struct, structs

from tiered.archive.read.view import ever_archived
from tiered.archive.state.view import ArchiveState
from tiered.fetch.base import FetchedRecords
from tiered.fetch.pull import Pull
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue, QueueOffset

NOWHERE = QueueOffset(0)


class ReadPlace(Struct, frozen=True):
    """Where a read goes on: the queue's current generation, its bounds, and ``stop``, the next hole's start or the end."""

    queue: MessageQueue
    generation: int
    offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    stop: QueueOffset


def decide(state: ArchiveState, pull: Pull) -> GetMessageResult | ReadPlace:
    """The answer that needs no record, or where the records are."""
    offset, asked = pull.offset, QueueOffset(pull.offset)
    found = ever_archived(state, pull.queue)
    if found is None or found.generation is None:
        never = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
        status = never if found is None else GetMessageStatus.NO_MESSAGE_IN_QUEUE
        return GetMessageResult(status, asked, NOWHERE, NOWHERE)
    low, high = QueueOffset(found.min_offset), QueueOffset(found.max_offset)

    def answered(status: GetMessageStatus, following: int) -> GetMessageResult:
        return GetMessageResult(status, QueueOffset(following), low, high)

    if high <= 0:
        return answered(GetMessageStatus.NO_MESSAGE_IN_QUEUE, offset)
    if offset < low:
        return answered(GetMessageStatus.OFFSET_TOO_SMALL, low)
    if offset == high:
        return answered(GetMessageStatus.OFFSET_OVERFLOW_ONE, high)
    if offset > high:
        return answered(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high)
    if pull.max_count < 1:
        return answered(GetMessageStatus.OFFSET_FOUND_NULL, offset)
    stop = high
    for gap in state.gaps(found.queue):
        if gap.generation != found.generation or gap.end <= offset:
            continue
        if gap.start <= offset:
            return answered(GetMessageStatus.OFFSET_FOUND_NULL, min(gap.end, high))
        stop = QueueOffset(min(gap.start, high))
        break
    return ReadPlace(found.queue, found.generation, asked, low, high, stop)


ELSEWHERE = frozenset(
    {
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
        GetMessageStatus.NO_MESSAGE_IN_QUEUE,
        GetMessageStatus.OFFSET_TOO_SMALL,
        GetMessageStatus.OFFSET_OVERFLOW_ONE,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
    }
)
"""Answers that a newer commit could change: they are given only after a look at the log."""


def finish(place: ReadPlace, fetched: FetchedRecords) -> GetMessageResult:
    """The answer with records, cut where a hole begins."""
    result = GetMessageResult(
        GetMessageStatus.FOUND, fetched.next_offset, place.min_offset, place.max_offset,
        fetched.records, fetched.queue_offsets,
    )  # fmt: skip
    if fetched.next_offset > place.stop:
        kept = sum(1 for o in fetched.queue_offsets if o < place.stop)
        result = structs.replace(
            result,
            next_begin_offset=place.stop,
            records=fetched.records[:kept],
            queue_offsets=fetched.queue_offsets[:kept],
        )
    if result.records:
        return result
    moved = result.next_begin_offset > place.offset
    return structs.replace(
        result,
        status=GetMessageStatus.NO_MATCHED_MESSAGE if moved else GetMessageStatus.OFFSET_FOUND_NULL,
    )
