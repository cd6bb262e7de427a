"""A sink whose destination has offsets: where it put every message is in the archive, together with how far it is, also when
processes end between the destination and the archive."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.sinkrunning import Remembered, RememberingSink, SinkScene, away
from tiered.archive.read.besides import damaged_maps
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.archive.state.keys import SINK_MAP
from tiered.archive.state.offsetmap import OffsetMap
from tiered.archive.state.sinkmaps import pack_map, sink_maps, unpack_map
from tiered.archive.state.sinks import sink_queues
from tiered.archive.state.view import ArchiveState
from tiered.errors import Invalid
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.sink.base import OffsetSink, Placed, SafePoint, Sink, SinkPosition, Unmapped, WentTo
from tiered.sink.book import StoredSink
from tiered.sink.progress import SinkPhase

ORDERS, PAYMENTS = MessageQueue("Orders", 0), MessageQueue("Payments", 0)


@dataclass
class Numbered(Remembered):
    """All queues share one partition; a message's offset is its place among all, twice counted: markers lie between."""

    readable: bool = True
    reminded: list[dict[MessageQueue, WentTo]] = field(default_factory=list)
    gone: bool = False
    """What it had is not there any more."""

    def open(self, stored: StoredSink, anew: bool) -> Sink:
        self.fail("open")
        self.opened += 1
        return NumberedSink(self)


class NumberedSink(RememberingSink):
    def __init__(self, there: Numbered) -> None:
        super().__init__(there)
        self._numbered = there

    def flush(self, position: SinkPosition) -> SafePoint:
        first = len(self._numbered.given)
        safe = super().flush(position)
        return SafePoint(safe.position, tuple(self._places(first)))

    def _places(self, first: int) -> list[Placed]:
        given = self._numbered.given
        return [_place(given[at][0], given[at][1], at) for at in range(first, len(given))]

    def remind(self, went: Mapping[MessageQueue, WentTo]) -> None:
        self._numbered.reminded.append(dict(went))
        if self._numbered.gone:
            raise Invalid("deleted and made anew")

    def placed_between(
        self, unmapped: Mapping[MessageQueue, Unmapped]
    ) -> dict[MessageQueue, tuple[Placed, ...]]:
        if not self._numbered.readable:
            return {}
        return {
            queue: tuple(
                p
                for p in self._places(0)
                if p.queue == queue
                and (gap.first or 0) <= p.first_offset < gap.end
                and p.target_offset >= gap.target_offset
            )
            for queue, gap in unmapped.items()
        }


def _place(queue: MessageQueue, offset: int, at: int) -> Placed:
    return Placed(queue, offset, 1, "all", 0, 2 * at, target_id="id")


@pytest.fixture
def scene(tmp_path: Path) -> SinkScene:
    made = SinkScene(tmp_path)
    made.there = Numbered()
    return made


def maps(scene: SinkScene) -> dict[MessageQueue, OffsetMap]:
    return dict(sink_maps(scene.daemon.log.frozen().view, scene.stored.sink_id))


def judge(scene: SinkScene, begins: Mapping[MessageQueue, int] | None = None) -> None:
    """The archive's map has the place of every message, up to where the sink is."""
    found = maps(scene)
    reached = {
        queue: at.next for queue, at in sink_queues(scene.daemon.log.frozen().view, scene.stored.sink_id)
    }
    assert {queue: known.end for queue, known in found.items()} == reached
    assert {queue: known.start for queue, known in found.items()} == (begins or dict.fromkeys(reached, 0))
    for at, (queue, offset, _) in enumerate(scene.there.given):
        if offset >= found[queue].start:
            assert found[queue].locate(offset) == (2 * at, 2 * at), f"{queue} {offset}"


def some(scene: SinkScene) -> None:
    for _ in range(3):
        scene.put(2)
        scene.put(1, "Payments")
    scene.archive()
    scene.run()


def test_the_archive_has_the_place_of_every_message(scene: SinkScene) -> None:
    for _ in range(3):
        some(scene)
        scene.commit()
        judge(scene)
    assert isinstance(NumberedSink(Numbered()), OffsetSink)
    assert not isinstance(RememberingSink(Remembered()), OffsetSink)


def test_flushes_that_wait_for_a_commit_come_together(scene: SinkScene) -> None:
    some(scene)
    some(scene)
    scene.commit()
    judge(scene)
    scene.restart()
    some(scene)
    scene.commit()
    judge(scene)


@pytest.mark.parametrize("before", [False, True])
def test_killed_between_the_destination_and_the_archive(scene: SinkScene, before: bool) -> None:
    """Flushed, and in no commit: the next process finds it there. ``before``: the archive knows the sink already."""
    if before:
        some(scene)
        scene.commit()
    some(scene)
    scene.restart()
    some(scene)
    scene.commit()
    judge(scene)


def test_an_answer_that_was_lost(scene: SinkScene) -> None:
    """The destination has it, the process lives on and does not know."""
    some(scene)
    scene.commit()
    scene.there.fail = away(1, "flushed")
    some(scene)
    scene.commit()
    judge(scene)


def test_what_cannot_be_found_again_is_said_and_the_map_begins_behind_it(
    scene: SinkScene, caplog: pytest.LogCaptureFixture
) -> None:
    some(scene)
    scene.commit()
    some(scene)
    scene.restart()
    assert isinstance(scene.there, Numbered)
    scene.there.readable = False
    begins = {ORDERS: scene.next[ORDERS], PAYMENTS: scene.next[PAYMENTS]}
    with caplog.at_level(logging.WARNING):
        some(scene)
    assert "map of offsets begins anew" in caplog.text
    scene.commit()
    judge(scene, begins)
    assert maps(scene)[ORDERS].locate(begins[ORDERS] - 1) is None


def test_a_sink_that_was_kept_without_maps_gets_them_from_where_it_is(scene: SinkScene) -> None:
    """As with a daemon from before there were maps."""
    numbered, scene.there = scene.there, Remembered()
    some(scene)
    scene.commit()
    assert maps(scene) == {}
    begins = {ORDERS: scene.next[ORDERS], PAYMENTS: scene.next[PAYMENTS]}
    numbered.given, numbered.position = scene.there.given, scene.there.position
    scene.there = numbered
    scene.restart()
    some(scene)
    scene.commit()
    judge(scene, begins)


def test_begun_again_the_map_begins_again(scene: SinkScene) -> None:
    some(scene)
    scene.commit()
    scene.change(rewind_ms=None)
    scene.run()
    scene.commit()
    found = maps(scene)[ORDERS].locate(0)
    last = max(
        at for at, (queue, offset, _) in enumerate(scene.there.given) if (queue, offset) == (ORDERS, 0)
    )
    assert found == (2 * last, 2 * last)
    assert len(scene.there.given) == 2 * len(scene.wrote)


def test_a_destination_is_reminded_of_where_messages_went_before_it_is_given_more(scene: SinkScene) -> None:
    """Not one that begins anew; one that is another now stops the sink before anything is given or forgotten."""
    there: Any = scene.there
    some(scene)
    scene.commit()
    scene.restart()
    some(scene)
    assert there.reminded == [dict.fromkeys((ORDERS, PAYMENTS), WentTo("all", 0, "id"))]
    scene.commit()
    scene.restart()
    there.gone, before = True, len(there.given)
    some(scene)
    assert (scene.runner.progress.phase, len(there.given)) == (SinkPhase.STOPPED, before)
    assert "made anew" in str(scene.runner.progress.why)
    scene.change(rewind_ms=None)
    scene.run()
    scene.commit()
    assert len(there.reminded) == 2
    assert maps(scene)[ORDERS].start == 0
    assert len(there.given) == before + len(scene.wrote)


def test_verify_looks_at_maps(scene: SinkScene) -> None:
    some(scene)
    scene.commit()
    daemon = scene.daemon
    archive = View(daemon.log.frozen().head(), daemon.log.frozen(), daemon.objects, daemon.log.reader)
    report = Verifier(archive).run(deep=False)
    assert (report.damage, report.sink_maps) == ([], 2)
    frozen: Any = dict(daemon.log.frozen().view.iterate(b""))
    (key,) = (name for name in frozen if name.startswith(SINK_MAP) and b"Orders" in name)
    for wrong, words in (
        (b"\x93\x01\x02\x03", "map"),
        (pack_map(unpack_map(frozen[key]).cut(3)), "end where the sink is"),
    ):
        store = MemoryStore()
        store.put_many({**frozen, key: wrong}.items(), applied=None)
        looked = [
            error
            for _, error in damaged_maps(replace(archive, state=ArchiveState(store)))
            if error is not None
        ]
        assert len(looked) == 1
        assert words in str(looked[0])
