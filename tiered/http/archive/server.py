"""The archive's pages on a server: what answers each, and who may read them (``http/guarded.py``).

What a page says is made in a pool, piece by piece, each sent before the next is made, so that an answer of any length needs the
memory of one piece.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from tiered.http.app import PagePool, page
from tiered.http.archive.description import openapi
from tiered.http.archive.pages import ArchivePages
from tiered.http.archive.table import ROUTES
from tiered.http.connection import Door
from tiered.http.guarded import CountedAnswers, Guard, GuardedServer
from tiered.http.limits import HttpLimits
from tiered.http.refusals import JSON, HttpRefusal, dumped, json_refusal
from tiered.http.routes import PageRoute
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
        self._pages = pages
        self._pool = PagePool(pool, limits.at_once, read_timeout_ms / 1000, partial(_slow, read_timeout_ms))
        door = Door(limits, json_refusal, CountedAnswers(metrics), _log)
        routes = [route.route(self._endpoint(route)) for route in ROUTES]
        router = Router(routes, redirect_slashes=False, default=_not_found)
        guard = Guard("gateway", "the HTTP pages", "show every archived message to", token)
        self._server = GuardedServer(listen, router, door, guard)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``start``."""
        return self._server.address

    async def start(self) -> None:
        """Bind and listen. ``Invalid`` names ``gateway.http_listen``."""
        await self._server.start()

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


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HttpRefusal(
        404,
        "there is no such page",
        found=scope["path"][:80],
        expected=" ".join(route.template for route in ROUTES),
        hint="/openapi.json describes them; a slash or % in a topic's name is written %2F or %25",
    )


def _slow(milliseconds: int) -> HttpRefusal:
    return HttpRefusal(
        504,
        "the archive did not answer in time",
        expected=f"{milliseconds} ms (gateway.read_timeout_ms)",
        hint="ask again later, or for less at once",
    )
