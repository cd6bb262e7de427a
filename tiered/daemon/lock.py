"""One daemon per local state: an ``flock`` on ``<state>/lock`` with the owner's process id and host inside.

The kernel releases the lock when the process dies, however it dies; the file stays and means nothing by itself. Two
daemons on different machines are kept apart by epochs in the archive, not by this.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType

from tiered.errors import PASSING_ERRNOS, Refused, TieredError, of_local_disk

_HINT = "set another state.directory, or fix the permissions of this one"


class StateLock:
    """The lock of one state directory. ``acquire`` creates the directory; a context manager holds it for a block."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "lock"
        self._fd: int | None = None

    @property
    def held(self) -> bool:
        """True between ``acquire`` and ``release``."""
        return self._fd is not None

    def acquire(self) -> None:
        """Take the lock, or raise ``Refused`` naming the process that has it; ``Invalid`` if the directory is unusable,
        ``Unavailable`` if its disk is full. The owner's name inside is a courtesy: a disk with no room for it still locks."""
        if self._fd is not None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            message = "the state directory cannot be used"
            raise of_local_disk(
                message, error, hint=_HINT, key="state.directory", path=self.path.parent
            ) from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _sign(fd)
        except OSError as error:
            owner = _owner(fd)
            os.close(fd)
            raise self._refusal(error, owner) from None
        self._fd = fd

    def release(self) -> None:
        """Let go; the file stays, empty."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def _refusal(self, error: OSError, owner: str) -> TieredError:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return Refused(
                "another daemon is using this state directory",
                lock=self.path,
                owner=owner,
                hint="is it the daemon of this archive? Then leave it the work, or stop it first; a state.directory belongs to"
                " one daemon, and an archive to one writer",
            )
        message = "the state directory cannot be locked"
        return of_local_disk(message, error, hint=_HINT, key="state.directory", path=self.path)

    def __enter__(self) -> StateLock:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _sign(fd: int) -> None:
    """Write who holds the lock."""
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)
    except OSError as error:
        if error.errno not in PASSING_ERRNOS:
            raise


def _owner(fd: int) -> str:
    """``process 123 on host``, as written in the lock file; never trusts its length or form."""
    words = os.pread(fd, 256, 0).decode("utf-8", "replace").split()
    if len(words) == 2 and words[0].isdigit() and words[1].isprintable():
        return f"process {words[0]} on {words[1]}"
    return "unknown process"
