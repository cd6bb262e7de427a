"""The broker's directory goes away and comes back: the hold is read meanwhile, and nothing else is believed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.brokerlog import BrokerLog
from tests.kit.tailing import drain, look, settled
from tiered.clock import ManualClock
from tiered.errors import NotFound, Unavailable
from tiered.model import PhysicalOffset
from tiered.settings import Hold, Source
from tiered.source import files
from tiered.source.base import ReadStatus
from tiered.source.files import LogFile, file_at
from tiered.source.local import LocalCommitLog


@pytest.fixture
def log(tmp_path: Path) -> BrokerLog:
    made = BrokerLog(tmp_path / "store")
    made.append_many(60)
    made.mark_started(made.time_ms)
    return made


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source(log: BrokerLog, clock: ManualClock) -> Iterator[LocalCommitLog]:
    opened = LocalCommitLog(Source(store_dir=str(log.store)), Hold(max_disk_percent=99), clock)
    opened.hold()
    yield opened
    opened.close()


def leave(log: BrokerLog) -> Path:
    """The whole store goes."""
    return log.store.rename(log.store.with_name("elsewhere"))


def test_what_is_held_is_read_on_and_nothing_is_compared(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    mark, end = source.broker_mark(), source.max_offset()
    first = look(source, 0, max_records=5)
    elsewhere = leave(log)
    found, position, gaps = drain(source, clock, first.next_offset)
    assert (position, gaps) == (log.position, [])
    assert found == {at: data for at, data in log.records.items() if at >= first.next_offset}
    idle = settled(source, clock, position)
    assert (idle.status, idle.reason) == (ReadStatus.IDLE, "the commitlog directory does not exist")
    source.hold()
    assert isinstance(source.away, NotFound)
    assert source.away.fields["path"] == str(log.directory)
    assert source.broker_mark() == mark, "a store that is away is no restart"
    assert source.max_offset() == end
    assert bytes(source.copy(PhysicalOffset(0), PhysicalOffset(50))) == log.records[0][:50]
    for compares in (
        source.min_offset,
        lambda: source.copy_local(PhysicalOffset(0), PhysicalOffset(50)),
        source.disown,
    ):
        with pytest.raises(Unavailable, match="cannot be looked at now"):
            compares()
    elsewhere.rename(log.store)
    log.append_many(40)
    clock.advance(files.AWAY_SECONDS)
    found, position, gaps = drain(source, clock, position)
    assert (position, gaps, len(found)) == (log.position, [], 40)
    assert source.away is None
    assert source.min_offset() == 0
    back = source.broker_mark()
    assert (back.lock, back.abort, back.returns) == (mark.lock, mark.abort, mark.returns + 1)


def test_a_file_that_is_missing_meanwhile_is_no_gap(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    second = log.bases()[1]
    for link in Path(f"{log.store}.tiered-hold").glob(f"{second:020d}.*"):
        link.unlink()
    source._catalog._links.look_again()  # as if the budget had taken it
    elsewhere = leave(log)
    _, position, gaps = drain(source, clock)
    assert (position, gaps) == (second, [])
    assert look(source, second).status is ReadStatus.IDLE
    elsewhere.rename(log.store)
    clock.advance(files.AWAY_SECONDS)
    _, position, gaps = drain(source, clock, second)
    assert (position, gaps) == (log.position, [])


def test_a_directory_that_lost_every_file_is_away_too(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock
) -> None:
    """A disk that is not mounted leaves an empty directory behind."""
    look(source, 0)
    elsewhere = log.directory.rename(log.store / "elsewhere")
    log.directory.mkdir()
    _, position, gaps = drain(source, clock)
    assert (position, gaps) == (log.position, [])
    assert source.away is not None
    assert source.away.message == "the commitlog directory has lost its files"
    log.directory.rmdir()
    elsewhere.rename(log.directory)
    clock.advance(files.AWAY_SECONDS)
    assert source.min_offset() == 0


def test_a_hold_that_went_with_the_store_comes_back_with_it(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, tmp_path: Path
) -> None:
    look(source, 0)
    log.delete_oldest()  # only the hold has it now
    hold = Path(f"{log.store}.tiered-hold")
    gone = leave(log), hold.rename(tmp_path / "hold-elsewhere")
    source._catalog._descriptors.close()
    clock.advance(10)
    source.hold()
    assert look(source, 0).status is ReadStatus.IDLE
    gone[1].rename(hold)
    gone[0].rename(log.store)
    clock.advance(files.AWAY_SECONDS)
    source.hold()
    found, position, gaps = drain(source, clock)
    assert (position, gaps) == (log.position, [])
    assert found == log.records


def test_a_store_that_goes_in_the_middle_of_a_look_is_not_a_log_that_was_cut(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a listing would be believed, and what is held above it taken for a log that the broker no longer has."""
    found: list[int] = []

    def leaving(path: str, base: PhysicalOffset, stat: os.stat_result) -> LogFile:
        if not found:
            leave(log)
        found.append(base)
        return file_at(path, base, stat)

    monkeypatch.setattr(files, "file_at", leaving)
    clock.advance(files.RESCAN_SECONDS)
    source.hold()
    assert not log.store.exists()
    assert source.max_offset() == log.position
    records, position, gaps = drain(source, clock)
    assert (records, position, gaps) == (log.records, log.position, [])
    assert source.away is not None


def test_it_is_looked_for_at_a_bounded_pace(
    log: BrokerLog, source: LocalCommitLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(log)
    look(source, 0)
    looks: list[str] = []
    stat = os.stat
    monkeypatch.setattr(
        files.os,
        "stat",
        lambda path, **k: looks.append(path) if str(path) == str(log.directory) else stat(path, **k),
    )
    for _ in range(100):
        look(source, log.position)
        source.broker_mark()
    assert looks == []


def two_disks(tmp_path: Path, moved: slice) -> tuple[BrokerLog, Path, Source]:
    """A log of ten files, some of them on a second disk."""
    log = BrokerLog(tmp_path / "store")
    log.append_many(340)
    other = tmp_path / "disk2" / "commitlog"
    other.mkdir(parents=True)
    for base in log.bases()[moved]:
        log.path(base).rename(other / log.path(base).name)
    return log, other, Source(store_dir=str(log.store), commitlog_dirs=f"{log.directory},{other}")


@pytest.mark.parametrize("known", [True, False])
def test_one_of_two_disks_that_is_empty_is_away(tmp_path: Path, clock: ManualClock, known: bool) -> None:
    """A broker spreads its files over both: what is missing between two files went with the disk, also at the first look."""
    log, other, settings = two_disks(tmp_path, slice(1, None, 2))
    source = LocalCommitLog(settings, Hold(max_disk_percent=99), clock)
    if known:
        look(source, 0)
    elsewhere = other.rename(tmp_path / "elsewhere")
    other.mkdir()
    clock.advance(files.RESCAN_SECONDS)
    _, position, gaps = drain(source, clock)
    assert (position, gaps) == (4096, [])
    clock.advance(3600)
    assert look(source, 4096).status is ReadStatus.IDLE
    assert source.away is not None
    assert source.away.fields["path"] == str(other)
    with pytest.raises(Unavailable, match="cannot be looked at now"):
        source.min_offset()
    other.rmdir()
    elsewhere.rename(other)
    clock.advance(files.AWAY_SECONDS)
    found, position, gaps = drain(source, clock)
    assert (found, position, gaps) == (log.records, log.position, [])
    assert source.away is None
    source.close()


def test_a_disk_whose_files_the_broker_deleted_is_not_away(tmp_path: Path, clock: ManualClock) -> None:
    """Expired, or cut off by a broker that came back: a directory may be empty then."""
    log, other, settings = two_disks(tmp_path, slice(0, 3))
    source = LocalCommitLog(settings, Hold(max_disk_percent=99), clock)
    look(source, 0)
    for path in other.iterdir():
        path.unlink()
    clock.advance(files.RESCAN_SECONDS)
    assert source.min_offset() == 3 * 4096
    newest = log.path(log.bases()[-1])
    moved = newest.rename(other / newest.name)
    clock.advance(files.RESCAN_SECONDS)
    look(source, 0)
    moved.unlink()
    clock.advance(files.RESCAN_SECONDS)
    assert source.min_offset() == 3 * 4096
    assert source.away is None
    source.close()


def test_with_one_of_two_disks_away_the_other_is_still_held_and_read(
    tmp_path: Path, clock: ManualClock
) -> None:
    log, other, settings = two_disks(tmp_path, slice(5, None))
    half = sorted(int(path.name) for path in other.iterdir())
    source = LocalCommitLog(settings, Hold(max_disk_percent=99), clock)
    look(source, 0)  # nothing is held yet
    away = log.directory.rename(tmp_path / "elsewhere")
    clock.advance(files.RESCAN_SECONDS)
    assert look(source, 0).status is ReadStatus.IDLE, "no gap up to the other disk's first file"
    source.hold()
    assert {f.base for f in source.held_files()} == set(half)
    _, position, gaps = drain(source, clock, half[0])
    assert (position, gaps) == (log.position, [])
    away.rename(log.directory)
    clock.advance(files.AWAY_SECONDS)
    found, position, gaps = drain(source, clock)
    assert (found, position, gaps) == (log.records, log.position, [])
    source.close()


def test_one_that_was_never_there_is_an_error(tmp_path: Path, clock: ManualClock) -> None:
    source = LocalCommitLog(Source(store_dir=str(tmp_path / "nowhere")), Hold(), clock)
    with pytest.raises(NotFound, match="does not exist"):
        look(source, 0)
    assert source.away is None
