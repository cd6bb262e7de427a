"""Whose answer has the next free bytes, where many wait: by turns of tenants, and of the consumer groups in each."""

from __future__ import annotations

from tiered.fetch.fair import FairQueue, TenantGroup
from tiered.filter.tenants import TenantRules
from tiered.gateway.transport.limits import ByteBudget, Entry
from tiered.settings import Tenants


def fair_budget(most: int, settings: Tenants) -> ByteBudget:
    """Who reads a hundred times at once has one turn as everybody else, also before anything is read."""
    rules = TenantRules(settings)
    waiting = FairQueue[Entry]()
    return ByteBudget(most, waiting, lambda topic, group: TenantGroup(rules.tenant_of(topic), group))
