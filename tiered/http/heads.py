"""Heads that are not plainly right: h11 forgives bare line feeds, folded lines and any number of header fields."""

from __future__ import annotations

import re

from tiered.http.limits import MAX_HEAD_BYTES, MAX_HEADERS
from tiered.http.refusals import HttpRefusal, bad_request

_HEAD_END = re.compile(rb"\r\n\r\n")
_LENIENT_HEAD_END = re.compile(rb"\n\r?\n")
_STRAY_END = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
_LENIENT_STRAY_END = re.compile(rb"\r(?!\n|\Z)")
_EMPTY_LINES = re.compile(rb"(?:\r\n)*")
_LENIENT_EMPTY_LINES = re.compile(rb"(?:\r?\n)*")
_FOLDED = re.compile(rb"\n[ \t]")
_HOST = re.compile(rb"\nhost[ \t]*:", re.IGNORECASE)
_SHOWN_LINE = re.compile(r"""(illegal (?:request|header) line): bytearray\(b["'](.*)["']\)""")
_SHOWN_NAME = re.compile(r"([^\s:]{1,60})\s*:")


def empty_lines(received: bytes, *, lenient: bool = False) -> int:
    """How many bytes are empty lines before a request: they mean nothing. ``lenient``: a bare line feed is one, too."""
    found = (_LENIENT_EMPTY_LINES if lenient else _EMPTY_LINES).match(received)
    return found.end() if found else 0


def check_request_head(received: bytes, *, skipped: int = 0, lenient: bool = False) -> None:
    """Refuse a head, whole or begun, that is too long or not made of plain lines.

    ``skipped``: bytes of empty lines before the head; they count. ``lenient``: bare line feeds end lines.
    """
    end = (_LENIENT_HEAD_END if lenient else _HEAD_END).search(received)
    head = received if end is None else received[: end.end() - 2]
    if skipped + len(head) + 2 > MAX_HEAD_BYTES or head.count(b"\n") > MAX_HEADERS + 1:
        raise too_long()
    if (_LENIENT_STRAY_END if lenient else _STRAY_END).search(head):
        raise bad_request("a line of the request does not end with CR LF", hint="use HTTP/1.1")
    if _FOLDED.search(head):
        raise bad_request("a header is continued on a second line", hint="send it on one line")


def with_host(received: bytes) -> bytes:
    """A head, once it is whole, with an empty ``Host`` if it has none: h11 insists on one, and no page asks for it."""
    end = _LENIENT_HEAD_END.search(received)
    if end is None or _HOST.search(received, 0, end.end()):
        return received
    line = received.index(b"\n") + 1
    return received[:line] + b"Host:\r\n" + received[line:]


def what_is_wrong(error: BaseException | None) -> str:
    """What h11 says of a head that it cannot understand, without values of headers: of a bad line its begin or its name."""
    shown = _SHOWN_LINE.fullmatch(str(error))
    if shown is None:
        return str(error)[:80]
    what, line = shown.groups()
    if what == "illegal header line":
        name = _SHOWN_NAME.match(line)
        return f"{what}: {name[1]}" if name else what
    return f"{what}: {line.partition(':')[0][:60]}"


def too_long() -> HttpRefusal:
    """The refusal of a head that is longer than a server reads."""
    return HttpRefusal(
        431,
        "the head of the request is too long",
        expected=f"at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} header lines",
        hint="send fewer or shorter headers; filter in the consumer instead of by a long expression",
        close=True,
    )
