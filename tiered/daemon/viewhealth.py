"""What is told of a key-value view that runs: whether it is ready, its gauges, its status. For both processes that have one."""

from __future__ import annotations

from tiered.metrics import Metrics
from tiered.view.view import KeyValueView

STALE_READY_SECONDS = 30.0


def view_ready(view: KeyValueView) -> tuple[bool, str]:
    """Ready once it was at the end of what it follows, and again and again since; not while a namespace lacks messages."""
    stale, waiting = view.progress.stale_seconds(), view.waiting
    if not view.progress.usable:
        return False, f"the view is being made; waiting for {waiting or 'redo'}"
    broken = view.broken()
    if broken:
        return False, f"{len(broken)} namespaces lack messages: {', '.join(sorted(broken)[:3])}"
    if stale > STALE_READY_SECONDS:
        return False, f"not at the log's end for {stale:.0f} s: {waiting or 'redo is behind'}"
    return True, "applies the log"


def publish_view(view: KeyValueView, metrics: Metrics) -> None:
    """Set the gauges that say how far it is."""
    metrics.kv_stale_seconds.set(view.progress.stale_seconds())
    metrics.kv_lag_bytes.set(view.lag_bytes())
    metrics.kv_broken.set(len(view.broken()))
    metrics.kv_rebuilt.set(view.rebuilt)


def view_status(view: KeyValueView) -> dict[str, object]:
    """How far it is, as ``/status`` shows it."""
    return {
        "waiting": view.waiting,
        "applied": view.progress.physical,
        "lag_bytes": view.lag_bytes(),
        "stale_ms": view.stale_ms(),
        "rebuilt": view.rebuilt,
        "namespaces": len(view.states()),
        "broken": view.broken(),
    }
