"""POSIX locks that the broker's processes hold on their files: asked for only, never taken."""

from __future__ import annotations

import fcntl
import os
import struct

_FLOCK = struct.Struct("@hhqqi4x")
"""``struct flock`` of 64-bit Linux: type, whence, start, length, pid."""


def held_by_another(descriptor: int) -> bool:
    """Whether another process holds a lock on this open file; true where nobody can tell.

    Whoever asks keeps the descriptor open where this process has locks of its own on the file: closing one drops all of them.
    """
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return True
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
