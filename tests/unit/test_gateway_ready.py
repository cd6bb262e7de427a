"""``/readyz`` and ``/status`` of the gateway: 200 when it can do all that it is there for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.daemonproc import wait_for
from tiered.clock import SystemClock
from tiered.daemon.config import load
from tiered.daemon.gateway import GatewayProcess
from tiered.daemon.notify import Notifier
from tiered.metrics import Metrics


@pytest.fixture
def process(tmp_path: Path) -> Iterator[GatewayProcess]:
    """Opened, not serving; there is no archive yet."""
    sets = {
        "archive.url": f"file://{tmp_path}/archive",
        "state.directory": str(tmp_path / "state"),
        "gateway.namesrv_upstream": "127.0.0.1:1",
        "gateway.web_listen": "",
    }
    made = GatewayProcess(load(None, {}, sets).settings, SystemClock(), Metrics(), Notifier(None))
    with ExitStack() as stack:
        made.open(stack)
        yield made


def test_read_nodes_of_a_hangup_before_it_serves_are_taken_over(
    process: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = {"archive.url": f"file://{tmp_path}/archive", "gateway.read_nodes": "127.0.0.1:1"}
    process.reload(lambda: load(None, {}, sets))
    found: list[str] = []

    async def serving(stop: asyncio.Event) -> None:
        found.extend(process._reads.nodes())

    monkeypatch.setattr(process._app, "open", lambda: None)
    monkeypatch.setattr(process._app, "run", serving)
    asyncio.run(process.serve())
    assert found == ["127.0.0.1:1"]


def test_not_before_the_archive_is_open(process: GatewayProcess) -> None:
    wait_for(lambda: process._archive.problem != "the archive is being opened", "a first look", 10)
    for _ in range(2):  # whatever the fronts say
        ready, why = process._ready()
        assert not ready
        assert "the archive cannot be read" in why
        assert (process._expose(), process._metrics.value("tiered_ready"))[1] == 0
        process._app._discovery.problem = None
    assert "the archive cannot be read" in str(process._status()["problem"])


def test_an_archive_that_goes_away_later_is_said(process: GatewayProcess) -> None:
    process._app._discovery.problem = None
    process._archive.was_open, process._archive.problem = True, "away"
    assert process._ready() == (True, "ready; the archive cannot be read: away")


def test_not_for_another_broker_s_archive(process: GatewayProcess) -> None:
    process._app._discovery.problem = None
    process._archive.was_open, process._archive.problem = True, None
    assert process._ready() == (True, "ready")
    process._same.unknown = "10.0.0.1:10911: no permission"
    ready, why = process._ready()
    assert ready
    assert "no permission" in why
    process._same.problem = "10.0.0.1:10911: installed anew"
    ready, why = process._ready()
    assert not ready
    assert "installed anew" in why
    assert "installed anew" in json.dumps(process._status()["problem"])


def test_not_while_the_name_server_and_every_broker_are_dead_though_no_client_tells(
    process: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.gateway.app.LOOK_SECONDS", 0.01)
    app = process._app

    async def run() -> tuple[bool, str]:
        app.brokers.ensure("127.0.0.1:1", "broker-a")
        app._discovery.problem = "no name server answers"
        assert app.ready() == (True, "ready"), "nobody has looked yet"
        looking = asyncio.create_task(app._look())
        async with asyncio.timeout(20):
            while app.ready()[0]:
                await asyncio.sleep(0.01)
        looking.cancel()
        said = app.ready()
        app._discovery.problem = None
        assert app.ready()[0], "routes are given, and the broker may come back"
        await app._close()
        return said

    assert asyncio.run(run()) == (False, "no name server answers; brokers away: 127.0.0.1:1")
