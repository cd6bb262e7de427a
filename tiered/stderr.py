"""Standard error that keeps nobody waiting: a bounded queue, and one thread that writes.

Whoever reads the standard error of a daemon may hang (a log driver, a stopped terminal), and ``write`` then blocks. So a
process that serves puts an ``UnblockedStderr`` in the place of ``sys.stderr``: logs, tracebacks and last words go through one
queue, in order. What has no room there is dropped and counted, and a line says so as soon as lines are taken again. At an
orderly end ``settle`` waits for the queue, within a bound.
"""

from __future__ import annotations

import io
import logging
import os
import select
import sys
import threading
from collections import deque
from typing import TextIO

from tiered.clock import SystemClock
from tiered.service import AGAIN, DONE, Next, Service

ROOM = 4 << 20
"""Characters that may wait; more are dropped."""
LAST_SECONDS = 5.0
"""How long an orderly end waits for what is not written yet."""
HARD_SECONDS = 0.5
"""The same of an end at once."""


class UnblockedStderr(io.TextIOBase):
    """In the place of ``under``, a stream or ``None`` (closed, as a process may be started). Any thread may write."""

    def __init__(self, under: TextIO | None, room: int = ROOM) -> None:
        self.under = under
        self.dropped = 0
        self._told = 0
        self._room = room
        self._changed = threading.Condition()
        self._waiting: deque[str] = deque()
        self._size = 0
        self._ended = False
        # Below the buffered stream: its lock is held while a write blocks, and the interpreter asks for it at its end.
        self._raw = getattr(getattr(under, "buffer", None), "raw", None)
        self._service = Service("stderr", self._step, SystemClock())
        if under is not None:
            self._service.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's."""
        return getattr(self.under, "encoding", None) or "utf-8"

    def writable(self) -> bool:
        """Always."""
        return True

    def isatty(self) -> bool:
        """The stream's."""
        return self.under is not None and self.under.isatty()

    def fileno(self) -> int:
        """The stream's."""
        if self.under is None:
            raise io.UnsupportedOperation("fileno")
        return self.under.fileno()

    def write(self, text: str) -> int:
        """Queue ``text``, or drop it where there is no room. Never waits."""
        with self._changed:
            if self.under is None or self._ended or self._size + len(text) > self._room:
                self.dropped += 1
            else:
                self._waiting.append(text)
                self._size += len(text)
                self._changed.notify_all()
        return len(text)

    def flush(self) -> None:
        """Nothing: see ``drain``."""

    def drain(self, seconds: float) -> bool:
        """Wait until all is written, at most ``seconds``; whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._size == 0, seconds)

    def end(self) -> None:
        """End the thread, once it has written what waits."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _step(self) -> Next:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if not self._waiting:
                return DONE
            text = self._waiting.popleft()
        written = self._put(text)
        with self._changed:
            self._size -= len(text)
            self.dropped += not written
            dropped, self._told = self.dropped - self._told, self.dropped if written else self._told
            self._changed.notify_all()
        if written and dropped:
            logging.getLogger("tiered.log").warning(
                "lines of the log were dropped: standard error did not take them", extra={"lines": dropped}
            )
        return AGAIN

    def _put(self, text: str) -> bool:
        try:
            if self._raw is None:
                assert self.under is not None
                self.under.write(text)
                self.under.flush()
                return True
            left = memoryview(text.encode(self.encoding, "backslashreplace"))
            while left:
                taken = self._raw.write(left)
                if taken is None:  # a descriptor that somebody made non-blocking
                    select.select([], [self._raw], [])
                left = left[taken or 0 :]
        except (OSError, ValueError):  # nobody reads it any more, the disk is full, the stream is closed
            return False
        return True


def unblock() -> None:
    """From now on nobody who writes to ``sys.stderr`` waits for its reader."""
    if not isinstance(sys.stderr, UnblockedStderr):
        sys.stderr = UnblockedStderr(sys.stderr)


def settle(seconds: float = LAST_SECONDS) -> None:
    """Before the end: wait for what is not written yet, and give ``sys.stderr`` back if it took everything."""
    stream = sys.stderr
    if isinstance(stream, UnblockedStderr) and stream.drain(seconds):
        stream.end()
        sys.stderr = stream.under


def dropped() -> int:
    """Pieces of text that were dropped since the start."""
    return sys.stderr.dropped if isinstance(sys.stderr, UnblockedStderr) else 0


def leave(code: int) -> None:
    """End the process at once, with what can be written of its last words in a moment."""
    if isinstance(sys.stderr, UnblockedStderr):
        sys.stderr.drain(HARD_SECONDS)
    os._exit(code)
