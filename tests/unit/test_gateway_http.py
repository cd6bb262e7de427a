"""The HTTP pages over a real socket: what they say, and what they refuse."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kit.httpscene import FakeStore, Scene, serving
from tiered.archive.state.sinklisting import ListedSink
from tiered.archive.state.sinks import SinkState
from tiered.codec.record.message import Message, decode_message
from tiered.errors import Corrupt, Refused, Unavailable
from tiered.http.archive.description import openapi

FIRST = 100


def messages(count: int) -> list[Message]:
    def one(n: int) -> Message:
        body = f"größe {n}".encode() if n % 2 == 0 else b"\xff\x00" + bytes([n % 256])
        properties = {
            "TAGS": "red" if n % 10 == 0 else "blue",
            "KEYS": f"k{n} all",
            "UNIQ_KEY": f"U{n}",
            "n": str(n),
        }
        return Message("orders", 1, FIRST + n, n * 1000, body, properties, store_timestamp=5000 + n)

    return [one(n) for n in range(count)]


@pytest.fixture(scope="module")
def encoded() -> FakeStore:
    made = FakeStore(first=FIRST)
    made.add("orders", 1, messages(1000))
    made.add("orders", 2, [])
    made.add("%RETRY%a/b", 0, messages(1))
    made.add("SYS_X", 0, messages(2))
    return made


@pytest.fixture
def store(encoded: FakeStore) -> FakeStore:
    return replace(encoded, queues_held={queue: list(held) for queue, held in encoded.queues_held.items()})


@pytest.fixture
def scene(store: FakeStore) -> Iterator[Scene]:
    with serving(store) as made:
        yield made


def test_topics_and_queues(scene: Scene) -> None:
    said = scene.json("/v1/topics")
    assert [row["topic"] for row in said["topics"]] == ["%RETRY%a/b", "orders"]
    orders = said["topics"][1]
    assert (orders["queues"], orders["messages"], orders["oldest"], orders["newest"]) == (2, 1000, 1000, 2000)
    assert said["stale"] is False
    assert "SYS_X" in [row["topic"] for row in scene.json("/v1/topics?system=true")["topics"]]
    queues = scene.json("/v1/topics/orders/queues")["queues"]
    assert [(q["queue_id"], q["min_offset"], q["max_offset"]) for q in queues] == [
        (1, 100, 1100),
        (2, 100, 100),
    ]
    assert len(scene.json("/v1/topics/%25RETRY%25a%2Fb/queues")["queues"]) == 1


def test_topics_and_queues_page_by_page(scene: Scene) -> None:
    said = scene.json("/v1/topics?count=1&system=true")
    assert [row["topic"] for row in said["topics"]] == ["%RETRY%a/b"]
    assert said["next"] == "%RETRY%a/b"
    said = scene.json("/v1/topics?count=9&system=true&after=%25RETRY%25a%2Fb")
    assert [row["topic"] for row in said["topics"]] == ["SYS_X", "orders"]
    assert "next" not in said
    said = scene.json("/v1/topics?prefix=ord&count=1")
    assert [row["topic"] for row in said["topics"]] == ["orders"]
    assert "next" not in said
    said = scene.json("/v1/topics/orders/queues?count=1")
    assert ([q["queue_id"] for q in said["queues"]], said["next"]) == ([1], 1)
    said = scene.json("/v1/topics/orders/queues?count=1&after=1")
    assert ([q["queue_id"] for q in said["queues"]], said.get("next")) == ([2], None)
    assert scene.json("/v1/topics/orders/queues?after=2")["queues"] == [], "the topic is there"
    assert scene.json("/v1/topics?prefix=none")["topics"] == []


def test_sinks(scene: Scene, store: FakeStore) -> None:
    assert scene.json("/v1/sinks") == {"stale": False, "sinks": []}
    state = SinkState(b"i" * 16, "copy", 3, 1, None, None, 0, 17)
    store.sinks_known = [ListedSink(state, 2, 5), ListedSink(replace(state, name="größe", physical=99), 0, 0)]
    first, second = scene.json("/v1/sinks")["sinks"]
    assert first == {
        "sink": "copy", "revision": 3, "lineage": 1, "physical_offset": None, "commit": 17, "queues": 2, "left": 5,
    }  # fmt: skip
    assert (second["sink"], second["physical_offset"]) == ("größe", 99)


def test_messages_are_whole_and_in_order(scene: Scene, store: FakeStore) -> None:
    said = scene.json("/v1/topics/orders/queues/1/messages?offset=250&count=600")
    assert [m["queue_offset"] for m in said["messages"]] == list(range(250, 850))
    assert (said["next_offset"], said["end"], said["min_offset"], said["max_offset"]) == (
        850,
        False,
        100,
        1100,
    )
    assert store.reads == 3  # in pages, each sent before the next is read
    for shown in said["messages"][:2]:
        held = decode_message(store.queues_held[next(iter(store.queues_held))][shown["queue_offset"] - FIRST])
        assert base64.b64decode(shown["body_base64"]) == held.body
        assert shown["properties"] == dict(held.properties)
        assert (shown["tags"], shown["keys"], shown["unique_key"]) == (
            held.tags,
            list(held.keys),
            held.unique_key,
        )
        assert (shown["msg_id"], shown["store_timestamp"]) == (held.message_id, held.store_timestamp)
    assert said["messages"][0]["body"] == "größe 150"
    assert "body" not in said["messages"][1]


def test_where_a_read_begins_and_ends(scene: Scene) -> None:
    path = "/v1/topics/orders/queues/1/messages"
    assert scene.json(path)["messages"][0]["queue_offset"] == FIRST
    assert len(scene.json(path)["messages"]) == 32
    assert scene.json(f"{path}?time=5500&count=1")["messages"][0]["queue_offset"] == FIRST + 500
    last = scene.json(f"{path}?offset=1099&count=10")
    assert (len(last["messages"]), last["next_offset"], last["end"]) == (1, 1100, True)
    at_end = scene.json(f"{path}?offset=1100")
    assert (at_end["messages"], at_end["next_offset"], at_end["end"]) == ([], 1100, True)
    empty = scene.json("/v1/topics/orders/queues/2/messages")
    assert (empty["messages"], empty["end"]) == ([], True)


def test_filters(scene: Scene) -> None:
    path = "/v1/topics/orders/queues/1/messages?count=1000&"
    red = scene.json(f"{path}tag=red%20%7C%7C%20green")["messages"]
    assert [m["queue_offset"] for m in red] == list(range(FIRST, FIRST + 1000, 10))
    some = scene.json(f"{path}sql=TAGS+%3D+%27red%27+AND+n+BETWEEN+15+AND+35")["messages"]
    assert [m["queue_offset"] - FIRST for m in some] == [20, 30]
    assert len(scene.json(f"{path}tag=*")["messages"]) == 1000


def test_a_search_that_finds_little_goes_page_by_page(scene: Scene, store: FakeStore) -> None:
    store.examined_at_once = 100
    said = scene.json("/v1/topics/orders/queues/1/messages?tag=none")
    assert (said["messages"], said["next_offset"], said["end"]) == ([], 1100, True)
    assert store.reads == 10


def test_query_by_key(scene: Scene) -> None:
    found = scene.json("/v1/query?topic=orders&key=k7")["messages"]
    assert [m["queue_offset"] for m in found] == [FIRST + 7]
    assert scene.json("/v1/query?topic=orders&key=U7&unique=true")["messages"] == found
    assert len(scene.json("/v1/query?topic=orders&key=all&count=5")["messages"]) == 5
    assert len(scene.json("/v1/query?topic=orders&key=all&begin=5010&end=5012")["messages"]) == 3
    assert scene.json("/v1/query?topic=orders&key=unknown")["messages"] == []


@pytest.mark.parametrize(
    ("path", "status", "parameter", "fix"),
    [
        ("/v1/topics/orders/queues/1/messages?offset=-1", 400, "offset", "give one of these"),
        ("/v1/topics/orders/queues/1/messages?offset=9223372036854775808", 400, "offset", ""),
        ("/v1/topics/orders/queues/1/messages?offset=%D9%A1", 400, "offset", ""),
        ("/v1/topics/orders/queues/1/messages?offset=", 400, "offset", ""),
        ("/v1/topics/orders/queues/1/messages?offset=5", 404, "offset", "begin at offset=100"),
        ("/v1/topics/orders/queues/1/messages?offset=5000", 404, "offset", "offset=1100"),
        ("/v1/topics/orders/queues/1/messages?count=0", 400, "count", ""),
        ("/v1/topics?count=0", 400, "count", ""),
        ("/v1/topics?prefix=", 400, "prefix", ""),
        ("/v1/topics/orders/queues?after=2147483648", 400, "after", ""),
        ("/v1/topics/none/queues?after=1", 404, "topic", "/v1/topics lists them"),
        ("/v1/topics/orders/queues/1/messages?count=100001", 400, "count", ""),
        ("/v1/topics/orders/queues/1/messages?cuont=1", 400, "cuont", "remove or rename"),
        ("/v1/topics/orders/queues/1/messages?tag=a&sql=b", 400, "tag", "in the sql expression"),
        ("/v1/topics/orders/queues/1/messages?tag=%7C%7C", 400, "tag", "a || b"),
        ("/v1/topics/orders/queues/1/messages?sql=a+%3E+%27x%27", 400, "sql", "strings have = and <>"),
        ("/v1/topics/orders/queues/1/messages?sql=a=1+b", 400, "sql", "AND or OR"),
        ("/v1/topics/orders/queues/1/messages?offset=100&time=1", 400, "time", "remove one"),
        ("/v1/topics/orders/queues/1/messages?count=1&count=2", 400, "count", "once"),
        ("/v1/topics/orders/queues/9/messages", 404, "queue", "/v1/topics"),
        ("/v1/topics/orders/queues/x/messages", 400, "queue", ""),
        ("/v1/topics//queues/1/messages", 400, "topic", ""),
        ("/v1/topics/nothing/queues", 404, "topic", "/v1/topics"),
        ("/v1/topics?system=yes", 400, "system", ""),
        ("/v1/query?topic=orders", 400, "key", "add key="),
        ("/v1/query?topic=nothing&key=a", 404, "topic", ""),
        ("/v1/query?topic=orders&key=a&begin=2&end=1", 400, "end", "exchange"),
        ("/v2/topics", 404, None, "/openapi.json"),
        ("/v1/topics/%zz/queues", 400, None, "%25"),
        ("/v1/topics/%ff/queues", 400, None, "%25"),
    ],
)
def test_refusals_name_parameter_value_and_fix(
    scene: Scene, path: str, status: int, parameter: str | None, fix: str
) -> None:
    error = scene.json(path, status=status)["error"]
    assert error["status"] == status
    assert error.get("parameter") == parameter
    assert error["message"]
    assert fix in error["fix"]


def test_only_reading(scene: Scene) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        status, headers, body = scene.get("/v1/topics", method=method)
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        assert json.loads(body)["error"]["status"] == 405
    status, headers, body = scene.get("/v1/topics", method="HEAD")
    assert (status, body) == (200, b"")
    assert "content-security-policy" not in headers


def test_a_token_is_asked_for(store: FakeStore) -> None:
    with serving(store, token="s3cret") as scene:
        assert scene.json("/v1/topics", status=401)["error"]["message"] == "a token is needed"
        for wrong in ("Bearer s3cre", "Bearer", "Basic s3cret", "Bearer s3cret x", "Bearer \xff"):
            said = scene.json("/v1/topics", status=401, headers={"Authorization": wrong})
            assert "s3cret" not in json.dumps(said)
        assert scene.get("/v1/topics")[1]["www-authenticate"] == "Bearer"
        assert scene.json("/v1/topics", headers={"Authorization": "bearer s3cret"})["topics"]
        assert scene.get("/")[0] == 200  # holds no data
        assert scene.json("/openapi.json")["openapi"] == "3.1.0"


def test_foreign_names_are_not_served_on_loopback(scene: Scene, store: FakeStore) -> None:
    for host in ("localhost", "localhost:80", "127.0.0.1", "127.9.9.9:1", "[::1]:8"):
        assert scene.json("/v1/topics", headers={"Host": host})["topics"]
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", ""):
        assert scene.json("/v1/topics", status=421, headers={"Host": host})["error"]["fix"]
    with serving(store, token="t") as guarded:
        headers = {"Host": "archive.example", "Authorization": "Bearer t"}
        assert guarded.json("/v1/topics", headers=headers)["topics"]


def test_an_open_address_without_token_is_warned_about(
    store: FakeStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), serving(store, listen="0.0.0.0:0") as scene:
        assert "gateway.http_token" in caplog.text
        assert Scene("127.0.0.1", scene.port, scene.metrics).json("/v1/topics", headers={"Host": "any"})


def test_errors_of_the_store_have_their_status(scene: Scene, store: FakeStore) -> None:
    def away(verb: str) -> None:
        raise Unavailable("the object store does not answer", key="abc", hint="look at the store")

    store.trouble = away
    path = "/v1/topics/orders/queues/1/messages?offset=100"
    status, headers, body = scene.get(path)
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(body)["error"] == {
        "status": 503, "message": "the object store does not answer", "fix": "ask again later",
    }  # fmt: skip

    def refused(verb: str) -> None:
        raise Refused("the archive is encrypted, and no key is named", url="s3://bucket")

    store.trouble = refused
    assert "url" not in scene.json(path, status=503)["error"]

    def damaged(verb: str) -> None:
        raise Corrupt("a block is damaged", key="x", position=7)

    store.trouble = damaged
    assert scene.json(path, status=500)["error"]["position"] == 7

    def broken(verb: str) -> None:
        raise KeyError(verb)

    store.trouble = broken
    assert scene.json(path, status=500)["error"]["message"] == "a fault of this server"

    def follow_fails(verb: str) -> None:
        if verb == "follow":
            away(verb)

    store.trouble = follow_fails
    assert scene.json("/v1/topics")["stale"] is True


def test_a_failure_in_the_middle_ends_the_json_and_says_so(scene: Scene, store: FakeStore) -> None:
    def later(verb: str) -> None:
        if store.reads > 2:
            raise Unavailable("gone", hint="again")

    store.trouble = later
    said = scene.json("/v1/topics/orders/queues/1/messages?offset=100&count=1000")
    assert len(said["messages"]) == 512
    assert (said["next_offset"], said["end"], said["error"]["status"]) == (612, False, 503)
    store.trouble = lambda verb: None
    said = scene.json("/v1/topics/orders/queues/1/messages?offset=612&count=1000")
    assert (len(said["messages"]), said["end"]) == (488, True)


def test_a_damaged_record_is_never_shown(scene: Scene, store: FakeStore) -> None:
    held = next(iter(store.queues_held.values()))
    held[300] = held[300][:90] + b"\x55" + held[300][91:]
    said = scene.json("/v1/topics/orders/queues/1/messages?count=1000")
    assert len(said["messages"]) == 256
    assert (said["next_offset"], said["error"]["status"]) == (356, 500)
    assert scene.json("/v1/topics/orders/queues/1/messages?offset=400", status=500)["error"]["status"] == 500


def test_the_page_for_people(scene: Scene) -> None:
    status, headers, body = scene.get("/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert b"<title>Archived messages</title>" in body
    assert headers["x-content-type-options"] == "nosniff"


def test_the_description_is_valid_and_fits_what_is_served(scene: Scene) -> None:
    from jsonschema import Draft202012Validator
    from openapi_spec_validator import validate

    described = openapi()
    validate(described)  # type: ignore[arg-type]
    assert scene.json("/openapi.json") == described
    asked = {
        "/v1/topics": "/v1/topics",
        "/v1/topics/{topic}/queues": "/v1/topics/orders/queues",
        "/v1/topics/{topic}/queues/{queue}/messages": "/v1/topics/orders/queues/1/messages",
        "/v1/query": "/v1/query?topic=orders&key=k1",
    }
    for template, path in asked.items():
        operation = described["paths"][template]["get"]  # type: ignore[index]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator({**schema, "components": described["components"]}).validate(scene.json(path))
    error = {"$ref": "#/components/schemas/Error", "components": described["components"]}
    Draft202012Validator(error).validate(scene.json("/v1/nothing", status=404))
