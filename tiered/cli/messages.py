"""A message as JSON."""

from __future__ import annotations

import base64

from tiered.codec.message import decode_message


def message_record(queue_offset: int, record: bytes) -> dict[str, object]:
    """Every field of a record; the body as text when it is UTF-8, else in base64. Times in ms since 1970."""
    m = decode_message(record)
    fields: dict[str, object] = {
        "topic": m.topic,
        "queue_id": m.queue_id,
        "queue_offset": queue_offset,
        "store_timestamp": m.store_timestamp,
        "born_timestamp": m.born_timestamp,
        "tags": m.tags,
        "keys": list(m.keys),
        "unique_key": m.unique_key,
        "msg_id": m.message_id,
        "properties": dict(m.properties),
        "born_host": m.born_host,
        "store_host": m.store_host,
        "sys_flag": m.sys_flag,
        "flag": m.flag,
        "reconsume_times": m.reconsume_times,
        "prepared_transaction_offset": m.prepared_transaction_offset,
        "physical_offset": m.physical_offset,
        "body_crc": m.body_crc,
        "body_size": len(m.body),
    }
    try:
        fields["body"] = m.body.decode()
    except UnicodeDecodeError:
        fields["body_base64"] = base64.b64encode(m.body).decode()
    return fields
