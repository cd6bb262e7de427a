"""Damage that hides what lies behind it: zeros, short files and missing ones end as recorded gaps, and the rest is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.brokerlog import BrokerLog
from tests.kit.tailing import bytes_of, drain, look, settled
from tiered.clock import ManualClock
from tiered.model import PhysicalOffset
from tiered.settings import Hold, Source
from tiered.source.base import Chunk, ReadStatus
from tiered.source.life import BrokerLife
from tiered.source.local import LocalCommitLog

WAIT_SECONDS = 31.0


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


def patiently(
    source: LocalCommitLog, clock: ManualClock, start: int = 0
) -> tuple[dict[int, bytes], int, list[Chunk]]:
    """Everything that is read, where reading ends for good, and the gaps, as long as it takes."""
    found: dict[int, bytes] = {}
    gaps: list[Chunk] = []
    position, idle = start, 0
    while idle < 100:
        chunk = look(source, position)
        if chunk.status is ReadStatus.IDLE:
            idle += 1
            clock.advance(1)
            continue
        if chunk.status is ReadStatus.GAP:
            gaps.append(chunk)
        else:
            found |= bytes_of(source, chunk)
        position, idle = chunk.next_offset, 0
    return found, position, gaps


def torn_into_properties(log: BrokerLog) -> tuple[int, int]:
    """Records with properties, and zeros from the middle of one's properties on; where those begin."""
    log.append_many(4)
    torn = log.position
    log.append(b"body", properties=b"KEYS\x01" + b"k" * 200 + b"\x02")
    cut = log.position - 100
    log.append_many(4)
    behind = log.position
    log.write(cut, bytes(behind - cut))
    for at in [at for at in log.records if torn <= at < behind]:
        del log.records[at]
    log.append_many(3)
    return torn, behind


@pytest.mark.parametrize("later_file", [False, True])
def test_zeros_that_begin_inside_properties(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, later_file: bool
) -> None:
    torn, behind = torn_into_properties(log)
    if later_file:
        log.append_many(60)
    end = log.position
    settled(source, clock, torn)
    waiting = source.waiting
    if not later_file:
        assert waiting is not None
        assert (waiting.position, waiting.problem) == (torn, None)
        assert "end in zeros" in waiting.reason
    assert source.max_offset() == end, "what lies behind the damage is not archived either"
    found, position, gaps = patiently(source, clock)
    assert [(g.start, g.next_offset) for g in gaps] == [(torn, behind)]
    assert "corrupt: topic or properties of the record end in zeros" in gaps[0].reason
    assert (found, position) == (log.records, end)
    assert source.waiting is None


def spoilt(log: BrokerLog, *rows: int) -> list[int]:
    """Records that are none any more; where they were."""
    offsets = list(log.records)
    for row in rows:
        log.write(offsets[row] + 4, b"\xde\xad\xbe\xef")
        del log.records[offsets[row]]
    return [offsets[row] for row in rows]


def test_nothing_is_waited_for_in_a_file_that_the_broker_has_left(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.time_ms = clock.now_ms()
    log.append_many(60)
    bad = spoilt(log, 3, 4, 9, 12)
    began = clock.monotonic()
    found, _, gaps = drain(source, clock)
    assert [g.start for g in gaps] == [bad[0], bad[2], bad[3]]
    assert found == log.records
    assert clock.monotonic() - began < WAIT_SECONDS, "of looks that settle, one for each chunk"


@pytest.mark.parametrize("running", [False, True])
def test_bad_records_of_the_newest_file_do_not_wait_one_after_another(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, running: bool
) -> None:
    """They wait until a broker that runs has stored what lies behind them for so long, or nobody has written the file since."""
    monkeypatch.setattr(BrokerLife, "_running", lambda life: running)
    log.mark_started(clock.now_ms())
    log.time_ms = clock.now_ms()
    log.append_many(15)
    bad = spoilt(log, 3, 6, 9, 12)
    wrote = clock.now_ms() / 1000
    os.utime(log.path(0), (wrote, wrote))
    assert look(source, bad[0]).status is ReadStatus.IDLE
    clock.advance(WAIT_SECONDS)
    if running:
        os.utime(log.path(0), (clock.now_ms() / 1000,) * 2)
    began = clock.monotonic()
    found, _, gaps = drain(source, clock)
    assert [g.start for g in gaps] == bad
    assert found == log.records
    assert clock.monotonic() - began < WAIT_SECONDS


def test_zeros_between_records_of_the_newest_file(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(12)
    offsets = list(log.records)
    log.write(offsets[4], bytes(offsets[7] - offsets[4]))
    for at in offsets[4:7]:
        del log.records[at]
    found, position, gaps = patiently(source, clock)
    assert [(g.start, g.next_offset) for g in gaps] == [(offsets[4], offsets[7])]
    assert (found, position) == (log.records, log.position)


def test_zeros_at_the_tail_are_no_damage_and_cost_a_bounded_number_of_looks(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append_many(3)
    drain(source, clock)
    looks: list[int] = []
    find = source._reading._behind_here.find
    monkeypatch.setattr(
        source._reading._behind_here, "find", lambda *place: looks.append(place[2]) or find(*place)
    )
    for _ in range(6000):  # ten minutes
        clock.advance(0.1)
        assert look(source, log.position).reason == ""
    assert 1 < len(looks) < 30
    assert source.waiting is None


def test_a_newest_file_whose_first_page_is_zeros(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.ahead = True
    log.append_many(60)
    newest = log.position // log.file_bytes * log.file_bytes
    inside = [at for at in log.records if at >= newest]
    log.write(newest, bytes(inside[2] - newest))
    for at in inside[:2]:
        del log.records[at]
    found, position, gaps = patiently(source, clock)
    assert [(g.start, g.next_offset) for g in gaps] == [(newest, inside[2])]
    assert (found, position) == (log.records, log.position)


def test_a_whole_file_of_zeros_between_two(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(140)
    log.write(4096, bytes(4096))
    log.records = {at: data for at, data in log.records.items() if not 4096 <= at < 8192}
    found, position, gaps = patiently(source, clock)
    assert [(g.start, g.next_offset) for g in gaps] == [(4096, 8192)]
    assert (found, position) == (log.records, log.position)


@pytest.mark.parametrize("base", [0, 4096])
@pytest.mark.parametrize("left", [0, 100, 2000, 3978])
def test_a_file_that_became_short(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, base: int, left: int
) -> None:
    """Its good half is read; the rest is a gap up to the next file."""
    log.append_many(140)
    os.truncate(log.path(base), left)
    kept = {
        at: data
        for at, data in log.records.items()
        if not base <= at < base + 4096 or at + len(data) <= base + left
    }
    first_lost = max(
        [base, *(at + len(data) for at, data in kept.items() if at < base + 4096 and at >= base)]
    )
    found, position, gaps = patiently(source, clock)
    assert [(g.start, g.next_offset) for g in gaps] == [(first_lost, base + 4096)]
    assert gaps[0].reason.startswith("corrupt: ")
    assert (found, position) == (kept, log.position)


def test_a_newest_file_that_became_short_is_read_and_named(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(80)
    newest = log.position // log.file_bytes * log.file_bytes
    cut = [at for at in log.records if at > newest][3] + 20
    os.truncate(log.path(newest), cut - newest)
    log.records = {at: data for at, data in log.records.items() if at + len(data) <= cut}
    found, position, gaps = patiently(source, clock)
    assert (found, gaps) == (log.records, [])
    assert source.waiting is not None
    assert "bytes are left" in source.waiting.reason
    assert source.missing_at(PhysicalOffset(position)) == newest + 4096 - cut
    assert source.max_offset() == cut, "what is written and cannot be read is not archived"
    os.truncate(log.path(newest), position - newest)
    clock.advance(WAIT_SECONDS)
    assert "lacks its last" in look(source, position).reason


def test_a_missing_file_is_waited_for_and_then_a_gap(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(140)
    held_back = log.path(4096).rename(log.store / "held back")
    _, position, gaps = drain(source, clock)
    assert (position, gaps) == (4096, []), "it may come back"
    assert source.waiting is not None
    assert source.waiting.reason == "unreadable: the commitlog file is missing"
    held_back.rename(log.path(4096))
    clock.advance(2)
    assert look(source, 4096).status is ReadStatus.RECORDS
    held_back = log.path(8192).rename(log.store / "held back")
    found, position, gaps = patiently(source, clock)
    assert [(g.start, g.next_offset, g.reason) for g in gaps] == [
        (8192, 12288, "corrupt: the commitlog file is missing")
    ]
    assert position == log.position
    assert found == {at: data for at, data in log.records.items() if not 8192 <= at < 12288}


def test_two_damaged_places_in_the_newest_file_of_a_running_broker(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records between them are older than the broker's start: what proves them is the newest, behind both."""
    monkeypatch.setattr(BrokerLife, "_running", lambda life: True)
    log.append_many(10)
    log.time_ms += 60_000
    log.mark_started(log.time_ms)
    log.append_many(2)
    offsets = list(log.records)
    for row in (3, 6):
        log.write(offsets[row] + 4, b"\xde\xad\xbe\xef")
        del log.records[offsets[row]]
    found, position, gaps = patiently(source, clock)
    assert [g.start for g in gaps] == [offsets[3], offsets[6]]
    assert (found, position) == (log.records, log.position)


def test_the_end_lies_behind_what_cannot_be_read(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(20)
    bad = list(log.records)[8]
    log.write(bad + 4, b"\xde\xad\xbe\xef")
    assert source.max_offset() == log.position
    log.append_many(5)
    assert source.max_offset() == log.position


def test_a_record_that_is_completed_when_it_is_about_to_be_given_up_is_read(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append_many(2)
    late = log.position
    log.append(b"b" * 300)
    size = log.position - late
    ending = log.records[late][-10:]
    log.append_many(2)
    log.write(late + size - 10, bytes(10))
    assert look(source, late, max_records=1).status is ReadStatus.IDLE
    patience = source._reading._patience
    over = patience.over

    def broker_writes_now(*arguments: Any, **named: Any) -> bool:
        log.write(late + size - 10, ending)
        return over(*arguments, **named)

    monkeypatch.setattr(patience, "over", broker_writes_now)
    clock.advance(WAIT_SECONDS)
    assert look(source, late, max_records=1).status is ReadStatus.IDLE
    found, _, gaps = patiently(source, clock, late)
    assert (found, gaps) == ({at: raw for at, raw in log.records.items() if at >= late}, [])


def test_a_record_whose_last_bytes_look_like_a_magic_is_behind_another(
    log: BrokerLog, source: LocalCommitLog
) -> None:
    log.append(b"body", properties=b"KEYS\x01" + b"k" * 40 + b"\xda\xa3\x20")
    (file,) = source._catalog.table(force=True).files
    assert source._reading._chain.time_before(file, log.position) == log.time_ms
