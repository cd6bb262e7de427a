"""A record above the limit is no damage: the broker is asked, and else an operator is told; it becomes no gap by itself."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import assemble, live_rows, memory
from tests.kit.brokerlog import BrokerLog
from tests.kit.pipeline import Crafted
from tests.kit.tailing import drain, look
from tiered.clock import ManualClock
from tiered.daemon.askbroker import ask_broker
from tiered.daemon.once import PresentEnd
from tiered.errors import Corrupt, Invalid
from tiered.model import MessageQueue, PhysicalOffset
from tiered.settings import MIB, Hold, Replay, Source
from tiered.source.base import ReadStatus
from tiered.source.limit import LARGEST_RECORD_BYTES
from tiered.source.local import LocalCommitLog
from tiered.source.walk import WALK_BYTES

LIMIT = 64 * 1024
LARGE = WALK_BYTES + 100_000


@pytest.fixture
def log(tmp_path: Path) -> BrokerLog:
    """Small records, a large one, and small ones behind it."""
    made = BrokerLog(tmp_path / "store", file_bytes=16 * MIB)
    made.append_many(3)
    made.append(os.urandom(LARGE), properties=b"KEYS\x01large\x02", born_v6=True)
    made.append_many(3)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def accepted() -> list[int | None]:
    """What the broker will say of its ``maxMessageSize``; questions take from it."""
    return []


@pytest.fixture
def source(log: BrokerLog, clock: ManualClock, accepted: list[int | None]) -> Iterator[LocalCommitLog]:
    opened = LocalCommitLog(
        Source(store_dir=str(log.store), max_record_bytes=LIMIT),
        Hold(max_disk_percent=99),
        clock,
        ask_broker=lambda: accepted.pop(0) if accepted else None,
    )
    yield opened
    opened.close()


def large_at(log: BrokerLog) -> int:
    return list(log.records)[3]


def test_it_is_waited_at_and_named(log: BrokerLog, source: LocalCommitLog, clock: ManualClock) -> None:
    found, position, gaps = drain(source, clock)
    assert (len(found), position, gaps) == (3, large_at(log), [])
    for _ in range(100):
        clock.advance(60)
        assert look(source, position).status is ReadStatus.IDLE
    waiting = source.waiting
    assert waiting is not None
    assert isinstance(waiting.problem, Invalid)
    size = len(log.records[position])
    assert waiting.problem.fields["key"] == "source.max_record_bytes"
    assert (waiting.problem.fields["value"], waiting.problem.fields["found"]) == (LIMIT, size)
    assert f"set source.max_record_bytes to {size} or more" in str(waiting.problem)
    assert clock.monotonic() - waiting.since >= 6000
    assert source.max_offset() == log.position
    end = PresentEnd(source, clock, source.max_offset())
    assert end.done(waiting.position, waiting.reason), "--once ends there"
    assert end.verdict() is waiting.problem


def test_once_ends_at_one_right_behind_damage(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    bad, large = list(log.records)[2:4]
    log.write(bad + 4, b"\xde\xad\xbe\xef")
    end = PresentEnd(source, clock, source.max_offset())
    end.gap(PhysicalOffset(bad), PhysicalOffset(large), "corrupt: unknown magic")
    idle = look(source, large)
    assert end.done(idle.start, idle.reason)
    assert isinstance(verdict := end.verdict(), Corrupt)
    assert "larger than source.max_record_bytes" in str(verdict.fields["ends"])


def test_what_the_broker_accepts_is_archived(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, accepted: list[int | None]
) -> None:
    accepted += [None, LARGE]  # not reachable at first
    _, position, _ = drain(source, clock)
    clock.advance(60)
    look(source, position)
    found, position, gaps = drain(source, clock, position)
    assert (position, gaps) == (log.position, [])
    assert found == {at: data for at, data in log.records.items() if at >= large_at(log)}
    assert source.waiting is None


@pytest.mark.parametrize("broken", ["body", "properties length", "cut"])
def test_one_that_is_not_whole_is_damage(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, broken: str
) -> None:
    at, end = large_at(log), list(log.records)[4]
    places = {"body": at + LARGE // 2, "properties length": end - 12 - 2, "cut": end - 10_000}
    log.write(places[broken], bytes(end - places[broken]) if broken == "cut" else b"\xff\xfe")
    _, position, _ = drain(source, clock)
    clock.advance(31)
    gap = look(source, position)
    assert (gap.status, gap.start, gap.next_offset) == (ReadStatus.GAP, at, end)


def test_one_beyond_every_setting_is_no_gap_either(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.source.limit.LARGEST_RECORD_BYTES", 100_000)
    log = BrokerLog(tmp_path / "store", file_bytes=1 * MIB)
    log.append(bytes(200_000))
    log.append(b"behind")
    settings = Source(store_dir=str(log.store), max_record_bytes=LIMIT)
    source = LocalCommitLog(settings, Hold(max_disk_percent=99), clock, ask_broker=lambda: 1 << 40)
    for _ in range(3):
        assert look(source, 0).status is ReadStatus.IDLE
        clock.advance(3600)
    assert source.waiting is not None
    assert "no setting allows more than" in str(source.waiting.problem)
    source.close()


def test_a_large_record_goes_through_and_its_memory_is_given_back(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Larger than a flush, a block and an object are meant to be."""
    monkeypatch.setattr("tiered.source.walk._KEPT_BYTES", 1 * MIB)
    broker = Crafted(tmp_path / "store", file_bytes=16 * MIB)
    body = os.urandom(LARGE)
    for number in range(3):
        broker.send(body=b"%d" % number)
    broker.send(body=body)
    broker.send(body=b"behind")
    one = assemble(
        broker.store, memory(clock), clock,
        source={"max_record_bytes": 2 * LARGE},
        dispatch={"group_commit_bytes": 65_536, "block_bytes": 4096, "object_bytes": 65_536, "inline_bytes": 4096},
    )  # fmt: skip
    one.settle(seconds=3)
    rows = live_rows(one.state, one.objects)[MessageQueue("Orders", 0)]
    assert [raw for _, _, raw in rows] == [raw for _, raw in broker.sent]
    for number in range(10):
        broker.send(body=b"%d" % number)
        one.settle(seconds=3)
    kept = [len(copy.memory) for copy in one.preparer._copies] + [len(m) for m in one.preparer._spare.pieces]
    assert max(kept) < 1 * MIB
    assert len(one.source._reading._window._buffer) < 1 * MIB
    one.close()


def test_nobody_at_the_brokers_address_is_no_error(clock: ManualClock) -> None:
    assert ask_broker(Replay(broker_address="127.0.0.1:1"), clock)() is None


def test_sizes_that_a_setting_may_have() -> None:
    assert Source(max_record_bytes=LARGEST_RECORD_BYTES).max_record_bytes == LARGEST_RECORD_BYTES
    with pytest.raises(Invalid, match=r"source\.max_record_bytes"):
        Source(max_record_bytes=LARGEST_RECORD_BYTES + 1)


def test_the_pieces_of_a_large_record_are_read_as_any_other(tmp_path: Path, clock: ManualClock) -> None:
    """Both kinds of host, both versions of the topic's length: what is whole for one look is whole for the other."""
    log = BrokerLog(tmp_path / "store", file_bytes=1 * MIB)
    log.append(os.urandom(70_000), born_v6=True, properties=b"A\x01b\x02")
    log.append(os.urandom(70_000))
    source = LocalCommitLog(
        Source(store_dir=str(log.store), max_record_bytes=1024), Hold(max_disk_percent=99), clock
    )
    (file,) = source.files()
    for at in log.records:
        assert source._chain.whole(file, at)
    log.write(4, struct.pack(">I", 0xDAA320AB))  # says that the topic's length takes two bytes
    assert not source._chain.whole(file, 0)
    source.close()
