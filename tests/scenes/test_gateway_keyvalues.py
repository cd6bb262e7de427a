"""The key-value view behind a gateway, on RocketMQ's remoting: pages over HTTP behind it, a broker that sees nothing of it."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from tests.kit.gatewaykit import Peer, Running, ScriptedAnswers, answer_to, frame, gateway, on_loop
from tests.kit.httpscene import KeyValueScene, serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tiered.client.sync import KeyValueClient
from tiered.clock import ManualClock
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import Command, decode_command
from tiered.codec.remoting.keyvalue import (
    NO_VERSION,
    KeyValueAnswer,
    KeyValueCode,
    encoded,
    pack_keys,
    unpack_listed,
)
from tiered.errors import Unavailable
from tiered.gateway.answers import keyvalues
from tiered.gateway.answers.keyvalues import KeyValueDoor
from tiered.gateway.transport.pending import MAX_OBSERVED_BODY
from tiered.keyvalue import Freshness, ReadRule
from tiered.metrics import Metrics

NS = "positions"
encodings = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])


def failing(error: Exception) -> Callable[[str], None]:
    """What a view does before each verb: fail."""

    def trouble(verb: str) -> None:
        raise error

    return trouble


@pytest.fixture
def view() -> MemoryKeyValues:
    made = MemoryKeyValues(ManualClock(1_700_000_000_000))
    made.create(NS)
    return made


@pytest.fixture
def scene(view: MemoryKeyValues) -> Iterator[KeyValueScene]:
    with serving_key_values(view) as made:
        yield made


class Caller:
    """A client of the broker front: requests, one after the other."""

    def __init__(self, peer: Peer, binary: bool) -> None:
        self.peer = peer
        self._binary = binary
        self._opaque = 0

    def request(self, code: int, body: bytes = b"", **fields: str) -> Command:
        self._opaque += 1
        return Command(
            int(code), self._opaque, ext={"namespace": NS, **fields}, body=body, binary=self._binary
        )

    async def ask(self, code: int, body: bytes = b"", **fields: str) -> Command:
        request = self.request(code, body, **fields)
        await self.peer.send(frame(request))
        answer = await self.peer.command()
        assert answer.is_response
        assert answer.opaque == request.opaque
        assert answer.binary == self._binary
        return answer


@asynccontextmanager
async def through(url: str, *, binary: bool = False) -> AsyncIterator[tuple[Caller, Running]]:
    """A client of a gateway before that view; the broker knows no code of it, and says so."""

    async def broker(peer: Peer, data: bytes) -> None:
        request = decode_command(data[4:])
        await peer.send(answer_to(request, 3))

    with ThreadPoolExecutor(keyvalues.MOST_AT_ONCE) as pool:
        door = KeyValueDoor(lambda token: KeyValueClient(url, token=token, timeout=10), pool, Metrics())
        answers = ScriptedAnswers(codes=frozenset(), wanted=frozenset(), own=door.codes, served=door.answer)
        try:
            async with gateway(answers, broker) as running:
                yield Caller(await running.client(), binary), running
        finally:
            door.close()


@encodings
def test_put_get_delete(scene: KeyValueScene, binary: bool) -> None:
    async def test() -> None:
        async with through(scene.url, binary=binary) as (caller, running):
            key, value = encoded(b"\xffkey\0"), bytes(range(256)) * 100
            made = await caller.ask(KeyValueCode.PUT, value, key=key, ttlMs="60000")
            assert (made.code, made.ext["version"]) == (0, "0")
            for latest in ("true", "false"):
                found = await caller.ask(KeyValueCode.GET, key=key, latest=latest)
                assert (found.code, bytes(found.body)) == (0, value)
                assert found.ext == {
                    "version": "0", "storedMs": "1700000000000", "expiresMs": "1700000060000",
                }  # fmt: skip
            assert (await caller.ask(KeyValueCode.PUT, b"", key=key)).ext["version"] == "1"
            empty = await caller.ask(KeyValueCode.GET, key=key)
            assert (empty.code, bytes(empty.body), "expiresMs" in empty.ext) == (0, b"", False)
            assert (await caller.ask(KeyValueCode.DELETE, key=key)).ext["version"] == "2"
            assert (await caller.ask(KeyValueCode.GET, key=key)).code == ResponseCode.QUERY_NOT_FOUND
            assert (await caller.ask(KeyValueCode.CREATE, namespace="other")).ext["created"] == "true"
            assert (await caller.ask(KeyValueCode.CREATE, namespace="other")).ext["created"] == "false"
            assert running.broker.frames == [], "the broker saw a request that it does not know"

    on_loop(test())


@encodings
def test_conditions(scene: KeyValueScene, binary: bool) -> None:
    async def test() -> None:
        async with through(scene.url, binary=binary) as (caller, _):
            key = encoded(b"k")
            assert (await caller.ask(KeyValueCode.PUT, b"a", key=key, ifVersion="-1")).code == 0
            lost = await caller.ask(KeyValueCode.PUT, b"b", key=key, ifVersion="-1")
            assert (lost.code, lost.ext["currentVersion"]) == (KeyValueAnswer.CONDITION_FAILED, "0")
            lost = await caller.ask(KeyValueCode.DELETE, key=key, ifVersion="5")
            assert (lost.code, lost.ext["currentVersion"]) == (KeyValueAnswer.CONDITION_FAILED, "0")
            digest = encoded(hashlib.sha256(b"a").digest())
            assert (
                await caller.ask(KeyValueCode.PUT, b"c", key=key, ifVersion="0", ifValue=digest)
            ).code == 0
            lost = await caller.ask(KeyValueCode.PUT, b"d", key=key, ifValue=digest)
            assert lost.code == KeyValueAnswer.CONDITION_FAILED
            lost = await caller.ask(KeyValueCode.DELETE, key=key, ifValue=digest)
            assert (lost.code, lost.ext["currentVersion"]) == (KeyValueAnswer.CONDITION_FAILED, "3")
            digest = encoded(hashlib.sha256(b"c").digest())
            assert (await caller.ask(KeyValueCode.DELETE, key=key, ifValue=digest)).code == 0
            lost = await caller.ask(KeyValueCode.PUT, b"e", key=key, ifVersion="3")
            assert (lost.code, "currentVersion" in lost.ext) == (KeyValueAnswer.CONDITION_FAILED, False)

    on_loop(test())


def test_lists_come_page_by_page_and_whole(
    scene: KeyValueScene, view: MemoryKeyValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyvalues, "LISTED_BYTES", 3000)
    for number in range(40):
        view.put(NS, b"p/%03d" % number, b"v" * 500)
    view.put(NS, b"q", b"")

    async def pages(caller: Caller, **options: str) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        after: dict[str, str] = {}
        while True:
            page = await caller.ask(KeyValueCode.LIST, prefix=encoded(b"p/"), **options, **after)
            assert page.code == 0
            rows = list(unpack_listed(page.body))
            assert len(rows) == int(page.ext["count"])
            assert sum(len(row.value) for row in rows) < 3000 + 500
            found += [(row.key, len(row.value)) for row in rows]
            if "after" not in page.ext:
                return found
            after = {"after": page.ext["after"]}

    async def test() -> None:
        async with through(scene.url) as (caller, _):
            keys = [b"p/%03d" % number for number in range(40)]
            assert await pages(caller) == [(key, 500) for key in keys]
            assert await pages(caller, count="7", latest="true") == [(key, 500) for key in keys]
            assert await pages(caller, keysOnly="true") == [(key, 0) for key in keys]

    on_loop(test())


@encodings
def test_several_keys_at_once(
    scene: KeyValueScene, view: MemoryKeyValues, binary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyvalues, "LISTED_BYTES", 3000)
    for number in range(4):
        view.put(NS, b"%d\xff" % number, b"v" * 800 * number)
    view.put(NS, b"ends", b"", ttl_ms=60_000)

    async def test() -> None:
        async with through(scene.url, binary=binary) as (caller, running):
            keys = [b"3\xff", b"none", b"0\xff", b"3\xff", b"ends"]
            few = await caller.ask(KeyValueCode.GET_MANY, pack_keys(keys[1:]))
            assert (few.code, few.ext["count"]) == (0, "4")
            assert [(row.key, row.version, len(row.value), row.expires_ms) for row in unpack_listed(few.body)] == [
                (b"none", NO_VERSION, 0, None), (b"0\xff", 0, 0, None), (b"3\xff", 3, 2400, None),
                (b"ends", 4, 0, 1_700_000_060_000),
            ]  # fmt: skip
            many = await caller.ask(KeyValueCode.GET_MANY, pack_keys(keys))
            assert (many.code, "fewer" in (many.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
            for body in (b"", b"\0\0\0", pack_keys(keys)[:-1], pack_keys([b""]), pack_keys([b"k"] * 1001)):
                answer = await caller.ask(KeyValueCode.GET_MANY, body)
                assert answer.code == ResponseCode.SYSTEM_ERROR, answer
            gone = await caller.ask(KeyValueCode.GET_MANY, pack_keys([b"k"]), namespace="nobody")
            assert gone.code == ResponseCode.TOPIC_NOT_EXIST
            assert running.broker.frames == []

    on_loop(test())


def test_how_fresh_a_read_is(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    async def test() -> None:
        async with through(scene.url) as (caller, _):
            for code in (KeyValueCode.GET, KeyValueCode.GET_MANY, KeyValueCode.LIST):
                body = pack_keys([b"k"]) if code == KeyValueCode.GET_MANY else b""
                await caller.ask(code, body, key=encoded(b"k"), maxStaleMs="250")
                await caller.ask(code, body, key=encoded(b"k"), latest="true")
                assert view.rules == [ReadRule(max_stale_ms=250), ReadRule(Freshness.LATEST)], code
                view.rules.clear()
                wrong = await caller.ask(code, body, key=encoded(b"k"), maxStaleMs="-1")
                assert (wrong.code, "maxStaleMs" in (wrong.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)

    on_loop(test())


def test_bad_input_is_named(scene: KeyValueScene) -> None:
    async def test() -> None:
        async with through(scene.url) as (caller, _):
            for fields, said in (
                ({"key": "?"}, "key"),
                ({"key": encoded(b"k"), "ifVersion": "x"}, "ifVersion"),
                ({"key": encoded(b"")}, "key"),
                ({"key": encoded(b"k" * 4097)}, "key"),
                ({"namespace": "", "key": encoded(b"k")}, "namespace"),
                ({"namespace": "a/b", "key": encoded(b"k")}, "namespace"),
            ):
                answer = await caller.ask(KeyValueCode.PUT, b"v", **fields)
                assert answer.code == ResponseCode.SYSTEM_ERROR, answer
                assert said in (answer.remark or "")
            gone = await caller.ask(KeyValueCode.PUT, b"v", namespace="nobody", key=encoded(b"k"))
            assert gone.code == ResponseCode.TOPIC_NOT_EXIST
            assert (await caller.ask(KeyValueCode.PUT, b"v" * (2 << 20), key=encoded(b"k"))).code != 0
            assert (await caller.ask(KeyValueCode.PUT, b"v", key=encoded(b"k"))).code == 0

    on_loop(test())


def test_a_body_that_is_too_long_ends_the_connection(scene: KeyValueScene) -> None:
    async def test() -> None:
        async with through(scene.url) as (caller, running):
            head = frame(caller.request(KeyValueCode.PUT, b"x", key=encoded(b"k")))[:-1]
            body = MAX_OBSERVED_BODY + 1
            await caller.peer.send((len(head) - 4 + body).to_bytes(4, "big") + head[4:])
            assert await caller.peer.at_end()
            assert running.cut("bad_frame") == 1

    on_loop(test())


def test_an_unknown_outcome_is_said_to_be_one_and_nothing_else(
    scene: KeyValueScene, view: MemoryKeyValues
) -> None:
    async def test() -> None:
        async with through(scene.url) as (caller, _):
            for outcome, code in (
                ("unknown", KeyValueAnswer.OUTCOME_UNKNOWN),
                ("not done", ResponseCode.SYSTEM_BUSY),
            ):
                view.trouble = failing(Unavailable("the broker is away", outcome=outcome))
                answer = await caller.ask(KeyValueCode.PUT, b"v", key=encoded(b"k"))
                assert answer.code == code, answer
            view.trouble = failing(RuntimeError("s3cret"))
            answer = await caller.ask(KeyValueCode.PUT, b"v", key=encoded(b"k"))
            assert answer.code == KeyValueAnswer.OUTCOME_UNKNOWN
            assert "s3cret" not in (answer.remark or "")

    on_loop(test())


def test_a_view_that_is_away_did_nothing(view: MemoryKeyValues) -> None:
    async def test() -> None:
        async with through("http://127.0.0.1:1") as (caller, _):
            for code in (KeyValueCode.PUT, KeyValueCode.GET, KeyValueCode.LIST):
                answer = await caller.ask(code, key=encoded(b"k"))
                assert answer.code == ResponseCode.SYSTEM_BUSY, answer

    on_loop(test())


def test_who_may_is_for_the_view_to_say(view: MemoryKeyValues) -> None:
    async def test(url: str) -> None:
        async with through(url) as (caller, _):
            for token, code in (("", 16), ("wrong", 16), ("right", 0), ("\n", 1)):
                answer = await caller.ask(KeyValueCode.PUT, b"v", key=encoded(b"k"), token=token)
                assert answer.code == code, answer
                assert "right" not in (answer.remark or "")

    with serving_key_values(view, http_token="right") as made:
        on_loop(test(made.url))


def test_too_many_at_once_are_told_to_come_again(
    scene: KeyValueScene, view: MemoryKeyValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyvalues, "MOST_AT_ONCE", 2)
    go_on = threading.Event()

    def trouble(verb: str) -> None:
        go_on.wait(20)

    view.trouble = trouble

    async def test() -> None:
        async with through(scene.url) as (caller, _):
            requests = [caller.request(KeyValueCode.PUT, b"v", key=encoded(b"%d" % n)) for n in range(3)]
            await caller.peer.send(*map(frame, requests))
            busy = await caller.peer.command()
            assert (busy.code, busy.opaque) == (ResponseCode.SYSTEM_BUSY, 3)
            go_on.set()
            done = sorted([(await caller.peer.command()).opaque for _ in range(2)])
            assert done == [1, 2]

    on_loop(test())


def test_tokens_without_end_leave_no_connections(
    scene: KeyValueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    close = KeyValueClient.close
    monkeypatch.setattr(KeyValueClient, "close", lambda client: (closed.append(client), close(client)))

    async def test() -> None:
        async with through(scene.url) as (caller, _):
            for number in range(70):
                assert (await caller.ask(KeyValueCode.GET, key=encoded(b"k"), token=f"t{number}")).code == 22
            assert len(closed) == 70 - keyvalues._MOST_TOKENS
        assert len(closed) == 70

    on_loop(test())


def test_other_requests_of_the_connection_are_the_brokers(scene: KeyValueScene) -> None:
    async def test() -> None:
        async with through(scene.url) as (caller, running):
            theirs = frame(Command(10, 900, ext={"topic": "T"}, body=b"message"))
            ours = frame(caller.request(KeyValueCode.PUT, b"v", key=encoded(b"k")))
            other = frame(Command(30_499, 901))
            for cut in range(1, len(ours), 7):
                await caller.peer.send(theirs, ours[:cut])
                await asyncio.sleep(0)
                await caller.peer.send(ours[cut:], other)
                answers = sorted(
                    [(one.opaque, one.code) for one in [await caller.peer.command() for _ in range(3)]]
                )
                assert answers == [(1, 0), (900, 3), (901, 3)]
            assert set(running.broker.frames) == {theirs, other}

    on_loop(test())


def test_a_request_that_wants_no_answer_gets_none(scene: KeyValueScene) -> None:
    async def test() -> None:
        async with through(scene.url) as (caller, running):
            silent = caller.request(KeyValueCode.PUT, b"v", key=encoded(b"k"))
            silent.flag = 2
            await caller.peer.send(frame(silent))
            assert (
                await caller.ask(KeyValueCode.GET, key=encoded(b"other"))
            ).code == ResponseCode.QUERY_NOT_FOUND
            assert running.broker.frames == []

    on_loop(test())
