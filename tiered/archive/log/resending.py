"""A write that does not get through is sent again until it does: giving up would only mean doing the same again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.errors import Refused, TieredError, Unavailable

Result = TypeVar("Result")


class ResendEvents(Protocol):
    """Who hears that a write is sent again."""

    def resending(self, error: TieredError) -> None:
        """A write had no known outcome, or is not taken now; it is sent again after a pause."""
        ...

    def read_back(self, vanished: TieredError | None) -> None:
        """What the store had answered for was looked for: all of it is there, or ``vanished`` says what is not."""
        ...


@dataclass(frozen=True, slots=True)
class Resending:
    """Tries for as long as it takes, until ``give_up`` is set: the last error is raised then."""

    clock: Clock
    backoff: Backoff
    give_up: threading.Event
    events: ResendEvents

    def until_done(
        self, write: Callable[[], Result], passing: tuple[type[TieredError], ...] = (Unavailable,)
    ) -> Result:
        """The result of ``write``. ``passing``: errors that pass by themselves; ``Refused`` never does."""
        pauses = self.backoff.pauses()
        while True:
            try:
                return write()
            except Refused:
                raise
            except passing as error:
                self.events.resending(error)
                if self.clock.wait(next(pauses), self.give_up):
                    raise
