"""Pages, bounds and refusals of the HTTP surface, over real sockets."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.daemonproc import wait_for
from tiered.clock import SystemClock
from tiered.errors import Invalid, Unavailable
from tiered.http.health import LIMITS, PROBE_SECONDS, REPORT_SECONDS, HealthPages, HealthServer
from tiered.http.limits import HttpLimits
from tiered.metrics import Metrics
from tiered.service import Service
from tiered.settings import Web


class Told:
    """What the pages of a test say."""

    live = (True, "live")
    ready = (False, "waiting for another writer")
    status: dict[str, object] | Exception | Callable[[], object] = {"lag": 5}  # noqa: RUF012  (replaced, never changed)


def pages(told: Told) -> HealthPages:
    def status() -> dict[str, object]:
        if isinstance(told.status, Exception):
            raise told.status
        if callable(told.status):
            told.status()
            return {}
        return told.status

    return HealthPages(lambda: told.live, lambda: told.ready, Metrics().expose, status)


@contextmanager
def serving(
    told: Told | None = None,
    limits: HttpLimits = LIMITS,
    *,
    host: str = "127.0.0.1",
    probe_seconds: float = PROBE_SECONDS,
    report_seconds: float = REPORT_SECONDS,
) -> Iterator[tuple[str, int]]:
    clock = SystemClock()
    server = HealthServer(
        Web(host=host, port=0),
        pages(told or Told()),
        clock,
        limits=limits,
        probe_seconds=probe_seconds,
        report_seconds=report_seconds,
    )
    server.open()
    service = Service("web", server.step, clock)
    service.start()
    try:
        yield server.address
    finally:
        service.stop()
        assert service.join(10)
        server.close()


def get(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(*address, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def raw(address: tuple[str, int], sent: bytes) -> bytes:
    """Everything that comes back for these bytes."""
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(sent)
        received = b""
        while piece := connection.recv(4096):
            received += piece
        return received


def test_pages() -> None:
    told = Told()
    with serving(told) as address:
        assert address[0] == "127.0.0.1"
        assert get(address, "/healthz") == (200, "text/plain; charset=utf-8", b"live\n")
        assert get(address, "/readyz")[0] == 503
        assert b"waiting for another writer" in get(address, "/readyz")[2]
        code, kind, body = get(address, "/metrics?x=1")
        assert (code, kind.split(";")[0]) == (200, "text/plain")
        assert b"tiered_lag_bytes" in body
        code, kind, body = get(address, "/status")
        assert (code, kind.split(";")[0], json.loads(body)) == (200, "application/json", {"lag": 5})
        code, kind, body = get(address, "/etc/passwd")
        assert (code, kind.split(";")[0]) == (404, "text/plain")
        assert b"passwd" not in body
        told.live = (False, "committer is stuck")
        assert get(address, "/healthz")[0] == 503


def test_head_has_no_body_and_other_methods_are_refused() -> None:
    with serving() as address:
        assert get(address, "/status", "HEAD") == (200, "application/json; charset=utf-8", b"")
        for method in ("POST", "DELETE", "BREW"):
            code, kind, body = get(address, "/status", method)
            assert code == 501
            assert kind.startswith("text/plain")
            assert b"<" not in body


def test_a_failing_page_is_an_answer() -> None:
    told = Told()
    with serving(told) as address:
        told.status = Unavailable("the fold is being rebuilt")
        assert get(address, "/status")[::2] == (503, b"the fold is being rebuilt\n")
        told.status = RuntimeError("secret detail")
        code, _, body = get(address, "/status")
        assert code == 500
        assert b"secret" not in body
        assert get(address, "/healthz")[0] == 200


def test_a_request_without_end_is_cut_off() -> None:
    with serving() as address, socket.create_connection(address, timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n")
        with suppress(ConnectionError):
            for _ in range(64):
                connection.sendall(b"X-Junk: " + b"j" * 1000 + b"\r\n")
        with suppress(ConnectionError):
            assert b" 200 " not in connection.recv(4096)
        assert get(address, "/healthz")[0] == 200


def test_slow_clients_get_a_bounded_time_and_number() -> None:
    with serving(limits=replace(LIMITS, head_seconds=1.0)) as address:
        idle = [socket.create_connection(address, timeout=10) for _ in range(LIMITS.connections)]
        for connection in idle:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n")
        with socket.create_connection(address, timeout=10) as one_more:
            one_more.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            with suppress(ConnectionError):
                assert b" 200 " not in one_more.recv(4096)
        for connection in idle:
            assert connection.recv(4096).startswith(b"HTTP/1.1 408 "), "told why, and cut off"
            connection.close()
        assert get(address, "/healthz")[0] == 200


def test_a_page_that_hangs_holds_up_no_other_and_is_answered_for() -> None:
    told, release = Told(), threading.Event()
    told.status = release.wait
    with serving(told, report_seconds=0.2) as address:
        for _ in range(2):
            code, _, body = get(address, "/status")
            assert code == 504
            assert b"not made in time" in body
            assert get(address, "/healthz")[0] == 200
        assert {thread.daemon for thread in threading.enumerate() if thread.name == "page"} == {True}
    release.set()


def test_pages_that_hang_take_no_more_threads_than_they_may() -> None:
    told, release, entered = Told(), threading.Event(), []

    def hang() -> None:
        entered.append(None)
        release.wait()

    told.status = hang
    with serving(told, limits=replace(LIMITS, at_once=2), report_seconds=0.1) as address:
        for _ in range(4):
            assert get(address, "/status")[0] == 504
        assert len(entered) == 2
        told.status = {}
        release.set()
        wait_for(lambda: get(address, "/status")[0] == 200, "turns given back", 10)


def test_a_report_may_take_longer_than_a_probe() -> None:
    """A host that is short of CPU is slow to tell its metrics, and none the less told."""
    assert LIMITS.answer_seconds > REPORT_SECONDS > PROBE_SECONDS
    told = Told()
    told.status = lambda: time.sleep(0.5)
    with serving(told, probe_seconds=0.1) as address:
        assert get(address, "/status")[0] == 200
    late = HealthPages(lambda: (time.sleep(0.5), (True, "live"))[1], lambda: told.ready, bytes, dict)
    clock = SystemClock()
    server = HealthServer(Web(port=0), late, clock, probe_seconds=0.1)
    server.open()
    service = Service("web", server.step, clock)
    service.start()
    try:
        assert get(server.address, "/healthz")[0] == 504
    finally:
        service.stop()
        assert service.join(10)
        server.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /healthz HTTP/1.0\n\n",
        b"GET /healthz HTTP/1.1\nHost: x\nConnection: close\n\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nUser-Agent: probe\r\n\r\n",
        b"GET /healthz HTTP/1.1\n\n",
        b"GET //healthz HTTP/1.0\r\n\r\n",
        b"\r\n\nGET /healthz HTTP/1.0\r\n\r\n",
    ],
)
def test_probes_that_speak_loosely_are_answered(sent: bytes) -> None:
    with serving() as address:
        received = raw(address, sent)
        assert received.startswith(b"HTTP/1.1 200 ")
        assert received.endswith(b"\r\n\r\nlive\n")


def test_what_is_no_head_at_all_is_refused() -> None:
    with serving() as address:
        for sent in (
            b"GET /healthz HTTP/1.0\rX: y\n\n",
            b"GET /healthz HTTP/1.0\n folded\n\n",
            b"GET /healthz HTTP/1.1\nHost: a\nHost: b\n\n",
        ):
            assert raw(address, sent).startswith(b"HTTP/1.1 400 "), sent
        assert raw(address, b"GET / HTTP/1.1\n" + b"X: y\n" * 100 + b"\n").startswith(b"HTTP/1.1 431 ")


def _ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_every_address_of_ipv6_is_every_address_of_ipv4_too() -> None:
    """Where the machine has no IPv6, that is told."""
    if not _ipv6():
        with pytest.raises(Invalid, match="cannot be bound"):
            HealthServer(Web(host="::1", port=0), pages(Told()), SystemClock()).open()
        return
    with serving(host="::") as (_, port):
        assert get(("127.0.0.1", port), "/healthz")[0] == 200
        assert get(("::1", port), "/healthz")[0] == 200
    with pytest.raises(
        Invalid
    ) as caught:  # a link that is not there: a name, and no question to a name server
        HealthServer(Web(host="::1%nowhere", port=0), pages(Told()), SystemClock()).open()
    assert caught.value.fields["key"] == "web.host"


def test_a_name_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a name's addresses, the first that IPv4 has is bound: another that cannot be bound stops nothing."""
    resolve = socket.getaddrinfo

    def two(host: str, port: int, *more: Any, **named: Any) -> Any:
        if host != "localhost":
            return resolve(host, port, *more, **named)
        kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [
            (socket.AF_INET, *kind, ("127.0.0.1", port)),
            (socket.AF_INET, *kind, ("203.0.113.7", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with serving(host="localhost") as address:
        assert address[0] == "127.0.0.1"
        assert get(address, "/healthz")[0] == 200


def test_one_request_a_connection() -> None:
    with serving() as address, socket.create_connection(address, timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        received = b""
        while piece := connection.recv(4096):
            received += piece
        assert received.count(b"HTTP/1.1 200 OK") == 1
        assert b"connection: close" in received.lower()


def test_a_taken_port_is_a_setting_to_fix() -> None:
    with serving() as (_, port):
        with pytest.raises(Invalid) as caught:
            HealthServer(Web(port=port), pages(Told()), SystemClock()).open()
        assert caught.value.fields["key"] == "web.port"
        assert str(port) in str(caught.value)
    with pytest.raises(Invalid):
        HealthServer(Web(host="203.0.113.7", port=0), pages(Told()), SystemClock()).open()


def test_off() -> None:
    assert not HealthServer(Web(port=-1), pages(Told()), SystemClock()).enabled
    assert HealthServer(Web(), pages(Told()), SystemClock()).enabled
