"""Commitlog files on disk: names, the cached directory scan, lookup by offset, and what is missing.

A commitlog file is named by its base physical offset in 20 decimal digits and is allocated at full size before anything is
written (RocketMQ ``MappedFileQueue``); what was never written reads as zeros. Several directories may share one log.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import gcd

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


_Stamp = tuple[tuple[int, int], int]
"""Of a directory: (device, inode), and the time of its last change."""

_AWAY_HINT = "check source.store_dir and source.commitlog_dirs, and that the disk is mounted"


@dataclass(frozen=True, slots=True)
class LogFile:
    """One commitlog file: [base, end) of the physical offsets, ``length`` bytes; ``identity`` is (device, inode).

    ``missing``: how many of them the file has lost at its end: all files of a broker have one length. They read as nothing.
    """

    base: PhysicalOffset
    length: int
    identity: tuple[int, int]
    path: str
    changed_ns: int = field(default=0, compare=False)
    missing: int = 0

    @property
    def end(self) -> PhysicalOffset:
        """First physical offset behind the file."""
        return PhysicalOffset(self.base + self.length)

    @property
    def stored(self) -> int:
        """Bytes that the file has."""
        return self.length - self.missing

    def as_long_as(self, length: int) -> LogFile:
        """The same file known to have been ``length`` bytes long; itself if it is not shorter."""
        return self if self.length >= length else replace(self, length=length, missing=length - self.stored)


def base_of(name: str) -> PhysicalOffset | None:
    """The base offset that a commitlog file's name gives; ``None`` for any other name."""
    if len(name) == NAME_DIGITS and name.isascii() and name.isdigit():
        return PhysicalOffset(int(name))
    return None


def file_at(path: str, base: PhysicalOffset, found: os.stat_result) -> LogFile:
    """The file as a ``stat`` showed it."""
    return LogFile(base, found.st_size, (found.st_dev, found.st_ino), path, found.st_mtime_ns)


def changed_ms(file: LogFile) -> int:
    """When it was written last, as of now: a scan that finds the same files keeps what it knew. ``NotFound`` if it is gone."""
    try:
        return os.stat(file.path).st_mtime_ns // 1_000_000
    except OSError as error:
        raise NotFound("a commitlog file went away", file=file.path) from error


def scan_directory(directory: str) -> tuple[_Stamp, list[LogFile]]:
    """The commitlog files of one directory, unordered, and its stamp before they were listed. ``NotFound`` if it is gone,
    ``Unavailable`` on I/O errors.

    All through one descriptor: a directory that is renamed or unmounted meanwhile is seen whole, as it was. By its path the
    files not looked at yet would be missing, as if the broker had cut its log.
    """
    files = []
    try:
        with opened_directory(directory) as descriptor, os.scandir(descriptor) as entries:
            stamp = _stamp_of(os.fstat(descriptor))
            for entry in entries:
                base = base_of(entry.name)
                if base is None:
                    continue
                try:
                    found = entry.stat(follow_symlinks=True)
                except FileNotFoundError:
                    continue  # deleted between listing and stat
                if stat.S_ISREG(found.st_mode):
                    files.append(file_at(os.path.join(directory, entry.name), base, found))
    except OSError as error:
        raise directory_error(directory, error) from error
    return stamp, files


@contextmanager
def opened_directory(directory: str) -> Iterator[int]:
    """A descriptor of a directory, which stays what it is wherever its path leads."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def directory_error(directory: str, error: OSError) -> NotFound | Unavailable:
    """What a failing directory means."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound(
            "the commitlog directory does not exist",
            path=directory,
            hint=_AWAY_HINT,
        )
    return Unavailable("the commitlog directory cannot be read", path=directory, found=error.strerror)


def _stamp_of(found: os.stat_result) -> _Stamp:
    return (found.st_dev, found.st_ino), found.st_mtime_ns


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


_Scanned = dict[str, tuple[_Stamp, list[LogFile]]]
"""Of each directory what one scan of it found."""


class BrokerFiles:
    """The broker's own files. A scan is reused while no directory changed.

    ``away`` says what is missing while a directory that was there is gone, or has lost every file (a disk that is not mounted
    leaves an empty directory). ``table`` then has what the other directories hold. ``returns`` counts how often everything
    was back. ``size``: how long each file of this broker is, 0 before one is known.
    """

    def __init__(self, directories: Sequence[str], clock: Clock) -> None:
        self.directories = tuple(directories)
        self._clock = clock
        self._stamps: tuple[_Stamp, ...] | None = None
        self._seen: dict[str, _Seen] = {}
        self._changed_at = 0.0
        self._scanned_at = 0.0
        self.size = 0
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
        except _Lost as error:
            return self._miss(now, error)
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
                found += scan_directory(directory)[1]
        whole, growing = self._sort_out(found)
        changed = self.away is None or whole != self.table.files
        self.away, self._missed_at = error, now
        self.table, self.growing = FileTable(whole), growing
        return changed

    def _look(self, now: float, *, force: bool) -> bool:
        stamps = tuple(self._stamp(directory) for directory in self.directories)
        if (
            stamps == self._stamps
            and not force
            and not self.growing
            and now - self._changed_at > SETTLE_SECONDS
            and now - self._scanned_at < RESCAN_SECONDS
        ):
            return False
        scanned = {directory: scan_directory(directory) for directory in self.directories}
        self._refuse_lost(scanned)
        stamps = tuple(stamp for stamp, _ in scanned.values())
        if stamps != self._stamps:
            self._changed_at = now
        whole, growing = self._sort_out([file for _, files in scanned.values() for file in files])
        self._stamps, self._scanned_at = stamps, now
        self._seen = {
            directory: _Seen(stamp[0], frozenset(file.base for file in files))
            for directory, (stamp, files) in scanned.items()
        }
        if whole == self.table.files and growing == self.growing:
            return False
        self.table, self.growing = FileTable(whole), growing
        return True

    def _refuse_lost(self, scanned: _Scanned) -> None:
        """``_Lost`` if a directory is empty that should not be: its disk is not mounted."""
        bases = sorted(file.base for _, files in scanned.values() for file in files)
        if not bases:
            if len(self.table) or self.away is not None:
                raise _Lost(
                    "the commitlog directory has lost its files",
                    path=", ".join(self.directories),
                    hint=_AWAY_HINT,
                )
            return
        for directory, (stamp, files) in scanned.items():
            if files:
                continue
            seen = self._seen.get(directory)
            if seen is None and len(scanned) > 1 and self._has_hole(scanned):
                raise _Lost(
                    "a commitlog directory is empty, and files of the log are missing",
                    path=directory,
                    hint="mount the disk that belongs there, or take the directory out of source.commitlog_dirs",
                )
            if seen is not None and not seen.went_by_the_broker(stamp[0], bases):
                raise _Lost("a commitlog directory has lost its files", path=directory, hint=_AWAY_HINT)

    def _has_hole(self, scanned: _Scanned) -> bool:
        whole, _ = self._sort_out([file for _, files in scanned.values() for file in files])
        return any(one.end != following.base for one, following in pairwise(whole))

    @staticmethod
    def _stamp(directory: str) -> _Stamp:
        try:
            return _stamp_of(os.stat(directory))
        except OSError as error:
            raise directory_error(directory, error) from error

    def _sort_out(self, found: list[LogFile]) -> tuple[tuple[LogFile, ...], tuple[LogFile, ...]]:
        """The log's files, all as long as the longest, and those at its end that are being created.

        A shorter one has lost its end. ``Corrupt`` if the lengths contradict the names.
        """
        ordered = sorted(found, key=lambda f: (f.base, f.path))
        self.size = _size_of(ordered, self.size)
        growing: list[LogFile] = []
        while ordered and not ordered[-1].length:
            growing.insert(0, ordered.pop())
        return tuple(file.as_long_as(self.size) for file in ordered), tuple(growing)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a directory was at the last look at all of them: (device, inode), and the bases of its files."""

    identity: tuple[int, int]
    bases: frozenset[int]

    def went_by_the_broker(self, identity: tuple[int, int], left: Sequence[int]) -> bool:
        """Whether the broker may have deleted all that was here; ``left``: bases of what the other directories have, ascending.

        It deletes the oldest files, and, when it cuts its log, the newest; never one between two that it keeps.
        """
        older = all(base < left[0] for base in self.bases)
        newer = all(base > left[-1] for base in self.bases)
        return older or (newer and identity == self.identity)


class _Lost(NotFound):
    """A directory is there and cannot be the one that it was."""


def _size_of(ordered: Sequence[LogFile], known: int) -> int:
    """How long each file of this broker is: as the longest, or more if it was before, or if only that fits the names."""
    for one, following in pairwise(ordered):
        if one.base == following.base:
            raise Corrupt(
                "two commitlog files have the same name",
                path=following.path,
                found=one.path,
                hint="source.commitlog_dirs must name each directory of one broker once",
            )
    longest = max(ordered, key=lambda f: f.length, default=None)
    if longest is None or not longest.length:
        return known
    step = gcd(*(file.base - ordered[0].base for file in ordered))
    for size in (max(longest.length, known), longest.length):
        if step % size == 0:
            return size
    fits = any(2 * file.length >= step > 0 == step % file.length for file in ordered if file.length)
    if longest.length > step or fits:
        raise Corrupt(
            "commitlog files differ in size",
            path=longest.path,
            expected=step
            if longest.length > step
            else "a length that fits the names, as another file's does",
            found=longest.length,
            hint="all files of a broker have the same size (mappedFileSizeCommitLog); remove copies and leftovers",
        )
    return step  # all of them are short, or files between them are missing
