"""The registry of read nodes that the settings name: leases in the archive's bucket."""

from __future__ import annotations

from dataclasses import replace

from tiered.archive.keys import ArchiveKeys
from tiered.clock import Clock
from tiered.errors import Invalid
from tiered.membership.base import Membership
from tiered.membership.bucket import BucketMembership
from tiered.provider.open import open_provider
from tiered.provider.wrap import RequestObserver
from tiered.settings import Settings


def open_membership(
    settings: Settings, clock: Clock, *, look_seconds: float, observer: RequestObserver | None = None
) -> Membership:
    """The driver, without a request. ``look_seconds``: how often it will be looked at. ``Invalid`` for settings."""
    if not settings.archive.url:
        raise Invalid(
            "leases need an archive", key="archive.url", hint="set archive.url to where the archive is"
        )
    # Who renews and who looks tries again. Leases live for seconds: no lock keeps them, and no class bills them for a month.
    store = replace(settings.store, attempts=1, object_lock_ms=0, storage_class="")
    provider = open_provider(settings.archive.url, store, clock, observer=observer)
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    return BucketMembership(provider, keys, clock, look_seconds)
