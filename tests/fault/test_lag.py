"""The lag gauge cannot lie (S11): a store that swallows everything shows as growing lag, a red page, and in the end as exit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.daemonproc import Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.faultproxy import Action, Rule
from tests.kit.s3archive import FaultyS3, faulty_s3
from tests.kit.s3server import S3Server

pytestmark = pytest.mark.s3server

UNAVAILABLE = 4
HOLE = Rule(Action.BLACK_HOLE)


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[FaultyS3]:
    with faulty_s3(s3_server) as made:
        yield made


def lag(daemon: Daemon) -> tuple[float, float, float]:
    names = ("tiered_lag_bytes", "tiered_lag_messages", "tiered_lag_seconds")
    found = [daemon.metric(name) for name in names]
    assert None not in found
    return tuple(float(value or 0) for value in found)  # type: ignore[return-value]


def test_black_hole_is_seen_and_ends_the_process(tmp_path: Path, s3: FaultyS3) -> None:
    broker = FaultBroker.started(tmp_path / "store", 100)
    daemon = s3.daemon(
        tmp_path,
        tmp_path / "store",
        **{
            "store.read_timeout_ms": 60_000,
            "watchdog.stuck_ms": 1000,
            "watchdog.stall_ms": 1000,
            "watchdog.fatal_ms": 4000,
        },
    )
    with daemon.running():
        daemon.wait_archived(broker.physical_offset)
        assert daemon.ask("/healthz")[0] == 200
        assert lag(daemon) == (0, 0, 0)
        proven = broker.physical_offset
        s3.proxy.set(HOLE)
        seen = []
        for _ in range(3):
            broker.write(100)
            daemon.wait_until(
                lambda: lag(daemon)[0] == broker.physical_offset - proven, "lag is local end minus proven"
            )
            seen.append(lag(daemon))
        assert seen == sorted(seen)
        assert len(set(seen)) == 3
        assert 250 <= seen[-1][1] <= 350  # 300 messages wait; what is not read yet is an estimate
        daemon.wait_until(lambda: daemon.ask("/healthz")[0] == 503, "not live any more", 10)
        # Whichever asks the store first is stuck first: the checkpointer may be it.
        daemon.wait_until(lambda: b"committer" in daemon.ask("/healthz")[1], "the committer is named", 10)
        daemon.wait_until(lambda: daemon.metric("tiered_stalled") == 1, "a stall", 10)
        code, why = daemon.ask("/readyz")
        assert (code, b"archiving stands still" in why) == (503, True)
        assert daemon.metric("tiered_stuck", service="committer") == 1
        assert daemon.status()["proven_offset"] == proven
        assert daemon.wait(30) == UNAVAILABLE, daemon.output()
    assert daemon.said("has not come back from one step"), daemon.output()
    assert "Traceback" not in daemon.output()
    s3.proxy.set()
    assert daemon.once() == 0
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    broker.close()


def test_black_hole_with_time_outs_is_not_fatal_and_the_lag_shows_it(tmp_path: Path, s3: FaultyS3) -> None:
    broker = FaultBroker.started(tmp_path / "store", 100)
    daemon = s3.daemon(tmp_path, tmp_path / "store", **{"store.read_timeout_ms": 200})
    with daemon.running():
        daemon.wait_archived(broker.physical_offset)
        proven = broker.physical_offset
        s3.proxy.set(HOLE)
        broker.write(200)
        daemon.wait_until(lambda: lag(daemon)[2] > 1.5, "the oldest message is old")
        assert lag(daemon)[0] == broker.physical_offset - proven
        assert (daemon.metric("tiered_commit_resends_total") or 0) >= 1
        s3.proxy.set()
        daemon.wait_archived(broker.physical_offset)
        daemon.wait_until(lambda: lag(daemon) == (0, 0, 0), "no lag")
        assert daemon.stop() == 0
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    broker.close()


def test_sigterm_with_the_store_in_a_hole_ends_in_bounded_time(tmp_path: Path, s3: FaultyS3) -> None:
    broker = FaultBroker.started(tmp_path / "store", 100)
    daemon = s3.daemon(tmp_path, tmp_path / "store", **{"watchdog.drain_ms": 1000})
    with daemon.running():
        daemon.wait_archived(broker.physical_offset)
        s3.proxy.set(HOLE)
        broker.write(1000)
        daemon.wait_until(lambda: (daemon.metric("tiered_commit_resends_total") or 0) >= 1, "it hangs")
        assert daemon.stop(20) == UNAVAILABLE, daemon.output()
    assert "Traceback" not in daemon.output()
    s3.proxy.set()
    assert daemon.once() == 0
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    broker.close()
