"""The key-value client over a real socket: what it sends, what it makes of answers, and what it never sends twice."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature

import pytest

from tests.kit.httpscene import KeyValueScene, serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tiered.client import connections
from tiered.client.aio import AsyncKeyValueClient
from tiered.client.sync import READ_TRIES, KeyValueClient
from tiered.clock import ManualClock
from tiered.errors import BadRequest, Conflict, Corrupt, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.http.limits import HttpLimits
from tiered.keyvalue import Condition, Entry, Freshness, ReadRule

NS = "positions"


@pytest.fixture
def view() -> MemoryKeyValues:
    made = MemoryKeyValues(ManualClock(1_700_000_000_000))
    made.create(NS)
    return made


@pytest.fixture
def scene(view: MemoryKeyValues) -> Iterator[KeyValueScene]:
    with serving_key_values(view) as made:
        yield made


@pytest.fixture
def client(scene: KeyValueScene) -> Iterator[KeyValueClient]:
    with KeyValueClient(scene.url, timeout=10, clock=ManualClock()) as made:
        yield made


@contextmanager
def answering(*answers: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives each connection's first request one of these answers and closes; ``None``: it closes at once."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.settimeout(10)
                    if answer is not None:
                        heard.append(connection.recv(65536))
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
        thread.join(10)


def json_answer(status: str, body: str, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def test_what_is_put_is_read(client: KeyValueClient, view: MemoryKeyValues) -> None:
    value = bytes(range(256))
    assert client.put(NS, b"a", value, ttl_ms=1000) == 0
    assert client.get(NS, b"a") == Entry(b"a", value, 0, 1_700_000_000_000, 1_700_000_001_000)
    assert client.put(NS, b"a", b"") == 1
    assert client.get(NS, b"a") == Entry(b"a", b"", 1, 1_700_000_000_000)
    assert client.delete(NS, b"a") == 2
    assert client.get(NS, b"a") is None
    assert client.create("other") is True
    assert client.create("other") is False
    assert client.namespaces() == ["other", NS]


def test_every_key_arrives_as_it_is(client: KeyValueClient, view: MemoryKeyValues) -> None:
    keys = [
        b".", b"..", b"a/../b", b"%2F", b"\0", b"\n", b"\xff" * 4096, b"x" * 4096, "\u00fc".encode(), b" ", b"a+b=?&#",
    ]  # fmt: skip
    for number, key in enumerate(keys):
        assert client.put(NS, key, b"%d" % number) == number
    assert set(view.held[NS].entries) == set(keys)
    assert [client.get(NS, key) for key in keys] == client.get_many(NS, keys)
    assert client.get_many(NS, [b"none", keys[3]])[0] is None
    for count in (1, 3, 1000):
        found = list(client.entries(NS, count=count))
        assert [(e.key, e.value) for e in found] == sorted((k, b"%d" % n) for n, k in enumerate(keys))
    assert [entry.value for entry in client.entries(NS, b"\xff", keys_only=True)] == [b""]
    page = client.page(NS, b"", after=b".", count=2)
    assert ([e.key for e in page.entries], page.after, page.applied) == (
        [b"..", b"a+b=?&#"],
        b"a+b=?&#",
        len(keys),
    )
    client.delete(NS, b"..")
    assert client.get(NS, b"..") is None
    assert len(view.held[NS].entries) == len(keys) - 1


def test_reads_are_as_fresh_as_asked(client: KeyValueClient, view: MemoryKeyValues) -> None:
    latest = ReadRule(Freshness.LATEST)
    client.get(NS, b"a")
    client.get(NS, b"a", latest)
    client.get_many(NS, [b"a"], ReadRule(max_stale_ms=5))
    client.page(NS, rule=latest)
    assert view.rules == [ReadRule(), latest, ReadRule(max_stale_ms=5), latest]


def test_a_lost_compare_and_set_says_what_is_there(client: KeyValueClient) -> None:
    with pytest.raises(Conflict) as none:
        client.compare_and_set(NS, b"a", b"1", version=7)
    assert (none.value.fields["current"], none.value.exit_code) == (None, 6)
    assert client.create_if_absent(NS, b"a", b"1") == 1
    for lost in (
        lambda: client.create_if_absent(NS, b"a", b"2"),
        lambda: client.compare_and_set(NS, b"a", b"2", version=0),
        lambda: client.compare_and_set(NS, b"a", b"2", expected=b"0"),
        lambda: client.compare_and_set(NS, b"a", b"2", version=1, expected=b"0"),
        lambda: client.delete(NS, b"a", condition=Condition(version=0)),
    ):
        with pytest.raises(Conflict) as there:
            lost()
        assert there.value.fields["current"] == 1
        assert there.value.fields["outcome"] == "not done"
    assert client.compare_and_set(NS, b"a", b"2", version=1) == 7
    assert client.compare_and_set(NS, b"a", b"3", expected=b"2") == 8
    assert client.delete(NS, b"a", condition=Condition(version=8)) == 9
    with pytest.raises(Invalid, match="compare"):
        client.compare_and_set(NS, b"a", b"2")


def test_an_update_goes_on_until_nobody_was_faster(client: KeyValueClient, view: MemoryKeyValues) -> None:
    """The rival writes between its read and its write, three times."""
    rivals = [b"10", b"20", b"30"]

    def add(entry: Entry | None) -> bytes:
        if rivals:
            view.put(NS, b"n", rivals.pop(0))
        return b"%d" % (int(entry.value if entry else b"0") + 1)

    assert client.update(NS, b"n", add) == 6
    assert view.held[NS].entries[b"n"].value == b"31"
    assert {rule.freshness for rule in view.rules} == {Freshness.LATEST}
    assert client.update(NS, b"n", lambda entry: None) is None
    assert view.writes == 7


def test_an_update_gives_up_after_so_many_tries(client: KeyValueClient, view: MemoryKeyValues) -> None:
    def overtaken(entry: Entry | None) -> bytes:
        view.put(NS, b"n", b"rival")
        return b"mine"

    with pytest.raises(Conflict):
        client.update(NS, b"n", overtaken, tries=3)
    assert (view.writes, view.held[NS].entries[b"n"].value) == (6, b"rival")


def test_an_update_whose_write_is_unknown_is_not_tried_again(
    client: KeyValueClient, view: MemoryKeyValues
) -> None:
    def lost(verb: str) -> None:
        raise Unavailable("the answer is lost", outcome="unknown")

    view.afterwards = lost
    with pytest.raises(Unavailable) as unknown:
        client.update(NS, b"n", lambda entry: b"1")
    assert (unknown.value.fields["outcome"], view.writes) == ("unknown", 1)
    found = client.get(NS, b"n", ReadRule(Freshness.LATEST))
    assert found is not None
    assert found.value == b"1"


@pytest.mark.parametrize(
    "error",
    [
        BadRequest("bad", hint="mend it", key="kv.x"),
        Refused("no"),
        NotFound("there is no such namespace"),
        Corrupt("messages are missing", hint="import a snapshot", missing="3-5"),
        Unavailable("away", outcome="not done"),
        Unavailable("away", outcome="unknown"),
    ],
    ids=repr,
)
def test_errors_are_of_the_kind_that_the_view_raised(
    client: KeyValueClient, view: MemoryKeyValues, error: TieredError
) -> None:
    asked = []

    def trouble(verb: str) -> None:
        asked.append(verb)
        raise type(error)(error.message, hint=error.hint, **error.fields)

    view.trouble = trouble
    with pytest.raises(type(error), match=error.message) as found:
        client.put(NS, b"a", b"1")
    assert found.type is type(error)
    assert found.value.fields.items() >= error.fields.items()
    assert error.hint is None or found.value.hint == error.hint
    assert asked == ["put"]
    with pytest.raises(type(error)):
        client.get(NS, b"a")
    assert asked[1:] == ["get"] * (READ_TRIES if isinstance(error, Unavailable) else 1)


def test_a_read_is_asked_again_after_a_pause(view: MemoryKeyValues, scene: KeyValueScene) -> None:
    view.put(NS, b"a", b"1")
    failures = [Unavailable("away"), Unavailable("away")]

    def trouble(verb: str) -> None:
        if failures:
            raise failures.pop()

    view.trouble = trouble
    clock = ManualClock()
    with KeyValueClient(scene.url, clock=clock) as client:
        found = client.get(NS, b"a")
    assert found is not None
    assert clock.monotonic() == pytest.approx(0.05 + 0.1)


def test_a_namespace_that_is_not_there_is_no_missing_key(client: KeyValueClient) -> None:
    assert client.get(NS, b"none") is None
    with pytest.raises(NotFound, match="no such namespace"):
        client.get("other", b"none")


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_wrong_token_is_refused(view: MemoryKeyValues, token: str) -> None:
    with serving_key_values(view, http_token="r\u00efght") as scene:
        with KeyValueClient(scene.url, token="r\u00efght") as client:
            assert client.put(NS, b"a", b"1") == 0
        with KeyValueClient(scene.url, token=token) as client, pytest.raises(Refused, match="token"):
            client.put(NS, b"a", b"1")


def test_a_token_that_would_be_another_header_is_refused() -> None:
    for token in ("a\r\nX: y", "a\n", " a", "\0"):
        with pytest.raises(Invalid) as refusal:
            KeyValueClient("http://localhost", token=token)
        assert token.strip() not in str(refusal.value) or token.strip() in ("a", "")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8089",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://u:p@a",
        "http://a?x",
        "http://a#x",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match="address") as refusal:
        KeyValueClient(url)
    assert "u:p" not in str(refusal.value)


def test_names_and_keys_are_checked_before_anything_is_sent(
    client: KeyValueClient, view: MemoryKeyValues
) -> None:
    for namespace, key in ((NS, b""), (NS, b"x" * 4097), ("a/b", b"k"), ("", b"k"), ("..", b"k")):
        with pytest.raises(Invalid):
            client.put(namespace, key, b"1")
    assert view.writes == 0


def test_a_value_that_is_refused_while_it_is_sent_is_known_to_be(view: MemoryKeyValues) -> None:
    """The server ends the connection before it has all of it."""
    with serving_key_values(view, max_value_bytes=1024) as scene, KeyValueClient(scene.url) as client:
        for size in (1025, 8_000_000):
            with pytest.raises(Invalid, match="too large"):
                client.put(NS, b"a", b"x" * size)
        assert client.put(NS, b"a", b"x" * 1024) == 0


def accepted(scene: KeyValueScene) -> int:
    """Connections that the server has now."""
    return len(scene.server._server._server._state.connections)


def test_connections_are_used_again(client: KeyValueClient, scene: KeyValueScene) -> None:
    for number in range(20):
        client.put(NS, b"a", b"%d" % number)
        client.get(NS, b"none")
        with pytest.raises(Conflict):
            client.create_if_absent(NS, b"a", b"")
    assert accepted(scene) == 1
    client.close()


def test_a_connection_that_the_server_ended_is_not_written_to(
    view: MemoryKeyValues, scene: KeyValueScene
) -> None:
    """Whether its end is seen, or it has only been idle for long."""
    with (
        serving_key_values(view, limits=HttpLimits(requests=1)) as ending,
        KeyValueClient(ending.url) as client,
    ):
        assert [client.put(NS, b"a", b"") for _ in range(3)] == [0, 1, 2]
    said = json_answer("200 OK", '{"applied":true,"version":1}')  # without a word of the end
    with answering(said, said) as (url, heard), KeyValueClient(url) as client:
        assert client.put(NS, b"a", b"") == 1
        while connections._is_quiet(client._connections._idle[0][1]):
            pass
        assert client.put(NS, b"a", b"") == 1
    assert len(heard) == 2
    clock = ManualClock()
    with KeyValueClient(scene.url, clock=clock) as client:
        client.put(NS, b"a", b"")
        first = client._connections._idle[0][1]
        clock.advance(connections.IDLE_SECONDS)
        client.put(NS, b"a", b"")
        assert client._connections._idle[0][1] is not first


def test_a_server_that_is_not_there_has_done_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with KeyValueClient(f"http://127.0.0.1:{port}", clock=ManualClock()) as client:
        for call in (lambda: client.put(NS, b"a", b"1"), lambda: client.get(NS, b"a")):
            with pytest.raises(Unavailable, match="cannot be reached") as refusal:
                call()
            assert refusal.value.fields["outcome"] == "not done"


STORED = b'Kv-Stored-Ms: 1\r\nETag: "1"\r\n'


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b'HTTP/1.1 200 OK\r\n\r\n{"applied":true,"version":1}',
        b"HTTP/1.1 200 OK\r\n" + STORED + b"Content-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n" + STORED + b"Content-Length: 999999999999\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\n" + STORED + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe",
        b"HTTP/1.1 200 OK\r\n" + STORED + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        json_answer("200 OK", "<html>"),
        json_answer("200 OK", "{}"),
        json_answer("200 OK", "[]"),
        json_answer("200 OK", '{"applied":false,"version":1}'),
        json_answer("200 OK", '{"applied":true,"version":"1"}'),
        json_answer("302 Found", "{}"),
        json_answer("502 Bad Gateway", "proxy"),
        json_answer("503 Service Unavailable", "proxy"),
        json_answer("504 Gateway Timeout", "[" * 100_000, "application/problem+json"),
        json_answer("500 Internal Server Error", "[]", "application/problem+json"),
    ],
    ids=lambda answer: str(answer)[:60],
)
def test_a_write_without_a_clear_answer_is_unknown_and_sent_once(answer: bytes | None) -> None:
    with answering(answer) as (url, heard), KeyValueClient(url, timeout=5) as client:
        with pytest.raises(Unavailable) as unknown:
            client.put(NS, b"a", b"1")
        assert unknown.value.fields["outcome"] == "unknown"
        assert len(heard) == (0 if answer is None else 1)
    with answering(*[answer] * 3) as (url, heard):
        with KeyValueClient(url, timeout=5, clock=ManualClock()) as client, pytest.raises(Unavailable):
            client.get(NS, b"a")
        for _ in range(3 - len(heard)):
            with socket.create_connection(url.removeprefix("http://").split(":")) as rest:  # type: ignore[arg-type]
                rest.sendall(b"\r\n")


def test_a_server_that_does_not_answer_is_waited_for_so_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with KeyValueClient(url, timeout=0.05) as client:
            with pytest.raises(Unavailable) as unknown:
                client.put(NS, b"a", b"1")
            assert unknown.value.fields["outcome"] == "unknown"


def test_a_path_in_front_is_kept() -> None:
    with answering(json_answer("200 OK", '{"namespaces":[]}')) as (url, heard):
        with KeyValueClient(url + "/behind/") as client:
            assert client.namespaces() == []
        assert heard[0].startswith(b"GET /behind/v1/kv HTTP/1.1\r\n")


def test_many_threads_share_a_client(scene: KeyValueScene, client: KeyValueClient) -> None:
    def add(entry: Entry | None) -> bytes:
        return b"%d" % (int(entry.value if entry else b"0") + 1)

    def work() -> None:
        for _ in range(10):
            client.update(NS, b"n", add, tries=1000)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    found = client.get(NS, b"n")
    assert found is not None
    assert found.value == b"40"


def test_the_same_on_asyncio(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    async def use() -> None:
        async with AsyncKeyValueClient(scene.url, clock=ManualClock(), at_once=4) as client:
            assert await client.create("other")
            assert await client.namespaces() == ["other", NS]
            await asyncio.gather(*(client.put(NS, b"k%d" % n, b"%d" % n) for n in range(20)))
            assert [entry.key async for entry in client.entries(NS, count=7)] == sorted(
                b"k%d" % n for n in range(20)
            )
            one, none = await client.get_many(NS, [b"k1", b"none"])
            assert one == await client.get(NS, b"k1")
            assert none is None
            assert one is not None
            assert await client.compare_and_set(NS, b"k1", b"x", version=one.version) == 20
            assert await client.create_if_absent(NS, b"new", b"1", ttl_ms=5) == 21
            assert await client.update(NS, b"new", lambda entry: entry.value * 2 if entry else None) == 22
            with pytest.raises(Conflict):
                await client.delete(NS, b"k1", condition=Condition(version=1))
            assert await client.delete(NS, b"k1") == 24
            assert await client.compare_and_delete(NS, b"k2", expected=b"2") == 25
            assert (await client.page(NS, b"new")).entries[0].value == b"11"

    asyncio.run(use())


def test_the_two_clients_have_the_same_calls() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        found = {name: call for name, call in vars(kind).items() if not name.startswith("_")}
        return {
            name: [str(one) for one in signature(call).parameters.values()] for name, call in found.items()
        }

    assert calls(AsyncKeyValueClient) == calls(KeyValueClient)
    assert {"get_many", "compare_and_set", "compare_and_delete", "update"} <= calls(KeyValueClient).keys()


def test_a_deletion_that_compares(client: KeyValueClient) -> None:
    version = client.put(NS, b"k", b"v")
    for asked in ({"version": version + 1}, {"expected": b"w"}, {"version": version, "expected": b"w"}):
        with pytest.raises(Conflict) as caught:
            client.compare_and_delete(NS, b"k", **asked)  # type: ignore[arg-type]
        assert caught.value.fields["current"] == version
    with pytest.raises(Invalid, match="nothing to compare"):
        client.compare_and_delete(NS, b"k")
    client.compare_and_delete(NS, b"k", version=version, expected=b"v")
    assert client.get(NS, b"k") is None


def test_it_needs_nothing_of_the_server() -> None:
    code = (
        "import sys, tiered.client.sync, tiered.client.aio; "
        "print(*sorted(m for m in sys.modules if m.partition('.')[0] in "
        "('tiered', 'numpy', 'starlette', 'uvicorn', 'boto3', 'urllib3', 'prometheus_client', 'rich', 'typer', 'msgpack')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "tiered", "tiered.backoff", "tiered.client", "tiered.client.aio", "tiered.client.answers",
        "tiered.client.connections", "tiered.client.sync", "tiered.clock", "tiered.errors", "tiered.keyvalue",
    ]  # fmt: skip
