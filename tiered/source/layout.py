"""Where a broker's directories are, and where the hold goes, told from settings alone (no I/O)."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tiered.errors import Invalid
from tiered.settings import Hold, Source
from tiered.source.hold import HoldPlace

HOLD_SUFFIX = ".tiered-hold"


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Absolute paths. ``store_dir`` is empty when only commitlog directories are given."""

    store_dir: str
    commitlog_dirs: tuple[str, ...]
    places: tuple[HoldPlace, ...]

    @property
    def broker_directories(self) -> tuple[str, ...]:
        """Directories that are the broker's own."""
        return tuple(d for d in (self.store_dir, *self.commitlog_dirs) if d)


def store_layout(source: Source, hold: Hold) -> StoreLayout:
    """Paths from settings. Links go to ``hold.directory``; without it, beside the store, or beside a commitlog directory
    that is not below the store, since that may be another file system. ``Invalid`` if no broker is named."""
    named = [part.strip() for part in source.commitlog_dirs.split(",") if part.strip()]
    if not source.store_dir and not named:
        raise Invalid(
            "source.store_dir is not set: where the broker keeps its store",
            value=source.store_dir,
            hint="set source.store_dir, or give --store DIR (the broker's storePathRootDir, often ~/store)",
        )
    store = os.path.abspath(os.path.expanduser(source.store_dir)) if source.store_dir else ""
    directories = tuple(os.path.abspath(os.path.expanduser(d)) for d in named)
    directories = directories or (os.path.join(store, "commitlog"),)
    places = tuple(HoldPlace(d, _hold_directory(d, store, hold)) for d in directories)
    return StoreLayout(store, directories, places)


def _hold_directory(commitlog: str, store: str, hold: Hold) -> str:
    if hold.directory:
        return os.path.abspath(os.path.expanduser(hold.directory))
    inside = bool(store) and commitlog.startswith(store.rstrip("/") + "/")
    return (store if inside else commitlog) + HOLD_SUFFIX
