"""What a setting names becomes a driver, imported when it is named."""

from __future__ import annotations

import threading
from dataclasses import replace

from tiered.archive.keys import ArchiveKeys
from tiered.clock import Clock
from tiered.errors import Invalid
from tiered.membership.base import Membership
from tiered.membership.bucket import BucketMembership
from tiered.membership.registry import ETCD, KUBERNETES, parse_membership
from tiered.provider.open import open_provider
from tiered.provider.wrap import RequestObserver
from tiered.settings import Settings


def open_membership(
    text: str,
    settings: Settings,
    clock: Clock,
    *,
    key: str,
    look_seconds: float,
    observer: RequestObserver | None = None,
    stop: threading.Event | None = None,
) -> Membership | None:
    """The driver, without a request; ``None`` where the setting is empty. ``look_seconds``: how often it will be looked at;
    ``stop`` ends waits for a store. ``Invalid`` for settings."""
    found = parse_membership(text, key=key)
    if found is None:
        return None
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    if found.kind == ETCD:
        from tiered.membership.etcd import EtcdMembership
        from tiered.membership.etcdclient import etcd_access

        return EtcdMembership(found.servers, found.place, keys, etcd_access(settings.etcd, tls=found.tls))
    if found.kind == KUBERNETES:
        from tiered.membership.kubernetes import KubernetesMembership

        return KubernetesMembership(found.place, keys, clock, look_seconds)
    if not settings.archive.url:
        raise Invalid(
            "leases need an archive", key="archive.url", hint="set archive.url to where the archive is"
        )
    # Who renews and who looks tries again. Leases live for seconds: no lock keeps them, and no class bills them for a month.
    store = replace(settings.store, attempts=1, object_lock_ms=0, storage_class="")
    provider = open_provider(settings.archive.url, store, clock, observer=observer, stop=stop)
    return BucketMembership(provider, keys, clock, look_seconds)
