"""Whether routes may name read nodes, by the settings of a gateway; the broker has its say, too."""

from __future__ import annotations

from tiered.errors import Invalid
from tiered.gateway.knowledge.openbroker import OpenBroker
from tiered.gateway.knowledge.questions import Ask
from tiered.gateway.pull.directing import NODES
from tiered.settings import Gateway


def open_broker(settings: Gateway, ask: Ask) -> OpenBroker | None:
    """Who looks whether the broker lets everybody read; ``None``: routes name no nodes. ``Invalid`` with what nodes cannot."""
    if settings.namesrv_routes != NODES:
        return None
    cannot = {
        "gateway.access_key": (bool(settings.access_key), "a read node judges nobody's rights"),
        "gateway.tls_certificate": (bool(settings.tls_certificate), "a read node speaks no TLS"),
        "gateway.cold_recheck_ms": (
            not settings.cold_recheck_ms,
            "with 0 the broker is asked about every pull, and a read node asks nobody",
        ),
    }
    for key, (found, why) in cannot.items():
        if found:
            raise Invalid(
                "routes cannot name read nodes",
                key="gateway.namesrv_routes",
                found=f"{NODES}, beside {key}: {why}",
                hint=f"set gateway.namesrv_routes = gateway, or change {key}",
            )
    return OpenBroker(ask)
