"""What holds for every page of a server: requests that are served at all, headers of every answer, failures, the pool.

``HttpApp`` is the ASGI application around a Starlette ``Router``. Paths reach the router with the slashes in names still
percent-encoded, so that these do not divide anything (``routes.sent_path``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Message, Receive, Scope, Send

from tiered.errors import TieredError
from tiered.http.bodies import has_unread_body, refuse_body
from tiered.http.connection import EVERY_ANSWER, Connection, Door
from tiered.http.refusals import HttpRefusal, bad_request
from tiered.http.routes import sent_path

_CLOSE = (b"connection", b"close")
_T = TypeVar("_T")


class PagePool:
    """Runs what may block in ``pool``, on at most ``at_once`` of its threads and for at most ``seconds``, or is ``late``.
    ``no_turn``: the same for what was not begun, and never will be."""

    def __init__(
        self,
        pool: Executor,
        at_once: int,
        seconds: float,
        late: Callable[[], HttpRefusal],
        no_turn: Callable[[], HttpRefusal] | None = None,
    ) -> None:
        self._pool = pool
        self._turns = asyncio.Semaphore(at_once)
        self._seconds = seconds
        self._late = late
        self._no_turn = no_turn or late

    async def run(self, call: Callable[..., _T], *arguments: object) -> _T:
        """What ``call`` returns or raises; ``late`` when it takes too long, ``no_turn`` if it did not begin. Its turn ends when
        the thread is free."""
        running: Future[_T] | None = None
        loop = asyncio.get_running_loop()

        def done(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for a turn
                loop.call_soon_threadsafe(self._turns.release)

        try:
            async with asyncio.timeout(self._seconds):
                await self._turns.acquire()
                running = self._pool.submit(call, *arguments)
                running.add_done_callback(done)
                return await asyncio.wrap_future(running)
        except TimeoutError as error:
            begun = running is not None and not running.cancel()
            raise (self._late if begun else self._no_turn)() from error

    async def stream(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """The pieces, each made in the pool when the one before is sent."""
        while (piece := await self.run(next, pieces, None)) is not None:
            if piece:
                yield piece


class HttpApp:
    """The pages of ``router`` behind one door. ``check`` may refuse a request, whatever its page.

    ``takes_bodies``: some pages read one (``bodies``), and all others refuse it themselves; else it is refused here.
    """

    def __init__(
        self,
        router: Router,
        door: Door,
        check: Callable[[Request], None] = lambda request: None,
        *,
        takes_bodies: bool = False,
    ) -> None:
        self._router = router
        self._door = door
        self._check = check
        self._takes_bodies = takes_bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises nothing: a failure is a page, or, once the answer has begun, the connection's end."""
        connection: Connection = scope["state"]["connection"]
        answer = _Answer(
            send, self._door, is_last=lambda: has_unread_body(scope) or connection.is_last_request
        )
        try:
            async with asyncio.timeout(self._door.limits.answer_seconds):
                await self._answer(scope, receive, answer)
        except asyncio.CancelledError:
            connection.cut()  # the server is being closed; the task ends here
        except Exception as error:
            if isinstance(error, TieredError):
                self._door.log.warning("an HTTP answer ends in its middle: %s", error)
            elif not isinstance(error, TimeoutError):
                self._door.log.exception("an HTTP answer ended by a fault of the server")
            connection.cut()
        if not answer.complete:
            connection.cut()
            with contextlib.suppress(asyncio.CancelledError):  # the server is being closed
                while (await receive())["type"] != "http.disconnect":
                    pass

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            scope["app"] = self  # a router in an application raises what it refuses
            request = Request(scope, receive)
            _check_request(request)
            if not self._takes_bodies:
                refuse_body(request, "put parameters into the address")
            _take_sent_path(scope, lenient=self._door.lenient)
            self._check(request)
            await self._router(scope, receive, answer.send)
        except Exception as error:
            if answer.begun:
                raise
            page = self._door.refusal(self._failure(error, scope))
            await page(scope, receive, answer.send)

    def _failure(self, error: Exception, scope: Scope) -> TieredError:
        if isinstance(error, TieredError):
            return error
        if isinstance(error, HTTPException) and error.status_code == 405:
            allowed = ", ".join(sorted((error.headers or {}).get("Allow", "GET, HEAD").split(", ")))
            read_only = allowed == "GET, HEAD"
            return HttpRefusal(
                405,
                "this page is read-only" if read_only else "this page does not take such a request",
                method=scope["method"],
                hint="use GET" if read_only else f"use one of {allowed}",
                allow=allowed,
            )
        self._door.log.error("a page failed: %s", scope["path"][:200], exc_info=error)
        return HttpRefusal(500, "a fault of this server", hint="its log has the details")


class _Answer:
    """Follows one answer on its way out, and adds to it what every answer has. ``is_last``, asked when the answer begins:
    whether the connection ends with it."""

    def __init__(self, send: Send, door: Door, *, is_last: Callable[[], bool]) -> None:
        self._send = send
        self._door = door
        self._is_last = is_last
        self.begun = False
        self.complete = False

    async def send(self, message: Message) -> None:
        """Send one ASGI message."""
        if message["type"] == "http.response.start":
            self.begun = True
            self._door.watcher.answered(message["status"])
            message["headers"] = [*message["headers"], *EVERY_ANSWER]
            if self._is_last() and _CLOSE not in message["headers"]:
                message["headers"].append(_CLOSE)
        await self._send(message)
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)


def page(status: int, content_type: str, body: bytes, headers: dict[str, str] | None = None) -> Response:
    """An answer that is there at once."""
    return Response(body, status, {"Content-Type": content_type} | (headers or {}))


def _take_sent_path(scope: Scope, *, lenient: bool) -> None:
    """Let the router see the path as it was sent; what stands behind a # was never meant for a server."""
    path, mark, _ = scope["raw_path"].partition(b"#")
    scope["query_string"] = b"" if mark else scope["query_string"].partition(b"#")[0]
    if lenient and path.startswith(b"//"):
        path = b"/" + path.lstrip(b"/")
    if not path.startswith(b"/"):
        found = ascii(path[:60].decode("latin-1"))
        raise bad_request("the address is not a path", found=found, hint="ask for /v1/topics")
    scope["path"] = sent_path(path)


def _check_request(request: Request) -> None:
    """Refuse what no page here takes."""
    version = request.scope["http_version"]
    if version not in ("1.1", "1.0"):
        raise HttpRefusal(
            505,
            "this version of HTTP is not supported",
            found=f"HTTP/{version}",
            hint="use HTTP/1.1",
            close=True,
        )
    if len(request.headers.getlist("authorization")) > 1:
        raise bad_request("a header is given twice", found="authorization", hint="send it once")
