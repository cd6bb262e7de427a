"""The source port: a growing byte log of records that somebody else writes, rolls, truncates and deletes.

``read`` only finds boundaries of records that may be trusted (complete, valid, confirmed); bodies are copied once, later,
by ``copy``, and validated again on that private copy, because the broker may rewrite its tail under us.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tiered.errors import NotFound, TieredError
from tiered.model import PhysicalOffset
from tiered.source.files import LogFile


class ReadStatus(Enum):
    """What a ``read`` found at its start position."""

    RECORDS = "records"  # confirmed records and/or the end of a file
    IDLE = "idle"  # nothing new, or not yet confirmed: ask again later
    GAP = "gap"  # bytes that were deleted or are corrupt: [start, next_offset) can never be read


@dataclass(frozen=True, slots=True)
class Chunk:
    """Confirmed records, all in one commitlog file.

    ``start``/``end``: physical range of the records (blank excluded). ``starts`` are int64 positions relative to ``start``,
    ``sizes`` the record lengths. ``next_offset`` is where to read next: ``end``, or the next file's first byte when the
    file is finished (then ``blank_header`` holds the 8 header bytes of the blank record, empty when there is none).
    ``reason``: why nothing can be read. ``problem``: the same when reading goes on only after an operator did something.
    """

    status: ReadStatus
    start: PhysicalOffset
    end: PhysicalOffset
    next_offset: PhysicalOffset
    starts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    blank_header: bytes = b""
    reason: str = ""
    problem: TieredError | None = None

    @property
    def file_finished(self) -> bool:
        """True when this chunk ends its commitlog file."""
        return self.status is ReadStatus.RECORDS and (self.next_offset != self.end or bool(self.blank_header))


_NONE = np.empty(0, np.int64)


def idle(start: PhysicalOffset, reason: str = "", problem: TieredError | None = None) -> Chunk:
    """Nothing to read at ``start`` now, and why; no reason at the log's end."""
    return Chunk(ReadStatus.IDLE, start, start, start, _NONE, _NONE, reason=reason, problem=problem)


def gap(start: PhysicalOffset, following: PhysicalOffset, reason: str) -> Chunk:
    """[start, following) can never be read, and why."""
    return Chunk(ReadStatus.GAP, start, start, following, _NONE, _NONE, reason=reason)


@dataclass(frozen=True, slots=True)
class Wait:
    """What reading waits for: why nothing can be read at ``position``, and since when (``Clock.monotonic`` seconds).

    ``problem``: set when it waits for an operator, who must change what the error names.
    """

    position: PhysicalOffset
    reason: str
    since: float
    problem: TieredError | None = None


@dataclass(frozen=True, slots=True)
class BrokerMark:
    """What tells one run of the broker from the next: identity and change time of its ``lock`` and ``abort`` files.

    ``returns``: how often its directory was away and came back; it may be another broker's then.
    """

    lock: tuple[int, int] | None
    abort: tuple[int, int] | None
    returns: int = 0


class Tail(Protocol):
    """A commitlog read on at its end. Errors, as of all ports here: ``NotFound`` (no broker store there), ``Corrupt``,
    ``Unavailable`` (I/O)."""

    def read(self, start: PhysicalOffset, *, max_bytes: int, max_records: int) -> Chunk:
        """Confirmed records from ``start`` on, within one file; at least one record if one is confirmed, however large."""
        ...

    def min_offset(self) -> PhysicalOffset | None:
        """First byte of the broker's oldest own file; ``None`` if there is none."""
        ...

    def max_offset(self) -> PhysicalOffset:
        """End of the last record the broker wrote, confirmed or not, as far as a look at the newest file tells (for lag).

        Bytes that cannot be read do not hide what lies behind them.
        """
        ...

    @property
    def waiting(self) -> Wait | None:
        """What the last ``read`` waits for; ``None`` if it handed out something, or is at the log's end."""
        ...


class BrokerAnswers(Protocol):
    """What the broker beside this process answered to those who send."""

    def stored(self, place: PhysicalOffset) -> None:
        """The broker, this very one and no other, answered that it stored a record at ``place``: before it was answered it
        was written, so the next ``read`` does not wait to see it unchanged. For any thread."""
        ...


class Copies(Protocol):
    """The bytes of a commitlog, copied."""

    def copy(self, start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        """A private copy of [start, end), from the held link when there is one (one file). ``NotFound`` if bytes are gone."""
        ...

    def copy_into(self, start: PhysicalOffset, end: PhysicalOffset, target: memoryview) -> None:
        """The same into memory of the caller's, ``end - start`` bytes. After an error its content is undefined."""
        ...

    def copy_local(self, start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        """The same from the broker's own directory, never from a held link: for comparing a broker with its archive."""
        ...

    def file_start(self, offset: PhysicalOffset) -> PhysicalOffset | None:
        """First byte of the commitlog file that holds ``offset`` (held or local); ``None`` if no file does."""
        ...


class LogFiles(Protocol):
    """The files of a commitlog and the times in them."""

    def files(self) -> tuple[LogFile, ...]:
        """Every file that can be read, held or the broker's own, oldest first."""
        ...

    def first_time(self, file: LogFile) -> int | None:
        """Store time in ms of a file's first record; ``None`` if there is none yet."""
        ...

    def find_time(self, file: LogFile, time_ms: int) -> PhysicalOffset | None:
        """The first record of one file stored at or after ``time_ms``."""
        ...


class Ends(Protocol):
    """What to make of the place where a commitlog seems to end."""

    def readable_behind(self, start: PhysicalOffset) -> bool:
        """Whether what cannot be read at ``start`` is going to be given up, once patience is over, for what lies behind it."""
        ...

    def missing_at(self, position: PhysicalOffset) -> int:
        """How many bytes the file that holds ``position`` lacks at its end: all files of a broker have one length."""
        ...

    @property
    def patience_seconds(self) -> float:
        """The longest that ``Tail.read`` waits at one place before it goes on, or has no more to give."""
        ...


class HeldFiles(Protocol):
    """The hard links that keep the broker's files until they are archived."""

    def hold(self) -> None:
        """Link every file not linked yet, enforce the disk budget."""
        ...

    def release(self, up_to: PhysicalOffset) -> None:
        """Let go of links of files that lie wholly below ``up_to``."""
        ...

    def disown(self) -> None:
        """Read no held file any more that is not the broker's own now: a new lineage leaves the former broker's log behind."""
        ...

    def held_bytes(self) -> int:
        """Bytes that only the hold keeps alive (the broker already deleted the file)."""
        ...


class Life(Protocol):
    """The broker that writes the commitlog."""

    def broker_mark(self) -> BrokerMark:
        """Changes when the broker restarts."""
        ...

    @property
    def away(self) -> NotFound | None:
        """What is missing while a directory of the broker is away: the hold is read meanwhile, and nothing is compared."""
        ...

    def counts_inner(self, topic: str, queue_id: int) -> bool:
        """Whether the broker gives an inner batch of this queue as many queue offsets as it holds messages, or one."""
        ...


class CommitLogSource(Tail, Copies, LogFiles, Ends, HeldFiles, Life, Protocol):
    """A commitlog with all its ports: what a driver is. A component asks for the ports that it uses."""
