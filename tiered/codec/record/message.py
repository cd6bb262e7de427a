"""One RocketMQ record as a value, both directions: for people, tests and the generator; hot paths use
``columns``.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tiered.codec.checksum import CRC_PROPERTY_BYTES, body_crc, crc_property
from tiered.codec.record.header import read_headers
from tiered.codec.record.hosts import decode_host, encode_host, encode_message_id
from tiered.codec.record.layout import (
    BEFORE_BODY,
    BODY_LENGTH,
    BORN_HOST_AT,
    FIXED,
    MAGIC_AND_FLAGS,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC_BYTES,
    SYS_BORN_V6,
    SYS_STORE_V6,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    body_at,
    properties_behind,
    store_host_at,
)
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Invalid

MAX_PROPERTIES_BYTES = 0x7FFF
"""The length of all properties is a signed 16-bit number."""


@dataclass(frozen=True, slots=True)
class Message:
    """Every field of a record. Hosts are ``ip:port`` (IPv6 in brackets); times in ms since the epoch;
    ``body`` as stored.

    The IPv6 bits of ``sys_flag`` follow from the hosts. ``version`` 1 or 2 is the magic; ``None``: 2 only for
    topics longer than 127 bytes, as brokers do.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: str = "127.0.0.1:0"
    store_timestamp: int = 0
    store_host: str = "127.0.0.1:10911"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    version: int | None = None

    @property
    def body_crc(self) -> int:
        """The CRC the header holds."""
        return body_crc(self.body)

    @property
    def tags(self) -> str | None:
        """The message's tag, if any."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The user's keys."""
        return tuple(k for k in self.properties.get("KEYS", "").split(" ") if k)

    @property
    def unique_key(self) -> str | None:
        """The id the client made, which users see as message id."""
        return self.properties.get("UNIQ_KEY")

    @property
    def message_id(self) -> str:
        """The broker's id of this copy: store host and physical offset."""
        return encode_message_id(self.store_host, self.physical_offset)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """``name 0x01 value 0x02`` for each; ``Invalid`` if a reader could not get the same mapping back."""
    for name, value in properties.items():
        if not name or not value or {"\x01", "\x02"} & set(name) or "\x02" in value:
            raise Invalid(
                "a message property cannot be stored",
                name=repr(name),
                value=repr(value),
                expected="not empty, no 0x02, no 0x01 in the name",
            )
    encoded = "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
    if len(encoded) > MAX_PROPERTIES_BYTES:
        raise Invalid(
            "the message properties are too long", found=len(encoded), expected=f"<= {MAX_PROPERTIES_BYTES}"
        )
    return encoded


def decode_properties(data: Buffer) -> dict[str, str]:
    """The mapping a broker would see in these bytes: malformed entries dropped, of equal names the last."""
    found: dict[str, str] = {}
    for entry in bytes(data).decode("utf-8", "replace").split("\x02"):
        name, divider, value = entry.partition("\x01")
        if name and divider and value:
            found[name] = value
    return found


def encode_message(message: Message, *, with_crc: bool = False) -> bytes:
    """The record a broker writes for ``message``; ``with_crc`` appends the whole-record ``__CRC32#``
    property.

    Raises ``Invalid`` if a field does not fit the format.
    """
    topic = message.topic.encode()
    version = message.version or (2 if len(topic) > MAX_V1_TOPIC_BYTES else 1)
    if version not in (1, 2) or len(topic) > (MAX_V1_TOPIC_BYTES if version == 1 else 0x7FFF):
        raise Invalid("the topic does not fit the record version", topic=message.topic, version=version)
    properties = encode_properties(message.properties)
    born, store = encode_host(message.born_host), encode_host(message.store_host)
    v6 = SYS_BORN_V6 * (len(born) > V4_HOST_BYTES) | SYS_STORE_V6 * (len(store) > V4_HOST_BYTES)
    sys_flag = message.sys_flag & ~(SYS_BORN_V6 | SYS_STORE_V6) | v6
    properties_length = len(properties) + with_crc * CRC_PROPERTY_BYTES
    size = 71 + version - 1 + len(born) + len(store) + len(message.body) + len(topic) + properties_length + 4
    try:
        head = FIXED.pack(
            size,
            MAGIC_V1 if version == 1 else MAGIC_V2,
            message.body_crc,
            message.queue_id,
            message.flag,
            message.queue_offset,
            message.physical_offset,
            sys_flag,
            message.born_timestamp,
        )
        stored_at = struct.pack(">q", message.store_timestamp)
        tail = BEFORE_BODY.pack(
            message.reconsume_times, message.prepared_transaction_offset, len(message.body)
        )
        lengths = (
            struct.pack(">B" if version == 1 else ">h", len(topic)),
            struct.pack(">h", properties_length),
        )
    except struct.error as error:
        raise Invalid("a field does not fit the record format", found=str(error)) from error
    parts = (head, born, stored_at, store, tail, message.body, lengths[0], topic, lengths[1], properties)
    record = b"".join(parts)
    return record + crc_property(record) if with_crc else record


def decode_message(record: Buffer) -> Message:
    """The one record that ``record`` is. ``Corrupt`` if lengths, magic, topic or body CRC are not right."""
    view = memoryview(record)
    headers = read_headers(view, np.zeros(1, np.int64), np.array([len(view)], np.int64))
    if headers.flaw is not None:
        raise Corrupt(
            "not a RocketMQ record", found=headers.flaw.reason, expected=f"one of {len(view)} bytes"
        )
    row = headers.rows[0]
    begin = int(row["body_position"])
    body = bytes(view[begin : begin + int(row["body_length"])])
    if body_crc(body) != int(row["body_crc"]):
        raise Corrupt("the body's CRC is wrong", expected=int(row["body_crc"]), found=body_crc(body))
    topic_at = int(headers.topic_positions[0])
    topic = bytes(view[topic_at : topic_at + int(headers.topic_lengths[0])])
    sys_flag = int(row["sys_flag"])
    born_bytes = V6_HOST_BYTES if sys_flag & SYS_BORN_V6 else V4_HOST_BYTES
    store_at = store_host_at(sys_flag)
    store_bytes = V6_HOST_BYTES if sys_flag & SYS_STORE_V6 else V4_HOST_BYTES
    try:
        name = topic.decode()
    except UnicodeDecodeError as error:
        raise Corrupt("the topic is not UTF-8", found=repr(topic)) from error
    return Message(
        topic=name,
        queue_id=int(row["queue_id"]),
        queue_offset=int(row["queue_offset"]),
        physical_offset=int(row["physical_offset"]),
        body=body,
        properties=decode_properties(view[int(row["properties_position"]) :]),
        flag=int(row["flag"]),
        sys_flag=sys_flag,
        born_timestamp=int(row["born_timestamp"]),
        born_host=decode_host(view[BORN_HOST_AT : BORN_HOST_AT + born_bytes]),
        store_timestamp=int(row["store_timestamp"]),
        store_host=decode_host(view[store_at : store_at + store_bytes]),
        reconsume_times=int(row["reconsume_times"]),
        prepared_transaction_offset=int(row["prepared_transaction_offset"]),
        version=int(row["version"]),
    )


def record_properties(record: Buffer) -> dict[str, str]:
    """The properties of the one record that ``record`` is, as a broker sees them, found without numpy: for filters, which look
    at one record at a time. ``Corrupt`` if its lengths do not add up; the body's CRC is not looked at.
    """
    view = memoryview(record)
    try:
        magic, sys_flag = MAGIC_AND_FLAGS.unpack_from(view)
        body = body_at(sys_flag)
        (body_length,) = BODY_LENGTH.unpack_from(view, body - BODY_LENGTH.size)
    except struct.error as cause:
        raise Corrupt("a record is shorter than its lengths say", found=f"{len(view)} bytes") from cause
    if body_length < 0 or magic not in (MAGIC_V1, MAGIC_V2):
        raise Corrupt("not a RocketMQ record", found=f"magic {magic:#x}, body length {body_length}")
    found = properties_behind(view, body + body_length, magic)
    if found is None:
        raise Corrupt("a record is shorter than its lengths say", found=f"{len(view)} bytes")
    begin, length = found
    area = view[begin : begin + max(length, 0)]
    if len(area) != length:
        raise Corrupt("a record is shorter than its lengths say", expected=length, found=len(area))
    return decode_properties(area)


# ---- as values that JSON can hold, for whatever shows messages to people and their tools


def message_fields(queue_offset: int, message: Message) -> dict[str, object]:
    """Every field of a message but its body, which ``body_fields`` shows. Times in ms since 1970."""
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "queue_offset": queue_offset,
        "store_timestamp": message.store_timestamp,
        "born_timestamp": message.born_timestamp,
        "tags": message.tags,
        "keys": list(message.keys),
        "unique_key": message.unique_key,
        "msg_id": message.message_id,
        "properties": dict(message.properties),
        "born_host": message.born_host,
        "store_host": message.store_host,
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "reconsume_times": message.reconsume_times,
        "prepared_transaction_offset": message.prepared_transaction_offset,
        "physical_offset": message.physical_offset,
        "body_crc": message.body_crc,
        "body_size": len(message.body),
    }


def body_fields(body: bytes, *, always_base64: bool = False) -> dict[str, object]:
    """``body`` where it is UTF-8, ``body_base64`` where it is not, or always. A compressed body is shown as stored."""
    fields: dict[str, object] = {}
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or always_base64:
        fields["body_base64"] = base64.b64encode(body).decode()
    if text is not None:
        fields["body"] = text
    return fields
