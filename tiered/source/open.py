"""Finding the broker's store: every wrong path gets its own sentence."""

from __future__ import annotations

import os
from pathlib import Path

from tiered.clock import Clock
from tiered.errors import Invalid, NotFound, Refused
from tiered.settings import Hold, Source
from tiered.source.files import base_of
from tiered.source.hold import DiskUsage, LetGo, check_places, disk_percent
from tiered.source.layout import StoreLayout, store_layout
from tiered.source.limit import AskBroker
from tiered.source.local import LocalCommitLog

IDENTITY_FILE = "brokerIdentity"
"""In the broker's store: cluster, name and id, with ``#`` between."""
MOST_IDENTITY_BYTES = 1024


def open_source(
    source: Source,
    hold: Hold,
    clock: Clock,
    *,
    on_let_go: LetGo | None = None,
    disk_usage: DiskUsage = disk_percent,
    ask_broker: AskBroker = lambda: None,
) -> LocalCommitLog:
    """The commitlog that the settings name, checked. An empty store is fine: it is waited for.

    Errors: ``Refused`` (DLedger store, hold inside the store), ``NotFound`` (no store there), ``Invalid``
    (not set, not a directory, not readable, of a broker of another name).
    """
    layout = store_layout(source, hold)
    check_layout(layout)
    check_names(source)
    check_places(layout.places, layout.broker_directories)
    return LocalCommitLog(
        source, hold, clock, on_let_go=on_let_go, disk_usage=disk_usage, ask_broker=ask_broker
    )


def check_layout(layout: StoreLayout) -> None:
    """Raise what ``open_source`` says unless a readable plain commitlog is there."""
    if layout.store_dir:
        names = _names(layout.store_dir, "source.store_dir")
        dledger = sorted(name for name in names if name.startswith("dledger-"))
        if dledger:
            raise Refused(
                "the broker's store is a DLedger store: DLedger commitlogs wrap each record in an entry and may cut "
                "uncommitted ones; reading them is not supported yet",
                path=layout.store_dir,
                found=dledger[0],
                hint="run beside a broker without enableDLegerCommitLog, or move the leftover directory away",
            )
        _check_commitlog_named(layout, names)
    for directory in layout.commitlog_dirs:
        for name in _names(directory, "source.commitlog_dirs"):
            _check_readable(directory, name)


def check_names(source: Source) -> None:
    """``Invalid`` where the broker's own ``brokerIdentity`` (under a controller it has one) names another broker or cluster."""
    if not source.store_dir:
        return
    path = Path(source.store_dir) / IDENTITY_FILE
    try:
        with path.open("rb") as file:
            parts = file.read(MOST_IDENTITY_BYTES).decode("utf-8", "replace").strip().split("#")
    except OSError:  # most brokers have none
        return
    if len(parts) == 3 and tuple(parts[:2]) != (source.cluster, source.broker):
        raise Invalid(
            "this store is of a broker of another name: under this one everything would be archived again",
            key="source.broker",
            path=path,
            expected=f"{parts[0]}/{parts[1]}",
            found=f"{source.cluster}/{source.broker}",
            hint=f"set source.cluster to {parts[0]} and source.broker to {parts[1]}",
        )


def _check_commitlog_named(layout: StoreLayout, names: list[str]) -> None:
    if layout.commitlog_dirs != (str(Path(layout.store_dir) / "commitlog"),) or "commitlog" in names:
        return
    if any(base_of(name) is not None for name in names):
        raise NotFound(
            "source.store_dir names a commitlog directory, not the store around it",
            path=layout.store_dir,
            hint=f"set source.store_dir to {Path(layout.store_dir).parent}",
        )
    raise NotFound(
        "there is no commitlog in the store directory",
        path=layout.store_dir,
        expected="a directory named commitlog",
        found=", ".join(sorted(names)[:5]) or "nothing",
        hint="set source.store_dir to the broker's storePathRootDir, or source.commitlog_dirs to its storePathCommitLog",
    )


def _names(directory: str, key: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError as error:
        raise NotFound(
            "the broker's directory does not exist",
            key=key,
            path=directory,
            hint=f"set {key} to where the broker keeps its store, and start the broker once",
        ) from error
    except NotADirectoryError as error:
        raise Invalid(
            "the broker's store is a file, not a directory",
            key=key,
            path=directory,
            hint=f"set {key} to the broker's storePathRootDir",
        ) from error
    except OSError as error:
        raise _unreadable(directory, error) from error


def _check_readable(directory: str, name: str) -> None:
    path = os.path.join(directory, name)
    if base_of(name) is None:
        return
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> Invalid:
    return Invalid(
        "the broker's store cannot be read",
        path=path,
        found=error.strerror,
        hint="run the daemon as the broker's user, or give its group read access",
    )
