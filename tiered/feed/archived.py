"""What the broker no longer has: followed topics, queue by queue, as the archive holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

import numpy as np

from tiered.archive.read.flatfile import FlatMessageFile, Stretch
from tiered.archive.read.view import View
from tiered.archive.state.listing import list_queues
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, NotFound
from tiered.feed.base import FeedBatch, FeedPosition, Follow, Passed
from tiered.feed.inorder import MAX_QUEUES, LogOrder, LogReading
from tiered.feed.runsahead import QueueToRead, in_turn
from tiered.model import MessageQueue, PhysicalOffset, Progress


class FollowedArchive(Protocol):
    """An archive that is looked at anew (``ArchiveReader``)."""

    def at(self) -> View: ...

    def follow(self) -> View: ...


class ArchivedFeed:
    """Messages of all queues of topics that begin with ``prefix``, and of these that are ``wanted``, from where their follower
    is up to the head of the archive.

    ``following`` tells how far it is; asked once, when a queue is begun, or some runs before: so many of them as ``ahead`` says
    are read before they are wanted (``runsahead``).
    """

    def __init__(
        self,
        archive: FollowedArchive,
        prefix: str,
        following: Callable[[MessageQueue], Follow],
        wanted: Callable[[str], bool] = lambda topic: True,
        ahead: int = 1,
        *,
        in_order: LogOrder | None = None,
    ) -> None:
        """``in_order``: messages of all queues come in the broker's order, not queue by queue, within these bounds."""
        self._archive = archive
        self._prefix = prefix
        self._following = following
        self._wanted = wanted
        self._ahead = ahead
        self._in_order = in_order
        self._view: View | None = None

    def progress(self) -> Progress | None:
        """Up to where the log of the broker that is there now is archived. A look at the archive. ``NotFound`` without one."""
        return self._look().progress()

    def through(self) -> Iterator[FeedBatch]:
        """Everything up to the head as it was looked at last; the last batch has the position behind it."""
        view = self._view or self._look()
        yield from (
            self._one_by_one(view) if self._in_order is None else self._side_by_side(view, self._in_order)
        )
        yield FeedBatch(NOTHING, FeedPosition(reached(view.progress())))

    def _side_by_side(self, view: View, order: LogOrder) -> Iterator[FeedBatch]:
        queues = list(islice(self._queues(view), MAX_QUEUES + 1))
        reading = LogReading(queues, order, self._ahead)
        for queue in queues:
            if queue.anew:
                yield FeedBatch(NOTHING, FeedPosition(), queue.file.queue)
        for data, frames in reading.through():
            yield FeedBatch(_messages(data, frames), FeedPosition(), None, _MISSING)
        for head in reading.heads:
            if head.next < head.queue.file.max_offset:
                yield _ended(head.queue, head.next, None)

    def _one_by_one(self, view: View) -> Iterator[FeedBatch]:
        expected: int | None = None
        for (queue, run), stretches in in_turn(self._queues(view), self._ahead):
            if expected is None:
                anew, expected = queue.file.queue if queue.anew else None, queue.first
            for stretch in stretches:
                offset = int(stretch.queue_offsets[0])
                lost = None if offset <= expected else _lost(expected, offset)
                yield FeedBatch(stretch_messages(stretch), FeedPosition(), anew, lost)
                anew, expected = None, int(stretch.next_offset)
            if run is None:
                if expected < queue.file.max_offset:
                    yield _ended(queue, expected, anew)
                expected = None

    def look(self) -> PhysicalOffset:
        """Up to where it reaches; 0 for a broker whose archive may not be there yet."""
        try:
            return reached(self.progress())
        except NotFound:
            return PhysicalOffset(0)

    def _look(self) -> View:
        self._view = self._archive.at() if self._view is None else self._archive.follow()
        return self._view

    def _queues(self, view: View) -> Iterator[QueueToRead]:
        for listed in list_queues(view.state.view, prefix=self._prefix):
            if listed.queue.generation is not None and self._wanted(listed.queue.queue.topic):
                file = FlatMessageFile(view.state, view.objects, listed.queue.queue)
                follow = self._following(listed.queue.queue)
                yield QueueToRead(file, follow, self._began_anew(file, follow))

    def _began_anew(self, file: FlatMessageFile, follow: Follow) -> bool:
        """Whether the archive's queue is another than the one that was followed: its topic was deleted and made again, or the
        broker lost the end of its log."""
        if follow.next == 0:
            return False
        if follow.next > file.max_offset:
            return True  # the archive reaches as far as the log was followed, and has fewer
        if follow.physical is None or follow.next - 1 < file.min_offset:
            return False
        stretch = next(iter(file.read(follow.next - 1, 1)), None)
        if stretch is None:
            return False
        last = stretch_messages(stretch).headers[-1]
        other_time = follow.stored_ms is not None and int(last["store_timestamp"]) != follow.stored_ms
        return other_time or int(last["physical_offset"]) != follow.physical


def reached(progress: Progress | None) -> PhysicalOffset:
    """The place in the log up to which it is archived."""
    return PhysicalOffset(0 if progress is None else progress.physical_offset)


def _ended(queue: QueueToRead, expected: int, anew: MessageQueue | None) -> FeedBatch:
    """Of a queue whose last messages are not there."""
    end = int(queue.file.max_offset)
    return FeedBatch(NOTHING, FeedPosition(), anew, _lost(expected, end), Passed(queue.file.queue, end))


def _lost(first: int, end: int) -> str:
    return f"offsets {first} to {end - 1} are {_MISSING}"


_MISSING = "in no archive: trimmed by retention, or a recorded gap"


def stretch_messages(stretch: Stretch) -> MessageBatch:
    """Records as they were stored; the archive's own checksums have proven the block."""
    return _messages(stretch.data, Frames(stretch.starts, stretch.sizes, len(stretch.data), Stop.END))


def _messages(data: Buffer, frames: Frames) -> MessageBatch:
    good, messages = verify_headers(data, frames, None)
    if len(good) != len(frames):
        raise Corrupt("an archived record is not what its checksum says", found=good.detail)
    return messages


_NO_FRAMES = Frames(np.empty(0, np.int64), np.empty(0, np.int64), 0, Stop.END)
NOTHING = verify_headers(b"", _NO_FRAMES, None)[1]
