"""Opening an archive for reading only: no epoch, no lock, no local state. Any number of readers may do it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tiered.archive.keys import ArchiveKeys, split_key
from tiered.archive.log.identity import ArchiveIdentity, read_identity
from tiered.archive.log.reader import LogReader
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.view import ArchiveState
from tiered.errors import NotFound
from tiered.metadata.base import MetadataStore
from tiered.provider.base import Provider

SHOWN = 100
"""Most archives that an error names."""


@dataclass(frozen=True, slots=True)
class ReadArchive:
    """One snapshot of an archive: the fold at the end of its log, and the way to its objects."""

    identity: ArchiveIdentity
    keys: ArchiveKeys
    state: ArchiveState
    objects: ObjectReader
    reader: LogReader
    store: MetadataStore

    def follow(self) -> ReadArchive:
        """The same archive at the end of its log as it is now. One thread at a time; for one opened without an earlier end."""
        self.reader.follow(self.store)
        return replace(self, state=ArchiveState(self.store.snapshot()))


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
    reader = LogReader(provider, keys, identity, last=until)
    if until is not None:
        reader.check_floor(until)
    head = reader.fold(store, progress)
    if until is None and until_ms is not None and head is not None:
        reader = LogReader(provider, keys, identity, last=reader.commit_at(head, until_ms))
        reader.fold(store, progress)
    objects = ObjectReader(provider, keys, identity.archive_id, cache_bytes=cache_bytes)
    return ReadArchive(identity, keys, ArchiveState(store.snapshot()), objects, reader, store)


def find_identity(provider: Provider, keys: ArchiveKeys) -> ArchiveIdentity:
    """The identity of a broker's archive. ``NotFound`` names the archives that are there instead."""
    try:
        return read_identity(provider, keys)
    except NotFound as e:
        found = list_archives(provider, SHOWN + 1)
        raise NotFound(
            "there is no archive of this broker here",
            hint="set source.cluster and source.broker to an archive that exists, or start `tiered run`",
            archive=provider.url,
            expected=f"{keys.cluster}/{keys.broker}",
            found=shown(found),
        ) from e


def list_archives(provider: Provider, limit: int | None = None) -> list[tuple[str, str]]:
    """(cluster, broker) of the archives under a root, the first ``limit`` of them."""
    return list(islice(_archives(provider), limit))


def shown(archives: Sequence[tuple[str, str]]) -> str:
    """Archives as an error names them: some of them, if there are many."""
    names = [f"{cluster}/{broker}" for cluster, broker in archives[:SHOWN]]
    return ", ".join([*names, "…"] if len(archives) > SHOWN else names) or "nothing"


def _archives(provider: Provider) -> Iterator[tuple[str, str]]:
    """Jumps from one to the next, so that big archives cost one request."""
    after: str | None = None
    while True:
        item = next(iter(provider.list("", start_after=after, limit=1)), None)
        if item is None:
            return
        parts = split_key(item.key)
        if parts is None:
            after = item.key
            continue
        cluster, broker, _ = parts
        yield cluster, broker
        after = ArchiveKeys(cluster, broker).root + "\U0010ffff"
