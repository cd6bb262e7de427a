"""The rings of the Makefile one after the other, what each took, and the slowest tests of all.

::

    python -m tests.kit.rings --rings unit fault e2e spark --beside lint types imports

The targets ``--beside`` run beside the rings; what they print comes when all is done. The first ring that fails is the last,
and a failure beside fails the whole.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

SLOWEST = 25
_DURATION = re.compile(r"^ *(\d+\.\d+)s (call|setup|teardown) +(\S+::.*)$")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a target went; ``cpu_seconds`` are its own and those of all children that were waited for."""

    target: str
    code: int
    wall_seconds: float
    cpu_seconds: float


def make(targets: Sequence[str], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    """``make TARGET ...``, as the make that started this would; what follows a failure is done, too."""
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", "--keep-going", *targets]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def ended(target: str, process: subprocess.Popen[bytes], began: float) -> Ended:
    """Wait for it."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Ended(target, process.returncode, time.monotonic() - began, usage.ru_utime + usage.ru_stime)


def ring(target: str, slow: list[tuple[float, str]]) -> Ended:
    """Run it, pass on what it prints, and keep its slowest tests."""
    began = time.monotonic()
    process = make([target], subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        if found := _DURATION.match(line.decode(errors="replace")):
            slow.append((float(found[1]), f"{found[2]:8} {found[3]}"))
    process.stdout.close()
    return ended(target, process, began)


def table(all_ended: Sequence[Ended], slow: Sequence[tuple[float, str]]) -> str:
    """The end of the output."""
    lines = ["", f"slowest {min(SLOWEST, len(slow))} of all rings"]
    lines += [f"{seconds:8.1f} s  {name}" for seconds, name in sorted(slow, reverse=True)[:SLOWEST]]
    lines += ["", f"{'':18}{'wall':>9}{'CPU':>11}"]
    for one in all_ended:
        verdict = "" if one.code == 0 else f"  FAILED ({one.code})"
        lines.append(f"{one.target:18}{one.wall_seconds:7.0f} s{one.cpu_seconds:9.0f} s{verdict}")
    return "\n".join(lines)


def run(rings: Sequence[str], beside: Sequence[str]) -> int:
    """0 if everything was good."""
    began = time.monotonic()
    slow: list[tuple[float, str]] = []
    done: list[Ended] = []
    with tempfile.TemporaryFile() as kept:
        aside = make(beside, kept) if beside else None
        for target in rings:
            done.append(ring(target, slow))
            if done[-1].code:
                break
        if aside is not None:
            done.append(ended(" ".join(beside), aside, began))
            kept.seek(0)
            sys.stdout.write("\n" + kept.read().decode(errors="replace"))
    print(table(done, slow))
    print(f"{'all':18}{time.monotonic() - began:7.0f} s", flush=True)
    return 1 if any(one.code for one in done) else 0


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.rings", description=__doc__)
    parser.add_argument("--beside", nargs="*", default=[], help="targets to run beside the rings")
    parser.add_argument("--rings", nargs="+", required=True, help="targets, one after the other")
    asked = parser.parse_args()
    return run(asked.rings, asked.beside)


if __name__ == "__main__":
    sys.exit(main())
