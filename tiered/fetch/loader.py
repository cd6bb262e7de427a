"""Blocks and tables into memory: budget first, one request for many askers, everything checked, damage reported."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import BlockKey, BlockRef
from tiered.archive.state.values import ObjectState
from tiered.codec.format.block import BlockTable
from tiered.codec.format.directory import Directory
from tiered.codec.format.sections import CODEC_ZSTD_DICTIONARY, SectionKind
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.fetch.allowance import Account
from tiered.fetch.block import LoadedBlock, charge_bytes, opened_band, opened_block
from tiered.fetch.budget import Budget
from tiered.fetch.cache import BlockCache
from tiered.fetch.disk import DiskTier
from tiered.fetch.flight import Flight, Flights
from tiered.fetch.heads import Heads
from tiered.fetch.lanes import FetchJob, Lanes
from tiered.fetch.load import Backer, BlockLoad, Loaded, name_on_disk, neighbours
from tiered.metrics import Metrics
from tiered.provider.base import Provider

TABLE_OVERHEAD_BYTES = 64 * 1024
"""Charged for a table under way beside its bytes: what it decodes to is not known before."""

SEALED_TABLES = 8
"""A segment's footer takes about so many times its bytes, read and decoded."""

T = TypeVar("T")


class Loader:
    """Thread-safe. Requests run in ``pool``, at most ``threads`` at once."""

    def __init__(
        self,
        provider: Provider,
        objects: ObjectReader,
        cache: BlockCache,
        budget: Budget,
        disk: DiskTier | None,
        pool: Executor,
        threads: int,
        metrics: Metrics,
    ) -> None:
        self._provider = provider
        self._objects = objects
        self._cache = cache
        self._budget = budget
        self._disk = disk
        self._lanes = Lanes(pool, threads)
        self._heads = Heads(provider, objects, disk, threads, metrics)
        self._flights = Flights(cache.__contains__)
        self._metrics = metrics
        self._closed = False

    # ---- blocks

    def find(self, ref: BlockRef) -> Flight[Loaded] | None:
        """The flight that brings a block, if one is under way."""
        return self._flights.find(ref.fetched_as)

    def demand(self, refs: Sequence[BlockRef], account: Account) -> Future[Loaded] | None:
        """Load neighbouring blocks for a reader that waits: the leading ones that nobody loads yet; or, if the first is under
        way, that flight, hurried. ``None``: the first one is in the cache by now. Whoever comes first pays, on ``account``."""
        flying = self.find(refs[0])
        if flying is not None:
            return self._hurry(flying, account)
        flight = self._enter(refs, foreground=True)
        if flight is None:
            flying = self.find(refs[0])
            return None if flying is None else self._hurry(flying, account)
        load = self._load(refs[: len(flight.names)], account)
        account.charge(load.stored_bytes)
        self._budget.request(load.charge, lambda: self._fly(flight, load), account.share)
        return flight.future

    def ahead(self, refs: Sequence[BlockRef], account: Account, owner: Backer, stamp: int) -> bool:
        """Load neighbouring blocks for later, as far as nobody does yet. False when there is no memory for it now, or nothing
        is left of the tenant's budget."""
        load = self._load(refs, account, owner, stamp)
        if self._closed or not account.may_ahead() or not self._budget.try_ahead(load.charge):
            return False
        flight = self._enter(refs, foreground=False)
        if flight is None:
            self._budget.settle(load.charge, ahead=True)
            return True
        if len(flight.names) < len(refs):
            shorter = self._load(refs[: len(flight.names)], account, owner, stamp)
            self._budget.settle(load.charge - shorter.charge, ahead=True)
            load = shorter
        account.charge(load.stored_bytes)
        self._fly(flight, load)
        return True

    def _load(
        self, refs: Sequence[BlockRef], account: Account, owner: Backer | None = None, stamp: int = 0
    ) -> BlockLoad:
        charge = charge_bytes(refs) + self._heads.coming_bytes(refs[0])
        return BlockLoad(tuple(refs), account, owner, stamp, charge)

    def _enter(self, refs: Sequence[BlockRef], *, foreground: bool) -> Flight[Loaded] | None:
        names, wanted = tuple(ref.fetched_as for ref in refs), tuple(ref.key for ref in refs)
        return self._flights.enter(names, foreground=foreground, wanted=wanted)

    def _hurry(self, flight: Flight[T], account: Account) -> Future[T]:
        flight.foreground = True
        job = flight.job
        if job is not None:
            self._lanes.promote(job, account.share)
        return flight.future

    def _fly(self, flight: Flight[Loaded], load: BlockLoad) -> None:
        self._launch(
            flight, lambda alive: self._bring(flight, load, alive=alive), load.account, load.stored_bytes
        )

    def _launch(
        self, flight: Flight[Any], bring: Callable[[bool], None], account: Account, size: int
    ) -> None:
        def run(alive: bool) -> None:
            bring(alive)
            flight.job = None  # else the two hold each other, and what the flight brought, until the garbage collector comes by

        job = flight.job = FetchJob(run, flight.foreground, account.share, size)
        self._lanes.submit(job)
        if flight.foreground:  # hurried meanwhile
            self._lanes.promote(job, account.share)

    def _bring(self, flight: Flight[Loaded], load: BlockLoad, *, alive: bool) -> None:
        found: dict[BlockKey, LoadedBlock | TieredError] = {}
        fresh: list[tuple[str, memoryview]] = []
        kept = 0
        try:
            _check_alive(alive)
            self._fetch(load, found, fresh)
            kept = self._keep(load, found)
        except BaseException as e:  # noqa: BLE001 - a mistake of ours must reach those who wait, not die in a pool
            self._flights.leave(flight)
            flight.future.set_exception(e)
        else:
            self._flights.leave(flight)  # after the cache has it: see Flights
            flight.future.set_result(found)
        if self._disk is not None:
            for name, stored in fresh:
                self._disk.put(name, stored)
        fresh.clear()
        self._budget.settle(load.charge, kept, ahead=load.for_later)

    def _keep(self, load: BlockLoad, found: Loaded) -> int:
        kept, asked = 0, {ref.key for ref in load.refs}
        for ref in load.refs:
            block = found[ref.key]
            if isinstance(block, LoadedBlock):
                kept += self._cache.put(
                    block,
                    owner=load.owner,
                    stamp=load.stamp,
                    stored_length=ref.stored_length,
                    read=not load.for_later,
                )
        for (
            block
        ) in found.values():  # what else lay in the same bands: kept where there is room, and gives way first
            if isinstance(block, LoadedBlock) and block.key not in asked:
                kept += self._cache.put(block, owner=None, stamp=0, stored_length=0, read=True)
        return kept

    def _fetch(
        self,
        load: BlockLoad,
        found: dict[BlockKey, LoadedBlock | TieredError],
        fresh: list[tuple[str, memoryview]],
    ) -> None:
        """Everything of ``load``, from disk or store. Errors become part of what was found."""
        missing: list[BlockRef] = []
        for ref in load.refs:
            if ref.key not in found and not self._from_disk(ref, found):
                missing.append(ref)
        if not missing:  # the disk had it all
            load.account.charge(-load.stored_bytes, -1)
        for refs in neighbours(missing):
            try:
                self._request(refs, load, found, fresh)
            except TieredError as e:
                if isinstance(e, Unavailable) and load.owner is not None:
                    load.owner.pushed_back(load.stamp)
                found.update({ref.key: e for ref in refs})

    def _request(
        self,
        refs: Sequence[BlockRef],
        load: BlockLoad,
        found: dict[BlockKey, LoadedBlock | TieredError],
        fresh: list[tuple[str, memoryview]],
    ) -> None:
        """One ranged GET; of a segment with another beside it, for what its bands share, where that is not here."""
        key = self._objects.key_of(refs[0].item)
        what_for = "ahead" if load.for_later else "demand"
        head = self._heads.begin(refs[0], what_for)
        begin, end = refs[0].position, refs[-1].end_position
        fetched = self._provider.get(key, begin, end - begin)
        if fetched.refused and load.owner is not None:
            load.owner.pushed_back(load.stamp)
        data = memoryview(fetched.data)
        self._metrics.fetched_bytes.labels(what_for).inc(len(data))
        for ref in refs:
            if ref.key in found:
                continue
            stored = data[ref.position - begin : ref.end_position - begin]
            try:
                self._open(ref, stored, key, found, None if head is None else head.result())
            except Corrupt as e:
                self._metrics.damaged_blocks.inc()
                found[ref.key] = e
            else:
                if self._disk is not None:
                    fresh.append((name_on_disk(ref), stored))

    def _open(
        self,
        ref: BlockRef,
        stored: memoryview,
        key: str,
        found: dict[BlockKey, LoadedBlock | TieredError],
        head: Buffer | None,
    ) -> None:
        """A block, or with it all that lie in its band, from stored bytes."""
        if ref.group is None:
            dictionary = self._objects.dictionary(ref.item) if ref.codec == CODEC_ZSTD_DICTIONARY else None
            found[ref.key] = opened_block(ref, stored, key=key, dictionary=dictionary)
            return
        opened = opened_band(self._objects.sealed(ref.item), ref, stored, head)
        found.update({block.key: block for block in opened})
        if ref.key not in found:
            raise Corrupt("fold and directory disagree on a run", key=key, run=ref.run.id, expected=ref.key)

    def _from_disk(self, ref: BlockRef, found: dict[BlockKey, LoadedBlock | TieredError]) -> bool:
        if self._disk is None:
            return False
        name = name_on_disk(ref)
        stored = self._disk.get(name)
        if stored is None:
            return False
        try:
            self._open(ref, memoryview(stored), name, found, self._heads.get(ref, "demand"))
        except TieredError:
            self._disk.drop(name)
            return False
        return True

    # ---- tables

    def table(
        self, item: ObjectState, account: Account, *, foreground: bool = True
    ) -> Future[BlockTable] | None:
        """The block table of an object, fetched. ``None``: no memory for it now, only for read-ahead."""
        return self._once(
            item,
            "blocks",
            SectionKind.BLOCK_TABLE,
            lambda: self._objects.block_table(item),
            account,
            foreground=foreground,
        )

    def directory(
        self, item: ObjectState, account: Account, *, foreground: bool = True
    ) -> Future[Directory] | None:
        """The directory of an object, fetched."""
        return self._once(
            item,
            "directory",
            SectionKind.DIRECTORY,
            lambda: self._objects.directory(item),
            account,
            foreground=foreground,
        )

    def row_group(
        self,
        item: ObjectState,
        names: tuple[str, ...],
        group: int,
        account: Account,
        *,
        foreground: bool = True,
    ) -> Future[Any] | None:
        """Columns of a group of rows, fetched (``ObjectReader.row_group``)."""
        return self._once(
            item,
            (names, group),
            SectionKind.COLUMN_INDEX,
            lambda: self._objects.row_group(item, names, group),
            account,
            foreground=foreground,
        )

    def _once(
        self,
        item: ObjectState,
        what: Hashable,
        kind: SectionKind,
        work: Callable[[], T],
        account: Account,
        *,
        foreground: bool,
    ) -> Future[T] | None:
        """The flight of a table: one for all that ask meanwhile. Charged while it is under way."""
        name = (item.ref, what)
        sealed = item.sections.get(SectionKind.SEGMENT_FOOTER)
        stored = sealed[1] if sealed is not None else item.sections[kind][1]
        size = (2 if sealed is None else SEALED_TABLES) * stored
        charge = size + TABLE_OVERHEAD_BYTES
        while True:
            flying = self._flights.find(name)
            if flying is not None:
                return self._hurry(flying, account) if foreground else flying.future
            if not foreground and (
                self._closed or not account.may_ahead() or not self._budget.try_ahead(charge)
            ):
                return None
            made = self._flights.enter((name,), foreground=foreground)
            if made is not None:
                break
            if not foreground:
                self._budget.settle(charge, ahead=True)
        flight: Flight[T] = made
        account.charge(stored)

        def start() -> None:
            self._launch(
                flight,
                lambda alive: self._bring_table(flight, work, charge, ahead=not foreground, alive=alive),
                account,
                stored,
            )

        if foreground:
            self._budget.request(charge, start, account.share)
        else:
            start()
        return flight.future

    def _bring_table(
        self, flight: Flight[T], work: Callable[[], T], charge: int, *, ahead: bool, alive: bool
    ) -> None:
        try:
            _check_alive(alive)
            value = work()
        except BaseException as e:  # noqa: BLE001 - as for blocks
            if isinstance(e, Corrupt):
                self._metrics.damaged_blocks.inc()
            self._flights.leave(flight)
            flight.future.set_exception(e)
        else:
            self._flights.leave(flight)
            flight.future.set_result(value)
        self._budget.settle(charge, ahead=ahead)

    # ---- the end

    def close(self) -> None:
        """Everything that waits ends with ``Unavailable``; what is under way comes to its end."""
        self._closed = True
        self._lanes.close()
        self._heads.close()
        self._budget.close()


def _check_alive(alive: bool) -> None:
    if not alive:
        raise Unavailable("the fetcher is closed")
