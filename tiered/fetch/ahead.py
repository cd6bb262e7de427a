"""Fetching ahead of readers that read on: each has a window; the walk ahead fills it with requests, never waiting."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import BlockKey, BlockRef
from tiered.archive.state.values import ObjectState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.errors import TieredError
from tiered.fetch.allowance import Account
from tiered.fetch.cache import BlockCache
from tiered.fetch.course import Course
from tiered.fetch.loader import Loader
from tiered.fetch.sieve import Sieve
from tiered.fetch.window import ReadAheadWindow

TABLES_AHEAD = 8
"""Runs whose tables are fetched beside that of the next run, when that is missing."""

MOST_REQUESTS = 16
"""A large read is split into this many requests, or more once they have their largest size."""

MAX_WALK = 4096
"""Blocks looked at in one walk: what a filter refuses, or others have fetched, costs no window."""


@dataclass(slots=True)
class WithinBlock:
    """Where a read ended with records of its block left: in which block of which state, up to where the block's run reaches,
    and bytes that may be read of it before the reader's whole way is looked at again. Its reader's lock guards it."""

    state: ArchiveState
    block: BlockKey
    run_end: int
    left_bytes: int


class Reader:
    """What is known of one reader of one queue. It owns what was fetched ahead for it. Thread-safe.

    ``window`` is guarded by ``_window_lock``, a leaf; everything else by ``_lock``.
    """

    def __init__(self, ceiling_bytes: int, account: Account) -> None:
        self.account = account
        self._window = ReadAheadWindow(ceiling_bytes)
        self._window_lock = threading.Lock()
        self._lock = threading.Lock()
        self._walking = self._again = False
        self._reads_on = False
        self._generation: int | None = None
        self._begin = 0
        self._expected = 0
        self._cursor = 0
        self._scheduled: deque[tuple[int, int]] = deque()
        self._outstanding = 0
        self._standing: WithinBlock | None = None

    def begin(self, generation: int, offset: int) -> bool:
        """A read begins; whether the reader reads on: it has gone forward, and went on where it was."""
        with self._lock:
            if self._generation != generation or not self._begin <= offset <= self._expected:
                self._generation, self._begin, self._expected = generation, offset, offset
                self._reads_on = False
                self._forget(offset)
                with self._window_lock:
                    self._window.restart()
            elif offset > self._begin:
                self._reads_on = True
            return self._reads_on

    def end(self, begin: int, next_offset: int, standing: WithinBlock | None = None) -> None:
        """A read from ``begin`` ended before ``next_offset``, perhaps inside of a block."""
        with self._lock:
            self._begin, self._expected = begin, max(begin, next_offset)
            self._standing = standing

    def standing(self, state: ArchiveState, offset: int) -> WithinBlock | None:
        """Where a read from ``offset`` goes on inside of the block in which the last one ended, of the same state."""
        with self._lock:
            found = self._standing
            if found is None or found.state is not state or offset != self._expected:
                return None
            return found if offset > self._begin else None

    def go_on(self, standing: WithinBlock, begin: int, next_offset: int, size: int) -> None:
        """``size`` bytes from ``begin`` on were read there."""
        with self._lock:
            if self._standing is standing and self._expected == begin:
                self._begin, self._expected = begin, next_offset
                standing.left_bytes -= size
                if standing.left_bytes <= 0:
                    self._standing = None

    def lost(self, offset: int) -> None:
        """A block below the walk's end had to be fetched on demand: what was scheduled is gone, walk again from ``offset``."""
        with self._lock:
            if offset <= self._cursor:
                self._forget(offset)

    @property
    def expected(self) -> int:
        """Where its next read should begin."""
        return self._expected

    def window(self) -> tuple[int, int]:
        """Window in bytes, and the stamp for loads made under it."""
        with self._window_lock:
            return self._window.window_bytes, self._window.stamp

    def request_bytes(self, largest: int) -> int:
        """Size of one request ahead."""
        with self._window_lock:
            return self._window.request_bytes(largest)

    # ---- what became of its loads (Backer)

    def block_used(self, key: BlockKey, size: int) -> None:
        with self._window_lock:
            self._window.used(size)

    def block_wasted(self, key: BlockKey, size: int, stamp: int) -> None:
        with self._window_lock:
            self._window.wasted(stamp)

    def pushed_back(self, stamp: int) -> None:
        with self._window_lock:
            self._window.pushed_back(stamp)

    # ---- the walk's bookkeeping

    def enter(self) -> bool:
        """Whether the caller may walk; if another thread does, it will walk once more."""
        with self._lock:
            self._again = self._walking
            self._walking = True
            return not self._again

    def leave(self) -> bool:
        """The walk is over; true if it is to be done once more, by the caller."""
        with self._lock:
            again, self._again = self._again, False
            self._walking = again
            return again

    def position(self, at: int, distance: int) -> tuple[int, int]:
        """Where the walk goes on for a reader at ``at``, and the bytes it may schedule."""
        with self._lock:
            while self._scheduled and self._scheduled[0][0] <= at:
                self._outstanding -= self._scheduled.popleft()[1]
            if not self._scheduled:
                self._cursor = max(self._cursor, at)
            return max(self._cursor, at), distance - self._outstanding

    def schedule(self, end_offset: int, size: int) -> None:
        """A block that ends at ``end_offset`` is under way or here."""
        with self._lock:
            self._cursor = max(self._cursor, end_offset)
            self._scheduled.append((end_offset, size))
            self._outstanding += size

    def pass_by(self, offset: int) -> None:
        """Nothing below ``offset`` is wanted."""
        with self._lock:
            self._cursor = max(self._cursor, offset)

    def _forget(self, offset: int) -> None:
        self._cursor = offset
        self._scheduled.clear()
        self._outstanding = 0


class ReadAhead:
    """Walks ahead of readers. ``request_bytes``: the largest request."""

    def __init__(
        self, objects: ObjectReader, loader: Loader, cache: BlockCache, *, request_bytes: int, enabled: bool
    ) -> None:
        self._objects = objects
        self._loader = loader
        self._cache = cache
        self._request_bytes = request_bytes
        self._enabled = enabled

    def top_up(self, reader: Reader, course: Course, at: int, wanted: int, *, reads_on: bool) -> None:
        """Fetch what a reader at ``at`` will want: ``wanted`` stored bytes that it asked for, or its window if it reads on."""
        if not reader.enter():
            return
        while True:
            with suppress(TieredError):  # a reader that comes there will meet it and say so
                self._walk(reader, course, at, wanted, reads_on=reads_on)
            if not reader.leave():
                return

    def _walk(self, reader: Reader, course: Course, at: int, wanted: int, *, reads_on: bool) -> None:
        window, stamp = reader.window()
        distance = max(wanted, window if reads_on and self._enabled else 0)
        largest = min(
            self._request_bytes, max(reader.request_bytes(self._request_bytes), distance // MOST_REQUESTS)
        )
        cursor, room = reader.position(at, distance)
        if room <= 0 or (room < largest and room < distance):
            return  # a whole request does not fit yet

        def go_on(done: Future[Any]) -> None:
            if done.exception() is None:
                self.top_up(reader, course, reader.expected, wanted, reads_on=reads_on)

        sieve = (
            None
            if course.row_filter is None
            else Sieve(self._objects, self._loader, course.row_filter, reader.account)
        )
        walk = _Walk(self._loader, self._cache, reader, stamp, largest, sieve, room)
        runs = course.runs(cursor)
        for run, item in runs:
            table = self._objects.cached_block_table(item)
            if table is None:
                coming = self._loader.table(item, reader.account, foreground=False)
                if coming is not None and coming.done():
                    table = coming.result()
                else:
                    self._tables(runs, reader.account)
                    walk.stopped_by = coming
                    break
            key = self._objects.key_of(item)
            blocks = course.blocks(run, item, table, max(cursor, run.start), key=key)
            if not all(map(walk.visit, blocks)):
                break
        walk.flush()
        if walk.stopped_by is not None:
            walk.stopped_by.add_done_callback(go_on)

    def _tables(self, runs: Iterator[tuple[RunState, ObjectState]], account: Account) -> None:
        """While one table is fetched, those of the next runs too."""
        for _, item in islice(runs, TABLES_AHEAD):
            if self._objects.cached_block_table(item) is None:
                self._loader.table(item, account, foreground=False)


class _Walk:
    """One walk: neighbouring blocks that are not here yet are gathered into requests."""

    def __init__(
        self,
        loader: Loader,
        cache: BlockCache,
        reader: Reader,
        stamp: int,
        largest: int,
        sieve: Sieve | None,
        room: int,
    ) -> None:
        self._loader, self._cache, self._reader = loader, cache, reader
        self._stamp, self._largest, self._sieve = stamp, largest, sieve
        self._room = room
        self._looks_left = MAX_WALK
        self._refs: list[BlockRef] = []
        self._size = 0
        self.stopped_by: Future[Any] | None = None
        """What must come before the walk can go on."""

    def visit(self, ref: BlockRef) -> bool:
        """Look at a block. False at the end of the walk."""
        mask = None if self._sieve is None else self._sieve.ask(ref, foreground=False)
        if isinstance(mask, Future):
            self.stopped_by = mask
            return False
        if mask is not None and not mask.any():
            if not self.flush():
                return False
            self._reader.pass_by(ref.end_offset)
        elif ref.key in self._cache or self._loader.find(ref) is not None:
            if not self.flush():
                return False
            self._reader.schedule(ref.end_offset, ref.stored_share)
            self._room -= ref.stored_share
        else:
            if not self._together(ref) and not self.flush():
                return False
            if not self._refs or ref.fetched_as != self._refs[-1].fetched_as:
                self._size += ref.stored_length
            self._refs.append(ref)
            self._room -= ref.stored_length
        self._looks_left -= 1
        return self._room > 0 and self._looks_left > 0

    def flush(self) -> bool:
        """Make the request for what was gathered. False when there is no memory for it."""
        refs, self._refs, self._size = self._refs, [], 0
        if refs and not self._loader.ahead(refs, self._reader.account, self._reader, self._stamp):
            return False
        for ref in refs:
            self._reader.schedule(ref.end_offset, ref.stored_length)
        return True

    def _together(self, ref: BlockRef) -> bool:
        """Whether a block goes into the same request as those gathered."""
        if not self._refs:
            return True
        last = self._refs[-1]
        if last.item.ref != ref.item.ref or not ref.follows(last):
            return False
        return ref.fetched_as == last.fetched_as or self._size + ref.stored_length <= self._largest
