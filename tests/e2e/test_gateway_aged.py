"""A consumer that is far behind reads, through the gateway, days that were merged, sealed and trimmed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.kit.agedbroker import by_consumer
from tests.kit.years import DAY_SECONDS, Traffic, ageing, month

pytestmark = pytest.mark.broker

DAYS = 4


def test_a_pull_consumer_gets_every_message_that_the_archive_keeps(tmp_path: Path) -> None:
    start_ms = int(time.time() * 1000) - DAYS * DAY_SECONDS * 1000
    traffic = Traffic(flushes_a_day=12, messages_a_flush=60)
    with month(tmp_path, ageing(1), start_ms=start_ms, traffic=traffic, file_bytes=1 << 18) as made:
        for _ in range(DAYS):
            made.day()
            made.expire(
                1
            )  # with more of them the broker has, at some hours, what was trimmed: no consumer misses that
        made.write(tmp_path / "archive")
        assert {kind for kind, (count, _) in made.objects().items() if count} >= {"commit", "data", "segment"}
        live = made.live()
        assert live.queues["Clicks", 0][0] > 0, "its beginning was trimmed"
        assert by_consumer(tmp_path, made, f"file://{tmp_path / 'archive'}") == live
