"""The index's service in a daemon: it flushes and forgets in time; what fails or stands still is said; archiving goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit import golden
from tests.unit.test_consumequeue_feed import Fed
from tiered.consumequeue.place import index_directory
from tiered.daemon.indexing import FORGET_SECONDS, Indexing, NoIndexing, open_indexing
from tiered.daemon.outages import Outages
from tiered.daemon.stillness import Stillness
from tiered.daemon.watch import StallWatch
from tiered.errors import Unavailable
from tiered.metadata.memory import MemoryRedoStore
from tiered.metrics import Metrics
from tiered.service import AGAIN, DONE
from tiered.settings import ConsumeQueue, Settings, State

LIMIT = 60.0
ARCHIVE = bytes(range(16))


class Failing(MemoryRedoStore):
    """Takes nothing while ``full``; ``flushes`` and ``reopened`` are counted."""

    full = False
    flushes = reopened = 0

    def flush(self) -> None:
        if self.full:
            raise Unavailable("the disk is full")
        self.flushes += 1

    def reopen(self) -> None:
        self.reopened += 1


class Scene:
    """An index's service over a golden broker's store, with a clock that moves when told."""

    def __init__(self, directory: Path) -> None:
        self.store = Failing()
        self.fed = Fed(golden.unpack(golden.ROCKS, directory) / "queues", index=self.store)
        self.clock = self.fed.archive().clock
        self.done = False
        self.feed = self.fed.feed()
        own = ConsumeQueue(enabled=True, flush_ms=30_000, keep_ms=3_600_000)
        self.indexing = Indexing(self.feed, own, self.clock, lambda: self.done, LIMIT)

    def submit(self) -> None:
        for draft in self.fed.drafts:
            self.indexing.submitted(draft)

    def run(self) -> object:
        while (said := self.indexing.step()) is AGAIN:
            pass
        return said


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_it_takes_what_is_submitted_flushes_in_time_and_ends_with_all_of_it(scene: Scene) -> None:
    scene.submit()
    metrics, end = Metrics(), int(scene.fed.drafts[-1].next_offset)
    scene.indexing.show(metrics)
    assert scene.indexing.lag_bytes() == end
    assert scene.run() is not DONE
    assert scene.store.flushes == 0
    scene.clock.advance(31)
    scene.run()
    assert scene.store.flushes == 1
    scene.indexing.show(metrics)
    shown = metrics.expose().decode()
    assert f"tiered_index_applied_bytes {float(end)}" in shown
    assert "tiered_index_lag_bytes 0.0" in shown
    assert f"tiered_index_messages {float(sum(draft.messages for draft in scene.fed.drafts))}" in shown
    assert scene.indexing.status() == {
        "problem": None, "lag_bytes": 0, "messages_since_start": scene.feed.messages, "begun_anew": 0,
        "lineage": 1, "begin": 0, "end": end,
    }  # fmt: skip
    scene.done = True
    assert scene.run() is DONE
    assert scene.store.flushes == 2


def test_what_is_old_is_forgotten_once_an_hour(scene: Scene) -> None:
    calls: list[int] = []
    scene.feed.forget = calls.append  # type: ignore[method-assign, assignment]
    scene.run()
    assert calls == []
    scene.clock.advance(FORGET_SECONDS)
    scene.run()
    scene.run()
    assert calls == [scene.clock.now_ms() - 3_600_000]


def test_after_an_error_of_the_store_it_is_opened_again(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.submit()
    scene.run()
    scene.store.full = True
    scene.clock.advance(31)
    with pytest.raises(Unavailable, match="full"):
        scene.run()
    assert "full" in str(scene.indexing.status()["problem"])
    with caplog.at_level(logging.WARNING):
        scene.indexing.finish()
    assert "not written to its end" in caplog.text
    scene.store.full = False
    scene.clock.advance(31)
    scene.run()
    assert scene.store.reopened == 1
    assert scene.indexing.status()["problem"] is None
    scene.indexing.finish()


def test_an_index_that_does_not_move_is_said_once_and_its_end_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    watch = StallWatch(
        scene.clock, metrics, Stillness(scene.clock, 1e9), Outages(scene.clock, 1e9), lambda: "?"
    )
    watch.index = scene.indexing.standstill

    def look(after: float) -> str:
        caplog.clear()
        scene.clock.advance(after)
        with caplog.at_level(logging.INFO):
            watch.step()
        return caplog.text

    assert look(10 * LIMIT) == "", "nothing was submitted"
    scene.submit()
    assert look(0) == ""
    assert look(LIMIT - 1) == ""
    assert "does not move" in look(2)
    assert "tiered_index_stalled 1.0" in metrics.expose().decode()
    assert look(5) == "", "said once"
    scene.run()
    assert "moves again" in look(1)
    assert "tiered_index_stalled 0.0" in metrics.expose().decode()
    scene.store.full = True
    scene.clock.advance(31)
    for _ in range(2):
        with pytest.raises(Unavailable):
            scene.run()
        assert "does not move" not in look(LIMIT / 2 - 1)
    assert "does not move" in look(2)
    assert "full" in str(scene.indexing.standstill())
    scene.store.full = False
    scene.run()
    assert "moves again" in look(0)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("broken", [False, True])
def test_one_that_cannot_be_opened_says_so_for_as_long_as_the_process_lives(
    tmp_path: Path, stack: ExitStack, broken: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tmp_path / "broker")
    state = tmp_path / "state"
    state.mkdir()
    if broken:
        Path(index_directory(str(state))).write_text("a file")
    settings = Settings(state=State(directory=str(state)), consumequeue=ConsumeQueue(enabled=True))
    opened = scene.fed.assembly.opened
    made = open_indexing(
        settings, ARCHIVE, scene.fed.assembly.source, scene.clock, lambda topic: False, opened,
        lambda: False, stack, lost=lambda lineage: (),
    )  # fmt: skip
    metrics = Metrics()
    assert made is not None
    made.show(metrics)
    if not broken:
        assert isinstance(made, Indexing)
        assert made.standstill() is None
        assert [service.name for service in made.services(metrics)] == ["index"]
        return
    assert isinstance(made, NoIndexing)
    assert "cannot be opened" in caplog.text
    assert "cannot be opened" in str(made.standstill())
    assert made.status() == {"problem": made.standstill()}
    assert made.services(metrics) == []
    made.submitted(scene.fed.drafts[0])


def test_without_the_setting_there_is_none(tmp_path: Path, stack: ExitStack) -> None:
    scene = Scene(tmp_path)
    settings = Settings(state=State(directory=str(tmp_path)))
    made = open_indexing(
        settings, ARCHIVE, scene.fed.assembly.source, scene.clock, lambda topic: False,
        scene.fed.assembly.opened, lambda: False, stack, lost=lambda lineage: (),
    )  # fmt: skip
    assert made is None
