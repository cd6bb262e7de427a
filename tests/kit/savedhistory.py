"""A seeded history as an archive: its commits in a store in memory, with checkpoints of many small shards among them."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence

from tests.kit.assemble import Counting
from tests.kit.histories import ARCHIVE_ID, History
from tiered.archive.checkpoint.format import Manifest
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.log.reader import LogReader
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.clock import ManualClock
from tiered.codec.format.commit import encode_commit
from tiered.model import MessageQueue
from tiered.provider.memory import MemoryObjects, MemoryProvider

KEYS = ArchiveKeys("c", "b")
TOPICS = 12


class SavedHistory:
    """A history whose commits lie in a store, with checkpoints of small shards."""

    def __init__(
        self,
        seed: int,
        checkpoints: tuple[int, ...],
        steps: int,
        *,
        names: Sequence[MessageQueue] = (),
        forgets: bool = False,
        history: History | None = None,
    ) -> None:
        """``checkpoints``: after which of the ``steps``; ``names``: of its queues, instead of plain ones; ``history``: one that
        is grown, instead of one of its own."""
        self._open(MemoryObjects())
        self.history = history or History(random.Random(seed), topics=TOPICS, forgets=forgets)
        if names:
            self.history.names[:] = names
        self.manifests: list[Manifest] = []
        self._put(0)
        for step in range(steps):
            self.grow(1)
            if step in checkpoints:
                self.save()

    def copy(self) -> SavedHistory:
        """Another that begins where this one is."""
        other, objects = copy.copy(self), MemoryObjects()
        objects.objects, objects.keys = dict(self.objects.objects), list(self.objects.keys)
        other._open(objects)
        other.manifests = list(self.manifests)
        other.history = self.history.copy()
        return other

    def _open(self, objects: MemoryObjects) -> None:
        self.objects = objects
        self.provider = Counting(MemoryProvider("partial", ManualClock(), objects))
        self.reader = LogReader(self.provider, KEYS, ArchiveIdentity(ARCHIVE_ID, "c", "b", 0))

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            self.history.step()
            self._put(-1)

    def _put(self, number: int) -> None:
        commit = self.history.commits[number]
        self.provider.put(KEYS.commit(commit.seq), encode_commit(commit, [bytes(commit.inline_length)]))

    def save(self) -> Manifest:
        ids = (self.history.chance.randbytes(16) for _ in range(10_000))
        previous = self.manifests[-1] if self.manifests else None
        made = write_checkpoint(
            self.provider, KEYS, self.history.store.snapshot(), previous, lambda: KEYS.shard(1, next(ids)),
            shard_bytes=1024,
        )  # fmt: skip
        self.manifests.append(made)
        return made

    def open(self, scope: Scope = EVERYTHING) -> PartialStore:
        store = PartialStore(scope)
        self.reader.fold(store)
        return store

    def loaded(self) -> set[str]:
        """Shards fetched since the last look."""
        found = {key for verb, key in self.provider.calls if verb == "get" and "/shard/" in key}
        self.provider.calls.clear()
        return found

    def damage(self, manifest: Manifest, keep_head: bool = True) -> None:
        """All shards of a checkpoint but the one with the head, those that another names too."""
        for shard in manifest.shards:
            if not (keep_head and shard.first_key <= b"h" <= shard.last_key):
                self.provider.put(KEYS.key(shard.path), [b"rotten"], create_only=False)
