"""The HTTP server's connections: heads that are wrong, limits, slow and silent clients, a store that hangs."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.kit.daemonproc import wait_for
from tests.kit.httpscene import FakeStore, Scene, serving
from tiered.codec.record.message import Message
from tiered.errors import Invalid, Unavailable
from tiered.http.limits import HttpLimits
from tiered.model import MessageQueue


@pytest.fixture
def store() -> FakeStore:
    made = FakeStore(first=100)
    made.add("orders", 1, [Message("orders", 1, 100 + n, n, b"body") for n in range(1000)])
    return made


@pytest.fixture
def scene(store: FakeStore) -> Iterator[Scene]:
    with serving(store) as made:
        yield made


def test_a_list_that_fails_in_its_middle_is_cut(store: FakeStore) -> None:
    for n in range(200):
        store.add(f"t{n:03}", 0, [])
    real = store.queues

    def failing(topic: str | None = None, *, after: MessageQueue | None = None) -> Iterator[object]:
        if topic == "t150":
            raise Unavailable("gone")
        return real(topic, after=after)

    store.queues = failing  # type: ignore[method-assign,assignment]
    with serving(store) as scene:
        received = scene.raw(b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert received.startswith(b"HTTP/1.1 200 ")
        assert not received.endswith(b"0\r\n\r\n")
        assert scene.metrics.http_cut._value.get() == 1
        assert scene.json("/v1/topics/orders/queues")["queues"]


def test_a_store_that_hangs_does_not_hold_the_client(store: FakeStore) -> None:
    release = threading.Event()

    def hang(verb: str) -> None:
        release.wait(20)

    store.trouble = hang
    with serving(store, read_timeout_ms=200) as scene:
        said = scene.json("/v1/topics/orders/queues/1/messages?offset=100", status=504)
        assert "gateway.read_timeout_ms" in said["error"]["expected"]
        assert scene.json("/openapi.json")
        release.set()


def test_a_hanging_store_takes_no_more_threads_than_it_may(store: FakeStore) -> None:
    release, entered = threading.Event(), []

    def hang(verb: str) -> None:
        entered.append(verb)
        release.wait(20)

    store.trouble = hang
    page = "/v1/topics/orders/queues/1/messages?offset=100"
    with serving(store, read_timeout_ms=150, limits=HttpLimits(at_once=2)) as scene:
        for _ in range(5):
            scene.json(page, status=504)
        assert len(entered) == 2
        store.trouble = lambda verb: None
        release.set()
        answers: list[bytes] = []

        def is_served() -> bool:
            status, _, body = scene.get(page)
            answers.append(body)
            return status == 200

        wait_for(is_served, "an answer within a limit that a busy machine may miss", 10)
        assert json.loads(answers[-1])["messages"]


def test_requests_follow_on_one_connection(scene: Scene) -> None:
    one = b"GET /v1/topics/orders/queues HTTP/1.1\r\nHost: localhost\r\n\r\n"
    bad = b"GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    received = scene.raw(one + bad + one + last + one)
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.count(b"HTTP/1.1 404 ") == 1
    assert received.count(b"Connection: close") == 1


def test_an_old_client_gets_a_body_without_chunks(scene: Scene) -> None:
    received = scene.raw(b"GET /v1/topics HTTP/1.0\r\n\r\n")
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert b"Connection: close" in head
    assert json.loads(body)["topics"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100 + b"\r\n", 431),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HT", 400),
        (b"\r\n" * 9000, 431),
    ],
)
def test_heads_that_are_not_plainly_right_end_the_connection(scene: Scene, sent: bytes, status: int) -> None:
    received = scene.raw(sent)
    assert received.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in received  # names of headers are in lower case here
    error = json.loads(received.partition(b"\r\n\r\n")[2])["error"]
    assert error["fix"]


def test_a_connection_that_says_nothing_is_told_and_closed(store: FakeStore) -> None:
    with serving(store, limits=HttpLimits(head_seconds=0.2, idle_seconds=0.2)) as scene:
        with scene.connect() as silent:
            assert silent.recv(4096).startswith(b"HTTP/1.1 408 ")
        with scene.connect() as slow:
            slow.sendall(b"GET / HTTP/1.1\r\n")
            assert slow.recv(4096).startswith(b"HTTP/1.1 408 ")
        with scene.connect() as idle:
            idle.sendall(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert idle.recv(4096).startswith(b"HTTP/1.1 200 ")
            assert idle.recv(4096) == b""


def test_too_many_connections_are_turned_away(store: FakeStore) -> None:
    with serving(store, limits=HttpLimits(connections=2)) as scene:
        held = [scene.connect() for _ in range(2)]
        for one in held:
            one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 200 ")
        with scene.connect() as more:
            assert more.recv(4096).startswith(b"HTTP/1.1 503 ")
        for one in held:
            one.close()
        for _ in range(50):  # the server learns of the closing in its own time
            if scene.get("/")[0] == 200:
                break
        else:
            pytest.fail("the places were not given back")


def test_a_client_that_does_not_read_is_cut(store: FakeStore) -> None:
    for _ in range(60):
        store.add("orders", 1, [Message("orders", 1, 0, 0, b"x" * 400_000) for _ in range(4)])
    with serving(store, limits=HttpLimits(send_seconds=0.3)) as scene, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect((scene.host, scene.port))
        slow.sendall(
            b"GET /v1/topics/orders/queues/1/messages?offset=1100&count=240 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        turn = threading.Event()
        for _ in range(200):
            if scene.metrics.http_cut._value.get():
                break
            assert scene.get("/openapi.json")[0] == 200  # others are served meanwhile
            turn.wait(0.025)
        assert scene.metrics.http_cut._value.get() == 1


@pytest.mark.parametrize("text", ["8080", "localhost:", "localhost:x", "localhost:99999", ":80"])
def test_a_wrong_address_names_the_setting(text: str, store: FakeStore) -> None:
    with pytest.raises(Invalid, match=r"gateway\.http_listen"), serving(store, listen=text):
        pass


def test_a_taken_address_names_the_setting(scene: Scene, store: FakeStore) -> None:
    with pytest.raises(Invalid) as refusal, serving(store, listen=f"127.0.0.1:{scene.port}"):
        pass
    assert refusal.value.fields["key"] == "gateway.http_listen"
