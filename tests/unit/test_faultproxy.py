"""The fault proxy: each fault as a client meets it, and what the server saw of it."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.kit.daemonproc import wait_for
from tests.kit.faultproxy import Action, FaultProxy, Rule

LOST = (http.client.HTTPException, ConnectionError)


class Origin(ThreadingHTTPServer):
    """Answers GET with 200,000 bytes and PUT with the length it received; remembers what it was asked."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Resets are what these tests are about."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int]] = []
        self.connections = 0
        self.listing = ""
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Origin

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def _reply(self, body: bytes, *, chunked: bool = False) -> None:
        self.send_response(200)
        name, value = ("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(len(body)))
        self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n" if chunked else body)

    def do_GET(self) -> None:
        self.server.seen.append(("GET", self.path, 0))
        body = self.server.listing.encode() if "list-type" in self.path else bytes(200_000)
        self._reply(body, chunked="chunked" in self.path)
        self.close_connection |= self.path == "/goodbye"

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(("PUT", self.path, len(body)))
        self._reply(str(len(body)).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[Origin]:
    server = Origin()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def proxy(origin: Origin) -> Iterator[FaultProxy]:
    with FaultProxy(origin.address, seed=1) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    yield connection
    connection.close()


def ask(
    client: http.client.HTTPConnection, method: str = "GET", path: str = "/a", body: bytes | None = None
) -> tuple[int, bytes]:
    client.request(method, path, body)
    answer = client.getresponse()
    return answer.status, answer.read()


def test_without_rules_everything_passes_on_one_connection(origin, proxy, client) -> None:
    assert ask(client) == (200, bytes(200_000))
    assert ask(client, path="/chunked") == (200, bytes(200_000))
    assert ask(client, "HEAD") == (200, b"")
    assert ask(client, "PUT", body=bytes(300_000)) == (200, b"300000")
    assert origin.connections == 1
    assert [exchange.method for exchange in proxy.exchanges] == ["GET", "GET", "HEAD", "PUT"]
    assert proxy.count(Action.PASS) == 4


def test_chunked_and_expected_request_bodies_pass(origin, proxy) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as raw:
        raw.sendall(b"PUT /e HTTP/1.1\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert raw.recv(100).startswith(b"HTTP/1.1 100")
        raw.sendall(b"hello")
        answer = b""
        while not answer.endswith(b"\r\n\r\n5"):
            answer += raw.recv(1000)
    assert origin.seen == [("PUT", "/e", 5)]


def test_status_hits_the_next_ones_and_never_reaches_the_server(origin, proxy, client) -> None:
    proxy.add(Rule(Action.STATUS, status=503, times=2, method="PUT"))
    assert ask(client)[0] == 200
    status, body = ask(client, "PUT", body=b"x" * 100_000)
    assert status == 503
    assert b"<Code>SlowDown</Code>" in body
    assert ask(client, "PUT", body=b"x")[0] == 503
    assert ask(client, "PUT", body=b"x") == (200, b"1")
    assert [seen[0] for seen in origin.seen] == ["GET", "PUT"]
    assert proxy.count(Action.STATUS, "PUT") == 2


def test_cut_before_answer_happens_after_the_server_did_it(origin, proxy, client) -> None:
    proxy.add(Rule(Action.CUT_BEFORE_ANSWER, times=1))
    with pytest.raises(LOST):
        ask(client, "PUT", body=b"x" * 1000)
    assert origin.seen == [("PUT", "/a", 1000)]
    client.close()
    assert ask(client, "PUT", body=b"x") == (200, b"1")


def test_cut_request_sends_only_so_many_bytes(origin, proxy, client) -> None:
    proxy.add(Rule(Action.CUT_REQUEST, times=1, after_bytes=10))
    with pytest.raises(LOST):
        ask(client, "PUT", body=b"x" * 100_000)
    assert all(length <= 10 for _, _, length in origin.seen)


@pytest.mark.parametrize("after", [0, 70_000])
def test_cut_answer_ends_in_the_middle_of_the_body(proxy, client, after) -> None:
    proxy.add(Rule(Action.CUT_ANSWER, times=1, after_bytes=after))
    client.request("GET", "/a")
    answer = client.getresponse()
    assert answer.status == 200
    with pytest.raises(http.client.IncompleteRead) as caught:
        answer.read()
    assert len(caught.value.partial) == after
    client.close()
    assert ask(client)[0] == 200


@pytest.mark.parametrize("after", [0, 70_000, 199_999])
def test_corrupt_changes_one_bit_and_nothing_else(proxy, client, after) -> None:
    proxy.add(Rule(Action.CORRUPT, times=1, after_bytes=after))
    status, body = ask(client)
    assert (status, len(body)) == (200, 200_000)
    assert [(at, byte) for at, byte in enumerate(body) if byte] == [(after, 1)]
    assert ask(client) == (200, bytes(200_000))


def test_corrupt_leaves_shorter_answers_alone(proxy, client) -> None:
    proxy.add(Rule(Action.CORRUPT, after_bytes=1))
    assert ask(client, "PUT", body=b"x") == (200, b"1")


@pytest.mark.parametrize("path", ["/b?list-type=2", "/b?list-type=2&chunked"])
def test_a_listing_that_lags_leaves_out_what_is_new(origin, proxy, client, path) -> None:
    now = datetime.now(UTC)

    def entry(key: str, age_seconds: float) -> str:
        when = (now - timedelta(seconds=age_seconds)).isoformat(timespec="milliseconds")
        return (
            f"<Contents><Key>{key}</Key>\n<LastModified>{when[:-6]}Z</LastModified><Size>1</Size></Contents>"
        )

    old, young = entry("old", 60), entry("young", 1)
    origin.listing = f"<List>{old}{young}{old}</List>"
    proxy.add(Rule(Action.LAG, seconds=10, path_contains="list-type"))
    assert ask(client, path=path) == (200, f"<List>{old}{old}</List>".encode())
    assert ask(client, path=path) == (200, f"<List>{old}{old}</List>".encode()), "on the same connection"
    assert origin.connections == 1
    proxy.set()
    assert ask(client, path=path)[1].decode() == origin.listing


@pytest.mark.parametrize(("action", "reaches"), [(Action.BLACK_HOLE, 0), (Action.SWALLOW, 1)])
def test_silence_lasts_until_the_client_gives_up(origin, proxy, action, reaches) -> None:
    proxy.add(Rule(action, times=1))
    client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=0.2)
    with pytest.raises(TimeoutError):
        ask(client, "PUT", body=b"x")
    client.close()
    assert len(origin.seen) == reaches


def test_refuse_resets_and_down_refuses_the_connect(proxy, client) -> None:
    proxy.add(Rule(Action.REFUSE, times=1))
    with pytest.raises(LOST):
        ask(client)
    client.close()
    assert ask(client)[0] == 200
    proxy.down()
    with pytest.raises(LOST):
        ask(client)
    client.close()
    with pytest.raises(ConnectionRefusedError):
        ask(client)
    client.close()
    proxy.up()
    assert ask(client)[0] == 200


def test_delay_and_throttle_take_their_time(proxy, client) -> None:
    proxy.set(Rule(Action.DELAY, times=1, seconds=0.15), Rule(Action.THROTTLE, times=1, bytes_per_second=1e6))
    for expected in (0.15, 0.19):
        start = time.monotonic()
        assert ask(client)[1] == bytes(200_000)
        assert time.monotonic() - start >= expected


def test_filters_skip_and_seeded_probability(origin) -> None:
    rules = (
        Rule(Action.STATUS, path_contains="/data/", skip=1, times=1),
        Rule(Action.STATUS, status=500, path_contains="/dice", probability=0.5),
    )
    outcomes = []
    for _ in range(2):
        with FaultProxy(origin.address, rules, seed=7) as proxy:
            client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
            assert [
                ask(client, "PUT", path, b"x")[0] for path in ("/data/1", "/x", "/data/2", "/data/3")
            ] == [
                200,
                200,
                503,
                200,
            ]
            outcomes.append([ask(client, "PUT", "/dice", b"x")[0] for _ in range(40)])
            client.close()
    assert outcomes[0] == outcomes[1]
    assert 8 <= outcomes[0].count(500) <= 32


def test_a_dead_server_ends_the_client_connection(origin) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with FaultProxy(f"127.0.0.1:{port}") as proxy:
        client = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=10)
        with pytest.raises(LOST):
            ask(client)
        client.close()


def test_an_idle_connection_the_server_closed_is_replaced(origin, proxy, client) -> None:
    assert ask(client, path="/goodbye")[0] == 200
    time.sleep(0.3)  # idle: the server's goodbye has arrived
    assert ask(client)[0] == 200
    assert origin.connections == 2


def test_bytes_mode_passes_cuts_and_swallows(origin) -> None:
    request = b"GET /b HTTP/1.1\r\nConnection: close\r\n\r\n"

    def exchange(port: int) -> bytes:
        data = b""
        with socket.create_connection(("127.0.0.1", port), 2) as raw:
            raw.sendall(request)
            while part := raw.recv(65536):
                data += part
        return data

    before = len(origin.seen)
    with FaultProxy(origin.address, http=False) as proxy:
        whole = exchange(proxy.port)
        head, _, body = whole.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert len(body) == 200_000
        assert not any(body)
        proxy.set(Rule(Action.CUT_BEFORE_ANSWER, times=1), Rule(Action.CUT_REQUEST, times=1, after_bytes=5))
        with pytest.raises(ConnectionError):
            exchange(proxy.port)
        wait_for(lambda: len(origin.seen) == before + 2, "the origin has got what is not answered")
        with pytest.raises(ConnectionError):
            exchange(proxy.port)
        assert len(origin.seen) == before + 2
        proxy.set(Rule(Action.REFUSE, times=1))
        with pytest.raises(ConnectionError):
            exchange(proxy.port)
        again = exchange(proxy.port)  # its Date may be another
        assert len(again) == len(whole)
        assert again.endswith(body)
        assert proxy.count(Action.PASS) == 2


def test_close_ends_every_thread(origin) -> None:
    before = threading.active_count()
    proxy = FaultProxy(origin.address, [Rule(Action.BLACK_HOLE)]).start()
    sockets = [socket.create_connection(("127.0.0.1", proxy.port), 5) for _ in range(3)]
    for raw in sockets:
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n")
    deadline = time.monotonic() + 5
    while proxy.count(Action.BLACK_HOLE) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert proxy.count(Action.BLACK_HOLE) == 3
    proxy.close()
    assert threading.active_count() <= before
    for raw in sockets:
        raw.close()
