"""Which archives there are under a root, and the identity of a broker's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from tiered.archive.keys import KEYVALUE_PREFIX, LEASE_PREFIX, ArchiveKeys, KeyValueKey, LeaseKey, split_key
from tiered.archive.log.identity import ArchiveIdentity, kept_identity
from tiered.errors import NotFound
from tiered.provider.base import Provider

SHOWN = 100
"""Most archives that an error names."""


def find_identity(provider: Provider, keys: ArchiveKeys) -> ArchiveIdentity:
    """The identity of a broker's archive. ``NotFound`` names those that are there instead; ``Corrupt`` if it is lost."""
    identity = kept_identity(provider, keys)
    if identity is not None:
        return identity
    found = list_archives(provider, SHOWN + 1)
    raise NotFound(
        "there is no archive of this broker here",
        hint="set source.cluster and source.broker to an archive that exists, or start `tiered run`",
        archive=provider.url,
        expected=f"{keys.cluster}/{keys.broker}",
        found=shown_archives(found),
    )


def list_archives(provider: Provider, limit: int | None = None) -> list[tuple[str, str]]:
    """(cluster, broker) of the archives under a root, the first ``limit`` of them."""
    return list(islice(_archives(provider), limit))


def shown_archives(archives: Sequence[tuple[str, str]]) -> str:
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
        cluster, broker, found = parts
        if isinstance(
            found, KeyValueKey | LeaseKey
        ):  # a view needs no archive, and a read node may wait for one
            prefix = KEYVALUE_PREFIX if isinstance(found, KeyValueKey) else LEASE_PREFIX
            after = ArchiveKeys(cluster, broker).key(prefix) + "\U0010ffff"
            continue
        yield cluster, broker
        after = ArchiveKeys(cluster, broker).root + "\U0010ffff"
