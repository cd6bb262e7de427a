"""Reads that go on inside of a block in memory: answered without the whole way, and as a reader is that takes it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.kit.aged import READABLE, Stage, aged_cold
from tests.kit.pipeline import INNER_BATCH
from tests.kit.readstore import READER, Cold, cold
from tiered.archive.state.view import ArchiveState
from tiered.fetch import fetcher
from tiered.fetch.base import FetchedRecords, ReaderId
from tiered.fetch.fetcher import Fetcher
from tiered.fetch.pull import Pull
from tiered.filter.tags import tag_filter
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue

S = GetMessageStatus
PULLS = 250
MESSAGES = 40


@contextmanager
def going_on() -> Iterator[list[bool]]:
    """Of each read that might go on whether it did."""
    seen: list[bool] = []
    asked = Fetcher.read_on

    def read_on(self: Fetcher, state: ArchiveState, queue: MessageQueue, pull: Pull) -> FetchedRecords | None:
        found = asked(self, state, queue, pull)
        seen.append(found is not None)
        return found

    with patch.object(Fetcher, "read_on", read_on):
        yield seen


def fill(made: Cold) -> None:
    """A queue of single messages and inner batches in two flushes, and one with a hole."""
    for flush in range(2):
        for number in range(MESSAGES // 2):
            made.broker.time_ms += 10
            inner = {"sys_flag": INNER_BATCH, "properties": {"INNER_NUM": "3"}} if number % 7 == 5 else {}
            made.broker.send(body=b"%d" % number * (1 + number % 5), **inner)
        for offset in range(100 * flush, 100 * flush + 10):
            made.broker.send("Jumpy", 0, b"%d" % offset, queue_offset=offset)
        made.archive()
    made.open()


def whole_way(made: Cold, pull: Pull, number: int) -> GetMessageResult:
    """The answer to somebody who has never read before."""
    reader = ReaderId(f"new {number}")
    return made.store.get_message(
        Pull(reader, pull.topic, pull.queue_id, pull.offset, pull.max_count, pull.max_bytes, pull.row_filter)
    )


@pytest.mark.parametrize("stage", READABLE, ids=lambda stage: stage.value)
def test_who_goes_on_is_answered_as_who_comes_anew(tmp_path: Path, stage: Stage) -> None:
    """Pulls of any size, mostly where the last one ended, by threads that wait and by ones that do not."""
    chance = random.Random(f"going on {stage.value}")
    with aged_cold(tmp_path, stage, open_now=False) as made, going_on() as seen:
        fill(made)
        offsets = {"Orders": 0, "Jumpy": 0}
        for number in range(PULLS):
            topic = chance.choice(("Orders", "Orders", "Jumpy"))
            offset = offsets[topic] if chance.random() < 0.9 else chance.randrange(-1, 115)
            count, most = chance.choice((0, 1, 1, 2, 3, 50)), chance.choice((1 << 18, 1 << 18, 200, 0))
            taken = tag_filter("TagA") if chance.random() < 0.05 else None
            pull = Pull(READER, topic, 0, offset, count, most, taken)
            if chance.random() < 0.5:
                found = made.store.get_message(pull)
            else:
                found = made.store.get_message_async(pull).result(10)
            assert found == whole_way(made, pull, number), (number, pull)
            offsets[topic] = found.next_begin_offset
            if found.status in (S.OFFSET_OVERFLOW_ONE, S.OFFSET_OVERFLOW_BADLY):
                offsets[topic] = 0
        assert sum(seen) > PULLS // 10


def test_it_asks_the_store_for_nothing_and_counts_as_a_read(tmp_path: Path) -> None:
    with cold(tmp_path, open_now=False) as made, going_on() as seen:
        fill(made)
        made.get("Orders", 0, 0, 2)
        calls = len(made.provider.calls)
        told = [
            made.metrics.value("tiered_reads_total", status="FOUND"),
            made.metrics.value("tiered_read_messages_total"),
        ]
        found = made.get("Orders", 0, 2, 3)
        assert (seen, found.queue_offsets, found.next_begin_offset) == ([True], (2, 3, 4), 5)
        assert len(made.provider.calls) == calls
        assert [
            made.metrics.value("tiered_reads_total", status="FOUND"),
            made.metrics.value("tiered_read_messages_total"),
        ] == [told[0] + 1, told[1] + 3]  # type: ignore[operator]


def test_what_is_no_longer_in_memory_is_fetched(tmp_path: Path) -> None:
    with cold(tmp_path, open_now=False) as made, going_on() as seen:
        fill(made)
        made.get("Orders", 0, 0, 2)
        engine = made.store._puller._engine
        assert engine is not None
        engine.budget.release(engine.cache.clear())
        assert made.get("Orders", 0, 2, 3).queue_offsets == (2, 3, 4)
        assert seen == [False]


def test_who_goes_back_does_not_go_on(tmp_path: Path) -> None:
    """Into the block before the one in which its last read ended."""
    with cold(tmp_path, open_now=False) as made, going_on() as seen:
        fill(made)
        made.get("Orders", 0, 0, MESSAGES // 2 + 3)
        assert made.get("Orders", 0, 1, 2).queue_offsets == (1, 2)
        assert seen == [False]


def test_the_whole_way_is_taken_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block may be larger than what a reader is fetched ahead."""
    monkeypatch.setattr(fetcher, "STANDING_BYTES", 600)
    with cold(tmp_path, open_now=False) as made, going_on() as seen:
        fill(made)
        offset, sizes = 0, []
        for _ in range(12):
            found = made.get("Orders", 0, offset, 1)
            offset, sizes = int(found.next_begin_offset), [*sizes, found.buffer_bytes]
        at_most = 600 // min(sizes) + 1
        assert {True, False} == set(seen)
        assert "".join("x" if went_on else " " for went_on in seen).find("x" * (at_most + 1)) < 0


def test_a_newer_state_is_looked_at_anew(tmp_path: Path) -> None:
    """Where another reader has learnt it, too: a topic that was deleted and made again has other messages there."""
    with cold(tmp_path, open_now=False) as made, going_on() as seen:
        fill(made)
        made.get("Orders", 0, 0, 2)
        assert made.get("Orders", 0, 2, 2).status is S.FOUND
        for number in range(8):
            made.broker.send("Orders", 0, b"born again %d" % number, queue_offset=number)
        made.archive()
        made.fresh()
        assert made.store.follow()
        other = made.store.get_message(Pull(ReaderId("other"), "Orders", 0, 0, 2))
        assert [bytes(record) for record in other.records] == made.raws("Orders")[-8:-6]
        found = made.get("Orders", 0, 4, 2)
        assert [bytes(record) for record in found.records] == made.raws("Orders")[-4:-2]
        assert made.get("Orders", 0, 6, 9).next_begin_offset == 8
        assert made.get("Orders", 0, 8, 2).status is S.OFFSET_OVERFLOW_ONE
        assert seen[:2] == [True, False]
