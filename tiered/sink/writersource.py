"""Where the writer's sinks take their messages from: its own fold and archive, and the commitlog beside it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tiered.archive.log.writer import CommitLog
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.view import View
from tiered.archive.state.listing import list_queues
from tiered.archive.state.view import ArchiveState
from tiered.feed.archived import ArchivedFeed
from tiered.feed.base import FeedPosition, Follow, MessageFeed
from tiered.feed.inorder import LogOrder
from tiered.feed.joined import JoinedFeed
from tiered.feed.live import FollowedLog, LiveFeed
from tiered.filter.topicpolicy import TopicPolicy
from tiered.model import OFF_QUEUE_TOPIC, MessageQueue
from tiered.sink.choosing import Chooser
from tiered.sink.proven import ProvenLog
from tiered.sink.source import SinkSource


class WriterArchive:
    """``FollowedArchive`` of the one writer: what it has proven is looked at without a request."""

    def __init__(self, log: CommitLog, objects: ObjectReader) -> None:
        self._log = log
        self._objects = objects

    def at(self) -> View:
        """Everything proven by now, and stays."""
        state = self._log.frozen()
        return View(state.head(), state, self._objects, self._log.reader)

    def follow(self) -> View:
        """The same again."""
        return self.at()


def writer_source(
    log: CommitLog,
    objects: ObjectReader,
    tail: FollowedLog,
    policy: TopicPolicy,
    *,
    batch_bytes: int,
    ahead: bool,
    runs_ahead: int = 1,
    in_order_bytes: int,
) -> SinkSource:
    """Of a sink that has ``tail`` for itself. ``ahead``: what the broker confirmed, archived or not. ``runs_ahead``: short runs
    of the archive that are read at once. ``in_order_bytes``: held of the archive where the order is the whole log's."""

    def proven() -> int:
        head = log.proven().head()
        reached = None if head is None else head.progress.get(head.lineage)
        return 0 if reached is None else reached.physical_offset

    def feed(position: FeedPosition, chooser: Chooser, in_order: bool) -> MessageFeed:
        live = LiveFeed(tail if ahead else ProvenLog(tail, proven), chooser.wanted, batch_bytes)
        order = LogOrder(in_order_bytes, batch_bytes) if in_order else None
        archived = ArchivedFeed(
            WriterArchive(log, objects), "", chooser.following, chooser.wanted, runs_ahead, in_order=order
        )
        return JoinedFeed(live, archived, position)

    def system(topic: str) -> bool:
        return topic == OFF_QUEUE_TOPIC or policy.is_system(topic)

    def backlog(chooser: Chooser) -> int:
        return _backlog(log.frozen(), chooser)

    return SinkSource(log.frozen, feed, system, backlog, since, tail.counts_inner, ahead)


def since(state: ArchiveState, takes: Callable[[str], bool], time_ms: int) -> dict[MessageQueue, Follow]:
    """Where the messages of a time begin, or some before it: the fold knows the times of runs, not of what lies in them."""
    found = {}
    for listed in list_queues(state.view):
        queue = listed.queue
        if queue.generation is None or not takes(queue.queue.topic):
            continue
        runs = state.run_table(queue.queue, queue.generation)
        late = np.flatnonzero(runs["max_store_time"] >= time_ms)
        found[queue.queue] = Follow(int(runs["start"][late[0]]) if len(late) else queue.max_offset)
    return found


def _backlog(state: ArchiveState, chooser: Chooser) -> int:
    """How many messages the archive has that are still to be given."""
    waiting = 0
    for listed in list_queues(state.view):
        queue = listed.queue
        if queue.generation is not None and chooser.wanted(queue.queue.topic):
            reached = chooser.follows.get(queue.queue, Follow()).next
            waiting += max(0, queue.max_offset - max(reached, queue.min_offset))
    return waiting
