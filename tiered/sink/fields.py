"""Messages of a batch one by one, with all their fields, for destinations that take text: JSON of each message.

Whole columns become lists once a batch; what is left for each message is to make its text, which no array can.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tiered.codec.record.hosts import decode_host
from tiered.codec.record.layout import (
    BORN_HOST_AT,
    SYS_BORN_V6,
    SYS_COMPRESSED,
    SYS_STORE_V6,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    store_host_at,
)
from tiered.codec.record.message import body_fields, decode_properties
from tiered.codec.record.unpack import plain_bodies
from tiered.sink.base import SinkBatch
from tiered.sink.messages import MAX_BODY_BYTES

_NUMBERS = (
    "queue_id", "queue_offset", "store_timestamp", "born_timestamp", "sys_flag", "flag", "reconsume_times",
    "prepared_transaction_offset", "physical_offset", "body_crc",
)  # fmt: skip
_SHOWN_HOSTS = 1_024
_text_of = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def message_values(batch: SinkBatch) -> Iterator[tuple[dict[str, Any], bytes]]:
    """(fields, body) of each row, in order: what ``tiered read --format json`` shows. A body that a client compressed is as
    its consumers see it; where that cannot be, it is as it is stored, and ``sys_flag`` still says that it is compressed."""
    messages = batch.messages
    chosen = messages.headers[batch.rows]
    columns = {name: chosen[name].tolist() for name in _NUMBERS}
    topics = [messages.topics[index] for index in chosen["topic_index"].tolist()]
    areas = zip(chosen["properties_position"].tolist(), chosen["properties_length"].tolist(), strict=True)
    positions = chosen["position"].tolist()
    hosts = _Hosts()
    for number, ((body, compressed), topic, (begin, length)) in enumerate(
        zip(plain_bodies(messages, batch.rows, MAX_BODY_BYTES), topics, areas, strict=True)
    ):
        properties = decode_properties(messages.buffer[begin : begin + length])
        value: dict[str, Any] = {"topic": topic}
        for name in _NUMBERS:
            value[name] = columns[name][number]
        value["tags"] = properties.get("TAGS")
        value["keys"] = [key for key in properties.get("KEYS", "").split(" ") if key]
        value["unique_key"] = properties.get("UNIQ_KEY")
        record = messages.buffer[positions[number] :]
        born, store = hosts.of(record, value["sys_flag"])
        value["msg_id"] = (store + value["physical_offset"].to_bytes(8, "big", signed=True)).hex().upper()
        value["properties"] = properties
        value["born_host"], value["store_host"] = hosts.shown(born), hosts.shown(store)
        value["body_size"] = len(body)
        if not compressed:
            value["sys_flag"] &= ~SYS_COMPRESSED
        yield value, body


def json_lines(batch: SinkBatch) -> Iterator[bytes]:
    """Each row as one line of JSON in UTF-8, without its end: ``body`` where the body is UTF-8, ``body_base64`` where not."""
    for value, body in message_values(batch):
        value.update(body_fields(body))
        yield _text_of(value).encode(errors="replace")


class _Hosts:
    """Hosts of records, and how they are shown; the last ones are remembered."""

    def __init__(self) -> None:
        self._shown: dict[bytes, str] = {}

    def of(self, record: memoryview, sys_flag: int) -> tuple[bytes, bytes]:
        """(born host, store host) as the record has them."""
        at = store_host_at(sys_flag)
        born = V6_HOST_BYTES if sys_flag & SYS_BORN_V6 else V4_HOST_BYTES
        store = V6_HOST_BYTES if sys_flag & SYS_STORE_V6 else V4_HOST_BYTES
        return bytes(record[BORN_HOST_AT : BORN_HOST_AT + born]), bytes(record[at : at + store])

    def shown(self, host: bytes) -> str:
        """``ip:port``."""
        found = self._shown.get(host)
        if found is None:
            if len(self._shown) >= _SHOWN_HOSTS:
                self._shown.clear()
            found = self._shown[host] = decode_host(memoryview(host))
        return found
