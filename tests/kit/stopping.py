"""``python -m tests.kit.stopping run …`` is ``tiered run …`` that stops itself, as SIGSTOP does, at a numbered point: once, the
first time it comes there. Whoever started it may let it go on."""

from __future__ import annotations

import os
import signal
import sys

STOP_VARIABLE = "TIERED_TEST_STOP_AT"
STOPPING = (sys.executable, "-m", "tests.kit.stopping")


def stop_at(wanted: int) -> None:
    """Stop this process where it is at that point."""
    from tiered.crashpoint import install

    def hook(point: int) -> None:
        if point == wanted:
            install(None)
            os.kill(os.getpid(), signal.SIGSTOP)

    install(hook)


def main() -> int:
    """The program."""
    from tiered.cli.main import main

    stop_at(int(os.environ[STOP_VARIABLE]))
    return main()


if __name__ == "__main__":
    sys.exit(main())
