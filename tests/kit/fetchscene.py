"""A small archive and a ``Fetcher`` over it: every request seen with its range, answers as slow or as wrong as a test wants."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.assemble import KEYS, Assembly, AtOnce, assemble, memory
from tests.kit.encryption import encrypting
from tests.kit.pipeline import Crafted
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.fetch.allowance import Shares
from tiered.fetch.base import Expiry, FetchedRecords, ReaderId
from tiered.fetch.fetcher import Fetcher
from tiered.fetch.pull import Pull
from tiered.filter.base import RowFilter
from tiered.metrics import Metrics
from tiered.model import MessageQueue
from tiered.provider.base import Provider
from tiered.provider.wrap import Wrapped
from tiered.settings import KIB, MIB, Fetch

ORDERS = MessageQueue("Orders", 0)
READERS = ReaderId("readers")
SETTLED_SECONDS = 2.0
"""Of the clock: records of a sound log are proven within half a second."""


def pull(
    offset: int,
    count: int = 32,
    *,
    reader: ReaderId = READERS,
    queue: MessageQueue = ORDERS,
    max_bytes: int = MIB,
    row_filter: RowFilter | None = None,
) -> Pull:
    """What a fetcher is asked for."""
    return Pull(reader, queue.topic, queue.queue_id, offset, count, max_bytes, row_filter)


class Ranges(Wrapped):
    """Notes (key, start, length) of every GET. ``gate`` runs before each and may wait or raise; ``spoil`` changes what came."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.gets: list[tuple[str, int, int]] = []
        self.gate: Callable[[str, int, int], None] = lambda key, start, length: None
        self.spoil: Callable[[str, int, bytes], bytes] = lambda key, start, data: data
        self.flying = 0
        self.most_flying = 0
        self._lock = threading.Lock()

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
        """Noted."""
        with self._lock:
            self.gets.append((key, start or 0, length or 0))
            self.flying += 1
            self.most_flying = max(self.most_flying, self.flying)
        try:
            self.gate(key, start or 0, length or 0)
            found = self.inner.get(key, start, length)
        finally:
            with self._lock:
                self.flying -= 1
        data = self.spoil(key, start or 0, found.data)
        return found if data is found.data else type(found)(data, found.object_length, found.date_ms)

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """At the end every object is what it was, with its date, no other is there, and nothing waits, fails or is spoilt."""
        shared = in_memory(self)._shared
        objects, keys, gate, spoil = dict(shared.objects), list(shared.keys), self.gate, self.spoil
        yield
        shared.objects, shared.keys, self.gate, self.spoil = objects, keys, gate, spoil

    @property
    def bytes(self) -> int:
        """Bytes asked for so far."""
        return sum(length for _, _, length in self.gets)


def in_memory(store: Any) -> Any:
    """The store in memory under whatever is wrapped around it."""
    while hasattr(store, "inner"):
        store = store.inner
    return store


@dataclass
class Scene:
    """One broker's archive; ``fetcher`` makes readers of it."""

    broker: Crafted
    daemon: Assembly
    provider: Ranges
    clock: ManualClock
    metrics: Metrics = field(default_factory=Metrics)
    made: list[Fetcher] = field(default_factory=list)

    @property
    def state(self) -> ArchiveState:
        """What is proven."""
        return self.daemon.state

    def send(
        self, count: int, *, size: int = 500, flush: bool = True, noise: bool = False, **fields: Any
    ) -> None:
        """``count`` messages of about ``size`` bytes into the queue, archived. ``noise``: bodies that do not compress."""
        for _ in range(count):
            number = len(self.broker.sent)
            fill = random.Random(number).randbytes(size) if noise else b"%c" % (97 + number % 26) * size
            self.broker.send(body=(b"%d " % number + fill)[:size], **fields)
        if flush:
            self.daemon.settle(SETTLED_SECONDS)

    def raws(self, queue: MessageQueue = ORDERS) -> list[bytes]:
        """What the broker wrote into a queue."""
        return [raw for m, raw in self.broker.sent if (m.topic, m.queue_id) == (queue.topic, queue.queue_id)]

    @contextmanager
    def put_back(self) -> Iterator[Scene]:
        """For a scene that tests share: at the end bucket and clock are what they were. Nothing is archived meanwhile."""
        daemon, head, clock = self.daemon, self.state.head(), self.clock
        reader, at = daemon.log.reader, (clock._now_ms, clock._monotonic)
        provider = reader.provider
        with self.provider.put_back():
            yield self
        clock._now_ms, clock._monotonic = at
        reader.provider = provider
        if self.daemon is not daemon or self.state.head() != head:
            raise AssertionError("a shared scene was archived on: this test needs one of its own")

    def objects(self, cache_bytes: int = 4 * MIB) -> ObjectReader:
        """A fresh node's tables."""
        archive_id = self.daemon.log.reader.identity.archive_id
        return ObjectReader(self.provider, KEYS, archive_id, cache_bytes=cache_bytes)

    def fetcher(
        self,
        *,
        pool: Executor | None = None,
        objects: ObjectReader | None = None,
        expiry: Expiry | None = None,
        shares: Shares | None = None,
        **options: Any,
    ) -> Fetcher:
        """A fetcher; ``options`` change the settings."""
        settings = Fetch(**{"budget_bytes": 8 * MIB, "request_bytes": 64 * KIB, **options})
        made = Fetcher(
            self.provider, objects or self.objects(), settings, self.clock,
            pool=pool or AtOnce(), metrics=self.metrics, expiry=expiry, shares=shares,
        )  # fmt: skip
        self.made.append(made)
        self.provider.gets.clear()
        return made

    def read(
        self, fetcher: Fetcher, offset: int, count: int = 32, *, reader: ReaderId = READERS, **options: Any
    ) -> FetchedRecords:
        """One read of the queue's generation 1."""
        generation = options.pop("generation", 1)
        return fetcher.read(self.state, pull(offset, count, reader=reader, **options), generation)

    def read_through(self, fetcher: Fetcher, *, offset: int = 0, **options: Any) -> list[bytes]:
        """All records from ``offset`` on, pull by pull."""
        found: list[bytes] = []
        while True:
            got = self.read(fetcher, offset, **options)
            found += map(bytes, got.records)
            if got.next_offset == offset:
                return found
            offset = got.next_offset


def window_bytes(fetcher: Fetcher, who: ReaderId, queue: MessageQueue) -> int | None:
    """A reader's read-ahead window; ``None`` for a reader that is not known."""
    found = fetcher._readers.get((who, queue))
    return None if found is None else found.window()[0]


@contextmanager
def scene(
    directory: Path,
    *,
    file_bytes: int = 1 << 20,
    encrypted: bool = False,
    forgets: bool = False,
    **dispatch: Any,
) -> Iterator[Scene]:
    """An empty archive with blocks of 4 KiB; data lies in objects unless ``inline_bytes`` says otherwise. ``forgets``: its
    epochs allow that queues are forgotten."""
    clock = ManualClock()
    broker = Crafted(directory / "store", file_bytes=file_bytes)
    provider = Ranges(encrypting(memory(clock)) if encrypted else memory(clock))
    options = {"block_bytes": 4096, "object_bytes": 1 << 20, "inline_bytes": 0, **dispatch}
    daemon = assemble(broker.store, provider, clock, dispatch=options, forgets=forgets)
    made = Scene(broker, daemon, provider, clock)
    try:
        yield made
    finally:
        for fetcher in made.made:
            fetcher.close()
        daemon.close()
