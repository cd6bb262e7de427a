"""Opening an archive for reading only: no epoch, no lock, no local state. Any number of readers may do it at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.identity import ArchiveIdentity, read_identity
from tiered.archive.keys import ArchiveKeys, split_key
from tiered.archive.objects import ObjectReader
from tiered.archive.reader import LogReader
from tiered.archive.state import ArchiveState
from tiered.errors import NotFound
from tiered.metadata.base import MetadataStore
from tiered.provider.base import Provider


@dataclass(frozen=True, slots=True)
class ReadArchive:
    """One snapshot of an archive: the fold at the end of its log, and the way to its objects."""

    identity: ArchiveIdentity
    keys: ArchiveKeys
    state: ArchiveState
    objects: ObjectReader
    reader: LogReader


def open_archive(
    provider: Provider,
    keys: ArchiveKeys,
    store: MetadataStore,
    *,
    cache_bytes: int,
    progress: Callable[[int], None] | None = None,
    until: int | None = None,
    until_ms: int | None = None,
) -> ReadArchive:
    """Fold the log into ``store`` and return the snapshot. ``NotFound`` names the archives that are there instead.

    ``until`` (a commit) or ``until_ms`` (a time of the store): the state as it was then; ``NotFound`` names what is valid.
    """
    identity = find_identity(provider, keys)
    reader = LogReader(provider, keys, identity)
    if until is None:
        head = reader.fold(store, progress)
        if until_ms is not None and head is not None:
            until = reader.commit_at(head, until_ms)
    if until is not None:
        reader.fold_until(store, until)
    objects = ObjectReader(provider, keys, identity.archive_id, cache_bytes=cache_bytes)
    return ReadArchive(identity, keys, ArchiveState(store), objects, reader)


def find_identity(provider: Provider, keys: ArchiveKeys) -> ArchiveIdentity:
    """The identity of a broker's archive. ``NotFound`` names the archives that are there instead."""
    try:
        return read_identity(provider, keys)
    except NotFound as e:
        found = list_archives(provider)
        raise NotFound(
            "no archive of this broker here",
            hint="set source.cluster and source.broker to one that is there, or start `tiered run`",
            archive=provider.url,
            expected=f"{keys.cluster}/{keys.broker}",
            found=", ".join(f"{c}/{b}" for c, b in found) or "nothing",
        ) from e


def list_archives(provider: Provider, limit: int = 100) -> list[tuple[str, str]]:
    """(cluster, broker) of the archives under a root: jumps from one to the next, so that big archives cost one request."""
    found: list[tuple[str, str]] = []
    after: str | None = None
    while len(found) < limit:
        item = next(iter(provider.list("", start_after=after, limit=1)), None)
        if item is None:
            return found
        parts = split_key(item.key)
        if parts is None:
            after = item.key
            continue
        cluster, broker, _ = parts
        found.append((cluster, broker))
        after = ArchiveKeys(cluster, broker).root + "\U0010ffff"
    return found
