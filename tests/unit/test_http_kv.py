"""The key-value pages over a real socket: values, conditions, pages, and failures that say what became of a write."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.httpscene import KeyValueScene, serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tiered.clock import ManualClock
from tiered.errors import BadRequest, Corrupt, Invalid, NotFound, Refused, Unavailable
from tiered.http.kv.description import openapi
from tiered.http.kv.keys import token
from tiered.keyvalue import PAGE_BYTES, Freshness, ReadRule
from tiered.settings import KIB


@pytest.fixture
def view() -> MemoryKeyValues:
    made = MemoryKeyValues(ManualClock(1_700_000_000_000))
    made.create("positions")
    return made


@pytest.fixture
def scene(view: MemoryKeyValues) -> Iterator[KeyValueScene]:
    with serving_key_values(view, max_value_bytes=4 * KIB) as made:
        yield made


def problem(answer: tuple[int, dict[str, str], bytes], status: int) -> dict[str, Any]:
    """The members of a problem that must have this status."""
    found, headers, body = answer
    assert (found, headers["content-type"]) == (status, "application/problem+json"), (found, body)
    made: dict[str, Any] = json.loads(body)
    assert made["status"] == status
    assert made["type"].startswith("urn:rocketmq-tiered:problem:")
    assert made["title"]
    assert made["detail"]
    assert made["fix"]
    return made


def write(answer: tuple[int, dict[str, str], bytes]) -> int:
    """The version of a write that must have taken effect."""
    status, headers, body = answer
    assert (status, headers["content-type"]) == (200, "application/json; charset=utf-8"), body
    said = json.loads(body)
    assert said == {"applied": True, "version": said["version"]}
    return int(said["version"])


PLACE = "/v1/kv/positions/a"


def test_what_was_put_is_what_is_read(scene: KeyValueScene) -> None:
    value = bytes(range(256))
    status, headers, body = scene.send("PUT", PLACE, value)
    assert (status, json.loads(body)) == (200, {"applied": True, "version": 0})
    assert headers["etag"] == '"0"'
    assert write(scene.send("PUT", PLACE + "?ttl_ms=5000", value * 2)) == 1
    status, headers, body = scene.get(PLACE)
    assert (status, body) == (200, value * 2)
    assert headers["content-type"] == "application/octet-stream"
    assert headers["etag"] == '"1"'
    assert headers["kv-stored-ms"] == "1700000000000"
    assert headers["kv-expires-ms"] == "1700000005000"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    head = scene.get(PLACE, method="HEAD")
    assert (head[0], head[1]["etag"], head[1]["content-length"], head[2]) == (200, '"1"', "512", b"")


def test_an_empty_value_is_a_value(scene: KeyValueScene) -> None:
    write(scene.send("PUT", PLACE))
    status, headers, body = scene.get(PLACE)
    assert (status, body, headers["content-length"]) == (200, b"", "0")
    assert "kv-expires-ms" not in headers


def test_what_ended_or_was_deleted_is_not_there(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    assert problem(scene.get(PLACE), 404)["type"].endswith(":no-entry")
    write(scene.send("PUT", PLACE + "?ttl_ms=1", b"x"))
    assert isinstance(view.clock, ManualClock)
    view.clock.advance(0.001)
    assert problem(scene.get(PLACE), 404)["type"].endswith(":no-entry")
    write(scene.send("PUT", PLACE, b"x"))
    status, headers, body = scene.send("DELETE", PLACE)
    assert (status, json.loads(body)) == (200, {"applied": True, "version": 2})
    assert "etag" not in headers  # it would be the version of nothing
    assert problem(scene.get(PLACE), 404)["type"].endswith(":no-entry")
    write(scene.send("DELETE", PLACE))


def test_a_lost_condition_is_412_and_says_what_is_there(scene: KeyValueScene) -> None:
    absent, first = {"If-None-Match": "*"}, {"If-Match": '"0"'}
    status, headers, body = scene.send("PUT", PLACE, b"v", first)
    lost = problem((status, headers, body), 412)
    assert "etag" not in headers
    assert {name: lost[name] for name in ("current", "applied", "version", "outcome")} == {
        "current": None, "applied": False, "version": 0, "outcome": "not done",
    }  # fmt: skip
    assert write(scene.send("PUT", PLACE, b"v", absent)) == 1
    status, headers, body = scene.send("PUT", PLACE, b"w", absent)
    lost = problem((status, headers, body), 412)
    assert (lost["current"], headers["etag"], lost["type"].rpartition(":")[2]) == (
        1, '"1"', "condition-failed",
    )  # fmt: skip
    assert scene.get(PLACE)[2] == b"v"
    assert problem(scene.send("DELETE", PLACE, None, first), 412)["current"] == 1
    assert write(scene.send("PUT", PLACE, b"w", {"If-Match": '"1"'})) == 4
    assert write(scene.send("DELETE", PLACE, None, {"If-Match": '"4"'})) == 5


def test_a_condition_on_the_value(scene: KeyValueScene) -> None:
    write(scene.send("PUT", PLACE, b"old"))
    right, wrong = (hashlib.sha256(value).hexdigest() for value in (b"old", b"new"))
    assert problem(scene.send("PUT", f"{PLACE}?if_value_sha256={wrong}", b"x"), 412)["current"] == 0
    both = f"{PLACE}?if_value_sha256={right.upper()}"
    assert problem(scene.send("PUT", both, b"x", {"If-Match": '"7"'}), 412)["current"] == 0
    assert write(scene.send("PUT", both, b"new", {"If-Match": '"0"'})) == 3
    assert problem(scene.send("DELETE", both), 412)["current"] == 3
    write(scene.send("DELETE", f"{PLACE}?if_value_sha256={wrong}"))


@pytest.mark.parametrize(
    "headers",
    [
        [("If-Match", "0")],
        [("If-Match", '"0')],
        [("If-Match", '"0" "0"')],
        [("If-Match", 'W/"0"')],
        [("If-Match", 'w/"0"')],
        [("If-Match", '"0", "1"')],
        [("If-Match", '"0"'), ("If-Match", '"1"')],
        [("If-Match", '"0"'), ("If-Match", '"0"')],
        [("If-Match", "*")],
        [("If-Match", "")],
        [("If-Match", ",,")],
        [("If-Match", '"00"')],
        [("If-Match", '"-1"')],
        [("If-Match", '"9223372036854775808"')],
        [("If-Match", '"abc"')],
        [("If-Match", '"\xb2"')],
        [("If-None-Match", '"0"')],
        [("If-None-Match", "*, *")],
        [("If-None-Match", "*"), ("If-None-Match", "*")],
        [("If-None-Match", "")],
        [("If-None-Match", "*"), ("If-Match", '"0"')],
        [("If-Unmodified-Since", "Sat, 29 Oct 1994 19:43:31 GMT")],
    ],
    ids=repr,
)
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_condition_that_is_not_understood_is_refused_and_not_left_out(
    scene: KeyValueScene, view: MemoryKeyValues, method: str, headers: list[tuple[str, str]]
) -> None:
    scene.send("PUT", PLACE, b"before")
    fields = "".join(f"{name}: {value}\r\n" for name, value in headers)
    sent = f"{method} {PLACE} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: 0\r\n\r\n"
    received = scene.raw(sent.encode("latin-1"))
    assert received.startswith(b"HTTP/1.1 400 "), received
    said = json.loads(received.partition(b"\r\n\r\n")[2])
    assert said["outcome"] == "not done"
    assert said["header"] in ("If-Match", "If-None-Match", "If-Unmodified-Since")
    assert (view.writes, scene.get(PLACE)[2]) == (1, b"before")


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ('"0"', 304),
        ('W/"0"', 304),
        ("*", 304),
        (' "7" ,, W/"0"', 304),
        ('"7", "8"', 200),
        ('"x,y"', 200),
        ("0", 400),
        ('"0', 400),
        ('"0" "1"', 400),
        ("*, *", 400),
    ],
)
def test_a_reader_that_has_it_is_told_so(scene: KeyValueScene, given: str, status: int) -> None:
    scene.send("PUT", PLACE, b"v")
    found, headers, body = scene.get(PLACE, headers={"If-None-Match": given})
    assert found == status
    if status != 400:
        assert (headers["etag"], body) == ('"0"', b"" if status == 304 else b"v")
    assert problem(scene.get("/v1/kv/positions/none", headers={"If-None-Match": given}), 404)
    assert problem(scene.get(PLACE, headers={"If-Match": '"0"'}), 400)["header"] == "If-Match"


def test_keys_are_bytes(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    keys = [
        b"a/b",
        b"\0",
        b"\n",
        b"%2F",
        b" +",
        "ü/€".encode(),
        b".",
        b"..",
        b"\xff\xfe",
        b"?#&",
        b"x" * 4096,
    ]
    for number, key in enumerate(keys):
        text = "".join(f"%{byte:02x}" for byte in key) if len(key) < 4096 else key.decode()
        if key != b"\xff\xfe":
            write(scene.send("PUT", f"/v1/kv/positions/{text}", b"%d" % number))
        else:
            assert problem(scene.send("PUT", f"/v1/kv/positions/{text}", b"x"), 400)
            write(scene.send("PUT", f"/v1/kv/positions/{token(key)}?key_encoding=base64url", b"%d" % number))
    assert sorted(view.held["positions"].entries) == sorted(keys)
    for number, key in enumerate(keys):
        for encoded in (token(key), urlsafe_b64encode(key).decode()):
            path = f"/v1/kv/positions/{encoded}?key_encoding=base64url"
            assert scene.get(path)[2] == b"%d" % number
    said = scene.json("/v1/kv/positions?count=1000")["entries"]
    assert [row.get("key") or b64decode(row["key_base64url"] + "==", b"-_") for row in said] == [
        key if key == b"\xff\xfe" else key.decode() for key in sorted(keys)
    ]


@pytest.mark.parametrize(
    "text", ["!!", "YQ=", "YQ===", "YR", "Y", "=", "a+b/", "ab/c", "%20YQ", "YQ%0A", "YQ%00", "%C3%BC", ""]
)
def test_what_is_no_base64url_is_refused(scene: KeyValueScene, text: str) -> None:
    path = f"/v1/kv/positions/{text.replace('/', '%2F')}?key_encoding=base64url"
    assert problem(scene.get(path), 400)["parameter"] == "key"
    assert problem(scene.send("PUT", path, b"x"), 400)["outcome"] == "not done"
    if text:
        assert problem(scene.get(f"/v1/kv/positions?after={text}"), 400)["parameter"] == "after"


@pytest.mark.parametrize(
    "name", ["n\u00e4me", "a%2Fb", "..", "a%20b", "a%00", "x" * 101, "", "%F0%9F%92%A5", "KV%5C", "a%0A"]
)
def test_what_is_no_namespace_is_refused(scene: KeyValueScene, view: MemoryKeyValues, name: str) -> None:
    path = f"/v1/kv/{name.encode().decode('latin-1')}"
    for method, place in (("PUT", path), ("GET", path), ("GET", path + "/k"), ("PUT", path + "/k")):
        sent = f"{method} {place} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        assert scene.raw(sent.encode("latin-1")).startswith(b"HTTP/1.1 400 ")
    assert list(view.held) == ["positions"]


def test_namespaces_are_made_and_listed(scene: KeyValueScene) -> None:
    assert problem(scene.get("/v1/kv/other/a"), 404)["type"].endswith(":not-found")
    assert problem(scene.send("PUT", "/v1/kv/other/a", b""), 404)["outcome"] == "not done"
    for status, created in ((201, True), (200, False)):
        answer = scene.send("PUT", "/v1/kv/other")
        assert (answer[0], json.loads(answer[2])) == (status, {"namespace": "other", "created": created})
    assert scene.json("/v1/kv") == {"namespaces": ["other", "positions"]}


def test_a_page_goes_on_where_the_one_before_ended(scene: KeyValueScene) -> None:
    for key in ("b2", "b1", "a", "b", "c", "b\u00ff"):
        scene.send("PUT", f"/v1/kv/positions/{key.encode().hex('%').join(('%', ''))}", key.encode())
    found: list[tuple[str, bytes]] = []
    after = ""
    while True:
        said = scene.json(f"/v1/kv/positions?prefix=b&count=2{after}")
        assert (said["namespace"], said["applied"]) == ("positions", 6)
        found += [(row["key"], b64decode(row["value_base64"])) for row in said["entries"]]
        if said["after"] is None:
            break
        after = f"&after={said['after']}"
    assert found == [(key, key.encode()) for key in ("b", "b1", "b2", "b\u00ff")]
    [row] = scene.json("/v1/kv/positions?prefix=c&keys_only=true")["entries"]
    assert row == {"key": "c", "version": 4, "stored_ms": 1_700_000_000_000, "expires_ms": None}
    binary = (
        f"/v1/kv/positions?key_encoding=base64url&keys_only=true&prefix={token(b'b' + chr(255).encode())}"
    )
    assert [row["key"] for row in scene.json(binary)["entries"]] == [token("b\u00ff".encode())]


def test_many_keys_at_once(scene: KeyValueScene) -> None:
    scene.send("PUT", PLACE, b"1")
    scene.send("PUT", "/v1/kv/positions/%ff".replace("%ff", token(b"\xff") + "?key_encoding=base64url"), b"2")

    def many(body: bytes, query: str = "") -> tuple[int, dict[str, str], bytes]:
        return scene.send("POST", "/v1/kv/positions" + query, body)

    rows = json.loads(many(b'{"keys":["none","a","a"]}')[2])["entries"]
    assert (rows[0], rows[1]["value_base64"], rows[1]) == (None, "MQ==", rows[2])
    [row] = json.loads(many(b'{"keys":["_w"]}', "?key_encoding=base64url")[2])["entries"]
    assert (row["key"], row["version"]) == ("_w", 1)
    bad = [
        b"", b"{}", b"[]", b'{"keys":[]}', b'{"keys":"a"}', b'{"keys":[1]}', b'{"keys":["a"],"more":1}', b"\xff",
        b'{"keys":[""]}', b'{"keys":["\\ud800"]}', b"[" * 100_000, b'{"keys":[' + b'"a",' * 1000 + b'"a"]}',
        b'{"keys":["' + b"a" * 4097 + b'"]}', b'{"keys":[' + b"9" * 5000 + b"]}",
    ]  # fmt: skip
    for body in bad:
        assert problem(many(body), 400), body[:30]
    assert problem(many(b'{"keys":["a+"]}', "?key_encoding=base64url"), 400)["parameter"] == "keys"


def test_reads_ask_for_as_much_freshness_as_they_want(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    scene.send("PUT", PLACE, b"1")
    scene.get(PLACE)
    scene.get(PLACE + "?latest=true")
    scene.get("/v1/kv/positions?max_stale_ms=0")
    scene.send("POST", "/v1/kv/positions?latest=true&max_stale_ms=7", b'{"keys":["a"]}')
    assert view.rules == [
        ReadRule(), ReadRule(Freshness.LATEST), ReadRule(max_stale_ms=0), ReadRule(Freshness.LATEST, 7)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "parameter"),
    [
        ("GET", PLACE + "?latest=yes", "latest"),
        ("GET", PLACE + "?max_stale_ms=-1", "max_stale_ms"),
        ("GET", PLACE + "?ttl_ms=1", "ttl_ms"),
        ("GET", PLACE + "?key_encoding=hex", "key_encoding"),
        ("GET", "/v1/kv/positions?count=1001", "count"),
        ("GET", "/v1/kv/positions?count=0", "count"),
        ("GET", "/v1/kv/positions?keys_only=1", "keys_only"),
        ("GET", "/v1/kv/positions/", "key"),
        ("PUT", PLACE + "?ttl_ms=0", "ttl_ms"),
        ("PUT", PLACE + "?ttl_ms=3153600000001", "ttl_ms"),
        ("PUT", PLACE + "?ttl_ms=1e3", "ttl_ms"),
        ("PUT", PLACE + "?if_value_sha256=abc", "if_value_sha256"),
        ("PUT", PLACE + "?if_value_sha256=" + "g" * 64, "if_value_sha256"),
        ("PUT", PLACE + "?if_value_sha256=" + "0" * 64 + "%0A", "if_value_sha256"),
        ("PUT", PLACE + "?latest=true", "latest"),
        ("PUT", PLACE + "?ttl_ms=1&ttl_ms=2", "ttl_ms"),
        ("DELETE", PLACE + "?ttl_ms=1", "ttl_ms"),
    ],
)
def test_parameters_are_checked(
    scene: KeyValueScene, view: MemoryKeyValues, method: str, path: str, parameter: str
) -> None:
    said = problem(scene.send(method, path), 400)
    assert (said["parameter"], said["outcome"], view.writes) == (parameter, "not done", 0)


def test_a_key_that_is_too_long_is_refused(scene: KeyValueScene) -> None:
    assert problem(scene.send("PUT", "/v1/kv/positions/" + "x" * 4097, b""), 400)["outcome"] == "not done"
    absent_and_value = f"{PLACE}?if_value_sha256={'0' * 64}"
    assert problem(scene.send("PUT", absent_and_value, b"", {"If-None-Match": "*"}), 400)


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/kv", "GET, HEAD"),
        ("/v1/kv/positions", "GET, HEAD, POST, PUT"),
        (PLACE, "DELETE, GET, HEAD, PUT"),
        ("/openapi.json", "GET, HEAD"),
    ],
)
def test_other_methods_are_refused_and_a_foreign_page_is_never_told_yes(
    scene: KeyValueScene, path: str, allow: str
) -> None:
    """PUT and DELETE from another origin ask by OPTIONS first."""
    for method in ("OPTIONS", "PATCH", "TRACE"):
        asked = {"Origin": "http://elsewhere.example", "Access-Control-Request-Method": "PUT"}
        status, headers, body = scene.send(method, path, None, asked)
        problem((status, headers, body), 405)
        assert headers["allow"] == allow
        assert not [name for name in headers if name.startswith("access-control")]


def test_a_token_is_asked_for_before_a_body_is_read(view: MemoryKeyValues) -> None:
    with serving_key_values(view, http_token="s3cret") as scene:
        status, headers, body = scene.get(PLACE)
        assert problem((status, headers, body), 401)["fix"].endswith("kv.http_token")
        assert headers["www-authenticate"] == "Bearer"
        begun = b"PUT /v1/kv/positions/a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n"
        assert scene.raw(begun + b"\r\n").startswith(b"HTTP/1.1 401 ")
        right = begun + b"Authorization: Bearer s3cret\r\n\r\nhello"
        assert scene.raw(right).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
        assert scene.get("/openapi.json")[0] == 200
        assert view.writes == 1


def test_foreign_names_are_not_served_on_loopback(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    assert problem(scene.send("PUT", PLACE, b"x", {"Host": "evil.example"}), 421)["fix"].endswith(
        "kv.http_token"
    )
    assert view.writes == 0
    write(scene.send("PUT", PLACE, b"x", {"Host": "127.0.0.1:1"}))


def test_an_open_address_without_token_is_warned_about(
    view: MemoryKeyValues, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), serving_key_values(view, http_listen="0.0.0.0:0"):
        assert "take writes, from anyone who reaches 0.0.0.0" in caplog.text
        assert "kv.http_token" in caplog.text


def test_a_taken_address_names_the_setting(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    with (
        pytest.raises(Invalid, match=r"kv\.http_listen"),
        serving_key_values(view, http_listen=f"127.0.0.1:{scene.port}"),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "status", "of_write", "of_read"),
    [
        (Unavailable("away"), 503, "unknown", None),
        (Unavailable("late", outcome="unknown"), 503, "unknown", "unknown"),
        (Unavailable("busy", outcome="not done"), 503, "not done", "not done"),
        (BadRequest("bad"), 400, "not done", "not done"),
        (Refused("no"), 403, "not done", "not done"),
        (NotFound("none"), 404, "not done", "not done"),
        (Corrupt("damaged", hint="mend it"), 500, "unknown", None),
        (RuntimeError("a bug"), 500, "unknown", "unknown"),
    ],
    ids=repr,
)
def test_a_failure_says_what_became_of_the_write(
    scene: KeyValueScene,
    view: MemoryKeyValues,
    error: Exception,
    status: int,
    of_write: str,
    of_read: str | None,
) -> None:
    def trouble(verb: str) -> None:
        raise type(error)(*error.args, **vars(error).get("fields", {}))

    view.trouble = trouble
    for method in ("PUT", "DELETE"):
        answer = scene.send(method, PLACE)
        assert problem(answer, status)["outcome"] == of_write
        assert ("retry-after" in answer[1]) is (status == 503 and of_write == "not done")
    assert problem(scene.send("PUT", "/v1/kv/new"), status)["outcome"] == of_write
    assert problem(scene.get(PLACE), status).get("outcome") == of_read
    assert problem(scene.get("/v1/kv/positions"), status).get("outcome") == of_read


def test_a_write_that_takes_too_long_is_unknown_and_one_without_a_turn_is_not_done(
    view: MemoryKeyValues,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang(verb: str) -> None:
        if verb == "put":
            begun.set()
            assert go_on.wait(20)

    view.trouble = hang
    with serving_key_values(view, timeout_ms=100, connections=1) as scene:
        found: dict[str, tuple[int, dict[str, str], bytes]] = {}

        def put(key: str) -> None:
            found[key] = scene.send("PUT", f"/v1/kv/positions/{key}", b"v")

        first = threading.Thread(target=put, args=("first",))
        first.start()
        assert begun.wait(10)
        put("second")
        first.join(10)
        assert (
            scene.send("POST", "/v1/kv/positions", b'{"keys":["a"]}')[0] == 200
        )  # reads have turns of their own
        assert problem(found["first"], 504)["outcome"] == "unknown"
        assert problem(found["second"], 503)["outcome"] == "not done"
        go_on.set()
    assert list(view.held["positions"].entries) == [b"first"]


def test_a_read_of_the_latest_waits_with_the_writes(view: MemoryKeyValues) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def hang(verb: str) -> None:
        if verb == "get":
            begun.set()
            assert go_on.wait(20)

    view.trouble = hang
    with serving_key_values(view, connections=1, timeout_ms=20_000) as scene:
        reader = threading.Thread(target=scene.get, args=(PLACE + "?latest=true",))
        reader.start()
        assert begun.wait(10)
        assert scene.json("/v1/kv/positions")["entries"] == []
        assert view.writes == 0
        go_on.set()
        reader.join(10)


def test_the_description_is_valid_and_fits_what_is_served(scene: KeyValueScene) -> None:
    from jsonschema import Draft202012Validator
    from openapi_spec_validator import validate

    described: dict[str, Any] = openapi(4 * KIB)
    validate(described)  # type: ignore[arg-type]
    assert scene.json("/openapi.json") == described

    def fits(answer: tuple[int, dict[str, str], bytes], template: str, method: str, status: str) -> None:
        responses = described["paths"][template][method]["responses"]
        found = responses.get(status, responses["default"])["content"]
        schema = found[answer[1]["content-type"].partition(";")[0]]["schema"]
        assert answer[0] == int(status), answer
        Draft202012Validator({**schema, "components": described["components"]}).validate(
            json.loads(answer[2])
        )

    one, all_of = "/v1/kv/{namespace}/{key}", "/v1/kv/{namespace}"
    fits(scene.send("PUT", PLACE, b"1"), one, "put", "200")
    fits(scene.send("PUT", PLACE, b"1", {"If-None-Match": "*"}), one, "put", "412")
    fits(scene.get("/v1/kv/positions"), all_of, "get", "200")
    fits(scene.send("POST", "/v1/kv/positions", b'{"keys":["a","b"]}'), all_of, "post", "200")
    fits(scene.send("PUT", "/v1/kv/new"), all_of, "put", "201")
    fits(scene.send("DELETE", PLACE), one, "delete", "200")
    fits(scene.get("/v1/kv"), "/v1/kv", "get", "200")
    fits(scene.get(PLACE), one, "get", "404")
    fits(scene.get("/v1/nothing"), one, "get", "404")


def test_a_page_of_large_values_ends_early(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    view.max_value_bytes = PAGE_BYTES
    for key in (b"a", b"b", b"c"):
        view.put("positions", key, b"x" * (PAGE_BYTES // 2))
    said = scene.json("/v1/kv/positions?keys_only=true")
    assert ([row["key"] for row in said["entries"]], said["after"]) == (["a", "b"], token(b"b"))
    assert problem(scene.send("POST", "/v1/kv/positions", b'{"keys":["a","b","c"]}'), 400)
