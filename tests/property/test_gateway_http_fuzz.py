"""The HTTP server against bytes that are no requests: a status that says so, or the end of the connection; never a crash."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.kit.httpscene import FakeStore, Scene, serving
from tiered.codec.record.message import Message

PATHS = (
    b"/", b"/openapi.json", b"/v1/topics", b"/v1/topics?system=true", b"/v1/topics/orders/queues",
    b"/v1/topics/orders/queues/0/messages?offset=0&count=5&tag=red", b"/v1/query?topic=orders&key=k",
    b"/v1/topics/orders/queues/0/messages?sql=a%3E1+AND+b+IN+%28%27x%27%29",
)  # fmt: skip
SCRAPS = st.sampled_from(
    (b"\r\n", b"\n", b"\r", b" ", b"%", b"%00", b"%2F", b"&", b"=", b"?", b"/", b"..", b"HTTP/1.1", b"HTTP/1.0", b"\x00",
     b"\xff", b"Host: x\r\n", b"Content-Length: 9\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"GET ",
     b"POST ", b"count=", b"offset=99999999999999999999", b"'", b"||", b"#", b"::", b"Authorization: Bearer \xe9\r\n",
     b"A: " + b"x" * 9000 + b"\r\n"),
)  # fmt: skip
STATUSES = {b"200", b"400", b"404", b"405", b"413", b"421", b"431", b"505"}


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One or more requests, mostly damaged somewhere."""
    made = b""
    for path in draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=3)):
        made += b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(made)))
        lost = draw(st.integers(0, 6))
        made = made[:at] + draw(SCRAPS | st.binary(max_size=8)) + made[at + lost :]
    return made


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    store = FakeStore()
    properties = {"TAGS": "red", "KEYS": "k", "a": "2", "b": "x"}
    store.add("orders", 0, [Message("orders", 0, n, n, b"body", properties) for n in range(20)])
    with serving(store) as made:
        yield made


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=requests() | st.binary(max_size=300))
def test_any_bytes_are_answered_or_the_connection_ends(
    scene: Scene, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    with caplog.at_level(logging.ERROR):
        received = scene.raw(sent)
    assert [record.getMessage() for record in caplog.records] == []
    if received:
        assert received.startswith(b"HTTP/1.1 ")
        assert received[9:12] in STATUSES
    assert scene.metrics.http_cut._value.get() == 0
    status, _, body = scene.get("/v1/topics/orders/queues/0/messages?count=1")
    assert status == 200
    assert len(json.loads(body)["messages"]) == 1


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.binary(max_size=80), min_size=1, max_size=5)
    | requests().map(lambda sent: sent.split(b"\r\n"))
)
@example([b""])
def test_any_lines_are_a_request_or_refused(scene: Scene, lines: list[bytes]) -> None:
    """The library that understands heads is not called by itself: the lines go to the server, as one request."""
    received = scene.raw(b"\r\n".join(lines) + b"\r\n\r\n")
    if not received:
        assert set(b"".join(lines)) <= set(b"\r\n"), "empty lines alone are no request"
        return
    head, _, body = received.partition(b"\r\n\r\n")
    status = int(head[9:12])
    if status == 200:
        return
    error = json.loads(body.partition(b"\n")[0])["error"]
    assert error["fix"]
    assert error["status"] == status
    assert 400 <= status <= 505
