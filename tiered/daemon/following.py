"""A gateway learns which read nodes there are, and goes on with those it knows while it cannot look."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from tiered.clock import Clock
from tiered.errors import TieredError, Unavailable
from tiered.gateway.nodes.fleet import NodePlace
from tiered.membership.base import Member, Members, Membership
from tiered.metrics import Metrics
from tiered.service import AGAIN, Next

log = logging.getLogger("tiered.gateway")


class Following:
    """``step`` is that of a service, in whose thread the registry is used; ``stop`` ends a wait from any thread."""

    def __init__(
        self,
        membership: Membership,
        take: Callable[[Sequence[NodePlace]], None],
        clock: Clock,
        metrics: Metrics,
        every_seconds: float,
    ) -> None:
        """``take`` gets everybody who is there, each time that this may have changed."""
        self._membership = membership
        self._take = take
        self._clock = clock
        self._metrics = metrics
        self._every = every_seconds
        self._stop = threading.Event()
        self._seen_at: float | None = None
        self._found = Members()
        self._told: str | None = None  # the kind of problem that was said last
        self._places: tuple[NodePlace, ...] | None = None
        self.problem: str | None = "nobody has looked yet"
        """Why the last look failed; ``None``: it did not."""

    def step(self) -> Next:
        """Look, tell, wait."""
        try:
            found = self._membership.members()
        except TieredError as error:
            self._failed(error)
        except (
            Exception
        ) as error:  # a surprise of a driver must not end the following: the set would be old for ever
            log.debug("a look at the membership failed", exc_info=True)
            self._failed(Unavailable("the membership made no sense", found=repr(error)[:200]))
        else:
            self._saw(found)
        try:
            self._membership.wait(self._every, self._stop)
        except TieredError:  # the next look says why
            self._clock.wait(self._every, self._stop)
        return AGAIN

    def stop(self) -> None:
        """End a wait."""
        self._stop.set()
        self._membership.close()

    def status(self) -> dict[str, object]:
        """For the status page. From any thread."""
        found, seen = self._found, self._seen_at
        return {
            "problem": self.problem,
            "seen_seconds_ago": None if seen is None else round(self._clock.monotonic() - seen, 1),
            "there": [member.card.name for member in found.there],
            "silent": {name: round(seconds, 1) for name, seconds in found.silent.items()},
            "damaged": dict(found.troubles),
        }

    def publish(self) -> None:
        """Metrics. From any thread."""
        found, seen = self._found, self._seen_at
        if seen is not None:
            self._metrics.membership_age.set(self._clock.monotonic() - seen)
        for state, count in (("there", found.there), ("silent", found.silent), ("damaged", found.troubles)):
            self._metrics.gateway_members.labels(state).set(len(count))

    def _saw(self, found: Members) -> None:
        before, self._found = self._found, found
        self._seen_at = self._clock.monotonic()
        if self.problem is not None:
            log.info("read nodes are followed", extra={"there": len(found.there)})
        self._told, self.problem = None, None
        places = tuple(sorted(map(_place, found.there), key=lambda place: place.name))
        if places != self._places:
            self._places = places
            self._take(places)
        _tell(before, found)

    def _failed(self, error: TieredError) -> None:
        self._metrics.membership_failures.inc()
        if error.message != self._told:
            log.error(
                "which read nodes there are cannot be seen, those known stay: %s",
                error,
                extra={"known": len(self._found.there)},
            )
        self._told, self.problem = error.message, str(error)


def _place(member: Member) -> NodePlace:
    card = member.card
    return NodePlace(card.name, card.address, card.capacity, card.state.value, card.wire_from, card.wire_to)


def _tell(before: Members, now: Members) -> None:
    """Once for each change."""
    were = {member.card.name: member.card.address for member in before.there}
    are = {member.card.name: member.card.address for member in now.there}
    for name in are.keys() - were.keys():
        log.info("a read node came", extra={"node": name, "address": are[name]})
    for name in were.keys() - are.keys():
        why = "silent" if name in now.silent else "damaged" if name in now.troubles else "left"
        log.info("a read node went", extra={"node": name, "why": why})
    for name in now.troubles.keys() - before.troubles.keys():
        log.error("a read node does not count: %s", now.troubles[name], extra={"node": name})
