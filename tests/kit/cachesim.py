"""Seeded simulations of readers on a shared cache: what group progress saves beside a plain LRU and a plain time to live.

    python -m tests.kit.cachesim          the table of tiered/fetch/README.md

Time is simulated. A reader pulls ``PULL`` messages at a time at its own speed; a pull that finds its block missing fetches it
and what follows it, ``AHEAD`` blocks in one request. All caches hold ``CAPACITY`` blocks and see the same pulls.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from tiered.archive.read.runs import BlockKey
from tiered.fetch.base import Expiry, ReaderId
from tiered.fetch.block import LoadedBlock
from tiered.fetch.cache import BlockCache
from tiered.fetch.expiry import GroupExpiry
from tiered.model import MessageQueue

BLOCK_MESSAGES = 250  # 256 KiB of 1 KiB messages
BLOCK_BYTES = 256 << 10
MIB = 1 << 20
PULL = 32
AHEAD = 4
CAPACITY = 128
EXPIRY_SECONDS = 10.0
SWEEP_SECONDS = 0.25
QUEUE = MessageQueue("T", 0)


class Cache(Protocol):
    """Blocks by number."""

    def get(self, block: int, now: float) -> bool: ...
    def put(self, block: int, now: float) -> None: ...
    def observe(self, reader: ReaderId, offset: int, now: float) -> None: ...
    def sweep(self, now: float) -> None: ...
    def held(self) -> int: ...


class PlainLru:
    """The least recently used goes when room is needed."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._used: OrderedDict[int, float] = (
            OrderedDict()
        )  # when each block was last used, in the order in which they go

    def get(self, block: int, now: float) -> bool:
        found = block in self._used
        if found:
            self._used[block] = now
            self._used.move_to_end(block)
        return found

    def put(self, block: int, now: float) -> None:
        if len(self._used) == self._capacity:
            self._used.popitem(last=False)
        self._used[block] = now

    def observe(self, reader: ReaderId, offset: int, now: float) -> None:
        pass

    def sweep(self, now: float) -> None:
        pass

    def held(self) -> int:
        return len(self._used)


class PlainTtl(PlainLru):
    """What nobody read for ``EXPIRY_SECONDS`` goes (RocketMQ's own rule); what was fetched first if room is needed before."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        super().__init__(capacity)
        self._oldest = 0.0  # no block was last used before that

    def sweep(self, now: float) -> None:
        if now - self._oldest < EXPIRY_SECONDS:
            return
        for block in [b for b, used in self._used.items() if now - used >= EXPIRY_SECONDS]:
            del self._used[block]
        self._oldest = min(self._used.values(), default=now)

    def get(self, block: int, now: float) -> bool:
        self.sweep(now)
        found = block in self._used
        if found:
            self._used[block] = now
        return found


class Product:
    """The fetcher's own ``BlockCache`` with the policy, room made as its budget does for foreground loads."""

    def __init__(self, policy: Expiry, capacity: int = CAPACITY) -> None:
        self._policy = policy
        self._now = 0.0
        self.cache = BlockCache(capacity * BLOCK_BYTES, policy, lambda: self._now)
        self._capacity = capacity
        self._highest = 0

    def get(self, block: int, now: float) -> bool:
        self._now = now
        return self.cache.get(_key(block)) is not None

    def put(self, block: int, now: float) -> None:
        self._now = now
        self._highest = max(self._highest, block)
        missing = self.cache.used_bytes + BLOCK_BYTES - self._capacity * BLOCK_BYTES
        if missing > 0:
            self.cache.evict(missing, ahead=False)
        first, end = span(block)
        loaded = LoadedBlock(
            key=_key(block),
            queue=QUEUE,
            data=b"",
            edges=_EDGES,
            offsets=None,
            first_offset=first,
            end_offset=end,
            cost_bytes=BLOCK_BYTES,
        )
        self.cache.put(loaded, owner=None, stamp=0, stored_length=BLOCK_BYTES, read=False)

    def observe(self, reader: ReaderId, offset: int, now: float) -> None:
        self._policy.observe(reader, QUEUE, offset, now)

    def sweep(self, now: float) -> None:
        self._now = now
        self.cache.sweep()

    def held(self) -> int:
        return len(self.cache)

    def blocks(self) -> list[int]:
        """Numbers of the blocks it has."""
        return [block for block in range(self._highest + 1) if _key(block) in self.cache]


_EDGES = np.zeros(BLOCK_MESSAGES + 1, np.int32)


def _key(block: int) -> BlockKey:
    return BlockKey(QUEUE.topic, QUEUE.queue_id, 0, 0, 0, block)


def span(block: int) -> tuple[int, int]:
    """First and end offset of a block."""
    return block * BLOCK_MESSAGES, (block + 1) * BLOCK_MESSAGES


def product(capacity: int = CAPACITY) -> Product:
    """The product's cache and policy with their default times."""
    policy = GroupExpiry(
        expiry_seconds=EXPIRY_SECONDS, wanted_seconds=300, live_seconds=120, most_positions=10_000
    )
    return Product(policy, capacity)


CACHES: dict[str, Callable[[], Cache]] = {"groups": product, "lru": PlainLru, "ttl": PlainTtl}


@dataclass(frozen=True, slots=True)
class Reader:
    """From ``first`` at ``start`` seconds, ``rate`` messages a second, until ``end``; silent in each of ``pauses``."""

    who: ReaderId
    rate: float
    end: int
    start: float = 0.0
    first: int = 0
    pauses: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True)
class Outcome:
    """Visits: a reader comes to a block it was not in, or has lost the one it was in. Held: blocks in the cache, on average."""

    visits: int = 0
    hits: int = 0
    blocks_fetched: int = 0
    held: float = 0.0
    by_reader: dict[ReaderId, list[int]] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float:
        return self.hits / self.visits

    @property
    def bytes_fetched(self) -> int:
        return self.blocks_fetched * BLOCK_BYTES


def simulate(cache: Cache, readers: Sequence[Reader], seed: int) -> Outcome:
    """Run all readers to their ends."""
    chance = random.Random(seed)
    outcome = Outcome()
    line = [(reader.start, number, reader.first) for number, reader in enumerate(readers)]
    heapq.heapify(line)
    inside: dict[int, int] = {}
    last = max(reader.end for reader in readers) // BLOCK_MESSAGES
    swept = held = 0.0
    while line:
        now, number, offset = heapq.heappop(line)
        while swept + SWEEP_SECONDS <= now:
            swept += SWEEP_SECONDS
            cache.sweep(swept)
            held += cache.held() * SWEEP_SECONDS
        reader = readers[number]
        resumes = next((end for begin, end in reader.pauses if begin <= now < end), None)
        if resumes is not None:
            heapq.heappush(line, (resumes, number, offset))
            continue
        end = min(offset + PULL, reader.end)
        for block in range(offset // BLOCK_MESSAGES, (end - 1) // BLOCK_MESSAGES + 1):
            _visit(cache, outcome, reader, block, inside.get(number), last, now)
            inside[number] = block
        cache.observe(reader.who, end, now)
        if end < reader.end:
            heapq.heappush(line, (now + PULL / reader.rate * chance.uniform(0.7, 1.3), number, end))
    outcome.held = held / max(swept, SWEEP_SECONDS)
    return outcome


def _visit(
    cache: Cache, outcome: Outcome, reader: Reader, block: int, inside: int | None, last: int, now: float
) -> None:
    hit = cache.get(block, now)
    if block != inside or not hit:
        counts = outcome.by_reader.setdefault(reader.who, [0, 0])
        outcome.visits += 1
        outcome.hits += hit
        counts[0] += 1
        counts[1] += hit
    if not hit:
        for missing in range(block, min(block + AHEAD, last + 1)):
            if missing != block and cache.get(missing, now):
                break
            outcome.blocks_fetched += 1
            cache.put(missing, now)


def group(name: str) -> ReaderId:
    return ReaderId(name)


def fast_and_slow(seed: int) -> list[Reader]:
    """Two groups begin at 0; one is four times as fast and soon further ahead than the cache is large."""
    return [Reader(group("fast"), 4000, 200_000), Reader(group("slow"), 1000, 200_000)]


def behind(seed: int) -> list[Reader]:
    """One group follows another of the same speed 20 s behind it: longer than a plain expiry, less than the cache."""
    return [Reader(group("first"), 1000, 100_000), Reader(group("second"), 1000, 100_000, start=20.0)]


def same_place(seed: int) -> list[Reader]:
    """Ten groups of about the same speed begin within two seconds and drift apart."""
    chance = random.Random(seed)
    return [
        Reader(group(f"g{n}"), chance.uniform(900, 1100), 100_000, start=chance.uniform(0, 2))
        for n in range(10)
    ]


def one_stops(seed: int) -> list[Reader]:
    """Three groups; the slowest stops for good half-way, the middle one pauses for half a minute."""
    return [
        Reader(group("fast"), 2000, 200_000),
        Reader(group("pauses"), 1500, 200_000, pauses=((40.0, 70.0),)),
        Reader(group("stops"), 1000, 40_000),
    ]


def broadcast(seed: int) -> list[Reader]:
    """Eight clients of one broadcasting group, each at its own speed."""
    chance = random.Random(seed)
    return [Reader(ReaderId("b", f"c{n}"), chance.uniform(500, 1500), 100_000) for n in range(8)]


def newcomer(seed: int) -> list[Reader]:
    """A group is at 60,000 when another begins at 0, four times as fast: it catches up and goes ahead."""
    return [Reader(group("old"), 1000, 160_000), Reader(group("new"), 4000, 160_000, start=60.0)]


SCENES: dict[str, Callable[[int], list[Reader]]] = {
    "a fast and a slow group": fast_and_slow,
    "one group 20 s behind another": behind,
    "ten groups at about the same place": same_place,
    "a group that stops, one that pauses": one_stops,
    "eight broadcasting clients": broadcast,
    "a new group that begins at 0": newcomer,
}


def alone(readers: Sequence[Reader]) -> list[Reader]:
    """The reader that goes furthest, by itself: what must be fetched at least."""
    return [replace(max(readers, key=lambda r: r.end - r.first), start=0.0, pauses=())]


def line(title: str, outcomes: Sequence[Outcome]) -> str:
    """A row of the page's table."""
    cells = [title]
    cells += [f"{done.hit_rate:.1%}" for done in outcomes]
    cells += [f"{done.bytes_fetched / MIB:,.0f}" for done in outcomes]
    cells += [f"{done.held * BLOCK_BYTES / MIB:.0f}" for done in outcomes]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    headings = [f"{what}, {name}" for what in ("hits", "GET MiB", "held MiB") for name in CACHES]
    print(f"| scene | {' | '.join(headings)} |\n|{'---|' * (len(headings) + 1)}")
    for title, scene in SCENES.items():
        print(line(title, [simulate(make(), scene(1), 1) for make in CACHES.values()]))


if __name__ == "__main__":
    main()
