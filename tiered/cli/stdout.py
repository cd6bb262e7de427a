"""Standard output that cannot be written: full, failing, or without a reader."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback

from tiered.errors import Unavailable

SPEAKERS = ("tiered.cli.", "tiered.text.", "__main__", "rich.", "typer.")
"""Modules that write to standard output; none of them writes anything else that has no file name."""


def unwritten(error: Exception) -> Unavailable | None:
    """``error`` as one of the program's own, if it is that standard output cannot be written; ``None`` if it is another."""
    if not isinstance(error, OSError) or error.filename is not None:
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if not str(frame.f_globals.get("__name__")).startswith(SPEAKERS):
        return None
    drop_stdout()
    return Unavailable(
        "the answer cannot be written to standard output, and is not complete",
        found=error.strerror,
        hint="make room where standard output goes, or send it elsewhere",
    )


def drop_stdout() -> None:
    """What is still buffered goes nowhere: the interpreter must neither wait for a reader nor complain when it ends."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
