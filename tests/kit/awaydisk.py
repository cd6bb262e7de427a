"""A disk that goes away and leaves its empty mount point: a tmpfs under a bind mount where mounting is allowed, else a renamed
directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class AwayDisk:
    """``path`` is where the disk is seen; ``real`` is what lies on it, wherever it is."""

    def __init__(self, path: Path, *, mounted: bool) -> None:
        self.path = path
        self._hidden = path.with_name(path.name + ".disk")
        self._mounted = mounted
        self._other: Path | None = None
        self.is_away = False
        self.litter: list[str] = []
        """What was written to the mount point while the disk was away."""

    @property
    def real(self) -> Path:
        """The disk's own directory."""
        return self._hidden if self._mounted or self.is_away else self.path

    def away(self) -> None:
        """Unmount it: its mount point is an empty directory."""
        if self.is_away:
            return
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        else:
            self.path.rename(self._hidden)
            self.path.mkdir()
        self.is_away = True

    def back(self) -> None:
        """Mount it again, over whatever was written meanwhile."""
        if not self.is_away:
            return
        self.litter += [str(found.relative_to(self.path)) for found in self.path.rglob("*")]
        if self._mounted:
            subprocess.run(["mount", "--bind", str(self._hidden), str(self.path)], check=True)
        else:
            shutil.rmtree(self.path)
            self._hidden.rename(self.path)
        self.is_away = False

    def copied(self) -> Path:
        """A copy of the disk as it is now, for ``replace``."""
        made = self.path.with_name(f"{self.path.name}.copy")
        shutil.copytree(self.real, made)
        return made

    def replace(self, other: Path) -> None:
        """Another disk comes in this one's place, until ``restore``."""
        self.away()
        if self._mounted:
            subprocess.run(["mount", "--bind", str(other), str(self.path)], check=True)
        else:
            self.path.rmdir()
            other.rename(self.path)
        self._other = other

    def restore(self) -> None:
        """The disk itself is back in its place."""
        if self._other is None:
            return
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], check=True)
        else:
            self.path.rename(self._other)
            self.path.mkdir()
        self._other = None
        self.back()


@contextmanager
def away_disk(path: Path, *, mount: bool = True) -> Iterator[AwayDisk]:
    """A disk at ``path``, there; ``mount=False`` never mounts."""
    path.mkdir()
    hidden = path.with_name(path.name + ".disk")
    mounted = mount and os.geteuid() == 0
    if mounted:
        hidden.mkdir()
        tmpfs = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(hidden)]
        mounted = subprocess.run(tmpfs, capture_output=True, check=False).returncode == 0
        if not mounted:
            hidden.rmdir()
    disk = AwayDisk(path, mounted=mounted)
    if mounted:
        subprocess.run(["mount", "--bind", str(hidden), str(path)], check=True)
    try:
        yield disk
    finally:
        if mounted:
            for place in (path, hidden):
                subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)
