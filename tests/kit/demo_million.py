"""`make demo-million`: a broker's store of a million queues, archived; the daemon killed and opened again; one queue read.

The store has a message in each queue, and then some more by Zipf's law: few queues are busy, most are quiet. The daemon is
killed with `kill -9` in the middle. In the end one busy and one quiet queue are read from the archive alone, and compared with
the commitlog byte for byte.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.kit.daemonproc import Daemon
from tests.kit.demo import work_directory
from tests.kit.measured import Measured, cpu_seconds, measure, peak_bytes
from tests.kit.oracle import Queue, scan_log
from tests.kit.process import TIERED

TOPIC_QUEUES = 1000
BODY_BYTES = 64
EXTRA = 5
"""One message more for every so many queues, by Zipf's law."""
LIMIT_SECONDS = 900.0
DAEMON = {"dispatch.group_commit_interval_ms": 1000, "source.poll_interval_ms": 100}


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the table."""

    what: str
    took: Measured
    found: str


class MillionDemo:
    """One run in a temporary directory. ``fork``: daemons are forked from a warm process, whose memory is then theirs, too."""

    def __init__(self, work: Path, queues: int, console: Console, *, fork: bool = False) -> None:
        self.work = work
        self.fork = fork
        self.console = console
        self.topics = max(1, queues // TOPIC_QUEUES)
        self.topic_queues = max(1, queues // self.topics)
        self.queues = self.topics * self.topic_queues
        self.messages = self.queues + self.queues // EXTRA
        self.store = work / "store"
        self.archive = f"file://{work / 'archive'}"
        self.steps: list[Step] = []

    def run(self) -> int:
        """Everything; the exit code."""
        self.generate()
        daemon = Daemon(self.work, self.store, self.archive, fork=self.fork, **DAEMON)
        try:
            self.archived(
                daemon, self.messages // 2, f"archived, until kill -9 behind {self.messages // 2:,} messages"
            )
            self.opened(daemon)
            self.archived(daemon, self.messages, "opened again, archived to the end, kill -9")
            self.opened(daemon)
        finally:
            daemon.kill()
        good = self.read()
        self.console.print(self.picture())
        verdict = "[green]identical[/]" if good else "[red]DIFFERENT[/]"
        self.console.print(
            f"{self.messages:,} messages in {self.queues:,} queues; the two queues read: {verdict}"
        )
        return 0 if good else 1

    def generate(self) -> None:
        """The store."""
        made = measure(
            (*TIERED, "gen", "--store", str(self.store), "--messages", str(self.messages), "--topics", str(self.topics),
             "--queues", str(self.topic_queues), "--body-bytes", str(BODY_BYTES), "--file-bytes", "64MiB", "--zipf", "1",
             "--no-consume-queues")
        )  # fmt: skip
        self.say("store made", made, f"{self.queues:,} queues, {self.messages:,} messages")

    def archived(self, daemon: Daemon, messages: int, what: str) -> None:
        """A daemon at work until so many messages are in the archive, and killed then."""
        started = time.monotonic()
        daemon.start(ready=False)
        daemon.wait_until(lambda: (daemon.status().get("messages") or 0) >= messages, what, LIMIT_SECONDS)
        found = int(daemon.status().get("messages") or 0)
        self.killed(daemon, what, started, f"{found:,} messages")

    def opened(self, daemon: Daemon) -> None:
        """A daemon until it is ready, and killed then."""
        started = time.monotonic()
        daemon.start(ready=False)
        daemon.wait_until(daemon.ready, "ready", LIMIT_SECONDS)
        self.killed(daemon, "opened: ready, kill -9", started, f"{daemon.rss_bytes() / 1e6:.0f} MB resident")

    def killed(self, daemon: Daemon, what: str, started: float, found: str) -> None:
        """The end of a daemon, and what it took until then."""
        pid = daemon.child.pid
        took = Measured(time.monotonic() - started, cpu_seconds(pid), peak_bytes(pid))
        daemon.kill()
        self.say(what, took, found)

    def read(self) -> bool:
        """The busiest queue and a quiet one, from the archive alone; whether they are what the commitlog holds."""
        counts = Counter(queue for queue, _ in scan_log(self.store / "commitlog"))
        busy, quiet = (
            counts.most_common(1)[0][0],
            next(q for q, count in reversed(counts.items()) if count == 1),
        )
        wanted: dict[Queue, list[bytes]] = {busy: [], quiet: []}
        for queue, record in scan_log(self.store / "commitlog"):
            if queue in wanted:
                wanted[queue].append(record.data)
        verdicts = [self.same(queue, records) for queue, records in wanted.items()]
        return all(verdicts)

    def same(self, queue: Queue, records: list[bytes]) -> bool:
        """Whether ``tiered read`` gives exactly these."""
        out = self.work / "read.raw"
        took = measure(
            (*TIERED, "read", "--archive", self.archive, "--topic", queue[0], "--queue", str(queue[1]), "--count", "0",
             "--format", "raw", "--out", str(out))
        )  # fmt: skip
        same = out.read_bytes() == b"".join(records)
        self.say(f"read {queue[0]}/{queue[1]}", took, f"{len(records):,} messages" if same else "DIFFERENT")
        return same

    def say(self, what: str, took: Measured, found: str) -> None:
        """Another line, told at once."""
        self.steps.append(Step(what, took, found))
        self.console.print(f"  {what}: {took.seconds:.1f} s")

    def picture(self) -> Table:
        """All steps."""
        table = Table(title=f"{self.queues:,} queues")
        for name in ("step", "seconds", "CPU", "peak memory", "found"):
            table.add_column(name, justify="left" if name in ("step", "found") else "right")
        for step in self.steps:
            took = step.took
            table.add_row(
                step.what, f"{took.seconds:.1f}", f"{took.cpu_seconds:.1f}", f"{took.peak_bytes / 1e6:.0f} MB", step.found
            )  # fmt: skip
        cells = sum(s.took.seconds for s in self.steps), sum(s.took.cpu_seconds for s in self.steps)
        most = max(s.took.peak_bytes for s in self.steps)
        table.add_row("all", f"{cells[0]:.1f}", f"{cells[1]:.1f}", f"{most / 1e6:.0f} MB", "", style="bold")
        return table


def main() -> int:
    """Run the demo; 0 if both queues are what the broker wrote."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=1_000_000)
    parser.add_argument("--keep", action="store_true", help="leave store and archive on disk and say where")
    options = parser.parse_args()
    with work_directory(options.keep) as work:
        return MillionDemo(work, options.queues, Console(width=120)).run()


if __name__ == "__main__":
    sys.exit(main())
