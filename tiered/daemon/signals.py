"""Signals: the first SIGTERM or SIGINT asks for a graceful stop, the second ends the process at once with code 130.

SIGHUP, where somebody listens for it, asks to look at the settings again.

The interpreter writes each signal's number into a socket and one small thread reads it. So no lock is taken inside a
signal handler (an ``Event`` set there can deadlock with the thread that waits for it), and the second signal works even
while the main thread is wedged inside a call.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from tiered.clock import Clock
from tiered.daemon import early
from tiered.service import AGAIN, DONE, Next, Service
from tiered.stderr import leave

EXIT_HARD = 130
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOOK_SECONDS = 0.5


class Signals:
    """Turns signals into ``stop``; ``install`` and ``restore`` must be called from the main thread.

    ``on_first`` hears of the first signal by name, ``on_hangup`` of every SIGHUP, which is left alone without it; both are
    called on the small thread. ``hard_exit`` replaces ``leave`` in tests.
    """

    def __init__(
        self,
        stop: threading.Event,
        clock: Clock,
        *,
        on_first: Callable[[str], None] | None = None,
        on_hangup: Callable[[], None] | None = None,
        hard_exit: Callable[[int], None] = leave,
    ) -> None:
        self.received = 0
        self._stop = stop
        self._on_first = on_first
        self._on_hangup = on_hangup
        self._hard_exit = hard_exit
        self._service = Service("signals", self._step, clock)
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self._old_fd = -1
        self._old: dict[signal.Signals, object] = {}

    def install(self) -> None:
        """Take over SIGTERM and SIGINT, and SIGHUP if somebody listens for it."""
        reader, writer = socket.socketpair()
        reader.settimeout(_LOOK_SECONDS)
        writer.setblocking(False)
        self._pair = reader, writer
        self._old_fd = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        taken = _SIGNALS if self._on_hangup is None else (*_SIGNALS, signal.SIGHUP)
        self._old = {number: early.before(number, signal.signal(number, _nothing)) for number in taken}
        self._service.start()

    def rearm(self) -> None:
        """Take the wake-up descriptor back from an event loop that was just started on the main thread: uvloop's takes it."""
        if self._pair is not None:
            signal.set_wakeup_fd(self._pair[1].fileno(), warn_on_full_buffer=False)

    def restore(self) -> None:
        """Give the signals back and end the thread."""
        if self._pair is None:
            return
        for number, old in self._old.items():
            signal.signal(number, old)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._old_fd)
        self._service.stop()
        reader, writer = self._pair
        with contextlib.suppress(OSError):
            writer.send(b"\0")
        self._service.join(2 * _LOOK_SECONDS)
        reader.close()
        writer.close()
        self._pair = None

    def __enter__(self) -> Signals:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def deliver(self, number: int) -> None:
        """One signal arrived: the first stops, the second exits hard."""
        self.received += 1
        if self.received > 1:
            self._hard_exit(EXIT_HARD)
            return
        if self._on_first is not None:
            self._on_first(signal.Signals(number).name)
        self._stop.set()

    def _step(self) -> Next:
        if self._pair is None:
            return DONE
        try:
            numbers = self._pair[0].recv(16)
        except TimeoutError:
            return AGAIN
        for number in numbers:
            if number in _SIGNALS:
                self.deliver(number)
            elif number == signal.SIGHUP and self._on_hangup is not None:
                self._on_hangup()
        return AGAIN


def _nothing(number: int, frame: FrameType | None) -> None:
    """Keeps the default action away; the number travels through the wake-up socket."""
