"""A read node says that it is there: joins, renews, says what has changed, drains, leaves.

What fails is tried again, and never ends the node: gateways that know it go on asking it.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from tiered.clock import Clock
from tiered.codec.remoting.nodebeat import FIRST_WIRE, LAST_WIRE
from tiered.errors import Conflict, Invalid, TieredError, Unavailable
from tiered.membership.base import RENEWALS, Card, Lease, Membership, MemberState
from tiered.metrics import Metrics
from tiered.service import Next, pause
from tiered.settings import Serve
from tiered.text.addresses import split_address
from tiered.version import __version__

log = logging.getLogger("tiered.node")

LOOK_SECONDS = 0.5
"""How soon a change of state is said."""
AGAIN_SECONDS = 2.0
_ANYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - recognised, not bound


def node_card(settings: Serve, address: str, process: bytes) -> Card:
    """What this node says of itself; ``address``: where it listens. ``Invalid`` for an address that nobody can ask."""
    told = settings.advertise or address
    host, port = split_address(told, key="serve.advertise")
    if host in _ANYWHERE:
        raise Invalid(
            "gateways cannot ask a node at the address that it listens at",
            key="serve.advertise",
            found=told,
            hint="set serve.advertise to the host:port by which gateways reach this node",
        )
    name = settings.name or f"{socket.gethostname()}:{port}"
    return Card(
        name, told, process.hex(), __version__, FIRST_WIRE, LAST_WIRE, settings.capacity, MemberState.JOINING,
        settings.lease_ms,
    )  # fmt: skip


class Announcer:
    """``step`` is that of a service, in whose thread the registry is used; ``drain`` and ``close`` may come from any."""

    def __init__(
        self,
        membership: Membership,
        card: Card,
        ready: Callable[[], bool],
        clock: Clock,
        metrics: Metrics,
        reads: Callable[[], tuple[tuple[int, int], ...]] = tuple,
    ) -> None:
        """``ready``: whether the archive can be read; ``reads``: see ``Card``."""
        self._membership = membership
        self._card = card
        self._ready = ready
        self._reads = reads
        self._clock = clock
        self._metrics = metrics
        self._every = card.lease_ms / 1000 / RENEWALS
        self._lease: Lease | None = None
        self._was_lost = False
        self._said: MemberState | None = None
        self._renewed_at: float | None = None
        self._due = 0.0
        self._draining = threading.Event()
        self._using = threading.Lock()
        self._told: str | None = None  # the kind of problem that was said last
        self.problem: str | None = "it has not announced itself yet"
        """Why gateways do not learn of it; ``None``: they do."""
        self._show()

    @property
    def state(self) -> MemberState:
        """What the node is now, whatever the registry has."""
        if self._draining.is_set():
            return MemberState.DRAINING
        return MemberState.LIVE if self._ready() else MemberState.JOINING

    def drain(self) -> None:
        """Say from now on that it drains."""
        self._draining.set()

    def step(self) -> Next:
        """Announce or renew, if it is time to or something has changed."""
        with self._using:
            return self._step()

    def close(self) -> None:
        """Leave, and say nothing more. What fails is only said: the lease then ends by itself."""
        with self._using:
            lease, self._lease = self._lease, None
            self._due = float("inf")
            self._said = None
            self._show()
            if lease is None:
                return
            try:
                lease.leave()
            except TieredError as error:
                log.warning("the read node's lease is not taken back, and ends by itself: %s", error)

    def status(self) -> dict[str, object]:
        """For the status page. From any thread."""
        renewed = self._renewed_at
        return {
            "name": self._card.name,
            "address": self._card.address,
            "state": None if self._said is None else self._said.value,
            "renewed_seconds_ago": None if renewed is None else round(self._clock.monotonic() - renewed, 1),
            "problem": self.problem,
        }

    def publish(self) -> None:
        """Metrics. From any thread."""
        renewed = self._renewed_at
        if renewed is not None:
            self._metrics.membership_age.set(self._clock.monotonic() - renewed)
        self._show()

    def _step(self) -> Next:
        now = self._clock.monotonic()
        if self._due == float("inf"):
            return pause(LOOK_SECONDS)
        state = self.state
        if now < self._due and (state is self._said or self._told is not None):
            return pause(min(LOOK_SECONDS, self._due - now))
        try:
            self._announce(self._card.said(state, self._reads()))
        except TieredError as error:
            return self._failed(error)
        except Exception as error:  # a surprise of a driver must not end the announcing
            log.debug("announcing failed", exc_info=True)
            return self._failed(Unavailable("the membership made no sense", found=repr(error)[:200]))
        if self.problem is not None or state is not self._said:
            log.info("announced", extra={"node": self._card.name, "state": state.value})
        self._told, self.problem, self._said = None, None, state
        self._renewed_at = self._clock.monotonic()
        self._due = self._renewed_at + self._every
        return pause(LOOK_SECONDS)

    def _announce(self, card: Card) -> None:
        if self._lease is None:
            self._lease = self._membership.announce(card, anew=not self._was_lost)
        else:
            self._lease.renew(card)

    def _failed(self, error: TieredError) -> Next:
        """Say it, once for each kind, and try again soon."""
        self._metrics.membership_failures.inc()
        if isinstance(error, Conflict) and self._lease is not None:
            self._lease, self._was_lost = None, True
        if isinstance(error, Conflict):
            self._said = None
        if error.message != self._told:
            log.error("gateways do not learn that this read node is there: %s", error)
        self._told, self.problem = error.message, str(error)
        self._due = self._clock.monotonic() + min(AGAIN_SECONDS, self._every)
        return pause(LOOK_SECONDS)

    def _show(self) -> None:
        said = "none" if self._said is None else self._said.value
        for name in ("none", *(state.value for state in MemberState)):
            self._metrics.node_member.labels(name).set(name == said)
