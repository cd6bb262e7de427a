"""A server whose pages not everybody may read: bound to an address of the settings, and guarded by a token or by names.

On a loopback address without a token only local names are served: a web page elsewhere cannot reach this server by a name that
it made point here.
"""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass

from starlette.requests import Request
from starlette.routing import Router

from tiered.errors import Invalid
from tiered.http.app import HttpApp
from tiered.http.connection import Door
from tiered.http.refusals import HttpRefusal
from tiered.http.server import HttpServer, why_not_bound
from tiered.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Guard:
    """What is guarded. ``section``: of the settings ``http_listen`` and ``http_token``. ``pages``: what they are called;
    ``open_to_all``: what somebody without a token could do, as the end of a sentence. ``token``: empty for none."""

    section: str
    pages: str
    open_to_all: str
    token: str


class GuardedServer:
    """Serves ``router`` on the host and port ``listen``. ``start`` and ``close`` on the event loop. Everything below ``/v1``
    asks for the token, if there is one."""

    def __init__(
        self,
        listen: tuple[str, int],
        router: Router,
        door: Door,
        guard: Guard,
        *,
        takes_bodies: bool = False,
    ) -> None:
        self._listen = "{}:{}".format(*listen)
        self._guard = guard
        self._log = door.log
        self._local_only = False
        app = HttpApp(router, door, self._check, takes_bodies=takes_bodies)
        self._server = HttpServer(app, *listen, door)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port bound; only after ``start``."""
        return self._server.address

    async def start(self) -> None:
        """Bind and listen. ``Invalid`` names ``http_listen`` of the section."""
        guard = self._guard
        key = f"{guard.section}.http_listen"
        try:
            await self._server.start()
        except OSError as error:
            raise Invalid(
                f"the address of {guard.pages} cannot be bound",
                key=key,
                value=self._listen,
                found=why_not_bound(error),
                hint=f"set {key} to a free host:port of this machine (port 0: any), or empty for none",
            ) from None
        bound = ipaddress.ip_address(self.address[0].partition("%")[0])
        self._local_only = bound.is_loopback and not guard.token
        if not bound.is_loopback and not guard.token:
            self._log.warning(
                f"{guard.pages} {guard.open_to_all} anyone who reaches %s:%d; set {guard.section}.http_token",
                *self.address,
            )

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        await self._server.close()

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
                hint=f"use http://localhost or a loopback address; for other names set {self._guard.section}.http_token",
                close=True,
            )

    def _check_token(self, request: Request) -> None:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        token = self._guard.token
        if not token or (
            scheme.lower() == "bearer"
            and hmac.compare_digest(shown.strip().encode("latin-1"), token.encode())
        ):
            return
        raise HttpRefusal(
            401,
            "the token is wrong" if scheme else "a token is needed",
            hint=f"send the header Authorization: Bearer with the value of {self._guard.section}.http_token",
        )


class CountedAnswers:
    """A ``Watcher`` that counts in the process's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def answered(self, status: int) -> None:
        """``tiered_http_requests_total``."""
        self._metrics.http_requests.labels(str(status)).inc()

    def cut(self) -> None:
        """``tiered_http_cut_total``."""
        self._metrics.http_cut.inc()


def _is_local(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
