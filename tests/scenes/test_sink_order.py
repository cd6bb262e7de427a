"""A sink that is given the whole log in the broker's order, from the archive and from the log behind it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.sinkrunning import SinkScene
from tiered.errors import Unavailable
from tiered.feed import inorder
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase

TOPICS = ("Orders", "Bills", "Returns", "Rare")


def written(scene: SinkScene, chance: random.Random, flushes: int) -> None:
    """Messages of topics in stretches of any length, archived now and then."""
    for _ in range(flushes):
        for _ in range(chance.randrange(1, 5)):
            topic = chance.choices(TOPICS, (8, 4, 2, 1))[0]
            scene.put(chance.randrange(1, 6), topic=topic)
        scene.archive()


def begun(tmp_path: Path, *, in_order: bool = True, flushes: int = 30, seed: int = 1) -> SinkScene:
    """A log of which the broker has the end alone."""
    scene = SinkScene(tmp_path)
    written(scene, random.Random(seed), flushes)
    for _ in range(3):
        scene.log.delete_oldest()
    scene.change(order=SinkOrder("copy", "memory", in_order=in_order))
    return scene


@pytest.mark.parametrize("seed", range(4))
def test_the_archive_and_then_the_log_come_in_the_order_of_the_log(tmp_path: Path, seed: int) -> None:
    scene = begun(tmp_path, seed=seed)
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.given == scene.wrote
    written(scene, random.Random(seed + 100), 5)
    scene.run()
    assert scene.there.given == scene.wrote


def test_without_it_queues_come_one_after_the_other(tmp_path: Path) -> None:
    scene = begun(tmp_path, in_order=False)
    scene.run()
    assert scene.got() == scene.everything()
    assert scene.there.given != scene.wrote


@pytest.mark.parametrize("seed", range(6))
def test_it_goes_on_in_order_wherever_it_was_broken(tmp_path: Path, seed: int) -> None:
    """A destination that fails, and a writer that ends, between any two flushes."""
    chance = random.Random(f"broken {seed}")
    scene = begun(tmp_path, flushes=40, seed=seed)
    left = [chance.randrange(1, 30)]

    def fail(call: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            left[0] = chance.randrange(1, 30)
            raise Unavailable("broken")

    scene.there.fail = fail
    for _ in range(12):
        for _ in range(chance.randrange(1, 9)):
            scene.runner.step()
        if chance.random() < 0.4:
            scene.restart()
        if chance.random() < 0.3:
            written(scene, chance, 1)
    scene.there.fail = lambda call: None
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.given == scene.wrote


def test_more_queues_than_can_be_read_side_by_side_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inorder, "MAX_QUEUES", 3)
    scene = begun(tmp_path)
    assert scene.run() is SinkPhase.STOPPED
    assert "no more queues than this (found=4" in str(scene.runner.progress.why)
    scene.change(order=SinkOrder("copy", "memory", topics=TOPICS[:3], in_order=True))
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.given == [given for given in scene.wrote if given[0].topic != "Rare"]
