"""Random lives of a sink beside its writer: kills, failures, expiry, changed orders; what the destination has in the end is
compared with a list of what the log ever held."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.sinkrunning import SinkScene
from tiered.errors import Unavailable
from tiered.model import MessageQueue
from tiered.sink.order import SinkOrder

pytestmark = [pytest.mark.depends_only_on_imports, pytest.mark.no_cover]
SEEDS, PARTS, STEPS = 60, 3, 18
TOPICS = ("Orders", "Bills", "Audits")


class Life:
    """One history. ``done`` counts what happened."""

    def __init__(self, directory: Path, seed: int, done: Counter[str], *, keeps: bool) -> None:
        self.chance = random.Random(seed)
        self.scene = SinkScene(directory, keeps=keeps, file_bytes=2048)
        self.scene.there.half = not keeps and self.chance.random() < 0.5
        self.done = done
        self.left = 0
        self.scene.there.fail = self._fail
        self.write()
        self.archive()

    def _fail(self, call: str) -> None:
        if self.left and self.chance.random() < 0.3:
            self.left -= 1
            self.done["failures"] += 1
            raise Unavailable("away", call=call)

    def step(self) -> None:
        steps = [
            self.write,
            self.write,
            self.archive,
            self.archive,
            self.run,
            self.run,
            self.kill,
            self.fail,
            self.commit,
        ]
        self.chance.choice([*steps, self.expire, self.expire, self.reorder])()

    def write(self) -> None:
        for _ in range(self.chance.randint(1, 30)):
            self.scene.put(topic=self.chance.choice(TOPICS))

    def archive(self) -> None:
        self.scene.archive()

    def run(self) -> None:
        for _ in range(self.chance.randint(1, 8)):
            wait = self.scene.runner.step().wait_seconds or 0
            self.scene.clock.advance(wait)

    def kill(self) -> None:
        self.done["kills"] += 1
        self.scene.restart()

    def fail(self) -> None:
        self.left = self.chance.randint(1, 3)

    def commit(self) -> None:
        self.scene.commit()

    def expire(self) -> None:
        """The broker deletes files that are archived."""
        bases = self.scene.log.bases()
        if len(bases) > 1 and bases[1] <= self.scene.proven:
            self.scene.log.delete_oldest()
            self.done["expired"] += 1

    def reorder(self) -> None:
        exclude = self.chance.choice([(), ("Audits",), ("Bills", "Audits")])
        self.scene.change(order=SinkOrder("copy", "memory", exclude=exclude))
        self.done["orders"] += 1

    def end(self) -> None:
        """All topics, and nothing fails any more."""
        self.left = 0
        self.scene.change(order=SinkOrder("copy", "memory"), paused=False)
        self.scene.archive()
        self.scene.run()


@pytest.mark.history
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("keeps", [True, False], ids=["keeps", "keeps-nothing"])
def test_every_message_is_there_once_or_at_least_once_in_order(part: int, keeps: bool) -> None:
    done: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        with tempfile.TemporaryDirectory() as directory:
            life = Life(Path(directory), seed, done, keeps=keeps)
            for _ in range(STEPS):
                life.step()
            life.end()
            scene = life.scene
            assert (scene.ledger.trouble, scene.runner.progress.lost_messages) == (None, 0), seed
            for topic in TOPICS:
                check(scene, MessageQueue(topic, 0), seed, keeps=keeps, done=done)
            scene.daemon.close()
    assert min(done[name] for name in ("kills", "failures", "expired", "orders", "messages")) > 5, done


def check(scene: SinkScene, queue: MessageQueue, seed: int, *, keeps: bool, done: Counter[str]) -> None:
    wanted = [given for given in scene.wrote if given[0] == queue]
    had = [given for given in scene.there.given if given[0] == queue]
    done["messages"] += len(had)
    if keeps:
        assert had == wanted, seed
        return
    seen = 0
    for given in had:  # a stretch that comes again begins anywhere before, and nothing is ever left out
        assert given == wanted[given[1]], seed
        assert given[1] <= seen, (seed, "a message was left out")
        seen = max(seen, given[1] + 1)
    assert seen == len(wanted), seed
    for before, after in pairwise(had):
        assert after[1] == before[1] + 1 or after[1] <= before[1], seed
