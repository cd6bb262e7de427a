"""A message as JSON."""

from __future__ import annotations

from tiered.codec.record.message import body_fields, decode_message, message_fields


def message_record(queue_offset: int, record: bytes) -> dict[str, object]:
    """Every field of a record; the body as text when it is UTF-8, else in base64. Times in ms since 1970."""
    message = decode_message(record)
    return message_fields(queue_offset, message) | body_fields(message.body)
