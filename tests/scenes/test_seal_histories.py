"""Archives at random, merged, sealed, trimmed and rewound at random: each row, live or closed, is what it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import SETTLED_SECONDS, Scene, scene
from tests.kit.merging import AtOnceTurn, closed_rows, commits_of_rows, merging, spread
from tests.kit.sealing import HOUR_MS, MIDNIGHT_MS, all_rows, sealing
from tests.kit.shortenedlife import ShortenedLife
from tiered.archive.keys import SegmentKey, parse
from tiered.archive.log.maintenance import Task
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.metadata.memory import MemoryStore
from tiered.settings import MIB, ONE_DAY_MS

pytestmark = [pytest.mark.depends_only_on_imports, pytest.mark.no_cover]


class World(ShortenedLife):
    """Edits of one archive, while days go by."""

    def __init__(self, made: Scene, chance: random.Random) -> None:
        super().__init__(made, chance)
        self.sealed = 0

    def flush(self) -> None:
        """Some hours go by at the broker; now and then its clock goes back."""
        self.made.broker.time_ms += self.chance.choice([1, HOUR_MS, 5 * HOUR_MS, -HOUR_MS])
        spread(self.made, self.chance.randint(1, 3), seed=self.chance.randrange(1 << 30), most=20)

    def merge(self) -> None:
        self._age(merging(self.made.daemon, job_runs=self.chance.choice([8, 1000])))

    def seal(self, *, all_days: bool = False) -> None:
        """Days that are over at the broker."""
        later_ms = 2 * ONE_DAY_MS if all_days else self.chance.choice([0, 2 * HOUR_MS, ONE_DAY_MS])
        now_ms = self.made.broker.time_ms + later_ms
        self.made.clock.set_wall(max(self.made.clock.now_ms(), now_ms))
        options = {
            "job_runs": self.chance.choice([5, 1000]),
            "job_objects": self.chance.choice([2, 500]),
            "window_bytes": self.chance.choice([300, 1 << 16]),
            "segment_bytes": self.chance.choice([5000, 1 << 20]),
            "row_group_bytes": self.chance.choice([500, 5000]),
        }
        self._age(sealing(self.made.daemon, **options), [1000] if all_days else [1, 2, 1000])

    def _age(self, task: Task, turns: Sequence[int] = (1, 2, 1000)) -> None:
        """Some turns of a task, or all, each compared with what was there before."""
        made = self.made
        before = self._all()
        turn = AtOnceTurn(made.daemon)
        for _ in range(self.chance.choice(turns)):
            done = task.run_once(turn)
            self.sealed += int(done.figures.get("sealed_runs") or 0)
            assert done.trouble is None
            assert self._all() == before
            if not done.more:
                break

    def _all(self) -> tuple[object, ...]:
        """By hand, and by the program's readers."""
        made = self.made
        return all_rows(made), made.daemon.rows(), closed_rows(made), commits_of_rows(made)

    def days_are_exact(self) -> None:
        """Each sealed run lies in the file of its own topic and day."""
        objects = {item.ref: item for item in self.made.state.objects()}
        runs = [*self.made.state.runs_all(), *self.made.state.closed_parts()]
        for run in runs:
            key = parse(objects[run.object].path)
            if isinstance(key, SegmentKey):
                days = {time_ms // ONE_DAY_MS for time_ms in (run.min_store_time, run.max_store_time)}
                assert days == {(key.day - _FIRST).days}
                assert key.folder == run.queue.topic.replace("!", "%21")


_FIRST = date(1970, 1, 1)


@pytest.mark.history
@pytest.mark.parametrize("seed", range(5))
def test_sealing_changes_no_row(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with scene(tmp_path, inline_bytes=chance.choice([0, 1 << 20]), forgets=True) as made:
        made.broker.time_ms = MIDNIGHT_MS - 3 * HOUR_MS
        world = World(made, chance)
        steps: list[Callable[[], None]] = [
            world.flush,
            world.flush,
            world.flush,
            world.trim,
            world.lose,
            world.forget,
            world.merge,
            world.seal,
            world.seal,
        ]
        for _ in range(16):
            chance.choice(steps)()
            world.days_are_exact()
        world.seal(all_days=True)
        world.days_are_exact()
        assert world.sealed > 10
        made.daemon.settle(SETTLED_SECONDS)
        folded = MemoryStore()
        made.daemon.log.reader.fold(folded)
        assert list(folded.iterate(b"r")) == list(made.state.view.iterate(b"r")), (
            "the log says what the writer holds"
        )
        archive = ArchiveReader(made.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at()
        report = Verifier(archive).run(deep=True)
        assert report.damage == []
