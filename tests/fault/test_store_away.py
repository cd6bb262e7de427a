"""The broker's store goes away under a running daemon: what is held is archived, the rest waited for."""

from __future__ import annotations

from pathlib import Path

from tests.kit.daemonproc import Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import compare

REFUSED = 3
SLOW_FLUSH = {"dispatch.group_commit_interval_ms": 1500}
"""What was read last is not committed yet when the store goes."""


def away(daemon: Daemon) -> bool:
    code, text = daemon.ask("/readyz")
    return code == 503 and b"commitlog directory does not exist" in text


def test_the_held_rest_is_archived_and_the_store_is_waited_for(tmp_path: Path) -> None:
    store = tmp_path / "store"
    broker = FaultBroker.started(store, 300)
    daemon = Daemon(tmp_path, store, f"file://{tmp_path}/archive", **SLOW_FLUSH)
    with daemon.running():
        daemon.wait_archived(broker.physical_offset)
        broker.write(900)
        newest = f"{broker.log.base_of(broker.physical_offset):020d}.*"
        daemon.wait_until(lambda: any((tmp_path / "daemon-hold").glob(newest)), "all is held")
        assert daemon.status()["proven_offset"] < broker.physical_offset
        broker.close()
        store.rename(tmp_path / "elsewhere")
        daemon.wait_until(lambda: away(daemon), "it is said to be away")
        daemon.wait_archived(broker.physical_offset)
        assert daemon.ask("/healthz")[0] == 200
        assert daemon.metric("tiered_ready") == 0
        status = daemon.status()
        assert (status["ready"], status["lag"]["bytes"]) == (False, 0)
        assert str(store) in status["problem"]
        assert daemon.said("the broker's commitlog went away")
        (tmp_path / "elsewhere").rename(store)
        daemon.wait_until(daemon.ready, "ready again")
        broker.open()
        broker.write(200)
        daemon.wait_archived(broker.physical_offset)
        assert daemon.said("the broker's commitlog is back")
        assert daemon.metric("tiered_ready") == 1
        assert (daemon.metric("tiered_gaps_total", kind="physical") or 0) == 0
        assert daemon.stop() == 0, daemon.output()
    assert "Traceback" not in daemon.output()
    verdict = compare(daemon.archive, broker.oracle)
    assert verdict.good, verdict
    assert (verdict.readable, verdict.in_gaps) == (1400, 0)
    broker.close()


def test_another_store_in_its_place_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    broker = FaultBroker.started(store, 300)
    daemon = Daemon(tmp_path, store, f"file://{tmp_path}/archive")
    with daemon.running():
        daemon.wait_archived(broker.physical_offset)
        broker.close()
        store.rename(tmp_path / "elsewhere")
        daemon.wait_until(lambda: away(daemon), "it is said to be away")
        other = FaultBroker.started(tmp_path / "other", 400, seed=9, topics=("Other",))
        other.close()
        (tmp_path / "other").rename(store)
        assert daemon.wait() == REFUSED, daemon.output()
    assert "Traceback" not in daemon.output()
    verdict = compare(daemon.archive, broker.oracle)
    assert verdict.good, verdict
    assert verdict.readable == 300
