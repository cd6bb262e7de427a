"""A message as named values that JSON can hold, for whatever shows messages to people and their tools."""

from __future__ import annotations

import base64

from tiered.codec.record.message import Message


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
