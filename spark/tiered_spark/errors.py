"""Errors as a PySpark user should meet them: their sentence first, not below a traceback of the worker's insides."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tiered.archive.keys import Area, ObjectKey, split_key
from tiered.errors import NotFound, TieredError

GONE = (
    "the archive was changed after this query was planned (retention, a merge): run it again; with asOfCommit or "
    "asOfTimestamp choose a later one; if it comes again, tiered verify shows what is missing"
)
"""What to do about an object that a plan names and the store has not."""


@contextmanager
def plainly() -> Iterator[None]:
    """Around work of a Spark worker, a block or a function: ours come as ``tiered.errors.Kind: sentence → fix``.

    A worker leaves the traceback out where this variable is set, and ends after an error: nothing else is touched by it. Errors
    of any other kind keep their traceback, as they are ours to mend. An object that is not there any more gets its hint here.
    """
    try:
        yield
    except TieredError as error:
        if isinstance(error, NotFound) and (error.hint is None or _planned(error.fields.get("key"))):
            error.hint = GONE
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # noqa: TID251 - the only way to tell the worker
        raise


@contextmanager
def by_option() -> Iterator[None]:
    """Around work on an archive that an option names: errors that speak of the daemon's setting speak of the option."""
    try:
        yield
    except TieredError as error:
        error.message = error.message.replace(_SETTING, _OPTION)
        error.hint = error.hint and error.hint.replace(_SETTING, _OPTION)
        raise


_SETTING, _OPTION = "archive.url", "the option archive"


def _planned(key: object) -> bool:
    """Whether this is the key of an object with messages: plans name them, and retention may take them before they are read."""
    found = split_key(key) if isinstance(key, str) else None
    return (
        found is not None and isinstance(found[2], ObjectKey) and found[2].area in (Area.DATA, Area.SEGMENT)
    )
