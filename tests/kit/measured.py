"""One child process measured from outside: wall time, CPU, peak memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Measured:
    """One child process: wall and CPU seconds, peak resident bytes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Measured:
    """Run a command to its end; SystemExit when it fails.

    The peak is read from the process while it runs: what the kernel tells afterwards counts the parent's memory from before the
    child's own program began.
    """
    started = time.monotonic()
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL)
    peak = 0
    while True:
        peak = max(peak, peak_bytes(process.pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(LOOK_SECONDS)
    seconds = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Measured(seconds, usage.ru_utime + usage.ru_stime, peak)


def peak_bytes(pid: int) -> int:
    """The most resident memory the process has had (``VmHWM``); 0 once it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used so far, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
