"""A real S3 server behind a proxy that answers 503, delays, cuts, swallows and refuses: late, never wrong (S4, S11)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.faultbroker import FaultBroker
from tests.kit.faultproxy import Action, Rule
from tests.kit.s3archive import FaultyS3, faulty_s3
from tests.kit.s3server import S3Server

pytestmark = pytest.mark.s3server

OBJECTS = {"dispatch.inline_bytes": 0}
UNAVAILABLE = 4

FAULTS: dict[str, list[Rule]] = {
    "503s": [Rule(Action.STATUS, 0.4, status=503)],
    "500s on put": [Rule(Action.STATUS, 0.5, method="PUT", status=500)],
    "409s on put": [Rule(Action.STATUS, 0.3, method="PUT", status=409)],
    "slow answers": [Rule(Action.DELAY, 0.5, seconds=0.2)],
    "slow wire": [Rule(Action.THROTTLE, bytes_per_second=200_000)],
    "requests cut": [Rule(Action.CUT_REQUEST, 0.4, method="PUT", after_bytes=1000)],
    "answers of puts lost": [Rule(Action.CUT_BEFORE_ANSWER, 0.5, method="PUT")],
    "answers of puts swallowed": [Rule(Action.SWALLOW, 0.3, method="PUT", times=4)],
    "puts lost and their read-backs too": [
        Rule(Action.CUT_BEFORE_ANSWER, 0.6, method="PUT"),
        Rule(Action.CUT_ANSWER, 0.3, method="GET"),
        Rule(Action.STATUS, 0.3, method="GET", status=503),
    ],
    "connections reset": [Rule(Action.REFUSE, 0.4)],
    "requests into a hole": [Rule(Action.BLACK_HOLE, 0.3, times=4)],
    "all at once": [
        Rule(Action.STATUS, 0.1, status=503),
        Rule(Action.CUT_BEFORE_ANSWER, 0.2),
        Rule(Action.CUT_REQUEST, 0.1, after_bytes=500),
        Rule(Action.CUT_ANSWER, 0.1, after_bytes=20),
        Rule(Action.REFUSE, 0.1),
        Rule(Action.DELAY, 0.1, seconds=0.1),
    ],
}


@pytest.fixture
def s3(s3_server: S3Server) -> Iterator[FaultyS3]:
    with faulty_s3(s3_server, seed=7) as made:
        yield made


@pytest.mark.parametrize("fault", FAULTS)
def test_a_running_daemon_gets_through(tmp_path: Path, s3: FaultyS3, fault: str) -> None:
    broker = FaultBroker.started(tmp_path / "store", 50)
    daemon = s3.daemon(tmp_path, tmp_path / "store", **OBJECTS)
    with daemon.running():
        daemon.wait_archived(broker.physical_offset)
        asked = s3.proxy.count()
        s3.proxy.set(*FAULTS[fault])
        for _ in range(6):
            broker.write(70)
            broker.clock.wait(0.05)
        daemon.wait_archived(broker.physical_offset)
        hurt = sum(exchange.action is not Action.PASS for exchange in s3.proxy.exchanges[asked:])
        assert hurt >= 3, "the fault never struck"
        s3.proxy.set()
        broker.write(70)
        daemon.wait_archived(broker.physical_offset)
        assert daemon.stop() == 0, daemon.output()
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    assert (verdict.in_gaps, verdict.readable) == (0, 540)
    broker.close()


@pytest.mark.parametrize(
    "rule",
    [
        Rule(Action.CUT_ANSWER, 0.2, method="GET", after_bytes=10),
        Rule(Action.STATUS, 0.2, method="GET", status=503),
        Rule(Action.SWALLOW, 0.3, method="GET", times=3),
        Rule(Action.CUT_BEFORE_ANSWER, 0.2, method="GET"),
    ],
    ids=lambda rule: rule.action.name,
)
def test_opening_gets_through(tmp_path: Path, s3: FaultyS3, rule: Rule) -> None:
    """Faults while the log is folded from the bucket, nothing local left."""
    broker = FaultBroker.started(tmp_path / "store", 500)
    settings = {"store.attempts": 6, "archive.checkpoint_commits": 3, "dispatch.block_bytes": 4096}
    daemon = s3.daemon(tmp_path, tmp_path / "store", **settings)
    assert daemon.once() == 0, daemon.output()
    probed = (tmp_path / "daemon-state" / "probed").read_bytes()
    shutil.rmtree(daemon.state)
    (tmp_path / "daemon-state").mkdir()
    (tmp_path / "daemon-state" / "probed").write_bytes(probed)
    broker.lose_tail(broker.starts()[-100])
    broker.write(200)
    asked = s3.proxy.count()
    s3.proxy.set(rule)
    codes: list[int] = []
    while codes[-1:] != [0]:
        codes.append(daemon.once())
        assert codes[-1] in (0, UNAVAILABLE), daemon.output()
        assert len(codes) < 20
    assert sum(exchange.action is not Action.PASS for exchange in s3.proxy.exchanges[asked:]) >= 1
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    assert verdict.readable == 600
    broker.close()


def test_store_gone_and_back(tmp_path: Path, s3: FaultyS3) -> None:
    """Connections refused for a while: not fatal, the lag grows, and then everything arrives."""
    broker = FaultBroker.started(tmp_path / "store", 100)
    daemon = s3.daemon(tmp_path, tmp_path / "store")
    with daemon.running():
        daemon.wait_archived(broker.physical_offset)
        s3.proxy.down()
        proven = broker.physical_offset
        broker.write(400)
        daemon.wait_until(lambda: (daemon.metric("tiered_commit_resends_total") or 0) >= 2, "it tries again")
        assert daemon.status()["lag"]["bytes"] == broker.physical_offset - proven
        s3.proxy.up()
        daemon.wait_archived(broker.physical_offset)
        assert daemon.stop() == 0, daemon.output()
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    broker.close()


def test_a_daemon_started_while_the_store_is_away_waits_and_is_not_ready(
    tmp_path: Path, s3: FaultyS3
) -> None:
    broker = FaultBroker.started(tmp_path / "store", 100)
    daemon = s3.daemon(tmp_path, tmp_path / "store")
    assert daemon.once() == 0, daemon.output()
    s3.proxy.down()
    broker.write(600)
    with daemon.running(ready=False):
        daemon.wait_until(lambda: daemon.said("the store does not answer"), "it says so")
        assert daemon.ask("/readyz")[0] == 503
        # The hold works all the same: the broker may roll and delete files while the daemon waits.
        held = set((tmp_path / "daemon-hold").iterdir())
        broker.write(900)
        daemon.wait_until(
            lambda: len(set((tmp_path / "daemon-hold").iterdir()) - held) >= 2, "new files are held"
        )
        broker.expire(4)
        s3.proxy.up()
        daemon.wait_archived(broker.physical_offset)
        assert daemon.stop() == 0, daemon.output()
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    assert verdict.in_gaps == 0
    broker.close()


def test_started_again_and_again_on_a_bad_store(tmp_path: Path, s3: FaultyS3) -> None:
    """Faults from the very first request on, the probe's too: each start ends with *unavailable* or gets through."""
    broker = FaultBroker.started(tmp_path / "store", 300)
    daemon = s3.daemon(tmp_path, tmp_path / "store", **{**OBJECTS, "store.attempts": 6})
    s3.proxy.set(*FAULTS["all at once"])
    codes: list[int] = []
    while codes[-1:] != [0]:
        codes.append(daemon.once())
        assert codes[-1] in (0, UNAVAILABLE), daemon.output()
        assert "Traceback" not in daemon.output()
        if len(codes) == 12:
            s3.proxy.set()
    verdict = s3.compare(broker.oracle)
    assert verdict.good, verdict
    assert verdict.readable == 300
    broker.close()


def test_the_server_itself_dies(tmp_path: Path) -> None:
    """kill -9 of the S3 server in the middle of writing; it comes back on the same data."""
    from tests.kit.s3server import versitygw

    with versitygw() as server, faulty_s3(server) as s3:
        broker = FaultBroker.started(tmp_path / "store", 100)
        daemon = s3.daemon(tmp_path, tmp_path / "store", **OBJECTS)
        with daemon.running():
            for _ in range(3):
                broker.write(200)
                broker.clock.wait(0.1)
                server.kill()
                broker.write(100)
                broker.clock.wait(0.2)
                server.start()
            daemon.wait_archived(broker.physical_offset)
            assert daemon.stop() == 0, daemon.output()
        verdict = s3.compare(broker.oracle)
        assert verdict.good, verdict
        assert verdict.readable == 1000
        broker.close()
