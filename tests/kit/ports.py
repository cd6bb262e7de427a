"""Free loopback ports that stay ours.

Ports are taken below the kernel's ephemeral range, so no outgoing connection can grab one between two starts of a
server, and each block is guarded by a file lock, so two test workers on one machine never choose the same one.
"""

from __future__ import annotations

import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

BLOCK = 8
_FIRST, _LAST = 20_000, 31_992
_held: list[IO[str]] = []  # open on purpose: a lock lives as long as its file


def free_block() -> int:
    """First of BLOCK adjacent ports nobody listens on; reserved until this process ends."""
    directory = Path(tempfile.gettempdir()) / "rocketmq-tiered-ports"
    directory.mkdir(exist_ok=True)
    chance = random.SystemRandom()
    for _ in range(500):
        base = chance.randrange(_FIRST, _LAST, BLOCK)
        file = open(directory / f"{base}.lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            continue
        if all(_unused(port) for port in range(base, base + BLOCK)):
            _held.append(file)
            return base
        file.close()
    raise RuntimeError("no free block of loopback ports found")


def free_port() -> int:
    """One free loopback port, reserved until this process ends."""
    return free_block()


def _unused(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
