"""A message as named values: what the command line and the HTTP pages both say of it, and where they differ."""

from __future__ import annotations

import base64
import json

import pytest

from tests.kit.fakearchive import record
from tiered.cli.messages import message_record
from tiered.codec.record.message import decode_message
from tiered.http.archive.rows import fields_with_body

TEXT = "grüße".encode()
BINARY = b"\xff\x00"


@pytest.mark.parametrize("body", [TEXT, BINARY])
def test_both_say_the_same_but_for_the_body(body: bytes) -> None:
    raw = record("T", 3, 42, body=body, TAGS="red", KEYS="a b")
    told, shown = message_record(42, raw), fields_with_body(42, decode_message(raw))
    bodies = {"body", "body_base64", "compressed"}
    assert [item for item in told.items() if item[0] not in bodies] == [
        item for item in shown.items() if item[0] not in bodies
    ]
    assert (told["topic"], told["queue_id"], told["queue_offset"]) == ("T", 3, 42)
    assert (told["tags"], told["keys"], told["body_size"]) == ("red", ["a", "b"], len(body))
    assert json.loads(json.dumps(told)) == told


def test_the_command_line_shows_text_or_base64_and_the_pages_always_base64() -> None:
    text, binary = record("T", 0, 0, body=TEXT), record("T", 0, 1, body=BINARY)
    encoded = [base64.b64encode(body).decode() for body in (TEXT, BINARY)]
    assert list(message_record(0, text).items())[-1] == ("body", TEXT.decode())
    assert "body_base64" not in message_record(0, text)
    assert list(message_record(1, binary).items())[-1] == ("body_base64", encoded[1])
    shown = [fields_with_body(0, decode_message(raw)) for raw in (text, binary)]
    assert list(shown[0].items())[-3:] == [
        ("compressed", False),
        ("body_base64", encoded[0]),
        ("body", TEXT.decode()),
    ]
    assert list(shown[1].items())[-2:] == [("compressed", False), ("body_base64", encoded[1])]
