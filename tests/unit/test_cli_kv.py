"""``tiered kv``: entries put, read, compared and listed over a real socket; what people and programs are told."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import Done, tiered, tiered_process
from tests.kit.httpscene import KeyValueScene, serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tiered.cli import kvverbs
from tiered.clock import ManualClock
from tiered.errors import Unavailable
from tiered.keyvalue import Freshness, ReadRule


@pytest.fixture
def view() -> MemoryKeyValues:
    made = MemoryKeyValues(ManualClock(1_700_000_000_000))
    made.create("n")
    return made


@pytest.fixture
def scene(view: MemoryKeyValues) -> Iterator[KeyValueScene]:
    with serving_key_values(view) as made:
        yield made


def kv(scene: KeyValueScene, *words: object) -> Done:
    """A verb asked of the scene's server."""
    return tiered("kv", *words, "--server", scene.url)


def test_what_is_put_is_got(scene: KeyValueScene) -> None:
    assert kv(scene, "put", "n", "a", "value", "--ttl", "5s", "--json").json == {"version": 0}
    assert kv(scene, "get", "n", "a", "--json").json == {
        "key": "a", "key_base64url": None, "version": 0, "stored_ms": 1_700_000_000_000,
        "expires_ms": 1_700_000_005_000, "value": "value", "value_base64": None,
    }  # fmt: skip
    done = kv(scene, "get", "n", "a")
    assert "2023-11-14T22:13:25.000Z" in done.text
    assert "value" in done.text
    assert kv(scene, "get", "n", "a", "--raw").out == b"value"
    assert kv(scene, "delete", "n", "a", "--json").json == {"version": 1}
    done = kv(scene, "get", "n", "a", "--json")
    assert (done.code, done.error["kind"]) == (5, "NotFound")


def test_values_come_from_a_file_or_standard_input(
    scene: KeyValueScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"\xff\0\n")
    assert kv(scene, "put", "n", "a", "--file", file).code == 0
    assert kv(scene, "get", "n", "a", "--raw").out == b"\xff\0\n"
    assert kv(scene, "get", "n", "a", "--json").json["value_base64"] == "/wAK"
    assert "(base64) /wAK" in kv(scene, "get", "n", "a").text
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from stdin\n")))
    assert kv(scene, "put", "n", "a").code == 0
    assert kv(scene, "get", "n", "a", "--raw").out == b"from stdin\n"
    assert kv(scene, "put", "n", "a", "").code == 0
    assert kv(scene, "get", "n", "a", "--json").json["value"] == ""
    assert kv(scene, "put", "n", "a", "x", "--file", file).code == 2
    assert kv(scene, "put", "n", "a", "--file", tmp_path / "none").code == 2
    monkeypatch.setattr(kvverbs, "MOST_VALUE_BYTES", 2)
    assert kv(scene, "put", "n", "a", "--file", file).code == 2


def test_a_lost_compare_and_set_is_exit_code_6(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    assert kv(scene, "put", "n", "a", "1", "--if-absent").code == 0
    for words in (
        ("put", "n", "a", "2", "--if-absent"),
        ("put", "n", "a", "2", "--if-version", 7),
        ("cas", "n", "a", "2", "--version", 7),
        ("cas", "n", "a", "2", "--expected", "0"),
        ("delete", "n", "a", "--if-version", 7),
        ("delete", "n", "a", "--expected", "0"),
    ):
        done = kv(scene, *words, "--json")
        assert (done.code, done.out, done.error["kind"]) == (6, b"", "Conflict")
        assert done.error["fields"]["current"] == "0"
    assert kv(scene, "cas", "n", "a", "2", "--version", 0, "--json").json == {"version": 7}
    assert kv(scene, "cas", "n", "a", "3", "--expected", "2").code == 0
    assert kv(scene, "put", "n", "a", "4", "--if-version", 8).code == 0
    assert kv(scene, "delete", "n", "a", "--if-version", 9).code == 0
    assert kv(scene, "put", "n", "a", "5").code == 0
    assert kv(scene, "delete", "n", "a", "--expected", "5").code == 0
    assert kv(scene, "cas", "n", "a", "1").code == 2
    assert kv(scene, "put", "n", "a", "1", "--if-absent", "--if-version", 1).code == 2
    assert view.held["n"].entries == {}


def test_a_list_page_by_page(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    for key in (b"a", b"b1", b"b2", b"b3", b"c", b"\xff"):
        view.put("n", key, b"of " + key)
    done = kv(scene, "list", "n", "--prefix", "b", "--limit", 2)
    assert [line.split()[0] for line in done.text.splitlines()][-2:] == ["b1", "b2"]
    assert "--after b2" in done.err
    rows = kv(scene, "list", "n", "--prefix", "b", "--after", "b2", "--limit", 2, "--json").json
    assert [(row["key"], row["value"]) for row in rows] == [("b3", "of b3")]
    rows = kv(scene, "list", "n", "--json-lines", "--keys-only").rows
    assert [row["key"] for row in rows] == ["a", "b1", "b2", "b3", "c", None]
    assert rows[-1] == {
        "key": None, "key_base64url": "_w", "version": 5, "stored_ms": 1_700_000_000_000, "expires_ms": None,
    }  # fmt: skip
    assert "of a" not in kv(scene, "list", "n", "--keys-only").text
    rows = kv(scene, "list", "n", "--base64url", "--after", "Yw", "--json").json
    assert [(row["key_base64url"], row["value_base64"]) for row in rows] == [("_w", "b2Yg/w==")]
    assert kv(scene, "get", "n", "_w", "--base64url", "--raw").out == b"of \xff"
    assert kv(scene, "get", "n", "\udcff", "--raw").out == b"of \xff"  # as the shell gives the byte
    assert kv(scene, "get", "n", "!", "--base64url").code == 2


def test_several_keys_at_once(
    scene: KeyValueScene, view: MemoryKeyValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in (b"a", b"b", b"\xff"):
        view.put("n", key, b"of " + key)
    rows = kv(scene, "get-many", "n", "b", "a", "--json").json
    assert [(row["key"], row["value"], row["version"]) for row in rows] == [
        ("b", "of b", 1),
        ("a", "of a", 0),
    ]
    done = kv(scene, "get-many", "n", "b", "none", "a", "--latest")
    assert (done.code, "none" in done.err) == (5, True)
    assert ["of b" in done.text, "of a" in done.text] == [True, True]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\n\n\xff\n")))
    rows = kv(scene, "get-many", "n", "--json-lines", "--max-stale", "1s").rows
    assert [row["key_base64url"] for row in rows] == [None, "_w"]
    assert view.rules == [ReadRule(), ReadRule(Freshness.LATEST), ReadRule(max_stale_ms=1000)]
    assert kv(scene, "get-many", "n", *["k"] * 1001).code == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n")))
    assert kv(scene, "get-many", "n").code == 2


def test_namespaces(scene: KeyValueScene) -> None:
    assert kv(scene, "create", "other", "--json").json == {"namespace": "other", "created": True}
    assert kv(scene, "create", "other", "--json").json["created"] is False
    assert kv(scene, "namespaces", "--json").json == [{"namespace": "n"}, {"namespace": "other"}]
    assert kv(scene, "get", "none", "a").code == 5
    assert kv(scene, "get", "no/ne", "a").code == 2


def test_how_fresh_a_read_is(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    kv(scene, "get", "n", "a", "--latest")
    kv(scene, "list", "n", "--max-stale", "2s")
    assert view.rules == [ReadRule(Freshness.LATEST), ReadRule(max_stale_ms=2000)]


def test_a_write_whose_outcome_is_unknown_says_so(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    def lost(verb: str) -> None:
        raise Unavailable("the answer is lost", outcome="unknown")

    view.afterwards = lost
    done = kv(scene, "put", "n", "a", "1", "--json")
    assert (done.code, done.error["fields"]["outcome"]) == (4, "unknown")


def test_the_server_is_that_of_the_settings(view: MemoryKeyValues) -> None:
    with serving_key_values(view, http_listen="0.0.0.0:0", http_token="s3cret") as scene:
        listen = f"kv.http_listen=0.0.0.0:{scene.port}"
        done = tiered("kv", "put", "n", "a", "1", "--set", listen)
        assert (done.code, "token" in done.err) == (3, True)
        done = tiered("kv", "put", "n", "a", "1", "--set", listen, "--set", "kv.http_token=s3cret")
        assert done.code == 0
        done = tiered("kv", "namespaces", "--set", "kv.http_listen=127.0.0.1:0")
        assert (done.code, "--server" in done.err) == (2, True)
    done = tiered("kv", "namespaces", "--set", f"kv.http_listen=127.0.0.1:{scene.port}")
    assert (done.code, "not done" in done.err) == (4, True)


def test_a_view_of_all_addresses_is_asked_on_its_own_machine() -> None:
    assert kvverbs._local_url("0.0.0.0:80") == "http://127.0.0.1:80"
    assert kvverbs._local_url("[::]:80") == "http://[::1]:80"
    assert kvverbs._local_url("host:80") == "http://host:80"


def test_a_process_reads_and_writes_bytes(scene: KeyValueScene, view: MemoryKeyValues) -> None:
    assert tiered_process("kv", "put", "n", "a", "\udcff\u00fc", "--server", scene.url).code == 0
    assert tiered_process("kv", "get", "n", "a", "--raw", "--server", scene.url).out == b"\xff\xc3\xbc"
