"""Retention and collection in one thread, over the daemon of ``assemble``, with clocks that a test moves."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.kit.assemble import KEYS, Heard
from tests.kit.fetchscene import Scene
from tests.kit.merging import AtOnceTurn
from tests.kit.readstore import Cold
from tiered.archive.checkpoint.format import Manifest
from tiered.archive.log.maintenance import Done, OwnKeys, Task
from tiered.archive.rewrite.collection import Collection
from tiered.archive.rewrite.forgetting import NOBODY_KNOWS, Forget
from tiered.archive.rewrite.retention import SILENT, Retention
from tiered.daemon.brokertopics import BrokersTopics
from tiered.daemon.checkpointer import Checkpointer
from tiered.metadata.memory import MemoryStore
from tiered.settings import Archive, Gc, Retain

_SEEDS = count(1000)
HOUR_MS = 3_600_000
GRACE_MS = 24 * HOUR_MS


@dataclass
class Sweeping:
    """The tasks of one process: made anew, they remember nothing."""

    scene: Scene | Cold
    own_keys: OwnKeys
    gc: Collection
    retention: Retention
    forget: Forget
    saver: Checkpointer
    heard: Heard

    @classmethod
    def of(cls, scene: Scene | Cold, **options: Any) -> Sweeping:
        """Tasks over the daemon that the scene has now. ``options``: ``weak``, ``broker``, ``lender`` (of
        checkpoints), ``gc`` (a section); others are of section ``retain``."""
        log, own_keys = scene.daemon.log, OwnKeys()
        section = options.pop("gc", Gc(enabled="true", delete_threads=1))
        gc = Collection(log, scene.clock, section, own_keys, options.pop("weak", ()))
        heard = Heard()
        saver = Checkpointer(
            log, Archive(checkpoint_commits=1), scene.clock, random.Random(next(_SEEDS)).randbytes,
            shadow=MemoryStore(), events=heard, own_keys=own_keys, lender=options.pop("lender", None),
        )  # fmt: skip
        broker = options.pop("broker", SILENT)
        retain = Retain(**{"keep_ms": HOUR_MS, "min_age_ms": HOUR_MS, "max_trim_percent": 100, **options})
        retention = Retention(log, scene.clock, lambda: retain, broker)
        gone = broker if isinstance(broker, BrokersTopics) else NOBODY_KNOWS
        forget = Forget(log, scene.clock, lambda: retain, section.grace_ms, gone)
        return cls(scene, own_keys, gc, retention, forget, saver, heard)

    def all(self, task: Task) -> list[Done]:
        """Turns until nothing is left."""
        found = []
        while not found or found[-1].more:
            found.append(task.run_once(AtOnceTurn(self.scene.daemon)))
            assert len(found) < 100, "it comes to an end"
        return found

    def count(self, task: Task) -> dict[str, int]:
        """``all``, with figures added up."""
        sums: dict[str, int] = {}
        for done in self.all(task):
            for name, value in done.figures.items():
                sums[name] = sums.get(name, 0) + (value if isinstance(value, int) else 0)
        return sums

    def save(self) -> Manifest:
        """A checkpoint of the fold as it is now, by this process."""
        self.saver.count()
        assert self.saver.step()
        return self.heard.checkpoints[-1]

    def after_grace(self) -> dict[str, int]:
        """A grace later."""
        self.scene.clock.advance(GRACE_MS / 1000)
        return self.count(self.gc)


def stored(scene: Scene) -> set[str]:
    """Paths of data objects in the bucket."""
    listed = (item for area in ("data/", "segment/") for item in scene.provider.list(KEYS.key(area)))
    return {str(KEYS.path(item.key)) for item in listed}


def needed(scene: Scene) -> set[str]:
    """Paths of objects that runs and closed parts lie in, found by walking over these."""
    state = scene.state
    items = (state.object(run.object) for run in [*state.runs_all(), *state.closed_parts()])
    return {item.path for item in items if item is not None and item.path}
