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

    def resending(self, error: TieredError, first: TieredError, began: float) -> None:
        """A write had no known outcome, or is not taken now; it is sent again after a pause. ``first``: what its first try met,
        which ``began`` then on the monotonic clock: a write is more than its put, and is the same one until it is done."""
        ...

    def sent(self, first: TieredError) -> None:
        """A write that was sent again got through, or will not be tried any more."""
        ...

    def not_kept(self, error: TieredError) -> None:
        """The store does not have what it had answered for; it is put again."""
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
        pauses, began = self.backoff.pauses(), self.clock.monotonic()
        first: TieredError | None = None
        try:
            while True:
                try:
                    return write()
                except Refused:
                    raise
                except passing as error:
                    first = first or error
                    self.events.resending(error, first, began)
                    if self.clock.wait(next(pauses), self.give_up):
                        raise
        finally:
            if first is not None:
                self.events.sent(first)
