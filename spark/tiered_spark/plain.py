"""Errors as a PySpark user should meet them: their sentence first, not below a traceback of the worker's insides."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tiered.errors import TieredError


@contextmanager
def plainly() -> Iterator[None]:
    """Around work of a Spark worker, a block or a function: ours come as ``tiered.errors.Kind: sentence → fix``.

    A worker leaves the traceback out where this variable is set, and ends after an error: nothing else is touched by it. Errors
    of any other kind keep their traceback, as they are ours to mend.
    """
    try:
        yield
    except TieredError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # noqa: TID251 - the only way to tell the worker
        raise
