"""The copy of the fold that a reader process which stays keeps on its disk: memory does not grow with the archive."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tiered.archive.state.cached import open_fold
from tiered.metadata.base import MetadataStore
from tiered.metadata.memory import MemoryStore
from tiered.settings import Settings

log = logging.getLogger("tiered.store")

PREFIX = "tiered-fold-"
_OWNER = "owner"


def local_fold(settings: Settings, name: str, stack: ExitStack) -> MetadataStore:
    """Where the fold of the reader ``name`` lives; the caller closes it, ``stack`` (afterwards) removes what is not kept.

    In ``fetch.fold_directory``, and kept; without one in a temporary directory for as long as the process runs. ``Unavailable``
    if another process has the directory, ``Corrupt``, ``Invalid``.
    """
    if settings.fetch.fold_directory:
        return _opened(Path(settings.fetch.fold_directory) / name, settings)
    return temporary_fold(settings, name, stack)


def temporary_fold(settings: Settings, name: str, stack: ExitStack) -> MetadataStore:
    """``local_fold`` in a temporary directory, or in memory where none can be made; the caller closes it."""
    try:
        directory = _temporary(name, stack)
    except OSError as error:
        log.warning(
            "no temporary directory can be made: the copy of the archive's log is kept in memory; set fetch.fold_directory",
            extra={"error": error.strerror, "directory": tempfile.gettempdir()},
        )
        return MemoryStore()
    return _opened(directory, settings)


def _opened(directory: Path, settings: Settings) -> MetadataStore:
    return open_fold("rocksdb", directory, settings.state.cache_bytes)


def _temporary(name: str, stack: ExitStack) -> Path:
    """A directory that is removed with ``stack``; those that killed processes left are removed now."""
    for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        _remove_left(old)
    directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-"))
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    owner = stack.enter_context((directory / _OWNER).open("wb"))
    fcntl.flock(owner, fcntl.LOCK_EX)
    return directory


def _remove_left(directory: Path) -> None:
    """Unless it is another user's, or its process lives: the kernel lets go of a lock with the process."""
    try:
        if directory.stat().st_uid != os.getuid():
            return
        with open(directory / _OWNER, "rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    shutil.rmtree(directory, ignore_errors=True)
