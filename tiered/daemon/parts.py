"""Everything that lives as long as the process, made in order up to the end of the log."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.identity import ArchiveIdentity, ensure_identity, read_identity
from tiered.archive.log.localfiles import (
    check_known_archive,
    empty_distrusted,
    has_known_archive,
    load_writer_id,
    record_known_archive,
)
from tiered.archive.log.readback import HasAll
from tiered.archive.log.reader import LogReader
from tiered.archive.log.resending import ResendEvents, Resending
from tiered.archive.log.writer import CommitLog
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.cached import open_fold
from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.daemon.outages import PROBE, Outages, Watched
from tiered.daemon.probed import expect_as_probed, probe_once
from tiered.errors import Invalid, NotFound, Refused, Unavailable
from tiered.metadata.base import MetadataStore
from tiered.metrics import Metrics
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.provider.resolve import create_root
from tiered.settings import Settings

log = logging.getLogger("tiered.daemon")

SHADOW_CACHE_PART = 4
"""The second fold, used for checkpoints alone, caches this part of ``state.cache_bytes`` on top of it."""

RECENT_QUEUE_BYTES = 128
"""A queue's key and record, and their places, in memory."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What the command line adds to the settings. ``progress`` hears, of ``once``, how many percent are archived."""

    once: bool = False
    take_over: bool = False
    progress: Callable[[int], None] = lambda percent: None


@dataclass(frozen=True, slots=True)
class Parts:
    """The opened sides of the archive: store, fold, log."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    provider: Provider
    store: MetadataStore
    shadow: MetadataStore
    log: CommitLog
    objects: ObjectReader
    give_up: threading.Event
    weak: tuple[str, ...]


def open_parts(
    stack: ExitStack,
    settings: Settings,
    clock: Clock,
    events: ResendEvents,
    metrics: Metrics,
    state: Path,
    give_up: threading.Event,
    outages: Outages,
    *,
    create: bool = True,
    has_all: HasAll = lambda end, seen: False,
    first: Callable[[Provider, ArchiveKeys], None] = lambda provider, keys: None,
) -> Parts:
    """Open store, fold and log; nothing is written to the archive but its identity and the probe's objects.

    ``create``: make the archive if it is not there; else ``NotFound``. ``has_all``: whether what the bucket lacks can be
    archived again. ``first``: what has to hold before an archive is made; it raises what speaks against it.
    """
    watched: list[Watched] = []

    def watch(driver: Provider) -> Provider:
        watched.append(Watched(driver, outages, clock, give_up))
        return watched[0]

    opened = open_provider(
        settings.archive.url, settings.store, clock, observer=metrics, stop=give_up, each_try=watch
    )
    stack.callback(opened.close)
    provider = encrypted(opened, settings.encryption)
    if provider.capabilities.locker is not None:
        provider.capabilities.locker.check_lock()
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    name = known_name(provider, keys.root)
    known = has_known_archive(state, name)
    expect_as_probed(provider, settings, state)
    with _worked_before(known):
        found = _found_identity(provider, keys, state)
        if found is None and not create:
            raise NotFound(
                "there is no archive here yet", key=keys.identity, url=provider.url,
                hint="check archive.url, source.cluster and source.broker; tiered run makes the archive",
            )  # fmt: skip
        if found is None:
            create_root(provider)
            first(provider, keys)
        if provider.capabilities.encryptor is not None:
            provider.capabilities.encryptor.check(keys.root)
        weak = probe_once(provider, settings, clock, metrics, state, keys.root)
        outages.over(PROBE)  # it makes writes fail on purpose
        identity = found or ensure_identity(provider, keys, clock.now_ms(), os.urandom)
    watched[0].worked = True
    record_known_archive(state, name, identity.archive_id)
    store = open_fold(settings.state.metadata, state / "metadata", settings.state.cache_bytes)
    stack.callback(store.close)
    shadow = _open_shadow(settings, state)
    stack.callback(shadow.close)
    if empty_distrusted(state, store.clear):
        store.cleared = "it was not the fold of the log"
        log.warning("the local fold was not the fold of the log: folding the log anew")
    commit_log = CommitLog(
        LogReader(provider, keys, identity, clock),
        store,
        Resending(clock, Backoff(settings.archive.resend_wait_ms / 1000), give_up, events),
        writer_id=load_writer_id(state, os.urandom),
        random_bytes=os.urandom,
        recent_queues=_recent_queues(settings),
    )
    if commit_log.read_back.forget_lost_end(store, has_all):
        shadow.clear()
    head = commit_log.follow()
    commit_log.read_back.look_for_holes(head)
    log.info("archive opened", extra={"archive": provider.url, "head": head.seq if head else None})
    objects = ObjectReader(provider, keys, identity.archive_id, cache_bytes=settings.writer_table_cache_bytes)
    return Parts(settings, clock, metrics, provider, store, shadow, commit_log, objects, give_up, weak)


@contextmanager
def _worked_before(known: bool) -> Iterator[None]:
    """A store that refuses what it allowed to this state directory before: rights and keys come back, so it is waited for as
    if it did not answer. At the first start the settings are wrong."""
    try:
        yield
    except Refused:
        raise
    except Invalid as error:
        if not known:
            raise
        raise Unavailable(
            f"{error.message}, as it did not before", hint=error.hint, **error.fields
        ) from error


def _recent_queues(settings: Settings) -> int:
    """So many that they take about as much again as the metadata store's own caches, once there are as many queues."""
    return settings.state.cache_bytes // (2 * RECENT_QUEUE_BYTES)


def _open_shadow(settings: Settings, state: Path) -> MetadataStore:
    """Where the bucket is folded once more for checkpoints; small archives are folded in memory. Damaged, it is made anew."""
    kind = "rocksdb" if settings.state.metadata == "rocksdb" else "memory"
    cache_bytes = settings.state.cache_bytes // SHADOW_CACHE_PART
    return open_fold(kind, state / "shadow", cache_bytes, seldom_read=True)


def known_name(provider: Provider, root: str) -> str:
    """What the state directory calls an archive that it has opened."""
    return f"{provider.url} {root}".replace(" ", "%20")


def _found_identity(provider: Provider, keys: ArchiveKeys, state: Path) -> ArchiveIdentity | None:
    """The archive's identity, ``None`` if it is to be made; ``Refused`` if this state directory has seen another one here."""
    name = known_name(provider, keys.root)
    try:
        identity = read_identity(provider, keys)
    except NotFound:
        check_known_archive(state, name, None)
        return None
    check_known_archive(state, name, identity.archive_id)
    return identity
