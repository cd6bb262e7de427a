"""Offsets, look-ups, tables, resets and POP answers: what the broker says, completed by the archive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.fakearchive import RECORD_ROOM, record, time_of
from tests.kit.gatewaydesk import (
    RETRY,
    Desk,
    answered,
    asking,
    fields,
    found,
    offsets_of,
    pull,
    recorded,
    simple,
    too_small,
)
from tiered.codec.remoting.codes import (
    PopStart,
    PullBounds,
    PullRequest,
    QueryRequest,
    QueueRequest,
    ResetRequest,
    SearchRequest,
    parse_pop_starts,
)
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.objectmap import decode_object_map
from tiered.errors import Corrupt, Invalid, Unavailable
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.answers.answers import Answers
from tiered.gateway.ports import HOLD


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 10, 150)
    yield made
    made.close()


def min_offset(topic: str = "T", queue_id: int = 0) -> Command:
    return asking(31, topic=topic, queueId=str(queue_id))


def search(time_ms: int, boundary: str | None = None) -> Command:
    request = asking(29, topic="T", queueId="0", timestamp=str(time_ms))
    if boundary is not None:
        request.ext["boundaryType"] = boundary
    return request


class TestMinimum:
    def test_the_smaller_one_counts(self, desk: Desk) -> None:
        made = desk.ask(min_offset(), simple(0, "", offset="100"))
        assert isinstance(made, Command)
        assert (made.code, made.remark, made.ext) == (0, "", {"offset": "10"})
        same = simple(0, "", offset="5")
        assert desk.ask(min_offset(), same) is same
        unknown = simple(0, "", offset="100")
        assert desk.ask(min_offset("None"), unknown) is unknown

    def test_recorded(self, desk: Desk) -> None:
        answer = recorded("min-offset-31.answer")
        assert desk.ask(recorded("min-offset-31.request"), answer) is answer  # 0: nothing was deleted
        assert desk.archive.asked == []
        desk.archive.fill("TopicA", 0, 3, 9)
        answer.ext["offset"] = "9"
        assert fields(desk.ask(recorded("min-offset-31.request"), answer)) == {"offset": "3"}

    def test_an_archive_that_fails_is_known_or_makes_the_client_retry(self, desk: Desk) -> None:
        desk.archive.error = Unavailable("away")
        known = desk.ask(min_offset(), simple(0, "", offset="100"))
        assert fields(known) == {"offset": "10"}  # it moves by retention only: no turn in the pool
        assert desk.archive.asked == []
        assert desk.ask(min_offset("None"), simple(0, "", offset="100")) == RETRY
        refused = simple(501, "not leader")
        assert desk.ask(min_offset(), refused) is refused

    def test_disable(self, desk: Desk) -> None:
        desk.archive.levels["*"] = StorageLevel.DISABLE
        answer = simple(0, "", offset="100")
        assert desk.ask(min_offset(), answer) is answer


class TestEarliest:
    @pytest.mark.parametrize("local", [-1, time_of(100)])
    def test_the_earlier_one_counts(self, desk: Desk, local: int) -> None:
        made = desk.ask(asking(32, topic="T", queueId="0"), simple(0, timestamp=str(local)))
        assert fields(made) == {"timestamp": str(time_of(10))}

    def test_an_archive_that_fails_for_a_moment_is_asked_again(self) -> None:
        desk = Desk(again_seconds=0.001)
        desk.archive.fill("T", 0, 10, 150)
        asked, fails = desk.archive.earliest_message_time, [Unavailable("away")] * 3

        def moody(topic: str, queue_id: int) -> int | None:
            if fails:
                raise fails.pop()
            return asked(topic, queue_id)

        desk.archive.earliest_message_time = moody
        made = desk.ask(asking(32, topic="T", queueId="0"), simple(0, timestamp="-1"))
        assert fields(made) == {"timestamp": str(time_of(10))}
        desk.close()

    def test_the_broker_may_be_earlier_or_alone(self, desk: Desk) -> None:
        answer = simple(0, timestamp=str(time_of(3)))
        assert desk.ask(asking(32, topic="T", queueId="0"), answer) is answer
        recorded_answer = recorded("earliest-time-32.answer")
        assert desk.ask(recorded("earliest-time-32.request"), recorded_answer) is recorded_answer


class TestSearch:
    """The archive has [10, 150); the broker [100, 200)."""

    @pytest.mark.parametrize(
        ("offset", "boundary", "expected"),
        [
            (40, None, 40),
            (39.5, "LOWER", 40),
            (40, "upper", 40),
            (40.5, "UPPER", 40),
            (3, "LOWER", 10),
            (3, "UPPER", 10),
            (120, "LOWER", 120),
            (149, "LOWER", 149),
            (148, "UPPER", 148),
        ],
    )
    def test_what_the_archive_knows(
        self, desk: Desk, offset: float, boundary: str | None, expected: int
    ) -> None:
        made = desk.ask(search(time_of(offset), boundary), simple(0, offset="100"))
        assert fields(made) == {"offset": str(expected)}

    @pytest.mark.parametrize(("offset", "boundary"), [(150, "LOWER"), (149, "UPPER"), (180, "UPPER")])
    def test_what_only_the_broker_knows(self, desk: Desk, offset: float, boundary: str) -> None:
        answer = simple(0, offset="177")
        assert desk.ask(search(time_of(offset), boundary), answer) is answer

    def test_what_nobody_can_know(self, desk: Desk) -> None:
        desk.ask(pull(offset=180), found("T", 0, range(180, 181), 170, 200))  # the broker begins at 170
        assert desk.ask(search(time_of(160)), simple(0, offset="170")) == RETRY
        assert fields(desk.ask(search(time_of(40)), simple(0, offset="170"))) == {"offset": "40"}

    def test_an_archive_that_fails_makes_the_client_retry(self, desk: Desk) -> None:
        desk.archive.error = Corrupt("damaged")
        assert desk.ask(search(time_of(40)), simple(0, offset="100")) == RETRY

    def test_recorded(self, desk: Desk) -> None:
        desk.archive.fill("OrderEvents", 1, 0, 1704)
        answer = recorded("search-offset-29.answer")
        assert desk.ask(recorded("search-offset-29.request"), answer) is answer
        made = desk.ask(recorded("raw-search-offset-29-zero.request"), simple(0, offset="900"))
        assert fields(made) == {"offset": "0"}


class TestView:
    def test_the_brokers_own_record_passes(self, desk: Desk) -> None:
        answer = recorded("raw-view-message-33.answer")
        assert desk.ask(recorded("raw-view-message-33.request"), answer) is answer
        assert desk.archive.asked == []

    @pytest.mark.parametrize("code", [0, 1])
    def test_garbage_and_not_found_come_from_the_archive(self, desk: Desk, code: int) -> None:
        said = "can not find message by the offset" if code else None
        broker = simple(code, said, b"" if code else b"\0" * 167_642)
        made = desk.ask(asking(33, offset=str(40 * RECORD_ROOM)), broker)
        assert isinstance(made, Command)
        assert (made.code, bytes(made.body)) == (0, record("T", 0, 40))

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"garbage",
            record("T", 0, 41),
            record("T", 0, 40)[:-1],
            record("T", 0, 40) + b"\0",
            record("T", 0, 40).replace(b"T/0/40", b"T/0/4x"),
        ],
    )
    def test_garbage_that_the_archive_does_not_know_is_not_found(self, desk: Desk, body: bytes) -> None:
        place = 40 * RECORD_ROOM
        del desk.archive.queues["T", 0]
        made = desk.ask(asking(33, offset=str(place)), simple(0, body=body))
        assert isinstance(made, Command)
        assert (made.code, made.remark) == (1, f"can not find message by the offset, {place}")
        assert desk.metrics.value("tiered_gateway_garbage_total") == 1

    def test_not_found_anywhere_passes(self, desk: Desk) -> None:
        answer = simple(1, "can not find message by the offset, 7")
        assert desk.ask(asking(33, offset="7"), answer) is answer
        assert desk.ask(asking(33, offset="-7"), answer) is answer
        assert desk.ask(asking(33, offset="x"), answer) is answer

    def test_an_archive_that_fails_makes_the_client_retry(self, desk: Desk) -> None:
        desk.archive.error = Unavailable("away")
        assert desk.ask(asking(33, offset="40000"), simple(1, "can not find")) == RETRY


class TestQuery:
    def query(self, *, most: int = 32, key: str = "k", unique: bool = False, **more: str) -> Command:
        return asking(
            12,
            topic="T", key=key, maxNum=str(most), beginTimestamp="0", endTimestamp=str(time_of(1000)),
            _UNIQUE_KEY_QUERY=str(unique).lower(), **more,
        )  # fmt: skip

    def fill(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 10, 150, properties={o: {"KEYS": "k other"} for o in (20, 30, 120)})

    def test_merged_without_doubles(self, desk: Desk) -> None:
        self.fill(desk)
        local = b"".join(record("T", 0, o, KEYS="k") for o in (120, 160))
        broker = simple(0, None, local, indexLastUpdateTimestamp="5", indexLastUpdatePhyoffset="6")
        made = desk.ask(self.query(), broker)
        assert offsets_of(made) == [120, 160, 30, 20]
        assert fields(made) == {"indexLastUpdateTimestamp": "5", "indexLastUpdatePhyoffset": "6"}

    def test_not_found_at_the_broker(self, desk: Desk) -> None:
        self.fill(desk)
        made = desk.ask(self.query(most=2), recorded("query-message-12-not-found.answer"))
        assert isinstance(made, Command)
        assert (made.code, made.remark, offsets_of(made)) == (0, None, [120, 30])
        assert set(made.ext) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}

    def test_unique_keys_are_looked_up_whatever_the_count(self, desk: Desk) -> None:
        made = desk.ask(self.query(most=0, key="UT0-77", unique=True), simple(22, "can not find"))
        assert offsets_of(made) == [77]

    def test_enough_is_enough(self, desk: Desk) -> None:
        self.fill(desk)
        broker = simple(0, None, record("T", 0, 160, KEYS="k"))
        assert desk.ask(self.query(most=1), broker) is broker
        for most in (0, -3):
            assert desk.ask(self.query(most=most), broker) is broker
        assert len(offsets_of(desk.ask(self.query(most=2**31 - 1), broker))) == 4

    def test_other_kinds_of_query_pass(self, desk: Desk) -> None:
        self.fill(desk)
        answer = simple(22, "can not find")
        assert desk.ask(self.query(indexType="T"), answer) is answer
        assert desk.ask(self.query(lastKey="x"), answer) is answer

    def test_a_body_that_is_no_records_passes(self, desk: Desk) -> None:
        self.fill(desk)
        answer = simple(0, None, b"strange")
        assert desk.ask(self.query(), answer) is answer

    def test_an_archive_that_fails(self, desk: Desk) -> None:
        """The broker's messages alone would look like all there are."""
        desk.archive.error = Unavailable("away")
        assert desk.ask(self.query(), simple(22, "can not find")) == RETRY
        some = simple(0, None, record("T", 0, 160, KEYS="k"))
        assert desk.ask(self.query(), some) == RETRY
        assert desk.count("query", "retry") == 2
        assert desk.count("query", "passed") == 0

    @pytest.mark.parametrize(
        ("call_ms", "limit"), [(100, "gateway.call_timeout_ms"), (60_000, "gateway.read_timeout_ms")]
    )
    def test_an_archive_that_is_slow_and_which_setting_bounds_it(self, call_ms: int, limit: str) -> None:
        desk = Desk(read_timeout_ms=300, call_timeout_ms=call_ms)
        slow, goes_on = desk.archive.query_message, threading.Event()

        def late(*args: Any, **options: Any) -> Any:
            goes_on.wait(10)
            return slow(*args, **options)

        desk.archive.query_message = late
        some = simple(0, None, record("T", 0, 160, KEYS="k"))
        with pytest.raises(Unavailable) as caught:
            asyncio.run(desk.answers.answer(self.query(), some, HOLD, desk.connection))
        goes_on.set()
        assert limit in str(caught.value)
        assert desk.count("query", "retry") == 1
        desk.close()

    def test_recorded(self, desk: Desk) -> None:
        answer = recorded("query-message-12.answer")
        assert desk.ask(recorded("query-message-12-not-found.request"), answer) is answer


class TestTables:
    def test_topic_stats(self, desk: Desk) -> None:
        answer = recorded("topic-stats-202.answer")
        request = recorded("topic-stats-202.request")
        assert desk.ask(request, answer) is answer  # every minimum is 0
        answer.body = bytes(answer.body).replace(b'"minOffset":0', b'"minOffset":900')
        answer.body = answer.body.replace(b"1795226814796", b"0")
        desk.archive.fill("OrderEvents", 1, 3, 1704)
        made = desk.ask(request, answer)
        assert isinstance(made, Command)
        one = re.search(rb'"queueId":1,"topic":"OrderEvents"}:(\{[^}]*\})', bytes(made.body))
        assert one is not None
        assert json.loads(one[1]) == {
            "lastUpdateTimestamp": time_of(1703), "maxOffset": 1704, "minOffset": 3,
        }  # fmt: skip
        before, after = bytes(answer.body), bytes(made.body)
        assert after == before.replace(
            b'{"lastUpdateTimestamp":0,"maxOffset":1704,"minOffset":900}', one[1]
        )  # nothing else changed, byte for byte

    def test_consume_stats(self, desk: Desk) -> None:
        body = (
            b'{"consumeTps":0.5,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:'
            b'{"brokerOffset":200,"consumerOffset":41,"lastTimestamp":0,"pullOffset":-1}}}'
        )
        made = desk.ask(asking(208, consumerGroup="G"), simple(0, None, body))
        assert isinstance(made, Command)
        assert bytes(made.body) == body.replace(b'"lastTimestamp":0', b'"lastTimestamp":%d' % time_of(40))

    def test_consume_time_span(self, desk: Desk) -> None:
        span = {
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "T"},
            "minTimeStamp": time_of(100), "maxTimeStamp": time_of(199), "consumeTimeStamp": 0, "delayTime": 1,
        }  # fmt: skip
        body = json.dumps({"consumeTimeSpanSet": [span]}, separators=(",", ":")).encode()
        made = desk.ask(asking(303, topic="T", group="G"), simple(0, None, body))
        assert isinstance(made, Command)
        assert json.loads(bytes(made.body))["consumeTimeSpanSet"][0]["minTimeStamp"] == time_of(10)

    @pytest.mark.parametrize("code", [202, 208, 303])
    @pytest.mark.parametrize(
        "body", [b"", b"{}", b"[", b"\xff", b'{"offsetTable":{{}', b'{"consumeTimeSpanSet":[1]}']
    )
    def test_strange_tables_pass(self, desk: Desk, code: int, body: bytes) -> None:
        answer = simple(0, None, body)
        assert desk.ask(asking(code, topic="T"), answer) is answer


class TestResets:
    BODY = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:100}}'

    def order(self, time_ms: int = time_of(40), **more: str) -> Command:
        ext = {
            "topic": "T",
            "group": "G",
            "timestamp": str(time_ms),
            "queueId": "-1",
            "offset": "-1",
            "isForce": "true",
        }
        return asking(222, **{**ext, **more})

    def test_a_reset_to_a_time_before_the_broker_goes_back_into_the_archive(self, desk: Desk) -> None:
        made = desk.ask(self.order(), simple(0, None, self.BODY))
        assert isinstance(made, Command)
        assert bytes(made.body) == self.BODY.replace(b":100", b":40")
        position = asking(14, consumerGroup="G", topic="T", queueId="0")
        assert fields(desk.ask(position, simple(0, offset="100"))) == {"offset": "40"}
        other = simple(0, offset="150")
        assert desk.ask(position, other) is other
        delivered = answered(21, "OFFSET_RESET", 100, 100, 200)
        made = desk.ask(pull(offset=170), delivered)
        assert isinstance(made, Command)
        assert (made.code, made.remark, made.ext["nextBeginOffset"]) == (21, "OFFSET_RESET", "40")
        assert made.ext["minOffset"] == "40"
        assert desk.ask(pull(offset=170), delivered) is delivered  # once
        assert offsets_of(desk.ask(pull(offset=40, count=2), too_small(100, 200))) == [40, 41]

    def test_another_reset_in_between_is_left_alone(self, desk: Desk) -> None:
        desk.ask(self.order(), simple(0, None, self.BODY))
        delivered = answered(21, "OFFSET_RESET", 130, 100, 200)
        assert desk.ask(pull(offset=170), delivered) is delivered
        delivered = answered(21, "OFFSET_RESET", 100, 100, 200)
        other = pull(offset=170)
        other.ext["consumerGroup"] = "H"
        assert desk.ask(other, delivered) is delivered

    @pytest.mark.parametrize("way", ["time", "commit"])
    def test_a_target_does_not_stay_for_ever(self, desk: Desk, way: str) -> None:
        desk.ask(self.order(), simple(0, None, self.BODY))
        if way == "time":
            desk.clock.advance(3601)
        else:
            for offset in ("170", "120"):
                commit = asking(15, consumerGroup="G", topic="T", queueId="0", commitOffset=offset)
                desk.ask(commit, simple(0))
        delivered = answered(21, "OFFSET_RESET", 100, 100, 200)
        assert desk.ask(pull(offset=170), delivered) is delivered

    def test_a_consumer_that_has_not_heard_of_it_yet_commits_where_it_stood(self, desk: Desk) -> None:
        desk.ask(self.order(), simple(0, None, self.BODY))
        for offset in ("170", "170", "175"):
            desk.ask(asking(15, consumerGroup="G", topic="T", queueId="0", commitOffset=offset), simple(0))
        made = desk.ask(pull(offset=175), answered(21, "OFFSET_RESET", 100, 100, 200))
        assert isinstance(made, Command)
        assert made.ext["nextBeginOffset"] == "40"

    def test_what_the_broker_can_do_itself_passes(self, desk: Desk) -> None:
        answer = simple(0, None, self.BODY)
        assert desk.ask(self.order(time_of(120)), answer) is answer
        assert desk.ask(self.order(-1), answer) is answer
        assert desk.ask(self.order(queueId="0", offset="7"), answer) is answer
        assert desk.ask(recorded("reset-offset-222.request"), recorded("reset-offset-222.answer")) != RETRY
        refused = simple(206, "Consumer not online")
        assert desk.ask(self.order(), refused) is refused
        strange = simple(0, None, b'{"offsetTable":[]}')
        assert desk.ask(self.order(), strange) is strange

    def test_the_operator_is_told_when_the_archive_cannot_say(self, desk: Desk) -> None:
        desk.archive.error = Unavailable("away")
        assert desk.ask(self.order(), simple(0, None, self.BODY)) == RETRY


class TestPop:
    def pop(self, starts: str) -> tuple[Command, Command]:
        request = asking(200050, consumerGroup="G", topic="T", queueId="-1", maxMsgNums="32")
        return request, simple(0, None, startOffsetInfo=starts, msgOffsetInfo="0 0 100,101")

    def skipped(self, desk: Desk) -> float:
        return desk.metrics.value("tiered_gateway_pop_skipped_messages_total") or 0

    def test_a_start_below_the_minimum_is_a_skip(self, desk: Desk) -> None:
        request, answer = self.pop("0 0 40;0 1 7")
        assert desk.ask(request, answer) is answer
        assert self.skipped(desk) == 0  # no minimum heard yet
        desk.ask(pull(offset=120), found("T", 0, range(120, 122), 100, 200))
        assert desk.ask(request, answer) is answer
        assert self.skipped(desk) == 60
        desk.ask(request, answer)
        assert self.skipped(desk) == 60
        assert desk.metrics.value("tiered_gateway_pop_skips_total") == 1

    def test_retry_topics_have_their_own_minimum(self, desk: Desk) -> None:
        desk.ask(pull(offset=120), found("T", 0, range(120, 122), 100, 200))
        desk.ask(*self.pop("1 0 40;2 0 40"))
        assert self.skipped(desk) == 0
        desk.ask(pull("%RETRY%G_T", offset=50), found("%RETRY%G_T", 0, range(50, 52), 45, 60))
        desk.ask(*self.pop("1 0 40"))
        assert self.skipped(desk) == 5

    @pytest.mark.parametrize("starts", ["x", "0 1", "0 0 99999999999999999999", "a b c"])
    def test_strange_answers_pass(self, desk: Desk, starts: str) -> None:
        request, answer = self.pop(starts)
        assert desk.ask(request, answer) is answer
        assert desk.metrics.value("tiered_gateway_bad_requests_total", code="200050") == 1


HEADERS = (
    PullRequest.parse,
    PullBounds.parse,
    QueueRequest.parse,
    SearchRequest.parse,
    QueryRequest.parse,
    ResetRequest.parse,
)
NAMES = (
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "subscription", "expressionType",
    "maxMsgBytes", "nextBeginOffset", "minOffset", "maxOffset", "timestamp", "boundaryType", "key", "maxNum",
    "beginTimestamp", "endTimestamp", "_UNIQUE_KEY_QUERY", "indexType", "lastKey", "group", "offset", "bname", "lo",
    "startOffsetInfo", "commitOffset",
)  # fmt: skip
values = st.one_of(
    st.text(max_size=12),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.sampled_from(
        ["", "0", "-1", "+5", " 5", "5_0", "٣", "1e3", "true", "*", "TAG", "SQL92", "0 0 5", "T"]
    ),
)
extras = st.dictionaries(st.sampled_from(NAMES), values, max_size=len(NAMES))


class TestWhateverComes:
    @settings(max_examples=300, deadline=None)
    @given(extras)
    def test_headers_give_a_value_or_invalid(self, ext: dict[str, str]) -> None:
        for parse in HEADERS:
            with contextlib.suppress(Invalid):
                parse(ext)

    @settings(max_examples=300, deadline=None)
    @given(st.text(max_size=40))
    def test_pop_starts(self, info: str) -> None:
        try:
            starts = parse_pop_starts(info)
        except Invalid:
            return
        assert all(isinstance(start, PopStart) for start in starts)

    @settings(max_examples=300, deadline=None)
    @given(
        st.one_of(
            st.binary(max_size=60),
            st.text(alphabet='{}[]":,0a ', max_size=40).map(lambda t: f'"t":{t}'.encode()),
        )
    )
    def test_tables_give_a_value_or_corrupt(self, body: bytes) -> None:
        for listed in (None, "0"):
            try:
                table = decode_object_map(body, "t", listed=listed)
            except Corrupt:
                continue
            assert decode_object_map(table.encode(), "t", listed=listed).entries == table.entries

    @settings(max_examples=150, deadline=None)
    @given(
        st.sampled_from(sorted(Answers.codes)),
        extras,
        st.integers(-1, 30),
        st.sampled_from(
            [None, "FOUND", "OFFSET_TOO_SMALL", "OFFSET_RESET", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL"]
        ),
        extras,
        st.binary(max_size=80),
    )
    def test_answers_replace_pass_or_say_retry(
        self,
        code: int,
        asked: dict[str, str],
        answer_code: int,
        remark: str | None,
        ext: dict[str, str],
        body: bytes,
    ) -> None:
        desk = Desk()
        desk.archive.fill("T", 0, 0, 5)
        answer = Command(answer_code, 5, 1, remark, ext, body)
        made = desk.ask(Command(code, 5, ext=asked, body=body), answer)
        if isinstance(made, Command):
            assert made.opaque == 5
            lost = answer_code in (20, 21) and remark == "OFFSET_TOO_SMALL" and code in (11, 361)
            ours = asked.get("bname") in (None, "broker-a") and asked.get("lo") != "true"
            assert not (
                lost and ours and made is answer and asked.get("topic") == "T" and ext.get("minOffset") == "5"
            )
        desk.close()


def test_object_maps_survive() -> None:
    body = bytes(recorded("topic-stats-202.answer").body)
    assert decode_object_map(body, "offsetTable").encode() == body
    body = bytes(recorded("reset-offset-222.answer").body)
    assert decode_object_map(body, "offsetTable").encode() == body
