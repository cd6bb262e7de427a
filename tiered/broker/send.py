"""A message as the request that sends it (10): which of its properties and system flags travel, and which stay behind.

What is archived was sent before, and brokers and clients have noted things on it. Two kinds of sends are told apart by what
they leave out: ``ANOTHER_DELIVERY`` to the group that was to have the message, and a ``NEW_MESSAGE`` to anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiered.broker.client import Request
from tiered.codec.record.layout import SYS_COMPRESSED, SYS_COMPRESSION_TYPE, SYS_MULTI_TAGS
from tiered.codec.remoting.codes import RequestCode, ResponseCode

KEPT_SYS_FLAGS = SYS_COMPRESSED | SYS_MULTI_TAGS | SYS_COMPRESSION_TYPE
"""Compressed, many tags, kind of compression. What a transaction or an address made of the record does not travel."""

STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Answers to a send that say: the message is stored; perhaps not flushed in time, without a slave, or not there in time."""

AGAIN = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.NOT_LEADER_FOR_QUEUE,
        ResponseCode.GO_AWAY,
    }
)
"""Answers to a send of a broker that is loaded, full or handing over, unless ``refused_for_good``. Asked again after a
pause, by a new route."""


def refused_for_good(code: int, remark: str) -> bool:
    """Whether rights were refused: brokers say "forbidden" of one that takes no messages now, and use one code for both."""
    return "AclException" in remark or (code == ResponseCode.NO_PERMISSION and "forbidden" not in remark)


ORIGIN_GROUP = "ORIGIN_GROUP"
"""A property of the broker's own: with the group's name in it, a message to a retry topic wakes POPs that wait (5.5; older
brokers let them time out first, which takes some seconds)."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Properties that do not travel: those of these names, and all that begin with one of these prefixes."""

    names: frozenset[str]
    prefixes: tuple[str, ...]

    def __contains__(self, name: str) -> bool:
        return name in self.names or name.startswith(self.prefixes)


ANOTHER_DELIVERY = Dropped(
    frozenset(
        {"TRAN_MSG", "PGROUP", "DELAY", "WAIT", "INNER_NUM", "CLUSTER", "POP_CK", "__CRC32#", ORIGIN_GROUP}
    ),
    ("TIMER_",),
)
"""Left out of a message that is handed to its own group once more: what would delay it, make it part of a transaction or a
batch, or speaks of the record that it was. What was noted on its way so far (its topic before a retry, how often it was tried)
stays: the group's clients go by it."""

NEW_MESSAGE = Dropped(
    ANOTHER_DELIVERY.names
    | {
        "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "REAL_TOPIC", "REAL_QID", "TRANS_OFFSET", "TRAN_PREPARED_QUEUE_OFFSET",
        "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__", "MIN_OFFSET", "MAX_OFFSET",
        "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME",
        "INNER_BASE", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_REGION",
        "TRACE_ON", "POP_CK_OFFSET", "1ST_POP_TIME", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT",
    },
    (*ANOTHER_DELIVERY.prefixes, "__RMQ.TRANSIENT."),
)  # fmt: skip
"""Left out of a message that is sent as a new one, to any topic: also all that brokers and clients noted on its way so far.
It must not be taken for a retry, nor sent on to where it once was."""


@dataclass(frozen=True, slots=True)
class Sending:
    """A message as a producer sends it. ``properties``: as they travel, ``name 0x01 value 0x02`` for each.

    ``queues_if_new``: queues of the topic if the broker makes it at this send; RocketMQ's producers say 4.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: str
    producer_group: str
    sys_flag: int = 0
    flag: int = 0
    born_ms: int = 0
    reconsume_times: int = 0
    queues_if_new: int = 4

    def request(self) -> Request:
        """The request that stores it in the queue."""
        ext = {
            "producerGroup": self.producer_group,
            "topic": self.topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": self.queues_if_new,
            "queueId": self.queue_id,
            "sysFlag": self.sys_flag,
            "bornTimestamp": self.born_ms,
            "flag": self.flag,
            "properties": self.properties,
            "reconsumeTimes": self.reconsume_times,
            "unitMode": "false",
            "batch": "false",
        }
        return Request(RequestCode.SEND_MESSAGE, ext, self.body)


def properties_text(properties: Mapping[str, str], dropped: Dropped) -> str:
    """The properties that travel, as a send carries them."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items() if name not in dropped)
