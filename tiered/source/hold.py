"""The hold: hard links that keep commitlog files alive until they are archived, within a disk budget (law 3).

A link lives in a directory beside the broker's, on the same file system, never inside the broker's own. Its name is
``<base offset, 20 digits>.<inode>``, so that a rewritten or reinstalled broker's file of the same base is kept apart.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tiered import durable
from tiered.clock import Clock
from tiered.errors import Invalid, Refused, Unavailable
from tiered.model import ByteRange, PhysicalOffset
from tiered.settings import Hold
from tiered.source.files import LogFile, base_of, file_at, opened_directory

BUDGET_SECONDS = 5.0
"""How often the partition is looked at while no file came or went."""

LetGo = Callable[[ByteRange], None]
DiskUsage = Callable[[str], float]


def disk_percent(path: str) -> float:
    """Usage of the partition in per cent as ``df`` and the broker reckon it: of what unprivileged users may have."""
    found = os.statvfs(path)
    used = found.f_blocks - found.f_bfree
    return 100.0 * used / max(1, used + found.f_bavail)


@dataclass(frozen=True, slots=True)
class HoldPlace:
    """Where links of one commitlog directory go."""

    commitlog: str
    directory: str


class HardLinkHold:
    """Links, their release and their budget. Not thread-safe: its owner serialises calls.

    ``on_let_go`` is told each physical range given up to the budget, after the link is gone.
    """

    def __init__(
        self,
        places: Sequence[HoldPlace],
        broker_directories: Sequence[str],
        settings: Hold,
        clock: Clock,
        on_let_go: LetGo | None = None,
        disk_usage: DiskUsage = disk_percent,
    ) -> None:
        self._places = tuple(places)
        self._broker_directories = tuple(broker_directories)
        self._settings = settings
        self._clock = clock
        self._on_let_go = on_let_go
        self._disk_usage = disk_usage
        self._links: dict[tuple[int, int], LogFile] | None = None
        self._released = PhysicalOffset(0)
        self._kept_alive = 0
        self._checked_at: float | None = None

    def files(self) -> tuple[LogFile, ...]:
        """Every held file, links of an earlier run included, ordered by base."""
        return tuple(sorted(self._known().values(), key=lambda f: (f.base, f.identity)))

    def look_again(self) -> None:
        """Forget what is known of the directory: its disk was away, and is back with links that could not be seen."""
        self._links = None

    def link(self, files: Iterable[LogFile]) -> bool:
        """Link those not linked yet and not released; true if there was one. ``Refused`` if linking is impossible."""
        known = self._known()
        touched: set[str] = set()
        for file in files:
            if file.identity not in known and file.end > self._released:
                place = self._place_of(file)
                linked = _link(file, place)
                if linked is not None:
                    known[linked.identity] = linked
                    touched.add(place)
        for directory in touched:
            _sync_directory(directory)
        return bool(touched)

    def release(self, up_to: PhysicalOffset) -> bool:
        """Let go of files that lie wholly below ``up_to``, and do not link them again; true if there was one."""
        self._released = up_to
        done = [file for file in self._known().values() if file.end <= up_to]
        for file in done:
            self._unlink(file)
        if done:
            self._checked_at = None
        return bool(done)

    def enforce(self, *, changed: bool, forget: Callable[[LogFile], None]) -> bool:
        """Let the oldest files go while over budget; true if one went. ``forget`` closes what keeps their space.

        Only files that the broker has deleted count and go: unlinking others would free nothing.
        """
        now = self._clock.monotonic()
        if not changed and self._checked_at is not None and now - self._checked_at < BUDGET_SECONDS:
            return False
        self._checked_at = now
        alone = self._kept_alone()
        kept = sum(file.stored for file in alone)
        went = False
        for file in alone:
            if kept <= self._settings.max_bytes and not self._partition_full(file):
                break
            forget(file)
            self._unlink(file)
            kept -= file.stored
            went = True
            if self._on_let_go is not None:
                self._on_let_go(ByteRange(file.base, file.end))
        self._kept_alive = kept
        return went

    def held_bytes(self) -> int:
        """Bytes that only the hold keeps alive."""
        self._kept_alive = sum(file.stored for file in self._kept_alone())
        return self._kept_alive

    def _known(self) -> dict[tuple[int, int], LogFile]:
        if self._links is None:
            check_places(self._places, self._broker_directories)
            found = [file for place in self._places for file in _existing(place.directory)]
            self._links = {file.identity: file for file in found}
        return self._links

    def _place_of(self, file: LogFile) -> str:
        parent = os.path.dirname(file.path)
        return next(place.directory for place in self._places if place.commitlog == parent)

    def _kept_alone(self) -> list[LogFile]:
        alone = []
        for file in self.files():
            try:
                found = os.stat(file.path)
            except FileNotFoundError:
                self._known().pop(file.identity)  # somebody cleared the hold by hand
                continue
            if found.st_nlink == 1:
                alone.append(file)
        return alone

    def _partition_full(self, file: LogFile) -> bool:
        return self._disk_usage(os.path.dirname(file.path)) > self._settings.max_disk_percent

    def _unlink(self, file: LogFile) -> None:
        self._known().pop(file.identity)
        try:
            os.unlink(file.path)
        except FileNotFoundError:
            return
        except OSError as error:
            self._known()[file.identity] = file
            raise Unavailable(
                "a link of the hold cannot be removed", path=file.path, found=error.strerror
            ) from error


def check_places(places: Sequence[HoldPlace], broker_directories: Sequence[str]) -> None:
    """``Refused`` if a hold directory lies inside one of the broker's: the broker would load or delete the links."""
    for place in places:
        own = os.path.realpath(place.directory)
        for directory in broker_directories:
            broker = os.path.realpath(directory)
            if own == broker or own.startswith(broker.rstrip("/") + "/"):
                raise Refused(
                    "hold.directory lies inside the broker's own directory",
                    path=place.directory,
                    broker=directory,
                    hint="set hold.directory to a directory beside the store, on the same file system",
                )


def _existing(directory: str) -> list[LogFile]:
    """Links of an earlier run. A name whose inode is not the file's (a copied hold) is believed by its file."""
    files = []
    try:
        with opened_directory(directory) as opened:
            for name in os.listdir(opened):
                base = base_of(name.partition(".")[0])
                if base is None or not name.partition(".")[2].isdigit():
                    continue
                with suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=opened)
                    files.append(file_at(os.path.join(directory, name), base, found))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Invalid(
            "the hold directory cannot be read",
            path=directory,
            found=error.strerror,
            hint="let the daemon's user read and write it, or set hold.directory",
        ) from error
    return files


def _link(file: LogFile, directory: str) -> LogFile | None:
    """Link one file; ``None`` if the broker deleted it first. What is linked may be a newer inode of the same name."""
    path = _link_path(directory, file.base, file.identity[1])
    try:
        durable.make_directory(directory, mode=0o750)
        with suppress(FileExistsError):  # linked before, or a copied hold: its inode decides
            os.link(file.path, path)
        found = os.stat(path)
        if found.st_ino != file.identity[1]:
            true_path = _link_path(directory, file.base, found.st_ino)
            os.rename(path, true_path)
            path = true_path
        return file_at(path, file.base, found).as_long_as(file.length)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _link_error(file.path, directory, error) from error


def try_link(file: LogFile, directory: str) -> bool:
    """Whether a file can be linked into a hold directory: done and undone, a directory made for it too. False if the
    broker deleted the file first; what ``HardLinkHold.link`` raises if linking is impossible."""
    missing, at = [], os.path.abspath(directory)
    while not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at)
    path = os.path.join(directory, f".tried-{os.getpid()}-{file.base}")
    try:
        durable.make_directory(directory, mode=0o750)
        os.link(file.path, path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _link_error(file.path, directory, error) from error
    finally:
        with suppress(OSError):
            os.unlink(path)
        with suppress(OSError):
            for made in missing:
                os.rmdir(made)
    return True


def _link_path(directory: str, base: int, inode: int) -> str:
    return os.path.join(directory, f"{base:020d}.{inode}")


def _link_error(path: str, directory: str, error: OSError) -> Refused | Unavailable:
    hints = {
        errno.EXDEV: "set hold.directory to a directory on the broker's file system (the same mount)",
        errno.EPERM: "the file system or fs.protected_hardlinks forbids links: run the daemon as the broker's user",
        errno.EACCES: "let the daemon's user write to hold.directory and read and write the commitlog files",
        errno.EMLINK: "the commitlog file has too many links: remove other hard links to it",
        errno.EROFS: "the file system is read-only: set hold.directory to a writable directory on the same file system",
        errno.ENOTSUP: "the file system has no hard links: keep the broker's store on one that has",
        errno.ENOTDIR: "hold.directory, or a parent of it, is a file: name a directory",
    }
    hint = hints.get(error.errno or 0)
    if hint is None:
        return Unavailable(
            "a commitlog file cannot be linked into the hold", path=path, hold=directory, found=error.strerror
        )
    return Refused(
        "commitlog files cannot be linked into the hold, so the broker could delete them before they are archived",
        path=path,
        hold=directory,
        expected="a hard link in the hold",
        found=error.strerror,
        hint=hint,
    )


def _sync_directory(directory: str) -> None:
    """Make the links last: the broker's deletion must not survive a power cut that the link does not."""
    try:
        durable.sync(directory)
    except OSError as error:
        raise Unavailable(
            "the hold directory cannot be synced", path=directory, found=error.strerror
        ) from error
