"""A view as a process has it: where it looks for the log's end."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.fakebroker import FakeBroker
from tests.kit.kvscene import NAMESPACE, KeyValueScene
from tiered.codec.remoting.codes import RequestCode
from tiered.codec.remoting.frame import Command
from tiered.daemon.keyvalue import SETTLE_SECONDS
from tiered.errors import Unavailable
from tiered.keyvalue import Freshness, ReadRule

LATEST = ReadRule(Freshness.LATEST)


def test_where_the_master_may_change_the_log_beside_a_view_is_not_believed_to_be_all(tmp_path: Path) -> None:
    """The broker beside it may have been the master: what its successor took since lies behind the end of its log."""
    scene = KeyValueScene(tmp_path)
    scene.puts(3)
    told = {"master": True, "masterCommitLogMaxOffset": 0}
    with FakeBroker() as names, FakeBroker() as master, ExitStack() as stack:
        brokers = {scene.settings.source.broker: {"brokerAddrs": {"0": master.address}}}
        table = json.dumps({"brokerAddrTable": brokers}).encode()
        names.instead = lambda asked: (
            Command(0, body=table) if asked.code == RequestCode.GET_BROKER_CLUSTER_INFO else None
        )
        master.instead = lambda asked: (
            Command(0, body=json.dumps(told).encode())
            if asked.code == RequestCode.GET_BROKER_HA_STATUS
            else None
        )
        kv = replace(scene.settings.kv, namesrv=names.address, timeout_ms=500)  # asked on a busy machine, too
        scene.settings = replace(scene.settings, kv=kv)
        view = scene.view(stack)
        assert scene.follow(view) is None
        told["masterCommitLogMaxOffset"] = view.progress.physical
        assert view.get(NAMESPACE, b"key-1", LATEST) is not None
        told["masterCommitLogMaxOffset"] += 1
        with pytest.raises(Unavailable, match="did not reach the log's end"):
            view.get(NAMESPACE, b"key-1", LATEST)
        assert view.get(NAMESPACE, b"key-1") is not None
        told["master"] = False
        with pytest.raises(Unavailable, match="is a slave"):
            view.get(NAMESPACE, b"key-1", LATEST)


def test_beside_the_only_master_nobody_is_asked(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path)
    scene.puts(3)
    with FakeBroker() as master, ExitStack() as stack:
        scene.settings = replace(scene.settings, kv=replace(scene.settings.kv, broker_address=master.address))
        view = scene.view(stack)
        assert scene.follow(view) is None
        assert view.get(NAMESPACE, b"key-1", LATEST) is not None
        assert not master.asked


def test_redo_looks_often_only_while_somebody_waits_and_at_once_when_somebody_begins_to(
    tmp_path: Path,
) -> None:
    scene = KeyValueScene(tmp_path)
    scene.puts(3)
    nudged: list[int] = []
    with ExitStack() as stack:
        view = scene.view(stack)
        assert scene.follow(view) is None
        view.nudge = lambda: nudged.append(view.progress.physical)
        seldom = scene.settings.kv.poll_ms / 1000
        with view.progress.writing():  # sent, and not answered yet
            assert view.step().wait_seconds == seldom
        with view.progress.expecting():
            assert view.step().wait_seconds == SETTLE_SECONDS < seldom
        assert view.step().wait_seconds == seldom
        assert view.get(NAMESPACE, b"key-1", LATEST) is not None
        assert nudged == []
        end = view.progress.physical
        scene.puts(1, 3)
        with pytest.raises(Unavailable, match="did not reach the log's end"):
            view.get(NAMESPACE, b"key-1", LATEST)
        assert nudged == [end]
