"""A POSIX archive whose disk goes away and comes back, or another in its place: nothing is written below the mount point, and
a commit counts only where its objects are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import KEYS, Assembly, Heard, assemble
from tests.kit.awaydisk import AwayDisk, away_disk
from tests.kit.pipeline import Crafted
from tiered import crashpoint
from tiered.archive.log.identity import ensure_identity
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog
from tiered.clock import ManualClock, SystemClock
from tiered.crashpoint import CrashPoint
from tiered.errors import Conflict, Invalid, NotFound, Unavailable
from tiered.provider.posix import PosixProvider
from tiered.provider.resolve import bind, put_own

OBJECTS = {
    "pipeline_flushes": 1,
    "inline_bytes": 0,
    "group_commit_count": 10,
    "object_bytes": 65_536,
    "block_bytes": 4096,
}
DATA, COMMIT = KEYS.key("data/0000000001-00"), KEYS.commit(1)
CALLS = ("open", "mkdir", "stat", "link", "unlink", "fsync", "writev", "fstat")


@pytest.fixture(params=["mounted", "renamed"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AwayDisk]:
    with away_disk(tmp_path / "disk", mount=request.param == "mounted") as made:
        yield made


def archive(disk: AwayDisk) -> tuple[PosixProvider, LogReader]:
    """An archive with one commit on the disk, opened by somebody who may never have written."""
    store = PosixProvider(str(disk.path / "archive"), SystemClock())
    identity = ensure_identity(store, KEYS, 1, os.urandom)
    store.put(KEYS.commit(0), [b"commit"])
    store = PosixProvider(str(disk.path / "archive"), SystemClock())
    return store, LogReader(store, KEYS, identity)


def flush(store: PosixProvider) -> bool:
    """An object and the commit that names it, put as the committer does; whether it was told that both are there."""
    for _ in range(64):
        try:
            put_own(store, DATA, [b"object"])
            for lost in bind(store, COMMIT, [KEYS.commit(0), DATA]):
                put_own(store, lost, [b"object"])
            store.put(COMMIT, [b"commit"])
        except Unavailable:
            continue
        except Conflict:  # an earlier try of its own, whose answer was lost
            return store.get(COMMIT).data == b"commit"
        return True
    return False


def counting(patch: pytest.MonkeyPatch, before: Callable[[int], None]) -> list[str]:
    """Call ``before`` with its number before each system call of the driver; the names of those made."""
    made: list[str] = []
    busy = False

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal busy
            if not busy:
                busy = True
                made.append(name)
                before(len(made) - 1)
                busy = False
            return real(*arguments, **named)

        return call

    for name in CALLS:
        patch.setattr(os, name, wrapped(name, getattr(os, name)))
    return made


def test_every_moment_to_unmount_and_to_mount_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk leaves before any one system call of a flush and is back before any later one."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # hundreds of flushes; no power is cut here
    with away_disk(tmp_path / "count", mount=False) as disk, pytest.MonkeyPatch.context() as patch:
        store, _ = archive(disk)
        calls = counting(patch, lambda number: None)
        assert flush(store)
        many = len(calls)
    assert many > 30
    near_or_every_fifth = ((a, b) for a, b in combinations(range(many + 1), 2) if b - a < 4 or not b % 5)
    for left, returned in near_or_every_fifth:
        with away_disk(tmp_path / f"{left}-{returned}", mount=False) as disk:
            store, _ = archive(disk)

            def move(number: int, disk: AwayDisk = disk, left: int = left, returned: int = returned) -> None:
                if number == left:
                    disk.away()
                elif number == returned:
                    disk.back()

            with pytest.MonkeyPatch.context() as patch:
                counting(patch, move)
                told = flush(store)
            disk.back()
            assert disk.litter == [], (left, returned)
            assert told, (left, returned)
            assert (disk.real / "archive" / COMMIT).read_bytes() == b"commit"
            assert (disk.real / "archive" / DATA).read_bytes() == b"object", (left, returned)


def test_nothing_is_absent_while_the_disk_is_away(disk: AwayDisk) -> None:
    """A reader must not take an empty mount point for the end of the log, or for an object that is gone."""
    store, reader = archive(disk)
    assert reader.read(1) is None
    disk.away()
    looks: list[Callable[[], object]] = [
        lambda: reader.read(1),
        lambda: store.get(KEYS.commit(0)),
        lambda: store.head(KEYS.commit(0)),
        lambda: list(store.list(KEYS.checkpoint_prefix)),
        lambda: list(store.list(f"{KEYS.root}commit/")),
        lambda: store.delete(KEYS.commit(0)),
        lambda: store.put(KEYS.commit(1), [b"x"]),
        lambda: store.make_durable(KEYS.commit(0)),
    ]
    for look in looks:
        with pytest.raises(Unavailable, match="gone"):
            look()
    disk.back()
    assert disk.litter == []
    assert store.get(KEYS.commit(0)).data == b"commit"
    assert reader.read(1) is None


def test_another_archive_in_its_place_is_not_written_to(disk: AwayDisk, tmp_path: Path) -> None:
    store, _ = archive(disk)
    other = tmp_path / "other"
    other.mkdir()
    strange = PosixProvider(str(other / "archive"), SystemClock())
    ensure_identity(strange, KEYS, 1, os.urandom)
    disk.replace(other)
    with pytest.raises(Unavailable, match="another archive"):
        store.put(KEYS.commit(1), [b"x"])
    with pytest.raises(Unavailable, match="another archive"):
        store.get(KEYS.commit(0))
    disk.restore()
    store.put(KEYS.commit(1), [b"x"])


def test_a_disk_below_the_archive_is_told(tmp_path: Path) -> None:
    """What lies on a disk of its own can go away alone: the identity beside it would prove nothing."""
    with away_disk(tmp_path / "whole", mount=False) as disk:
        store, _ = archive(disk)
        data = disk.path / "archive" / KEYS.root / "data"
        with pytest.MonkeyPatch.context() as patch:
            real = os.fstat

            def fstat(descriptor: int) -> os.stat_result:
                found = real(descriptor)
                if os.readlink(f"/proc/self/fd/{descriptor}") == str(data):
                    return os.stat_result((found.st_mode, found.st_ino, found.st_dev + 1, *found[3:]))
                return found

            patch.setattr(os, "fstat", fstat)
            with pytest.raises(Invalid, match="another file system"):
                store.put(DATA, [b"x"])
        assert list(data.iterdir()) == []


# --- the whole way in


@pytest.fixture
def daemon(tmp_path: Path, disk: AwayDisk) -> Iterator[Assembly]:
    """Forty messages in the broker's log, of which the first flush is archived."""
    clock = ManualClock(1_700_000_060_000)
    broker = Crafted(tmp_path / "store", file_bytes=1 << 20)
    for number in range(40):
        broker.send(queue_id=number % 2, body=bytes([number]) * 3000)
    made = assemble(
        broker.store, PosixProvider(str(disk.path / "archive"), clock), clock, dispatch=OBJECTS
    )  # fmt: skip
    while len(made.proven) < 1:
        made.step()
        clock.advance(0.05)
    yield made
    made.close()


def at(point: CrashPoint, act: Callable[[], object]) -> None:
    """Do it once, when the point is reached next."""
    left = [act]

    def reached(at: CrashPoint) -> None:
        if at is point and left:
            left.pop()()

    crashpoint.install(reached)


@pytest.fixture(autouse=True)
def no_hook() -> Iterator[None]:
    yield
    crashpoint.install(None)


def on_trouble(log: CommitLog, act: Callable[[], object]) -> list[str]:
    """Do something whenever a commit cannot be put; what was told."""
    told: list[str] = []

    def hear(error: Exception) -> None:
        told.append(str(error))
        act()

    events = log.resending.events
    assert isinstance(events, Heard)
    events.on_resend = hear
    return told


@pytest.mark.parametrize("point", [CrashPoint.AFTER_OBJECTS, CrashPoint.BEFORE_COMMIT])
def test_a_disk_that_leaves_between_objects_and_commit(
    daemon: Assembly, disk: AwayDisk, point: CrashPoint
) -> None:
    told = on_trouble(daemon.log, disk.back)
    at(point, disk.away)
    daemon.settle()
    assert any("gone" in line for line in told), told
    assert disk.litter == []
    assert sum(len(rows) for rows in daemon.rows().values()) == 40


def test_an_older_copy_with_the_same_identity_gets_the_objects_too(daemon: Assembly, disk: AwayDisk) -> None:
    """A copy of the archive's disk is mounted after the objects were put: they are put again, there."""
    copy = disk.copied()
    at(CrashPoint.AFTER_OBJECTS, lambda: disk.replace(copy))
    daemon.settle()
    assert sum(len(rows) for rows in daemon.rows().values()) == 40


def test_a_copy_that_lacks_the_commit_before_is_not_built_upon(daemon: Assembly, disk: AwayDisk) -> None:
    copy = disk.copied()
    last = daemon.proven[-1].commit.commit.seq
    (copy / "archive" / KEYS.commit(last)).unlink()
    told = on_trouble(daemon.log, disk.restore)
    at(CrashPoint.AFTER_OBJECTS, lambda: disk.replace(copy))
    daemon.settle()
    assert any("nothing was written" in line for line in told), told
    with pytest.raises(NotFound):
        PosixProvider(str(copy / "archive"), daemon.clock).head(KEYS.commit(last + 1))
    assert sum(len(rows) for rows in daemon.rows().values()) == 40
