"""Every number of the program, in frozen sections: unit, default, bound and the trade-off it moves.

This is the single declaration: ``config/tiered.toml`` is generated from it (``tiered config default``), and
the loader (``daemon/config.py``) reads types, bounds, units and secrecy from it. A component receives its own
section and nothing else. A section that exists is valid: making one checks the type and bound of every value
and raises ``Invalid`` naming the key. Checks across sections, and the environment, belong to the loader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tiered.settings.keeping import Encryption, Gc, Retain, Scrub, Seal, Sinks, Tables
from tiered.settings.option import GIB, KIB, MIB, ONE_DAY_MS, STARS, SettingsSection, check_value, shown
from tiered.settings.reading import ConsumeQueue, Fetch, Gateway, Kv, Replay
from tiered.settings.serving import Serve
from tiered.settings.sharing import Tenants
from tiered.settings.writing import (
    Archive,
    Dispatch,
    Hold,
    Log,
    Maintenance,
    Source,
    State,
    Store,
    Watchdog,
    Web,
)

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "ONE_DAY_MS",
    "STARS",
    "Archive",
    "ConsumeQueue",
    "Dispatch",
    "Encryption",
    "Fetch",
    "Gateway",
    "Gc",
    "Hold",
    "Kv",
    "Log",
    "Maintenance",
    "Replay",
    "Retain",
    "Scrub",
    "Seal",
    "Serve",
    "Settings",
    "SettingsSection",
    "Sinks",
    "Source",
    "State",
    "Store",
    "Tables",
    "Tenants",
    "Watchdog",
    "Web",
    "check_value",
    "shown",
]


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections."""

    source: Source = field(default_factory=Source)
    hold: Hold = field(default_factory=Hold)
    dispatch: Dispatch = field(default_factory=Dispatch)
    archive: Archive = field(default_factory=Archive)
    store: Store = field(default_factory=Store)
    state: State = field(default_factory=State)
    consumequeue: ConsumeQueue = field(default_factory=ConsumeQueue)
    web: Web = field(default_factory=Web)
    log: Log = field(default_factory=Log)
    watchdog: Watchdog = field(default_factory=Watchdog)
    maintenance: Maintenance = field(default_factory=Maintenance)
    fetch: Fetch = field(default_factory=Fetch)
    gateway: Gateway = field(default_factory=Gateway)
    serve: Serve = field(default_factory=Serve)
    tenants: Tenants = field(default_factory=Tenants)
    replay: Replay = field(default_factory=Replay)
    seal: Seal = field(default_factory=Seal)
    retain: Retain = field(default_factory=Retain)
    gc: Gc = field(default_factory=Gc)
    encryption: Encryption = field(default_factory=Encryption)
    scrub: Scrub = field(default_factory=Scrub)
    tables: Tables = field(default_factory=Tables)
    sinks: Sinks = field(default_factory=Sinks)
    kv: Kv = field(default_factory=Kv)

    @property
    def commitlog_directories(self) -> tuple[str, ...]:
        """``source.commitlog_dirs``, else ``<store_dir>/commitlog``; empty if neither is set."""
        named = tuple(
            part.strip().rstrip("/") for part in self.source.commitlog_dirs.split(",") if part.strip()
        )
        return named or ((self._store_root + "/commitlog",) if self._store_root else ())

    @property
    def hold_directory(self) -> str:
        """``hold.directory``, else ``<store_dir>.tiered-hold``; empty if no broker directory is set."""
        return self.hold.directory or self._beside(".tiered-hold")

    @property
    def state_directory(self) -> str:
        """``state.directory``, else ``<store_dir>.tiered``; empty if no broker directory is set."""
        return self.state.directory or self._beside(".tiered")

    @property
    def writer_table_cache_bytes(self) -> int:
        """The archiver's part of ``fetch.table_cache_bytes``: it reads objects only to compare, and to rewind."""
        return self.fetch.table_cache_bytes // 2

    @property
    def repair_table_cache_bytes(self) -> int:
        """The part that ``tiered repair`` takes of ``fetch.table_cache_bytes``: it meets each object once."""
        return self.fetch.table_cache_bytes // 8

    @property
    def _store_root(self) -> str:
        return self.source.store_dir.rstrip("/")

    def _beside(self, suffix: str) -> str:
        base = self._store_root or next(iter(self.commitlog_directories), "")
        return base + suffix if base else ""
