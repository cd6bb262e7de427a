"""A read node and a gateway as processes, which find each other in a real etcd over TLS, as one of its users."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.certificates import Authority
from tests.kit.command import archive_once, tiered
from tests.kit.etcdserver import etcd
from tests.kit.gatewayproc import Gateway
from tests.kit.nodeproc import ReadNode
from tests.kit.ports import free_port

pytestmark = pytest.mark.etcd

PASSWORD = "so-secret-that-nobody-sees-it"


def test_nodes_and_gateways_find_each_other_and_a_wrong_password_is_said_and_not_shown(
    tmp_path: Path,
) -> None:
    archive = f"file://{tmp_path / 'archive'}"
    made = tiered("gen", "--store", tmp_path / "store", "--messages", 40, "--queues", 2, "--topics", 1)
    assert made.code == 0, made.err
    assert archive_once(tmp_path / "store", tmp_path / "archive").code == 0
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    authority = Authority(tmp_path / "authority")
    with etcd(tmp_path / "etcd", authority) as server:
        server.with_users("nodes/", tiered=PASSWORD)
        membership = f"etcds://{server.address}/nodes"
        access = {"etcd.user": "tiered", "etcd.ca": str(authority.certificate)}

        def node(name: str, **changed: Any) -> ReadNode:
            settings = {**access, "etcd.password": f"file:{tmp_path / 'password'}", **changed}
            return ReadNode(
                tmp_path, archive, name, **{"serve.membership": membership, "serve.name": name, **settings}
            )  # type: ignore[arg-type]

        gateway = Gateway(
            tmp_path, f"127.0.0.1:{free_port()}", archive, environment={"NODES_PASSWORD": PASSWORD},
            **{**access, "etcd.password": "env:NODES_PASSWORD", "gateway.membership": membership},
        )  # fmt: skip
        good, bad = node("good", **{"serve.capacity": 3}), node("bad", **{"etcd.password": f"{PASSWORD}!"})
        try:
            good.start()
            bad.start()
            gateway.launch()
            good.child.wait_until(good.announced, 30, "its announcement")

            def seen() -> bool:
                found = gateway.status().get("fleet") or []
                return [(one["name"], one["state"], one["capacity"]) for one in found] == [
                    ("good", "live", 3)
                ]

            gateway.child.wait_until(seen, 30, "the node, in its fleet")
            problem = str(bad.status()["membership"]["problem"])
            assert "etcd does not know this user with this password" in problem
            listed = tiered(
                "nodes", "--archive", archive, "--json", "--set", f"gateway.membership={membership}",
                *(word for name, value in access.items() for word in ("--set", f"{name}={value}")),
                "--set", f"etcd.password=file:{tmp_path / 'password'}",
            )  # fmt: skip
            assert [(row["node"], row["capacity"]) for row in listed.json] == [("good", 3)]
            good.stop()
            gateway.child.wait_until(lambda: not gateway.status()["fleet"], 30, "that it left")
            logs = "".join(one.read_text() for one in (good.log, bad.log, gateway.log))
            assert "does not know this user" in logs
            assert PASSWORD not in logs + problem
        finally:
            for one in (good, bad, gateway):
                one.kill()
