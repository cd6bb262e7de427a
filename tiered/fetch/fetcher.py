"""Reading a queue from the archive: from memory where it can, in one request where it cannot, ahead of who reads on."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from pathlib import Path

from cachetools import LRUCache

from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.errors import TieredError
from tiered.fetch.ahead import ReadAhead, Reader, WithinBlock
from tiered.fetch.allowance import Shares
from tiered.fetch.answer import Answer, taken_within
from tiered.fetch.bands import BandsAhead
from tiered.fetch.base import Expiry, FetchedRecords, PlainExpiry, ReaderId
from tiered.fetch.block import LoadedBlock
from tiered.fetch.budget import Budget
from tiered.fetch.cache import BlockCache
from tiered.fetch.course import Course, KnownRuns
from tiered.fetch.disk import DiskTier
from tiered.fetch.loader import Loader
from tiered.fetch.pull import Pull
from tiered.fetch.steps import Steps, run_here, run_later
from tiered.fetch.trip import Tools, Trip
from tiered.metrics import Metrics
from tiered.model import MessageQueue
from tiered.provider.base import Provider
from tiered.settings import KIB, Fetch, Tenants

SWEEP_SECONDS = 1.0
STANDING_BYTES = 256 * KIB
"""Of a block that may be read from before a reader's whole way is looked at again: its window, and what lies ahead."""


class Fetcher:
    """Records of queues. Thread-safe; constructing it does no I/O.

    ``pool`` runs the requests and has at least ``settings.threads`` threads of its own. Readers are told apart by group, client
    and queue, and share the store by tenant (``shares``). Errors of a read: ``Unavailable`` (``OverBudget`` among them),
    ``NotFound`` (an object is gone: the state is too old, or it was lost) and ``Corrupt`` (key and position of a damaged block
    or table); each only when not a single record could be had before it.
    """

    def __init__(
        self,
        provider: Provider,
        objects: ObjectReader,
        settings: Fetch,
        clock: Clock,
        *,
        pool: Executor,
        metrics: Metrics,
        expiry: Expiry | None = None,
        shares: Shares | None = None,
    ) -> None:
        self._objects = objects
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._in_memory = metrics.fetch_blocks.labels("memory")
        self.shares = shares or Shares(Tenants(), clock)
        self._expiry = expiry or PlainExpiry(settings.cache_expiry_ms / 1000)
        self.cache = BlockCache(settings.budget_bytes, self._expiry, clock.monotonic)
        self.budget = Budget(settings.budget_bytes, self.cache.evict)
        self.disk = (
            DiskTier(Path(settings.disk_directory), settings.disk_bytes) if settings.disk_directory else None
        )
        self._loader = Loader(
            provider, objects, self.cache, self.budget, self.disk, pool, settings.threads, metrics
        )
        self._ahead = ReadAhead(
            objects,
            self._loader,
            self.cache,
            request_bytes=min(settings.request_bytes, self.budget.ahead_limit_bytes // 4),
            enabled=settings.read_ahead,
        )
        bands = BandsAhead(objects, self._loader, self.cache, enabled=settings.read_ahead)
        self._tools = Tools(
            objects, self._loader, self.cache, self._ahead, bands, settings, self.budget.limit_bytes, metrics
        )
        self._readers: LRUCache[tuple[ReaderId, MessageQueue], Reader] = LRUCache(settings.positions)
        self._known = KnownRuns()
        self._lock = threading.Lock()
        self._swept_at = clock.monotonic()
        self._wasted_bytes = 0

    def read(self, state: ArchiveState, pull: Pull, generation: int) -> FetchedRecords:
        """The records of one generation of a queue that ``pull`` asks for; the caller's thread, never one of the pool's, waits
        and works.

        An inner batch that contains the offset comes whole. With a filter a read may come back empty before the end, when it
        has looked at enough: go on at ``next_offset``. ``state`` must be one that does not change: what was looked up in it is
        remembered.
        """
        return run_here(self._read(state, pull, generation))

    def read_async(self, state: ArchiveState, pull: Pull, generation: int) -> Future[FetchedRecords]:
        """``read`` without a waiting thread: what is in memory is answered before this returns, the pool does the rest.

        Runs are looked up in ``state`` here and in the pool.
        """
        return run_later(self._read(state, pull, generation))

    def read_on(self, state: ArchiveState, queue: MessageQueue, pull: Pull) -> FetchedRecords | None:
        """``read`` for one that goes on where this reader's last one ended, if that was inside of a block that is in memory and
        has more than is wanted now: most reads of small pulls, without a look at runs and tables. ``None``: not so. ``queue``:
        that of the pull."""
        reader = self._reader(pull.reader, queue)
        standing = reader.standing(state, pull.offset)
        if standing is None or pull.row_filter is not None or pull.max_count < 1:
            return None
        block = self.cache.get(standing.block)
        if block is None:
            return None
        found = taken_within(block, pull.offset, standing.run_end, pull.max_count, pull.max_bytes)
        if found is None:  # the block ends: what comes next belongs to this answer, or is to be fetched ahead
            return None
        reader.go_on(standing, pull.offset, found.next_offset, found.records.size_bytes)
        now = self._clock.monotonic()
        self._expiry.observe(pull.reader, queue, found.next_offset, now, begin=pull.offset)
        self._in_memory.inc()
        return found

    def close(self) -> None:
        """Reads that wait end with ``Unavailable``. The pool stays the caller's."""
        self._loader.close()
        self._known.forget()
        self.budget.release(self.cache.clear())

    def refresh_metrics(self) -> None:
        """Set the gauges, when they are to be shown; reads do it about once a second."""
        with self._lock:
            wasted = self.cache.wasted_bytes
            self._metrics.wasted_bytes.inc(wasted - self._wasted_bytes)
            self._wasted_bytes = wasted
        self._metrics.fetch_budget_bytes.set(self.budget.used_bytes)
        self._metrics.fetch_cache_bytes.set(self.cache.used_bytes)
        self._metrics.tenants(self.shares.status())
        if self.disk is not None:
            self._metrics.fetch_disk_bytes.set(self.disk.used_bytes)
            self._metrics.fetch_disk_errors.set(self.disk.errors)

    # ---- one read

    def _read(self, state: ArchiveState, pull: Pull, generation: int) -> Steps[FetchedRecords]:
        course = Course(state, pull.queue, generation, pull.row_filter, self._known)
        begin, max_bytes = max(0, pull.offset), max(0, pull.max_bytes)
        answer = Answer(pull.max_count, max_bytes, pull.row_filter)
        reader = self._reader(pull.reader, course.queue)
        reads_on = reader.begin(course.generation, begin)
        trip = Trip(self._tools, course, reader, answer, begin, reads_on=reads_on, max_bytes=max_bytes)
        try:
            yield from trip.go()
        except TieredError as e:
            if trip.at == begin:
                raise e.with_traceback(None) from None
        at = trip.at if trip.inside_run else course.hole_after(trip.at)
        inside = trip.ended_in if pull.row_filter is None else None
        standing = None if inside is None else WithinBlock(state, inside.key, inside.run.end, STANDING_BYTES)
        reader.end(begin, at, standing)
        now = self._clock.monotonic()
        self._expiry.observe(pull.reader, course.queue, at, now, begin=begin)
        self._tidy(trip.passed, now)
        if trip.reads_on:
            self._ahead.top_up(reader, course, at, 0, reads_on=True)
        return answer.finish(at)

    def _reader(self, who: ReaderId, queue: MessageQueue) -> Reader:
        name = who, queue
        with self._lock:
            try:  # ``get`` of cachetools looks twice
                return self._readers[name]
            except KeyError:
                account = self.shares.account(who, queue.topic)
                made = self._readers[name] = Reader(self.budget.ahead_limit_bytes // 2, account)
                return made

    def _tidy(self, passed: list[LoadedBlock], now: float) -> None:
        freed = sum(self.cache.review(block.key) for block in passed)
        with self._lock:
            due = now - self._swept_at >= SWEEP_SECONDS
            if due:
                self._swept_at = now
        if due:
            freed += self.cache.sweep()
            self.refresh_metrics()
        self.budget.release(freed)
