"""What a sink does, for whoever looks: plain values, written by its one thread and read by any."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum

from tiered.clock import Clock
from tiered.model import MessageQueue
from tiered.sink.backfill import BackfillDone
from tiered.sink.base import Accepted
from tiered.sink.choosing import LostRange

SHOWN = 20
"""Last ranges of missing messages that are kept to be shown."""


class SinkPhase(Enum):
    """What a sink is at."""

    OPENING = "opening"
    BACKFILLING = "backfilling"  # reads the archive
    LIVE = "live"  # reads the log
    WAITING = "waiting"  # the source has nothing that it should have
    AWAY = "away"  # the destination does not answer
    PAUSED = "paused"  # by an operator
    STOPPED = "stopped"  # until its order is changed, or the daemon starts again


STANDING = frozenset((SinkPhase.WAITING, SinkPhase.AWAY, SinkPhase.STOPPED))
"""Phases in which a sink does not move, and should."""


class SinkProgress:
    """Of one sink since this process began."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.phase = SinkPhase.OPENING
        self.why: str | None = None
        self.messages = self.dead_letters = self.left_out = self.came_back = self.flushes = 0
        self.lost_messages = self.lost_at_source = self.begun_anew = 0
        self.lost: deque[tuple[str, LostRange]] = deque(maxlen=SHOWN)
        self.physical: int | None = None
        self.lag_bytes: int | None = None
        self.backlog = 0
        """Messages that the archive had for it when it began to read it."""
        self._filled = self._filled_before = 0
        self._elsewhere: int | None = None
        self._began = self._current = clock.monotonic()

    def enter(self, phase: SinkPhase, why: str | None = None) -> None:
        """It is in this phase now."""
        self.phase, self.why = phase, why

    def at_end(self) -> None:
        """Everything that there is was given, and is there for good."""
        self._current = self._clock.monotonic()

    def stale_seconds(self) -> float:
        """How long it has not been at the end."""
        return self._clock.monotonic() - self._current

    def begin_backfill(self, backlog: int) -> None:
        """It reads the archive from now on, which has so many messages for it."""
        self.backlog, self._filled, self._began = backlog, 0, self._clock.monotonic()
        self._filled_before, self._elsewhere = 0, None

    def backfilled(self, backlog: int, filled: int) -> None:
        """Others read the archive for it, and are so far of so many messages."""
        if self._elsewhere != backlog:
            self.begin_backfill(backlog)
            self._elsewhere, self._filled_before = backlog, filled
        self._filled = filled

    def given_elsewhere(self, done: Iterable[BackfillDone]) -> None:
        """Others gave these parts for it."""
        for each in done:
            self.lost_messages += each.lost
            self.dead_letters += each.dead_letters
            self.left_out += each.left_out

    def gave(self, accepted: Accepted) -> None:
        """The destination took messages."""
        self.messages += accepted.messages
        self.dead_letters += accepted.dead_letters
        self.left_out += accepted.left_out
        self.came_back += accepted.came_back
        self._filled += accepted.messages

    def missing(self, kind: str, ranges: Iterable[LostRange]) -> None:
        """Messages that it was never given (``missing``), or had and the broker lost (``source``)."""
        for gone in ranges:
            self.lost.append((kind, gone))
            if kind == "source":
                self.lost_at_source += gone.messages
            else:
                self.lost_messages += gone.messages

    def anew(self, queues: Iterable[MessageQueue]) -> None:
        """Queues began again."""
        self.begun_anew += sum(1 for _ in queues)

    def backlog_messages(self) -> int:
        """What is left to read of the archive; 0 where it is not read."""
        return max(0, self.backlog - self._filled) if self.phase is SinkPhase.BACKFILLING else 0

    def eta_seconds(self) -> float | None:
        """How long the archive is still read at the pace so far; ``None`` where that is not known."""
        filled = self._filled - self._filled_before
        if self.phase is not SinkPhase.BACKFILLING or filled <= 0:
            return None
        pace = filled / max(1e-3, self._clock.monotonic() - self._began)
        return self.backlog_messages() / pace

    def figures(self) -> dict[str, float | None]:
        """For metrics; ``None``: not known."""
        return {
            "standing": float(self.phase in STANDING),
            "away": float(self.phase is SinkPhase.AWAY),
            "stopped": float(self.phase is SinkPhase.STOPPED),
            "paused": float(self.phase is SinkPhase.PAUSED),
            "stale_seconds": self.stale_seconds(),
            "lag_bytes": self.lag_bytes,
            "backlog_messages": self.backlog_messages(),
            "messages": self.messages,
            "dead_letters": self.dead_letters,
            "left_out": self.left_out,
            "came_back": self.came_back,
            "lost_messages": self.lost_messages,
            "lost_at_source": self.lost_at_source,
            "begun_anew": self.begun_anew,
        }

    def document(self) -> dict[str, object]:
        """For pages."""
        eta = self.eta_seconds()
        return {
            "phase": self.phase.value,
            "why": self.why,
            "messages": self.messages,
            "dead_letters": self.dead_letters,
            "left_out": self.left_out,
            "came_back": self.came_back,
            "flushes": self.flushes,
            "position": self.physical,
            "lag_bytes": self.lag_bytes,
            "stale_seconds": round(self.stale_seconds(), 1),
            "backlog_messages": self.backlog_messages() if eta is not None or self._elsewhere else None,
            "eta_seconds": None if eta is None else round(eta),
            "lost_messages": self.lost_messages,
            "lost_at_source": self.lost_at_source,
            "begun_anew": self.begun_anew,
            "lost": [
                {
                    "kind": kind,
                    "queue": str(gone.queue),
                    "first": gone.first,
                    "end": gone.end,
                    "why": gone.why,
                }
                for kind, gone in self.lost
            ],
        }
