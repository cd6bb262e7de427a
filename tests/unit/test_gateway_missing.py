"""Answers that leave records out, where something else stands in the way of seeing it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kit.fakearchive import record
from tests.kit.gatewaydesk import RETRY, Desk, answered, fields, found, offsets_of, pull
from tiered.codec.record.message import decode_message, encode_message
from tiered.errors import Unavailable
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.knowledge.caughtup import CALM_SECONDS
from tiered.gateway.ports import NEED_BODY, PASS
from tiered.gateway.pull.gaps import agree, before

MUCH = " || ".join(f"tag-{number}" for number in range(8000))
"""A list of tags that is longer than any filter the gateway runs."""


def bodies(*offsets: int) -> bytes:
    """Records back to back."""
    return b"".join(record("T", 0, offset) for offset in offsets)


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 0, 150)
    yield made
    made.close()


class TestForce:
    """The archive first is no reason to let a loss pass."""

    @pytest.fixture
    def desk(self, desk: Desk) -> Desk:
        desk.archive.levels["T"] = StorageLevel.FORCE
        return desk

    @pytest.mark.parametrize("has", [range(110, 120), (100, 101, 110)], ids=["before", "between"])
    def test_records_missing_are_waited_for_while_the_archive_is_away(self, desk: Desk, has: range) -> None:
        gappy = answered(0, "FOUND", 120, 0, 200, body=bodies(*has))
        assert offsets_of(desk.ask(pull(offset=100, count=20), gappy)) == list(range(100, 120))
        desk.archive.error = Unavailable("away")
        assert desk.ask(pull(offset=100), gappy) == RETRY

    def test_and_beyond_the_end_of_the_archive(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 100)
        assert desk.ask(pull(offset=100), found("T", 0, range(110, 120), 0, 200)) == RETRY

    def test_what_a_filter_may_have_left_out_is_waited_for_too(self, desk: Desk) -> None:
        desk.archive.error, desk.begin = Unavailable("away"), 1 << 20
        for answer in (
            found("T", 0, range(110, 120), 0, 200),
            answered(20, "NO_MATCHED_MESSAGE", 120, 0, 200),
        ):
            assert desk.ask(pull(offset=100, subscription="a"), answer) == RETRY

    def test_a_broker_that_has_deleted_nothing_still_comes_second(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 150, properties={o: {"TAGS": "a"} for o in (105, 110, 115, 130)})
        desk.begin = 0
        answer = answered(0, "FOUND", 120, 0, 200, body=bodies(105, 110, 115))
        assert offsets_of(desk.ask(pull(offset=100, subscription="a"), answer)) == [105, 110, 115, 130]
        desk.archive.error = Unavailable("away")
        assert desk.ask(pull(offset=100, subscription="a"), answer) is answer


class TestFiltersThatCannotBeRun:
    def test_what_they_may_hide_is_waited_for_until_the_broker_is_calm(self, desk: Desk) -> None:
        request, answer = pull(offset=41, subscription=MUCH), found("T", 0, range(60, 61), 0, 200)
        desk.begin = 1 << 20
        assert desk.ask(request, answer) == RETRY
        desk.clock.advance(CALM_SECONDS)
        assert desk.ask(request, answer) is answer
        desk.begin = 2 << 20
        assert desk.ask(request, answer) == RETRY
        desk.begin = None
        assert desk.ask(request, answer) == RETRY

    def test_a_broker_that_has_deleted_nothing_answers_at_once(self, desk: Desk) -> None:
        answer = found("T", 0, range(60, 61), 0, 200)
        desk.begin = 0
        assert desk.ask(pull(offset=41, subscription=MUCH), answer) is answer


class TestEdgesOfTheArchive:
    """Its own begin, or a hole, inside what the answer lacks."""

    def test_what_is_archived_behind_its_begin_is_served(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 105, 150)
        made = desk.ask(pull(offset=100, count=8), found("T", 0, range(110, 120), 0, 200))
        assert offsets_of(made) == list(range(105, 113))
        assert fields(made)["nextBeginOffset"] == "113"
        desk.archive.error = Unavailable("away")
        assert desk.ask(pull(offset=100), found("T", 0, range(110, 120), 0, 200)) == RETRY

    def test_what_is_archived_behind_a_hole_is_served_and_the_hole_is_counted(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 150, holes=[(98, 103)])
        made = desk.ask(pull(offset=100, count=8), found("T", 0, range(110, 120), 0, 200))
        assert offsets_of(made) == list(range(103, 111))
        assert desk.metrics.value("tiered_cold_hole_messages_total") == 3

    def test_a_begin_and_a_hole_in_one_gap(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 102, 150, holes=[(102, 104)])
        made = desk.ask(pull(offset=100, count=8), found("T", 0, range(110, 120), 0, 200))
        assert offsets_of(made) == list(range(104, 112))

    def test_the_brokers_own_records_ahead_of_the_edge_come_first(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 150, holes=[(98, 105)])
        gappy = answered(0, "FOUND", 120, 0, 200, body=bodies(100, 101, *range(110, 120)))
        made = desk.ask(pull(offset=100), gappy)
        assert offsets_of(made) == [100, 101]
        assert fields(made)["nextBeginOffset"] == "105"
        assert fields(made)["maxOffset"] == "200"
        assert desk.metrics.value("tiered_cold_hole_messages_total") == 3
        made = desk.ask(pull(offset=105, count=6), found("T", 0, range(110, 120), 0, 200))
        assert offsets_of(made) == list(range(105, 111))

    def test_a_gap_that_the_archive_has_nothing_of_passes(self, desk: Desk) -> None:
        answer = found("T", 0, range(110, 120), 0, 200)
        desk.archive.fill("T", 0, 110, 150)
        assert desk.ask(pull(offset=100), answer) is answer
        desk.archive.fill("T", 0, 130, 150)
        assert desk.ask(pull(offset=100), answer) is answer
        desk.archive.fill("T", 0, 0, 150, holes=[(98, 130)])
        assert desk.ask(pull(offset=100), answer) is answer

    def test_an_archive_that_ends_in_the_gap_is_waited_for(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 105, holes=[(98, 105)])
        assert desk.ask(pull(offset=100), found("T", 0, range(110, 120), 0, 200)) == RETRY

    @pytest.mark.parametrize("records", [True, False])
    def test_the_same_for_a_reader_with_a_filter(self, desk: Desk, records: bool) -> None:
        desk.begin = 1 << 20
        tags = {o: {"TAGS": "a"} for o in (107, 115)}
        answer = (
            found("T", 0, range(115, 116), 0, 200)
            if records
            else answered(20, "NO_MATCHED_MESSAGE", 116, 0, 200)
        )
        for edge in ({"low": 105}, {"low": 0, "holes": [(98, 103)]}):
            holes = edge.get("holes", [])
            desk.archive.fill("T", 0, edge["low"], 150, holes=holes, properties=tags)
            made = desk.ask(pull(offset=100, subscription="a"), answer)
            assert offsets_of(made) == [107, 115]
            other = {115: {"TAGS": "a"}} if records else {}
            desk.archive.fill("T", 0, edge["low"], 150, holes=holes, properties=other)
            assert desk.ask(pull(offset=100, subscription="a"), answer) is answer
        assert not desk.metrics.value("tiered_cold_hole_messages_total")


LATER = 10_000_000
"""Where in the log the queue of the same name begins that was made after the archived one was deleted."""


def anew(*offsets: int) -> bytes:
    """Records of the newer queue."""
    plain = [decode_message(record("T", 0, offset)) for offset in offsets]
    return b"".join(encode_message(replace(m, physical_offset=LATER + m.physical_offset)) for m in plain)


class TestQueuesMadeAnew:
    """The archive is behind: what it has under these offsets are other messages."""

    @pytest.mark.parametrize("has", [(12, 20, 30), (13, 21)], ids=["common offsets", "none in common"])
    def test_doubt_is_about_the_brokers_own_messages(self, desk: Desk, has: tuple[int, ...]) -> None:
        desk.archive.fill("T", 0, 0, 150, properties={o: {"TAGS": "a"} for o in (10, 12, 20, 30)})
        request = pull(offset=10, subscription="a")
        answer = answered(0, "FOUND", 31, 0, 200, body=anew(*has))
        desk.begin = 8_000  # the broker still has the old ones, so all of the new ones
        assert desk.ask(request, answer) is answer
        desk.begin = LATER - 1  # it has not: whether it has deleted new ones is seen once it is calm
        assert desk.ask(request, answer) == RETRY
        desk.clock.advance(CALM_SECONDS)
        assert desk.ask(request, answer) is answer

    def test_an_answer_without_records_passes_while_the_broker_has_what_is_archived(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 150, properties={o: {"TAGS": "a"} for o in (12, 20)})
        answer = answered(20, "NO_MATCHED_MESSAGE", 60, 0, 200)
        desk.begin = 12_000
        assert desk.ask(pull(offset=10, subscription="a"), answer) is answer
        desk.begin = 12_001
        assert offsets_of(desk.ask(pull(offset=10, subscription="a"), answer)) == [12, 20]

    def test_a_gap_waits_for_the_archive(self, desk: Desk) -> None:
        answer = answered(0, "FOUND", 31, 0, 200, body=anew(*range(20, 31)))
        for begin in (0, 8_000, LATER):
            desk.begin = begin
            assert desk.ask(pull(offset=10), answer) == RETRY

    def test_nor_does_a_hole_of_the_old_queue_lead_over_new_messages(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 150, holes=[(9, 15)])
        answer = answered(0, "FOUND", 31, 0, 200, body=anew(10, 11, *range(20, 31)))
        assert desk.ask(pull(offset=10), answer) == RETRY
        assert not desk.metrics.value("tiered_cold_hole_messages_total")

    @pytest.mark.parametrize("level", [StorageLevel.FORCE, StorageLevel.NOT_IN_MEM])
    def test_levels_that_prefer_the_archive_get_the_brokers_answer(
        self, desk: Desk, level: StorageLevel
    ) -> None:
        desk.archive.levels["T"] = level
        desk.ask(pull(offset=150), answered(0, "FOUND", 151, 0, 200, body=anew(150)))
        answer = answered(0, "FOUND", 12, 0, 200, body=anew(10, 11))
        assert desk.ask(pull(offset=10), answer) is answer
        old = answered(0, "FOUND", 12, 0, 200, body=bodies(10, 11))
        assert offsets_of(desk.ask(pull(offset=10, count=4), old)) == [10, 11, 12, 13]


def test_records_of_one_log_are_in_one_order() -> None:
    assert agree({}, {})
    assert agree({1: 100, 3: 300}, {2: 200, 3: 300, 4: 350})
    assert not agree({1: 100, 3: 300}, {3: 301})
    assert not agree({1: 100, 3: 300}, {2: 400})
    assert not agree({3: 300}, {2: 300})
    assert agree({}, {2: 300, 3: 200})  # what is wrong with one of them alone is another matter


def test_what_lies_ahead_of_an_offset() -> None:
    assert before(bodies(4, 5, 7), 7) == bodies(4, 5)
    assert before(bodies(4, 5, 7), 6) == bodies(4, 5)
    assert before(bodies(4), 4) == b""
    assert before(bodies(4) + b"garbage", 9) == bodies(4)


class TestFarAboveTheMinimum:
    """Deletion goes by bytes, and the minimum is up to ten seconds old: millions of small messages may be gone above it."""

    @pytest.mark.parametrize("low", [0, 3_000_000])
    def test_what_a_reader_of_all_lacks_is_seen_at_any_distance(self, desk: Desk, low: int) -> None:
        answer = found("T", 0, range(40_000_010, 40_000_012), low, 50_000_000)
        assert desk.ask(pull(offset=40_000_000), answer) == RETRY
        desk.archive.fill("T", 0, 40_000_005, 40_000_020)
        assert offsets_of(desk.ask(pull(offset=40_000_005, count=2), answer)) == [40_000_005, 40_000_006]

    def test_and_behind_the_first_record_where_the_answer_goes_beyond_what_was_asked_for(
        self, desk: Desk
    ) -> None:
        at = 2_000_000
        desk.archive.fill("T", 0, at, at + 150)
        gappy = answered(0, "FOUND", at + 90, 0, 3_000_000, body=bodies(at, at + 1, *range(at + 60, at + 90)))
        assert offsets_of(desk.ask(pull(offset=at, count=32), gappy)) == list(range(at, at + 32))
        whole = found("T", 0, range(at, at + 32), 0, 3_000_000)
        assert desk.answers.judge(pull(offset=at, count=32), whole, whole.body[:64]) is PASS
        assert desk.answers.judge(pull(offset=at, count=31), whole, whole.body[:64]) is NEED_BODY
