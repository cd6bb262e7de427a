"""``tiered serve`` as a process: ready when its archive is there, not before; stopped in good order; wrong settings named."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from tests.kit.command import archive_once, tiered, tiered_process
from tests.kit.daemonproc import wait_for
from tests.kit.nodeproc import ReadNode
from tests.kit.ports import free_port


def test_a_node_waits_for_its_archive_and_stops_in_good_order(tmp_path: Path) -> None:
    store, archive = tmp_path / "store", tmp_path / "archive"
    pages = f"127.0.0.1:{free_port()}"
    node = ReadNode(tmp_path, f"file://{archive}", "node", **{"serve.http_listen": pages})
    try:
        node.launch()
        node.child.wait_until(lambda: node.ask("/healthz")[0] == 200, 60, "health")
        assert node.ask("/readyz")[0] == 503
        assert "archive" in node.status()["said"]
        assert node.status()["commit"] is None
        assert tiered("gen", "--store", store, "--messages", 200).code == 0
        assert archive_once(store, archive).code == 0
        node.child.wait_until(node.ready, 60, "its archive")
        # it may have opened the archive between its first object and its first commit
        node.child.wait_until(lambda: (node.status()["commit"] or 0) >= 1, 60, "its first commit")
        status = node.status()
        assert status["commit"] >= 1
        assert len(bytes.fromhex(status["archive"])) == 16
        assert node.metric("tiered_node_connections") == 0
        with urllib.request.urlopen(f"http://{pages}/v1/topics", timeout=20) as answer:
            assert json.loads(answer.read())
        node.stop()
        assert node.child.wait(1) == 0
        wait_for(lambda: not node.port_file.exists(), "the port file is gone")
    finally:
        node.kill()


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    done = tiered_process("serve")
    assert (done.code, "archive.url" in done.err) == (2, True)
    for setting, key in (
        ("serve.listen=nowhere", "serve.listen"),
        ("serve.listen=127.0.0.1:99999", "serve.listen"),
        ("serve.max_reads=0", "serve.max_reads"),
        ("serve.http_listen=x", "serve.http_listen"),
    ):
        done = tiered_process(
            "serve", "--archive", f"file://{tmp_path}", "--set", "serve.web_listen=", "--set", setting
        )
        assert done.code == 2, done.err
        assert key in done.err
        assert "Traceback" not in done.err


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with ReadNode(tmp_path, f"file://{tmp_path}", "one").launched() as node:
        node.child.wait_until(lambda: node.ask("/healthz")[0] == 200, 60, "health")
        wait_for(lambda: (node.state / "node-port").exists(), "its port")
        done = tiered_process(
            "serve", "--archive", f"file://{tmp_path}", "--set", "serve.web_listen=",
            "--set", f"serve.listen={node.address}",
        )  # fmt: skip
        assert done.code == 2, done.err
        assert "serve.listen" in done.err
