"""What a ``MessageStore`` is made of, opened in order and closed by the caller's stack."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.commitcache import CommitCache
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.clock import Clock
from tiered.errors import Invalid
from tiered.metrics import Metrics
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.settings import MIB, Settings
from tiered.store.follower import Follower
from tiered.store.localfold import local_fold

TABLE_CACHE_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything below the facade; the follower is not open yet. ``give_up`` ends waits for the store."""

    provider: Provider
    follower: Follower
    pool: ThreadPoolExecutor
    give_up: threading.Event


def open_parts(
    stack: ExitStack,
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    *,
    name: str | None,
    progress: Callable[[int], None] | None,
    as_of: int | None = None,
    scope: Scope = EVERYTHING,
) -> Parts:
    """Provider, fold and pools; no request is made. ``Invalid`` when no archive is named or its URL makes no sense."""
    if not settings.archive.url:
        raise Invalid(
            "no archive is named", key="archive.url", hint="set archive.url: where the archive lies"
        )
    give_up = threading.Event()
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    opened = open_provider(settings.archive.url, settings.store, clock, observer=metrics, stop=give_up)
    stack.callback(opened.close)
    provider = CommitCache(opened, keys, settings.fetch.commit_cache_bytes)
    fold = PartialStore(scope) if name is None else local_fold(settings, name, stack)
    stack.callback(fold.close)
    looking = ThreadPoolExecutor(1, "follow")
    stack.callback(looking.shutdown, wait=True, cancel_futures=True)
    pool = ThreadPoolExecutor(settings.fetch.threads, "fetch")
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)
    follower = Follower(
        provider,
        keys,
        fold,
        clock,
        every_seconds=settings.fetch.follow_ms / 1000,
        table_cache_bytes=TABLE_CACHE_BYTES,
        pool=looking,
        metrics=metrics,
        progress=progress,
        as_of=as_of,
    )
    return Parts(provider, follower, pool, give_up)


def calm_collector() -> None:
    """For a process that reads, once its store is open: what start-up made (modules, SDK models) is not walked over again.

    Without it the collector takes a sixth of a cold read's CPU. It concerns the whole process, so a process calls it, no store.
    """
    gc.collect()
    gc.freeze()
