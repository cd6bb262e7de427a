"""The key-value view on a read node: it follows the archive, says how old its answers are, and takes no write."""

from __future__ import annotations

import json
import random
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.daemonproc import wait_for
from tests.kit.kvscene import NAMESPACE, KeyValueScene
from tests.kit.nodeproc import ReadNode
from tests.kit.ports import free_port
from tests.kit.remoting import Connection
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.keyvalue import KeyValueCode, encoded, pack_keys, unpack_listed
from tiered.daemon.nodeview import AGAIN_SECONDS, NodeView, view_directory
from tiered.errors import Invalid, Refused, Unavailable
from tiered.feed.archived import ArchivedFeed
from tiered.keyvalue import Freshness, ReadRule
from tiered.metrics import Metrics
from tiered.model import PhysicalOffset
from tiered.node.keyvalues import ArchiveValues, LocalCalls
from tiered.settings import MIB

WRITER = "http://10.0.0.9:8089"
LATEST = ReadRule(Freshness.LATEST)


@pytest.fixture
def scene(tmp_path: Path) -> KeyValueScene:
    made = KeyValueScene(tmp_path)
    made.puts(60)
    made.archive()
    return made


@contextmanager
def viewed(scene: KeyValueScene, *, kv: Any = None, **serve: Any) -> Iterator[NodeView]:
    """The view of a node, with these settings of ``serve`` and ``kv``; nothing is applied yet."""
    base = scene.settings
    settings = replace(base, serve=replace(base.serve, **serve), kv=replace(base.kv, **(kv or {})))
    made = NodeView(settings, scene.clock, Metrics(), threading.Event())
    try:
        yield made
    finally:
        made.close()


def follow(scene: KeyValueScene, view: NodeView, seconds: float = 5.0) -> None:
    """Step for so long by the scene's clock, and until it rests."""
    end = scene.clock.monotonic() + seconds
    while scene.clock.monotonic() < end:
        if view.step().wait_seconds:
            scene.clock.advance(0.1)


def gauge(view: NodeView, name: str) -> float:
    view.publish()
    lines = view._metrics.expose().decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"tiered_{name}")).rpartition(" ")[2])


def test_it_has_what_the_archive_has_and_goes_on_with_it(scene: KeyValueScene) -> None:
    with viewed(scene) as view:
        with pytest.raises(Unavailable, match="not open"):
            view.values()
        assert view.ready()[0] is False
        follow(scene, view)
        scene.check(view.values())
        scene.puts(30, 60)
        scene.put(NAMESPACE, b"key-1", None)
        scene.archive()
        follow(scene, view)
        scene.check(view.values())
        assert view.ready() == (True, "applies the log")
        assert (gauge(view, "kv_standing"), view.status()["problem"]) == (0, None)
    bucket = {path.name for path in (scene.directory / "archive").rglob("*")}
    assert not any("snapshot" in name or "kv" in name for name in bucket), "a node wrote to the bucket"


def test_an_answer_is_as_old_as_the_last_look_at_the_archive(scene: KeyValueScene) -> None:
    """Between two looks, ``fetch.follow_ms`` apart, it grows; it never says less than is true."""
    with viewed(scene) as view:
        assert view.stale_ms() is None
        follow(scene, view)
        follow_ms = scene.settings.fetch.follow_ms
        seen = []
        for _ in range(40):
            scene.clock.advance(0.1)
            view.step()
            seen.append(view.stale_ms() or 0)
        assert max(seen) >= follow_ms - 200
        assert max(seen) <= follow_ms + 200
        assert min(seen) <= 100
        scene.clock.advance(3.0)
        assert view.stale_ms() == pytest.approx(3000 + seen[-1], abs=2)
        with pytest.raises(Unavailable, match="too old"):
            view.values().get(NAMESPACE, b"key-1", ReadRule(max_stale_ms=1000))
        assert view.values().get(NAMESPACE, b"key-1", ReadRule(max_stale_ms=10_000)) is not None


def test_while_the_bucket_is_away_it_stands_still_and_says_so(
    scene: KeyValueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(feed: ArchivedFeed) -> PhysicalOffset:
        raise Unavailable("the store does not answer")

    with viewed(scene) as view:
        follow(scene, view)
        scene.puts(10, 60)
        scene.archive()
        monkeypatch.setattr(ArchivedFeed, "look", away)
        for _ in range(5):
            scene.clock.advance(10.0)
            with pytest.raises(Unavailable):
                view.step()
        ready, said = view.ready()
        assert (ready, "stands still: the store does not answer" in said) == (False, True)
        assert gauge(view, "kv_standing") == 1
        assert (view.stale_ms() or 0) >= 50_000
        assert view.values().get(NAMESPACE, b"key-1") is not None
        monkeypatch.undo()
        follow(scene, view)
        scene.check(view.values())
        assert view.ready()[0]


@pytest.mark.parametrize(("kind", "bound"), [("rocksdb", "serve.key_value_bytes"), ("map", "kv.map_bytes")])
def test_a_store_at_its_bound_stands_still_and_loses_nothing(tmp_path: Path, kind: str, bound: str) -> None:
    scene = KeyValueScene(tmp_path, file_bytes=4 * MIB)
    draw = random.Random(5)

    def put(first: int) -> None:
        for number in range(first, first + 10):
            scene.put(NAMESPACE, b"k%d" % number, draw.randbytes(200_000))
        scene.archive()

    put(0)
    with viewed(scene, kv={"store": kind, "map_bytes": MIB}, key_value_bytes=MIB) as view:
        for _ in range(10):
            if view.step().wait_seconds == AGAIN_SECONDS:
                break
        put(10)
        for _ in range(3):
            scene.clock.advance(AGAIN_SECONDS)
            assert view.step().wait_seconds == AGAIN_SECONDS
        assert bound in (view.problem or "")
        assert bound in view.ready()[1]
        assert (view.stale_ms() or 1 << 40) >= 3000 * AGAIN_SECONDS
        with pytest.raises((Unavailable, AssertionError)):
            scene.check(view.values())
    with viewed(scene, kv={"store": kind}) as view:
        follow(scene, view)
        scene.check(view.values())


def test_a_fault_of_ours_ends_the_view_and_is_said(scene: KeyValueScene) -> None:
    with viewed(scene) as view:
        follow(scene, view)

        def breaks() -> None:
            raise RuntimeError("a fault")

        view.values().step = breaks  # type: ignore[method-assign, assignment]
        service = view.service()
        service.run()
        assert "a fault" in view.ready()[1]
        assert "restart the node" in str(view.status()["problem"])
        assert gauge(view, "kv_standing") == 1


def test_it_needs_a_place_for_its_store(scene: KeyValueScene) -> None:
    base = scene.settings
    nowhere = replace(base, kv=replace(base.kv, state_directory=""))
    with pytest.raises(Invalid) as caught:
        view_directory(nowhere)
    assert caught.value.fields["key"] == "kv.state_directory"
    placed = replace(nowhere, serve=replace(base.serve, state_directory="/run/node"))
    assert view_directory(placed) == Path("/run/node/kv")
    with viewed(scene), pytest.raises(Refused, match="another"), viewed(scene):
        pass


def test_without_the_token_nothing_is_given(scene: KeyValueScene) -> None:
    with viewed(scene) as view:
        follow(scene, view)
        values = ArchiveValues(view.values, WRITER)
        right, wrong = (LocalCalls(values, "secret", shown) for shown in ("secret", "secrets"))
        assert right.get(NAMESPACE, b"key-1", ReadRule()) is not None
        asked: tuple[Callable[[], object], ...] = (
            lambda: wrong.get(NAMESPACE, b"key-1", ReadRule()),
            lambda: wrong.get_many(NAMESPACE, [b"key-1"], ReadRule()),
            lambda: wrong.page(NAMESPACE, b"", after=None, count=1, rule=ReadRule(), keys_only=True),
        )
        for ask in asked:
            with pytest.raises(Refused, match="token"):
                ask()
        page = right.page(NAMESPACE, b"", after=None, count=3, rule=ReadRule(), keys_only=True)
        assert [entry.value for entry in page.entries] == [b""] * 3


class Asked:
    """A node as a process: its pages and its frames."""

    def __init__(self, scene: KeyValueScene, **settings: object) -> None:
        self.pages = f"127.0.0.1:{free_port()}"
        self.node = ReadNode(
            scene.directory, scene.settings.archive.url, "node",
            **{"serve.key_values": "true", "serve.key_value_writer": WRITER, "kv.http_listen": self.pages, **settings},
        )  # fmt: skip

    def http(self, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, Any, bytes]:
        asked = urllib.request.Request(f"http://{self.pages}/v1/kv{path}", body, method=method)
        if body is not None and method == "POST":
            asked.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def frame(self, connection: Connection, code: int, body: bytes = b"", **fields: str) -> Any:
        connection.send(int(code), {"namespace": NAMESPACE, **fields}, body)
        return connection.receive()[1]


def test_a_node_answers_reads_at_both_doors_and_refuses_the_rest(scene: KeyValueScene) -> None:
    asked = Asked(scene)
    wanted = scene.values[NAMESPACE]
    with asked.node.running() as node:
        status, headers, body = asked.http(f"/{NAMESPACE}/key-1")
        assert (status, body) == (200, wanted[b"key-1"][0])
        assert 0 <= int(headers["Kv-Stale-Ms"]) < 30_000
        keys = json.dumps({"keys": ["key-2", "nothing"]}).encode()
        status, headers, body = asked.http(f"/{NAMESPACE}", "POST", keys)
        assert [row and row["version"] for row in json.loads(body)["entries"]] == [wanted[b"key-2"][1], None]
        assert int(headers["Kv-Stale-Ms"]) >= 0
        status, headers, body = asked.http(f"/{NAMESPACE}?prefix=key-")
        assert [row["key"].encode() for row in json.loads(body)["entries"]] == sorted(wanted)
        status, headers, body = asked.http(f"/{NAMESPACE}/nothing")
        assert (status, json.loads(body)["stale_ms"] >= 0) == (404, True)
        for path, method, sent in (
            (f"/{NAMESPACE}/key-1?latest=true", "GET", None),
            (f"/{NAMESPACE}/key-1", "PUT", b"v"),
            (f"/{NAMESPACE}/key-1", "DELETE", None),
            ("/other", "PUT", None),
        ):
            status, headers, body = asked.http(path, method, sent)
            told = json.loads(body)
            assert (status, told["type"].rpartition(":")[2], WRITER in told["fix"]) == (
                403,
                "read-only",
                True,
            )
            assert told["outcome"] == "not done"
        with Connection(node.address) as connection:
            found = asked.frame(connection, KeyValueCode.GET, key=encoded(b"key-1"))
            assert (found.code, found.body) == (0, wanted[b"key-1"][0])
            assert int(found.fields["staleMs"]) >= 0
            found = asked.frame(connection, KeyValueCode.LIST, prefix=encoded(b"key-"))
            assert [row.key for row in unpack_listed(found.body)] == sorted(wanted)
            found = asked.frame(connection, KeyValueCode.GET_MANY, pack_keys([b"key-3", b"nothing"]))
            assert [row.version for row in unpack_listed(found.body)] == [wanted[b"key-3"][1], -1]
            for code, fields in (
                (KeyValueCode.PUT, {"key": encoded(b"k")}),
                (KeyValueCode.DELETE, {"key": encoded(b"k")}),
                (KeyValueCode.CREATE, {}),
                (KeyValueCode.GET, {"key": encoded(b"key-1"), "latest": "true"}),
            ):
                found = asked.frame(connection, code, **fields)
                assert (found.code, WRITER in found.remark) == (ResponseCode.NO_PERMISSION, True)
                assert "staleMs" not in found.fields
        said = node.status()["key_values"]
        assert (said["ready"], said["problem"], said["namespaces"]) == (True, None, 2)
        assert node.metric("tiered_kv_standing") == 0
        scene.puts(5, 60)
        scene.archive()
        node.kill()
        node.start()
        newest = scene.values[NAMESPACE][b"key-1"][0]
        wait_for(lambda: asked.http(f"/{NAMESPACE}/key-1")[2] == newest, "the newest value")
        node.stop()
        assert node.child.wait(5) == 0


def test_a_node_without_the_setting_knows_no_code_of_it(scene: KeyValueScene) -> None:
    asked = Asked(scene, **{"serve.key_values": "false"})
    with asked.node.running() as node, Connection(node.address) as connection:
        found = asked.frame(connection, KeyValueCode.GET, key=encoded(b"key-1"))
        assert found.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert node.status()["key_values"] is None
