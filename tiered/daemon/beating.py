"""The thread in which an open epoch shows that its writer lives, and the goodbye at its end."""

from __future__ import annotations

from types import TracebackType

from tiered.archive.log.beat import Beats
from tiered.archive.log.writer import CommitLog
from tiered.clock import Clock
from tiered.service import DONE, Next, Service, pause

JOIN_SECONDS = 2.0
GOODBYE_SECONDS = 5.0
"""No end waits longer for a store that is away."""


class Beating:
    """Beats of an epoch that this process has opened, from ``start`` to ``end``. What they meet ends nobody: ``check`` says it.
    They are not watched, since a store that is away may hold one for minutes."""

    def __init__(self, commit_log: CommitLog, clock: Clock, interval_seconds: float | None) -> None:
        """``interval_seconds``: see ``Beats``."""
        self.beats = Beats(commit_log, clock, interval_seconds)
        self._clock = clock
        self._service = Service("beat", self._step, clock)

    def check(self) -> None:
        """``Fenced`` if another writer has taken the archive over, though there was nothing to commit."""
        self.beats.check()

    def end(self) -> None:
        """The last word, once nothing can be put any more and all that was put is proven: the next writer need not wait."""
        if self._stop():  # else a beat hangs, and so would this
            last = Service("goodbye", self._goodbye, self._clock)
            last.start()
            last.join(GOODBYE_SECONDS)

    def _goodbye(self) -> Next:
        self.beats.goodbye()
        return DONE

    def _step(self) -> Next:
        seconds = self.beats.step()
        return DONE if seconds is None else pause(seconds)

    def _stop(self) -> bool:
        self._service.stop()
        return self._service.join(JOIN_SECONDS)

    def __enter__(self) -> Beating:
        self._service.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
