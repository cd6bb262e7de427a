"""The claim of an epoch: at once if nobody else writes, else when the other writer has fallen silent."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.log.beat import Sighting
from tiered.archive.log.writer import ARCHIVER, BY_ROLE, Claim, CommitLog
from tiered.archive.state.values import Head
from tiered.errors import Refused
from tiered.opening.events import OpeningEvents
from tiered.text.human import second

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
    role: str = ARCHIVER
    """What the epoch is for, as others are told."""
    stands_by: bool = True
    """Whether it waits for a writer that lives, as a daemon does; a command does its work now, or is refused."""

    def claim(self, lineage: int) -> Head:
        """Open the next epoch; its head. ``Refused`` if told to stop while another writer was waited for."""
        host, now_ms = socket.gethostname(), self.log.resending.clock.now_ms()
        made = Claim(
            lineage=lineage, host=host, role=self.role,
            lite_queues=self.lite_queues, forgets_queues=self.forgets_queues,
        )  # fmt: skip
        return self.log.claim(made, now_ms, before_try=self._before_try)

    def _before_try(self, head: Head | None) -> None:
        """Wait until a foreign writer has been silent for ``takeover_wait``, unless told to take over. ``Refused`` where one
        that lives is not waited for."""
        said, before = False, -1
        while not self.take_over and not self.stopping():
            seen = self.log.foreign_writer(self.log.tip, self.takeover_wait_ms)
            if seen.rest_ms <= 0:
                return
            comes = 0 <= before < seen.rest_ms  # a sign came while it was watched
            lives = comes or seen.seen_ms is not None
            if lives and not self.stands_by:
                raise _lives(self.log.tip, seen, self.takeover_wait_ms)
            if not said:
                self.events.standing_by(head, seen.rest_ms)
                said = True
            self._rest(min(LOOK_AGAIN_SECONDS, seen.rest_ms / 1000))
            before = seen.rest_ms
            self.log.follow()
        if self.stopping():
            raise Refused("stopped while waiting for another writer to fall silent")

    def _rest(self, seconds: float) -> None:
        """Wait in small steps, so that a stop is heard."""
        clock = self.log.resending.clock
        until = clock.monotonic() + seconds
        while not self.stopping() and clock.monotonic() < until:
            clock.wait(min(WAIT_STEP_SECONDS, until - clock.monotonic()))


def _lives(owner: Head | None, seen: Sighting, takeover_wait_ms: int) -> Refused:
    """The refusal of a command that would take the archive from ``owner``."""
    assert owner is not None  # it was seen
    last = {} if seen.seen_ms is None else {"last_sign": second(seen.seen_ms)}
    return Refused(
        "another writer of this archive was seen alive, and would be fenced",
        hint=f"let that daemon do it, or stop it; one that died counts as gone {takeover_wait_ms // 1000} s after its last sign"
        " (archive.takeover_wait_ms); --take-over claims the archive now",
        host=owner.host, **last, writer=owner.writer_id.hex(), epoch=owner.epoch, found=BY_ROLE.get(owner.role, owner.role),
    )  # fmt: skip
