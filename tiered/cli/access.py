"""Opening an archive for a verb that reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tiered.archive.care.opening import put_checkpoint, put_opening
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.cli.options import settings_from
from tiered.clock import SystemClock
from tiered.daemon.config import Loaded, where_to_set
from tiered.errors import Corrupt, Invalid, NotFound, Unavailable
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metadata.base import MetadataStore
from tiered.metadata.memory import MemoryStore
from tiered.model import Past
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.settings import Settings
from tiered.text.output import Output

if TYPE_CHECKING:
    from tiered.store import MessageStore


@dataclass(frozen=True, slots=True)
class OpenedArchive:
    """An archive opened for one verb."""

    loaded: Loaded
    view: View
    reader: ArchiveReader
    topics: TopicPolicy


@contextlib.contextmanager
def reading(
    out: Output,
    config: Path | None,
    archive: str | None,
    sets: list[str] | None,
    *,
    store: str | None = None,
    as_of: Past | None = None,
    whole: bool = False,
    scope: Scope = EVERYTHING,
    pieces: bool = False,
) -> Iterator[OpenedArchive]:
    """The archive that the settings name, closed after the block. What it is asked for is loaded; ``whole``: all, at once.

    ``scope``: the queues that will be asked for, so that no others are folded. All of very many with commits behind their
    checkpoint are folded on a disk, unless who asks will take them ``in_pieces``.
    """
    loaded, settings = _settings(out, config, archive, sets, store)
    provider = store_of(settings)
    past = Past() if as_of is None else as_of
    with contextlib.ExitStack() as stack:
        stack.callback(provider.close)
        keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
        with _folding(out) as advance:

            def opened(store: MetadataStore) -> ArchiveReader:
                made = ArchiveReader(
                    provider,
                    keys,
                    store,
                    table_cache_bytes=settings.fetch.table_cache_bytes,
                    progress=advance,
                )
                made.at(past.commit, time_ms=past.time_ms)
                return made

            if whole:
                reader = opened(MemoryStore())
            else:
                partial = PartialStore(Scope({}) if pieces or scope.everything else scope)
                reader = opened(partial)
                if scope.everything and not pieces and partial.scattered:
                    reader = opened(_on_disk(settings, stack))
        policy = TopicPolicy(cluster=settings.source.cluster, broker=settings.source.broker)
        yield OpenedArchive(loaded, reader.view, reader, policy)


def store_of(settings: Settings, sharing: int = 1) -> Provider:
    """The store that the settings name, decrypting what is encrypted. ``sharing``: processes that have its rates together."""
    store = settings.store
    rates = {name: getattr(store, name) for name in ("max_bytes_per_second", "max_requests_per_second")}
    store = replace(store, **{name: -(-rate // sharing) for name, rate in rates.items()})
    return encrypted(open_provider(settings.archive.url, store, SystemClock()), settings.encryption)


def put_again(out: Output, settings: Settings, copy: str | None, *, apply: bool = True) -> list[str]:
    """Put again what the archive is opened with (``put_opening``), from the copy that is named, and say so. One that only a
    setting names is done without where it is not there or does not answer."""
    url = copy or settings.scrub.copy_url
    if not url:
        return []
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    with contextlib.ExitStack() as stack:  # as they are stored: nothing of this is encrypted
        here, there = (
            stack.enter_context(contextlib.closing(open_provider(each, settings.store, SystemClock())))
            for each in (settings.archive.url, url)
        )
        try:
            put = put_opening(here, keys, there, apply=apply)
            if apply or not put:
                plain, theirs = (encrypted(each, settings.encryption) for each in (here, there))
                put += put_checkpoint(plain, keys, theirs, apply=apply)
        except (Corrupt, NotFound, Unavailable) as error:
            if copy is not None:
                raise
            out.note(f"scrub.copy_url is not looked at: {error}")
            return []
    for key in put:
        out.note(f"{'put again' if apply else 'would be put again'} from the copy: {key}")
    return put


@contextlib.contextmanager
def messages(
    out: Output,
    config: Path | None,
    archive: str | None,
    sets: list[str] | None,
    *,
    as_of: Past | None = None,
    scope: Scope = EVERYTHING,
) -> Iterator[MessageStore]:
    """The messages of the archive that the settings name, as every reader gets them; closed after the block.

    ``scope``: the queues that will be asked for, so that no others are folded.
    """
    from tiered.metrics import Metrics  # these two bring Prometheus and the readers, which few verbs need
    from tiered.store import MessageStore

    _, settings = _settings(out, config, archive, sets, None)
    with contextlib.ExitStack() as stack:
        with _folding(out) as advance:
            opened = MessageStore.open(
                settings, SystemClock(), Metrics(), stack=stack, progress=advance, as_of=as_of, scope=scope
            )
        yield opened


def _settings(
    out: Output, config: Path | None, archive: str | None, sets: list[str] | None, store: str | None
) -> tuple[Loaded, Settings]:
    loaded = settings_from(config, store, archive, sets, out=out)
    if not loaded.settings.archive.url:
        raise Invalid("no archive is named", key="archive.url", hint=where_to_set("archive.url", loaded))
    return loaded, loaded.settings


def archive_settings(
    out: Output, config: Path | None, archive: str | None, sets: list[str] | None, store: str | None = None
) -> Loaded:
    """Settings that name an archive."""
    return _settings(out, config, archive, sets, store)[0]


def _on_disk(settings: Settings, stack: contextlib.ExitStack) -> MetadataStore:
    """Where a fold of everything does not take memory; removed after the block."""
    from tiered.store.localfold import temporary_fold  # the engine takes its time to come

    made = temporary_fold(settings, "verb", stack)
    stack.callback(made.close)
    return made


def _folding(out: Output) -> contextlib.AbstractContextManager[Callable[[int], None]]:
    return out.progress("reading the log", 0)
