"""What each tenant has had of the store, and whether it may have more now.

A budget may be overdrawn: whoever comes while something is left gets all it asks for, and the next one waits until that is
made up for, so that a large request needs no large budget. Where several groups of a tenant wait, the one that had least of
late is let in first. What is fetched ahead counts as well, and is left out while a tenant has nothing left.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from tiered.clock import Clock
from tiered.errors import Unavailable
from tiered.fetch.base import ReaderId
from tiered.fetch.fair import REQUEST_COST, TenantGroup
from tiered.filter.tenants import Allowance, TenantRules
from tiered.metrics import TENANTS_SHOWN
from tiered.settings import Tenants

log = logging.getLogger("tiered.fetch")

MOST_TENANTS = 4096
"""Tenants with figures and a budget of their own; those that come beyond have one together."""

MOST_GROUPS = 256
"""Groups of a tenant that are told apart while they wait."""

THE_REST = "(beyond the table)"

LEAST_WAIT_SECONDS = 0.01
GRACE_SECONDS = 0.5
"""How much later than told a group that waits may come, and still has its turn."""


class OverBudget(Unavailable):
    """A tenant has had what it may have for now: nothing was fetched, ask again in ``seconds``."""

    def __init__(self, tenant: str, seconds: float) -> None:
        super().__init__(
            "the tenant's budget is used up",
            tenant=tenant, seconds=round(seconds, 3), hint="wait; tenants.limits and tenants.bytes_per_second are the bounds",
        )  # fmt: skip
        self.seconds = seconds


@dataclass(slots=True)
class _Tenant:
    """Figures since the start. ``bytes_left`` and ``requests_left`` are below 0 while overdrawn."""

    allowance: Allowance
    bytes_left: float
    requests_left: float
    filled_at: float
    fetched_bytes: int = 0
    requests: int = 0
    refused: int = 0
    over: bool = False
    had: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """Cost that a group had, on a clock as in ``fair``."""
    waiting: dict[str, float] = field(default_factory=dict)
    """Until when a group that was told to wait has its turn."""

    def fill(self, now: float, burst_seconds: float) -> None:
        passed, self.filled_at = now - self.filled_at, now
        bytes_a_second, requests_a_second = (
            self.allowance.bytes_per_second,
            self.allowance.requests_per_second,
        )
        most_requests = max(1.0, requests_a_second * burst_seconds)
        self.bytes_left = min(self.bytes_left + passed * bytes_a_second, bytes_a_second * burst_seconds)
        self.requests_left = min(self.requests_left + passed * requests_a_second, most_requests)

    def wait_seconds(self) -> float:
        """Until something is left; 0: there is."""
        seconds = 0.0
        for left, rate in (
            (self.bytes_left, self.allowance.bytes_per_second),
            (self.requests_left, self.allowance.requests_per_second),
        ):
            if rate and left <= 0:
                seconds = max(seconds, -left / rate, LEAST_WAIT_SECONDS)
        return seconds

    def full(self) -> bool:
        """Whether it could be forgotten without giving it anything."""
        return not self.allowance.bounded or (self.wait_seconds() == 0 and not self.waiting)

    def before(self, group: str, now: float) -> bool:
        """Whether another group waits that had less than this one."""
        self.waiting = {name: until for name, until in self.waiting.items() if until >= now}
        mine = self.had.get(group, 0)
        return any(name != group and self.had.get(name, 0) < mine for name in self.waiting)

    def serve(self, group: str, cost: int) -> None:
        self.had[group] = max(self.had.pop(group, 0), min(map(self._had, self.waiting), default=0)) + cost
        if len(self.had) > MOST_GROUPS:
            self.had.popitem(last=False)

    def _had(self, group: str) -> int:
        return self.had.get(group, 0)


class Shares:
    """Thread-safe, never waits. At most ``MOST_TENANTS`` are told apart."""

    def __init__(self, settings: Tenants, clock: Clock) -> None:
        self._rules = TenantRules(settings)
        self._clock = clock
        self._lock = threading.Lock()
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()

    def account(self, reader: ReaderId, topic: str) -> Account:
        """On whose account ``reader`` reads a topic."""
        return Account(self, TenantGroup(self._rules.tenant_of(topic), reader.group))

    def admit(self, share: TenantGroup) -> None:
        """``OverBudget`` where the tenant, or the group in it, has to wait."""
        if not self._rules.allowance_of(share.tenant).bounded:
            return
        with self._lock:
            name, tenant = self._found(share.tenant)
            now, seconds = self._clock.monotonic(), tenant.wait_seconds()
            others = seconds == 0 and tenant.before(share.group, now)
            if seconds == 0 and not others:
                tenant.waiting.pop(share.group, None)
                return
            seconds = max(seconds, LEAST_WAIT_SECONDS)
            tenant.refused += 1
            if share.group in tenant.waiting or len(tenant.waiting) < MOST_GROUPS:
                tenant.waiting[share.group] = now + seconds + GRACE_SECONDS
            news, tenant.over = not tenant.over, True
        if news:
            log.warning("a tenant has used up its budget: its consumers wait", extra={"tenant": name})
        raise OverBudget(name, seconds)

    def may_ahead(self, share: TenantGroup) -> bool:
        """Whether something may be fetched for later."""
        if not self._rules.allowance_of(share.tenant).bounded:
            return True
        with self._lock:
            tenant = self._found(share.tenant)[1]
            return tenant.wait_seconds() == 0 and not tenant.waiting

    def charge(self, share: TenantGroup, size: int, requests: int = 1) -> None:
        """``size`` stored bytes are asked for; negative: they were not needed after all."""
        with self._lock:
            name, tenant = self._found(share.tenant)
            tenant.fetched_bytes += size
            tenant.requests += requests
            if not tenant.allowance.bounded:
                return
            tenant.bytes_left -= size
            tenant.requests_left -= requests
            tenant.serve(share.group, size + requests * REQUEST_COST)
            calm = tenant.over and not tenant.waiting and tenant.wait_seconds() == 0
            tenant.over = tenant.over and not calm
        if calm:
            log.info("a tenant is within its budget again", extra={"tenant": name})

    def status(self) -> Mapping[str, Mapping[str, object]]:
        """Figures of each tenant since the start, those with most bytes first."""
        with self._lock:
            now = self._clock.monotonic()
            for tenant in self._tenants.values():
                tenant.fill(now, self._rules.burst_seconds)
            rows = sorted(self._tenants.items(), key=lambda row: (-row[1].fetched_bytes, row[0]))
            return {
                name: {
                    "fetched_bytes": tenant.fetched_bytes,
                    "requests": tenant.requests,
                    "refused": tenant.refused,
                    "wait_seconds": round(tenant.wait_seconds(), 3),
                }
                for name, tenant in rows
            }

    def shown(self) -> Mapping[str, Mapping[str, object]]:
        """``status`` for people: of the ``TENANTS_SHOWN`` with most bytes."""
        return dict(islice(self.status().items(), TENANTS_SHOWN))

    def _found(self, name: str) -> tuple[str, _Tenant]:
        """A tenant, its budget filled up to now, and under which name it is kept."""
        now, tenant = self._clock.monotonic(), self._tenants.get(name)
        if tenant is None and len(self._tenants) >= MOST_TENANTS:
            oldest, there = next(iter(self._tenants.items()))
            there.fill(now, self._rules.burst_seconds)
            if oldest != THE_REST and there.full():
                del self._tenants[oldest]
            else:
                name = THE_REST
                self._tenants.move_to_end(oldest)
                tenant = self._tenants.get(name)
        if tenant is None:
            allowance = self._rules.allowance_of(name)
            burst = self._rules.burst_seconds
            tenant = self._tenants[name] = _Tenant(
                allowance, allowance.bytes_per_second * burst, max(1.0, allowance.requests_per_second * burst), now
            )  # fmt: skip
        tenant.fill(now, self._rules.burst_seconds)
        self._tenants.move_to_end(name)
        return name, tenant


@dataclass(frozen=True, slots=True)
class Account:
    """One reader's account: ``share`` is whose."""

    _shares: Shares
    share: TenantGroup

    def admit(self) -> None:
        """See ``Shares.admit``."""
        self._shares.admit(self.share)

    def may_ahead(self) -> bool:
        """See ``Shares.may_ahead``."""
        return self._shares.may_ahead(self.share)

    def charge(self, size: int, requests: int = 1) -> None:
        """See ``Shares.charge``."""
        self._shares.charge(self.share, size, requests)
