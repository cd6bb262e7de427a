"""What pulls get: from the broker where it has the messages, from the archive where it has not, and never a skip."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.kit.fakearchive import RECORD_ROOM, record
from tests.kit.gatewaydesk import (
    RETRY,
    Desk,
    answered,
    fields,
    found,
    heartbeat,
    offsets_of,
    pull,
    recorded,
    simple,
    too_small,
)
from tests.kit.replacing import replace
from tiered.codec.record.message import decode_message
from tiered.codec.remoting.frame import Command
from tiered.errors import Corrupt, Unavailable
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.ports import PASS
from tiered.model import GetMessageResult


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 0, 150)
    yield made
    made.close()


@pytest.mark.parametrize("code", [11, 361])
def test_an_offset_that_is_too_small_is_served_from_the_archive(desk: Desk, code: int) -> None:
    made = desk.ask(pull(offset=40, count=10, code=code), too_small(100, 200))
    assert isinstance(made, Command)
    assert (made.code, made.remark, made.opaque, made.flag, made.version) == (0, "FOUND", 77, 1, 513)
    assert offsets_of(made) == list(range(40, 50))
    assert bytes(made.body) == b"".join(record("T", 0, o) for o in range(40, 50))
    assert made.ext == {
        "nextBeginOffset": "50", "minOffset": "0", "maxOffset": "200",
        "suggestWhichBrokerId": "0", "topicSysFlag": "0", "groupSysFlag": "0",
    }  # fmt: skip
    assert desk.count("pull", "archive") == 1
    assert desk.metrics.value("tiered_cold_messages_total") == 10


@pytest.mark.parametrize("name", ["pull-11", "lite-pull-361"])
def test_the_recorded_answer_of_a_real_broker_is_replaced(name: str) -> None:
    desk = Desk()
    desk.archive.fill("TopicA", 2, 0, 3200)
    request = recorded("lite-pull-361-offset-too-small.request")
    if name == "pull-11":
        request.code = 11
    answer = recorded(f"{name}-offset-too-small.answer")
    made = desk.ask(request, answer)
    assert offsets_of(made) == list(range(32))
    assert fields(made)["nextBeginOffset"] == "32"
    assert fields(made)["minOffset"] == "0"
    assert fields(made)["maxOffset"] == "5000"
    assert isinstance(made, Command)
    assert (made.opaque, made.language, made.version, made.flag) == (answer.opaque, 0, 513, 1)
    desk.close()


@pytest.mark.parametrize(
    "name",
    [
        "pull-11-found",
        "pull-11-no-new",
        "pull-11-offset-reset",
        "pull-11-subscription-not-latest",
        "raw-pull-11-overflow-badly",
        "raw-pull-11-found",
        "lite-pull-361-found",
    ],
)
def test_what_the_broker_can_answer_passes_and_the_archive_is_not_asked(desk: Desk, name: str) -> None:
    request = recorded("raw-pull-11-found.request" if name.startswith("raw") else "pull-11-found.request")
    answer = recorded(f"{name}.answer")
    assert desk.ask(request, answer) is answer
    assert desk.archive.asked == []


def test_a_reset_by_the_operator_is_never_touched(desk: Desk) -> None:
    answer = answered(21, "OFFSET_RESET", 120, 100, 200)
    assert desk.ask(pull(offset=40), answer) is answer


def test_hand_over_from_cold_to_hot_has_no_gap_and_no_repeat_while_the_minimum_moves() -> None:
    desk = Desk()
    desk.archive.fill("T", 0, 0, 1000)
    desk.archive.reached = 0
    end, archived, low, offset = 1000, 350, 300, 0
    got: list[int] = []
    retried = 0
    for step in range(10_000):
        if offset >= end:
            break
        low = min(low + 7, 960)  # the broker deletes
        archived = min(end, archived + 3 * (step % 3))  # and the archive follows, too late
        desk.archive.queues["T", 0].high = archived
        request = pull(offset=offset, count=1 + step % 13)
        if offset < low:
            answer = too_small(low, end)
        else:
            answer = found("T", 0, range(offset, min(offset + 8, end)), low, end)
        made = desk.ask(request, answer)
        if made == RETRY:
            retried += 1
            continue
        assert isinstance(made, Command)
        assert made.code == 0
        assert len(offsets_of(made)) <= 13
        got += offsets_of(made)
        offset = int(made.ext["nextBeginOffset"])
    assert got == list(range(end))
    assert retried > 0
    desk.close()


def test_an_archive_that_lags_makes_the_client_retry(desk: Desk) -> None:
    desk.archive.reached = 0
    assert desk.ask(pull(offset=160), too_small(180, 200)) == RETRY
    assert desk.ask(pull("New", offset=0), too_small(180, 200)) == RETRY
    assert desk.count("pull", "retry") == 2


@pytest.mark.parametrize("error", [Unavailable("away"), Corrupt("damaged", key="k")])
def test_an_archive_that_fails_makes_the_client_retry_and_hot_reads_go_on(
    desk: Desk, error: Exception
) -> None:
    desk.archive.error = error
    assert desk.ask(pull(offset=40), too_small(100, 200)) == RETRY
    hot = found("T", 0, range(120, 130), 100, 200)
    assert desk.ask(pull(offset=120), hot) is hot


def test_an_archive_that_hangs_makes_the_client_retry() -> None:
    desk = Desk(read_timeout_ms=100)
    desk.archive.hangs = True
    assert desk.ask(pull(offset=40), too_small(100, 200)) == RETRY
    desk.close()


def test_a_pull_that_was_being_removed_is_served(desk: Desk) -> None:
    made = desk.ask(pull(offset=40, count=3), answered(20, "MESSAGE_WAS_REMOVING", 60, 0, 200))
    assert offsets_of(made) == [40, 41, 42]


def test_a_slave_that_does_not_correct_is_served(desk: Desk) -> None:
    answer = answered(20, "OFFSET_TOO_SMALL", 40, 100, 200)
    answer.ext["suggestWhichBrokerId"] = "1"
    made = desk.ask(pull(offset=40, count=3), answer)
    assert offsets_of(made) == [40, 41, 42]
    assert fields(made)["suggestWhichBrokerId"] == "1"


def test_an_unreadable_consume_queue_file_is_no_reason_to_skip(desk: Desk) -> None:
    made = desk.ask(pull(offset=40, count=3), answered(19, "OFFSET_FOUND_NULL", 90, 0, 200))
    assert offsets_of(made) == [40, 41, 42]
    stays = answered(19, "OFFSET_FOUND_NULL", 40, 0, 200)
    assert desk.ask(pull(offset=40), stays) is stays


def test_records_missing_before_the_first_one_come_from_the_archive(desk: Desk) -> None:
    answer = found("T", 0, range(60, 70), 0, 200)  # the broker deletes, its minimum is old
    made = desk.ask(pull(offset=40, count=5), answer)
    assert offsets_of(made) == [40, 41, 42, 43, 44]
    desk.archive.error = Unavailable("away")
    assert desk.ask(pull(offset=40), answer) == RETRY


def test_a_gap_in_a_queue_that_is_not_archived_passes(desk: Desk) -> None:
    answer = found("Compacted", 0, range(45, 49), 0, 200)
    assert desk.ask(pull("Compacted", offset=40), answer) is answer


def test_a_gap_beyond_the_end_of_the_archive_waits_for_it(desk: Desk) -> None:
    """The broker deletes what the archive, as it was last looked at, did not have yet."""
    answer = found("T", 0, range(170, 174), 0, 200)
    assert desk.ask(pull(offset=160, count=5), answer) == RETRY
    desk.archive.fill("T", 0, 0, 165)
    assert offsets_of(desk.ask(pull(offset=160, count=9), answer)) == [160, 161, 162, 163, 164]


def test_a_filtered_gap_near_the_minimum_is_looked_at(desk: Desk) -> None:
    desk.archive.fill("T", 0, 0, 150, properties={o: {"TAGS": "a"} for o in range(0, 150, 10)})
    answer = found("T", 0, range(60, 61), 0, 200)
    desk.begin = 0
    assert desk.ask(pull(offset=41, subscription="a"), answer) is answer  # the broker has deleted nothing yet
    desk.begin = 1 << 30
    made = desk.ask(pull(offset=41, subscription="a"), answer)
    assert offsets_of(made)[:2] == [50, 60]  # 50 was being deleted
    same = found("T", 0, range(50, 51), 0, 200)
    assert desk.ask(pull(offset=41, subscription="a"), same) is same
    none = answered(20, "NO_MATCHED_MESSAGE", 49, 0, 200)
    assert desk.ask(pull(offset=41, subscription="a"), none) is none


def test_a_filtered_gap_far_above_the_minimum_costs_nothing(desk: Desk) -> None:
    answer = found("T", 0, range(2_000_010, 2_000_011), 100, 3_000_000)
    assert desk.ask(pull(offset=2_000_000, subscription="a"), answer) is answer
    assert desk.archive.asked == []


def test_history_that_begins_later_is_where_the_client_goes(desk: Desk) -> None:
    desk.archive.fill("T", 0, 50, 150)
    made = desk.ask(pull(offset=7), too_small(100, 200))
    assert isinstance(made, Command)
    assert (made.code, made.remark) == (20, "OFFSET_TOO_SMALL")
    assert fields(made)["nextBeginOffset"] == fields(made)["minOffset"] == "50"
    assert desk.count("pull", "moved") == 1


def test_negative_offsets_lead_to_the_first_message(desk: Desk) -> None:
    made = desk.ask(pull(offset=-5), too_small(100, 200))
    assert isinstance(made, Command)
    assert (made.code, made.ext["nextBeginOffset"]) == (20, "0")


def test_who_is_led_over_what_nobody_has_keeps_what_it_holds(desk: Desk) -> None:
    """21 would have the client drop what it has pulled and not consumed."""
    desk.archive.fill("T", 0, 100, 150)
    answer = too_small(100, 200)
    assert desk.ask(pull(offset=7), answer) == replace(answer, code=20)
    nowhere = answered(21, "OFFSET_TOO_SMALL", 7, 100, 200)
    assert desk.ask(pull(offset=7), nowhere) is nowhere, "20 would be asked again without a pause"


class TestHoles:
    def test_a_recorded_hole_is_served_up_to_it_then_marked_and_counted(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 150, holes=[(45, 60)])
        made = desk.ask(pull(offset=40), too_small(100, 200))
        assert offsets_of(made) == [40, 41, 42, 43, 44]
        assert fields(made)["nextBeginOffset"] == "45"
        made = desk.ask(pull(offset=45), too_small(100, 200))
        assert isinstance(made, Command)
        assert made.code == 20
        assert made.ext["nextBeginOffset"] == "60"
        assert made.remark == "OFFSET_TOO_SMALL: T/0 has lost its offsets 45 to 59"
        assert desk.metrics.value("tiered_cold_holes_total") == 1
        assert desk.metrics.value("tiered_cold_hole_messages_total") == 15

    def test_a_hole_never_hides_what_the_broker_still_has(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 150, holes=[(90, 120)])
        made = desk.ask(pull(offset=90), too_small(100, 200))
        assert fields(made)["nextBeginOffset"] == "100"

    def test_the_alert_is_said_once(self, desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
        desk.archive.fill("T", 0, 0, 150, holes=[(45, 60)])
        for _ in range(3):
            desk.ask(pull(offset=45), too_small(100, 200))
        assert len([r for r in caplog.records if "messages are lost" in r.message]) == 1

    def test_lag_becomes_a_hole_when_the_archive_is_past_what_the_broker_still_serves(
        self, desk: Desk
    ) -> None:
        cold, gone = pull(offset=160), too_small(180, 200)
        desk.archive.reached = 185 * RECORD_ROOM
        assert desk.ask(cold, gone) == RETRY
        desk.ask(pull(offset=170), found("T", 0, range(170, 175), 160, 200))  # sent before the deletion
        desk.ask(pull("S", offset=190), found("S", 0, range(190, 195), 180, 200))  # another queue
        assert desk.ask(cold, gone) == RETRY
        desk.ask(pull(offset=182), found("T", 0, range(182, 185), 180, 200))  # above all that is deleted
        made = desk.ask(cold, gone)
        assert isinstance(made, Command)
        assert (made.code, made.ext["nextBeginOffset"]) == (20, "180")
        assert desk.metrics.value("tiered_cold_hole_messages_total") == 20

    def test_progress_below_the_evidence_is_not_enough(self, desk: Desk) -> None:
        cold, gone = pull(offset=160), too_small(180, 200)
        desk.archive.reached = 181 * RECORD_ROOM
        assert desk.ask(cold, gone) == RETRY
        desk.ask(pull(offset=182), found("T", 0, range(182, 185), 180, 200))
        assert desk.ask(cold, gone) == RETRY
        desk.archive.reached = 182 * RECORD_ROOM
        assert isinstance(desk.ask(cold, gone), Command)

    def test_on_a_quiet_broker_the_begin_of_its_log_is_asked_for(self, desk: Desk) -> None:
        desk.archive.reached = 5000
        desk.begin = 4000
        assert desk.ask(pull(offset=160), too_small(180, 180)) == RETRY  # too early: it may be an old answer
        desk.clock.advance(4)
        desk.begin = 5001
        assert desk.ask(pull(offset=160), too_small(180, 180)) == RETRY
        desk.archive.reached = 5001
        assert isinstance(desk.ask(pull(offset=160), too_small(180, 180)), Command)

    def test_a_minimum_that_moves_on_holds_nobody_up(self, desk: Desk) -> None:
        desk.begin = 10
        offset, low = 160, 170
        for _ in range(12):
            made = desk.ask(pull(offset=offset), too_small(low, 1000))
            if isinstance(made, Command):
                assert offset < int(made.ext["nextBeginOffset"]) <= low
                offset = int(made.ext["nextBeginOffset"])
            desk.clock.advance(3)
            low += 5
        assert offset > 170

    def test_a_queue_that_was_never_archived_passes_once_that_is_sure(self, desk: Desk) -> None:
        answer = too_small(180, 180)
        assert desk.ask(pull("Old", offset=3), answer) == RETRY
        desk.begin = 10
        assert desk.ask(pull("Old", offset=3), answer) == RETRY
        desk.clock.advance(4)
        assert desk.ask(pull("Old", offset=3), answer) == replace(answer, code=20)

    def test_what_was_archived_after_the_look_is_served(self, desk: Desk) -> None:
        desk.begin = 10
        assert desk.ask(pull(offset=160), too_small(180, 180)) == RETRY
        desk.clock.advance(4)
        asked = desk.archive.get_message_async

        def late(pull: Pull) -> Future[GetMessageResult]:
            answer = asked(pull)
            desk.archive.fill("T", 0, 0, 180)  # a commit between the look and the proof
            return answer

        desk.archive.get_message_async = late  # type: ignore[method-assign]
        assert offsets_of(desk.ask(pull(offset=160), too_small(180, 180))) == list(range(160, 180))

    def test_excluded_topics_pass_at_once(self, desk: Desk) -> None:
        answer = too_small(180, 200)
        assert desk.ask(pull("ExcludedX", offset=3), answer) == replace(answer, code=20)


def test_offsets_that_began_anew_are_not_mixed_with_the_archive(desk: Desk) -> None:
    assert desk.ask(pull(offset=40), too_small(100, 120)) == RETRY  # the archive goes to 150


class TestLimits:
    def test_count_and_bytes_of_the_client(self, desk: Desk) -> None:
        size = len(record("T", 0, 40))
        made = desk.ask(pull(offset=40, maxMsgBytes=str(3 * size + 1)), too_small(100, 200))
        assert offsets_of(made) == [40, 41, 42]
        made = desk.ask(pull(offset=40, maxMsgBytes="1"), too_small(100, 200))
        assert offsets_of(made) == [40]
        made = desk.ask(pull(offset=40, count=0), too_small(100, 200))
        assert offsets_of(made) == [40]
        made = desk.ask(pull(offset=40, count=-7), too_small(100, 200))
        assert offsets_of(made) == [40]

    def test_huge_wishes_meet_the_settings(self) -> None:
        desk = Desk(max_pull_bytes=4096)
        desk.archive.fill("T", 0, 0, 150)
        made = desk.ask(pull(offset=0, count=2**31 - 1, maxMsgBytes="2147483647"), too_small(140, 200))
        assert isinstance(made, Command)
        assert 0 < len(made.body) <= 4096
        assert desk.archive.asked[-1][1].max_count == 4096
        desk.close()

    def test_one_message_goes_however_large(self) -> None:
        desk = Desk(max_pull_bytes=4096)
        desk.archive.fill("T", 0, 0, 3, body=b"x" * 100_000)
        made = desk.ask(pull(offset=0), too_small(2, 200))
        assert offsets_of(made) == [0]
        assert fields(made)["nextBeginOffset"] == "1"
        desk.close()


class TestFilters:
    def fill(self, desk: Desk) -> None:
        tags = {o: {"TAGS": "a" if o % 3 == 0 else "b", "n": str(o)} for o in range(150)}
        desk.archive.fill("T", 0, 0, 150, properties=tags)

    def test_tags_of_the_request(self, desk: Desk) -> None:
        self.fill(desk)
        made = desk.ask(pull(offset=40, count=3, subscription="a || c"), too_small(100, 200))
        assert offsets_of(made) == [42, 45, 48]
        assert fields(made)["nextBeginOffset"] == "49"

    def test_sql(self, desk: Desk) -> None:
        self.fill(desk)
        made = desk.ask(
            pull(offset=40, subscription="n BETWEEN 60 AND 62", kind="SQL92"), too_small(100, 200)
        )
        assert offsets_of(made) == [60, 61, 62]

    def test_subscriptions_from_the_heartbeat(self, desk: Desk) -> None:
        self.fill(desk)
        desk.heartbeat("G", "T", "a")
        made = desk.ask(pull(offset=40, count=2, subscription=None), too_small(100, 200))
        assert offsets_of(made) == [42, 45]
        desk.heartbeat("G", "T", "b", version=2)
        desk.heartbeat("G", "T", "a", version=1)  # another client, not restarted yet
        made = desk.ask(pull(offset=40, count=2, subscription=None), too_small(100, 200))
        assert offsets_of(made) == [40, 41]

    def test_an_unknown_subscription_by_tag_gets_everything_and_by_sql_waits(self, desk: Desk) -> None:
        self.fill(desk)
        made = desk.ask(pull(offset=40, count=2, subscription=None), too_small(100, 200))
        assert offsets_of(made) == [40, 41]
        assert desk.ask(pull(offset=40, subscription=None, kind="SQL92"), too_small(100, 200)) == RETRY

    @pytest.mark.parametrize(("expression", "kind"), [("n >", "SQL92"), ("||", "TAG"), ("x", "XPATH")])
    def test_a_broken_filter_is_refused_with_a_remark(self, desk: Desk, expression: str, kind: str) -> None:
        made = desk.ask(pull(offset=40, subscription=expression, kind=kind), too_small(100, 200))
        assert isinstance(made, Command)
        assert made.code == 23
        assert made.remark
        assert made.opaque == 77
        assert desk.count("pull", "refused") == 1

    def test_nothing_matched_is_said_with_an_advanced_offset(self, desk: Desk) -> None:
        self.fill(desk)
        made = desk.ask(pull(offset=40, subscription="none"), too_small(100, 200))
        assert isinstance(made, Command)
        assert (made.code, made.remark, bytes(made.body)) == (20, "NO_MATCHED_MESSAGE", b"")
        assert made.ext["nextBeginOffset"] == "150"

    def test_a_filter_that_takes_none_is_followed_to_the_brokers_begin(self, desk: Desk) -> None:
        self.fill(desk)
        desk.archive.examine = 10
        made = desk.ask(pull(offset=5, subscription="none"), too_small(100, 200))
        assert fields(made)["nextBeginOffset"] == "105"
        assert len(desk.archive.asked) == 10

    def test_and_not_into_a_hole(self, desk: Desk) -> None:
        tags = {o: {"TAGS": "b"} for o in range(150)}
        desk.archive.fill("T", 0, 0, 150, properties=tags, holes=[(50, 60)])
        made = desk.ask(pull(offset=40, subscription="a"), too_small(100, 200))
        assert isinstance(made, Command)
        assert (made.code, made.ext["nextBeginOffset"]) == (20, "50")
        made = desk.ask(pull(offset=50, subscription="a"), too_small(100, 200))
        assert isinstance(made, Command)
        assert (made.code, made.ext["nextBeginOffset"]) == (20, "60")


class TestLevels:
    def test_disable_never_intercepts(self, desk: Desk) -> None:
        desk.archive.levels["T"] = StorageLevel.DISABLE
        answer = too_small(100, 200)
        assert desk.ask(pull(offset=40), answer) is answer
        desk.archive.levels["T"] = StorageLevel.NOT_IN_DISK  # live
        assert desk.ask(pull(offset=40), answer) is not answer

    def test_a_level_set_between_request_and_answer_counts(self, desk: Desk) -> None:
        request, answer = pull(offset=40), too_small(100, 200)
        assert desk.answers.wants(request)
        desk.archive.levels["T"] = StorageLevel.DISABLE
        assert desk.judge(request, answer) is PASS

    def test_force_asks_the_archive_first(self, desk: Desk) -> None:
        desk.archive.levels["T"] = StorageLevel.FORCE
        hot = found("T", 0, range(120, 122), 100, 200)
        assert offsets_of(desk.ask(pull(offset=120, count=5), hot)) == [120, 121, 122, 123, 124]
        hot = found("T", 0, range(160, 162), 100, 200)  # not archived yet
        assert desk.ask(pull(offset=160), hot) is hot
        desk.close()
        assert desk.archive.asked[-1] == ("follow",)
        desk.archive.error = Unavailable("away")
        hot = found("T", 0, range(120, 122), 100, 200)
        assert desk.ask(pull(offset=120), hot) is hot

    def test_not_in_mem_takes_what_lies_far_behind_the_end_of_the_log(self, desk: Desk) -> None:
        desk.archive.levels["T"] = (
            StorageLevel.NOT_IN_MEM
        )  # memory_bytes of the kit: 10,000; four tenths count
        old = found("T", 0, range(120, 121), 100, 200)
        assert desk.ask(pull(offset=120), old) is old  # nothing newer was seen
        desk.ask(pull(offset=124), found("T", 0, range(124, 125), 100, 200))
        assert desk.ask(pull(offset=120), old) is old
        desk.ask(pull(offset=125), found("T", 0, range(125, 126), 100, 200))
        assert len(offsets_of(desk.ask(pull(offset=120), old))) == 30


class TestNotOurs:
    def test_another_broker_passes(self, desk: Desk) -> None:
        answer = too_small(100, 200)
        assert desk.ask(pull(offset=40, bname="broker-b"), answer) is answer
        desk.connection = type(desk.connection)(2, "c", "10.0.0.2:10911", "broker-b")
        request = pull(offset=40)
        del request.ext["bname"]
        assert desk.ask(request, answer) is answer

    def test_a_broker_without_a_name_is_unsure(self, desk: Desk) -> None:
        desk.connection = type(desk.connection)(2, "c", "10.0.0.2:10911", None)
        request = pull(offset=40)
        del request.ext["bname"]
        assert desk.ask(request, too_small(100, 200)) == RETRY
        gap = found("T", 0, range(120, 122), 100, 200)
        assert desk.ask(request, gap) is gap

    def test_static_topics_and_system_topics_pass(self, desk: Desk) -> None:
        answer = too_small(100, 200)
        assert desk.ask(pull(offset=40, lo="true"), answer) is answer
        assert desk.ask(pull(offset=40, bname="__syslo__x"), answer) is answer
        assert desk.ask(pull("rmq_sys_x", offset=40), answer) is answer
        moved = answered(21, "OFFSET_TOO_SMALL", 100, 100, 200, offsetDelta="5")
        assert desk.ask(pull(offset=40), moved) is moved


class TestBadInput:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("queueId", "x"),
            ("queueOffset", "9" * 30),
            ("maxMsgNums", "1.5"),
            ("consumerGroup", ""),
            ("sysFlag", ""),
        ],
    )
    def test_a_request_that_only_the_broker_understands_is_never_led_over_messages(
        self, desk: Desk, field: str, value: str
    ) -> None:
        request = pull(offset=40)
        request.ext[field] = value
        assert desk.ask(request, too_small(100, 200)) == RETRY
        refused = simple(1, "the broker's own words")
        assert desk.ask(request, refused) is refused

    def test_wrong_queues_get_the_brokers_answer(self, desk: Desk) -> None:
        answer = simple(29, "queueId[99] is illegal")
        assert desk.ask(pull(queue_id=99, offset=40), answer) is answer
        answer = simple(17, "topic[None] not exist")
        assert desk.ask(pull("None", offset=40), answer) is answer

    def test_an_answer_without_bounds_is_not_believed(self, desk: Desk) -> None:
        answer = Command(21, 77, 1, "OFFSET_TOO_SMALL", {})
        assert desk.ask(pull(offset=40), answer) == RETRY

    def test_nothing_else_is_disturbed(self, desk: Desk) -> None:
        bad = pull(offset=40)
        bad.ext["queueOffset"] = "?"
        desk.ask(bad, found("T", 0, range(120, 122), 100, 200))
        assert desk.metrics.value("tiered_gateway_bad_requests_total", code="11")
        assert offsets_of(desk.ask(pull(offset=40, count=1), too_small(100, 200))) == [40]


class TestReaders:
    def test_positions_from_pulls_and_commits(self, desk: Desk) -> None:
        desk.ask(pull(offset=120), found("T", 0, range(120, 122), 100, 200))
        assert desk.archive.positions == {(ReaderId("G"), "T", 0): 120}
        commit = recorded("update-consumer-offset-15-oneway.request")
        desk.answers.observe(commit, desk.connection)
        assert desk.archive.positions[ReaderId("g_read"), "OrderEvents", 0] == 1667

    def test_broadcasting_clients_have_positions_of_their_own(self, desk: Desk) -> None:
        desk.heartbeat("G", "T", broadcast=True)
        desk.ask(pull(offset=40), too_small(100, 200))
        assert list(desk.archive.positions) == [(ReaderId("G", "client-1"), "T", 0)]
        assert desk.archive.asked[-1][1].reader == ReaderId("G", "client-1")
        desk.answers.closed(desk.connection)
        desk.ask(pull(offset=40), too_small(100, 200))
        assert desk.archive.asked[-1][1].reader == ReaderId("G", desk.connection.client)

    def test_who_is_alive_and_who_has_left(self, desk: Desk) -> None:
        first, second = desk.connection, type(desk.connection)(2, "c", "b", "broker-a")
        for connection in (first, second):
            desk.answers.learn(heartbeat("G", "T"), simple(0), b"", connection)
            desk.answers.learn(heartbeat("B", "T", broadcast=True), simple(0), b"", connection)
        assert desk.archive.living == {ReaderId("G"), ReaderId("B", "client-1")}
        for connection in (first, second):
            desk.answers.learn(heartbeat("G", "T"), simple(0), b"", connection)
        leave = Command(35, ext={"clientID": "client-1", "consumerGroup": "G"})
        desk.answers.learn(leave, simple(0), b"", first)
        assert ReaderId("G") in desk.archive.living
        desk.answers.learn(leave, simple(0), b"", second)
        assert ReaderId("G") not in desk.archive.living

    def test_a_recorded_heartbeat_is_understood(self, desk: Desk) -> None:
        desk.ask(recorded("heartbeat-34.request"), simple(0))
        assert desk.metrics.value("tiered_gateway_bad_requests_total", code="34") in (None, 0)

    def test_a_short_heartbeat_of_an_unknown_group_asks_for_a_full_one(self, desk: Desk) -> None:
        short = heartbeat("G", "T", short=True)
        answer = simple(0, IS_SUPPORT_HEART_BEAT_V2="true")
        made = desk.ask(short, answer)
        assert fields(made) == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
        desk.heartbeat("G", "T", "a")
        assert desk.ask(short, answer) is answer
        assert desk.answers.clients.subscription("G", "T") is not None

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{", b'{"consumerDataSet":7}', b'{"consumerDataSet":[3]}', b"\xff"]
    )
    def test_heartbeats_that_make_no_sense_are_counted(self, desk: Desk, body: bytes) -> None:
        answer = simple(0)
        assert desk.ask(Command(34, body=body), answer) is answer
        assert desk.metrics.value("tiered_gateway_bad_requests_total", code="34") == 1


def test_served_records_decode(desk: Desk) -> None:
    made = desk.ask(pull(offset=40, count=1), too_small(100, 200))
    assert isinstance(made, Command)
    assert decode_message(bytes(made.body)).body == b"T/0/40"
