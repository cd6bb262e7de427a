"""The remoting client of replay: answers in any order, none in time, too large, cut off; and what it asks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kit.fakebroker import FakeBroker
from tests.kit.peer import peer
from tiered.broker.client import Dial, RemotingClient, Request
from tiered.broker.questions import Broker, parse
from tiered.clock import SystemClock
from tiered.codec.remoting.frame import RESPONSE, Command, FrameReader, decode_command, encode_command
from tiered.codec.remoting.signing import Credentials, signature
from tiered.errors import Corrupt, Invalid, Unavailable
from tiered.text.addresses import split_address


def requests(connection: socket.socket, count: int) -> list[Command]:
    """The first ``count`` requests."""
    frames, found = FrameReader(), []
    while len(found) < count:
        found += [decode_command(frame) for frame in frames.feed(connection.recv(65_536))]
    return found


def answer(asked: Command, **fields: object) -> bytes:
    """A good answer to it."""
    command = Command(0, opaque=asked.opaque, flag=RESPONSE, **fields)  # type: ignore[arg-type]
    return b"".join(bytes(piece) for piece in encode_command(command))


@contextmanager
def client(address: str) -> Iterator[RemotingClient]:
    """A client of short patience."""
    made = RemotingClient(address, SystemClock(), Dial(0.4, section="replay"))
    try:
        yield made
    finally:
        made.close()


def test_answers_in_any_order_find_their_requests() -> None:
    def backwards(connection: socket.socket) -> None:
        asked = requests(connection, 3)
        connection.sendall(b"".join(answer(a, ext={"code": str(a.code)}) for a in reversed(asked)))
        connection.recv(1)

    with peer(backwards) as address, client(address) as c:
        answers = c.ask_all([Request(code, {"yes": True, "n": 5}) for code in (7, 8, 9)])
        assert [a.ext["code"] for a in answers if a is not None] == ["7", "8", "9"]


def test_requests_of_the_broker_and_answers_to_nobody_are_passed_over() -> None:
    def chatty(connection: socket.socket) -> None:
        [asked] = requests(connection, 1)
        other = b"".join(bytes(p) for p in encode_command(Command(40, opaque=asked.opaque)))
        connection.sendall(other + answer(Command(0, opaque=99_999)) + answer(asked, body=b"this"))
        connection.recv(1)

    with peer(chatty) as address, client(address) as c:
        assert bytes(c.ask(28).body) == b"this"


def test_no_answer_in_time_and_the_connection_is_given_up() -> None:
    def first_only(connection: socket.socket) -> None:
        asked = requests(connection, 1)
        connection.sendall(answer(asked[0]))
        while connection.recv(65_536):
            pass

    with peer(first_only) as address, client(address) as c:
        first, second = c.ask_all([Request(1, {}), Request(2, {})])
        assert first is not None
        assert second is None
        with pytest.raises(Unavailable, match=r"in time|does not answer"):
            c.ask_all([Request(3, {})])
            c.ask(4)
            c.ask(5)
        assert c.connections >= 2


def test_a_connection_that_is_cut_is_made_again() -> None:
    with FakeBroker() as broker, client(broker.address) as c:
        assert c.ask(28).code == 0
        broker.cut()
        with pytest.raises(Unavailable) as caught:
            c.ask(28)
        assert "replay.broker_address" in (caught.value.hint or "")
        assert c.ask(28).code == 0
        assert c.connections == 2


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with client(f"127.0.0.1:{port}") as c, pytest.raises(Unavailable, match="does not answer"):
        c.ask(28)


@pytest.mark.parametrize(
    "bytes_back",
    [struct.pack(">i", 1 << 30), b"HTTP/1.1 400 Bad Request\r\n\r\n", struct.pack(">ii", 4, 99), b""],
)
def test_rubbish_is_unavailable_and_takes_no_memory(bytes_back: bytes) -> None:
    def rubbish(connection: socket.socket) -> None:
        requests(connection, 1)
        connection.sendall(bytes_back)

    with peer(rubbish) as address, client(address) as c, pytest.raises(Unavailable):
        c.ask(28)


def test_a_signed_request() -> None:
    keys = Credentials("me", "secret")
    ext = {"topic": "T", "aaa": "1"}
    signed = signature(keys, ext, b"body")
    content = b"me" + b"1" + b"T" + b"body"  # in the order of the names: AccessKey, aaa, topic
    expected = base64.b64encode(hmac.new(b"secret", content, hashlib.sha1).digest()).decode()
    assert signed == {"AccessKey": "me", "Signature": expected}


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:0", "host:70000"])
def test_bad_addresses_are_named(address: str) -> None:
    with pytest.raises(Invalid, match="not an address") as caught:
        split_address(address, key="replay.broker_address")
    assert "replay.broker_address" in str(caught.value)


def test_good_addresses() -> None:
    assert split_address("broker:10911", key="k") == ("broker", 10911)
    assert split_address("[::1]:10911", key="k") == ("::1", 10911)


def test_some_answers_are_waited_for_longer_than_usual() -> None:
    def late(connection: socket.socket) -> None:
        [asked] = requests(connection, 1)
        time.sleep(0.6)
        connection.sendall(answer(asked))

    with peer(late) as address, client(address) as c:
        assert c.ask_all([Request(10, {})]) == [None]
        assert not c.connected
        [given] = c.ask_all([Request(10, {})], timeout_seconds=5.0)
        assert given is not None
        assert c.connected


def test_bodies_that_are_nearly_json() -> None:
    assert parse(b'{"a":{0:1,-1:2}}', Dial()) == {"a": {"0": 1, "-1": 2}}
    assert parse(b'{"a":"x IN {1:2}"}', Dial()) == {"a": "x IN {1:2}"}
    assert parse(b"", Dial()) == {}
    assert parse(b"[1]", Dial()) == {}
    with pytest.raises(Corrupt):
        parse(b"{]", Dial())


def test_what_the_broker_says_of_itself() -> None:
    config = {
        "popConsumerKVServiceEnable": "true",
        "brokerRole": "ASYNC_MASTER",
        "cleanResourceInterval": "2000",
    }
    with FakeBroker(**config) as fake, client(fake.address) as c:
        facts = Broker(c).facts()
        assert facts.store_seconds == 8.0
        assert (facts.name, facts.version, facts.kv, facts.slave, facts.clean_seconds) == (
            "broker-a",
            513,
            True,
            False,
            2.0,
        )
        fake.fill("T", 2, 9, 4)
        assert Broker(c).bounds("T") == {2: (4, 9)}
        assert Broker(c).bounds("none") is None
