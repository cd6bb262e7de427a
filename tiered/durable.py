"""What the process keeps on its own disk survives a power cut: contents and names are synced here, and nowhere else by hand.

A file's ``fsync`` makes its bytes last, not its name: that lasts once its directory is synced, and so on upwards.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress


def sync(path: str | os.PathLike[str]) -> None:
    """Make a file's bytes, or a directory's names, last. ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str | os.PathLike[str], mode: int = 0o777) -> None:
    """Make a directory and its missing parents, each name synced. One that exists costs a look. ``OSError``."""
    missing, at = [], os.path.abspath(path)
    while not os.path.isdir(at):
        missing.append(at)
        at = os.path.dirname(at)
    if not missing:
        return
    os.makedirs(path, mode=mode, exist_ok=True)
    for made in missing:
        sync(os.path.dirname(made))


def replace(path: str | os.PathLike[str], data: bytes) -> None:
    """Give the file at ``path`` this content, at once or not at all: written beside it as ``<name>.new``. ``OSError``."""
    replace_by_parts(path, (data,))


def replace_by_parts(path: str | os.PathLike[str], parts: Iterable[bytes]) -> None:
    """The same for what is made while it is written. What was written goes when that raises, or the disk is full."""
    temporary = os.fspath(path) + ".new"
    try:
        _replace(path, temporary, parts)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _replace(path: str | os.PathLike[str], temporary: str, parts: Iterable[bytes]) -> None:
    with open(temporary, "wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync(os.path.dirname(os.path.abspath(path)))


def append(path: str | os.PathLike[str], length: int, data: bytes) -> None:
    """Write behind the first ``length`` bytes of a file that is there; what stood behind them goes. Cut short by a crash, any
    part of ``data`` may be there. ``OSError``."""
    with open(path, "r+b") as file:
        file.truncate(length)
        file.seek(length)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
