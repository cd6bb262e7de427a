"""What one worker of a gateway has of the budgets: its part, so that all of them together have what the settings say."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from tiered.errors import Invalid
from tiered.filter.tenants import TenantRules
from tiered.settings import Settings, SettingsSection

DIVIDED: Mapping[str, tuple[str, ...]] = {
    "fetch": (
        "budget_bytes",
        "positions",
        "commit_cache_bytes",
        "table_cache_bytes",
        "compact_bytes",
        "threads",
        "disk_bytes",
    ),
    "state": ("cache_bytes",),
    "gateway": ("answer_bytes", "max_connections"),
    "tenants": ("bytes_per_second", "requests_per_second"),
}
"""By section: budgets of a whole gateway. Limits of one peer, frame, answer or time are the same in each worker."""


def share_of(settings: Settings, index: int) -> Settings:
    """The settings of worker ``index`` (from 0) of ``gateway.workers``. ``Invalid`` where a part is below what works.

    Each has a directory of its own in those of the disk tier and of the fold. The first one serves the archive's pages.
    """
    workers = settings.gateway.workers
    parts: dict[str, Any] = {}
    for section, names in DIVIDED.items():
        whole = getattr(settings, section)
        parts[section] = replace(whole, **{name: _part(section, whole, name, workers) for name in names})
    fetch = parts["fetch"]
    parts["fetch"] = replace(
        fetch,
        disk_directory=_own(fetch.disk_directory, index),
        fold_directory=_own(fetch.fold_directory, index),
    )
    if index:
        parts["gateway"] = replace(parts["gateway"], http_listen="")
    return replace(settings, **parts)


def check_workers(settings: Settings) -> None:
    """``Invalid`` if this machine, or the budgets, do not allow so many workers."""
    workers = settings.gateway.workers
    if workers == 1:
        return
    if not hasattr(socket, "SO_REUSEPORT"):
        raise Invalid(
            "several workers need ports that processes can share (SO_REUSEPORT), which this platform has not",
            key="gateway.workers", found=workers, hint="set gateway.workers to 1",
        )  # fmt: skip
    if settings.tenants.limits:
        TenantRules(settings.tenants)  # what makes no sense is said first
        raise Invalid(
            "limits of single tenants cannot be divided among workers",
            key="tenants.limits", found=f"gateway.workers={workers}",
            hint="set gateway.workers to 1, or leave tenants.limits to read nodes",
        )  # fmt: skip
    share_of(settings, 0)


def _part(section: str, whole: SettingsSection, name: str, workers: int) -> int:
    """A worker's part of one budget: rounded down, never 0 where 0 would mean *no bound*."""
    value: int = getattr(whole, name)
    low = int(next(f.metadata["low"] for f in fields(whole) if f.name == name))  # type: ignore[arg-type]
    part = value // workers if value else 0
    if part < (max(low, 1) if value else low):
        raise Invalid(
            f"{section}.{name} is too small for so many workers",
            key=f"{section}.{name}",
            found=f"{value} for gateway.workers={workers}",
            expected=f"at least {workers * max(low, 1)}",
            hint=f"raise {section}.{name}, or lower gateway.workers",
        )
    return part


def _own(directory: str, index: int) -> str:
    return str(Path(directory) / f"worker-{index}") if directory else ""
