"""RocketMQ's requests and answers: their codes, and header fields as typed values.

Fields travel as text (``extFields``); ``parse`` makes values of them by Java's rules for numbers (decimal, 32 or 64 bits,
nothing else) or raises ``BadRequest`` naming the field. Source: RocketMQ's header classes; recorded frames are in
``tests/data/wire``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

from msgspec import Struct

from tiered.errors import BadRequest
from tiered.model import BoundaryType


class RequestCode(IntEnum):
    """Codes of all requests that the program sends, answers, corrects or watches."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    UPDATE_AND_CREATE_TOPIC = 17
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    GET_ALL_CONSUMER_OFFSET = 43
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_SUBSCRIPTION_GROUP = 200
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTIONS = 203
    GET_CONSUME_STATS = 208
    RESET_CONSUMER_CLIENT_OFFSET = 220  # the broker's own, to a consumer
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    QUERY_CONSUME_TIME_SPAN = 303
    GET_CONSUMER_RUNNING_INFO = 307
    GET_SUBSCRIPTION_GROUP = 352
    LITE_PULL_MESSAGE = 361
    GET_BROKER_HA_STATUS = 907
    POP_MESSAGE = 200050


class ResponseCode(IntEnum):
    """Codes of answers that mean something to the program."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2  # every client tries again later
    REQUEST_CODE_NOT_SUPPORTED = 3  # an older broker
    FLUSH_DISK_TIMEOUT = 10  # the message is stored, and perhaps not flushed
    SLAVE_NOT_AVAILABLE = 11  # stored
    FLUSH_SLAVE_TIMEOUT = 12  # stored
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14  # the disk is full, or this is a slave
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    CONSUMER_NOT_ONLINE = 206
    FLOW_CONTROL = 215
    NOT_LEADER_FOR_QUEUE = 501
    GO_AWAY = 1500


class PullStatus(Enum):
    """The store's status, which is the remark of a pull answer, where the gateway cares."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"


SYS_SUBSCRIPTION = 0x4
"""``sysFlag``: the request's own ``subscription`` and ``expressionType`` count."""

SYS_CLASS_FILTER = 0x8
"""``sysFlag``: the (long gone) filter servers."""

TAG = "TAG"
SQL92 = "SQL92"

MAX_TEXT = 32_767
"""Longest group, topic or key that is looked at."""

LOGICAL_BROKER_PREFIX = "__syslo__"
"""Names of the pretended brokers of static topics, whose offsets are not those of any stored record."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_SURE_DIGITS = {32: 10, 64: 19}
"""By bits: fewer digits than these fit, whatever they are."""


def number_field(fields: Mapping[str, str], name: str, bits: int = 64, default: int | None = None) -> int:
    """The field as a signed number of ``bits``; absent: ``default``, or ``BadRequest`` without one."""
    text = fields.get(name)
    if text is None:
        if default is not None:
            return default
        raise BadRequest("a field is missing", field=name)
    if len(text) < _SURE_DIGITS[bits] and text.isascii() and text.isdecimal():  # nearly all of them
        return int(text)
    value = int(text) if _NUMBER.fullmatch(text) else None
    if value is None or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise BadRequest("a field is not a number", field=name, expected=f"int{bits}", found=repr(text[:40]))
    return value


def text_field(fields: Mapping[str, str], name: str) -> str:
    """The field, which must be there and hold something."""
    value = fields.get(name)
    if not value:
        raise BadRequest("a field is missing", field=name)
    if len(value) > MAX_TEXT:
        raise BadRequest("a field is too long", field=name, expected=f"≤ {MAX_TEXT}", found=len(value))
    return value


def truth(fields: Mapping[str, str], name: str) -> bool:
    """Java's ``Boolean.parseBoolean``; absent is false."""
    value = fields.get(name)
    return value is not None and value.lower() == "true"


def is_logical(fields: Mapping[str, str]) -> bool:
    """Whether queue ids and offsets of this request are those of a static topic, which the broker maps to physical ones."""
    return fields.get("bname", "").startswith(LOGICAL_BROKER_PREFIX) or truth(fields, "lo")


class PullRequest(Struct, frozen=True):
    """Codes 11 and 361. ``max_bytes`` ``None``: the client sets no limit. ``subscription`` ``None``: see its heartbeat."""

    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int
    sys_flag: int
    subscription: str | None
    expression_type: str
    max_bytes: int | None
    proxied_client: str | None

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> PullRequest:
        """``BadRequest`` names the field that is missing or wrong."""
        sys_flag = number_field(fields, "sysFlag", 32)
        limit = number_field(fields, "maxMsgBytes", 32, 0)
        own = bool(sys_flag & SYS_SUBSCRIPTION)
        return cls(
            group=text_field(fields, "consumerGroup"),
            topic=text_field(fields, "topic"),
            queue_id=number_field(fields, "queueId", 32),
            offset=number_field(fields, "queueOffset"),
            max_count=number_field(fields, "maxMsgNums", 32),
            sys_flag=sys_flag,
            subscription=fields.get("subscription", "") if own else None,
            expression_type=fields.get("expressionType") or TAG,
            max_bytes=limit if limit > 0 else None,
            proxied_client=fields.get("proxyFrowardClientId") or None,
        )


class PullBounds(Struct, frozen=True):
    """Fields of every pull answer of a broker that looked at its store: queue offsets, [``min_offset``, ``max_offset``)."""

    next_offset: int
    min_offset: int
    max_offset: int

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> PullBounds:
        """``BadRequest`` if one is missing or not a number."""
        return cls(
            number_field(fields, "nextBeginOffset"),
            number_field(fields, "minOffset"),
            number_field(fields, "maxOffset"),
        )


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """What requests about one queue share (14, 15, 29, 31, 32); ``group`` is empty where there is none."""

    topic: str
    queue_id: int
    group: str = ""

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> QueueRequest:
        """``BadRequest`` names the field that is missing or wrong."""
        return cls(
            text_field(fields, "topic"),
            number_field(fields, "queueId", 32),
            fields.get("consumerGroup", "")[:MAX_TEXT],
        )


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Code 29: the offset at a store time, in ms."""

    queue: QueueRequest
    time_ms: int
    boundary: BoundaryType

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> SearchRequest:
        """``BadRequest`` names the field that is missing or wrong; an unknown boundary is ``LOWER``, as in RocketMQ."""
        upper = fields.get("boundaryType", "").upper() == "UPPER"
        return cls(
            QueueRequest.parse(fields),
            number_field(fields, "timestamp"),
            BoundaryType.UPPER if upper else BoundaryType.LOWER,
        )


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """Code 12. Times in ms, both included. ``paged`` or ``other_index``: kinds of query that the archive does not answer."""

    topic: str
    key: str
    max_count: int
    begin_ms: int
    end_ms: int
    unique: bool
    paged: bool
    other_index: bool

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> QueryRequest:
        """``BadRequest`` names the field that is missing or wrong."""
        index = fields.get("indexType") or "K"
        return cls(
            topic=text_field(fields, "topic"),
            key=text_field(fields, "key"),
            max_count=number_field(fields, "maxNum", 32),
            begin_ms=number_field(fields, "beginTimestamp"),
            end_ms=number_field(fields, "endTimestamp"),
            unique=truth(fields, "_UNIQUE_KEY_QUERY") or index == "U",
            paged=bool(fields.get("lastKey")),
            other_index=index not in ("K", "U"),
        )


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """Code 222: a group's offsets are moved to a store time. ``explicit``: to an offset instead; time −1: to the end."""

    topic: str
    group: str
    time_ms: int
    explicit: bool

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> ResetRequest:
        """``BadRequest`` names the field that is missing or wrong."""
        return cls(
            text_field(fields, "topic"),
            text_field(fields, "group"),
            number_field(fields, "timestamp"),
            number_field(fields, "queueId", 32, -1) >= 0 and number_field(fields, "offset", 64, -1) != -1,
        )


@dataclass(frozen=True, slots=True)
class PopStart:
    """One entry of a POP answer's ``startOffsetInfo``: ``kind`` 0 the topic itself, 1 and 2 the group's retry topics."""

    kind: int
    queue_id: int
    offset: int


def parse_pop_starts(info: str) -> tuple[PopStart, ...]:
    """The entries of ``startOffsetInfo`` (``kind queue offset``, joined with ``;``). ``BadRequest`` for anything else."""
    found = []
    for entry in filter(None, info.split(";")):
        parts = entry.split(" ")
        if len(parts) != 3:
            raise BadRequest("startOffsetInfo has a strange entry", found=repr(entry[:80]))
        kind, queue_id, offset = (
            number_field({"startOffsetInfo": part}, "startOffsetInfo") for part in parts
        )
        found.append(PopStart(kind, queue_id, offset))
    return tuple(found)


PULL_LOOKED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
"""Codes of answers to a pull for which the broker looked at its store."""
