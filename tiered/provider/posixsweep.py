"""Unfinished files of writers that died: found by their names; their age shows that nobody is writing them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from tiered.provider.naming import TEMP_PREFIX
from tiered.provider.posixplace import opened_directory

OLD_MS = 24 * 3600 * 1000
"""A put lasts seconds. One whose process was stopped for a day finds its file gone and fails before the object has its name: it
is made again, so that even then nothing is lost."""

SLICE_NAMES = 5000
"""Names looked at between two rests."""


def sweep_files(root: str, now_ms: int) -> Iterator[int]:
    """Remove temporary files below ``root`` that are older than ``OLD_MS`` at ``now_ms``, which is of the clock that gave them
    their times. Yields after every slice how many went; ``OSError``."""
    directories = [root]
    looked = removed = 0
    while directories:
        path = directories.pop()
        with (
            suppress(FileNotFoundError),
            opened_directory(path) as directory,
            os.scandir(directory) as entries,
        ):
            for entry in entries:
                if entry.name.startswith(TEMP_PREFIX):
                    removed += _remove_if_old(entry.name, directory, now_ms)
                elif entry.is_dir(follow_symlinks=False):
                    directories.append(os.path.join(path, entry.name))
                looked += 1
                if looked % SLICE_NAMES == 0:
                    yield removed
                    removed = 0
    yield removed


def _remove_if_old(name: str, directory: int, now_ms: int) -> int:
    try:
        written_ms = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime_ns // 1_000_000
        if now_ms - written_ms < OLD_MS:
            return 0
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:  # its writer lives, and was quicker
        return 0
    return 1
