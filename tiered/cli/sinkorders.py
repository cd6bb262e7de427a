"""The orders of an archive's sinks, for verbs that put some: opened without a fold of the archive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.find import find_identity
from tiered.cli.access import archive_settings
from tiered.clock import SystemClock
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.sink.book import SinkBook
from tiered.text.output import Output


@dataclass(frozen=True, slots=True)
class OpenedOrders:
    """``book`` and where it lies."""

    provider: Provider
    keys: ArchiveKeys
    archive_id: bytes
    book: SinkBook


@contextmanager
def opened_orders(
    out: Output, config: Path | None, archive: str | None, sets: list[str] | None
) -> Iterator[OpenedOrders]:
    """The orders of the archive that flags and settings name. ``Invalid``, ``NotFound``, ``Unavailable``."""
    settings = archive_settings(out, config, archive, sets).settings
    provider = encrypted(
        open_provider(settings.archive.url, settings.store, SystemClock()), settings.encryption
    )
    with closing(provider):
        keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
        archive_id = find_identity(provider, keys).archive_id
        yield OpenedOrders(provider, keys, archive_id, SinkBook(provider, keys, archive_id))
