"""Opening a fold that is kept on a disk, or looking into one that another process has open."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from tiered.archive.state.keys import QUEUE
from tiered.archive.state.layout import FOLD_VERSION
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.metadata.open import open_metadata
from tiered.metadata.peek import peek


def open_fold(
    kind: str, directory: str | Path, cache_bytes: int, *, seldom_read: bool = False
) -> MetadataStore:
    """The cached fold of ``kind`` (see ``open_metadata``) in ``directory``; empty if it was of another fold version, or
    damaged. Queues are looked up one by one, ten thousand for a commit."""
    return open_metadata(
        kind,
        directory,
        cache_bytes,
        stamp=str(FOLD_VERSION),
        points=QUEUE,
        anew=True,
        seldom_read=seldom_read,
    )


def peek_fold(kind: str, directory: str | Path) -> AbstractContextManager[MetadataView]:
    """The cached fold in ``directory`` as it is now, also while a daemon works on it; see ``peek``."""
    return peek(kind, directory, stamp=str(FOLD_VERSION), points=QUEUE)
