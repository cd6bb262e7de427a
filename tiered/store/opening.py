"""What a ``MessageStore`` is made of, opened in order and closed by the caller's stack."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.commitcache import WHOLE_BYTES, CommitCache
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.scope import Scope
from tiered.clock import Clock
from tiered.errors import Invalid
from tiered.metrics import Metrics
from tiered.model import Past
from tiered.provider.open import open_provider
from tiered.settings import Settings
from tiered.store.follower import Follower
from tiered.store.localfold import local_fold


def open_follower(
    stack: ExitStack,
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    *,
    give_up: threading.Event,
    name: str | None,
    progress: Callable[[int], None] | None,
    as_of: Past | None,
    scope: Scope,
) -> Follower:
    """Provider, fold, and a follower that is not open yet; no request is made. ``give_up`` ends waits for the store.

    ``Invalid`` when no archive is named or its URL makes no sense.
    """
    if not settings.archive.url:
        raise Invalid(
            "no archive is named", key="archive.url", hint="set archive.url to where the archive is"
        )
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    opened = open_provider(settings.archive.url, settings.store, clock, observer=metrics, stop=give_up)
    stack.callback(opened.close)
    provider = CommitCache(encrypted(opened, settings.encryption), keys, settings.fetch.commit_cache_bytes)
    copy = None if name is None else local_fold(settings, name, stack)
    if copy is not None:
        stack.callback(copy.close)
    looking = ThreadPoolExecutor(1, "follow")
    stack.callback(looking.shutdown, wait=True, cancel_futures=True)
    reader = ArchiveReader(
        provider,
        keys,
        PartialStore(scope if copy is None else Scope({})),
        table_cache_bytes=settings.fetch.table_cache_bytes,
        whole_bytes=WHOLE_BYTES,
        progress=progress,
        copy=copy,
    )
    return Follower(
        reader,
        clock,
        every_seconds=settings.fetch.follow_ms / 1000,
        pool=looking,
        metrics=metrics,
        as_of=as_of,
    )
