"""A message as the request that sends it: its header fields, and which properties travel with which kind of send."""

from __future__ import annotations

from tiered.broker.send import ANOTHER_DELIVERY, KEPT_SYS_FLAGS, NEW_MESSAGE, Sending, properties_text
from tiered.codec.record.message import Message, encode_message
from tiered.replay.records import request_for

SEEN = {
    "KEYS": "k1 k2", "TAGS": "red", "own": "1", "RETRY_TOPIC": "T", "RECONSUME_TIME": "2", "MIN_OFFSET": "0", "DELAY": "3",
    "TRAN_MSG": "true", "TIMER_OUT_MS": "9", "__RMQ.TRANSIENT.x": "y", "CLUSTER": "c", "POP_CK": "0 1", "ORIGIN_GROUP": "G",
}  # fmt: skip


def kept(text: str) -> list[str]:
    """Names of the properties of a send."""
    return [entry.partition("\x01")[0] for entry in text.split("\x02") if entry]


def test_another_delivery_keeps_what_was_noted_on_the_way_and_a_new_message_begins_anew() -> None:
    assert kept(properties_text(SEEN, NEW_MESSAGE)) == ["KEYS", "TAGS", "own"]
    again = kept(properties_text(SEEN, ANOTHER_DELIVERY))
    assert again == [
        "KEYS",
        "TAGS",
        "own",
        "RETRY_TOPIC",
        "RECONSUME_TIME",
        "MIN_OFFSET",
        "__RMQ.TRANSIENT.x",
    ]
    assert ANOTHER_DELIVERY.names < NEW_MESSAGE.names


def test_the_fields_of_a_send() -> None:
    request = Sending("T", 3, b"body", "a\x01b\x02", "GROUP", sys_flag=1, flag=2, born_ms=5).request()
    assert (request.code, request.body) == (10, b"body")
    assert {name: str(value) for name, value in request.ext.items()} == {
        "producerGroup": "GROUP", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "3",
        "sysFlag": "1", "bornTimestamp": "5", "flag": "2", "properties": "a\x01b\x02", "reconsumeTimes": "0",
        "unitMode": "false", "batch": "false",
    }  # fmt: skip


def test_a_message_to_a_retry_topic_keeps_its_compression_and_makes_one_queue() -> None:
    request = request_for(
        encode_message(Message("T", 0, 7, 0, b"x", sys_flag=0x8 | 0x301)), "G", "%RETRY%G_T"
    )
    assert request is not None
    assert request.ext["sysFlag"] == 0x301 & KEPT_SYS_FLAGS == 0x301
    assert (request.ext["defaultTopicQueueNums"], request.ext["queueId"]) == (1, 0)
