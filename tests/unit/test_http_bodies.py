"""Bodies of requests: bounded in bytes, by what is announced and by what comes, and in time; a lie ends the connection."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.kit.httpscene import KeyValueScene, serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tiered.http.kv import server
from tiered.http.kv.server import LIMITS
from tiered.http.limits import HttpLimits
from tiered.settings import KIB

PUT = b"PUT /v1/kv/n/k HTTP/1.1\r\nHost: localhost\r\n"
ANSWER = re.compile(rb"HTTP/1\.1 \d")
GET = b"GET /v1/kv/n/k HTTP/1.1\r\nHost: localhost\r\n\r\n"
MOST = 4 * KIB


@pytest.fixture
def view() -> MemoryKeyValues:
    made = MemoryKeyValues()
    made.create("n")
    return made


@pytest.fixture
def scene(view: MemoryKeyValues) -> Iterator[KeyValueScene]:
    with serving_key_values(view, max_value_bytes=MOST) as made:
        yield made


def chunked(*pieces: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    """A put in chunks."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return PUT + b"Transfer-Encoding: chunked\r\n\r\n" + body + end


def sized(size: int | str, body: bytes) -> bytes:
    """A put that announces ``size`` bytes."""
    return PUT + f"Content-Length: {size}\r\n\r\n".encode() + body


def held(view: MemoryKeyValues) -> bytes | None:
    entry = view.get("n", b"k")
    return None if entry is None else entry.value


@pytest.mark.parametrize(
    "sent",
    [
        sized(5, b"hello"),
        chunked(b"hello"),
        chunked(b"h", b"el", b"lo"),
        chunked(b"hello", end=b"0\r\nTrailer: x\r\n\r\n"),
        PUT + b"Transfer-Encoding: Chunked\r\n\r\n5;name=value\r\nhello\r\n0\r\n\r\n",
        PUT + b"Content-Length: 5\r\nContent-Length: 5\r\nContent-Encoding: identity\r\n\r\nhello",
    ],
)
def test_a_body_is_read_and_the_connection_goes_on(
    scene: KeyValueScene, view: MemoryKeyValues, sent: bytes
) -> None:
    received = scene.raw(sent + GET + sent)
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.count(b"\r\n\r\nhello") == 1
    assert b"connection: close" not in received.lower()
    assert (view.writes, held(view), scene.server.held_bytes) == (2, b"hello", 0)


def test_what_stands_behind_a_body_is_looked_at_as_a_head(
    scene: KeyValueScene, view: MemoryKeyValues
) -> None:
    bare = GET.replace(b"\r\n", b"\n")
    for behind in (bare, b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", b"X" * 20_000):
        received = scene.raw(sized(5, b"hello") + behind)
        assert received.startswith(b"HTTP/1.1 200 OK")
        assert len(ANSWER.findall(received)) == 2
        assert received.count(b"HTTP/1.1 4") == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (sized(MOST + 1, b"x"), 413),
        (sized("9" * 18, b"x" * 100), 413),
        (sized("9" * 20, b"x" * 100), 413),
        (sized("9" * 5000, b""), 400),
        (chunked(b"x" * MOST, b"y"), 413),
        (chunked(b"x" * 200_000), 413),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n" + b"x" * 200_000, 413),
        (sized(10, b"hello"), 400),
        (chunked(b"hello", end=b""), 400),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe", 400),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n", 400),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n", 400),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n", 400),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 20_000, 400),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 2_000_000, 400),
        (chunked(b"hello", end=b"0\r\n" + b"T: x\r\n" * 300_000), 400),
        (PUT + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400),
        (chunked(b"hello").replace(b"HTTP/1.1\r\n", b"HTTP/1.0\r\n", 1), 400),
        (PUT + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", 400),
        (sized("+5", b"hello"), 400),
        (sized("5, 6", b"hello"), 400),
        (PUT + b"Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", 400),
        (PUT + b"Transfer-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello", 400),
        (PUT + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", 415),
        (PUT + b"Content-Range: bytes 0-4/10\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"DELETE" + sized(5, b"hello")[3:], 413),
        (b"GET" + sized(5, b"hello")[3:], 413),
        (b"PATCH" + sized(5, b"hello")[3:], 405),
        (sized(5, b"hello").replace(b"/v1/kv/n/k", b"/v1/kv/n"), 413),
        (sized(5, b"hello").replace(b"/v1/kv/n/k", b"/v2/kv/n/k"), 404),
        (sized(5, b"hello").replace(b"/n/k", b"/n/k?ttl_ms=0"), 400),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_body_that_is_refused_writes_nothing_and_ends_the_connection(
    scene: KeyValueScene,
    view: MemoryKeyValues,
    caplog: pytest.LogCaptureFixture,
    sent: bytes,
    status: int,
) -> None:
    """Whatever stands behind it is not read."""
    with caplog.at_level(logging.WARNING):
        received = scene.raw(sent + (b"" if sent.endswith(b"he") or status == 400 else GET))
    assert received.startswith(b"HTTP/1.1 %d " % status), received
    assert len(ANSWER.findall(received)) == 1
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["outcome"] == "not done"
    assert (view.writes, scene.server.held_bytes) == (0, 0)
    assert scene.get("/v1/kv")[0] == 200
    assert [record.getMessage() for record in caplog.records] == []


def test_a_value_as_large_as_allowed_is_taken_in_either_way(
    scene: KeyValueScene, view: MemoryKeyValues
) -> None:
    for number, sent in enumerate((sized(MOST, b"x" * MOST), chunked(*[b"x" * 16] * (MOST // 16)))):
        assert scene.raw(sent).startswith(b"HTTP/1.1 200 OK")
        assert (view.writes, held(view)) == (number + 1, b"x" * MOST)


def test_a_body_that_does_not_come_is_waited_for_so_long(view: MemoryKeyValues) -> None:
    limits = HttpLimits(body_seconds=0.2)
    with serving_key_values(view, limits=limits) as scene:
        for sent in (sized(10, b"hello"), chunked(b"hello", end=b"5\r\nhe")):
            with scene.connect() as client:
                client.sendall(sent)
                received = client.recv(65536)
            assert received.startswith(b"HTTP/1.1 408 ")
            assert b"connection: close" in received.lower()
            said = json.loads(received.partition(b"\r\n\r\n")[2])
            assert (said["expected"], said["outcome"]) == ("0.2 s", "not done")
        assert (view.writes, scene.server.held_bytes) == (0, 0)


def test_a_body_a_drop_at_a_time_does_not_buy_time(view: MemoryKeyValues) -> None:
    with serving_key_values(view, limits=HttpLimits(body_seconds=0.2)) as scene, scene.connect() as client:
        client.sendall(sized(1000, b""))
        client.settimeout(0.01)
        received = b""
        for _ in range(500):
            client.sendall(b"x")
            try:
                received = client.recv(65536)
                break
            except TimeoutError:
                continue
        assert received.startswith(b"HTTP/1.1 408 ")
        assert view.writes == 0


def test_whoever_goes_away_within_a_body_leaves_nothing(view: MemoryKeyValues) -> None:
    with serving_key_values(view) as scene:
        with scene.connect() as client:
            client.sendall(PUT + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.1 100 ")  # it is being read
            client.sendall(b"hello")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        while scene.server.held_bytes or scene.metrics.http_cut._value.get() == 0:
            assert scene.get("/v1/kv")[0] == 200
        assert view.writes == 0


def test_all_bodies_together_have_so_much_room(
    view: MemoryKeyValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held counts, not what is announced: four of the largest, and of a fifth what comes."""
    monkeypatch.setattr(server, "BODIES_BYTES", 0)
    view.trouble = lambda verb: None
    with serving_key_values(view, max_value_bytes=KIB) as scene:
        clients = [scene.connect() for _ in range(5)]
        try:
            for client in clients[:4]:
                client.sendall(sized(KIB, b"x" * (KIB - 1)))
            clients[4].sendall(sized(KIB, b"x"))
            while scene.server.held_bytes < 4 * (KIB - 1) + 1:
                assert scene.get("/v1/kv")[0] == 200
            clients[4].sendall(b"x" * 4)
            received = clients[4].recv(65536)
            assert received.startswith(b"HTTP/1.1 503 ")
            assert json.loads(received.partition(b"\r\n\r\n")[2])["outcome"] == "not done"
            for client in clients[:4]:
                client.sendall(b"x")
                assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert scene.server.held_bytes == 0
        finally:
            for client in clients:
                client.close()


def test_room_is_kept_until_the_value_is_written(view: MemoryKeyValues) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang(verb: str) -> None:
        begun.set()
        assert go_on.wait(20)

    with serving_key_values(view, limits=LIMITS) as scene:
        view.trouble = hang
        writer = threading.Thread(target=scene.send, args=("PUT", "/v1/kv/n/k", b"hello"))
        writer.start()
        assert begun.wait(10)
        assert scene.server.held_bytes == 5
        go_on.set()
        writer.join(10)
        assert scene.server.held_bytes == 0
