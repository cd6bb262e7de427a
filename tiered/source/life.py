"""One life of the broker process: which one is running, since when, and which bytes cannot be its own.

After an unclean stop the broker cuts its log at the first bad record and writes on from there *without* zeroing what lies
behind. So behind its newest record there may be whole records of its former life, at the right offsets, and with equal sizes
they even follow without a break. They differ in one thing: they were stored before this life began.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from tiered.source.base import BrokerMark
from tiered.source.files import LogFile
from tiered.source.locks import held_by_another
from tiered.source.walk import Chain


class BrokerLife:
    """Reads ``lock`` and ``abort`` of the store directory; an empty ``store_dir`` knows nothing."""

    def __init__(self, store_dir: str) -> None:
        self._store_dir = store_dir
        self._lock_fd: tuple[int, int] | None = None  # inode, descriptor
        self._started_ms: int | None = None

    def mark(self) -> BrokerMark:
        """(inode, mtime in ns) of both files; every start writes ``lock`` anew, and makes or rewrites ``abort``."""
        return BrokerMark(self._stat("lock"), self._stat("abort"))

    def start_ms(self) -> int | None:
        """When the running broker started; ``None`` if none runs, for then nothing is going to be overwritten.

        While ``lock`` is away the last answer stays: the whole store may be away, and its broker not.

        A broker writes ``lock`` at every start, after recovery and before it appends. ``abort`` does not say it: 4.9 leaves
        the one of a life that ended uncleanly as it is, and only 5.x writes it anew.
        """
        lock = self._stat("lock")
        if lock is not None:
            self._started_ms = lock[1] // 1_000_000 if self._running() else None
        return self._started_ms

    def _stat(self, name: str) -> tuple[int, int] | None:
        if not self._store_dir:
            return None
        try:
            found = os.stat(os.path.join(self._store_dir, name))
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def close(self) -> None:
        """Close the descriptor of ``lock``; a later question opens it again."""
        if self._lock_fd is not None:
            os.close(self._lock_fd[1])
            self._lock_fd = None

    def _running(self) -> bool:
        """Whether another process holds a POSIX lock on ``lock`` (asks only, takes nothing).

        The descriptor stays open: closing one would drop every lock that this very process has on the file.
        """
        found = self._stat("lock")
        if found is None:
            return False
        if self._lock_fd is None or self._lock_fd[0] != found[0]:
            self.close()
            try:
                descriptor = os.open(os.path.join(self._store_dir, "lock"), os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return True  # cannot tell: the careful answer
            self._lock_fd = os.fstat(descriptor).st_ino, descriptor
        return held_by_another(self._lock_fd[1])


class LeftoverGuard:
    """Finds the seam between this life's newest record and leftovers of a former one.

    A record stored before this life, behind one stored in it, is a leftover, or the clock was set back. It is believed as soon
    as the chain of records grows at its far end, for only the broker's own append does that.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._watched: tuple[tuple[int, int], int] | None = None
        self._chain_end = 0
        self._believed: tuple[tuple[int, int], int] | None = None

    def seam(
        self, times: npt.NDArray[np.int64], previous: int | None, life_start_ms: int | None
    ) -> int | None:
        """Row of the first record older than this life right behind one of this life; ``None`` if later ones vouch for it.

        ``previous``: store time of the record before the first row.
        """
        if life_start_ms is None or len(times) == 0:
            return None
        fresh = times >= life_start_ms
        before = np.concatenate(([previous is not None and previous >= life_start_ms], fresh[:-1]))
        rows = np.flatnonzero(before & ~fresh)
        if len(rows) == 0 or fresh[rows[-1] :].any():
            return None
        return int(rows[-1])

    def believes(self, file: LogFile, position: int) -> bool:
        """Whether the suspicious record at ``position`` proved to be the broker's; looks once more."""
        key = (file.identity, position)
        if key == self._believed:
            return True
        if key != self._watched:
            self._watched, self._chain_end = key, self._chain.end_of(file, position)
            return False
        if self._chain.end_of(file, self._chain_end) > self._chain_end:
            self._believed = key
            return True
        return False
