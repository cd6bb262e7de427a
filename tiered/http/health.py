"""Health, metrics and status over HTTP, on a thread and an event loop of its own: it answers whatever else hangs.

``/healthz`` 200 while the process is live (nothing fatal, no worker stuck), else 503. ``/readyz`` 200 while it archives.
``/metrics`` Prometheus text. ``/status`` JSON. Everything else is 404. One request a connection, at most
``LIMITS.connections`` at once, and a few seconds for each part of it: a slow or hostile client costs little, and archiving
nothing. Each page is made on a thread of its own, so that one that hangs holds up no other. Probes are often a line of a shell
or of a load balancer, so they may speak loosely (``Door.lenient``).
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from tiered.clock import Clock
from tiered.errors import Invalid, TieredError
from tiered.http.app import HttpApp, PagePool, page
from tiered.http.connection import Door
from tiered.http.limits import HttpLimits, NobodyCounts
from tiered.http.refusals import JSON, TEXT, HttpRefusal, text_refusal
from tiered.http.server import HttpServer, OwnLoop, why_not_bound
from tiered.metricregistry import CONTENT_TYPE
from tiered.service import DONE, Next, Service
from tiered.settings import Web

LIMITS = HttpLimits(
    connections=16,
    at_once=16,
    requests=1,
    head_seconds=5.0,
    idle_seconds=5.0,
    send_seconds=5.0,
    answer_seconds=45.0,
)
PROBE_SECONDS = 5.0
"""How long ``/healthz`` and ``/readyz`` may take to be made: later is as good as never."""
REPORT_SECONDS = 30.0
"""How long ``/metrics`` and ``/status`` may take to be made: on a host short of CPU they are late, and still wanted."""
_PROBES = ("/healthz", "/readyz")
_log = logging.getLogger("tiered.daemon.web")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HealthPages:
    """What the pages say. ``live`` and ``ready`` return (yes, one line why); none of them may block or hold secrets."""

    live: Callable[[], tuple[bool, str]]
    ready: Callable[[], tuple[bool, str]]
    metrics: Callable[[], bytes]
    status: Callable[[], Mapping[str, object]]

    def makers(self) -> Mapping[str, Callable[[], Response]]:
        """What makes the page of each path."""
        return {
            "/healthz": lambda: _verdict(self.live()),
            "/readyz": lambda: _verdict(self.ready()),
            "/metrics": lambda: page(200, CONTENT_TYPE, self.metrics()),
            "/status": lambda: page(
                200, JSON, json.dumps(self.status(), indent=2, default=str).encode() + b"\n"
            ),
        }


def _verdict(said: tuple[bool, str]) -> Response:
    good, why = said
    return page(200 if good else 503, TEXT, (why.strip() + "\n").encode())


class HealthServer:
    """Serves ``pages``. ``open`` binds; ``step`` serves for a moment and is the step of a ``Service``; ``close`` ends.

    ``key``: the setting that holds the whole address, where that is not ``web.host`` and ``web.port``.
    """

    def __init__(
        self,
        settings: Web,
        pages: HealthPages,
        clock: Clock,
        *,
        key: str | None = None,
        limits: HttpLimits = LIMITS,
        probe_seconds: float = PROBE_SECONDS,
        report_seconds: float = REPORT_SECONDS,
    ) -> None:
        self._settings = settings
        self._key = key
        threads = _Threads(clock)
        probes, reports = (
            PagePool(threads, limits.at_once, seconds, partial(_late, seconds))
            for seconds in (probe_seconds, report_seconds)
        )
        door = Door(limits, text_refusal, NobodyCounts(), _log, lenient=True)
        routes = [
            Route(path, _Endpoint(make, probes if path in _PROBES else reports))
            for path, make in pages.makers().items()
        ]
        app = HttpApp(Router(routes, redirect_slashes=False, default=_not_found), door)
        self._server = OwnLoop(HttpServer(app, settings.host, settings.port, door, one_socket=True))

    @property
    def enabled(self) -> bool:
        """False when ``web.port`` is -1."""
        return self._settings.port >= 0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``open``."""
        return self._server.address

    def open(self) -> None:
        """Bind and listen. Raises ``Invalid`` naming the setting: ``web.port`` or ``web.host``, or the ``key``."""
        try:
            self._server.open()
        except OSError as error:
            fix = "choose another web.port (0: any free one, -1: off)"
            if self._key is not None:
                fix = f"choose another {self._key} (port 0: any free one, empty: off)"
            raise Invalid(
                "the health and metrics address cannot be bound",
                key=self._key or ("web.host" if isinstance(error, socket.gaierror) else "web.port"),
                address=f"{self._settings.host}:{self._settings.port}",
                found=why_not_bound(error),
                hint=f"{fix} or stop what listens there",
            ) from None

    def step(self) -> Next:
        """Serve for a moment."""
        return self._server.step()

    def close(self) -> None:
        """Stop listening, and wait for no page."""
        self._server.close()


class _Threads(Executor):
    """A short-lived thread for each page: one that hangs holds up no other, nor the end of the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def submit(self, call: Callable[..., _T], /, *arguments: Any, **named: Any) -> Future[_T]:
        """Start the call."""
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()  # who waits no longer cannot undo it: its turn lasts until it is done

        def step() -> Next:
            try:
                future.set_result(call(*arguments, **named))
            except BaseException as error:  # noqa: BLE001  (the request that waits for the page gets it)
                future.set_exception(error)
            return DONE

        Service("page", step, self._clock).start()
        return future


class _Endpoint:
    """One page, made in the pool. Its failure is a page, too."""

    def __init__(self, make: Callable[[], Response], pool: PagePool) -> None:
        self._make = make
        self._pool = pool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method not in ("GET", "HEAD"):
            answer = page(501, TEXT, f"501 Unsupported method ({method!a})\n".encode())
        else:
            answer = await self._made(scope["path"])
        await answer(scope, receive, send)

    async def _made(self, path: str) -> Response:
        try:
            return await self._pool.run(self._make)
        except TieredError as error:
            return text_refusal(error)
        except Exception:  # noqa: BLE001  (a page must not take the server down)
            _log.warning("a page failed", extra={"path": path}, exc_info=True)
            return page(500, TEXT, b"the page failed; the log has the reason\n")


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    body = b"not found; there are /healthz /readyz /metrics /status\n"
    await page(404, TEXT, body)(scope, receive, send)


def _late(seconds: float) -> HttpRefusal:
    return HttpRefusal(
        504, "the page was not made in time", expected=f"{seconds:g} s", hint="ask again later"
    )
