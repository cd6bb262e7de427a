"""The key-value view on a server: what answers each address, how many at a time, how long.

Reads at once have turns of their own, so that they do not wait behind writes and reads of the latest, which wait for broker and
redo. Values are put by PUT and DELETE alone: a web page elsewhere can send neither without asking first (CORS), and is
never told yes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from itertools import groupby

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from tiered.errors import TieredError
from tiered.http.app import PagePool, page
from tiered.http.bodies import Bodies, refuse_body
from tiered.http.connection import Door
from tiered.http.guarded import CountedAnswers, Guard, GuardedServer
from tiered.http.kv.description import openapi
from tiered.http.kv.pages import KeyValuePages
from tiered.http.kv.problems import problem
from tiered.http.kv.table import key_value_routes
from tiered.http.limits import HttpLimits
from tiered.http.refusals import JSON, HttpRefusal, bad_request, dumped
from tiered.http.routes import PageRoute, Values, one_address
from tiered.keyvalue import NOT_DONE, STALE_MS, UNKNOWN, KeyValues
from tiered.metrics import Metrics
from tiered.settings import MIB, Kv
from tiered.text.addresses import split_address

LIMITS = HttpLimits(connections=256, at_once=16, requests=100_000, idle_seconds=60.0)
BODIES_BYTES = 64 * MIB
"""Bytes of all bodies that are held at one time; at least four of the largest."""
_WAITS = 3
"""A call waits at most ``kv.timeout_ms`` for a connection to the broker, for its answer and for redo."""
_log = logging.getLogger("tiered.view.http")


class KeyValueServer:
    """Serves ``key_values`` on ``kv.http_listen``. ``start`` and ``close`` on the event loop.

    ``pool`` runs what may block: at most ``limits.at_once`` reads, and as many calls that wait as there are ``kv.connections``.
    """

    def __init__(
        self,
        key_values: KeyValues,
        settings: Kv,
        pool: Executor,
        metrics: Metrics,
        *,
        limits: HttpLimits = LIMITS,
        stale_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        """``stale_ms``: how old an answer that is made now may be, as readers are told; ``None``: they are told nothing."""
        milliseconds = settings.timeout_ms * _WAITS
        late = partial(_late, milliseconds), partial(_no_turn, milliseconds)
        self._reading = PagePool(pool, limits.at_once, milliseconds / 1000, *late)
        self._waiting = PagePool(pool, settings.connections, milliseconds / 1000, *late)
        self._pages = KeyValuePages(key_values)
        self._stale_ms = stale_ms
        self._bodies = Bodies(max(BODIES_BYTES, 4 * settings.max_value_bytes), limits.body_seconds)
        self._described = page(200, JSON, dumped(openapi(settings.max_value_bytes)))
        routes = [
            one_address(group, partial(self._answer, {route.method: route for route in group}))
            for group in _by_address(key_value_routes(settings.max_value_bytes))
        ]
        guard = Guard(
            "kv", "the key-value pages", "give every value, and take writes, from", settings.http_token
        )
        self._server = GuardedServer(
            split_address(settings.http_listen, key="kv.http_listen", listening=True),
            Router(routes, redirect_slashes=False, default=_not_found),
            Door(limits, problem, CountedAnswers(metrics), _log),
            guard,
            takes_bodies=True,
        )

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``start``."""
        return self._server.address

    @property
    def held_bytes(self) -> int:
        """Bytes of all bodies that are held now."""
        return self._bodies.held_bytes

    async def start(self) -> None:
        """Bind and listen. ``Invalid`` names ``kv.http_listen``."""
        await self._server.start()

    async def close(self) -> None:
        """Stop listening and cut every connection: writes that are under way have an outcome that nobody is told."""
        await self._server.close()

    async def _answer(self, routes: dict[str, PageRoute], request: Request) -> Response:
        route = routes["GET" if request.method == "HEAD" else request.method]
        values = route.values(request)
        if route.name == "openapi":
            refuse_body(request, "leave the body out")
            return self._described
        if route.body is None:
            refuse_body(request, "leave the body out")
            return await self._run(route, values, request, b"")
        _check_plain(request)
        async with self._bodies.read(request, route.most_body_bytes) as body:
            return await self._run(route, values, request, body)

    async def _run(self, route: PageRoute, values: Values, request: Request, body: bytes) -> Response:
        writes, latest = route.name in ("put", "delete", "create"), bool(values.get("latest"))
        pool = self._waiting if writes or latest else self._reading
        stale_ms = (
            None if writes or latest else self._stale_ms()
        )  # before it is read: what is read is not older
        try:
            answer = await pool.run(self._pages.answer, route.name, values, request.headers, body)
        except TieredError as error:  # that there is no entry is an answer, too
            if stale_ms is not None:
                error.fields.setdefault("stale_ms", stale_ms)
            raise
        if stale_ms is not None:
            answer.headers[STALE_MS] = str(stale_ms)
        return answer


def _by_address(routes: tuple[PageRoute, ...]) -> list[list[PageRoute]]:
    return [list(group) for _, group in groupby(routes, lambda route: route.template)]


def _check_plain(request: Request) -> None:
    """Refuse a body that is not the value itself."""
    for name in ("content-encoding", "content-range"):
        if request.headers.get(name, "identity").lower() == "identity":
            continue
        found = f"{name}: {request.headers[name][:60]}"
        if name == "content-range":
            raise bad_request("a part of a value cannot be put", found=found, hint="put the whole value")
        raise HttpRefusal(415, "the body is encoded", found=found, hint="send the value as it is", close=True)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise HttpRefusal(
        404,
        "there is no such page",
        found=scope["path"][:80],
        expected="/v1/kv /v1/kv/{namespace} /v1/kv/{namespace}/{key}",
        hint="/openapi.json describes them; a slash or % in a key is written %2F or %25",
    )


def _late(milliseconds: int) -> HttpRefusal:
    return HttpRefusal(
        504,
        "the view did not answer in time",
        expected=f"{milliseconds} ms ({_WAITS} times kv.timeout_ms)",
        outcome=UNKNOWN,
        hint="of a write: read the key to see whether it took effect; of a read: ask again later",
    )


def _no_turn(milliseconds: int) -> HttpRefusal:
    return HttpRefusal(
        503,
        "too many calls at one time: this one was not begun",
        expected=f"{milliseconds} ms ({_WAITS} times kv.timeout_ms)",
        outcome=NOT_DONE,
        hint="ask again later, or raise kv.connections",
    )
