"""Where the ``tiered`` command begins: nothing is imported here that takes time, so that Ctrl-C is quiet from the first moment,
and a service that is told to stop ends well from the first moment.

Until the verb's modules are there an interrupt has nothing to undo and ends the process at once. Inside an import it would be a
traceback, or be swallowed by a library that takes any exception for a missing module.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from tiered.daemon import early

EXIT_INTERRUPTED = 128 + signal.SIGINT
END_SECONDS = 5.0
"""How long the interpreter's own end may take."""


def main() -> int:
    """Import the command, then run it; its exit code."""
    if next((word for word in sys.argv[1:] if not word.startswith("-")), None) in early.SERVICES:
        early.install()  # until the service listens itself
    guarded = (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )  # not with nohup, in the background, or in a service
    if guarded:
        signal.signal(signal.SIGINT, _leave)
    from tiered.cli import main as command

    def imported() -> None:
        if guarded:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    code = command.main(imported=imported)
    _end_soon(code)
    return code


def _end_soon(code: int) -> None:
    """The interpreter waits for the threads of pools at its end, and one may hang in a request or on a disk: not for long."""
    from tiered.clock import SystemClock
    from tiered.service import DONE, Next, Service
    from tiered.stderr import leave

    clock = SystemClock()

    def end() -> Next:
        clock.wait(END_SECONDS)
        leave(code)
        return DONE

    Service("end", end, clock).start()


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
