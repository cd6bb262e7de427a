"""Questions that tools and consumers ask a broker, over the gateway to a real one that has deleted most of its messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.gatewayproc import Gateway
from tests.kit.remoting import Answer, request
from tiered.codec.record.hosts import decode_message_id
from tiered.codec.record.message import decode_message
from tiered.codec.remoting.codes import RequestCode

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

GROUP = "g_questions"


class Asker:
    """One tool, which asks the broker directly or over the gateway."""

    def __init__(self, cold: ColdScene, gateway: Gateway) -> None:
        self.direct = cold.broker.address
        self.gateway = gateway.broker(TOPIC)

    def both(self, code: int, **ext: str) -> tuple[Answer, Answer]:
        return request(self.direct, code, ext), request(self.gateway, code, ext)


@pytest.fixture(scope="module")
def ask(cold: ColdScene) -> Iterator[Asker]:
    with cold.gateway("posix").running() as gateway:
        yield Asker(cold, gateway)


def queue(number: int) -> dict[str, str]:
    return {"topic": TOPIC, "queueId": str(number)}


def without_ports(remark: str) -> str:
    """Remarks name the client's connection."""
    return re.sub(r":\d+\]", "]", remark)


def test_minimum_and_times(cold: ColdScene, ask: Asker) -> None:
    for number, low in cold.minimum.items():
        lines = [line for line in cold.sent if line["queue_id"] == number]
        direct, through = ask.both(RequestCode.GET_MIN_OFFSET, **queue(number))
        assert (int(direct.fields["offset"]), int(through.fields["offset"])) == (low, 0)
        direct, through = ask.both(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue(number))
        first = int(through.fields["timestamp"])
        assert first < int(direct.fields["timestamp"])
        for boundary in ("LOWER", "UPPER"):
            _, through = ask.both(
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
                **queue(number),
                timestamp=str(first),
                boundaryType=boundary,
            )
            assert 0 <= int(through.fields["offset"]) < low
        direct, through = ask.both(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, **queue(number), timestamp=str(first + (1 << 40))
        )
        assert through.fields == direct.fields
        assert len(lines) >= low


def test_an_old_message_by_its_id(cold: ColdScene, ask: Asker) -> None:
    old = [line for line in cold.sent if line["queue_offset"] < cold.minimum[line["queue_id"]]]
    line = old[len(old) // 2]
    _, place = decode_message_id(line["offset_msg_id"])
    for offset in (place, place + 1, 0):
        direct, through = ask.both(RequestCode.VIEW_MESSAGE_BY_ID, offset=str(offset), topic=TOPIC)
        if offset == place + 1:
            assert through.code == 1, "no record begins there"
        else:
            assert through.code == 0
            assert decode_message(through.body).physical_offset == offset
        assert direct.body != through.body or direct.code == through.code


def test_a_recent_message_by_its_id_and_garbage(cold: ColdScene, ask: Asker) -> None:
    recent = [line for line in cold.sent if line["queue_offset"] >= cold.minimum[line["queue_id"]]]
    _, place = decode_message_id(recent[0]["offset_msg_id"])
    direct, through = ask.both(RequestCode.VIEW_MESSAGE_BY_ID, offset=str(place), topic=TOPIC)
    assert (through.code, through.body) == (0, direct.body)
    for shift in (1, 4, 7, 50):
        _, through = ask.both(RequestCode.VIEW_MESSAGE_BY_ID, offset=str(place + shift), topic=TOPIC)
        assert through.code == 1


def test_by_key(cold: ColdScene, ask: Asker) -> None:
    for line in (cold.sent[0], cold.sent[-1]):
        _, through = ask.both(
            RequestCode.QUERY_MESSAGE, topic=TOPIC, key=line["msg_id"], maxNum="32", beginTimestamp="0",
            endTimestamp=str(1 << 50), _UNIQUE_KEY_QUERY="true",
        )  # fmt: skip
        assert through.code == 0, through.remark
        found = decode_message(through.body)
        assert (found.queue_id, found.queue_offset) == (line["queue_id"], line["queue_offset"])


def test_tables(cold: ColdScene, ask: Asker) -> None:
    _, through = ask.both(RequestCode.GET_TOPIC_STATS_INFO, topic=TOPIC)
    minimums = re.findall(rb'"minOffset":(\d+)', through.body)
    assert minimums == [b"0"] * len(cold.minimum)
    _, through = ask.both(RequestCode.QUERY_CONSUME_TIME_SPAN, topic=TOPIC, group=cold.group("spans"))
    if through.code == 0:
        spans = json.loads(through.body)["consumeTimeSpanSet"]
        assert len({span["minTimeStamp"] for span in spans}) >= 1


def test_a_reset_to_a_time_that_only_the_archive_has(cold: ColdScene, ask: Asker) -> None:
    group = cold.group("reset")
    cold.commit(group, {number: low + 1 for number, low in cold.minimum.items()})
    _, through = ask.both(RequestCode.GET_EARLIEST_MSG_STORETIME, **queue(0))
    reset = {"topic": TOPIC, "group": group, "timestamp": through.fields["timestamp"], "isForce": "true"}
    answer = request(
        ask.gateway, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, {**reset, "queueId": "-1", "offset": "-1"}
    )
    assert answer.code == 0, answer.remark
    offsets = [int(offset) for offset in re.findall(rb"\}:(\d+)", answer.body)]
    assert len(offsets) == len(cold.minimum)
    assert max(offsets) < min(cold.minimum.values())
    pull = {
        **queue(0), "consumerGroup": group, "queueOffset": str(cold.minimum[0] + 1), "maxMsgNums": "3", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    moved = request(ask.gateway, RequestCode.PULL_MESSAGE, pull)
    assert (moved.code, moved.remark) == (21, "OFFSET_RESET")
    target = int(moved.fields["nextBeginOffset"])
    assert target < cold.minimum[0]
    served = request(ask.gateway, RequestCode.PULL_MESSAGE, {**pull, "queueOffset": str(target)})
    assert served.code == 0
    assert int.from_bytes(served.body[20:28], "big") == target


@pytest.mark.parametrize(
    "ext",
    [
        {"queueId": "99"},
        {"queueId": "-1"},
        {"topic": "NoSuchTopic"},
        {"consumerGroup": ""},
        {"queueOffset": "-9"},
        {"queueOffset": str((1 << 63) - 1)},
        {"queueOffset": "x"},
        {"maxMsgNums": "-5"},
        {"maxMsgNums": str((1 << 31) - 1)},
        {"subscription": "a ==", "expressionType": "SQL92"},
        {"subscription": "||"},
    ],
    ids=str,
)
def test_bad_pulls_get_an_answer_that_clients_understand(
    cold: ColdScene, ask: Asker, ext: dict[str, str]
) -> None:
    pull = {
        **queue(0), "consumerGroup": cold.group("bad"), "queueOffset": "5", "maxMsgNums": "3", "sysFlag": "4",
        "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    direct, through = ask.both(RequestCode.PULL_MESSAGE, **{**pull, **ext})
    assert through.code == 0 or through.remark
    if direct.code not in (0, 20, 21):
        assert (through.code, without_ports(through.remark)) == (direct.code, without_ports(direct.remark))
    if through.code == 0:
        size = int.from_bytes(through.body[:4], "big")
        assert decode_message(through.body[:size]).queue_offset == 5
