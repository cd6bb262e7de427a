"""The head of an HTTP/1.1 request: read with strict limits, understood without I/O.

Only what a reader needs: no request body, no upgrades, no obsolete line folding. Whatever is not plainly right is refused with
the status that says why; nothing here raises anything else than ``HttpRefusal``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from tiered.errors import Invalid

MAX_HEAD_BYTES = 16 * 1024
"""Request line and header fields together, line ends included."""
MAX_HEADERS = 64
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}")
_TARGET = re.compile(r"/[\x21-\x7e]*")
_VERSION = re.compile(r"HTTP/[0-9]\.[0-9]")
_FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


class HttpRefusal(Invalid):
    """A request that is answered with an error ``status``. ``close``: the connection cannot be used on."""

    def __init__(
        self, status: int, message: str, *, hint: str, close: bool = False, allow: str = "", **fields: object
    ) -> None:
        super().__init__(message, hint=hint, **fields)
        self.status = status
        self.close = close
        self.allow = allow


@dataclass(frozen=True, slots=True)
class Request:
    """A request for a page. ``path`` and ``parameters`` are percent-decoded; header names are in lower case."""

    method: str
    path: tuple[str, ...]
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    keep_alive: bool
    chunked: bool  # whether the client understands a body in chunks


async def read_head(reader: asyncio.StreamReader) -> list[bytes] | None:
    """The lines of the next head, without line ends; ``None`` when the client has closed between two requests.

    The reader's limit must be ``MAX_HEAD_BYTES``. ``HttpRefusal`` for a head that is too long or not made of lines.
    """
    lines: list[bytes] = []
    room = MAX_HEAD_BYTES
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if not lines and not error.partial:
                return None
            raise _bad("the connection ended within a request", hint="send the whole request") from None
        except asyncio.LimitOverrunError:
            raise _too_long() from None
        room -= len(line)
        if room < 0 or len(lines) > MAX_HEADERS + 1:
            raise _too_long()
        if not line.endswith(b"\r\n"):
            raise _bad("a line of the request does not end with CR LF", hint="speak HTTP/1.1")
        if line != b"\r\n":
            lines.append(line[:-2])
        elif lines:
            return lines


def parse_head(lines: Sequence[bytes]) -> Request:
    """Understand a head. ``HttpRefusal`` says what is wrong with it."""
    words = lines[0].decode("latin-1").split(" ")
    if len(words) != 3 or not _METHOD.fullmatch(words[0]) or not _VERSION.fullmatch(words[2]):
        raise _bad("not a request line", found=_shown(lines[0]), hint="send GET /v1/topics HTTP/1.1")
    method, target, version = words
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise HttpRefusal(
            505, "this version of HTTP is not spoken", found=version, hint="use HTTP/1.1", close=True
        )
    headers = _headers(lines[1:])
    if version == "HTTP/1.1" and "host" not in headers:
        raise _bad("the Host header is missing", hint="send Host: with the name of this server")
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise HttpRefusal(
            413, "a request here has no body", hint="put parameters into the address", close=True
        )
    if not _TARGET.fullmatch(target):
        raise _bad(
            "the address is not a path", found=_shown(target.encode("latin-1")), hint="ask for /v1/topics"
        )
    path, _, query = target.partition("#")[0].partition("?")
    wanted = {word.strip().lower() for word in headers.get("connection", "").split(",")}
    newer = version == "HTTP/1.1"
    return Request(
        method=method,
        path=tuple(_decoded(part) for part in path.split("/")[1:]),
        parameters=_parameters(query),
        headers=headers,
        keep_alive=newer and "close" not in wanted,
        chunked=newer,
    )


def _headers(lines: Sequence[bytes]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise _too_long()
    found: dict[str, str] = {}
    for line in lines:
        field = _FIELD.fullmatch(line.decode("latin-1"))
        if field is None:
            raise _bad("not a header line", found=_shown(line), hint="send Name: value")
        name, value = field[1].lower(), field[2].strip(" \t")
        if name in found and name in ("host", "content-length", "authorization", "transfer-encoding"):
            raise _bad("a header is given twice", found=name, hint="send it once")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in query.split("&"):
        if not item:
            continue
        name, _, value = item.replace("+", " ").partition("=")
        name = _decoded(name)
        if name in found:
            raise _bad("a parameter is given twice", close=False, parameter=name[:40], hint="give it once")
        found[name] = _decoded(value)
    return found


def _decoded(text: str) -> str:
    bad = _BAD_ESCAPE.search(text)
    try:
        if bad is None:
            return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        pass
    raise _bad(
        "the address is not percent-encoded UTF-8",
        close=False,
        found=text[:40],
        hint="write % as %25, other special characters as % and two hex digits",
    )


def _bad(message: str, *, hint: str, close: bool = True, **fields: object) -> HttpRefusal:
    made = HttpRefusal(400, message, hint=hint, close=close)
    made.fields |= fields
    return made


def _too_long() -> HttpRefusal:
    return HttpRefusal(
        431,
        "the head of the request is too long",
        expected=f"at most {MAX_HEAD_BYTES} bytes and {MAX_HEADERS} header lines",
        hint="send fewer or shorter headers; a long filter expression belongs into the consumer",
        close=True,
    )


def _shown(raw: bytes) -> str:
    return ascii(raw[:60].decode("latin-1"))
