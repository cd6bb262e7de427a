"""Numbered crash points: the places where a fault test kills the process.

``reach(point)`` does nothing until a hook is installed (the daemon does that when told to by its environment, for the
fault tests only). The numbers are stable; the tests visit every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum


class CrashPoint(IntEnum):
    """In the order in which a fresh daemon reaches them."""

    BEFORE_IDENTITY = 1  # archive.json not yet created
    AFTER_IDENTITY = 2
    BEFORE_OPEN_EPOCH = 3
    AFTER_OPEN_EPOCH = 4  # epoch in the bucket, local cache behind
    AFTER_HOLD = 5  # files linked, nothing read
    AFTER_BUFFER = 6  # records taken into the upload buffer
    AFTER_COPY = 7  # private copy made and validated
    AFTER_PLAN = 8  # commit planned, nothing uploaded
    AFTER_FIRST_OBJECT = 9
    AFTER_OBJECTS = 10  # all data objects up, no commit
    BEFORE_COMMIT = 11
    AFTER_COMMIT = 12  # commit in the bucket, local cache behind
    AFTER_METADATA = 13  # cache updated, hold not released
    AFTER_RELEASE = 14
    BEFORE_REWIND = 15
    AFTER_REWIND = 16
    BEFORE_CHECKPOINT = 17
    AFTER_SHARDS = 18  # checkpoint shards up, no manifest
    AFTER_CHECKPOINT = 19
    POSIX_AFTER_TEMPORARY = 20  # temporary file synced, no link
    POSIX_AFTER_LINK = 21  # linked, temporary name still there
    BEFORE_MERGED = 22  # runs read and written anew in memory, nothing put
    AFTER_MERGED = 23  # their object up, not in line yet; from here to the commit as for a flush
    AFTER_MERGE = 24  # the commit proven


class ReplayPoint(IntEnum):
    """In the order in which a fresh watch and drain reach them; no number is also a ``CrashPoint``'s."""

    BEFORE_DEBT = 101  # noticed, nothing written
    AFTER_DEBT = 102  # in the ledger
    AFTER_SEND = 103  # acknowledged by the broker, the ledger behind
    AFTER_SETTLED = 104
    BEFORE_SWAP = 105  # smaller ledger written and synced, the old one still in place
    AFTER_SWAP = 106
    AFTER_REQUEST = 107  # an operator's request is in the ledger, and still in the inbox


class AgeingPoint(IntEnum):
    """In the order in which messages leave an archive; no number is also another point's."""

    BEFORE_TRIM = 201
    AFTER_TRIM = 202
    BEFORE_RETIRE = 203
    AFTER_RETIRE = 204  # named for deletion
    BEFORE_DELETE = 205
    AFTER_FIRST_DELETE = 206
    AFTER_DELETE = 207  # deleted, no commit says so
    AFTER_DELETED = 208
    BEFORE_FLOOR = 209
    AFTER_FLOOR = 210
    BEFORE_REMOVAL = 211  # commits below the floor
    AFTER_REMOVAL = 212


class SealPoint(IntEnum):
    """In the order in which a day is sealed; no number is also another point's."""

    BEFORE_SEALED = 301  # a segment complete on the local disk, nothing put
    AFTER_SEALED = 302  # the segment up, what it leaves to other days not yet
    AFTER_REST = 303  # both up, not in line yet; from here to the commit as for a flush
    AFTER_SEAL = 304  # the commit proven


class TablePoint(IntEnum):
    """In the order in which a table of another engine is brought up to date; no number is also another point's."""

    BEFORE_TABLE = 501  # compared, nothing written but perhaps an empty table
    AFTER_TABLE = 502  # its catalog has the commit, of which there may be several


class MetadataPoint(IntEnum):
    """In the order in which a local store is written, first one with a log and then one without; no number is also another
    point's."""

    BEFORE_LOGGED = 701  # a batch made, nothing of it written
    AFTER_LOGGED = 702  # in the engine's log, which is not synced
    AFTER_REDO_WRITE = 703  # in memory, nothing on disk
    BEFORE_REDO_FLUSH = 704
    AFTER_REDO_FLUSH = 705
    BEFORE_TAKEN_IN = 706  # a checkpoint's pairs in files of the engine, none of them part of the store
    AFTER_TAKEN_IN = 707  # those of one family are


class ScrubPoint(IntEnum):
    """In the order in which damage is found and mended; no number is also another point's."""

    AFTER_DAMAGE = 801  # found, and left alone from now on; nothing written down
    BEFORE_NOTES = 802
    AFTER_NOTES = 803
    BEFORE_PUT_AGAIN = 804  # the bytes of a missing key read from the copy and checked, nothing put
    AFTER_PUT_AGAIN = 805  # put, and still listed as missing
    AFTER_WRITTEN_ANEW = 806  # the commit proven, the key still listed as damaged; before that as for a merge


class SinkPoint(IntEnum):
    """In the order in which messages come to a sink; no number is also another point's."""

    BEFORE_SINK_FLUSH = 901  # written, and not known to be there
    AFTER_SINK_FLUSH = 902  # there for good, and nobody but the destination knows
    BEFORE_SINK_COMMIT = 903  # a commit of its own is about to be offered
    AFTER_SINK_COMMIT = 904  # the archive knows


Point = (
    CrashPoint | ReplayPoint | AgeingPoint | SealPoint | TablePoint | MetadataPoint | ScrubPoint | SinkPoint
)
Hook = Callable[[Point], None]
_hooks: list[Hook] = []


def install(hook: Hook | None) -> None:
    """Install the hook (``None``: remove it)."""
    _hooks.clear()
    if hook is not None:
        _hooks.append(hook)


def reach(point: Point) -> None:
    """Tell the hook, if there is one, that the process is at ``point``."""
    for hook in _hooks:
        hook(point)
