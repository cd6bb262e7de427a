"""Topics that come and go all the time, in rounds, and what they leave: a harness that itself keeps nothing.

Each round's topics are new, with a message a queue; the broker deletes them a round later, retention trims them, collection
takes their objects and the commits that made them, and a grace later their queues are forgotten. Between two rounds the told
clock goes on a day, so that as much goes as comes. The store drops what is collected, the broker its old files, and what the
kit's own parts note for tests is thrown away after each round.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.kit.assemble import Assembly, assemble, memory
from tests.kit.collecting import HOUR_MS, Sweeping, stored
from tests.kit.fetchscene import Ranges, Scene, in_memory
from tests.kit.pipeline import Crafted
from tiered.archive.state.cached import open_fold
from tiered.archive.state.keys import DISPATCH, FOLD_PREFIXES, UNDER_WAY
from tiered.clock import ManualClock
from tiered.daemon.brokertopics import NOTES_FILE, BrokersTopics
from tiered.daemon.observer import Observer
from tiered.daemon.status import ProcessTotals
from tiered.daemon.topicnotes import TopicNotes
from tiered.metrics import Metrics
from tiered.settings import MIB, Gc, Settings, Source, State

DAY_SECONDS = 24 * 3600
DAY_MS = DAY_SECONDS * 1000
SETTLED_AFTER = 8
"""Rounds until as much goes as comes: commits are the last to go."""


@dataclass(frozen=True)
class Left:
    """What is there at the end of a round. ``resident`` and ``traced``: bytes of this process, and of those what Python
    allocated (0 where that is not traced). ``keys``: everything in the bucket."""

    pairs: Counter[str]
    objects: int
    keys: int
    stored_bytes: int
    noted: int
    note_bytes: int
    files: int
    open_files: int
    series: int
    fold_bytes: int
    resident: int
    traced: int


class Churn:
    """A broker whose topics live a day, and its daemon over a store in memory, the fold in RocksDB."""

    def __init__(self, work: Path, *, queues: int = 1, file_bytes: int = 4 * MIB) -> None:
        clock = ManualClock()
        self.queues = queues
        self.broker = Crafted(work / "store", file_bytes=file_bytes)
        self.provider = Ranges(memory(clock))
        self.fold_directory, self.state = work / "metadata", work / "state"
        self.fold = open_fold("rocksdb", self.fold_directory, 16 * MIB)
        daemon: Assembly = assemble(
            self.broker.store,
            self.provider,
            clock,
            metadata=self.fold,
            forgets=True,
            dispatch={"inline_bytes": 0},
        )
        self.scene = Scene(self.broker, daemon, self.provider, clock)
        self.config = self.broker.store / "config"
        for path in (self.state, self.config):
            path.mkdir()
        settings = Settings(
            source=Source(store_dir=str(self.broker.store)), state=State(directory=str(self.state))
        )
        self.archive_id = daemon.log.reader.identity.archive_id
        self.sweeping = Sweeping.of(
            self.scene, broker=BrokersTopics(settings, self.archive_id, notes=True), keep_ms=0, deleted_topic_ms=DAY_MS,
            gc=Gc(enabled="true", delete_threads=1, commit_retention_ms=DAY_MS + HOUR_MS),
        )  # fmt: skip
        self.metrics = Metrics()
        observer = Observer(self.metrics, logging.getLogger("tiered.test"), clock, ProcessTotals())
        daemon.heard.and_then = observer.proven

    def round(self, number: int, topics: int) -> Left:
        """Topics of a round of their own, each queue with a message; and what becomes of those before."""
        made, sweeping = self.scene, self.sweeping
        names = [f"Topic-{number:03d}-{topic:06d}" for topic in range(topics)]
        listed = {"TBW102": {}, **{name: {} for name in names}}
        (self.config / "topics.json").write_text(json.dumps({"topicConfigTable": listed}))
        self.broker.time_ms = made.clock.now_ms()
        for name in names:
            for queue_id in range(self.queues):
                self.broker.send(name, queue_id)
        made.daemon.settle(2.0)
        for task in (sweeping.retention, sweeping.gc, sweeping.forget):
            sweeping.count(task)
        sweeping.save()
        self.drop()
        made.clock.advance(DAY_SECONDS)
        return self.left()

    def drop(self) -> None:
        """What kit and broker would keep."""
        daemon, broker = self.scene.daemon, self.broker
        for bases in [broker.bases()]:
            for _ in bases[:-2]:
                broker.delete_oldest()
        kept: tuple[Any, ...] = (
            broker.sent, broker.records, broker.following, self.provider.gets, self.calls(), daemon.heard.proofs,
            self.sweeping.heard.checkpoints, self.sweeping.heard.proofs,
        )  # fmt: skip
        for one in kept:
            one.clear()

    def calls(self) -> list[Any]:
        """Requests as the store in memory notes them."""
        at: Any = self.provider
        while not hasattr(at, "calls"):
            at = at.inner
        found: list[Any] = at.calls
        return found

    def left(self) -> Left:
        """What there is now."""
        notes = self.state / NOTES_FILE
        store = in_memory(self.provider)._shared
        pairs: Counter[str] = Counter()
        for prefix in (*FOLD_PREFIXES, DISPATCH, UNDER_WAY):
            pairs[prefix.decode()] = sum(1 for _ in self.fold.iterate(prefix))
        found = {
            "objects": len(stored(self.scene)),
            "keys": len(store.keys),
            "stored_bytes": sum(len(data) for data, _ in store.objects.values()),
            "noted": sum(map(len, TopicNotes(notes, self.archive_id).read().times.values())),
            "note_bytes": notes.stat().st_size if notes.exists() else 0,
            "files": sum(1 for _ in self.state.rglob("*")) + len(self.broker.bases()),
            "open_files": len(os.listdir("/proc/self/fd")),
            "series": sum(1 for line in self.metrics.expose().splitlines() if not line.startswith(b"#")),
            "fold_bytes": sum(p.stat().st_size for p in self.fold_directory.rglob("*") if p.is_file()),
        }
        store = None
        gc.collect()
        return Left(pairs, **found, resident=resident(), traced=tracemalloc.get_traced_memory()[0])

    def close(self) -> None:
        """Everything of it."""
        self.scene.daemon.close()
        self.fold.close()


def resident() -> int:
    """Bytes of memory of this process, those that the C library only keeps for later given back."""
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def slope(sizes: Sequence[int]) -> float:
    """By how much each round adds: Theil's estimate, the median over all pairs of rounds, which single leaps do not move."""
    values = np.asarray(sizes, np.float64)
    first, second = np.triu_indices(len(values), 1)
    return float(np.median((values[second] - values[first]) / (second - first)))
