"""The claim of an epoch: at once if nobody else writes, else when the other writer has fallen silent."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.state.values import Head
from tiered.errors import Refused
from tiered.opening.events import OpeningEvents

WAIT_STEP_SECONDS = 0.2
LOOK_AGAIN_SECONDS = 5.0
"""How often a standby looks at the head of the log."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Claims epochs of one log. ``take_over``: without waiting for the writer before. ``stopping``: whether to wait no more."""

    log: CommitLog
    takeover_wait_ms: int
    take_over: bool
    stopping: Callable[[], bool]
    events: OpeningEvents
    lite_queues: bool = False
    """Whether the epoch archives aliases."""
    forgets_queues: bool = False
    """Whether queues may be forgotten in it."""

    def claim(self, lineage: int) -> Head:
        """Open the next epoch; its head. ``Refused`` if told to stop while another writer was waited for."""
        host, now_ms = socket.gethostname(), self.log.resending.clock.now_ms()
        made = Claim(
            lineage=lineage, host=host, lite_queues=self.lite_queues, forgets_queues=self.forgets_queues
        )
        return self.log.claim(made, now_ms, before_try=self._before_try)

    def _before_try(self, head: Head | None) -> None:
        """Wait until a foreign writer has been silent for ``takeover_wait``, unless told to take over."""
        said = False
        while not self.take_over and not self.stopping():
            rest = self.log.foreign_wait(self.log.tip, self.takeover_wait_ms)
            if rest <= 0:
                return
            if not said:
                self.events.standing_by(head, rest)
                said = True
            self._rest(min(LOOK_AGAIN_SECONDS, rest / 1000))
            self.log.follow()
        if self.stopping():
            raise Refused("stopped while waiting for another writer to fall silent")

    def _rest(self, seconds: float) -> None:
        """Wait in small steps, so that a stop is heard."""
        clock = self.log.resending.clock
        until = clock.monotonic() + seconds
        while not self.stopping() and clock.monotonic() < until:
            clock.wait(min(WAIT_STEP_SECONDS, until - clock.monotonic()))
