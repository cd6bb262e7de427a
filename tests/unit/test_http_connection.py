"""What connections add to the library: counted places and requests, sides that close, ends without noise in the log."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Router

from tests.kit.httpscene import FakeStore, serving
from tiered.codec.record.message import Message
from tiered.http import lingering
from tiered.http.app import HttpApp
from tiered.http.connection import Door
from tiered.http.limits import HttpLimits, NobodyCounts
from tiered.http.lingering import LingeringTransport

ONE = b"GET /v1/topics/orders/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore(first=100)
    made.add("orders", 1, [Message("orders", 1, 100 + n, n, b"body" * 100) for n in range(1000)])
    return made


def rest(connected: socket.socket) -> bytes:
    """Everything until the server closes."""
    received = b""
    while piece := connected.recv(65536):
        received += piece
    return received


def answered(connected: socket.socket) -> bytes:
    """One answer in chunks."""
    received = b""
    while not received.endswith(b"\r\n0\r\n\r\n"):
        piece = connected.recv(65536)
        assert piece, received
        received += piece
    return received


def test_a_connection_carries_so_many_requests_and_says_which_is_the_last(store: FakeStore) -> None:
    with serving(store, limits=HttpLimits(requests=2)) as scene:
        received = scene.raw(ONE * 3).lower()
        assert received.count(b"http/1.1 200 ok") == 2
        assert received.count(b"connection: close") == 1
        assert received.rindex(b"http/1.1 200 ok") < received.index(b"connection: close")


@pytest.mark.parametrize(
    "body",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzzzz\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nab\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n" + b"x" * 200_000,
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"Content-Length: 500000\r\n\r\n" + b"x" * 200_000,
        b"Content-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\n\r\n",
    ],
)
def test_a_body_is_refused_as_such_whatever_is_in_it(
    store: FakeStore, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    with caplog.at_level(logging.WARNING), serving(store) as scene:
        received = scene.raw(b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\n" + body)
        assert received.startswith(b"HTTP/1.1 413 ")
        assert received.count(b"HTTP/1.1") == 1
        assert scene.metrics.http_cut._value.get() == 0
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("path", [b"/%zz", b"*", b"http://a/", b"/v1/topics?a=1&a=1", b"/v1/nothing"])
def test_nothing_is_understood_behind_a_body(store: FakeStore, path: bytes) -> None:
    """A body is refused before the address, and no head is read behind it without being looked at."""
    with serving(store) as scene:
        sent = b"POST " + path + b" HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n"
        with scene.connect() as client:
            client.sendall(sent)
            received = client.recv(65536)
            with suppress(ConnectionError):
                client.sendall(b"hello" + b"GET /v1/topics HTTP/1.1\nHost: a\n\n")
                received += rest(client)
        assert received.startswith(b"HTTP/1.1 413 ")
        assert received.lower().count(b"connection: close") == 1
        assert received.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("header", "last"),
    [
        ((b"content-length", b"5"), True),
        ((b"transfer-encoding", b"chunked"), True),
        ((b"content-length", b"0"), False),
        ((b"accept", b"*/*"), False),
    ],
)
def test_the_answer_to_a_request_with_a_body_is_the_last_whatever_it_is(
    header: tuple[bytes, bytes], *, last: bool
) -> None:
    class NoLimit:
        is_last_request = False

    async def begin() -> list[tuple[bytes, bytes]]:
        begun: list[tuple[bytes, bytes]] = []

        async def send(message: Any) -> None:
            begun.extend(message.get("headers", ()))

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        door = Door(
            HttpLimits(), lambda error: Response(b"", 400), NobodyCounts(), logging.getLogger(__name__)
        )
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": "/",
            "raw_path": b"/",
            "query_string": b"",
            "headers": [header],
            "state": {"connection": NoLimit()},
        }
        await HttpApp(Router(), door)(scope, receive, send)
        return begun

    assert ((b"connection", b"close") in asyncio.run(begin())) is last


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        (b"\r\n" + ONE, 1),
        (b"\r\n\r\n" + ONE, 1),
        (ONE + b"\r\n" + ONE, 2),
        (ONE + b"\r\n\r\n" + ONE + b"\r\n", 2),
        (ONE + b"\r\n", 1),
        (ONE + b"\r", 1),
        (b"\r\n", 0),
    ],
)
def test_empty_lines_before_a_request_mean_nothing(store: FakeStore, sent: bytes, answers: int) -> None:
    with serving(store) as scene:
        received = scene.raw(sent)
        assert received.count(b"HTTP/1.1 200 ") == received.count(b"HTTP/1.1") == answers


def test_empty_lines_may_come_in_pieces(store: FakeStore) -> None:
    with serving(store) as scene, scene.connect() as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (b"\r", b"\n", b"\r", b"\n" + ONE[:1], ONE[1:]):
            slow.sendall(piece)
            time.sleep(0.05)
        assert answered(slow).startswith(b"HTTP/1.1 200 ")


def test_empty_lines_are_bytes_of_a_head(store: FakeStore) -> None:
    with serving(store) as scene:
        assert scene.raw(b"\r\n" * 9000).startswith(b"HTTP/1.1 431 ")
        with scene.connect() as slow:
            for _ in range(10):
                slow.sendall(b"\r\n" * 1000)
                time.sleep(0.02)
            assert rest(slow).startswith(b"HTTP/1.1 431 ")
        enough = b"\r\n" * 8000
        assert scene.raw(enough + ONE + enough + ONE).count(b"HTTP/1.1 200 ") == 2


def test_bare_line_feeds_before_a_request_are_no_empty_lines(store: FakeStore) -> None:
    with serving(store) as scene:
        assert scene.raw(b"\n" + ONE).startswith(b"HTTP/1.1 400 ")
        assert scene.raw(b"\r" + ONE).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization : Bearer s3cret\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer s3cret\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: 's3cret\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization Bearer s3cret:x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\ns3cret\r\n\r\n",
        ONE + b"Authorization: Bearer s3cret\r\n\r\n",
        b"GET  /" + b"x" * 10_000 + b"s3cret HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_a_refused_head_is_not_shown(store: FakeStore, head: bytes) -> None:
    """What is wrong is told: no value of a header, and of a line no more than its begin."""
    with serving(store) as scene:
        refusal = scene.raw(head).rpartition(b"HTTP/1.1 400 ")[2]
        assert b"s3cret" not in refusal
        error = json.loads(refusal.partition(b"\r\n\r\n")[2])["error"]
        assert error["found"].startswith("illegal ")
        assert len(error["found"]) <= 100
        if b"Authorization:" in head:
            assert error["found"].endswith(" line: Authorization")


def test_a_refused_head_is_answered_with_what_every_answer_has(store: FakeStore) -> None:
    with serving(store) as scene:
        page = scene.raw(ONE).partition(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]
        refusal = scene.raw(b"nothing\r\n\r\n").partition(b"\r\n\r\n")[0].lower().split(b"\r\n")[1:]
        for name in (
            b"cache-control",
            b"x-content-type-options",
            b"referrer-policy",
            b"cross-origin-resource-policy",
        ):
            told = [line for line in page if line.startswith(name)]
            assert len(told) == 1
            assert [line for line in refusal if line.startswith(name)] == told


def test_a_client_that_closed_its_sending_side_gets_every_answer(store: FakeStore) -> None:
    store.trouble = lambda verb: time.sleep(0.05)
    with serving(store) as scene:
        assert scene.raw(ONE * 4).count(b"HTTP/1.1 200 OK") == 4
        assert scene.metrics.http_cut._value.get() == 0


def test_half_a_head_and_then_nothing_is_refused_at_once(store: FakeStore) -> None:
    with serving(store) as scene:
        assert scene.raw(ONE + ONE[:-2]).count(b"HTTP/1.1 400 ") == 1


def test_a_drop_at_a_time_does_not_buy_time(store: FakeStore) -> None:
    """Bytes that come keep no connection: the whole head must be there in time, the first and the next."""
    with serving(store, limits=HttpLimits(head_seconds=0.3, idle_seconds=0.3)) as scene:
        for before, end in ((b"", b"HTTP/1.1 408 "), (ONE, b"HTTP/1.1 200 ")):
            with scene.connect() as slow:
                slow.sendall(before)
                began, received = time.monotonic(), b""
                slow.settimeout(0.05)
                while time.monotonic() < began + 5:
                    try:
                        slow.sendall(b"G")
                        piece = slow.recv(65536)
                    except TimeoutError:
                        continue
                    except ConnectionError:
                        break
                    if not piece:
                        break
                    received += piece
                assert time.monotonic() - began < 3
                assert received.startswith(end)
                assert received.count(b"HTTP/1.1") == 1


def test_the_last_answer_is_read_although_the_client_goes_on_sending(store: FakeStore) -> None:
    """A close with bytes unread would make the kernel throw the answer away."""
    with serving(store) as scene, scene.connect() as talker:
        talker.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 600_000)
        assert rest(talker).startswith(b"HTTP/1.1 431 ")


class Inner(asyncio.Transport):
    """A transport whose client takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def write_eof(self) -> None:
        self.done.append("write_eof")

    def can_write_eof(self) -> bool:
        return True

    def resume_reading(self) -> None:
        self.done.append("resume_reading")

    def is_closing(self) -> bool:
        return "close" in self.done

    def close(self) -> None:
        self.done.append("close")


def test_a_client_that_takes_nothing_of_its_last_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is handed over and the connection is closing: what the client leaves in the buffer holds no place for ever."""
    monkeypatch.setattr(lingering, "PARTING_SECONDS", 0.02)

    async def part(*, client_ended: bool) -> list[str]:
        inner, cut = Inner(), asyncio.Event()
        outer = LingeringTransport(inner, asyncio.get_running_loop(), 0.02, cut.set)
        if client_ended:
            outer.client_ended()
        outer.close()
        outer.close()
        assert outer.is_closing()
        async with asyncio.timeout(10):
            await cut.wait()
        return inner.done

    assert asyncio.run(part(client_ended=False)) == ["write_eof", "resume_reading", "close"]
    assert asyncio.run(part(client_ended=True)) == ["close"]


def test_turned_away_connections_take_no_place(store: FakeStore) -> None:
    with serving(store, limits=HttpLimits(connections=1)) as scene, scene.connect() as held:
        held.sendall(ONE)
        assert answered(held).startswith(b"HTTP/1.1 200 ")
        for _ in range(5):
            with scene.connect() as more:
                assert rest(more).startswith(b"HTTP/1.1 503 ")
        held.sendall(ONE)
        assert answered(held).startswith(b"HTTP/1.1 200 ")


def test_escapes_are_the_same_address_and_no_way_round_the_token(store: FakeStore) -> None:
    with serving(store, token="s3cret") as scene:
        for path in ("/v1/topics", "/%761/topics", "/v%31/topics", "/v1/%74opics"):
            scene.json(path, status=401)
            assert scene.json(path, headers={"Authorization": "Bearer s3cret"})["topics"]
        scene.json("/v1%2Ftopics", status=404)


def test_an_end_in_the_middle_of_answers_is_quiet(store: FakeStore, caplog: pytest.LogCaptureFixture) -> None:
    """The server is closed while a store hangs for one client and another waits between two requests."""
    entered = threading.Event()

    def hang(verb: str) -> None:
        entered.set()
        time.sleep(1)

    with caplog.at_level(logging.WARNING):
        with serving(store, read_timeout_ms=20_000) as scene:
            idle, waiting = scene.connect(), scene.connect()
            idle.sendall(ONE)
            assert answered(idle)
            store.trouble = hang
            waiting.sendall(ONE)
            assert entered.wait(10)
        for one in (idle, waiting):
            with one, suppress(ConnectionError):
                assert one.recv(65536) == b""
    assert [record.getMessage() for record in caplog.records] == []
