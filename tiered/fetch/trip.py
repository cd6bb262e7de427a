"""One read on its way through runs and blocks, as steps that yield what they wait for: a thread or a callback drives it."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import BlockRef
from tiered.codec.format.block import BlockTable
from tiered.errors import TieredError
from tiered.fetch.ahead import ReadAhead, Reader
from tiered.fetch.answer import Answer
from tiered.fetch.bands import BandsAhead
from tiered.fetch.block import LoadedBlock, charge_bytes
from tiered.fetch.cache import BlockCache
from tiered.fetch.course import Course
from tiered.fetch.loader import Loader
from tiered.fetch.sieve import Mask, Sieve
from tiered.fetch.window import UNIT_BYTES
from tiered.metrics import Metrics
from tiered.settings import Fetch

DEMAND_SHARE = 4
"""A request on demand takes at most this part of the budget, one block excepted."""

MAX_SKIPPED = 4096
"""Blocks refused by their columns in one read, before it comes back to say how far it is."""

Waits = Generator[Future[Any], None, None]


@dataclass(frozen=True, slots=True)
class Tools:
    """What every read works with."""

    objects: ObjectReader
    loader: Loader
    cache: BlockCache
    ahead: ReadAhead
    bands: BandsAhead
    settings: Fetch
    budget_bytes: int
    metrics: Metrics


class Trip:
    """One read. ``at`` is how far it came, ``passed`` the blocks it has read to their end."""

    def __init__(
        self,
        tools: Tools,
        course: Course,
        reader: Reader,
        answer: Answer,
        offset: int,
        *,
        reads_on: bool,
        max_bytes: int,
    ) -> None:
        self._tools = tools
        self._course = course
        self._reader = reader
        self._answer = answer
        self._scan_left = max(max_bytes, tools.settings.request_bytes)
        self._skips_left = MAX_SKIPPED
        self._sieve = (
            None
            if course.row_filter is None
            else Sieve(tools.objects, tools.loader, course.row_filter, reader.account)
        )
        self._found: LoadedBlock | None = None
        self.reads_on = reads_on
        """Whether to fetch ahead: the reader goes on where it was, or looks through much for a filter."""
        self.at = self._begin = offset
        self._admitted = False
        self.inside_run = False
        """Whether ``at`` lies inside a run, so that no hole can begin there."""
        self.passed: list[LoadedBlock] = []
        self.ended_in: BlockRef | None = None
        """The block whose records it had more of than were wanted."""

    def go(self) -> Waits:
        """Read until the answer is full, enough was looked at, or the queue ends."""
        for run, item in self._course.runs(self.at):
            if self._enough():
                return
            self.at = max(self.at, run.start)
            table = self._tools.objects.cached_block_table(item)
            while table is None:
                self._admit()
                coming = self._tools.loader.table(item, self._reader.account)
                if coming is not None:
                    yield coming
                    table = coming.result()
            self.inside_run = True
            for ref in self._course.blocks(run, item, table, self.at, key=self._tools.objects.key_of(item)):
                if self._enough():
                    return
                yield from self._visit(ref, table)
            self.inside_run = self.at < run.end

    def _admit(self) -> None:
        """Before the store is asked: the tenant's budget, again for each piece once this read has something to show."""
        if not self._admitted or self.at > self._begin:
            self._reader.account.admit()
            self._admitted = True

    def _enough(self) -> bool:
        return self._answer.full or self._scan_left <= 0 or self._skips_left <= 0

    def _visit(self, ref: BlockRef, table: BlockTable) -> Waits:
        """One block: by its columns, then by its records."""
        mask: Mask | None = None
        end = min(ref.end_offset, ref.run.end)
        if self._sieve is not None:
            asked = self._sieve.ask(ref, foreground=True)
            while isinstance(asked, Future):
                yield asked
                asked.result()
                asked = self._sieve.ask(ref, foreground=True)
            mask = asked
            if mask is not None and not mask.any():
                self._answer.skip(min(ref.rows, end - self.at))
                self._skips_left -= 1
                self.at = end
                return
        yield from self._find(ref, table)
        block, self._found = self._found, None
        assert block is not None
        self.at = self._answer.take(block, self.at, ref.run.end, mask)
        if self.at >= end:
            self.passed.append(block)
        else:
            self.ended_in = ref
        if self._sieve is not None:
            self._scan_left -= ref.raw_length
            self.reads_on = True

    def _find(self, ref: BlockRef, table: BlockTable) -> Waits:
        """The block into ``_found``: from memory, from a load under way, or by a load of one's own."""
        tools = self._tools
        self._found = tools.cache.get(ref.key)
        where = "memory"
        while self._found is None:
            under_way = tools.loader.find(ref) is not None
            if not under_way:
                self._admit()
            refs = [ref] if under_way else self._neighbours(ref, table)
            coming = tools.loader.demand(refs, self._reader.account)
            if coming is not None:
                where = "underway" if under_way else "away"
                if not under_way:
                    self._reader.lost(ref.first_offset)
                self._look_ahead(refs)
                tools.bands.reached(ref, self._reader.account)
                yield coming
                found = coming.result().get(ref.key)
                if isinstance(found, TieredError):
                    raise found
                if found is not None:
                    tools.cache.get(ref.key)  # it counts as read
                    self._found = found
                    break
            self._found = tools.cache.get(ref.key)
        tools.bands.reached(ref, self._reader.account)
        tools.metrics.fetch_blocks.labels(where).inc()

    def _neighbours(self, ref: BlockRef, table: BlockTable) -> list[BlockRef]:
        """The block and those behind it that this read wants too: one request."""
        tools, answer = self._tools, self._answer
        refs, stored, charge = [ref], ref.stored_length, charge_bytes([ref])
        largest = tools.settings.request_bytes
        if self._sieve is not None:
            largest = self._reader.request_bytes(largest) if self.reads_on else min(largest, UNIT_BYTES)
        owned = ref.end_offset - ref.first_offset
        offsets = ref.end_offset - max(self.at, ref.first_offset)
        size = ref.raw_length * offsets // owned
        key = tools.objects.key_of(ref.item)
        for following in self._course.blocks(ref.run, ref.item, table, ref.end_offset, key=key):
            if following.fetched_as != refs[-1].fetched_as:
                stored += following.stored_length
                charge += charge_bytes([following])
            if (
                (self._sieve is None and (size >= answer.left_bytes or offsets >= answer.left_count))
                or stored > largest
                or charge > tools.budget_bytes // DEMAND_SHARE
                or following.first_offset < ref.end_offset
                or following.key in tools.cache
                or tools.loader.find(following) is not None
                or self._refused(following)
            ):
                break
            refs.append(following)
            size += following.raw_length
            offsets += following.end_offset - following.first_offset
        return refs

    def _refused(self, ref: BlockRef) -> bool:
        """Whether a filter does not want a block, or that is not known yet."""
        if self._sieve is None:
            return False
        mask = self._sieve.ask(ref, foreground=True)
        return isinstance(mask, Future) or (mask is not None and not mask.any())

    def _look_ahead(self, refs: list[BlockRef]) -> None:
        """While one waits for ``refs``: the rest of a large read, and what the window allows."""
        first, last = refs[0], refs[-1]
        wanted = 0
        if self._sieve is None:
            per_offset = first.raw_length // max(1, first.end_offset - first.first_offset)
            raw = min(self._answer.left_bytes, self._answer.left_count * per_offset)
            raw -= sum(ref.raw_length for ref in refs)
            wanted = max(0, raw) * first.stored_share // first.raw_length
        if wanted > 0 or self.reads_on:
            self._tools.ahead.top_up(
                self._reader, self._course, last.end_offset, wanted, reads_on=self.reads_on
            )
