"""Commitlog files on disk: names, the cached directory scan, lookup by offset, and bounded cached descriptors.

A commitlog file is named by its base physical offset in 20 decimal digits and is allocated at full size before anything is
written (RocketMQ ``MappedFileQueue``); what was never written reads as zeros. Several directories may share one log.
"""

from __future__ import annotations

import os
import stat
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tiered.clock import Clock
from tiered.errors import Corrupt, NotFound, Unavailable
from tiered.model import PhysicalOffset

NAME_DIGITS = 20
SETTLE_SECONDS = 0.1
"""How long after a directory changed it is scanned at every look: its mtime may be too coarse to show a second change."""
RESCAN_SECONDS = 1.0
"""A scan is never older than this, whatever the directory's mtime says."""
AWAY_SECONDS = 1.0
"""How often a directory that went away is looked for."""


_AWAY_HINT = "check source.store_dir and source.commitlog_dirs, and that the disk is mounted"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One commitlog file: [base, end) of the physical offsets, ``length`` bytes; ``identity`` is (device, inode)."""

    base: PhysicalOffset
    length: int
    identity: tuple[int, int]
    path: str
    changed_ns: int = field(default=0, compare=False)

    @property
    def end(self) -> PhysicalOffset:
        """First physical offset behind the file."""
        return PhysicalOffset(self.base + self.length)


def base_of(name: str) -> PhysicalOffset | None:
    """The base offset that a commitlog file's name gives; ``None`` for any other name."""
    if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
        return PhysicalOffset(int(name))
    return None


def file_at(path: str, base: PhysicalOffset, found: os.stat_result) -> LogFile:
    """The file as a ``stat`` showed it."""
    return LogFile(base, found.st_size, (found.st_dev, found.st_ino), path, found.st_mtime_ns)


def scan_directory(directory: str) -> list[LogFile]:
    """The commitlog files of one directory, unordered. ``NotFound`` if it is gone, ``Unavailable`` on I/O errors."""
    files = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                base = base_of(entry.name)
                if base is None:
                    continue
                try:
                    found = entry.stat(follow_symlinks=True)
                except FileNotFoundError:
                    continue  # deleted between listing and stat
                if stat.S_ISREG(found.st_mode):
                    files.append(file_at(entry.path, base, found))
    except OSError as error:
        raise directory_error(directory, error) from error
    return files


def directory_error(directory: str, error: OSError) -> NotFound | Unavailable:
    """What a failing directory means."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound(
            "the commitlog directory is not there",
            path=directory,
            hint=_AWAY_HINT,
        )
    return Unavailable("the commitlog directory cannot be read", path=directory, found=error.strerror)


class FileTable:
    """An immutable, ordered set of files that do not overlap."""

    def __init__(self, files: Iterable[LogFile]) -> None:
        self.files = tuple(sorted(files, key=lambda f: f.base))
        self._bases = [f.base for f in self.files]

    def at(self, offset: int) -> LogFile | None:
        """The file that holds ``offset``."""
        row = bisect_right(self._bases, offset) - 1
        if row < 0 or offset >= self.files[row].end:
            return None
        return self.files[row]

    def after(self, offset: int) -> LogFile | None:
        """The first file whose base lies above ``offset``."""
        row = bisect_right(self._bases, offset)
        return self.files[row] if row < len(self.files) else None

    def __len__(self) -> int:
        return len(self.files)


class BrokerFiles:
    """The broker's own files. A scan is reused while no directory changed; files of the wrong length are not there yet.

    ``away`` says what is missing while a directory that was there is gone, or has lost every file (a disk that is not mounted
    leaves an empty directory; a broker never deletes its newest file). ``table`` then has what the other directories hold.
    ``returns`` counts how often everything was back.
    """

    def __init__(self, directories: Sequence[str], clock: Clock) -> None:
        self.directories = tuple(directories)
        self._clock = clock
        self._stamps: tuple[tuple[int, int], ...] | None = None
        self._changed_at = 0.0
        self._scanned_at = 0.0
        self.table = FileTable(())
        self.growing: tuple[LogFile, ...] = ()
        self.away: NotFound | None = None
        self.returns = 0
        self._missed_at = 0.0

    def refresh(self, *, force: bool = False) -> bool:
        """Look at the directories; true if the set of files changed, or one went away or came back.

        Errors as ``scan_directory``, and ``Corrupt``; ``NotFound`` only of a directory that was never there.
        """
        now = self._clock.monotonic()
        if self.away is not None and now - self._missed_at < AWAY_SECONDS:
            return False
        try:
            changed = self._look(now, force=force or self.away is not None)
        except NotFound as error:
            if self._stamps is None:
                raise
            return self._miss(now, error)
        if self.away is not None:
            self.away, self.returns = None, self.returns + 1
            return True
        return changed

    def _miss(self, now: float, error: NotFound) -> bool:
        """A directory is away: keep to what the others hold."""
        found: list[LogFile] = []
        for directory in self.directories:
            with suppress(NotFound):
                found += scan_directory(directory)
        whole, growing = _sort_out(found)
        changed = self.away is None or whole != self.table.files
        self.away, self._missed_at = error, now
        self.table, self.growing = FileTable(whole), growing
        return changed

    def _look(self, now: float, *, force: bool) -> bool:
        stamps = tuple(self._stamp(directory) for directory in self.directories)
        if stamps != self._stamps:
            self._changed_at = now
        elif (
            not force
            and not self.growing
            and now - self._changed_at > SETTLE_SECONDS
            and now - self._scanned_at < RESCAN_SECONDS
        ):
            return False
        found = [file for directory in self.directories for file in scan_directory(directory)]
        if not found and (len(self.table) or self.away is not None):
            raise NotFound(
                "the commitlog directory has lost its files",
                path=", ".join(self.directories),
                hint=_AWAY_HINT,
            )
        self._stamps, self._scanned_at = stamps, now
        whole, growing = _sort_out(found)
        if whole == self.table.files and growing == self.growing:
            return False
        self.table, self.growing = FileTable(whole), growing
        return True

    @staticmethod
    def _stamp(directory: str) -> tuple[int, int]:
        try:
            found = os.stat(directory)
        except OSError as error:
            raise directory_error(directory, error) from error
        return found.st_ino, found.st_mtime_ns


def _sort_out(found: list[LogFile]) -> tuple[tuple[LogFile, ...], tuple[LogFile, ...]]:
    """Whole files and files still being created. All are as long as the first; a longer one is an error."""
    ordered = sorted(found, key=lambda f: (f.base, f.path))
    whole: list[LogFile] = []
    growing: list[LogFile] = []
    size = next((f.length for f in ordered if f.length > 0), 0)
    for file in ordered:
        if whole and file.base == whole[-1].base:
            raise Corrupt(
                "two commitlog files have the same name",
                path=file.path,
                found=whole[-1].path,
                hint="source.commitlog_dirs must name each directory of one broker once",
            )
        if file.length > size or (whole and file.base < whole[-1].end):
            raise Corrupt(
                "commitlog files differ in size",
                path=file.path,
                expected=size,
                found=file.length,
                hint="all files of a broker have one size (mappedFileSizeCommitLog); remove copies and leftovers",
            )
        (whole if file.length == size > 0 else growing).append(file)
    return tuple(whole), tuple(growing)


class _Handle:
    __slots__ = ("descriptor", "stale", "users")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.users = 0
        self.stale = False


class Descriptors:
    """Open read-only descriptors by file identity, at most ``capacity`` idle ones. Safe from any thread.

    A descriptor is never closed while somebody reads through it: another file could get its number.
    """

    def __init__(self, capacity: int = 16) -> None:
        self._capacity = capacity
        self._handles: OrderedDict[tuple[int, int], _Handle] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self, file: LogFile) -> Iterator[int]:
        """A descriptor of exactly this inode. ``NotFound`` if the path is gone or is another file by now."""
        handle = self._take(file)
        try:
            yield handle.descriptor
        finally:
            with self._lock:
                handle.users -= 1
                if handle.stale and handle.users == 0:
                    os.close(handle.descriptor)

    def _take(self, file: LogFile) -> _Handle:
        with self._lock:
            handle = self._handles.get(file.identity)
            if handle is None:
                handle = _Handle(_open(file))
                self._handles[file.identity] = handle
            self._handles.move_to_end(file.identity)
            handle.users += 1
            while len(self._handles) > self._capacity:
                self._drop(next(iter(self._handles)))
            return handle

    def retain(self, identities: set[tuple[int, int]]) -> None:
        """Close the descriptors of all other files: an open descriptor would keep a deleted file's disk space."""
        with self._lock:
            for identity in [i for i in self._handles if i not in identities]:
                self._drop(identity)

    def drop(self, identity: tuple[int, int]) -> None:
        """Close this file's descriptor, at once or when its last reader is done."""
        with self._lock:
            if identity in self._handles:
                self._drop(identity)

    def close(self) -> None:
        """Close everything; a later ``borrow`` opens again."""
        self.retain(set())

    def _drop(self, identity: tuple[int, int]) -> None:
        handle = self._handles.pop(identity)
        handle.stale = True
        if handle.users == 0:
            os.close(handle.descriptor)


def _open(file: LogFile) -> int:
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise NotFound("the commitlog file is gone", path=file.path) from error
    except OSError as error:
        raise Unavailable(
            "the commitlog file cannot be opened",
            path=file.path,
            found=error.strerror,
            hint="run the daemon as the broker's user or in its group",
        ) from error
    found = os.fstat(descriptor)
    if (found.st_dev, found.st_ino) != file.identity:
        os.close(descriptor)
        raise NotFound("the commitlog file was replaced", path=file.path)
    return descriptor


def read_into(descriptor: int, view: memoryview, position: int, path: str) -> int:
    """Fill ``view`` from file position ``position``; returns the bytes read, fewer only at the file's end."""
    done = 0
    try:
        while done < len(view):
            count = os.preadv(descriptor, [view[done:]], position + done)
            if count == 0:
                break
            done += count
    except OSError as error:
        raise Unavailable(
            "the commitlog file cannot be read", path=path, position=position + done, found=error.strerror
        ) from error
    return done
