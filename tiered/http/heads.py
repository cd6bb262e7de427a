"""Heads that are not plainly right: h11 forgives bare line feeds, folded lines and any number of header fields."""

from __future__ import annotations

import re

from tiered.http.limits import MAX_HEAD_BYTES, MAX_HEADERS
from tiered.http.refusals import HttpRefusal, bad_request

_HEAD_END = b"\r\n\r\n"
_STRAY_END = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_FOLDED = re.compile(rb"\r\n[ \t]")


def check_head(received: bytes) -> None:
    """Refuse a head, whole or begun, that is too long or not made of plain lines."""
    begin = len(received) - len(received.lstrip(b"\r\n"))
    end = received.find(_HEAD_END, begin)
    head = received if end < 0 else received[: end + 2]
    if len(head) + 2 > MAX_HEAD_BYTES or head.count(b"\n") > MAX_HEADERS + 1:
        raise too_long()
    if _STRAY_END.search(head):
        raise bad_request("a line of the request does not end with CR LF", hint="speak HTTP/1.1")
    if _FOLDED.search(head):
        raise bad_request("a header is continued on a second line", hint="send it on one line")


def too_long() -> HttpRefusal:
    """The refusal of a head that is longer than a server reads."""
    return HttpRefusal(
        431,
        "the head of the request is too long",
        expected=f"at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} header lines",
        hint="send fewer or shorter headers; put long filter expressions in the consumer",
        close=True,
    )
