"""RocksDB met with what hurts it: a process that is killed in a write, a disk that is full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

CACHE = 1 << 20
DISK_FULL = "IO error: No space left on device: While appending to file"


def killed(directory: Path, opening: str, body: str) -> None:
    """``body`` in a process of its own that must kill itself.

    It knows ``store``, which ``opening`` (a call of ``tiered.metadata.open``) made of ``directory`` and ``CACHE``,
    ``crashpoint``, and ``die()``, which never comes back.
    """
    code = (
        "import os, signal, sys\nfrom tiered import crashpoint\nfrom tiered.metadata.open import *\n"
        f"directory, CACHE = sys.argv[1], {CACHE}\nstore = {opening}\n"
        "def die(*_): os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{body}\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(directory)], check=False).returncode == -9


class FullDisk:
    """RocksDB's handle on a full disk: reads go on, every write fails."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def write(self, *_: object) -> None:
        """As the engine says it."""
        raise Exception(DISK_FULL)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
