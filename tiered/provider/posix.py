"""The driver for a directory of a POSIX file system: create-only through hard links, durable through fsync.

A create-only put goes in the order of DESIGN.md, "POSIX create-only": an exclusive temporary file in the target's own
directory, written and fsynced, linked to the name, unlinked, the directory fsynced. The store's clock is the temporary
file's mtime: on a network file system that is the server's, on a local disk the host's own.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tiered.clock import Clock
from tiered.codec.types import Buffer
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Conflict, Denied, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.provider.base import Capabilities, Fetched, Stored
from tiered.provider.body import pread, views, write_all
from tiered.provider.deleting import delete_each
from tiered.provider.naming import (
    TEMP_PREFIX,
    check_key,
    check_prefix,
    check_range,
    segment_problem,
    slice_range,
)
from tiered.provider.posixplace import ABSENT, Anchor, ArchiveDirectory, PutTarget, opened_directory
from tiered.provider.posixsweep import sweep_files

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV, errno.EMLINK})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_UNUSABLE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP})
_SKEW_MS = 1000  # a difference of the two clocks below this is timer granularity, not a second clock

Result = TypeVar("Result")


class PosixProvider:
    """Objects as files below ``root`` (an absolute path). Thread-safe, and safe beside other processes.

    ``root`` itself is made by ``create_root`` alone, and the directory that holds it must exist, so that an unmounted disk or
    a mistyped path is an error instead of an archive in the wrong place. See ``posixplace`` for ``guard``.
    """

    def __init__(self, root: str, clock: Clock) -> None:
        self._root = root
        self._place = ArchiveDirectory(root, self.url)
        self._clock = clock
        self._bound: tuple[str, tuple[str, ...]] = ("", ())
        self._clock_offset_ms = 0
        self._closed = False
        self.guard = self._place.guard
        self.tidy = self._place.tidy

    @property
    def url(self) -> str:
        """``file:///root``."""
        return Path(self._root).as_uri()

    @property
    def capabilities(self) -> Capabilities:
        """Everything but multipart uploads; whether the file system has hard links is seen at the first put."""
        return Capabilities(
            create_only=True,
            suffix_range=True,
            ordered_listing=True,
            multipart=False,
            root=self,
            mount=self,
        )

    def create_root(self) -> None:
        """Make the root, durably, unless it is there. ``Invalid`` where it cannot be made, or what holds it is missing."""
        try:
            self._place.create_root()
        except OSError as error:
            raise self._error("create", "", error) from error

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """See ``Provider.put``. ``Refused`` without hard links, ``Denied`` if read-only or forbidden."""
        self._check_key(key)
        doing = "create"
        try:
            with self._place.target(key) as target:
                temporary, descriptor = self._create(target.descriptor)
                doing = "write"
                try:
                    length, modified_ms = self._fill(descriptor, parts)
                    reach(CrashPoint.POSIX_AFTER_TEMPORARY)
                    self._check_needs(key, target.anchor)
                    if create_only:
                        self._link(temporary, target, key)
                        reach(CrashPoint.POSIX_AFTER_LINK)
                    else:
                        os.replace(
                            temporary, target.name, src_dir_fd=target.descriptor, dst_dir_fd=target.descriptor
                        )
                    self._settle(temporary, target)
                finally:
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=target.descriptor)
        except OSError as error:
            raise self._error(doing, key, error) from error
        return Stored(key, length, modified_ms, modified_ms)

    def bind(self, key: str, needs: Sequence[str]) -> list[str]:
        """``key``, the next of its kind, is put only into a place where ``needs`` are, which is seen while that place is held
        open; those that are not there now. One key is bound at a time."""
        self._bound = (self._check_key(key), tuple(needs))
        try:
            with self._place.anchor(key) as anchor:
                return self._place.missing(anchor, needs)
        except OSError as error:
            raise self._error("look at", key, error) from error

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        self._check_key(key)
        first, count = check_range(key, start, length)
        try:
            descriptor = self._seen(key, _open_file)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise NotFound("no such object", key=key, url=self.url)
                begin, end = slice_range(first, count, status.st_size)
                data = pread(descriptor, begin, end - begin)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._error("read", key, error) from error
        return Fetched(data, status.st_size, self._now_ms(), status.st_mtime_ns // 1_000_000)

    def head(self, key: str) -> Stored:
        self._check_key(key)
        try:
            status = self._seen(key, _status)
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
        for key in self._walk(above, prefix.encode(), after):
            if remaining is not None:
                if remaining <= 0:
                    return
                remaining -= 1
            try:
                status = self._seen(key, _status)
            except OSError as error:
                if error.errno in ABSENT:
                    continue
                raise self._error("look at", key, error) from error
            yield Stored(key, status.st_size, self._now_ms(), status.st_mtime_ns // 1_000_000)

    def delete(self, key: str) -> None:
        """See ``Provider.delete``; durable. Empty directories stay: another writer may be about to use them."""
        self._check_key(key)
        try:
            self._seen(key, _unlink)
        except OSError as error:
            if error.errno not in ABSENT:
                raise self._error("delete", key, error) from error

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        return delete_each(self.delete, keys)

    def make_durable(self, key: str) -> None:
        """fsync an existing object and its directory: an opener does so with the head before it builds on it, because the
        process that wrote it may have died between its ``link`` and its last ``fsync``."""
        self._check_key(key)
        try:
            self._seen(key, _fsync_file)
        except OSError as error:
            raise self._error("fsync", key, error) from error

    def ask_clock(self, key: str) -> None:
        """Learn what time it is where the archive lies: from a temporary file beside ``key``, gone when this returns."""
        self._check_key(key)
        try:
            with self._place.target(key) as target:
                temporary, descriptor = self._create(target.descriptor)
                os.close(descriptor)
                os.unlink(temporary, dir_fd=target.descriptor)
        except OSError as error:
            raise self._error("create", key, error) from error

    def sweep(self, prefix: str) -> Iterator[int]:
        """Remove what writers that died left unfinished below ``prefix``; see ``posixsweep``. By the archive's own clock."""
        self.ask_clock(f"{prefix}/{TEMP_PREFIX.strip('.')}")
        try:
            yield from sweep_files(os.path.join(self._root, prefix), self._now_ms())
        except OSError as error:
            raise self._error("sweep", prefix, error) from error

    def close(self) -> None:
        """Further verbs are errors."""
        self._closed = True

    # --- writing

    def _create(self, directory: int) -> tuple[str, int]:
        """A new temporary file in an open directory: (name, descriptor). Its time is what the store's clock is known by."""
        temporary = f"{TEMP_PREFIX}{uuid.uuid4().hex}"
        began_ms = self._clock.now_ms()
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory
        )
        try:
            made_ms = os.fstat(descriptor).st_mtime_ns // 1_000_000
        except BaseException:
            os.close(descriptor)
            raise
        # Somewhere between the two looks at this host's clock; the nearer one is what is certain.
        ahead, behind = made_ms - self._clock.now_ms(), made_ms - began_ms
        offset = ahead if ahead > 0 else min(behind, 0)
        self._clock_offset_ms = offset if abs(offset) > _SKEW_MS else 0
        return temporary, descriptor

    def _fill(self, descriptor: int, parts: Sequence[Buffer]) -> tuple[int, int]:
        """Write everything and fsync: (bytes, mtime in ms)."""
        try:
            length = write_all(descriptor, views(parts))
            os.fsync(descriptor)
            return length, os.fstat(descriptor).st_mtime_ns // 1_000_000
        finally:
            os.close(descriptor)

    def _check_needs(self, key: str, anchor: Anchor) -> None:
        bound, needs = self._bound
        missing = self._place.missing(anchor, needs) if key == bound else []
        if missing:
            raise Unavailable(
                "nothing was written: an object that this one builds on is missing here",
                key=key,
                url=self.url,
                missing=missing[0],
                hint="mount the archive's own disk again: this one has another state of it",
            )

    def _link(self, temporary: str, target: PutTarget, key: str) -> None:
        at = target.descriptor
        try:
            os.link(temporary, target.name, src_dir_fd=at, dst_dir_fd=at)
        except OSError as error:
            # A network file system may have made the link and lost the reply; the count of links tells.
            with suppress(OSError):
                if os.stat(temporary, dir_fd=at).st_nlink == 2:
                    return
            if error.errno == errno.EEXIST:
                raise Conflict("the key exists", key=key, url=self.url) from None
            if error.errno in _NO_LINKS:
                raise Refused(
                    "this file system has no hard links, which create-only writes need",
                    key=key,
                    url=self.url,
                    found=_name(error),
                    hint="put the archive on a file system with hard links (ext4, xfs, NFS), or use S3",
                ) from error
            raise

    def _settle(self, temporary: str, target: PutTarget) -> None:
        """After the name exists, every error means *unknown*: the name may not survive a power cut."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=target.descriptor)
            os.fsync(target.descriptor)
        except OSError as error:
            raise Unavailable(
                "the object was linked, but its directory could not be made durable",
                directory=os.path.join(self._root, target.anchor.above, target.directory),
                url=self.url,
                found=_name(error),
            ) from error
        self._place.settled(target)

    # --- reading

    def _seen(self, key: str, look: Callable[[str, int | None], Result]) -> Result:
        """``look`` at a path. What is not there is looked for again from a directory that is seen to be the archive's, so that
        a disk that is away never passes for an object that is not there."""
        try:
            return look(os.path.join(self._root, key), None)
        except OSError as error:
            if error.errno not in ABSENT or not self._place.covers(key):
                raise
        with self._place.anchor(key) as anchor:
            return look(anchor.rest(key), anchor.descriptor)

    def _walk(self, directory: str, prefix: bytes, after: bytes) -> Iterator[str]:
        """Keys of files below ``directory`` (a key, ``""`` for the root), ascending by the key's bytes.

        A directory sorts as its name with a slash, which is what makes the walk ascend by whole keys ("a-b" before "a/c").
        """
        try:
            names = self._seen(directory, _names)
        except OSError as error:
            if error.errno in ABSENT:
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
                yield key.decode()

    # --- shared

    def _check_key(self, key: str) -> str:
        self._check_open()
        return check_key(key)

    def _check_open(self) -> None:
        if self._closed:
            raise Invalid("the provider is closed", url=self.url)

    def _now_ms(self) -> int:
        """The file server's clock, as far as the newest put told it."""
        return self._clock.now_ms() + self._clock_offset_ms

    def _error(self, doing: str, key: str, error: OSError) -> TieredError:
        where = {"key": key, "url": self.url, "found": _name(error)}
        if error.errno in ABSENT and doing not in ("create", "write"):
            return NotFound("no such object", key=key, url=self.url)
        if error.errno in _FULL:
            return Unavailable(
                f"no space left to {doing} an object", hint="free disk space or raise the quota", **where
            )
        if error.errno in _DENIED:
            return Denied(
                f"not allowed to {doing} an object",
                hint="give the daemon's user write access to the archive's directory, mount it writable or change archive.url",
                expected=f"permission to {doing} it",
                **where,
            )
        if error.errno in _UNUSABLE:
            return Invalid(
                f"cannot {doing} an object: the path is not usable", hint="correct archive.url", **where
            )
        return Unavailable(
            f"cannot {doing} an object",
            hint="archive.url names a directory that this user can make and write; is its disk mounted and sound?",
            **where,
        )


def _name(error: OSError) -> str:
    code = errno.errorcode.get(error.errno or 0, "error")
    return f"{code}: {error.strerror}"


def _open_file(path: str, above: int | None) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=above)


def _status(path: str, above: int | None) -> os.stat_result:
    return os.stat(path, dir_fd=above)


def _unlink(path: str, above: int | None) -> None:
    with opened_directory(os.path.dirname(path) or ".", above) as directory:
        os.unlink(os.path.basename(path), dir_fd=directory)
        os.fsync(directory)


def _fsync_file(path: str, above: int | None) -> None:
    with opened_directory(os.path.dirname(path) or ".", above) as directory:
        descriptor = _open_file(os.path.basename(path), directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.fsync(directory)


def _names(path: str, above: int | None) -> list[bytes]:
    """What a directory holds, sorted, its directories with a slash; neither temporary names nor those that no key can have."""
    with opened_directory(path, above) as directory, os.scandir(directory) as entries:
        return sorted(
            entry.name.encode() + (b"/" if entry.is_dir() else b"")
            for entry in entries
            if segment_problem(entry.name) is None
        )
