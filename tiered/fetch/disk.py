"""The disk tier: blocks as the store has them, in files of one directory, weighed in bytes.

A file's name says which block of which object it holds; object ids are never used twice, so a file is never stale. Nothing is
believed: the block table's checksum decides on reading back, and whatever is wrong with a file or the disk means that the block
is not here. One process per directory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from cachetools import LRUCache

_PAGE = 4096
_PARTIAL = ".partial"


class _Files(LRUCache[str, int]):
    """Names by time of use, weighed by the pages their files take; what falls out is deleted."""

    def __init__(self, limit_bytes: int, delete: Callable[[str], None]) -> None:
        super().__init__(limit_bytes, getsizeof=lambda size: -(-size // _PAGE) * _PAGE)
        self._delete = delete

    def popitem(self) -> tuple[str, int]:
        """Drop the one unused longest."""
        name, size = super().popitem()
        self._delete(name)
        return name, size


class DiskTier:
    """Thread-safe. Every verb may do file I/O; no ``OSError`` leaves it, ``errors`` counts them."""

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._files = _Files(limit_bytes, self._delete)
        self._lock = threading.Lock()
        self._opened = False
        self.errors = 0

    @property
    def used_bytes(self) -> int:
        """Bytes of all files, in whole pages."""
        return int(self._files.currsize)

    @staticmethod
    def name_of(object_id: bytes, block: int) -> str:
        """A block's file, relative to the directory: 256 directories by the last byte of the object's id."""
        return f"{object_id[-1]:02x}/{object_id.hex()}-{block}"

    def get(self, name: str) -> bytes | None:
        """A file's bytes, unchecked; ``None`` if it is not here."""
        with self._lock:
            self._open()
            if self._files.get(name) is None:
                return None
        try:
            return (self._directory / name).read_bytes()
        except OSError:
            self.drop(name)
            self.errors += 1
            return None

    def put(self, name: str, stored: bytes | memoryview) -> None:
        """Keep a block. Not synced: a file torn by a crash fails its checksum later."""
        with self._lock:
            self._open()
            if name in self._files or len(stored) > self._files.maxsize // 2:
                return
        path = self._directory / name
        partial = path.with_name(f"{path.name}-{threading.get_ident()}{_PARTIAL}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(stored)
            with self._lock:  # both: a name without its file would be dropped, a file without its name never
                partial.replace(path)
                self._files[name] = len(stored)
        except OSError:
            self.errors += 1
            self._delete(partial.relative_to(self._directory).as_posix())
            self.drop(name)

    def drop(self, name: str) -> None:
        """Forget and delete a file: it failed its checksum, or could not be read."""
        with self._lock:
            self._files.pop(name, None)
            self._delete(name)

    def _open(self) -> None:
        """Find what an earlier process left, oldest use first. Under the lock, once."""
        if self._opened:
            return
        self._opened = True
        found: list[tuple[int, str, int]] = []
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            for folder in self._directory.iterdir():
                found += _listed(folder) if len(folder.name) == 2 and folder.is_dir() else []
        except OSError:
            self.errors += 1
        for _, name, size in sorted(found):
            if name.endswith(_PARTIAL) or size > self._files.maxsize:
                self._delete(name)
            else:
                self._files[name] = size

    def _delete(self, name: str) -> None:
        try:
            (self._directory / name).unlink(missing_ok=True)
        except OSError:
            self.errors += 1


def _listed(folder: Path) -> list[tuple[int, str, int]]:
    rows: list[tuple[int, str, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            stat = entry.stat()
            rows.append((stat.st_mtime_ns, f"{folder.name}/{entry.name}", stat.st_size))
    return rows
