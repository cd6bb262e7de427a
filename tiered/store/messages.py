"""``MessageStore``: reads of one archive with RocketMQ's own answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack

from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.litefile import LiteQueueFile, known_lite, readable_lite
from tiered.archive.read.litelookup import locate_in, query_in
from tiered.archive.read.lookup import (
    KeyLookup,
    Located,
    newest_in_log,
    newest_physical,
)
from tiered.archive.read.view import View
from tiered.archive.state.listing import TopicState, list_topics
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.archive.state.sinklisting import ListedSink, list_sinks
from tiered.archive.state.values import QueueState
from tiered.clock import Clock
from tiered.errors import TieredError
from tiered.fetch.allowance import Shares
from tiered.fetch.base import ReaderId
from tiered.fetch.expiry import GroupExpiry
from tiered.fetch.fetcher import Fetcher
from tiered.fetch.pull import Pull
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metrics import Metrics
from tiered.model import (
    ArchiveCommit,
    BoundaryType,
    CompactedPage,
    GetMessageResult,
    MessageQueue,
    Past,
    PhysicalOffset,
    Progress,
    QueueOffset,
)
from tiered.settings import Settings, Tenants
from tiered.store.base import StoreOfMessages
from tiered.store.compacted import CompactedMessages
from tiered.store.compactedpages import CompactedPages
from tiered.store.follower import Follower, is_away
from tiered.store.opening import open_follower
from tiered.store.puller import Puller
from tiered.store.timeindex import LocalTimes

SHARED = frozenset({"gateway", "serve"})
"""Reader processes in which the budgets of tenants count."""

FRESH_SECONDS = 6.0
"""What is known of the log is good for this long for answers that newer commits could make wrong, not just longer."""


class MessageStore(StoreOfMessages):
    """The archive of one broker, for reading. Thread-safe. Make one with ``open``.

    Offsets are queue offsets, times ms since 1970, ranges half-open. Every method may raise ``Unavailable`` (the object store
    cannot be asked, or the archive was never opened) and ``Corrupt`` (with key and position: damaged bytes are never served).
    """

    def __init__(
        self,
        settings: Settings,
        follower: Follower,
        pool: Executor,
        clock: Clock,
        metrics: Metrics,
        *,
        shared: bool = False,
    ) -> None:
        """``shared``: by tenants, whose budgets count."""
        source, fetch = settings.source, settings.fetch
        self._follower = follower
        self._topics = TopicPolicy(cluster=source.cluster, broker=source.broker)
        self._clock = clock
        self._settings = settings
        self._times: LocalTimes | None = None
        self._expiry = GroupExpiry.of(fetch)
        self.shares = Shares(settings.tenants if shared else Tenants(), clock)
        """What each tenant has had of the store since the start."""
        self._compacted_pages = CompactedPages(follower, clock, memory_bytes=fetch.compact_bytes)

        def fetcher(view: View) -> Fetcher:
            return Fetcher(
                follower.reader.provider,
                view.objects,
                fetch,
                clock,
                pool=pool,
                metrics=metrics,
                expiry=self._expiry,
                shares=self.shares,
            )

        self._puller = Puller(follower, fetcher, metrics)

    @classmethod
    def open(
        cls,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        *,
        stack: ExitStack,
        name: str | None = None,
        wait_for_archive: bool = False,
        progress: Callable[[int], None] | None = None,
        as_of: Past | None = None,
        scope: Scope = EVERYTHING,
    ) -> MessageStore:
        """Open provider, fold, fetcher and pools; ``stack`` closes them.

        ``name`` is that of a reader process that stays ("gateway"): what is asked for is loaded, until that are more than a few
        queues, or all of them; then it has a copy of the fold on disk that follows (``fetch.fold_directory``). Without a name,
        what is asked for is loaded, and of later commits what concerns ``scope``.
        ``wait_for_archive``: an archive that is away or not there yet is not an error now; every read is then ``Unavailable``
        until a ``follow`` finds it. ``progress`` hears the number of each commit folded. ``as_of``: the archive as it was then.

        Raises ``Invalid`` (no ``archive.url``, or one that makes no sense), ``NotFound`` (no archive of this broker; the error
        names those that are there), ``Refused`` (a foreign or a newer archive), ``Unavailable``, ``Corrupt``.
        """
        give_up = threading.Event()
        follower = open_follower(
            stack, settings, clock, metrics,
            give_up=give_up, name=name, progress=progress, as_of=as_of, scope=scope,
        )  # fmt: skip
        pool = ThreadPoolExecutor(settings.fetch.threads, "fetch")
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        made = cls(settings, follower, pool, clock, metrics, shared=name in SHARED)
        stack.callback(made.close)
        stack.callback(give_up.set)
        try:
            follower.open()
        except TieredError as error:
            if not (wait_for_archive and is_away(error)):
                raise
        return made

    # ---- messages

    def get_message(self, pull: Pull) -> GetMessageResult:
        """Records of a queue, or why there are none: the table of ``tiered.store.answer``."""
        return self._puller.get(pull)

    def get_message_at_once(self, pull: Pull) -> GetMessageResult | None:
        """``get_message`` of what goes on inside of a block in memory; ``None``: ask another way. Never waits."""
        return self._puller.at_once(pull)

    def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
        """``get_message`` without waiting; errors, too, come through the future. Its callbacks run in threads of the pools."""
        return self._puller.get_async(pull)

    def observe(self, reader: ReaderId, topic: str, queue_id: int, offset: int) -> None:
        """``reader`` committed ``offset``, wherever it read: for what the cache keeps."""
        self._expiry.heard(reader, MessageQueue(topic, queue_id), offset, self._clock.monotonic())

    def alive(self, reader: ReaderId) -> None:
        """A heartbeat of ``reader``: it will read on, although it does not now."""
        self._expiry.alive(reader, self._clock.monotonic())

    def forget(self, reader: ReaderId) -> None:
        """``reader`` said good-bye."""
        self._expiry.forget(reader)

    def compacted(
        self, topic: str, queue_id: int, progress: Callable[[int], None] | None = None
    ) -> CompactedMessages:
        """The newest message of each key of a queue. ``progress`` hears how many of its offsets were read."""
        heard = {} if progress is None else {"progress": progress}
        memory_bytes = self._settings.fetch.compact_bytes
        queue = MessageQueue(topic, queue_id)
        return CompactedMessages(self._follower, queue, memory_bytes=memory_bytes, **heard)

    def compacted_page(self, topic: str, queue_id: int, offset: int | None, count: int) -> CompactedPage:
        """See ``CompactedPages.page``."""
        return self._compacted_pages.page(MessageQueue(topic, queue_id), offset, count)

    # ---- offsets and times

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """The first readable offset; ``None`` for a queue that is not archived."""
        found = self._queue(topic, queue_id)
        return None if found is None else QueueOffset(found.min_offset)

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        """The end of what is archived, as far as this reader knows (``follow`` first for more)."""
        found = self._queue(topic, queue_id)
        return None if found is None else QueueOffset(found.max_offset)

    def earliest_message_time(self, topic: str, queue_id: int) -> int | None:
        """Store time of the first readable message, from its row; ``None`` when there is none."""

        def ask() -> int | None:
            file = self._file(topic, queue_id)
            return None if file is None else file.time_of(file.min_offset)

        return self._follower.answered(ask)

    def message_time(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of the message at an offset; ``None`` when no message is there."""

        def ask() -> int | None:
            file = self._file(topic, queue_id)
            return None if file is None else file.time_of(offset)

        return self._follower.answered(ask)

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> QueueOffset | None:
        """The first offset stored at or after ``time_ms`` (``UPPER``: the last of that very time); the end when all are older.

        ``None`` for a queue that is not archived.
        """

        def ask() -> tuple[QueueOffset | None, bool]:
            """The answer, and whether newer commits may change it."""
            file = self._file(topic, queue_id)
            if file is None:
                return None, False
            found = file.offset_by_time(time_ms, boundary)
            return found, found == file.max_offset

        found, at_end = self._follower.answered(ask)
        return self._follower.answered(ask)[0] if at_end and self.follow() else found

    # ---- look-ups

    def query_message(self, lookup: KeyLookup) -> list[memoryview]:
        """The records that ``lookup`` asks for, in the order in which the broker stored them."""
        return [memoryview(item.record) for item in self.query(lookup)]

    def query(self, lookup: KeyLookup) -> list[Located]:
        """``query_message`` with where each message lies. Of a lite queue: in it, found by its aliases, and those have
        offsets of the lite queue."""

        def ask() -> list[Located]:
            view = self._follower.ready()
            return query_in(view.state, view.objects, lookup)

        self._follower.ready()
        # Newer messages may have the key, too.
        self._follower.follow_if_older(FRESH_SECONDS, here=True).result()
        found = self._follower.answered(ask)
        if found or lookup.is_empty or not self.follow():
            return found
        return self._follower.answered(ask)

    def view_message(self, physical_offset: int) -> memoryview | None:
        """The record that begins at a physical offset, in the newest lineage that has one; ``None`` if none begins there."""
        found = self.locate(physical_offset)
        return None if found is None else memoryview(found.record)

    def locate(
        self, physical_offset: int, *, store_host: str | None = None, topic: str | None = None
    ) -> Located | None:
        """``view_message`` with where it lies; ``store_host`` (ip:port, of a message id) must then be the record's own.
        ``topic``: only its runs are looked at, and no others are loaded; it may be a lite queue."""

        def ask() -> Located | None:
            view = self._follower.whole() if topic is None else self._follower.ready()
            newest = 0 if view.head is None else view.head.highest_lineage
            for lineage in range(newest, 0, -1):
                found = locate_in(view.state, view.objects, PhysicalOffset(physical_offset), lineage, topic)
                if found is not None and store_host in (None, found.message.store_host):
                    return found
            return None

        if physical_offset < 0:
            return None
        found = self._follower.answered(ask)
        return found if found is not None or not self.follow() else self._follower.answered(ask)

    def newest(self) -> Located | None:
        """The record that the broker stored last among those archived in the lineage in force; ``None`` without one."""

        def ask() -> Located | None:
            found = newest_in_log(self._follower.ready())
            if found is not None:
                return found
            view = self._follower.whole()
            return None if view.head is None else newest_physical(view.state, view.objects, view.head.lineage)

        return self._follower.answered(ask)

    # ---- what there is

    def topics(self, *, system: bool = False) -> Iterator[str]:
        """Names of archived topics, in order; RocketMQ's own only with ``system``."""
        return (topic.topic for topic in self.list_topics(system=system))

    def list_topics(
        self, *, prefix: str = "", after: str | None = None, system: bool = False
    ) -> Iterator[TopicState]:
        """Archived topics whose names begin with ``prefix``, those above ``after``, in the order of their bytes; RocketMQ's own
        only with ``system``."""
        found = list_topics(self._follower.whole().state.view, prefix=prefix, after=after)
        return (topic for topic in found if system or not self._topics.is_system(topic.topic))

    def sinks(self) -> Iterator[ListedSink]:
        """Sinks of the archive, and how far they are as of its last commit."""
        return list_sinks(self._follower.whole().state.view)

    def queues(self, topic: str | None = None, *, after: MessageQueue | None = None) -> Iterator[QueueState]:
        """Archived queues of a topic, or of all, in order, those above ``after``; also those without a message now
        (``generation`` ``None``)."""
        view = self._follower.whole() if topic is None else self._follower.ready()
        return view.state.queues(topic, after)

    @property
    def view(self) -> View:
        """The archive as this reader knows it now; it does not change while it is held. Never waits: ``Unavailable`` while the
        archive has not been opened."""
        return self._follower.view()

    def known(self, queue: MessageQueue) -> QueueState | None:
        """A queue as ``view`` has it; ``None`` for one without a current generation, and for names that no queue can have.

        Never waits and makes no request: ``Unavailable`` while the archive has not been opened, or the queue not loaded.
        """
        return self.view.at_hand.known(queue)

    def loaded(self, queue: MessageQueue) -> QueueState | None:
        """``known`` for a caller that may wait: what is not loaded yet is."""
        return self._follower.ready().known(queue)

    def progress(self) -> Progress | None:
        """How far the lineage in force is archived, as ``view`` has it; ``None`` before its first progress. As ``known``."""
        return self.view.progress()

    def place(self) -> ArchiveCommit | None:
        """Which archive this is, and the commit that ``view`` is at; ``None`` for an empty log. As ``known``."""
        view = self.view
        return None if view.head is None else ArchiveCommit(view.identity.archive_id, view.head.seq)

    def physical_floor(self, queue: MessageQueue, offset: int) -> PhysicalOffset | None:
        """A physical offset at or below that of the message at ``offset``, of which the fold alone is asked. As ``known``.

        ``None``: nothing is known of the queue, or the message is not of the lineage in force.
        """
        return self.view.at_hand.physical_floor(queue, offset)

    def follow(self) -> bool:
        """Look for new commits; whether there were any. At most every ``fetch.follow_ms``: in between the last look counts.

        The reads themselves call it when what they are asked for is not there.
        """
        return self._follower.follow()

    def follow_if_older(self, seconds: float = FRESH_SECONDS) -> Future[bool]:
        """``follow`` without waiting, or nothing to wait for if the end of the log was seen in the last ``seconds``."""
        return self._follower.follow_if_older(seconds)

    def reach(self, commit: int) -> Future[bool]:
        """Come to a commit that somebody else has seen, or a later one; whether this reader is there now. Never waits."""
        return self._follower.reach_async(commit)

    def close(self) -> None:
        """Give up what is under way; the stack given to ``open`` does the rest. Twice is harmless."""
        self._puller.close()
        self._follower.close()

    # ---- inside

    def _queue(self, topic: str, queue_id: int) -> QueueState | None:
        """A queue's state, or a lite queue's; one that is not known is looked for in new commits."""
        queue = MessageQueue(topic, queue_id)
        found = _known(self._follower.ready(), queue)
        if found is None and self.follow():
            found = _known(self._follower.ready(), queue)
        return found

    def _file(self, topic: str, queue_id: int) -> FlatMessageFile | LiteQueueFile | None:
        if self._queue(topic, queue_id) is None:
            return None
        view = self._follower.ready()
        lite = known_lite(view.state, MessageQueue(topic, queue_id))
        if lite is not None:
            return LiteQueueFile(view.state, lite)
        return FlatMessageFile(view.state, view.objects, MessageQueue(topic, queue_id), self._local_times())

    def _local_times(self) -> LocalTimes | None:
        """The index of a daemon on this host, if its settings say that it keeps one; the archive's id is known by now."""
        if self._times is None and self._settings.consumequeue.enabled and self._settings.state_directory:
            archive_id = self._follower.ready().identity.archive_id
            self._times = LocalTimes(self._settings, archive_id, self._clock)
        return self._times


def _known(view: View, queue: MessageQueue) -> QueueState | None:
    return readable_lite(view.state, queue) or view.known(queue)
