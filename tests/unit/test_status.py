"""What the daemon says of itself: lag, status, counters, log lines, and when it saves the fold."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kit.assemble import KEYS, Assembly, Counting, Heard, assemble, memory
from tests.kit.pipeline import Crafted
from tiered.archive.checkpoint.store import Manifest, newest_checkpoint
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.daemon.checkpointer import Checkpointer
from tiered.daemon.observer import Observer, let_go
from tiered.daemon.status import KEPT_COMMITS, Names, ProcessTotals, Reporter, Workers, set_gauges
from tiered.errors import Conflict, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.metrics import Metrics
from tiered.model import ByteRange, PhysicalOffset
from tiered.opening.lineage import BrokerComparison, Relation
from tiered.settings import KIB, MIB, Archive


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    return Crafted(tmp_path / "store", file_bytes=1 << 20)


@pytest.fixture
def clock(broker: Crafted) -> ManualClock:
    return ManualClock(broker.time_ms + 60_000)


@pytest.fixture
def store(clock: ManualClock) -> Counting:
    return memory(clock)


@pytest.fixture
def daemon(broker: Crafted, store: Counting, clock: ManualClock) -> Iterator[Assembly]:
    for _ in range(10):
        broker.send()
    made = assemble(broker.store, store, clock)
    yield made
    made.close()


def reporter(daemon: Assembly) -> Reporter:
    totals = ProcessTotals()
    daemon.heard.and_then = totals.count
    names = Names("c", "b", daemon.provider.url)
    made = Reporter(daemon.log, daemon.source, daemon.clock, names, totals)
    made.set_workers(Workers(daemon.dispatcher, daemon.line))
    return made


def test_lag_is_the_local_end_minus_what_is_proven(
    daemon: Assembly, broker: Crafted, clock: ManualClock
) -> None:
    says = reporter(daemon)
    lag = says.lag()
    assert lag.bytes == broker.position
    assert lag.messages == 1, "nothing read yet: estimated at 1 KiB each"
    assert lag.seconds == 60.0, "age of the oldest record that is not proven"
    daemon.dispatcher.step()
    assert says.lag().messages >= 9, "read, so counted"
    assert says.lag().bytes == broker.position, "and still not proven"
    daemon.settle()
    assert (says.lag().bytes, says.lag().messages, says.lag().seconds) == (0, 0, 0.0)
    broker.send(body=bytes(100))
    at = clock.now_ms()
    assert says.lag().bytes == len(broker.sent[-1][1])
    assert says.lag().messages == 2, "by the mean of what was archived so far, rounded up"
    assert says.lag().seconds == (at - broker.time_ms) / 1000


def test_a_stuck_committer_shows_as_lag(daemon: Assembly, broker: Crafted, store: Counting) -> None:
    """No worker's own idea of its progress takes part."""
    says = reporter(daemon)
    while not daemon.line.pending()[0]:
        daemon.clock.advance(max(daemon.dispatcher.step(), 0.1))
    assert daemon.dispatcher.position == daemon.dispatcher.position
    assert says.lag().bytes == broker.position
    status = says.status()
    assert status["dispatch_offset"] == daemon.dispatcher.position
    assert status["proven_offset"] == 0
    assert status["in_flight_bytes"] == daemon.line.pending()[1] > 0


def test_store_times_of_ipv6_records(tmp_path: Path, store: Counting, clock: ManualClock) -> None:
    broker = Crafted(tmp_path / "v6", file_bytes=1 << 20)
    broker.send(born_host="[::1]:7", store_timestamp=clock.now_ms() - 5000)
    made = assemble(broker.store, store, clock)
    assert reporter(made).lag().seconds == 5.0
    made.close()


def test_the_status_document(daemon: Assembly, broker: Crafted) -> None:
    says = reporter(daemon)
    daemon.settle()
    head = daemon.state.head()
    assert head is not None
    status = says.status()
    assert status["messages"] == 10
    assert says.status(count=False)["messages"] == 10, "as last counted"
    assert reporter(daemon).status(count=False)["messages"] is None, "never counted"
    assert status["since_start"] == {
        "messages": 10, "bytes": broker.position, "commits": 1, "last_commit_ms": status["since_start"]["last_commit_ms"],  # type: ignore[index]
    }  # fmt: skip
    assert status["lag"] == {"bytes": 0, "messages": 0, "seconds": 0.0}
    assert (status["seq"], status["epoch"], status["lineage"]) == (head.seq, 1, 1)
    assert status["local_end"] == status["proven_offset"] == status["dispatch_offset"] == broker.position
    assert status["buffer"] == {"bytes": 0, "messages": 0}
    broker.send()
    daemon.settle()
    assert says.status()["messages"] == 11, "counted on without another walk over all queues"


def test_a_walk_over_all_queues_is_followed_by_a_rest(
    daemon: Assembly, broker: Crafted, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    says, frozen, walks = reporter(daemon), daemon.log.frozen, []

    def slow() -> ArchiveState:
        walks.append(clock.monotonic())
        clock.wait(10.0)
        return frozen()

    monkeypatch.setattr(daemon.log, "frozen", slow)
    for number in range(30):
        daemon.settle()
        assert says.status()["messages"] == 10 + number, "also what no walk has seen yet"
        broker.send(queue_id=number % 3)
        clock.wait(1.0)
    assert len(walks) == 2
    assert walks[1] - walks[0] > 500, "fifty times as long as it took"


def test_what_was_proven_too_many_commits_ago_is_counted_anew() -> None:
    totals = ProcessTotals()
    assert totals.behind(7) == 0
    for seq in range(KEPT_COMMITS + 2):
        flush = SimpleNamespace(messages=2, raw_bytes=1)
        totals.count(
            SimpleNamespace(
                flush=flush, commit=SimpleNamespace(commit=SimpleNamespace(seq=seq)), store_time_ms=0
            )
        )  # type: ignore[arg-type]
    assert totals.behind(0) is None
    assert totals.behind(KEPT_COMMITS) == 2
    assert totals.behind(10) == 2 * (KEPT_COMMITS - 9)


def test_a_reporter_of_a_daemon_that_is_still_opening(daemon: Assembly) -> None:
    says = Reporter(daemon.log, daemon.source, daemon.clock, Names("c", "b", "memory://"), ProcessTotals())
    status = says.status()
    assert status["dispatch_offset"] is None
    assert status["buffer"] == {"bytes": 0, "messages": 0}


def test_gauges(daemon: Assembly, broker: Crafted) -> None:
    metrics = Metrics()
    says = reporter(daemon)
    daemon.dispatcher.step()
    set_gauges(metrics, says.look())
    text = metrics.expose().decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    by_suffix = {name: float(value) for name, value in values.items()}
    assert float(broker.position) in by_suffix.values()
    assert any("lag_bytes" in name and value == broker.position for name, value in by_suffix.items())
    assert any("buffer_messages" in name and value == 9 for name, value in by_suffix.items())


def test_what_happens_is_counted_and_said(daemon: Assembly, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    logger = logging.getLogger("tiered.test.observer")
    logger.setLevel(logging.DEBUG)
    observer = Observer(metrics, logger, daemon.clock, ProcessTotals())
    here = PhysicalOffset(5)
    with caplog.at_level(logging.DEBUG, "tiered.test.observer"):
        observer.compared(BrokerComparison(Relation.SAME, here), 1)
        observer.rewound(BrokerComparison(Relation.REWIND, here), 7)
        observer.compared(BrokerComparison(Relation.SAME, here, reason="nothing could be compared"), 1)
        observer.compared(BrokerComparison(Relation.REWIND, here, reason="the broker lost its tail"), 1)
        let_go(ByteRange(0, 10))
        away = Unavailable("away")
        observer.resending(away, away, 0.0)
        observer.gap(PhysicalOffset(5), PhysicalOffset(25), "deleted")
        observer.changed("rewritten")
        daemon.heard.and_then = observer.proven
        daemon.settle()
    lines = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert ("WARNING", "the broker lost its tail: rewound") in lines
    compared = [level for level, text in lines if text == "compared the broker with its archive"]
    assert compared == ["INFO", "INFO", "WARNING"]
    assert any(level == "ERROR" and "over its budget" in text for level, text in lines)
    assert any(level == "ERROR" and "recorded as a gap" in text for level, text in lines)
    assert ("DEBUG", "commit proven") in lines
    values = {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
        for line in metrics.expose().decode().splitlines()
        if not line.startswith("#")
    }

    def value(part: str) -> float:
        return next(v for name, v in values.items() if part in name and "created" not in name)

    assert value("rewinds_total") == 1
    assert value("resends_total") == 1
    assert value("gap_bytes_total") == 20
    assert value("messages_total") == 10
    assert value("commits_total") == 1
    assert observer.totals.counted.messages == 10


# ---- checkpoints


IDS = itertools.count(1)


def checkpointer(
    daemon: Assembly, written: list[Manifest], *, commits: int, seconds: int = 3600, edit_bytes: int = MIB
) -> Checkpointer:
    return Checkpointer(
        daemon.log,
        Archive(
            checkpoint_commits=commits,
            checkpoint_interval_ms=seconds * 1000,
            checkpoint_edit_bytes=edit_bytes,
        ),
        daemon.clock,
        lambda n: next(IDS).to_bytes(n, "big"),
        shadow=MemoryStore(),
        events=Heard(checkpoints=written),
        own_keys=OwnKeys(),
    )


def saved(saves: Checkpointer) -> bool:
    """One more commit, and whether a checkpoint came of it."""
    saves.count()
    return saves.step()


def flush(daemon: Assembly, broker: Crafted) -> None:
    broker.send()
    before = len(daemon.proven)
    while len(daemon.proven) == before:
        daemon.clock.advance(max(daemon.step(), 0.05))


def test_commits_that_no_checkpoint_holds_are_told_after_a_few_intervals(
    daemon: Assembly, broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock: ManualClock = daemon.clock
    saves = checkpointer(daemon, [], commits=1000, seconds=10)
    flush(daemon, broker)
    assert not saved(saves)
    clock.advance(9)
    assert (saves.unsaved_seconds(), saves.standstill()) == (pytest.approx(9), None)
    clock.advance(2)
    monkeypatch.setattr(saves, "_save", failing(Unavailable("the store is full")))
    for _ in range(3):
        with pytest.raises(Unavailable):
            saved(saves)
        clock.advance(11)
    assert "the store is full" in str(saves.standstill())
    monkeypatch.setattr(saves, "_save", failing(Conflict("taken")))
    assert not saved(saves)
    assert "taken" in str(saves.standstill())
    with saves._writing:
        assert "one is being made" in str(saves.standstill())
    monkeypatch.undo()
    clock.advance(11)
    assert saved(saves)
    assert (saves.unsaved_seconds(), saves.standstill()) == (0, None)


def failing(error: Exception) -> Callable[..., Manifest]:
    def work(*_: object) -> Manifest:
        raise error

    return work


def test_a_checkpoint_every_so_many_commits(daemon: Assembly, broker: Crafted) -> None:
    written: list[Manifest] = []
    saves = checkpointer(daemon, written, commits=3)
    for _ in range(10):
        flush(daemon, broker)
        saved(saves)
    seqs = [m.seq for m in written]
    assert seqs[0] <= 3
    assert seqs[1:] == list(range(seqs[0] + 3, seqs[0] + 3 * len(seqs), 3)), "every third from the first on"
    assert len(seqs) > 3
    newest = newest_checkpoint(daemon.provider, KEYS)
    assert newest == written[-1]


def test_commits_that_earlier_processes_left_behind_the_checkpoint_count(
    daemon: Assembly, broker: Crafted
) -> None:
    written: list[Manifest] = []
    saves = checkpointer(daemon, written, commits=1)
    flush(daemon, broker)
    assert saved(saves) is True
    for _ in range(4):  # processes that never come to a fifth commit
        flush(daemon, broker)
        saved(checkpointer(daemon, written, commits=5))
    assert len(written) == 1
    flush(daemon, broker)
    assert saved(checkpointer(daemon, written, commits=5)) is True
    assert written[1].seq == written[0].seq + 5


def test_a_checkpoint_after_so_many_bytes_of_edits(daemon: Assembly, broker: Crafted) -> None:
    written: list[Manifest] = []
    saves = checkpointer(daemon, written, commits=1000, edit_bytes=64 * KIB)
    flush(daemon, broker)
    assert saved(saves) is False
    one = daemon.log.edit_bytes
    assert 100 < one < 10_000, "what this process proved"
    daemon.log.edit_bytes += 64 * KIB
    assert saved(saves) is True
    flush(daemon, broker)
    assert saved(saves) is False, "counted from the checkpoint on"


def test_a_checkpoint_after_some_time_with_commits(daemon: Assembly, broker: Crafted) -> None:
    written: list[Manifest] = []
    saves = checkpointer(daemon, written, commits=1000, seconds=60)
    flush(daemon, broker)
    assert saved(saves) is False
    daemon.clock.advance(61)
    assert saves.step() is True, "the commit waited long enough, and needs no other"
    daemon.clock.advance(61)
    assert saves.step() is False, "never without commits"
    flush(daemon, broker)
    assert saved(saves) is True
    assert len(written) == 2


def test_a_checkpoint_that_somebody_else_damaged_is_left_alone(daemon: Assembly, broker: Crafted) -> None:
    written: list[Manifest] = []
    saves = checkpointer(daemon, written, commits=1)
    flush(daemon, broker)
    head = daemon.state.head()
    assert head is not None
    theirs = b'{"not": "ours"}'
    daemon.provider.put(KEYS.checkpoint(head.seq), [theirs])
    assert saved(saves) is False
    assert daemon.provider.get(KEYS.checkpoint(head.seq)).data == theirs
    flush(daemon, broker)
    assert saved(saves) is True, "and the next one is written"


def test_a_checkpoint_that_the_store_refuses_is_tried_at_the_next_commits(
    daemon: Assembly, broker: Crafted, store: Counting
) -> None:
    written: list[Manifest] = []
    saves = checkpointer(daemon, written, commits=1)
    flush(daemon, broker)
    store.say("ok", Unavailable("away"))
    with pytest.raises(Unavailable):
        saved(saves)
    assert written == []
    store._script.clear()
    flush(daemon, broker)
    assert saved(saves) is True
    assert len(written) == 1
