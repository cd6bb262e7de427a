"""Replay as services: what goes wrong in it is shown, counted and tried again; nothing else notices."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.daemonproc import wait_for
from tests.kit.fakebroker import FakeBroker
from tiered.clock import ManualClock, SystemClock
from tiered.metrics import Metrics
from tiered.replay.ledger import LEDGER_FILE, read_books
from tiered.replay.running import DIRECTORY, ReplayServices
from tiered.settings import Archive, Replay, Settings, Source


def settings(address: str, **replay: Any) -> Settings:
    """Replay from an archive that is not there."""
    return Settings(
        source=Source(store_dir="/nonexistent"),
        archive=Archive(url="memory://"),
        replay=Replay(
            enabled=True, broker_address=address, groups=("G",), timeout_ms=300, poll_ms=100, **replay
        ),
    )


def test_it_watches_and_owes_and_ends(tmp_path: Path) -> None:
    metrics = Metrics()
    with FakeBroker() as broker:
        broker.fill("T", 0, 100, 0)
        broker.committed["T@G"] = {0: 20}
        with ExitStack() as stack:
            running = ReplayServices(settings(broker.address), SystemClock(), metrics, tmp_path)
            running.start(stack)
            wait_for(lambda: running.status().get("watched_queues") == 1, "the first look", 10)
            broker.delete("T", 0, 60)
            wait_for(lambda: running.status().get("owed_messages") == 40, "the debt", 10)
            wait_for(lambda: bool(running.status()["problems"]), "no archive to send from", 10)
            assert "archive" in str(running.status()["problems"])
        assert broker.asked[10] == 0
        assert (metrics.value("tiered_replay_skipped_messages_total") or 0) == 40
    books = read_books(tmp_path / DIRECTORY)
    assert books is not None
    assert [(d.start, d.end) for d in books.debts.values()] == [(20, 60)]


def test_an_old_broker_is_refused_politely_and_asked_again(tmp_path: Path) -> None:
    metrics = Metrics()
    with FakeBroker(version=409) as broker:
        running = ReplayServices(settings(broker.address), ManualClock(), metrics, tmp_path)
        watch, _, drain = running.services()
        assert (watch.step().wait_seconds or 0) > 0
        assert (watch.step().wait_seconds or 0) > 0
        [problem] = running.status()["problems"]  # type: ignore[misc]
        assert "older than 5.0" in problem
        assert metrics.value("tiered_replay_problem", part="replay-watch") == 1
        drain.step()
        broker.version = 513
        watch.step()
        assert running.status()["problems"] == []
        assert metrics.value("tiered_replay_problem", part="replay-watch") == 0
        running.close()


def test_a_damaged_ledger_stops_replay_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / LEDGER_FILE).write_bytes(b"not a ledger")
    with FakeBroker() as broker:
        running = ReplayServices(settings(broker.address), ManualClock(), Metrics(), tmp_path)
        for service in running.services():
            service.step()
        assert "not a replay ledger" in str(running.status()["problems"])
        assert broker.asked[43] == 0
        running.close()


def test_a_bug_is_a_problem_and_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = ReplayServices(settings("127.0.0.1:1"), ManualClock(), Metrics(), tmp_path)
    monkeypatch.setattr(running, "_look", lambda: 1 / 0)
    watch, *_ = running.services()
    waits = [watch.step().wait_seconds or 0 for _ in range(5)]
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]
    assert "ZeroDivisionError" in str(running.status()["problems"])
    running.close()
