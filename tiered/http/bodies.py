"""Bodies of requests, for pages that take one: bounded in bytes, each and all together, and in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from tiered.http.connection import Connection
from tiered.http.refusals import HttpRefusal, bad_request

_WAS_READ = "body_was_read"


def has_body(scope: Scope) -> bool:
    """Whether a body follows the head."""
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def has_unread_body(scope: Scope) -> bool:
    """Whether a body follows the head that nobody has read to its end: nothing behind it is ever read, because what stands
    there was not looked at as a head."""
    return has_body(scope) and not scope["state"].get(_WAS_READ, False)


class Bodies:
    """Reads bodies. ``room_bytes``: of all that are held at one time, as they come and not as they are announced. ``seconds``:
    within which a body must be there. On the event loop."""

    def __init__(self, room_bytes: int, seconds: float) -> None:
        self._room = room_bytes
        self._held = 0
        self._seconds = seconds

    @property
    def held_bytes(self) -> int:
        """Bytes of all bodies that are held now."""
        return self._held

    @asynccontextmanager
    async def read(self, request: Request, most: int) -> AsyncIterator[bytes]:
        """The body of ``request``, at most ``most`` bytes; it is counted until the block ends.

        ``HttpRefusal``, which ends the connection: it is larger, is not there in time, is not a body, or no room is left.
        """
        _check_framing(request, most)
        held = bytearray()
        try:
            await self._fill(held, request, most)
            yield bytes(held)
        finally:
            self._held -= len(held)

    async def _fill(self, held: bytearray, request: Request, most: int) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                more = True
                while more:
                    message = await request.receive()
                    _check_arrived(request.scope, message["type"])
                    self._take(held, message.get("body", b""), most)
                    more = message.get("more_body", False)
        except TimeoutError as error:
            raise HttpRefusal(
                408,
                "the body did not arrive in full in time",
                expected=f"{self._seconds:g} s",
                found=f"{len(held)} bytes",
                hint="send it at once",
                close=True,
            ) from error
        request.scope["state"][_WAS_READ] = True

    def _take(self, held: bytearray, piece: bytes, most: int) -> None:
        if len(held) + len(piece) > most:
            raise too_large(most)
        if self._held + len(piece) > self._room:
            raise HttpRefusal(
                503,
                "too many bodies at one time",
                expected=f"at most {self._room} bytes",
                hint="ask again later",
                close=True,
            )
        self._held += len(piece)
        held += piece


def refuse_body(request: Request, expected: str) -> None:
    """Refuse a request that has a body, where the page takes none."""
    if has_body(request.scope):
        raise HttpRefusal(413, "a request with a body is not accepted", hint=expected, close=True)


def too_large(most: int) -> HttpRefusal:
    """The refusal of a body that is larger than the page takes."""
    return HttpRefusal(
        413, "the body is too large", expected=f"at most {most} bytes", hint="send less", close=True
    )


def _check_framing(request: Request, most: int) -> None:
    headers = request.headers
    chunked = "transfer-encoding" in headers
    if chunked and ("content-length" in headers or request.scope["http_version"] == "1.0"):
        raise bad_request(
            "where the body ends can be read in two ways", hint="send either Content-Length or chunks"
        )
    if not chunked and int(headers.get("content-length", "0")) > most:  # digits, as h11 has seen to
        raise too_large(most)


def _check_arrived(scope: Scope, kind: str) -> None:
    connection = cast("Connection", scope["state"]["connection"])
    if connection.broken_body is not None:
        raise connection.broken_body
    if kind == "http.disconnect":
        raise bad_request("the connection ended within a body", hint="send the whole request")
