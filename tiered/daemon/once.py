"""Where ``--once`` ends: at the end the broker's log had when the daemon opened, or at damage that must not pass for one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from tiered.clock import Clock
from tiered.errors import Corrupt, NotFound, TieredError
from tiered.model import PhysicalOffset
from tiered.source.base import Ends, Life, LogFiles, Tail

log = logging.getLogger("tiered.daemon")

TORN_SECONDS = 2.0
"""How long bytes that are not a record may lie at the end before they are judged: a broker writes one within milliseconds."""


@dataclass(frozen=True, slots=True)
class DamagedStretch:
    """A stretch of a commitlog file, ``length`` bytes from ``position``, that damage made unreadable."""

    file: str
    position: PhysicalOffset
    length: int
    reason: str


class EndingLog(Tail, LogFiles, Ends, Life, Protocol):
    """What the end of a log is judged by."""


class PresentEnd:
    """Decides when everything that was there at the start is archived, and whether all of it could be.

    ``target`` is the log's end when the daemon opened. It moves once for every damaged stretch met below it, for a look from
    before it sees no further than that; never because the broker goes on writing.

    What lies behind the last archived record is judged: zeros are an end. So are bytes of a former life of the broker: after an
    unclean stop it writes on without erasing them, and nobody can tell them from damage; they are named in a warning. A file
    that is cut, and a log without a single record, are not states that a broker leaves: ``Corrupt``. Where reading waits for an
    operator, or longer than it has reason to, is an end, too, and the verdict says why.

    ``gap``, ``done`` and ``reached`` are called by the dispatcher's thread, ``verdict`` when that has ended.
    """

    def __init__(self, source: EndingLog, clock: Clock, target: PhysicalOffset) -> None:
        self._source = source
        self._clock = clock
        self._target = target
        self._behind: PhysicalOffset | None = None
        self._lost: list[DamagedStretch] = []
        self._gone: NotFound | None = None
        self._stopped_by: TieredError | None = None
        self._seen: tuple[PhysicalOffset, str] | None = None
        self._since = 0.0
        self._stood_at: PhysicalOffset | None = None
        self._stood_since = 0.0
        self._judged: bool | None = None

    @property
    def target(self) -> PhysicalOffset:
        """Where archiving will end, as far as is known."""
        return self._target

    def gap(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> None:
        """A physical gap was recorded. What the broker deleted in its own time is not damage."""
        if not reason.startswith("corrupt"):
            return
        self._lost.append(DamagedStretch(self._file_of(start), start, end - start, reason.partition(": ")[2]))
        self._behind = end

    def done(self, position: PhysicalOffset, waiting_for: str | None) -> bool:
        """Whether archiving may end at ``position``. ``waiting_for``: why nothing can be read there; ``None``: more is."""
        self._gone = self._source.away
        if self._gone is not None:
            return waiting_for is not None and self._rested(
                position, waiting_for
            )  # first what the hold still has
        wait = self._source.waiting
        if waiting_for is not None and wait is not None and wait.problem is not None:
            self._stopped_by = wait.problem
            return True
        if self._behind is not None:
            if position == self._behind:  # what lies behind the damage is there, and about to be read
                return waiting_for is not None and self._stood_too_long(position, waiting_for)
            if position > self._behind:
                self._target = max(self._target, self._source.max_offset())
            self._behind = None  # below it: the broker cut its log, and the place is looked at again
        if position > self._target:
            return True
        if waiting_for is None:
            self._stood_at = None
            return False
        torn = waiting_for.startswith("unreadable")
        moves_on = position < self._target and not torn and position < self._source.max_offset()
        if not moves_on and self.reached(position, waiting_for):
            self._stood_at = None
            return True
        return self._stood_too_long(position, waiting_for)

    def _stood_too_long(self, position: PhysicalOffset, reason: str) -> bool:
        """Whether nothing moved here for longer than reading ever waits: then it never will."""
        now = self._clock.monotonic()
        if self._stood_at != position:
            self._stood_at, self._stood_since = position, now
        if now - self._stood_since <= self._source.patience_seconds:
            return False
        self._stopped_by = self._ends_in_damage(position, reason)
        return True

    def reached(self, position: PhysicalOffset, reason: str) -> bool:
        """Whether ``position`` is the end; false: look again soon. ``reason`` is why nothing can be read there."""
        if not reason.startswith("unreadable"):
            return not self._source.readable_behind(position)
        rested = self._rested(position, reason)
        if self._judged is not None:
            return self._judged
        if not rested:
            return False
        if self._source.readable_behind(position):
            self._judged = False  # it is not an end, but is going to be a gap
            return False
        self._judged = True
        cut = "bytes are left" in reason or self._source.missing_at(position)
        if cut or position == self._source.min_offset():
            self._stopped_by = self._ends_in_damage(position, reason)
            return True
        log.warning(
            "bytes that are not a record lie behind the commitlog's end: taken for leftovers of an unclean stop of the broker",
            extra={"position": position, "found": reason.partition(": ")[2]},
        )
        return True

    def _ends_in_damage(self, position: PhysicalOffset, reason: str) -> Corrupt:
        return Corrupt(
            "the commitlog ends in damage; everything before it is archived",
            hint="check source.store_dir and the file's length, or start the broker on it: it repairs its log",
            file=self._file_of(position),
            position=position,
            expected="a whole record, or nothing",
            found=reason.partition(": ")[2] or reason or "nothing",
        )

    def _rested(self, position: PhysicalOffset, reason: str) -> bool:
        """Whether nothing changed for long enough."""
        now = self._clock.monotonic()
        if self._seen != (position, reason):
            self._seen, self._since, self._judged = (position, reason), now, None
        return now - self._since >= TORN_SECONDS

    def verdict(self) -> TieredError | None:
        """What is to be said at the end although everything that could be archived is: the log went away, or is damaged."""
        if self._gone is not None:
            return NotFound(
                "the commitlog directory went away: what the hold has of it is archived, the rest is not",
                hint=self._gone.hint,
                **self._gone.fields,
                expected="the broker's commitlog, up to its end at the start",
                found=self._gone.message,
            )
        if not self._lost:
            return self._stopped_by
        first = self._lost[0]
        return Corrupt(
            "the commitlog is damaged: everything else up to its end is archived, the damage is recorded as a gap",
            hint="tiered queues shows which queue offsets it took, tiered verify counts it; "
            "if another copy of the broker's store has these bytes, keep that copy",
            file=first.file,
            position=first.position,
            length=first.length,
            expected="whole records",
            found=first.reason,
            **({"gaps": len(self._lost)} if len(self._lost) > 1 else {}),
            **({"ends": self._stopped_by.message} if self._stopped_by is not None else {}),
        )

    def _file_of(self, start: PhysicalOffset) -> str:
        return next((file.path for file in self._source.files() if file.base <= start < file.end), "gone")
