"""A real broker stopped, killed and started again beside a daemon that runs, and beside one that does not.

A killed process loses nothing that it stored, for the page cache survives: the archive goes on as if nothing had been. Tests
share one broker and one archive and run in order.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.broker import Broker
from tests.kit.client import read_lines
from tests.kit.daemonproc import Daemon, wait_for
from tests.kit.golden import commitlog_files
from tests.kit.realdaemon import Truth, consume_queues, log_end, record_starts, runtime_info
from tiered.source.life import BrokerLife

pytestmark = pytest.mark.broker

TOPIC = "Restarts"


@pytest.fixture(scope="module")
def truth(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Truth:
    broker.create_topic(TOPIC, queues=4)
    return Truth(broker, f"file://{tmp_path_factory.mktemp('restarts') / 'archive'}")


@pytest.fixture(scope="module")
def daemon(truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Started by the first test; left running from test to test."""
    daemon = Daemon(tmp_path_factory.mktemp("daemon"), truth.broker.store_dir, truth.url)
    yield daemon
    daemon.kill()


def send(truth: Truth, count: int) -> int:
    """Send, and return the log's end."""
    first = len(truth.acknowledged)
    truth.sent(truth.broker.client().run("produce", topic=TOPIC, n=count, first=first, tags="A,B", unicode=1))
    return truth.look()


def untouched(truth: Truth) -> None:
    """No restart made the archive lose, double, close or split anything, and it never left its lineage."""
    truth.prove()
    state = truth.archive().state
    assert (list(state.closed_parts()), list(state.gaps()), list(state.phys_gaps())) == ([], [], [])
    head = state.head()
    assert head is not None
    assert (head.lineage, head.highest_lineage) == (1, 1)
    assert {queue.generation for queue in state.queues()} == {1}


def locked(store: Path) -> bool:
    """Whether another process holds the POSIX lock on the first byte of ``lock``, asked with ``lockf``."""
    with open(store / "lock", "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
        except BlockingIOError:
            return True
        return False


def test_the_broker_shows_its_lives_as_the_source_believes(truth: Truth) -> None:
    """``lock`` is held and written at every start; ``abort`` lies there while the broker runs and after a kill."""
    store, life = truth.broker.store_dir, BrokerLife(str(truth.broker.store_dir))
    send(truth, 1200)
    assert locked(store)
    first, mark = life.start_ms(), life.mark()
    times = [int.from_bytes(commitlog_files(store)[0].read_bytes()[56:64], "big")]
    assert first is not None
    assert first <= times[0]
    assert abs(int(runtime_info(truth.broker)["bootTimestamp"]) - first) < 60_000
    newest, following = commitlog_files(store)[-2:]
    assert any(newest.read_bytes())
    assert not any(following.read_bytes())  # allocated ahead, full length, all zeros
    assert following.stat().st_size == newest.stat().st_size

    end = log_end(truth.broker)
    truth.broker.kill()
    assert (store / "abort").exists()
    assert not locked(store)
    assert life.start_ms() is None
    assert life.mark() == mark
    truth.broker.restart()
    second = life.start_ms()
    assert second is not None
    assert second > first
    assert life.mark().lock != mark.lock
    assert os.stat(store / "lock").st_ino == (mark.lock or (0, 0))[0]  # written in place: only its time tells
    assert log_end(truth.broker) == end
    life.close()


def test_killed_and_restarted_while_the_daemon_runs(truth: Truth, daemon: Daemon) -> None:
    daemon.start()
    first = len(truth.acknowledged)
    load = truth.broker.client().start(
        "produce",
        topic=TOPIC,
        n=3000,
        rate=800,
        first=first,
        tags="A,B",
        unicode=1,
        retry_seconds=60,
        timeout_ms=3000,
    )
    wait_for(lambda: sum(1 for _ in read_lines(load.path)) > 800, "the load half way")
    truth.broker.kill()
    truth.broker.restart()
    done = load.wait()
    truth.sent(done)
    assert done.summary["failed_calls"] > 0  # the kill was felt
    assert done.summary["sent"] == 3000
    daemon.wait_archived(truth.look())
    untouched(truth)
    assert daemon.metric("tiered_rewinds_total") == 0
    assert daemon.said("compared the broker with its archive")


def test_stopped_and_started_cleanly_while_the_daemon_runs(truth: Truth, daemon: Daemon) -> None:
    end = send(truth, 100)
    truth.broker.stop()
    assert not (truth.broker.store_dir / "abort").exists()
    assert BrokerLife(str(truth.broker.store_dir)).start_ms() is None
    daemon.wait_archived(end)
    assert daemon.ready()
    truth.broker.start()
    daemon.wait_archived(send(truth, 200))
    untouched(truth)
    assert daemon.metric("tiered_epoch") == 1
    assert daemon.stop() == 0, daemon.output()


def test_killed_and_stopped_while_the_daemon_is_away(truth: Truth, daemon: Daemon) -> None:
    before = truth.look()
    send(truth, 300)
    truth.broker.kill()
    truth.broker.restart()
    send(truth, 300)
    truth.broker.stop()
    daemon.start()  # beside a broker that does not run
    end = record_starts(truth.broker.store_dir, 1 << 62)[-1]
    assert sum(end) > before
    daemon.wait_archived(sum(end))
    truth.broker.start()
    daemon.wait_archived(send(truth, 100))
    untouched(truth)
    assert daemon.metric("tiered_epoch") == 2
    archived = {
        (queue.queue.topic, queue.queue.queue_id): range(queue.min_offset, queue.max_offset)
        for queue in truth.archive().state.queues()
    }
    assert archived == {
        queue: range(min(units), max(units) + 1)
        for queue, units in consume_queues(truth.broker.store_dir).items()
    }
    assert daemon.stop() == 0, daemon.output()
