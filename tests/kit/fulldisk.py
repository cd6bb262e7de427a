"""Small disks that run full or turn read-only: a tmpfs of its own where mounting is allowed, else a daemon that is lied to.

``python -m tests.kit.fulldisk run …`` is ``tiered run …`` for which every directory with a file ``.full`` beside it has no
space left.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.daemonproc import TIERED

MIB = 1 << 20
SHIM = (sys.executable, "-m", "tests.kit.fulldisk")


class SmallDisk:
    """A directory with ``size`` bytes of its own. ``command`` is how to start the program so that it feels the limits."""

    def __init__(self, path: Path, *, mounted: bool) -> None:
        self.path = path
        self.command: tuple[str, ...] = TIERED if mounted else SHIM
        self.mounted = mounted
        self._full = path.with_name(path.name + ".full")
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no space."""
        if not self.mounted:
            self._full.touch()
            return
        with self._ballast.open("wb", buffering=0) as file:
            for piece in (MIB, 4096, 512, 1):
                try:
                    while True:
                        file.write(b"x" * piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the space back."""
        self._full.unlink(missing_ok=True)
        self._ballast.unlink(missing_ok=True)

    def read_only(self, on: bool = True) -> None:
        """Allow no writing, or allow it again."""
        if self.mounted:
            _mount("-o", f"remount,{'ro' if on else 'rw'}", str(self.path))
        else:
            self.path.chmod(0o555 if on else 0o755)


@contextmanager
def small_disk(path: Path, size: int, *, mount: bool = True) -> Iterator[SmallDisk]:
    """A small disk at ``path``; ``mount=False`` never mounts."""
    path.mkdir()
    mounted = mount and os.geteuid() == 0 and _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    disk = SmallDisk(path, mounted=mounted)
    try:
        yield disk
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
        else:
            path.chmod(0o755)


def _mount(*words: str) -> bool:
    return subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0


def lie() -> None:
    """Writes fail below a directory that is marked full."""
    open_file, write, writev = os.open, os.write, os.writev

    def check(path: str) -> None:
        for parent in Path(path).parents:
            if os.path.exists(f"{parent}.full"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def name(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def lying_open(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        unnamed = flags & os.O_TMPFILE == os.O_TMPFILE  # made in the directory that is opened
        if (flags & os.O_CREAT or unnamed) and isinstance(path, str):
            within = more.get("dir_fd")
            made = os.path.join(path, "unnamed") if unnamed else path
            check(made if within is None else os.path.join(name(within), made))
        return open_file(path, flags, *rest, **more)

    def lying_write(descriptor: int, data: Any) -> int:
        check(name(descriptor))
        return write(descriptor, data)

    def lying_writev(descriptor: int, buffers: Sequence[Any]) -> int:
        check(name(descriptor))
        return writev(descriptor, buffers)

    os.open, os.write, os.writev = lying_open, lying_write, lying_writev  # type: ignore[assignment]


if __name__ == "__main__":
    from tiered.cli.main import main

    lie()
    sys.exit(main())
