"""Sealed days hold what their sources held, byte for byte; what is sealed when; and sources that change or are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from tests.kit.aged import Stage, age
from tests.kit.fetchscene import Scene, scene
from tests.kit.sealing import after_midnight, all_rows, seal_all
from tiered.archive.keys import SegmentKey, parse
from tiered.archive.state.values import ObjectState


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def referenced(made: Scene, level: int) -> list[ObjectState]:
    return [item for item in made.state.objects() if item.references and item.level == level]


def places(made: Scene) -> list[tuple[str, date]]:
    """Topic and day of each segment."""
    found = [parse(item.path) for item in referenced(made, 2)]
    assert all(isinstance(each, SegmentKey) for each in found)
    return sorted((each.folder, each.day) for each in found if isinstance(each, SegmentKey))


def shown(made: Scene) -> list[object]:
    return [
        (q.queue, q.min_offset, q.max_offset, q.flat_end, q.messages, q.bytes, q.min_store_time, q.max_store_time)
        for q in made.state.queues()
    ]  # fmt: skip


@pytest.mark.parametrize("stage", [Stage.FRESH, Stage.MERGED])
def test_rows_are_the_same_and_lie_in_files_by_topic_and_day(small: Scene, stage: Stage) -> None:
    age(small, stage)
    before, queues = all_rows(small), shown(small)
    after_midnight(small, days=2)
    done = seal_all(small.daemon)
    assert all_rows(small) == before
    assert shown(small) == queues
    first, second = date(2023, 11, 14), date(2023, 11, 15)
    topics = ["%21off-queue", "Orders", "Payments"]
    assert places(small) == [(topic, day) for topic in topics for day in (first, second)]
    assert not referenced(small, 0) + referenced(small, 1)
    assert sum(int(each.figures.get("messages") or 0) for each in done) == sum(map(len, before.values()))
