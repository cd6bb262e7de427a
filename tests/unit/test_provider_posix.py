"""The POSIX driver at its edges: every system call of a create-only put fails once, and what is left is looked at."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tiered import crashpoint
from tiered.clock import ManualClock, SystemClock
from tiered.crashpoint import CrashPoint
from tiered.errors import Conflict, Denied, Invalid, NotFound, Refused, Unavailable
from tiered.provider import posixsweep
from tiered.provider.memory import MemoryProvider
from tiered.provider.posix import PosixProvider
from tiered.provider.resolve import make_durable, sweep
from tiered.provider.wrap import Wrapped


@pytest.fixture
def store(tmp_path: Path) -> PosixProvider:
    made = PosixProvider(str(tmp_path / "archive"), SystemClock())
    made.create_root()
    return made


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


class Failing:
    """Replaces an ``os`` function; call number ``at`` (from 0) raises ``code``, after doing its work if ``done``."""

    def __init__(
        self, patch: pytest.MonkeyPatch, name: str, code: int, *, at: int = 0, done: bool = False
    ) -> None:
        self.calls = 0
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            number, self.calls = self.calls, self.calls + 1
            if number == at:
                if done:
                    real(*arguments, **named)
                raise OSError(code, os.strerror(code))
            return real(*arguments, **named)

        patch.setattr(os, name, call)


@pytest.mark.parametrize(
    ("name", "code", "kind", "told"),
    [
        ("open", errno.EACCES, Denied, "write access"),
        ("open", errno.EROFS, Denied, "write access"),
        ("open", errno.EIO, Unavailable, "EIO"),
        ("writev", errno.ENOSPC, Unavailable, "free disk space"),
        ("writev", errno.EDQUOT, Unavailable, "quota"),
        ("fsync", errno.EIO, Unavailable, "EIO"),
        ("link", errno.EPERM, Refused, "hard links"),
        ("link", errno.EOPNOTSUPP, Refused, "hard links"),
        ("link", errno.EIO, Unavailable, "EIO"),
        ("link", errno.ENOSPC, Unavailable, "free disk space"),
    ],
)
def test_a_failed_put_leaves_nothing_and_is_told(
    store: PosixProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    code: int,
    kind: type[Exception],
    told: str,
) -> None:
    store.put("a/first", [b"x"])  # directories are there, so that the fault meets the put itself
    with monkeypatch.context() as patch:
        Failing(patch, name, code)
        with pytest.raises(kind) as caught:
            store.put("a/k", [b"data"])
    assert told in str(caught.value)
    assert files(tmp_path / "archive") == ["a/first"]
    store.put("a/k", [b"data"])
    assert store.get("a/k").data == b"data"


def test_an_error_after_the_link_is_unknown_and_the_object_is_there(
    store: PosixProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("a/first", [b"x"])
    with monkeypatch.context() as patch:
        Failing(patch, "fsync", errno.EIO, at=1)  # 0: the file, 1: the directory
        with pytest.raises(Unavailable):
            store.put("a/k", [b"mine"])
    assert store.get("a/k").data == b"mine"
    with pytest.raises(Conflict):
        store.put("a/k", [b"mine"])


def test_a_link_whose_reply_was_lost_is_a_success(
    store: PosixProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, code in enumerate((errno.EEXIST, errno.EIO, errno.ESTALE)):
        with monkeypatch.context() as patch:
            Failing(patch, "link", code, done=True)
            assert store.put(f"a/{number}", [b"mine"]).length == 4
        assert os.stat(tmp_path / "archive" / "a" / str(number)).st_nlink == 1
    assert files(tmp_path / "archive") == ["a/0", "a/1", "a/2"]


def test_the_order_of_a_put_is_the_one_that_survives_power_cuts(
    store: PosixProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real_open = os.open

    def note_open(path: str, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL
            seen.append("create")
        return real_open(path, flags, *rest, **named)

    def opened(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def shown(path: str) -> str:
        return "temporary" if ".tiered-tmp-" in path else os.path.relpath(path, tmp_path)

    def note(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            result = real(*arguments, **named)
            within = named.get("dir_fd", named.get("dst_dir_fd"))
            at = arguments[-1] if within is None else os.path.join(opened(within), arguments[-1])
            seen.append(f"{name} {shown(opened(arguments[0]) if isinstance(arguments[0], int) else at)}")
            return result

        monkeypatch.setattr(os, name, call)

    monkeypatch.setattr(os, "open", note_open)
    for name in ("writev", "fsync", "link", "unlink"):
        note(name)
    store.put("c/b/k", [b"one", b"two"])
    assert seen == [
        *("fsync archive/c", "fsync archive", "fsync ."),  # the new directories' entries, upwards
        *("create", "writev temporary", "fsync temporary"),
        *("link archive/c/b/k", "unlink temporary", "fsync archive/c/b"),
    ]
    seen.clear()
    store.put("c/b/k2", [b"x"])
    assert seen[0] == "create", "directories are made durable once"


def test_directories_another_process_made_are_fsynced_too(
    store: PosixProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "archive" / "x" / "y").mkdir(parents=True)
    failing = Failing(monkeypatch, "fsync", 0, at=-1)
    store.put("x/y/k", [b"1"])
    assert failing.calls == 5  # three levels, the file, its directory


def test_a_directory_that_vanished_is_not_made_again(store: PosixProvider, tmp_path: Path) -> None:
    """An unmounted disk leaves an empty mount point: writing on there would put the archive's next commits in a void."""
    store.put("x/y/k", [b"1"])
    store.delete("x/y/k")
    (tmp_path / "archive" / "x" / "y").rmdir()
    (tmp_path / "archive" / "x").rmdir()
    with pytest.raises(Unavailable, match="gone"):
        store.put("x/y/k", [b"2"])
    assert not (tmp_path / "archive" / "x").exists()


def test_temporary_and_foreign_names_are_hidden(store: PosixProvider, tmp_path: Path) -> None:
    store.put("a/k", [b"1"])
    directory = tmp_path / "archive" / "a"
    (directory / ".tiered-tmp-0123").write_bytes(b"half")
    (directory / ("long" * 30)).write_bytes(b"foreign")
    Path(os.fsdecode(os.fsencode(directory) + b"/\xff\xfe")).write_bytes(b"foreign")
    (directory / "empty").mkdir()
    assert [stored.key for stored in store.list("")] == ["a/k"]


def test_a_file_that_vanishes_under_a_listing_is_left_out(store: PosixProvider) -> None:
    for key in ("a/1", "a/2", "a/3"):
        store.put(key, [b"x"])
    listing = store.list("a/")
    assert next(listing).key == "a/1"
    store.delete("a/2")
    assert [stored.key for stored in listing] == ["a/3"]


def test_a_missing_root_is_empty_and_its_missing_holder_is_an_error(tmp_path: Path) -> None:
    store = PosixProvider(str(tmp_path / "not" / "mounted"), SystemClock())
    assert list(store.list("")) == []
    with pytest.raises(NotFound):
        store.get("k")
    with pytest.raises(Unavailable, match="gone"):
        store.put("k", [b"x"])
    with pytest.raises(Invalid) as caught:
        store.create_root()
    assert "mount the disk" in str(caught.value)
    assert not (tmp_path / "not").exists()


def test_a_root_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(b"")
    store = PosixProvider(str(tmp_path / "archive"), SystemClock())
    with pytest.raises(Invalid) as caught:
        store.put("a/k", [b"x"])
    assert "archive.url" in str(caught.value)


def test_a_key_below_another_is_an_error_in_file_systems_and_in_memory(store: PosixProvider) -> None:
    for provider in (store, MemoryProvider("", ManualClock())):
        provider.put("a/b", [b"x"])
        with pytest.raises(Invalid):
            provider.put("a/b/c", [b"x"])
    memory = MemoryProvider("", ManualClock())
    memory.put("a/b/c", [b"x"])
    with pytest.raises(Invalid):
        memory.put("a/b", [b"x"])


def test_dates_follow_the_file_servers_clock(tmp_path: Path) -> None:
    host = ManualClock(SystemClock().now_ms() - 3_600_000)
    store = PosixProvider(str(tmp_path / "archive"), host)
    store.create_root()
    put = store.put("k", [b"x"])
    assert put.date_ms - host.now_ms() == pytest.approx(3_600_000, abs=10_000)
    assert store.head("k").date_ms == pytest.approx(put.date_ms, abs=500)
    host.advance(60)
    assert store.get("k").date_ms - put.date_ms == pytest.approx(60_000, abs=500)
    assert store.get("k").last_modified_ms == put.date_ms


def test_many_buffers_and_short_writes(store: PosixProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.writev

    def short(descriptor: int, buffers: list[memoryview]) -> int:
        return real(descriptor, [*buffers[:2], *(buffer[:7] for buffer in buffers[2:3])])

    monkeypatch.setattr(os, "writev", short)
    parts = [bytes([number % 256]) * (number % 23) for number in range(3000)]
    store.put("k", parts)
    assert store.get("k").data == b"".join(parts)


def test_short_reads(store: PosixProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("k", [bytes(range(256))])
    real = os.pread
    monkeypatch.setattr(
        os, "pread", lambda descriptor, count, position: real(descriptor, min(count, 100), position)
    )
    assert store.get("k", 3, 250).data == bytes(range(256))[3:253]


def test_make_durable_syncs_file_and_directory_and_is_nothing_elsewhere(
    store: PosixProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("root/k", [b"x"])
    failing = Failing(monkeypatch, "fsync", 0, at=-1)
    make_durable(Wrapped(store), "root/k")
    assert failing.calls == 2
    with pytest.raises(NotFound):
        make_durable(store, "absent")
    make_durable(MemoryProvider("", ManualClock()), "absent")


def test_unlinking_twice_is_fine_and_forbidden_is_told(
    store: PosixProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("k", [b"x"])
    Failing(monkeypatch, "unlink", errno.EACCES)
    with pytest.raises(Denied):
        store.delete("k")
    store.delete("k")
    store.delete("k")


# --- what dead writers left


def leave(path: Path, hours: float, name: str = "0123") -> Path:
    """A temporary file of a writer that died so many hours ago."""
    path.mkdir(parents=True, exist_ok=True)
    left = path / f".tiered-tmp-{name}"
    left.write_bytes(b"half")
    written = SystemClock().now_ms() / 1000 - 3600 * hours
    os.utime(left, (written, written))
    return left


@pytest.mark.parametrize("host_hours", [-72, 0, 72])
def test_old_unfinished_files_are_swept_and_no_others(tmp_path: Path, host_hours: int) -> None:
    """Old by the file server's clock: a host whose clock is days ahead must not remove what a writer is at work on."""
    store = PosixProvider(str(tmp_path / "archive"), SystemClock())
    store.create_root()
    for key in ("c/b/archive.json", "c/b/data/1", "c/b/commit/00/7"):
        store.put(key, [b"x"])
    base = tmp_path / "archive" / "c" / "b"
    old = [leave(base / part, 25, str(n)) for n, part in enumerate(("", "data", "commit/00"))]
    kept = [leave(base / "data", 23, "young"), leave(tmp_path / "archive" / "c" / "other", 25)]
    objects = base / "data" / "1"
    os.utime(objects, (0, 0))
    clock = ManualClock(SystemClock().now_ms() + 3_600_000 * host_hours)
    fresh = PosixProvider(str(tmp_path / "archive"), clock)
    assert sum(sweep(Wrapped(fresh), "c/b/")) == len(old)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (*kept, objects))
    assert len(list(tmp_path.rglob(".tiered-tmp-*"))) == len(kept), "nor does looking at the clock leave one"


def test_a_large_directory_is_swept_in_slices(
    store: PosixProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posixsweep, "SLICE_NAMES", 10)
    for number in range(35):
        leave(tmp_path / "archive" / "c", 48, str(number))
    assert list(sweep(store, "c")) == [10, 10, 10, 5]


def test_a_put_whose_unfinished_file_was_swept_fails_and_is_made_again(
    store: PosixProvider, tmp_path: Path
) -> None:
    """A writer that was stopped for more than a day, in the middle of a put."""
    store.put("c/first", [b"x"])

    def stopped_for_long(point: CrashPoint) -> None:
        if point is CrashPoint.POSIX_AFTER_TEMPORARY:
            (left,) = (tmp_path / "archive" / "c").glob(".tiered-tmp-*")
            os.utime(left, (1, 1))
            assert sum(sweep(store, "c")) == 1

    crashpoint.install(stopped_for_long)
    try:
        with pytest.raises(Unavailable):
            store.put("c/k", [b"mine"])
    finally:
        crashpoint.install(None)
    assert files(tmp_path / "archive") == ["c/first"]
    store.put("c/k", [b"mine"])


def test_stores_without_unfinished_objects_are_not_swept() -> None:
    assert list(sweep(MemoryProvider("", ManualClock()), "c")) == []
