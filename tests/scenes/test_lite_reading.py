"""Reads of lite queues: every place of every record, once, in order, byte for byte, whatever has become of the archive."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.kit.aged import READABLE, Stage, aged_cold
from tests.kit.assemble import put
from tests.kit.litebroker import LiteBroker, lite_cold
from tests.kit.litebroker import broker_of as broker
from tests.kit.readstore import READER, Cold
from tiered.codec.format.edits import EditKind, batch
from tiered.errors import Corrupt
from tiered.fetch.pull import Pull
from tiered.filter.tags import TagFilter
from tiered.model import GetMessageStatus
from tiered.store import lite, puller

S = GetMessageStatus
NAMES = ["%LMQ%a", "%LMQ%b", "%LMQ%c"]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cold]:
    with lite_cold(tmp_path) as (scene, _):
        yield scene


def fill(made: Cold, flushes: int = 4, messages: int = 15, seed: int = 3) -> None:
    chance = random.Random(seed)
    for _ in range(flushes):
        for number in range(messages):
            made.broker.time_ms += 10
            broker(made).place(chance.sample(NAMES, chance.choice([0, 1, 2])), queue_id=number % 2)
        made.archive()


def everything(made: Cold, name: str, count: int = 7, offset: int = 0) -> dict[int, bytes]:
    """A lite queue from its beginning to its end, as a consumer goes on."""
    found: dict[int, bytes] = {}
    while True:
        answer = made.get(name, 0, offset, count)
        if answer.status is S.OFFSET_OVERFLOW_ONE:
            return found
        assert answer.status in (S.FOUND, S.OFFSET_FOUND_NULL, S.OFFSET_TOO_SMALL)
        assert answer.next_begin_offset > offset
        offset = answer.next_begin_offset
        found |= dict(zip(answer.queue_offsets, map(bytes, answer.records), strict=True))


def test_every_record_of_every_lite_queue(made: Cold) -> None:
    fill(made)
    made.open()
    for name in NAMES:
        for count in (1, 7, 100):
            assert everything(made, name, count) == broker(made).placed()[name]
        assert len(made.get(name, 0, 0, 100).records) == len(broker(made).placed()[name]), "in one answer"
    assert everything(made, "%LMQ%a", 100, 5) == {
        o: raw for o, raw in broker(made).placed()["%LMQ%a"].items() if o >= 5
    }


def test_what_is_answered_at_the_edges(made: Cold) -> None:
    fill(made)
    made.open()
    end = len(broker(made).placed()["%LMQ%a"])
    for offset, status, following in (
        (-1, S.OFFSET_TOO_SMALL, 0), (end, S.OFFSET_OVERFLOW_ONE, end), (end + 1, S.OFFSET_OVERFLOW_BADLY, end),
    ):  # fmt: skip
        answer = made.get("%LMQ%a", 0, offset)
        assert (answer.status, answer.next_begin_offset) == (status, following)
        assert (answer.min_offset, answer.max_offset) == (0, end)
    assert made.get("%LMQ%a", 1, 0).status is S.NO_MATCHED_LOGIC_QUEUE
    assert made.get("%LMQ%unknown", 0, 0).status is S.NO_MATCHED_LOGIC_QUEUE
    assert made.get("%LMQ%\udcff", 0, 0).status is S.NO_MATCHED_LOGIC_QUEUE
    assert made.get("%LMQ%a", 0, 0, 0).status is S.OFFSET_FOUND_NULL


def test_a_new_commit_is_seen(made: Cold) -> None:
    fill(made, flushes=1)
    made.open()
    end = len(broker(made).placed()["%LMQ%a"])
    broker(made).place(["%LMQ%a"], body=b"new")
    made.archive()
    made.fresh()
    answer = made.get("%LMQ%a", 0, end)
    assert [bytes(r) for r in answer.records] == [broker(made).sent[-1][1]]


def test_bytes_and_filter(made: Cold) -> None:
    fill(made)
    made.open()
    placed = broker(made).placed()["%LMQ%b"]
    one = made.get("%LMQ%b", 0, 0, 100, max_bytes=1)
    assert [bytes(r) for r in one.records] == [placed[0]], "one at least"
    assert one.next_begin_offset == 1
    wanted = TagFilter(["T1"])
    found = made.get("%LMQ%b", 0, 0, 10_000, row_filter=wanted)
    expected = {o: raw for o, raw in placed.items() if b"TAGS\x01T1\x02" in raw}
    assert 0 < len(expected) < len(placed)
    assert dict(zip(found.queue_offsets, map(bytes, found.records), strict=True)) == expected
    assert found.next_begin_offset == len(placed)


def test_holes_are_said_and_gone_over(made: Cold) -> None:
    for offset in (3, 4, 9, 10):
        broker(made).numbered["%LMQ%a"] = offset
        broker(made).place(["%LMQ%a"])
    made.archive()
    made.open()
    answer = made.get("%LMQ%a", 0, 3, 10)
    assert (answer.queue_offsets, answer.next_begin_offset) == ((3, 4), 5), "never over a hole"
    answer = made.get("%LMQ%a", 0, 5, 10)
    assert (answer.status, answer.next_begin_offset) == (S.OFFSET_FOUND_NULL, 9)
    assert everything(made, "%LMQ%a", offset=3) == broker(made).placed()["%LMQ%a"]


@pytest.mark.parametrize("stage", READABLE)
def test_at_every_stage_of_ageing(tmp_path: Path, stage: Stage) -> None:
    with aged_cold(tmp_path, stage, open_now=False, dispatch={"lite_queues": True}) as made:
        made.broker = LiteBroker(made.broker.store)
        fill(made)
        made.open()
        for name in NAMES:
            assert everything(made, name) == broker(made).placed()[name]


def trim(made: Cold, first: int, queue_id: int = 0) -> None:
    put(
        made.daemon.log,
        batch(EditKind.TRIM_QUEUE, topic="Orders", queue_id=queue_id, generation=1, first_offset=first),
    )


def test_where_retention_took_the_records_the_queue_begins_later(made: Cold) -> None:
    for number in range(40):
        broker(made).place(["%LMQ%a"], queue_id=int(number >= 30))
    made.archive()
    trim(made, 25)
    made.open()
    answer = made.get("%LMQ%a", 0, 3)
    assert (answer.status, answer.next_begin_offset, answer.min_offset) == (S.OFFSET_TOO_SMALL, 25, 25)
    assert (made.store.min_offset("%LMQ%a", 0), made.store.offset_by_time("%LMQ%a", 0, 0)) == (25, 25)
    placed = broker(made).placed()["%LMQ%a"]
    assert everything(made, "%LMQ%a") == {o: raw for o, raw in placed.items() if o >= 25}
    trim(made, 10, queue_id=1)
    made.fresh()
    assert made.store.follow()
    answer = made.get("%LMQ%a", 0, 30)
    assert (answer.status, answer.next_begin_offset) == (S.OFFSET_FOUND_NULL, 40), (
        "behind what is kept it is a hole"
    )
    trim(made, 30)
    made.fresh()
    assert made.store.follow()
    answer = made.get("%LMQ%a", 0, 0)
    assert (answer.status, answer.next_begin_offset, answer.min_offset) == (S.OFFSET_TOO_SMALL, 40, 40)


def test_one_answer_passes_over_no_more_than_a_bound(made: Cold) -> None:
    for _ in range(40):
        broker(made).place(["%LMQ%a"])
    made.archive()
    trim(made, 25)
    made.open()
    with patch.object(lite, "MOST_SKIPPED", 10):
        answer = made.get("%LMQ%a", 0, 0)
        assert answer.next_begin_offset == 25, "one run is looked at as a whole"
        assert len(everything(made, "%LMQ%a")) == 15


def test_what_the_broker_lost_is_not_read(made: Cold) -> None:
    fill(made, flushes=2)
    broker(made).crash(broker(made).sent[20][0].physical_offset)
    broker(made).place(["%LMQ%a", "%LMQ%c"], body=b"another")
    made.restart()
    made.archive()
    made.open()
    for name in NAMES:
        assert everything(made, name) == broker(made).placed()[name]


def test_another_record_than_the_one_that_was_put_there_is_never_given(made: Cold) -> None:
    fill(made, flushes=1)
    made.open()
    state = made.store.view.state
    place = lite.decide_lite(state, Pull(READER, "%LMQ%a", 0, 0, 5))
    assert isinstance(place, lite.LitePlace)
    wrong = replace(place.aliases[0], physical_offset=place.aliases[0].physical_offset + 1)
    damaged = replace(place, aliases=(wrong, *place.aliases[1:]))
    with (
        patch.object(puller, "decide_lite", lambda *_: damaged),
        pytest.raises(Corrupt, match="another record"),
    ):
        made.get("%LMQ%a", 0, 0)


def test_messages_sent_to_a_topic_of_that_name_are_a_queue_like_any_other(made: Cold) -> None:
    made.broker.send("%LMQ%direct", body=b"d")
    made.archive()
    made.open()
    answer = made.get("%LMQ%direct", 0, 0)
    assert [bytes(r) for r in answer.records] == [made.broker.sent[-1][1]]


def test_records_that_follow_each_other_are_one_read_of_their_queue(made: Cold) -> None:
    """Neighbours of one block cost one request."""
    for _ in range(200):
        broker(made).place(["%LMQ%a"])
    made.archive()
    made.open()
    made.provider.calls.clear()
    assert len(made.get("%LMQ%a", 0, 0, 200).records) == 200
    assert len(made.provider.calls) <= 4


def test_offsets_and_times(made: Cold) -> None:
    fill(made)
    made.open()
    placed = broker(made).placed()["%LMQ%c"]
    assert (made.store.min_offset("%LMQ%c", 0), made.store.max_offset("%LMQ%c", 0)) == (0, len(placed))
    times = {offset: int.from_bytes(raw[56:64], "big") for offset, raw in placed.items()}
    assert made.store.earliest_message_time("%LMQ%c", 0) == times[0]
    for offset, stored in times.items():
        assert made.store.message_time("%LMQ%c", 0, offset) == stored
        assert made.store.offset_by_time("%LMQ%c", 0, stored) == offset
        assert made.store.offset_by_time("%LMQ%c", 0, stored - 9) == offset
    assert made.store.offset_by_time("%LMQ%c", 0, times[len(placed) - 1] + 1) == len(placed)
    assert made.store.message_time("%LMQ%c", 0, len(placed)) is None
    assert made.store.min_offset("%LMQ%x", 0) is None
