"""`make demo`: the main job on embedded defaults, with two `kill -9`s, and a proof at the end.

A generator process writes a live broker store; the daemon archives it to a POSIX directory; the daemon is killed twice
mid-flight and started again; then every queue is read back from the archive and compared with the store, by an
independent reader, record by record; then the oldest files of the store are deleted, as a broker does, and what was in them is
read on. No server is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.kit.oracle import read_store
from tiered.clock import SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.metrics import Metrics
from tiered.settings import Archive, Settings
from tiered.store import MessageStore

TIERED = [sys.executable, "-m", "tiered.cli.main"]


class Demo:
    """One run in a temporary directory."""

    def __init__(self, work: Path, messages: int, rate: int, console: Console) -> None:
        self.work = work
        self.store = work / "store"
        self.archive = f"file://{work / 'archive'}"
        self.messages = messages
        self.rate = rate
        self.console = console
        self.generator: subprocess.Popen[bytes] | None = None
        self.daemon: subprocess.Popen[bytes] | None = None
        self.kills: list[int] = []
        self.port = 0
        self.environment = dict(os.environ)
        self.limit_seconds = 150.0
        self.more: tuple[str, ...] = ()
        """Of the daemon's command line."""

    # ---- processes

    def start_generator(self) -> None:
        """Write messages at a steady rate, as a broker would."""
        command = [
            *TIERED, "gen", "--store", str(self.store), "--messages", str(self.messages), "--queues", "4",
            "--topics", "2", "--body-bytes", "1024", "--rate", str(self.rate), "--file-bytes", str(64 << 20),
        ]  # fmt: skip
        self.generator = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=(self.work / "gen.log").open("ab")
        )

    def start_daemon(self) -> None:
        """Start `tiered run` on the store; its HTTP port is chosen by the system and read from its ready line."""
        port_file = self.work / "state" / "web-port"
        port_file.unlink(missing_ok=True)
        with (self.work / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [*TIERED, "run", "--store", str(self.store), "--archive", self.archive, "--state", str(self.work / "state"),
                 "--set", "web.port=0", "--set", "log.format=json", *self.more],
                stdout=subprocess.DEVNULL, stderr=log, env=self.environment,
            )  # fmt: skip
        deadline = time.monotonic() + 30
        while not (port_file.exists() and port_file.read_text().strip()):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(
                    "the daemon did not start:\n" + (self.work / "daemon.log").read_text()[-2000:]
                )
            time.sleep(0.05)
        self.port = int(port_file.read_text())

    def kill_daemon(self) -> None:
        """`kill -9`, in the middle of whatever it does."""
        assert self.daemon is not None
        self.kills.append(self.daemon.pid)
        self.daemon.kill()
        self.daemon.wait()

    def status(self) -> dict[str, object]:
        """The daemon's own `/status`, or nothing while it is down."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/status", timeout=2) as answer:
                return dict(json.load(answer))
        except OSError:
            return {}

    def written(self) -> bool:
        """Whether the store is complete."""
        return self.generator is not None and self.generator.poll() is not None

    def archived(self, now: dict[str, object]) -> bool:
        """Whether the daemon says that everything is in the archive (it is proved afterwards)."""
        return int(str(now.get("messages", 0))) >= self.messages

    # ---- the story

    def run(self) -> int:
        """Everything; the exit code."""
        self.start_generator()
        while not (self.store / "commitlog").exists() or not any((self.store / "commitlog").iterdir()):
            time.sleep(0.05)
        self.start_daemon()
        kill_at = [self.messages // 3, 2 * self.messages // 3]
        started = time.monotonic()
        with Live(console=self.console, refresh_per_second=8) as live:
            while True:
                now = self.status()
                done = int(str(now.get("messages", 0)))
                live.update(self._picture(now, time.monotonic() - started))
                if kill_at and done >= kill_at[0]:
                    kill_at.pop(0)
                    self.kill_daemon()
                    live.console.print(f"  [red]kill -9[/] daemon {self.kills[-1]} at {done:,} messages")
                    time.sleep(0.5)
                    self.start_daemon()
                    live.console.print(f"  [green]restarted[/] as {self.daemon.pid if self.daemon else 0}")
                if not kill_at and self.written() and self.archived(now):
                    break
                if time.monotonic() - started > self.limit_seconds:
                    raise SystemExit(
                        f"the demo did not finish in {self.limit_seconds:.0f} s; see {self.work}"
                    )
                time.sleep(0.1)
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGTERM)
        code = self.daemon.wait(timeout=20)
        if code != 0:
            raise SystemExit(
                f"the daemon ended with {code}:\n" + (self.work / "daemon.log").read_text()[-2000:]
            )
        return self.prove()

    def _picture(self, now: dict[str, object], seconds: float) -> Table:
        table = Table(title=f"archiving a live store · {seconds:4.1f} s", show_header=True)
        for name in ("archived", "lag bytes", "lag messages", "lag seconds", "commits", "epoch"):
            table.add_column(name, justify="right")
        lag = now.get("lag") or {}
        assert isinstance(lag, dict)
        table.add_row(
            f"{int(str(now.get('messages', 0))):,}",
            *(
                f"{lag[name]:,}" if lag.get(name) is not None else "not known yet"
                for name in ("bytes", "messages")
            ),
            f"{float(lag.get('seconds') or 0):.2f}",
            f"{now.get('seq', '-')}",
            f"{now.get('epoch', '-')}",
        )
        return table

    def prove(self) -> int:
        """Read every queue back and compare count, order and bytes with the store."""
        expected = self._expected()
        table = Table(title="read back from the archive, compared with the broker's store")
        for name in ("queue", "messages", "bytes", "sha256 of the records", "verdict"):
            table.add_column(name, justify="right" if name in ("messages", "bytes") else "left")
        bad = 0
        for (topic, queue_id), records in sorted(expected.items()):
            out = self.work / "read.raw"
            subprocess.run(
                [*TIERED, "read", "--archive", self.archive, "--topic", topic, "--queue", str(queue_id),
                 "--count", "0", "--format", "raw", "--out", str(out)],
                check=True, stdout=subprocess.DEVNULL, env=self.environment,
            )  # fmt: skip
            want, got = b"".join(records), out.read_bytes()
            same = want == got
            bad += not same
            table.add_row(
                f"{topic}/{queue_id}", f"{len(records):,}", f"{len(got):,}",
                hashlib.sha256(got).hexdigest()[:16], "[green]identical[/]" if same else "[red]DIFFERENT[/]",
            )  # fmt: skip
        self.console.print()
        self.console.print(table)
        wrong = self.missing(expected)
        if wrong:
            self.console.print(f"[red]{wrong}[/]")
        good = not bad and not wrong
        verdict = "[green]nothing lost, doubled or reordered[/]" if good else "[red]FAILED[/]"
        total = sum(len(r) for r in expected.values())
        self.console.print(
            f"{total:,} messages in {len(expected)} queues, daemon killed {len(self.kills)} times: {verdict}"
        )
        return 0 if good and self.read_cold(expected) else 1

    def _expected(self) -> dict[tuple[str, int], list[bytes]]:
        """What the store has, by an independent reader."""
        return read_store(self.store)

    def read_cold(self, expected: dict[tuple[str, int], list[bytes]]) -> bool:
        """Delete all commitlog files but the newest, and read what was in them as a consumer would: pull by pull."""
        *old, newest = sorted((self.store / "commitlog").iterdir())
        for path in old:
            path.unlink()
        cold = {
            queue: [r for r in records if int.from_bytes(r[28:36], "big") < int(newest.name)]
            for queue, records in expected.items()
        }
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            settings = Settings(archive=Archive(url=self.archive))
            store = MessageStore.open(settings, SystemClock(), Metrics(), stack=stack)
            same = all(pulled(store, *queue, len(records)) == records for queue, records in cold.items())
        count, seconds = sum(map(len, cold.values())), time.monotonic() - started
        verdict = f"[green]identical[/], {count / seconds:,.0f} a second" if same else "[red]DIFFERENT[/]"
        self.console.print(
            f"cold read: {len(old)} of {len(old) + 1} commitlog files deleted, their {count:,} messages come from the "
            f"archive: {verdict}",
            soft_wrap=True,
        )
        return same

    def missing(self, expected: dict[tuple[str, int], list[bytes]]) -> str:
        """What is wrong with the store itself, compared with what was asked of the writer; empty if nothing is."""
        total = sum(len(r) for r in expected.values())
        return "" if total == self.messages else f"the store has {total:,} messages, not {self.messages:,}"

    def end(self) -> None:
        """Stop whatever still runs."""
        for process in (self.generator, self.daemon):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def pulled(store: MessageStore, topic: str, queue_id: int, count: int) -> list[bytes]:
    """The first ``count`` messages of a queue, 32 a pull."""
    found: list[bytes] = []
    while len(found) < count:
        answer = store.get_message(
            Pull(ReaderId("demo"), topic, queue_id, len(found), min(32, count - len(found)))
        )
        if not answer.records:
            break
        found.extend(map(bytes, answer.records))
    return found


def parse(doc: str | None, messages: int, rate: int) -> argparse.Namespace:
    """Command line: sizes of the demo."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--messages", type=int, default=messages)
    parser.add_argument("--rate", type=int, default=rate, help="messages a second")
    parser.add_argument("--keep", action="store_true", help="leave store and archive on disk and say where")
    return parser.parse_args()


@contextlib.contextmanager
def work_directory(keep: bool) -> Iterator[Path]:
    """A temporary directory, removed at the end unless it is to be kept."""
    work = Path(tempfile.mkdtemp(prefix="tiered-demo-"))
    try:
        yield work
    finally:
        if keep:
            Console().print(f"kept in {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)


def main() -> int:
    """Run the demo; 0 if every byte is proved."""
    options = parse(__doc__, messages=160_000, rate=12_000)
    with work_directory(options.keep) as work:
        demo = Demo(work, options.messages, options.rate, Console())
        try:
            return demo.run()
        finally:
            demo.end()


if __name__ == "__main__":
    sys.exit(main())
