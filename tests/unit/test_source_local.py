"""The tail of one broker's commitlog: what is handed out, what is waited for, and what is given up."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import golden
from tests.kit.brokerlog import BLANK, BrokerLog, record
from tests.kit.tailing import bytes_of, drain, look, settled
from tiered.clock import ManualClock
from tiered.errors import Corrupt, NotFound
from tiered.model import PhysicalOffset
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


def test_empty_store_is_waited_for(source: LocalCommitLog) -> None:
    assert look(source, 0).status is ReadStatus.IDLE
    assert source.max_offset() == 0
    assert source.min_offset() is None
    assert source.file_start(PhysicalOffset(0)) is None


def test_records_with_a_successor_count_at_once_and_the_last_after_a_second_look(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    for body in (b"a", b"bb", b"ccc"):
        log.append(body)
    offsets = list(log.records)
    chunk = look(source, 0)
    assert chunk.status is ReadStatus.RECORDS
    assert (chunk.start, chunk.end, chunk.next_offset) == (0, offsets[2], offsets[2])
    assert chunk.starts.tolist() == offsets[:2]
    assert look(source, offsets[2]).status is ReadStatus.IDLE
    clock.advance(0.1)
    assert look(source, offsets[2]).reason == "the last record is not confirmed yet"
    clock.advance(0.15)
    assert bytes_of(source, look(source, offsets[2])) == {offsets[2]: log.records[offsets[2]]}
    assert look(source, log.position).status is ReadStatus.IDLE


def test_the_last_record_counts_at_once_if_its_broker_answered_for_it(
    log: BrokerLog, source: LocalCommitLog
) -> None:
    log.append(b"a")
    assert look(source, 0).status is ReadStatus.IDLE
    source.stored(PhysicalOffset(0))
    assert bytes_of(source, look(source, 0)) == {0: log.records[0]}
    at = log.position
    log.append(b"bb")
    source.stored(PhysicalOffset(0))
    assert look(source, at).status is ReadStatus.IDLE, "the answer was for another"
    source.stored(PhysicalOffset(at))
    source.stored(PhysicalOffset(0))
    assert bytes_of(source, look(source, at)) == {at: log.records[at]}, "an older answer came later"


def test_a_broker_whose_answers_come_before_its_bytes_is_not_believed_again(
    log: BrokerLog, source: LocalCommitLog
) -> None:
    log.append(b"a")
    source.stored(PhysicalOffset(0))
    look(source, 0)
    at = log.position
    source.stored(PhysicalOffset(at))
    assert look(source, at).status is ReadStatus.IDLE, "nothing is there yet"
    log.append(b"bb")
    assert look(source, at).status is ReadStatus.IDLE, "an answer counts for one look"
    source.stored(PhysicalOffset(at))
    assert look(source, at).status is ReadStatus.IDLE


def test_an_answer_does_not_make_half_a_record_whole(log: BrokerLog, source: LocalCommitLog) -> None:
    whole = record(0, b"a", properties=b"name\x01value\x02")
    for cut in (1, 5, len(b"name\x01value\x02")):
        log.write(0, whole[:-cut] + bytes(cut))
        source.stored(PhysicalOffset(0))
        assert look(source, 0).status is ReadStatus.IDLE


def test_an_answer_for_what_lies_in_the_next_file_casts_no_doubt(
    log: BrokerLog, source: LocalCommitLog
) -> None:
    log.append(b"x" * 3000)
    first = log.position
    log.append(b"y" * 3000)
    assert log.position > log.file_bytes
    source.stored(PhysicalOffset(log.file_bytes))
    found = look(source, 0)
    assert found.end == first
    source.stored(PhysicalOffset(log.file_bytes))
    assert look(source, first).next_offset == log.file_bytes
    source.stored(PhysicalOffset(log.file_bytes))
    assert look(source, log.file_bytes).end == log.position


def test_last_record_that_changes_between_two_looks_starts_again(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append(b"one")
    assert look(source, 0).status is ReadStatus.IDLE
    clock.advance(0.25)
    other = record(0, b"two")
    log.write(0, other)
    assert look(source, 0).status is ReadStatus.IDLE
    clock.advance(0.1)
    assert look(source, 0).status is ReadStatus.IDLE
    clock.advance(0.15)
    assert bytes_of(source, look(source, 0)) == {0: other}


@pytest.mark.parametrize("ahead", [False, True])
def test_files_roll_with_a_blank(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, ahead: bool
) -> None:
    log.ahead = ahead
    log.append_many(100)
    found, end, gaps = drain(source, clock)
    assert found == log.records
    assert end == log.position == source.max_offset()
    assert gaps == []
    assert len(log.bases()) > 3


def test_blank_is_believed_once_the_next_file_is_written(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.ahead = True
    first = log.append(bytes(1000))
    left = log.file_bytes - len(first)
    log.write(len(first), struct.pack(">iI", left, BLANK))
    chunk = look(source, 0)  # the blank confirms the record, nothing confirms the blank
    assert (chunk.end, chunk.next_offset, chunk.blank_header) == (len(first), len(first), b"")
    assert look(source, len(first)).status is ReadStatus.IDLE
    log.position = log.file_bytes
    log.append(b"next file")
    chunk = look(source, len(first))
    assert chunk.file_finished
    assert (chunk.start, chunk.end, chunk.next_offset) == (len(first), len(first), log.file_bytes)
    assert chunk.blank_header == struct.pack(">iI", left, BLANK)
    assert len(chunk.starts) == 0
    whole = look(source, 0)
    assert (whole.end, whole.next_offset) == (len(first), log.file_bytes)


def test_limits_and_large_records(tmp_path: Path, clock: ManualClock) -> None:
    log = BrokerLog(tmp_path / "store", file_bytes=1 << 20)
    log.append_many(20)
    big = log.position
    log.append(os.urandom(700_000))
    log.append(b"after")
    source = LocalCommitLog(Source(store_dir=str(log.store)), Hold(max_disk_percent=99), clock)
    size = len(log.records[0])
    assert len(look(source, 0, max_records=7).starts) == 7
    assert look(source, 0, max_bytes=5 * size + 1).end == 5 * size
    assert look(source, 0, max_bytes=1).end == size
    assert bytes_of(source, look(source, big, max_bytes=1000)) == {big: log.records[big]}
    found, _, _ = drain(source, clock, max_bytes=1000, max_records=3)
    assert found == log.records
    source.close()


@pytest.mark.parametrize(
    ("torn", "rest"),
    [
        (4, b""),  # the size is there, the rest zero
        (8, b""),
        (40, b""),
        (95, b""),
        (120, b""),
        (40, b"\x5a" * 300),  # stale garbage behind the torn part
        (120, b"\xff" * 300),
    ],
)
def test_torn_record_is_never_returned(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, torn: int, rest: bytes
) -> None:
    log.append(b"whole")
    at = log.position
    whole = log.next(os.urandom(100), properties=b"KEYS\x01k\x02")
    log.write(at, (whole[:torn] + rest).ljust(len(whole) + 50, b"\0"))
    found, end, gaps = drain(source, clock)
    assert found == log.records
    assert (end, gaps) == (at, [])
    clock.advance(100)
    assert settled(source, clock, at).status is ReadStatus.IDLE
    log.write(at, whole + bytes(300))
    assert bytes_of(source, settled(source, clock, at)) == {at: whole}


def test_torn_last_record_behind_a_confirming_header_is_not_returned(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    """Body not there yet although the next header is: order of stores is not believed, only bytes."""
    log.append(b"whole")
    at = log.position
    whole = log.append(os.urandom(100))
    log.append(b"next")
    log.write(at + 88, bytes(100))
    chunk = look(source, 0, max_records=2)
    assert chunk.end == at
    assert look(source, at, max_records=1).status is ReadStatus.IDLE
    log.write(at, whole)
    assert look(source, at, max_records=1).end == at + len(whole)


def test_corrupt_bytes_are_given_up_only_after_the_wait_and_with_data_behind(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append(b"good")
    bad = log.position
    log.append(os.urandom(60))
    log.write(bad + 4, b"\xde\xad\xbe\xef")
    chunk = settled(source, clock, 0)
    assert chunk.end == bad
    clock.advance(1000)
    chunk = look(source, bad)
    assert chunk.status is ReadStatus.IDLE
    assert "unknown magic" in chunk.reason
    clock.advance(1000)
    assert look(source, bad).status is ReadStatus.IDLE  # nothing behind it: the tail may still be written
    behind, log.time_ms = log.position, clock.now_ms()
    log.append(b"behind")
    assert (
        look(source, bad).status is ReadStatus.IDLE
    )  # looked just now, and what is behind was stored just now
    clock.advance(30)
    chunk = look(source, bad)
    assert chunk.status is ReadStatus.GAP
    assert (chunk.start, chunk.next_offset) == (bad, behind)
    assert "unknown magic" in chunk.reason
    log.records.pop(bad)
    found, _, _ = drain(source, clock, behind)
    assert found == {behind: log.records[behind]}


def test_corrupt_body_is_a_gap_of_one_record(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(30)
    bad = list(log.records)[10]
    log.write(bad + 90, b"\xff")
    chunk = look(source, bad, max_records=1)
    assert chunk.status is ReadStatus.GAP
    assert chunk.next_offset == list(log.records)[11]
    assert "body CRC" in chunk.reason


def test_hole_of_zeros_is_a_gap_once_a_later_file_is_written(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(60)
    offsets = [at for at in log.records if at < log.file_bytes]
    log.write(offsets[3], bytes(log.file_bytes - offsets[3]))
    assert look(source, 0).end == offsets[2]
    settled(source, clock, 0)
    assert look(source, offsets[3]).status is ReadStatus.IDLE
    clock.advance(31)
    chunk = look(source, offsets[3])
    assert (chunk.status, chunk.next_offset) == (ReadStatus.GAP, log.file_bytes)


def test_wrong_physical_offset_is_not_a_record(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append(b"one")
    log.write(log.position, record(log.position + 4096, b"from elsewhere"))
    found, end, _ = drain(source, clock)
    assert (found, end) == (log.records, log.position)


def test_deleted_files_are_a_gap_without_the_hold(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    log.append_many(100)
    assert look(source, 0).status is ReadStatus.RECORDS
    log.delete_oldest()
    log.delete_oldest()
    clock.advance(2)
    chunk = look(source, 0)
    assert (chunk.status, chunk.start, chunk.next_offset) == (ReadStatus.GAP, 0, 8192)
    assert "deleted" in chunk.reason
    with pytest.raises(NotFound):
        source.copy(PhysicalOffset(0), PhysicalOffset(10))
    assert source.min_offset() == 8192


def test_positions_beyond_the_log_wait(log: BrokerLog, source: LocalCommitLog) -> None:
    log.append(b"one")
    assert look(source, 10 * log.file_bytes).status is ReadStatus.IDLE
    log.path(log.file_bytes).touch()  # the next file, not yet at its size
    chunk = look(source, log.file_bytes)
    assert (chunk.status, chunk.reason) == (ReadStatus.IDLE, "the file is being created")


def test_a_longer_file_is_refused_by_name(log: BrokerLog, source: LocalCommitLog) -> None:
    log.append(b"one")
    (log.directory / f"{8192:020d}").write_bytes(bytes(5000))
    with pytest.raises(Corrupt, match="differ in size"):
        look(source, 0)


def test_replaced_file_is_opened_again(log: BrokerLog, source: LocalCommitLog, clock: ManualClock) -> None:
    log.append(b"old")
    assert bytes_of(source, settled(source, clock, 0)) == log.records
    new = record(0, b"new broker")
    other = log.store / "fresh"
    other.write_bytes(new.ljust(log.file_bytes, b"\0"))
    os.rename(other, log.path(0))
    assert bytes_of(source, settled(source, clock, 0)) == {0: new}
    assert source.copy_local(PhysicalOffset(0), PhysicalOffset(len(new))) == new


def test_several_directories_are_one_log(tmp_path: Path, clock: ManualClock) -> None:
    log = BrokerLog(tmp_path / "store")
    log.append_many(100)
    other = tmp_path / "disk2"
    other.mkdir()
    for base in log.bases()[1::2]:
        os.rename(log.path(base), other / log.path(base).name)
    source = LocalCommitLog(
        Source(store_dir=str(log.store), commitlog_dirs=f"{log.directory}, {other}"),
        Hold(max_disk_percent=99),
        clock,
    )
    source.hold()
    found, end, gaps = drain(source, clock)
    assert (found, end, gaps) == (log.records, log.position, [])
    assert len(list((tmp_path / "disk2.tiered-hold").iterdir())) == len(list(other.iterdir()))
    source.close()


def test_max_offset_follows_appends_rolls_and_restarts(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BrokerLife, "_running", lambda life: True)
    log.ahead = True
    log.mark_started(log.time_ms)
    for _ in range(8):
        log.append_many(13)
        clock.advance(2)
        assert source.max_offset() == log.position
    lost = [at for at in log.records if at >= log.position - 1000]
    log.write(lost[0], bytes(8))
    log.cut(lost[0])
    log.mark_started(log.time_ms + 1)
    clock.advance(2)
    assert source.max_offset() == lost[0]


def test_file_start_and_copies(log: BrokerLog, source: LocalCommitLog) -> None:
    log.append_many(100)
    assert source.file_start(PhysicalOffset(5000)) == 4096
    assert source.file_start(PhysicalOffset(log.bases()[-1] + log.file_bytes)) is None
    second = next(at for at in log.records if at >= 4096)
    end = PhysicalOffset(second + len(log.records[second]))
    assert source.copy(PhysicalOffset(second), end) == log.records[second]
    assert source.copy(end, end) == b""
    with pytest.raises(NotFound):
        source.copy(PhysicalOffset(4000), PhysicalOffset(5000))


def test_a_copy_of_a_file_that_became_short_is_no_zeros(log: BrokerLog, source: LocalCommitLog) -> None:
    log.append_many(100)
    second = next(at for at in log.records if at >= 4096)
    end = PhysicalOffset(second + len(log.records[second]))
    os.truncate(log.path(4096), end - 4096 - 1)
    for copy in (source.copy, source.copy_local):
        with pytest.raises(NotFound, match="shorter than it was"):
            copy(PhysicalOffset(second), end)


def test_broker_mark_changes_with_every_start(log: BrokerLog, source: LocalCommitLog) -> None:
    nothing = source.broker_mark()
    assert (nothing.lock, nothing.abort) == (None, None)
    log.mark_started(1000)
    first = source.broker_mark()
    assert first == source.broker_mark()
    log.mark_started(2000)
    assert source.broker_mark() != first


def test_golden_stores_read_whole(tmp_path: Path, clock: ManualClock) -> None:
    for store in golden.stores(tmp_path):
        source = LocalCommitLog(Source(store_dir=str(store)), Hold(max_disk_percent=99), clock)
        expected = {r.physical_offset: r.raw for r in golden.records(store)}
        found, _, gaps = drain(source, clock, min(expected))
        assert found == expected
        assert gaps == []
        assert source.max_offset() == max(expected) + len(expected[max(expected)])
        source.close()


@pytest.mark.parametrize("topic", [b"T", b"Topic\0"])
def test_a_writer_stopped_inside_properties_or_topic_is_waited_for(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, topic: bytes
) -> None:
    """Body CRC and lengths are right; only what lies behind the body is missing."""
    at = log.position
    properties = b"" if topic != b"T" else b"KEYS\x01" + b"k" * 40 + b"\x02"
    whole = log.next(b"body", topic=topic, properties=properties)
    log.write(at, whole[:-20] if properties else whole)
    for _ in range(3):
        assert settled(source, clock, at).status is ReadStatus.IDLE
    log.write(at, whole)
    log.position += len(whole)
    log.append(b"next")
    assert bytes_of(source, look(source, at)) == {at: whole}
