"""Opening far from the store with many commits behind the checkpoint, and reading one queue of very many."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from tests.bench.run import TIERED, Row, expect, generate, once
from tests.kit.assemble import KEYS, memory, open_log, put
from tests.kit.measured import measure
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.writer import Claim
from tiered.archive.read.reader import ArchiveReader
from tiered.clock import ManualClock
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Provider, Stored
from tiered.provider.wrap import Wrapped
from tiered.settings import MIB
from tiered.source.generator.store import topic_names

FAR_SECONDS = 0.025
RESTING = threading.Event()


class Far(Wrapped):
    """A store that answers every request late."""

    def __init__(self, inner: Provider, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds
        self.requests = 0

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
        """Late."""
        self.requests += 1
        RESTING.wait(self._seconds)
        return self.inner.get(key, start, length)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """Late."""
        self.requests += 1
        RESTING.wait(self._seconds)
        return self.inner.list(prefix, start_after=start_after, limit=limit)


def opening(commits: int) -> list[Row]:
    """A reader's and a writer's opening with so many commits behind the checkpoint."""
    rows = []
    for behind in (256, commits):
        store, chance, number = memory(ManualClock()), random.Random(1), count(1)
        log = open_log(store, ManualClock())
        log.claim(Claim(lineage=1, host="bench"), 0, before_try=lambda head: None)
        put(log, progress_edit(1, [(100, 1, 0)]))
        write_checkpoint(
            store,
            KEYS,
            log.store.snapshot(),
            None,
            lambda chance=chance: KEYS.shard(1, chance.randbytes(16)),  # type: ignore[misc]
        )
        for at in range(behind):
            put(log, progress_edit(1, [(200 + 100 * at, next(number), 0)]))
        for what, made in (("what is asked for", PartialStore), ("all of the fold", MemoryStore)):
            far = Far(store.inner, FAR_SECONDS)
            started = time.monotonic()
            archive = ArchiveReader(far, KEYS, made(), table_cache_bytes=MIB).at()
            took = time.monotonic() - started
            head = archive.state.head()
            expect(-1 if head is None else head.seq, behind + 1, "is the last commit seen")
            rows.append(
                Row(
                    f"opening, {behind:,} commits behind the checkpoint, 25 ms away, {what} ({far.requests} requests)",
                    f"{took:.2f} s", f"{far.requests * FAR_SECONDS:.2f} s, one after another",
                    f"{took / (far.requests * FAR_SECONDS):.2f}", "≤ 1.0 s",
                )
            )  # fmt: skip
    return rows


def one_queue(work: Path, queues: int) -> list[Row]:
    """``tiered read`` and others in an archive of very many queues, each with a few runs."""
    store, archive = work / "many", f"file://{work / 'many-archive'}"
    generate(store, 3 * queues, 1000, topics=queues // 1000, body_bytes=64)
    once(store, archive, work / "state", "archive.checkpoint_commits=5", "dispatch.group_commit_bytes=4MiB")
    shutil.rmtree(store)
    topic = topic_names(queues // 1000, "Bench")[0]
    rows = []
    for verb, target in (
        (("read", "--topic", topic, "--queue", "7"), "≤ 1.0 s, ≤ 120 MB"),
        (("queues", "--topic", topic), "-"),
        (("topics",), "-"),
        (("verify",), "-"),
    ):
        measured = measure((*TIERED, *verb, "--archive", archive))
        rows.append(
            Row(
                f"{' '.join(verb)}, {queues:,} queues: CPU, peak memory",
                f"{measured.cpu_seconds:.2f} s, {measured.peak_bytes / 1e6:.0f} MB", "-", "-", target,
            )
        )  # fmt: skip
    return rows
