"""The driver for a directory of a POSIX file system: create-only through hard links, durable through fsync.

The order of a create-only put is archive.md, section 5, "POSIX create-only": an exclusive temporary file in the target's own
directory, written and fsynced, linked to the name, unlinked, the directory fsynced. The store's clock is the temporary
file's mtime: on a network file system that is the server's, on a local disk the host's own.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Conflict, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.provider.base import Buffer, Capabilities, Fetched, Stored
from tiered.provider.body import views
from tiered.provider.naming import (
    TEMP_PREFIX,
    check_key,
    check_prefix,
    check_range,
    segment_problem,
    slice_range,
)

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNUSABLE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP})
_MAX_BUFFERS = 1024  # IOV_MAX on Linux
_SKEW_MS = 1000  # a difference of the two clocks below this is timer granularity, not a second clock


class PosixProvider:
    """Objects as files below ``root`` (an absolute path). Thread-safe, and safe beside other processes.

    ``root`` itself is made by the first put; the directory that holds it must exist, so that an unmounted disk or
    a mistyped path is an error instead of an archive in the wrong place.
    """

    def __init__(self, root: str, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._ready: set[str] = set()  # directories known to exist durably
        self._lock = threading.Lock()
        self._clock_offset_ms = 0
        self._closed = False

    @property
    def url(self) -> str:
        """``file:///root``."""
        return Path(self._root).as_uri()

    @property
    def capabilities(self) -> Capabilities:
        """Everything but multipart uploads; whether the file system has hard links is seen at the first put."""
        return Capabilities(create_only=True, suffix_range=True, ordered_listing=True, multipart=False)

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """See ``Provider.put``. ``Refused`` without hard links, ``Invalid`` if read-only or forbidden."""
        path = self._path(key)
        directory = os.path.dirname(path)
        temporary = os.path.join(directory, f"{TEMP_PREFIX}{uuid.uuid4().hex}")
        try:
            descriptor = self._create(temporary, directory)
        except OSError as error:
            raise self._error("create", key, error) from error
        try:
            length, modified_ms = self._fill(descriptor, key, parts)
            reach(CrashPoint.POSIX_AFTER_TEMPORARY)
            if create_only:
                self._link(temporary, path, key)
                reach(CrashPoint.POSIX_AFTER_LINK)
            else:
                os.replace(temporary, path)
            self._settle(temporary, directory)
        except OSError as error:
            raise self._error("write", key, error) from error
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        self._learn_clock(modified_ms)
        return Stored(key, length, modified_ms, modified_ms)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        """See ``Provider.get``."""
        path = self._path(key)
        first, count = check_range(key, start, length)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise NotFound("no such object", key=key, url=self.url)
                begin, end = slice_range(first, count, status.st_size)
                data = _pread(descriptor, begin, end - begin)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._error("read", key, error) from error
        return Fetched(data, status.st_size, self._now_ms(), status.st_mtime_ns // 1_000_000)

    def head(self, key: str) -> Stored:
        """See ``Provider.head``."""
        path = self._path(key)
        try:
            status = os.stat(path)
        except OSError as error:
            raise self._error("look at", key, error) from error
        if not stat.S_ISREG(status.st_mode):
            raise NotFound("no such object", key=key, url=self.url)
        return Stored(key, status.st_size, self._now_ms(), status.st_mtime_ns // 1_000_000)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """See ``Provider.list``. A directory is read whole and sorted when the listing reaches it."""
        self._check_open()
        above, _, _ = check_prefix(prefix).rpartition("/")
        after = b"" if start_after is None else start_after.encode()
        remaining = limit
        for key, path in self._walk(above, prefix.encode(), after):
            if remaining is not None:
                if remaining <= 0:
                    return
                remaining -= 1
            try:
                status = os.stat(path)
            except OSError as error:
                if error.errno in _ABSENT:
                    continue
                raise self._error("look at", key, error) from error
            yield Stored(key, status.st_size, self._now_ms(), status.st_mtime_ns // 1_000_000)

    def delete(self, key: str) -> None:
        """See ``Provider.delete``; durable. Empty directories stay: another writer may be about to use them."""
        path = self._path(key)
        try:
            os.unlink(path)
            _fsync_directory(os.path.dirname(path))
        except OSError as error:
            if error.errno not in _ABSENT:
                raise self._error("delete", key, error) from error

    def make_durable(self, key: str) -> None:
        """fsync an existing object and its directory: an opener does so with the head before it builds on it, because the
        process that wrote it may have died between its ``link`` and its last ``fsync``."""
        path = self._path(key)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            _fsync_directory(os.path.dirname(path))
        except OSError as error:
            raise self._error("fsync", key, error) from error

    def close(self) -> None:
        """Further verbs are errors."""
        self._closed = True

    # --- writing

    def _create(self, temporary: str, directory: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._make_directory(directory)
        try:
            return os.open(temporary, flags, 0o644)
        except FileNotFoundError as error:
            raise Unavailable(
                "a directory of the archive is gone: unmounted, or deleted under the running daemon",
                directory=directory,
                url=self.url,
                hint="mount it again; nothing is written to a place that only looks like the archive",
            ) from error

    def _make_directory(self, directory: str) -> None:
        """Make ``directory``; fsync every level up to the root's parent, those another process just made included."""
        with self._lock:
            if directory in self._ready:
                return
        holder = os.path.dirname(self._root)
        if not os.path.isdir(holder):
            raise Invalid(
                "the directory that should hold the archive does not exist",
                directory=holder,
                url=self.url,
                hint="mount the disk, create the directory, or correct archive.url",
            )
        os.makedirs(directory, exist_ok=True)
        at = directory
        while at != holder:
            parent = os.path.dirname(at)
            _fsync_directory(parent)
            at = parent
        with self._lock:
            self._ready.add(directory)

    def _fill(self, descriptor: int, key: str, parts: Sequence[Buffer]) -> tuple[int, int]:
        """Write everything and fsync: (bytes, mtime in ms)."""
        try:
            length = _write_all(descriptor, views(parts))
            os.fsync(descriptor)
            return length, os.fstat(descriptor).st_mtime_ns // 1_000_000
        finally:
            os.close(descriptor)

    def _link(self, temporary: str, path: str, key: str) -> None:
        try:
            os.link(temporary, path)
        except OSError as error:
            # A network file system may have made the link and lost the reply; the count of links tells.
            with suppress(OSError):
                if os.stat(temporary).st_nlink == 2:
                    return
            if error.errno == errno.EEXIST:
                raise Conflict("the key exists", key=key, url=self.url) from None
            if error.errno in _NO_LINKS:
                raise Refused(
                    "this file system makes no hard links, so an object cannot be created only if absent",
                    key=key,
                    url=self.url,
                    found=_name(error),
                    hint="put the archive on a file system with hard links (ext4, xfs, NFS), or use S3",
                ) from error
            raise

    def _settle(self, temporary: str, directory: str) -> None:
        """After the name exists, every error means *unknown*: the name may not survive a power cut."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            _fsync_directory(directory)
        except OSError as error:
            raise Unavailable(
                "the object was linked, but its directory could not be made durable",
                directory=directory,
                url=self.url,
                found=_name(error),
            ) from error

    # --- reading

    def _walk(self, directory: str, prefix: bytes, after: bytes) -> Iterator[tuple[str, str]]:
        """(key, path) of files below ``directory`` (a key, ``""`` for the root), ascending by the key's bytes.

        A directory sorts as its name with a slash, which is what makes the walk ascend by whole keys ("a-b" before "a/c").
        """
        try:
            with os.scandir(os.path.join(self._root, directory)) as entries:
                names = sorted(self._names(entries))
        except OSError as error:
            if error.errno in _ABSENT:
                return
            raise self._error("list", directory, error) from error
        base = f"{directory}/".encode() if directory else b""
        for name in names:
            key = base + name
            if name.endswith(b"/"):
                if (key.startswith(prefix) or prefix.startswith(key)) and (
                    key > after or after.startswith(key)
                ):
                    yield from self._walk(key[:-1].decode(), prefix, after)
            elif key.startswith(prefix) and key > after:
                yield key.decode(), os.path.join(self._root, key.decode())

    @staticmethod
    def _names(entries: Iterator[os.DirEntry[str]]) -> Iterator[bytes]:
        for entry in entries:
            if segment_problem(entry.name) is None:  # neither temporary nor a name that no key can have
                yield entry.name.encode() + (b"/" if entry.is_dir() else b"")

    # --- shared

    def _path(self, key: str) -> str:
        self._check_open()
        return os.path.join(self._root, check_key(key))

    def _check_open(self) -> None:
        if self._closed:
            raise Invalid("the provider is closed", url=self.url)

    def _learn_clock(self, modified_ms: int) -> None:
        offset = modified_ms - self._clock.now_ms()
        self._clock_offset_ms = offset if abs(offset) > _SKEW_MS else 0

    def _now_ms(self) -> int:
        """The file server's clock, as far as the newest put told it."""
        return self._clock.now_ms() + self._clock_offset_ms

    def _error(self, doing: str, key: str, error: OSError) -> TieredError:
        where = {"key": key, "url": self.url, "found": _name(error)}
        if error.errno in _ABSENT and doing not in ("create", "write"):
            return NotFound("no such object", key=key, url=self.url)
        if error.errno in _FULL:
            return Unavailable(
                f"no space left to {doing} an object", hint="free disk space or raise the quota", **where
            )
        if error.errno in _DENIED:
            return Invalid(
                f"not allowed to {doing} an object",
                hint="give the daemon's user write access to the archive's directory, mount it writable or change archive.url",
                expected=f"permission to {doing} it",
                **where,
            )
        if error.errno in _UNUSABLE:
            return Invalid(
                f"cannot {doing} an object: the path is not usable", hint="correct archive.url", **where
            )
        return Unavailable(f"cannot {doing} an object", **where)


def _name(error: OSError) -> str:
    code = errno.errorcode.get(error.errno or 0, "error")
    return f"{code}: {error.strerror}"


def _write_all(descriptor: int, left: list[memoryview]) -> int:
    total = sum(view.nbytes for view in left)
    at = 0
    while at < len(left):
        written = os.writev(descriptor, left[at : at + _MAX_BUFFERS])
        while at < len(left) and written >= left[at].nbytes:
            written -= left[at].nbytes
            at += 1
        if written:
            left[at] = left[at][written:]
    return total


def _pread(descriptor: int, position: int, length: int) -> bytes:
    """Read ``length`` bytes; fewer only if the file is shorter by now. One system call where the kernel allows it."""
    data = os.pread(descriptor, length, position)
    if len(data) == length or not data:
        return data
    pieces = [data]
    done = len(data)
    while done < length:
        piece = os.pread(descriptor, length - done, position + done)
        if not piece:
            break
        pieces.append(piece)
        done += len(piece)
    return b"".join(pieces)


def _fsync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
