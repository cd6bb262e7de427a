"""The rings of the Makefile one after the other, what each took, and the slowest tests of all.

::

    python -m tests.kit.rings --rings unit fault e2e spark --beside lint types imports

The targets ``--beside`` run beside the rings; what they print comes when all is done. A ring that fails does not stop the
others; it fails the whole, as a failure beside does. Of a long output often only the end is seen: there stand, once more, the
ends of the tracebacks and the names of all that failed, those too that passed alone (``twice.py``); of what failed without a
test of its own (coverage, a mutant that survives, a style) the last lines.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from tests.kit import failures
from tests.kit.failures import NONE, Failures

SLOWEST = 25
LAST_LINES = 40
"""Of a target that failed, and not by a test."""
_DURATION = re.compile(r"^ *(\d+\.\d+)s (call|setup|teardown) +(\S+::.*)$")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a target went; ``cpu_seconds`` are its own and those of all children that were waited for. ``last``: what it printed
    last."""

    target: str
    code: int
    wall_seconds: float
    cpu_seconds: float
    last: Sequence[str] = ()
    failures: Failures = NONE


def make(targets: Sequence[str], output: IO[bytes] | int, failures_to: str = "") -> subprocess.Popen[bytes]:
    """``make TARGET ...``, as the make that started this would; what follows a failure is done, too."""
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", "--keep-going", *targets]
    environment = {**os.environ, failures.FAILURES_TO: failures_to}
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def ended(
    target: str,
    process: subprocess.Popen[bytes],
    began: float,
    last: Sequence[str],
    failed: Failures = NONE,
) -> Ended:
    """Wait for it."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds, cpu = time.monotonic() - began, usage.ru_utime + usage.ru_stime
    return Ended(target, process.returncode, seconds, cpu, last, failed)


def ring(target: str, slow: list[tuple[float, str]]) -> Ended:
    """Run it, pass on what it prints, and keep its slowest tests, what failed, and its end."""
    began = time.monotonic()
    last: deque[str] = deque(maxlen=LAST_LINES)
    with tempfile.TemporaryDirectory() as directory:
        failures_to = Path(directory, "failures")
        process = make([target], subprocess.PIPE, str(failures_to))
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            text = line.decode(errors="replace")
            last.append(text.rstrip("\n"))
            if found := _DURATION.match(text):
                slow.append((float(found[1]), f"{found[2]:8} {found[3]}"))
        process.stdout.close()
        return ended(target, process, began, last, failures.read(failures_to))


def table(all_ended: Sequence[Ended], slow: Sequence[tuple[float, str]]) -> str:
    """The end of the output."""
    lines = ["", f"slowest {min(SLOWEST, len(slow))} of all rings"]
    lines += [f"{seconds:8.1f} s  {name}" for seconds, name in sorted(slow, reverse=True)[:SLOWEST]]
    lines += ["", f"{'':18}{'wall':>9}{'CPU':>11}"]
    for one in all_ended:
        verdict = "" if one.code == 0 else f"  FAILED ({one.code})"
        lines.append(f"{one.target:18}{one.wall_seconds:7.0f} s{one.cpu_seconds:9.0f} s{verdict}")
    return "\n".join(lines)


def last_words(all_ended: Sequence[Ended]) -> str:
    """What failed, at the very end; "" if nothing did."""
    lines: list[str] = []
    for one in all_ended:
        if one.code and not one.failures.failed:
            lines += ["", f"___ the end of {one.target}", *(failures.shortened(line) for line in one.last)]
    told = failures.told([one.failures for one in all_ended])
    return "\n".join([*lines, *([told] if told else []), ""]) if lines or told else ""


def run(rings: Sequence[str], beside: Sequence[str]) -> int:
    """0 if everything was good."""
    began = time.monotonic()
    slow: list[tuple[float, str]] = []
    done: list[Ended] = []
    with tempfile.TemporaryFile() as kept:
        aside = make(beside, kept) if beside else None
        for target in rings:
            done.append(ring(target, slow))
        if aside is not None:
            code = ended(" ".join(beside), aside, began, [])
            kept.seek(0)
            said = kept.read().decode(errors="replace")
            sys.stdout.write("\n" + said)
            done.append(replace(code, last=said.splitlines()[-LAST_LINES:]))
    print(table(done, slow))
    print(f"{'all':18}{time.monotonic() - began:7.0f} s", flush=True)
    print(last_words(done), end="", flush=True)
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
