"""Reading commitlog files: bounded cached descriptors, each of exactly one inode."""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from tiered.errors import NotFound, Unavailable
from tiered.source.files import LogFile


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


def stored_from(descriptor: int, position: int, length: int) -> tuple[int, int] | None:
    """The next stretch of file positions, from ``position`` on, where something may be stored; ``None`` if only a hole follows.

    A hole reads as zeros. Where the file system does not tell holes, all up to ``length`` may be stored.
    """
    try:
        start = os.lseek(descriptor, position, os.SEEK_DATA)
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        return None if error.errno == errno.ENXIO else (position, length)
    return start, end if end > start else length  # a hole made between the two questions
