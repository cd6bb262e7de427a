"""The hard-linked hold: what it keeps, what it lets go, and what it refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.brokerlog import BrokerLog, record
from tiered.clock import ManualClock
from tiered.errors import Refused
from tiered.model import ByteRange, PhysicalOffset
from tiered.settings import Hold, Source
from tiered.source.base import ReadStatus
from tiered.source.local import LocalCommitLog

Make = Callable[..., LocalCommitLog]


@pytest.fixture
def log(tmp_path: Path) -> BrokerLog:
    log = BrokerLog(tmp_path / "store")
    log.append_many(120)
    return log


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(log: BrokerLog, clock: ManualClock) -> Make:
    def build(let_go: list[ByteRange] | None = None, usage: float = 10.0, **hold: object) -> LocalCommitLog:
        return LocalCommitLog(
            Source(store_dir=str(log.store)),
            Hold(**hold),  # type: ignore[arg-type]
            clock,
            on_let_go=None if let_go is None else let_go.append,
            disk_usage=lambda _: usage,
        )

    return build


def hold_dir(log: BrokerLog) -> Path:
    return log.store.with_name("store.tiered-hold")


def names(log: BrokerLog) -> list[int]:
    return sorted(int(p.name.partition(".")[0]) for p in hold_dir(log).iterdir())


def read_all(source: LocalCommitLog, clock: ManualClock, start: int) -> tuple[dict[int, bytes], list[int]]:
    found: dict[int, bytes] = {}
    gaps: list[int] = []
    position = PhysicalOffset(start)
    for _ in range(1000):
        source.read(position, max_bytes=1 << 20, max_records=1000)
        clock.advance(0.3)
        chunk = source.read(position, max_bytes=1 << 20, max_records=1000)
        if chunk.status is ReadStatus.IDLE:
            return found, gaps
        if chunk.status is ReadStatus.GAP:
            gaps.append(chunk.next_offset)
        else:
            data = source.copy(chunk.start, chunk.end)
            for at, size in zip(chunk.starts.tolist(), chunk.sizes.tolist(), strict=True):
                found[chunk.start + at] = bytes(data[at : at + size])
        position = chunk.next_offset
    raise AssertionError("reading does not end")


def test_deleted_files_are_read_from_the_hold(log: BrokerLog, make: Make, clock: ManualClock) -> None:
    source = make()
    source.hold()
    assert names(log) == log.bases()
    assert source.held_bytes() == 0
    for _ in range(3):
        log.delete_oldest()
    clock.advance(2)
    source.hold()
    assert source.held_bytes() == 3 * log.file_bytes
    assert source.min_offset() == 3 * log.file_bytes
    assert source.file_start(PhysicalOffset(100)) == 0
    found, gaps = read_all(source, clock, 0)
    assert (found, gaps) == (log.records, [])
    source.close()


def test_links_outlive_the_daemon_and_every_file_of_the_broker(
    log: BrokerLog, make: Make, clock: ManualClock
) -> None:
    first = make()
    first.hold()
    first.close()
    for base in log.bases():
        log.path(base).unlink()
    second = make()
    assert second.held_bytes() > 0
    found, gaps = read_all(second, clock, 0)
    assert (found, gaps) == (log.records, [])
    second.close()


def test_release_lets_go_of_whole_files_and_does_not_link_them_again(
    log: BrokerLog, make: Make, clock: ManualClock
) -> None:
    source = make()
    source.hold()
    source.release(PhysicalOffset(2 * log.file_bytes + 5))
    assert names(log) == [b for b in log.bases() if b >= 2 * log.file_bytes]
    log.append_many(40)
    clock.advance(2)
    source.hold()
    assert names(log) == [b for b in log.bases() if b >= 2 * log.file_bytes]
    log.delete_oldest()
    clock.advance(2)
    assert source.read(PhysicalOffset(0), max_bytes=100, max_records=1).status is ReadStatus.GAP
    source.close()


def test_released_descriptors_give_the_disk_back(log: BrokerLog, make: Make, clock: ManualClock) -> None:
    source = make()
    source.hold()
    read_all(source, clock, 0)
    inode = log.path(0).stat().st_ino
    log.delete_oldest()
    clock.advance(2)
    source.hold()
    source.release(PhysicalOffset(log.file_bytes))
    source.read(PhysicalOffset(log.file_bytes), max_bytes=100, max_records=1)
    open_inodes = {os.stat(f"/proc/self/fd/{fd}").st_ino for fd in _open_files()}
    assert inode not in open_inodes
    source.close()


def _open_files() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]


def test_over_the_byte_budget_the_oldest_go_and_the_reader_reports_a_gap(
    log: BrokerLog, make: Make, clock: ManualClock
) -> None:
    let_go: list[ByteRange] = []
    source = make(let_go, max_bytes=2 * log.file_bytes)
    source.hold()
    for _ in range(4):
        log.delete_oldest()
    clock.advance(2)
    source.hold()
    assert let_go == [ByteRange(0, 4096), ByteRange(4096, 8192)]
    assert source.held_bytes() == 2 * log.file_bytes
    found, gaps = read_all(source, clock, 0)
    assert gaps == [8192]
    assert found == {at: data for at, data in log.records.items() if at >= 8192}
    source.close()


def test_a_full_partition_lets_go_only_what_frees_space(
    log: BrokerLog, make: Make, clock: ManualClock
) -> None:
    let_go: list[ByteRange] = []
    source = make(let_go, usage=81.0)
    source.hold()
    assert let_go == []  # the broker still has every file
    log.delete_oldest()
    clock.advance(2)
    source.hold()
    assert let_go == [ByteRange(0, 4096)]
    assert names(log) == log.bases()
    source.close()


def test_reinstalled_broker_is_kept_apart_from_held_files(
    log: BrokerLog, make: Make, clock: ManualClock
) -> None:
    source = make()
    source.hold()
    old = dict(log.records)
    for base in log.bases():
        log.path(base).unlink()
    new = record(0, b"a new broker's first")
    log.write(0, new)
    clock.advance(2)
    source.hold()
    assert names(log).count(0) == 2
    found, gaps = read_all(source, clock, 0)
    assert (found, gaps) == ({0: new}, [])  # held files above the new log are not its continuation
    assert source.max_offset() == len(new)
    assert source.read(PhysicalOffset(list(old)[-1]), max_bytes=100, max_records=1).status is ReadStatus.IDLE
    source.close()


def test_local_copies_never_come_from_the_hold(log: BrokerLog, make: Make, clock: ManualClock) -> None:
    from tiered.errors import NotFound

    source = make()
    source.hold()
    log.delete_oldest()
    clock.advance(2)
    assert source.copy(PhysicalOffset(0), PhysicalOffset(8))
    with pytest.raises(NotFound):
        source.copy_local(PhysicalOffset(0), PhysicalOffset(8))
    source.close()


def test_a_hold_cleared_by_hand_is_linked_again(log: BrokerLog, make: Make, clock: ManualClock) -> None:
    source = make()
    source.hold()
    for path in hold_dir(log).iterdir():
        path.unlink()
    assert source.held_bytes() == 0
    source.release(PhysicalOffset(4096))
    source.close()
    again = make()
    again.hold()
    assert names(log) == log.bases()
    again.close()


@pytest.mark.parametrize("place", ["store", "store/hold", "store/commitlog", "store/commitlog/x"])
def test_hold_inside_the_brokers_directories_is_refused(log: BrokerLog, make: Make, place: str) -> None:
    source = make(directory=str(log.store.parent / place))
    with pytest.raises(Refused, match="inside the broker's own") as raised:
        source.hold()
    assert raised.value.hint


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EXDEV, "same mount"), (errno.EPERM, "broker's user"), (errno.EROFS, "read-only")],
)
def test_links_that_are_impossible_are_refused_with_the_fix(
    make: Make, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(Refused) as raised:
        make().hold()
    assert hint in str(raised.value)
    assert "store.tiered-hold" in str(raised.value)


def test_file_deleted_while_it_is_linked_is_no_error(
    log: BrokerLog, make: Make, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    source = make()
    true_link = os.link

    def race(path: str, target: str) -> None:
        if path.endswith(f"{0:020d}"):
            os.unlink(path)
        true_link(path, target)

    monkeypatch.setattr(os, "link", race)
    source.hold()
    assert names(log) == list(range(4096, log.position, 4096))
    source.close()
