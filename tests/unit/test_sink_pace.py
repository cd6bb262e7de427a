"""When a sink that is open is flushed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tiered.feed.base import FeedPosition
from tiered.sink.openedsink import OpenedSink
from tiered.sink.source import SinkPace

PACE = SinkPace(1_000, 0.5, 2.0, 0.1, 10.0)


def opened(**fields: Any) -> OpenedSink:
    nobody = cast("Any", None)
    return OpenedSink(nobody, nobody, nobody, 0, 0, FeedPosition(), FeedPosition(), **fields)


@pytest.mark.parametrize(
    ("backfills", "size", "age", "due"),
    [
        (False, 10, 0.4, False), (False, 10, 0.6, True), (False, 1_000, 0.0, True),
        (True, 10, 0.6, False), (True, 10, 2.0, True), (True, 1_000, 0.0, True),
    ],
)  # fmt: skip
def test_history_is_gathered_for_longer_than_what_somebody_waits_for(
    backfills: bool, size: int, age: float, due: bool
) -> None:
    found = opened(since=100.0, pending_bytes=size, backfills=backfills)
    assert found.is_due(PACE, 100.0 + age) is due


def test_history_is_not_flushed_sooner_than_the_log() -> None:
    slow = SinkPace(1_000, 5.0, 2.0, 0.1, 10.0)
    assert not opened(since=0.0, pending_bytes=1, backfills=True).is_due(slow, 4.9)


@pytest.mark.parametrize("backfills", [False, True])
def test_where_nothing_more_is_to_be_written_only_flushes_in_a_row_wait(backfills: bool) -> None:
    found = opened(since=100.0, pending_bytes=1, backfills=backfills, flushed_at=99.6)
    assert not found.is_due(PACE, 100.0, at_end=True)
    assert found.is_due(PACE, 100.11, at_end=True)
    assert not found.is_due(PACE, 100.11)
