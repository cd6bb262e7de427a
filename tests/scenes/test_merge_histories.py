"""Archives at random, merged at random: after every merge each row, live or closed, is what it was, and of its commit."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.fetchscene import SETTLED_SECONDS, Scene, scene
from tests.kit.merging import AtOnceTurn, closed_rows, commits_of_rows, merging, spread
from tests.kit.shortenedlife import ShortenedLife
from tiered.metadata.memory import MemoryStore

pytestmark = [pytest.mark.depends_only_on_imports, pytest.mark.no_cover]


class World(ShortenedLife):
    """Edits of one archive; each says whether it could be made."""

    def __init__(self, made: Scene, chance: random.Random) -> None:
        super().__init__(made, chance)
        self.merged = 0

    def flush(self) -> None:
        spread(self.made, self.chance.randint(1, 3), seed=self.chance.randrange(1 << 30), most=20)

    def merge(self) -> None:
        """Jobs of any size, compared with what was there before."""
        made = self.made
        before, closed, came = made.daemon.rows(), closed_rows(made), commits_of_rows(made)
        options = {
            "job_runs": self.chance.choice([8, 1000]),
            "job_bytes": self.chance.choice([4000, 1 << 26]),
            "growth": self.chance.choice([2, 3, 5]),
            "settled_bytes": self.chance.choice([4096, 1 << 16]),
            "window_bytes": self.chance.choice([300, 1 << 16]),
        }
        task, turn = merging(made.daemon, **options), AtOnceTurn(made.daemon)
        for _ in range(self.chance.choice([1, 2, 1000])):
            done = task.run_once(turn)
            self.merged += int(done.figures.get("merged_runs") or 0)
            assert done.trouble is None
            assert (made.daemon.rows(), closed_rows(made), commits_of_rows(made)) == (before, closed, came)
            if not done.more:
                break


@pytest.mark.history
@pytest.mark.parametrize("seed", range(6))
def test_a_merge_changes_no_row(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with scene(tmp_path, inline_bytes=chance.choice([0, 1 << 20]), forgets=True) as made:
        world = World(made, chance)
        steps: list[Callable[[], None]] = [
            world.flush,
            world.flush,
            world.trim,
            world.lose,
            world.forget,
            world.merge,
            world.merge,
        ]
        for _ in range(14):
            chance.choice(steps)()
        world.merge()
        assert world.merged > 10
        made.daemon.settle(SETTLED_SECONDS)
        folded = MemoryStore()
        made.daemon.log.reader.fold(folded)
        assert list(folded.iterate(b"r")) == list(made.state.view.iterate(b"r")), (
            "the log says what the writer holds"
        )
