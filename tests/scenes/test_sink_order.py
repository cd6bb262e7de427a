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


@pytest.mark.parametrize("held_bytes", [1, 2000, 6000])
def test_what_is_held_is_bounded_and_larger_blocks_are_read_in_pieces(
    tmp_path: Path, held_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, scene = random.Random(5), SinkScene(tmp_path)
    for topic in chance.choices(TOPICS, (8, 4, 2, 1), k=300):
        scene.put(topic=topic)
    scene.archive()  # a block of each queue
    scene.put(60)
    scene.archive()
    for _ in range(3):
        scene.log.delete_oldest()
    scene.in_order_bytes = held_bytes
    scene.restart()
    scene.change(order=SinkOrder("copy", "memory", in_order=True))
    held, bounds = [], inorder._bounds
    record_bytes = max(scene.log.records.values(), key=len)

    def seen(heads: list[inorder._Head], most_bytes: int) -> list[int]:
        assert all(head.held_bytes == sum(len(part[0].data.obj) for part in head._parts) for head in heads)
        held.append(sum(head.held_bytes for head in heads))
        return bounds(heads, most_bytes)

    monkeypatch.setattr(inorder, "_bounds", seen)
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.given == scene.wrote
    assert max(held) <= held_bytes + len(TOPICS) * len(record_bytes)
    assert len(held) > 5, "read in pieces"


def test_every_queue_has_its_share_and_those_that_need_more_get_it() -> None:
    most, even = 1 << 20, 3 << 15
    assert inorder.even_bytes(most, 8) == even
    assert inorder.more_bytes(most, [0] * 8, 8) == 1 << 14
    assert inorder.more_bytes(most, [1000] * 7 + [0], 1) == 1 << 17
    assert inorder.more_bytes(most, [even + (1 << 18), *[1000] * 7], 1) == 0, "nothing is left of the rest"
    chance, held = random.Random(3), [0] * 20
    for _ in range(2000):  # whatever is read and given, all together hold no more
        waiting = [number for number, each in enumerate(held) if not each]
        share = inorder.even_bytes(most, len(held)) + inorder.more_bytes(most, held, len(waiting))
        for number in waiting:
            held[number] = chance.choice((share, share // 9))
        assert sum(held) <= most
        for number in chance.sample(range(20), 3):
            held[number] = 0


def test_more_queues_than_can_be_read_side_by_side_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inorder, "MAX_QUEUES", 3)
    scene = begun(tmp_path)
    assert scene.run() is SinkPhase.STOPPED
    assert "no more queues than this (expected=≤ 3, found=more" in str(scene.runner.progress.why)
    scene.change(order=SinkOrder("copy", "memory", topics=TOPICS[:3], in_order=True))
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.given == [given for given in scene.wrote if given[0].topic != "Rare"]
