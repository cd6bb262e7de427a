"""Where the files of a POSIX archive go: its root, and the proof that what lies there is the archive.

A disk that goes away leaves its empty mount point behind, under the same path. So the root is made once, when an archive is
created, and never by a write; and a process that has opened an archive names its identity as the *guard*: every write below it
first opens the guarded directory, sees the identity in it, and works from that open directory alone. An open directory stays
the same file system's whatever is mounted or unmounted meanwhile, so that a put is never half on one disk and half on another.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from tiered.errors import Invalid, Unavailable

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
MAX_GUARD_BYTES = 64 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TRIES = 3  # somebody may remove an empty directory while it is entered

Same = Callable[[bytes], bool]
Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Anchor:
    """An open directory of the archive. ``above``: its key with a slash behind it, ``""`` for the root."""

    descriptor: int
    above: str
    device: int
    inode: int
    guarded: bool

    def rest(self, key: str) -> str:
        """``key`` as a path from this directory; ``.`` for the directory itself."""
        return key[len(self.above) :] or "."


@dataclass(frozen=True, slots=True)
class PutTarget:
    """The open directory that a put writes to, the object's name in it, and what it was reached from."""

    descriptor: int
    name: str
    anchor: Anchor
    directory: str


class _Guard:
    """The object that must lie in the archive's directory, and what tells its bytes from another's."""

    def __init__(self, key: str, same: Same) -> None:
        above, _, self.name = key.rpartition("/")
        self.above = f"{above}/" if above else ""
        self.same = same
        self.seen: Stamp | None = None  # of the object as it was when its bytes were last read


class ArchiveDirectory:
    """The directory ``root`` and what is below it. Thread-safe."""

    def __init__(self, root: str, url: str) -> None:
        self.root = root
        self._url = url
        self._guard: _Guard | None = None
        self._ready: set[tuple[int, int, str]] = set()  # (anchor's device and inode, directory): durable
        self._made = False
        self._lock = threading.Lock()

    def create_root(self) -> None:
        """Make the root, durably, unless it is there. ``Invalid`` if the directory that should hold it is not."""
        holder = os.path.dirname(self.root)
        if not os.path.isdir(holder):
            raise Invalid(
                "the directory that should hold the archive does not exist",
                directory=holder,
                url=self._url,
                hint="mount the disk, create the directory, or correct archive.url",
            )
        with suppress(FileExistsError):
            os.mkdir(self.root)
            self._made = True
        fsync_directory(holder)

    def guard(self, key: str, same: Same) -> None:
        """From now on nothing is written below the directory of ``key``, and nothing there counts as absent, unless ``key``
        lies in it and ``same`` says yes to its bytes."""
        with self._lock:
            self._guard = _Guard(key, same)

    def covers(self, key: str) -> bool:
        """Whether ``key`` lies below the guarded directory."""
        guard = self._guard
        return guard is not None and f"{key}/".startswith(guard.above)

    @contextmanager
    def anchor(self, key: str) -> Iterator[Anchor]:
        """The open directory that ``key`` is reached from: the guarded one, seen to be the archive's, or else the root.

        ``Unavailable`` if it is gone, or is another one.
        """
        guard = self._guard if self.covers(key) else None
        above = "" if guard is None else guard.above
        path = os.path.join(self.root, above).rstrip("/")
        try:
            descriptor = os.open(path, _DIRECTORY)
        except FileNotFoundError as error:
            raise self._gone(path) from error
        try:
            status = os.fstat(descriptor)
            if guard is not None:
                self._check(descriptor, status, guard, path)
            yield Anchor(descriptor, above, status.st_dev, status.st_ino, guard is not None)
        finally:
            os.close(descriptor)

    @contextmanager
    def target(self, key: str) -> Iterator[PutTarget]:
        """The open directory for a put of ``key``; made where it is missing, durable together with all above it."""
        with self.anchor(key) as anchor:
            directory, _, name = anchor.rest(key).rpartition("/")
            with self._lock:
                known = (anchor.device, anchor.inode, directory) in self._ready
            descriptor = self._enter(anchor, directory) if known else self._make(anchor, directory)
            try:
                yield PutTarget(descriptor, name, anchor, directory)
            finally:
                os.close(descriptor)

    def settled(self, target: PutTarget) -> None:
        """A put into this directory succeeded: from now on it must be there."""
        with self._lock:
            self._ready.add((target.anchor.device, target.anchor.inode, target.directory))

    def missing(self, anchor: Anchor, keys: Sequence[str]) -> list[str]:
        """Those of ``keys`` that are not there, on the anchor's own file system."""
        return [key for key in keys if not self._is_there(anchor, anchor.rest(key))]

    def tidy(self, prefix: str) -> None:
        """Remove the directory of ``prefix`` and those above it, as far as they are empty; the root only if made here."""
        directory = prefix.rstrip("/")
        with suppress(OSError), self._lock:
            self._ready.clear()
            while directory:
                os.rmdir(os.path.join(self.root, directory))
                directory = directory.rpartition("/")[0]
            if self._made:
                os.rmdir(self.root)

    # --- looking

    def _check(self, descriptor: int, directory: os.stat_result, guard: _Guard, path: str) -> None:
        """Raise unless the identity lies in the open directory. Its bytes are read when it looks different from last time."""
        try:
            status = os.stat(guard.name, dir_fd=descriptor)
            stamp = (
                *(directory.st_dev, directory.st_ino, status.st_dev, status.st_ino),
                *(status.st_size, status.st_mtime_ns),
            )
            if stamp == guard.seen:
                return
            opened = os.open(guard.name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=descriptor)
            try:
                data = os.pread(opened, MAX_GUARD_BYTES, 0)
            finally:
                os.close(opened)
        except FileNotFoundError as error:
            raise self._gone(path) from error
        if not guard.same(data):
            raise Unavailable(
                "another archive is where this one was",
                directory=path,
                url=self._url,
                hint="mount the archive's own disk again; nothing is written to another archive",
            )
        guard.seen = stamp

    def _gone(self, path: str) -> Unavailable:
        return Unavailable(
            "the archive's directory is gone: unmounted, moved or deleted",
            directory=path,
            url=self._url,
            hint="mount it again; nothing is written to a place that only looks like the archive",
        )

    def _is_there(self, anchor: Anchor, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        try:
            with opened_directory(directory or ".", anchor.descriptor) as descriptor:
                os.stat(name, dir_fd=descriptor)
                return os.fstat(descriptor).st_dev == anchor.device
        except OSError as error:
            if error.errno in ABSENT:
                return False
            raise

    # --- entering

    def _enter(self, anchor: Anchor, directory: str) -> int:
        """A directory that held an object of ours before. It is not made again: what was in it would be missing."""
        try:
            descriptor = os.open(directory or ".", _DIRECTORY, dir_fd=anchor.descriptor)
        except FileNotFoundError as error:
            raise self._gone(os.path.join(self.root, anchor.above, directory)) from error
        try:
            self._check_disk(descriptor, anchor, directory)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _make(self, anchor: Anchor, directory: str) -> int:
        """Make ``directory``; fsync every level up to the root's holder, those another process just made included."""
        for left in range(_TRIES - 1, -1, -1):
            try:
                return self._walk(anchor, directory.split("/") if directory else [])
            except FileNotFoundError as error:
                if not left:
                    raise self._gone(os.path.join(self.root, anchor.above, directory)) from error
        raise AssertionError("unreachable")

    def _walk(self, anchor: Anchor, segments: Sequence[str]) -> int:
        levels = [anchor.descriptor]
        with ExitStack() as stack:
            for segment in segments:
                try:
                    level = os.open(segment, _DIRECTORY, dir_fd=levels[-1])
                except FileNotFoundError:
                    with suppress(FileExistsError):
                        os.mkdir(segment, dir_fd=levels[-1])
                    level = os.open(segment, _DIRECTORY, dir_fd=levels[-1])
                stack.callback(os.close, level)
                self._check_disk(level, anchor, "/".join(segments[: len(levels)]))
                levels.append(level)
            for level in reversed(levels[:-1]):
                os.fsync(level)
            self._sync_above(anchor)
            return os.dup(levels[-1])

    def _sync_above(self, anchor: Anchor) -> None:
        """The entries of the anchor and of what it lies in, up to the root's own."""
        at = os.path.join(self.root, anchor.above).rstrip("/")
        while len(at) >= len(self.root):
            at = os.path.dirname(at)
            fsync_directory(at)

    def _check_disk(self, descriptor: int, anchor: Anchor, directory: str) -> None:
        if anchor.guarded and os.fstat(descriptor).st_dev != anchor.device:
            raise Invalid(
                "a directory of the archive lies on another file system than its identity",
                directory=os.path.join(self.root, anchor.above, directory),
                url=self._url,
                hint="keep an archive on one file system: mount the disk at its directory or above",
            )


@contextmanager
def opened_directory(path: str, above: int | None = None) -> Iterator[int]:
    """The descriptor of a directory, closed at the end."""
    descriptor = os.open(path, _DIRECTORY, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def fsync_directory(directory: str, above: int | None = None) -> None:
    """Make a directory's entries durable."""
    with opened_directory(directory, above) as descriptor:
        os.fsync(descriptor)
