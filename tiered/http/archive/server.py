"""The archive's pages on a server: who may read them, and what answers each.

On a loopback address without a token only local names are served: a web page elsewhere cannot reach this server by a name that
it made point here. What a page says is made in a pool, piece by piece, each sent before the next is made, so that an answer of
any length needs the memory of one piece.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from tiered.errors import Invalid
from tiered.http.app import HttpApp, PagePool, page
from tiered.http.archive.description import openapi
from tiered.http.archive.pages import ArchivePages
from tiered.http.archive.table import ROUTES
from tiered.http.connection import Door
from tiered.http.limits import HttpLimits
from tiered.http.refusals import JSON, HttpRefusal, dumped, json_refusal
from tiered.http.routes import PageRoute
from tiered.http.server import HttpServer, why_not_bound
from tiered.http.templates import whole_page
from tiered.metrics import Metrics

HTML = "text/html; charset=utf-8"
LIMITS = HttpLimits()
_log = logging.getLogger("tiered.gateway.http")


class ArchiveServer:
    """Serves ``pages`` on the host and port ``listen`` (``gateway.http_listen``). ``start`` and ``close`` on the event loop.

    ``token``: what readers must show; empty: nothing. ``pool`` runs what may block, each piece at most ``read_timeout_ms``.
    """

    def __init__(
        self,
        listen: tuple[str, int],
        pages: ArchivePages,
        pool: Executor,
        metrics: Metrics,
        *,
        token: str,
        read_timeout_ms: int,
        limits: HttpLimits = LIMITS,
    ) -> None:
        self._listen = "{}:{}".format(*listen)
        self._token = token
        self._pages = pages
        self._pool = PagePool(pool, limits.at_once, read_timeout_ms / 1000, partial(_slow, read_timeout_ms))
        self._local_only = False
        door = Door(limits, json_refusal, _Counted(metrics), _log)
        routes = [route.route(self._endpoint(route)) for route in ROUTES]
        app = HttpApp(Router(routes, redirect_slashes=False, default=_not_found), door, self._check)
        self._server = HttpServer(app, *listen, door)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``start``."""
        return self._server.address

    async def start(self) -> None:
        """Bind and listen. ``Invalid`` names ``gateway.http_listen``."""
        try:
            await self._server.start()
        except OSError as error:
            raise Invalid(
                "the address of the HTTP pages cannot be bound",
                key="gateway.http_listen",
                value=self._listen,
                found=why_not_bound(error),
                hint="set gateway.http_listen to a free host:port of this machine (port 0: any), or empty for none",
            ) from None
        bound = ipaddress.ip_address(self.address[0].partition("%")[0])
        self._local_only = bound.is_loopback and not self._token
        if not bound.is_loopback and not self._token:
            _log.warning(
                "the HTTP pages show every archived message to anyone who reaches %s:%d; set gateway.http_token",
                *self.address,
            )

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        await self._server.close()

    def _endpoint(self, route: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        match route.name:
            case "page":
                body, policy = whole_page("archive")
                made = page(200, HTML, body, {"Content-Security-Policy": policy})
            case "openapi":
                made = page(200, JSON, dumped(openapi()))
            case _:
                return partial(self._listed, route)

        async def whole(request: Request) -> Response:
            route.values(request)
            return made

        return whole

    async def _listed(self, route: PageRoute, request: Request) -> Response:
        """A page of the store, in pieces. Errors before its first piece have a status of their own."""
        pieces = await self._pool.run(self._pages.begin, route.name, route.values(request))
        body = self._pool.stream(iter(()) if request.method == "HEAD" else pieces)
        return StreamingResponse(body, headers={"Content-Type": JSON})

    def _check(self, request: Request) -> None:
        self._check_name(request)
        if request.scope["path"].split("/")[1] == "v1":
            self._check_token(request)

    def _check_name(self, request: Request) -> None:
        host = request.headers.get("host", "localhost")
        if self._local_only and not _is_local(host):
            raise HttpRefusal(
                421,
                "this server answers to local names only",
                found=host[:80],
                hint="use http://localhost or a loopback address; for other names set gateway.http_token",
                close=True,
            )

    def _check_token(self, request: Request) -> None:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if not self._token or (
            scheme.lower() == "bearer"
            and hmac.compare_digest(shown.strip().encode("latin-1"), self._token.encode())
        ):
            return
        raise HttpRefusal(
            401,
            "the token is wrong" if scheme else "a token is needed",
            hint="send the header Authorization: Bearer with the value of gateway.http_token",
        )


class _Counted:
    """Counts answers in the metrics of the pages."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def answered(self, status: int) -> None:
        self._metrics.http_requests.labels(str(status)).inc()

    def cut(self) -> None:
        self._metrics.http_cut.inc()


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HttpRefusal(
        404,
        "there is no such page",
        found=scope["path"][:80],
        expected=" ".join(route.template for route in ROUTES),
        hint="/openapi.json describes them; a slash or % in a topic's name is written %2F or %25",
    )


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _slow(milliseconds: int) -> HttpRefusal:
    return HttpRefusal(
        504,
        "the archive did not answer in time",
        expected=f"{milliseconds} ms (gateway.read_timeout_ms)",
        hint="ask again later, or for less at once",
    )
