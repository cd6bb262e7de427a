"""Archives that live for weeks: everything that ages them, in any order, beside what goes wrong (S6, S8, S9)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.archiveedits import rewind, start_again
from tests.kit.assemble import KEYS, live_rows
from tests.kit.collecting import GRACE_MS, HOUR_MS, Sweeping, needed, stored
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import merge_all
from tests.kit.sealing import seal_all
from tests.scenes.test_collection import flush, rows
from tiered.archive.checkpoint.store import checkpoint_keys, read_manifest
from tiered.archive.read.reader import ArchiveReader
from tiered.metadata.memory import MemoryStore
from tiered.settings import MIB, Gc

DAY = 86_400.0
KINDS = (
    "flush", "flush", "flush", "merge", "seal", "trim", "sweep", "save", "save", "grace", "retention", "restart", "rewind"
)  # fmt: skip


class Life:
    """One archive, one process at a time, and what it must never lose."""

    def __init__(self, made: Scene, seed: int) -> None:
        self.made = made
        self.chance = random.Random(seed)
        self.sweeping = Sweeping.of(made, keep_ms=30 * 24 * HOUR_MS)
        self.done: list[str] = []
        flush(made, 2, seed)

    def step(self) -> None:
        """One thing happens, and nothing in range is lost."""
        kind = self.chance.choice(KINDS)
        self.done.append(kind)
        before = self._readable()
        if kind == "rewind":
            self._rewind()
            return
        getattr(self, f"_{kind}")()
        now_ms = self.made.clock.now_ms()
        in_range = {raw for m, raw in self.made.broker.sent if now_ms - m.store_timestamp < 30 * 24 * HOUR_MS}
        lost = (before & in_range) - self._readable()
        assert not lost, self.done

    def alone(self) -> None:
        """A reader with nothing local finds what the writer has (S9)."""
        opened = ArchiveReader(self.made.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at()
        assert live_rows(opened.state, opened.objects) == rows(self.made), self.done

    def end(self) -> None:
        """Another process, two checkpoints, a grace, a retention of commits: what is left is what is needed (S8)."""
        made = self.made
        self._restart()
        made.daemon.settle(2.0)
        for _ in range(2):
            flush(made)
            self._save()
        self._retention()
        self._save()
        self._grace()
        self._retention()
        head = made.state.head()
        assert head is not None
        assert stored(made) == needed(made), self.done
        assert list(made.state.retired()) == []
        numbers = [int(key[-20:]) for key in checkpoint_keys(made.provider, KEYS)]
        assert min(numbers) == head.floor > 0, "and none below it"
        named = {s.path for n in numbers for s in read_manifest(made.provider, KEYS.checkpoint(n)).shards}
        assert {str(KEYS.path(s.key)) for s in made.provider.list(f"{KEYS.root}shard/")} == named
        held = {o.ref.commit_seq for o in made.state.objects() if not o.path and o.references}
        commits = {int(s.key[-20:]) for s in made.provider.list(KEYS.commit_prefix)}
        assert {n for n in commits if n < head.floor} == {n for n in held if n < head.floor}, self.done
        self.alone()

    def _readable(self) -> set[bytes]:
        return {raw for found in rows(self.made).values() for _, _, raw in found}

    def _flush(self) -> None:
        flush(self.made, self.chance.randint(1, 3), self.chance.randrange(1 << 30))

    def _merge(self) -> None:
        merge_all(self.made.daemon)

    def _seal(self) -> None:
        self.made.clock.advance(1.1 * DAY)
        seal_all(self.made.daemon)

    def _trim(self) -> None:
        self.made.clock.advance(self.chance.choice([60, 5400, 10 * DAY]))
        self.sweeping.count(self.sweeping.retention)

    def _sweep(self) -> None:
        self.sweeping.count(self.sweeping.gc)

    def _save(self) -> None:
        self.sweeping.save()

    def _grace(self) -> None:
        self.made.clock.advance(GRACE_MS / 1000)
        self._sweep()

    def _retention(self) -> None:
        self._grace()
        self.made.clock.advance(Gc().commit_retention_ms / 1000)
        self._sweep()

    def _restart(self) -> None:
        lender = next(checkpoint_keys(self.made.provider, KEYS), None)
        start_again(self.made)
        self.sweeping = Sweeping.of(self.made, keep_ms=30 * 24 * HOUR_MS, lender=lender)

    def _rewind(self) -> None:
        made = self.made
        young = [m for m, _ in made.broker.sent[-6:] if made.clock.now_ms() - m.store_timestamp < HOUR_MS]
        if young and len(made.broker.sent) > 8:
            rewind(made, young[0])
            self.sweeping = Sweeping.of(made, keep_ms=30 * 24 * HOUR_MS)


@pytest.mark.depends_only_on_imports
@pytest.mark.no_cover
@pytest.mark.history
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("inline_bytes", [0, MIB])
def test_random_long_lives_lose_nothing_and_leave_nothing(
    tmp_path: Path, inline_bytes: int, seed: int
) -> None:
    with scene(tmp_path, inline_bytes=inline_bytes) as made:
        life = Life(made, seed)
        for number in range(20):
            life.step()
            if number % 6 == 0:
                life.alone()
        life.end()
        removed = min(int(s.key[-20:]) for s in made.provider.list(KEYS.commit_prefix))
    assert removed > 16, "commits went"
