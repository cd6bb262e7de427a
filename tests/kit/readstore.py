"""A ``MessageStore`` over an archive that one thread writes: same clock, same provider, every request seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.kit.assemble import KEYS, Assembly, AtOnce, Counting, assemble
from tests.kit.pipeline import Crafted
from tiered.archive.read.reader import ArchiveReader
from tiered.clock import ManualClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.metadata.base import MetadataStore
from tiered.metadata.memory import MemoryStore
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, Past
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider
from tiered.settings import MIB, Fetch, Settings
from tiered.store.follower import Follower
from tiered.store.messages import MessageStore

READER = ReaderId("readers")


@dataclass
class Cold:
    """A broker's log, its archive, and a reader of it that is a process of its own in all but name."""

    broker: Crafted
    daemon: Assembly
    provider: Counting
    clock: ManualClock
    metrics: Metrics
    options: dict[str, Any]
    stores: list[MessageStore] = field(default_factory=list)
    ageing: Callable[[Cold], None] = lambda made: None
    """What becomes of the archive after each flush (``aged.py``)."""

    @property
    def store(self) -> MessageStore:
        """The first reader."""
        return self.stores[0]

    def archive(self) -> None:
        """Archive whatever the broker wrote."""
        self.daemon.settle()
        self.ageing(self)

    def restart(self) -> None:
        """A new daemon on the same store and archive."""
        self.daemon.close()
        self.daemon = assemble(
            self.broker.store, self.provider, self.clock, seed=len(self.broker.sent), **self.options
        )

    def fresh(self) -> None:
        """Let the reader's next question be answered after a look."""
        self.clock.advance(10)

    def get(
        self, topic: str, queue_id: int, offset: int, count: int = 32, **options: object
    ) -> GetMessageResult:
        """A read by the first reader."""
        return self.store.get_message(Pull(READER, topic, queue_id, offset, count, **options))  # type: ignore[arg-type]

    def raws(self, topic: str, queue_id: int = 0) -> list[bytes]:
        """What the broker wrote into a queue, in order."""
        return [raw for m, raw in self.broker.sent if (m.topic, m.queue_id) == (topic, queue_id)]

    def open(
        self,
        *,
        fold: MetadataStore | None = None,
        pool: Executor | None = None,
        provider: object = None,
        settings: Settings | None = None,
        whole_bytes: int = 0,
        as_of: Past | None = None,
        copy: MetadataStore | None = None,
        shared: bool = False,
    ) -> MessageStore:
        """One more reader. ``shared``: by tenants, as in a gateway or a read node."""
        chosen = settings or Settings()
        workers = pool or AtOnce()
        follower = reader_follower(
            provider or self.provider, self.clock, self.metrics,
            fold=fold, pool=workers, fetch=chosen.fetch, whole_bytes=whole_bytes, as_of=as_of, copy=copy,
        )  # fmt: skip
        made = MessageStore(chosen, follower, workers, self.clock, self.metrics, shared=shared)
        follower.open()
        self.stores.append(made)
        return made


def reader_follower(
    provider: object,
    clock: ManualClock,
    metrics: Metrics,
    *,
    fold: MetadataStore | None = None,
    pool: Executor | None = None,
    fetch: Fetch | None = None,
    whole_bytes: int = 0,
    as_of: Past | None = None,
    copy: MetadataStore | None = None,
) -> Follower:
    """What ``tiered.store.opening`` makes, over a provider that is there already and, by default, without threads."""
    reader = ArchiveReader(
        provider,  # type: ignore[arg-type]
        KEYS,
        fold if fold is not None else MemoryStore(),
        table_cache_bytes=4 * MIB,
        whole_bytes=whole_bytes,
        copy=copy,
    )
    every_seconds = (fetch or Fetch()).follow_ms / 1000
    return Follower(
        reader, clock, every_seconds=every_seconds, pool=pool or AtOnce(), metrics=metrics, as_of=as_of
    )


@contextmanager
def cold(
    directory: Path,
    *,
    settings: Settings | None = None,
    open_now: bool = True,
    store: Path | None = None,
    over: Callable[[Provider], Provider] = lambda stored: stored,
    **options: object,
) -> Iterator[Cold]:
    """A broker without messages (or the store that is there), its daemon and, unless told otherwise, one reader.

    ``over`` makes the store of the one in memory; ``options`` go to ``assemble``.
    """
    clock = ManualClock()
    broker = Crafted(store or directory / "store", file_bytes=1 << 16)
    provider = Counting(over(MemoryProvider("", clock)))
    daemon = assemble(broker.store, provider, clock, **options)  # type: ignore[arg-type]
    made = Cold(broker, daemon, provider, clock, Metrics(), dict(options))
    try:
        if open_now:
            made.open(settings=settings)
        yield made
    finally:
        for reader in made.stores:
            reader.close()
        made.daemon.close()


def with_fetch(settings: Settings | None = None, **values: object) -> Settings:
    """Settings with some of section ``fetch`` changed."""
    base = settings or Settings()
    return replace(base, fetch=replace(base.fetch, **values))  # type: ignore[arg-type]
