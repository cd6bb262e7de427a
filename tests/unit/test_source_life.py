"""Whole records of the broker's former life behind its newest one are not the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.brokerlog import BrokerLog
from tests.kit.tailing import drain, look
from tiered.clock import ManualClock
from tiered.settings import Hold, Source
from tiered.source.base import ReadStatus
from tiered.source.life import BrokerLife
from tiered.source.local import LocalCommitLog


@pytest.fixture
def log(tmp_path: Path) -> BrokerLog:
    return BrokerLog(tmp_path / "store")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source(log: BrokerLog, clock: ManualClock) -> Iterator[LocalCommitLog]:
    opened = LocalCommitLog(Source(store_dir=str(log.store)), Hold(max_disk_percent=99), clock)
    yield opened
    opened.close()


class LiveBroker(BrokerLife):
    """A life whose broker is running: the lock of another process is tested with a real process elsewhere."""

    def _running(self) -> bool:
        return True


def _alive(source: LocalCommitLog, log: BrokerLog) -> None:
    life = LiveBroker(str(log.store))
    source._life = life
    source._newest._life = life
    source._reading._life = life
    source._reading._behind_here._life = life
    source._newest._behind._life = life


def test_leftovers_of_a_former_life_with_equal_sizes_wait_for_the_broker(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    """After power loss the broker cut its log and writes records of equal size over the old ones, which follow seamlessly."""
    log.append_many(20)
    offsets = list(log.records)
    old_end = log.position
    log.cut(offsets[5])
    log.time_ms += 60_000
    log.mark_started(log.time_ms)
    _alive(source, log)
    log.append_many(3)
    found, end, gaps = drain(source, clock)
    assert (found, end, gaps) == (log.records, log.position, [])
    assert source.max_offset() == log.position
    assert end < old_end
    clock.advance(100)
    assert look(source, end).status is ReadStatus.IDLE
    log.append_many(10)
    found, end, _ = drain(source, clock, end)
    assert found == {at: data for at, data in log.records.items() if at >= offsets[8]}
    log.append_many(10)
    found, end, _ = drain(source, clock, end)
    assert end == log.position > old_end
    assert source.max_offset() == log.position


def test_a_new_reader_sees_the_seam_too(log: BrokerLog, source: LocalCommitLog, clock: ManualClock) -> None:
    log.append_many(20)
    log.cut(list(log.records)[5])
    log.time_ms += 60_000
    log.mark_started(log.time_ms)
    log.append_many(3)
    _alive(source, log)
    assert "former run" in look(source, log.position).reason


def test_clock_set_back_is_believed_when_the_log_grows(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.mark_started(log.time_ms)
    _alive(source, log)
    log.append_many(5)
    log.time_ms -= 3_600_000
    seam = log.position
    log.append_many(5)
    _, end, _ = drain(source, clock)
    assert end == seam
    log.append_many(1)
    found, end, _ = drain(source, clock, seam)
    assert end == log.position
    assert found == {at: data for at, data in log.records.items() if at >= seam}


def test_leftovers_behind_garbage_are_no_reason_to_give_up(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(20)
    offsets = list(log.records)
    log.cut(offsets[5])
    log.write(offsets[5], b"\xff" * 20)
    log.time_ms += 60_000
    log.mark_started(log.time_ms)
    _alive(source, log)
    _, end, _ = drain(source, clock)
    assert end == offsets[5]
    for _ in range(3):
        clock.advance(100)
        assert look(source, end).status is ReadStatus.IDLE


@pytest.mark.parametrize("looked_while_dead", [False, True])
def test_the_end_is_not_behind_leftovers_of_a_life_that_broke_off_inside_a_record(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, looked_while_dead: bool
) -> None:
    """The cut record is there by half, whole old ones lie behind it, and somebody looks before the broker writes over them."""
    log.append_many(20)
    offsets = list(log.records)
    drain(source, clock)
    half = len(log.records[offsets[5]]) // 2
    log.cut(offsets[5])
    log.write(offsets[5] + half, bytes(offsets[6] - offsets[5] - half))
    if looked_while_dead:
        for _ in range(3):
            clock.advance(2)
            source.max_offset()
    log.time_ms += 60_000
    log.mark_started(log.time_ms)
    _alive(source, log)
    for _ in range(3):
        clock.advance(2)
        assert source.max_offset() >= offsets[5]
    log.append_many(3)
    drain(source, clock, offsets[5])
    for _ in range(3):
        clock.advance(40)
        assert source.max_offset() == log.position
