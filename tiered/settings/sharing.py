"""Section of how readers share the store: tenants and their budgets."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.settings.option import GIB, ONE_DAY_MS, SettingsSection, ms, option


@dataclass(frozen=True, slots=True)
class Tenants(SettingsSection):
    """Who shares a gateway or a read node: a tenant is a RocketMQ namespace (INSTANCE%topic), or what patterns name. Budgets
    are of one process, and of what it asks the store for; what its cache has costs nothing."""

    topics: tuple[str, ...] = option(
        (),
        "tenants by topic, payments=pay-*; the first pattern that fits decides, else the topic's namespace, else it is default",
    )
    bytes_per_second: int = option(
        0,
        "stored bytes a second that a tenant may have fetched; less leaves more to others, and has its consumers wait; 0: no"
        " bound",
        low=0,
        high=1024 * GIB,
        unit="bytes/s",
    )
    requests_per_second: int = option(
        0, "the same for requests to the store; 0: no bound", low=0, high=1_000_000, unit="requests/s"
    )
    limits: tuple[str, ...] = option(
        (),
        "budgets of single tenants, instead of the two above: payments=64MiB/s 200/s, batch-*=100/s, audit=unlimited; the first"
        " pattern that fits the tenant decides",
    )
    burst_ms: int = ms(
        2_000,
        "so much of its rate a tenant may have at once after it was quiet; longer is kinder to bursts, and harder on others",
        100,
        ONE_DAY_MS,
    )
