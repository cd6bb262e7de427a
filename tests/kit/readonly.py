"""Directories that a child process cannot write to, whoever runs the tests.

Where user namespaces are allowed the child sees the directory through a read-only bind mount of its own, as root too; elsewhere
mode bits do, which bind everybody but root. ``missing`` says why there is neither.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_BIND = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@contextmanager
def read_only(directory: Path) -> Iterator[tuple[str, ...]]:
    """Make an existing directory read-only for commands that begin with what this yields; it is writable again at the end."""
    if _namespaces():
        yield _bound(directory)
        return
    mode = directory.stat().st_mode
    directory.chmod(0o555)
    try:
        yield ()
    finally:
        directory.chmod(mode)


def missing() -> str | None:
    """Why no directory can be made read-only here; ``None`` if one can."""
    if _namespaces() or os.geteuid() != 0:
        return None
    return "user namespaces are refused here, and root may write to everything"


@cache
def _namespaces() -> bool:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tried = _run((*_bound(directory), "touch", str(directory / "file")))
        return tried != 0 and _run((*_bound(directory), "true")) == 0 and not any(directory.iterdir())


def _bound(directory: Path) -> tuple[str, ...]:
    return ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _BIND, str(directory))


def _run(command: Sequence[str]) -> int:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode
    except FileNotFoundError:
        return 127
