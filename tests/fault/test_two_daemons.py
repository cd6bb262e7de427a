"""One writer (S4): two daemons on one local state, two on one archive, one paused while the other takes over."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kit.daemonproc import SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import compare, opened
from tests.kit.process import PATIENCE
from tiered.archive.read.verify import Verifier

REFUSED, FENCED = 3, 7
FOREVER_MS = 3_600_000


class Pair:
    """A broker, one archive, and two daemons with a local state each."""

    def __init__(self, work: Path, *, takeover_wait_ms: int = FOREVER_MS) -> None:
        self.broker = FaultBroker.started(work / "store", 400)
        self.url = f"file://{work / 'archive'}"
        settings = {**SMALL_FLUSHES, "archive.takeover_wait_ms": takeover_wait_ms}
        self.first = Daemon(work, work / "store", self.url, name="first", fork=False, **settings)
        self.second = Daemon(work, work / "store", self.url, name="second", fork=False, **settings)

    def archived_by(self, daemon: Daemon) -> None:
        daemon.wait_archived(self.broker.physical_offset)

    def end(self) -> None:
        self.first.kill()
        self.second.kill()
        self.broker.close()

    def check(self) -> None:
        archive = opened(self.url)
        verdict = compare(archive, self.broker.oracle)
        assert verdict.good, verdict
        assert (verdict.in_gaps, verdict.readable) == (0, verdict.messages)
        report = Verifier(archive).run(deep=True)
        assert report.sound, report.damage


def test_a_second_daemon_on_one_local_state_is_turned_away(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    rival = Daemon(tmp_path, tmp_path / "store", pair.url, name="rival", state=pair.first.state)
    with pair.first.running():
        port = pair.first.port_file.read_text()
        assert rival.once() == REFUSED
        assert rival.said("another daemon is using this state directory")
        assert rival.said(f"process {pair.first.child.pid}")
        assert "Traceback" not in rival.output()
        assert pair.first.port_file.read_text() == port
        pair.broker.write(100)
        pair.archived_by(pair.first)
        assert pair.first.stop() == 0
    pair.check()
    pair.end()


def test_the_second_waits_while_the_first_writes_and_follows_when_it_is_gone(tmp_path: Path) -> None:
    pair = Pair(tmp_path, takeover_wait_ms=5000)
    pair.first.start()
    pair.archived_by(pair.first)
    pair.second.start(ready=False)

    def waits() -> bool:
        """A process takes its time to start, longer than the first may be silent: it writes on meanwhile."""
        pair.broker.write(30)
        pair.archived_by(pair.first)
        return pair.second.said("waiting until it is silent")

    pair.second.wait_until(waits, "the second waits")
    for _ in range(8):
        pair.broker.write(30)
        pair.archived_by(pair.first)
        assert not pair.second.ready()
    pair.first.kill()
    pair.second.wait_until(pair.second.ready, "the second took over")
    pair.broker.write(100)
    pair.archived_by(pair.second)
    assert pair.second.status()["epoch"] == 2
    assert pair.second.stop() == 0
    pair.check()
    pair.end()


def test_a_restart_of_the_same_writer_does_not_wait(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    with pair.first.running():
        pair.archived_by(pair.first)
        pair.first.kill()
    with pair.first.running():
        assert pair.first.status()["epoch"] == 2
        assert not pair.first.said("waiting until it is silent")
    pair.check()
    pair.end()


def test_the_fenced_one_dies_and_stays_down_until_told(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.first.start()
    pair.archived_by(pair.first)
    pair.second.start("--take-over")
    pair.broker.write(200)
    assert pair.first.wait() == FENCED, pair.first.output()
    assert pair.first.said("another writer took this archive over")
    assert "Traceback" not in pair.first.output()
    pair.archived_by(pair.second)
    pair.check()
    assert pair.first.once() == FENCED
    assert pair.first.said("--take-over")
    pair.broker.write(50)
    pair.archived_by(pair.second)
    pair.first.start("--take-over")
    pair.broker.write(200)
    assert pair.second.wait() == FENCED, pair.second.output()
    pair.archived_by(pair.first)
    assert pair.first.status()["epoch"] == 3
    assert pair.first.stop() == 0
    pair.check()
    assert pair.first.once() == 0  # the order to take over is spent, the fence forgotten
    pair.check()
    pair.end()


def test_stopped_over_a_take_over_the_first_wakes_fenced(tmp_path: Path) -> None:
    """SIGSTOP in the middle of writing, three times, turn by turn."""
    pair = Pair(tmp_path)
    owner, other = pair.first.start(), pair.second
    for turn in range(3):
        pair.broker.write(300)
        before = owner.status()["seq"]
        owner.wait_until(lambda o=owner, b=before: o.status()["seq"] > b, "commits flow")  # type: ignore[misc]
        owner.pause()
        pair.broker.write(150)
        other.start("--take-over")
        pair.broker.write(150)
        pair.archived_by(other)
        pair.check()
        owner.resume()
        pair.broker.write(100)
        assert owner.wait() == FENCED, owner.output()
        pair.archived_by(other)
        pair.check()
        assert other.status()["epoch"] == turn + 2
        owner, other = other, owner
    assert owner.stop() == 0
    pair.check()
    pair.end()


def test_both_take_over_at_once_and_one_is_left(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.first.start("--take-over", ready=False)
    pair.second.start("--take-over", ready=False)
    winner = None
    for _ in range(200 * PATIENCE):
        pair.broker.write(10)
        alive = [d for d in (pair.first, pair.second) if d.alive]
        if len(alive) == 1 and alive[0].ready():
            winner = alive[0]
            break
        pair.broker.clock.wait(0.05)
    assert winner is not None, pair.first.output() + pair.second.output()
    loser = pair.second if winner is pair.first else pair.first
    assert loser.wait() == FENCED
    pair.archived_by(winner)
    assert winner.stop() == 0
    pair.check()
    pair.end()


def test_a_command_is_refused_beside_an_idle_daemon_which_knows_when_it_was_fenced(tmp_path: Path) -> None:
    """And behind one that ended in order nobody waits."""
    pair = Pair(tmp_path, takeover_wait_ms=9000)
    pair.first.start()
    pair.archived_by(pair.first)
    began = time.monotonic()
    pair.first.wait_until(
        lambda: time.monotonic() - began > 10, "idle for longer than a dead one counts as gone"
    )
    assert pair.second.once() == REFUSED, pair.second.output()
    assert pair.second.said("another writer of this archive was seen alive")
    assert pair.second.said("last_sign")
    assert pair.first.ready()
    assert pair.first.stop() == 0
    pair.second.settings["archive.takeover_wait_ms"] = FOREVER_MS
    assert pair.second.once() == 0, pair.second.output()
    pair.first.start()
    assert pair.second.once("--take-over") == 0
    assert pair.first.wait() == FENCED, "an idle one looks, too"
    pair.first.start(ready=False)  # as a supervisor does
    pair.first.wait_until(lambda: pair.first.metric("tiered_fenced") == 1, "it says that it is fenced")
    code, said = pair.first.ask("/readyz")
    assert (code, b"this daemon was fenced" in said, b"host=" in said) == (503, True, True)
    assert pair.first.ask("/healthz")[0] == 200
    assert pair.first.stop() == 0
    pair.check()
    pair.end()
