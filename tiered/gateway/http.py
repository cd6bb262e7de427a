"""The read-only HTTP server beside the gateway: HTTP/1.1 over asyncio streams, with strict limits.

GET and HEAD of a few pages (``httproutes``). Heads, connections and time are bounded; what a page says is made in a pool,
piece by piece, each sent before the next is made, so that an answer of any length needs the memory of one piece. On a
loopback address without a token only local names are served: a web page elsewhere cannot reach this server by a name that
it made point here.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

from tiered.errors import Invalid, TieredError
from tiered.gateway.httpanswers import Pages
from tiered.gateway.httphead import MAX_HEAD_BYTES, HttpRefusal, Request, parse_head, read_head
from tiered.gateway.httpjson import Answer, refusal
from tiered.gateway.httproutes import find
from tiered.gateway.transport.limits import Slots
from tiered.metrics import Metrics
from tiered.settings import KIB, Gateway
from tiered.text.addresses import split_address

_log = logging.getLogger("tiered.gateway.http")
_REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 413: "Content Too Large", 421: "Misdirected Request", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 503: "Service Unavailable", 504: "Gateway Timeout", 505: "HTTP Version Not Supported",
}  # fmt: skip
_ALWAYS = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
)
_PARTING_SECONDS = 1.0
_PARTING_READS = 16


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of the server. ``at_once``: threads of the pool that it may use; the answers for consumers need them too.

    Times in seconds: for a whole head, for an idle connection's next one, for a client to take a piece, for one whole answer;
    for a piece to be made it is ``gateway.read_timeout_ms``.
    """

    connections: int = 64
    at_once: int = 4
    head_seconds: float = 10.0
    idle_seconds: float = 30.0
    send_seconds: float = 30.0
    answer_seconds: float = 900.0
    requests: int = 1000  # on one connection


class HttpServer:
    """Serves ``pages`` on ``gateway.http_listen``. ``start`` and ``close`` on the event loop; ``pool`` runs what may block."""

    def __init__(
        self,
        settings: Gateway,
        pages: Pages,
        pool: Executor,
        metrics: Metrics,
        limits: HttpLimits = HttpLimits(),
    ) -> None:
        self._settings = settings
        self._pages = pages
        self._pool = pool
        self._metrics = metrics
        self._limits = limits
        self._slots = Slots(limits.connections)
        self._turns = asyncio.Semaphore(limits.at_once)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._local_only = False

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``start``."""
        if self._server is None:
            raise Invalid("the HTTP server is not started", hint="await start() first")
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        """Bind and listen. ``Invalid`` names ``gateway.http_listen``."""
        host, port = split_address(self._settings.http_listen, key="gateway.http_listen", listening=True)
        try:
            self._server = await asyncio.start_server(
                self._accept, host, port, limit=MAX_HEAD_BYTES, backlog=self._limits.connections
            )
        except OSError as error:
            raise Invalid(
                "the address of the HTTP pages cannot be bound",
                key="gateway.http_listen",
                value=self._settings.http_listen,
                found=error.strerror or str(error),
                hint="set gateway.http_listen to a free host:port of this machine (port 0: any), or empty for none",
            ) from None
        bound = ipaddress.ip_address(self.address[0].partition("%")[0])
        self._local_only = bound.is_loopback and not self._settings.http_token
        if not bound.is_loopback and not self._settings.http_token:
            _log.warning(
                "the HTTP pages show every archived message to whoever reaches %s:%d; set gateway.http_token",
                *self.address,
            )

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connected(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=64 * KIB)
        taken = self._slots.take()
        try:
            if taken:
                await self._serve(reader, writer)
            else:
                await self._send(writer, None, refusal(_busy(self._limits.connections)))
        except (OSError, TimeoutError):
            self._metrics.http_cut.inc()  # the client is gone, or does not take its answer
        except asyncio.CancelledError:
            pass  # the server is being closed; the task ends here
        except Exception:  # noqa: BLE001  (the door of a connection: a fault of one must not reach another)
            _log.exception("an HTTP connection ended by a fault of the server")
        finally:
            if taken:
                self._slots.give_back()
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request after the other, until one side ends it."""
        for number in range(self._limits.requests):
            request: Request | None = None
            try:
                lines = await self._head(reader, first=number == 0)
                if lines is None:
                    return
                request = parse_head(lines)
                answer = await self._answer(request)
            except TieredError as error:
                answer = refusal(error)
            async with asyncio.timeout(self._limits.answer_seconds):
                await self._send(writer, request, answer, last=number + 1 == self._limits.requests)
            if request is None or not request.keep_alive or answer.close:
                await _part(reader, writer)
                return

    async def _head(self, reader: asyncio.StreamReader, *, first: bool) -> list[bytes] | None:
        limits = self._limits
        try:
            async with asyncio.timeout(limits.head_seconds if first else limits.idle_seconds):
                return await read_head(reader)
        except TimeoutError:
            if not first:
                return None
            raise HttpRefusal(
                408,
                "no whole request came in time",
                expected=f"{limits.head_seconds:g} s",
                hint="send it at once",
                close=True,
            ) from None

    async def _answer(self, request: Request) -> Answer:
        """What the request gets. Errors of the store are answers; what else is raised becomes 500 and is logged."""
        try:
            self._check_name(request)
            if request.path[0] == "v1":
                self._check_token(request)
            route, values = find(request)
            return await self._in_pool(self._pages.answer, route, values)
        except TieredError as error:
            return refusal(error)
        except TimeoutError:
            return refusal(_slow(self._settings.read_timeout_ms))
        except Exception:  # noqa: BLE001  (the door of the pages)
            _log.exception("a page failed: %s", "/".join(request.path)[:200])
            return refusal(HttpRefusal(500, "a fault of this server", hint="its log has the details"))

    async def _in_pool(self, call: Callable[..., _T], *arguments: object) -> _T:
        """``TimeoutError`` when it takes too long. Its turn ends when the thread is free again, not before."""
        loop = asyncio.get_running_loop()

        def done(_: object) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits for a turn
                loop.call_soon_threadsafe(self._turns.release)

        async with asyncio.timeout(self._settings.read_timeout_ms / 1000):
            await self._turns.acquire()
            running = self._pool.submit(call, *arguments)
            running.add_done_callback(done)
            return await asyncio.wrap_future(running)

    def _check_name(self, request: Request) -> None:
        if self._local_only and not _is_local(request.headers.get("host", "localhost")):
            raise HttpRefusal(
                421,
                "this server answers to local names only",
                found=request.headers["host"][:80],
                hint="use http://localhost or a loopback address; for other names set gateway.http_token",
                close=True,
            )

    def _check_token(self, request: Request) -> None:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        token = self._settings.http_token
        if not token or (
            scheme.lower() == "bearer"
            and hmac.compare_digest(shown.strip().encode("latin-1"), token.encode())
        ):
            return
        raise HttpRefusal(
            401,
            "the token is wrong" if scheme else "a token is needed",
            hint="send the header Authorization: Bearer with the value of gateway.http_token",
        )

    async def _send(
        self, writer: asyncio.StreamWriter, request: Request | None, answer: Answer, *, last: bool = True
    ) -> None:
        """Write the answer; a fault in its middle ends the connection without the body's end."""
        self._metrics.http_requests.labels(str(answer.status)).inc()
        chunked = answer.length is None and (request is None or request.chunked)
        goes_on = request is not None and request.keep_alive and not answer.close and not last
        writer.write(_head(answer, chunked=chunked, goes_on=goes_on))
        if request is not None and request.method == "HEAD":
            await self._drain(writer)
            return
        if answer.length is not None:
            writer.writelines(answer.pieces)
            await self._drain(writer)
            return
        try:
            while (piece := await self._in_pool(_next, answer.pieces)) is not None:
                if piece:
                    writer.writelines((b"%x\r\n" % len(piece), piece, b"\r\n") if chunked else (piece,))
                    await self._drain(writer)
        except TieredError as error:
            _log.warning("an HTTP answer ends in its middle: %s", error)
            raise ConnectionAbortedError from error
        if chunked:
            writer.write(b"0\r\n\r\n")
        await self._drain(writer)

    async def _drain(self, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(self._limits.send_seconds):
            await writer.drain()


_T = TypeVar("_T")


def _head(answer: Answer, *, chunked: bool, goes_on: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}", f"Content-Type: {answer.content_type}"]
    if answer.length is not None:
        lines.append(f"Content-Length: {answer.length}")
    elif chunked:
        lines.append("Transfer-Encoding: chunked")
    lines += (f"{name}: {value}" for name, value in answer.headers)
    lines.append(f"Connection: {'keep-alive' if goes_on else 'close'}")
    return ("\r\n".join(lines) + "\r\n" + _ALWAYS + "\r\n").encode("latin-1")


def _next(pieces: Iterator[bytes]) -> bytes | None:
    return next(pieces, None)


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


async def _part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Let the client read the last answer: closing at once with its bytes unread would throw the answer away."""
    if not writer.can_write_eof():
        return
    writer.write_eof()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PARTING_SECONDS):
            for _ in range(_PARTING_READS):
                if not await reader.read(64 * KIB):
                    return


def _busy(most: int) -> HttpRefusal:
    return HttpRefusal(
        503,
        "too many connections",
        expected=f"at most {most}",
        hint="close idle ones, or ask again later",
        close=True,
    )


def _slow(milliseconds: int) -> HttpRefusal:
    return HttpRefusal(
        504,
        "the archive did not answer in time",
        expected=f"{milliseconds} ms (gateway.read_timeout_ms)",
        hint="ask again later, or for less at once",
    )
