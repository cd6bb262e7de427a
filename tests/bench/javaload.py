"""The unmodified Java client under the clock: ``java/Bench.java``, compiled for the run, and the CPU of a process beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.javaprogram import JavaProgram
from tests.kit import cache

_TICKS = os.sysconf("SC_CLK_TCK")
_JAVA = (
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "-Drocketmq.client.logLevel=WARN",
    "-Drocketmq.client.rebalance.waitInterval=1000",
)


@dataclass(frozen=True, slots=True)
class Way:
    """What one way gave: calls, how long one took (medians of the slices' percentiles), and messages a second."""

    calls: int
    p50_ms: float
    p99_ms: float
    cpu_seconds: float
    """Of the process in the middle, if one was named, in the slices of this way."""
    rates: Sequence[float]
    """Messages a second of each slice."""

    @property
    def cpu_per_call_us(self) -> float:
        """CPU of the process in the middle for one call, request and answer."""
        return self.cpu_seconds / self.calls * 1e6 if self.calls else 0.0

    @property
    def median_rate(self) -> float:
        """Messages a second: the median of the slices."""
        return median(self.rates)


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push consumer was handed, and offsets below the highest of each queue that never came."""

    consumed: int
    skipped: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Messages a second between the first and the last batch."""
        return self.consumed / self.seconds if self.seconds else 0.0


class JavaLoad:
    """Runs commands of ``Bench.java``, which lists them; everything it writes goes below ``work``."""

    def __init__(self, work: Path, version: str = cache.ROCKETMQ_5) -> None:
        self._work = work
        self._program = JavaProgram("Bench", cache.rocketmq_directory(version) / "lib", work)

    def in_turn(self, command: str, topic: str, ways: Sequence[str], **options: object) -> list[Way]:
        """``send`` or ``pull`` by way of each name server in turn."""
        found = self._run(command, topic=topic, ways=",".join(ways), **options)["ways"]
        return [
            Way(
                calls=w["calls"],
                p50_ms=w["p50_ms"],
                p99_ms=w["p99_ms"],
                cpu_seconds=w["cpu_ticks"] / _TICKS,
                rates=w["rates"],
            )
            for w in found
        ]

    def push(self, topic: str, name_server: str, group: str, messages: int) -> Pushed:
        """A push consumer of a new group from the first message, until ``messages`` came or none comes any more."""
        return Pushed(**self._run("push", topic=topic, namesrv=name_server, group=group, n=messages))

    def client_log(self, last_bytes: int = 4000) -> str:
        """The end of what the clients have logged: with the broker's jars they write into a log of a broker's name."""
        log = self._work / "logs" / "rocketmqlogs" / "broker_default.log"
        return log.read_text(errors="replace")[-last_bytes:] if log.exists() else ""

    def _run(self, command: str, **options: object) -> dict[str, Any]:
        return self._program.run(command, java=_JAVA, **options)


def cpu_seconds(pid: int) -> float:
    """CPU that a process has used since its start, all threads, user and kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
