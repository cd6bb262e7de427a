"""An archive on the real S3 server, to be read cold: made once, read through ``MessageStore`` or past it, requests counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.bench.run import generate, once
from tests.kit.s3server import S3Server, versitygw
from tiered.allocator import calm_collector, keep_freed_memory
from tiered.clock import SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.base import RowFilter
from tiered.metrics import Metrics
from tiered.model import GetMessageStatus
from tiered.provider.base import Fetched, Provider
from tiered.provider.open import open_provider
from tiered.settings import Archive, Fetch, Settings
from tiered.store import MessageStore, opening

MIB = 1 << 20
TOPIC = "Bench0"
PULL_MESSAGES, PULL_BYTES = 4096, MIB  # what the gateway answers at most


Piece = tuple[str, int | None, int | None]
"""A ranged GET: key, start, length."""


class Watched:
    """A provider whose GETs are counted, noted and, on request, answered ``seconds`` late: a store further away."""

    def __init__(self, inner: Provider, seconds: float = 0.0) -> None:
        self._inner = inner
        self.seconds = seconds
        self._lock = threading.Lock()
        self.gets = 0
        self.get_bytes = 0
        self.asked: list[Piece] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        if self.seconds:
            time.sleep(self.seconds)
        fetched = self._inner.get(key, start, length)
        with self._lock:
            self.gets += 1
            self.get_bytes += len(fetched.data)
            self.asked.append((key, start, length))
        return fetched

    def reset(self) -> None:
        """Count from here."""
        with self._lock:
            self.gets = self.get_bytes = 0
            self.asked = []


@dataclass(frozen=True, slots=True)
class ColdArchive:
    """Where it lies. ``record_bytes``: of all records, uncompressed and stored so."""

    server: S3Server
    url: str
    messages: int
    queues: int
    record_bytes: int

    @property
    def places(self) -> tuple[tuple[str, ColdArchive], ...]:
        """The same bytes by two ways, with their names: from the server, and from the files that it keeps objects in."""
        bucket, _, root = self.url.partition("?")[0].removeprefix("s3://").partition("/")
        files = replace(self, url=f"file://{self.server.data / bucket / root}")
        return (self.server.name, self), ("a directory", files)

    def settings(self, **fetch: Any) -> Settings:
        """Of a reader, with changes in section ``fetch``."""
        return replace(
            Settings(), archive=Archive(url=self.url), store=self.server.store(), fetch=Fetch(**fetch)
        )

    def provider(self) -> Provider:
        """The client that the store would use, without it."""
        return open_provider(self.url, self.server.store(), SystemClock())

    @contextmanager
    def opened(self, *, seconds: float = 0.0, **fetch: Any) -> Iterator[tuple[MessageStore, Watched]]:
        """A store that has folded the log and read nothing else; its GETs from here on."""
        made: list[Watched] = []

        def watched(*arguments: Any, **keywords: Any) -> Any:
            made.append(Watched(open_provider(*arguments, **keywords)))
            return made[-1]

        with ExitStack() as stack:
            with patch.object(opening, "open_provider", watched):
                store = MessageStore.open(self.settings(**fetch), SystemClock(), Metrics(), stack=stack)
            keep_freed_memory()  # as a gateway does
            calm_collector()
            made[0].reset()
            made[0].seconds = seconds
            yield store, made[0]


@contextmanager
def cold(
    work: Path, messages: int, queues: int, store: Path | None = None, *, compression: str = "none"
) -> Iterator[ColdArchive]:
    """Archive a generated backlog (or ``store``) on a server of its own; without compression stored bytes are message bytes."""
    source = store or work / "store"
    size = generate(source, messages, queues) if store is None else 0
    with versitygw(work / "server") as server:
        url = server.url(server.bucket(), "archive")
        once(
            source,
            url,
            work / "state",
            f"dispatch.compression={compression}",
            "hold.max_disk_percent=99",
            environment=server.environment(),
        )
        yield ColdArchive(server, url, messages, queues, size)


def read_queue(
    store: MessageStore,
    reader: ReaderId,
    queue_id: int = 0,
    *,
    count: int = PULL_MESSAGES,
    row_filter: RowFilter | None = None,
) -> tuple[int, int]:
    """Read a queue from its beginning to its end, one answer after the other; messages and their bytes."""
    end = store.max_offset(TOPIC, queue_id)
    assert end is not None, f"queue {queue_id} is not archived"
    offset = messages = size = 0
    while offset < end:
        result = store.get_message(Pull(reader, TOPIC, queue_id, offset, count, PULL_BYTES, row_filter))
        assert result.status in (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE), result
        assert result.next_begin_offset > offset, result
        offset = result.next_begin_offset
        messages += len(result.records)
        size += result.buffer_bytes
    return messages, size


def ranges(provider: Provider, most: int) -> list[Piece]:
    """All data objects in ranged pieces, as a copy of them would ask."""
    pieces: list[Piece] = []
    for item in provider.list("DefaultCluster/broker-a/data/"):
        for start in range(0, item.length, most):
            pieces.append((item.key, start, min(most, item.length - start)))
    return pieces


def raw_gets(provider: Provider, pieces: Sequence[Piece], threads: int) -> tuple[float, int]:
    """Seconds and bytes of fetching ``pieces``, ``threads`` at once, and throwing them away."""
    started = time.monotonic()
    with ThreadPoolExecutor(threads) as pool:
        sizes = list(pool.map(lambda piece: len(provider.get(*piece).data), pieces))
    return time.monotonic() - started, sum(sizes)
