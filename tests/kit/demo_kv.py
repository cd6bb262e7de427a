"""`make demo-kv`: a thousand writers race by compare-and-set on a few counters, over a real RocketMQ broker.

A writer reads a counter, adds one, and puts it back if nobody was faster. Meanwhile the view (`tiered kv serve`) is killed, its
store is deleted, and the broker is killed with `kill -9`. At the end each counter must be the number of additions that took
effect, and porcupine says whether the history of all calls is linearizable.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.demo import work_directory
from tests.kit.golden import records
from tests.kit.kvhistory import FAILED, GET, PUT, UNKNOWN, Checked, History, checked
from tests.kit.kvhttp import NOT_DONE, HttpValues
from tests.kit.kvplain import PlainLog, against
from tests.kit.kvproc import ViewProcess
from tests.kit.kvworkload import LATEST, Asked, operation, read, wrote
from tiered.errors import TieredError
from tiered.keyvalue import Condition, Entry

NAMESPACE = "counters"
COUNTERS = tuple(b"counter-%d" % number for number in range(1, 5))
CONNECTIONS = 32
"""To the view, for all writers: who has none waits for one."""
SETTINGS = {"kv.timeout_ms": 2000, "kv.flush_ms": 500, "kv.connections": CONNECTIONS}


class Race:
    """What the writers share, and what became of it."""

    def __init__(self, values: HttpValues) -> None:
        self.values = values
        self.history = History()
        self.did: Counter[str] = Counter()
        self.writers: set[int] = set()
        """Who ever won."""
        self.ended = False

    def add_one(self, number: int, counter: bytes, turn: int) -> bool:
        """Read, and put back if nobody was faster; False if there was no answer."""
        noted = operation(number, counter, Asked(GET, (counter,)), time.monotonic_ns())
        self.history.add(noted)
        try:
            entry = self.values.get(NAMESPACE, counter, LATEST)
        except TieredError:
            noted.outcome = FAILED
            self.did["without an answer"] += 1
            return False
        read(noted, entry, time.monotonic_ns())
        value = b"%d, by writer %d in turn %d" % (count_of(entry) + 1, number, turn)
        condition = Condition(absent=True) if entry is None else Condition(version=entry.version)
        asked = Asked(PUT, (counter,), value=value, condition=condition)
        noted = operation(number, counter, asked, time.monotonic_ns())
        self.history.add(noted)
        try:
            outcome = self.values.put(NAMESPACE, counter, value, condition=condition)
        except TieredError as error:
            noted.outcome = FAILED if error.fields.get("outcome") == NOT_DONE else UNKNOWN
            self.did["without an answer"] += 1
            return False
        wrote(noted, outcome, time.monotonic_ns())
        self.did["won" if outcome.applied else "too late"] += 1
        if outcome.applied:
            self.writers.add(number)
        return True


def count_of(entry: Entry | None) -> int:
    """What a counter says."""
    return 0 if entry is None else int(entry.value.split(b",")[0])


async def write(race: Race, number: int, pool: ThreadPoolExecutor) -> None:
    """One writer: adds one, again and again."""
    loop, counter, turn = asyncio.get_running_loop(), COUNTERS[number % len(COUNTERS)], 0
    while not race.ended:
        turn += 1
        if not await loop.run_in_executor(pool, race.add_one, number, counter, turn):
            await asyncio.sleep(0.5)


class KvDemo:
    """One run beside a broker."""

    def __init__(self, work: Path, broker: Broker, writers: int, seconds: float, console: Console) -> None:
        self.work, self.broker, self.console = work, broker, console
        self.writers, self.seconds = writers, seconds
        self.view = ViewProcess(work, broker, "view", anew=True, **SETTINGS)
        self.race = Race(self.view.values(15.0))
        self.kills = 0
        self.faults: list[tuple[float, str, Callable[[], None]]] = [
            (0.2, "kill -9 view", self.kill_view),
            (0.4, "kill -9 view, and its store deleted", self.empty_view),
            (0.6, "kill -9 broker", self.kill_broker),
            (0.8, "kill -9 view and broker", self.kill_both),
        ]

    def run(self) -> int:
        """Everything; the exit code."""
        self.view.start()
        self.view.values().create(NAMESPACE)
        try:
            asyncio.run(self._race())
            return self._prove()
        finally:
            self.view.end()

    async def _race(self) -> None:
        began = time.monotonic()
        with (
            ThreadPoolExecutor(CONNECTIONS) as pool,
            Live(console=self.console, refresh_per_second=4) as live,
        ):
            writers = [asyncio.create_task(write(self.race, n, pool)) for n in range(self.writers)]
            for share, name, fault in self.faults:
                while time.monotonic() - began < share * self.seconds:
                    await self._picture(live, began)
                live.console.print(f"  {time.monotonic() - began:5.1f} s  [red]{name}[/]")
                task = asyncio.create_task(asyncio.to_thread(fault))
                while not task.done():
                    await self._picture(live, began)
                await task
                live.console.print(f"  {time.monotonic() - began:5.1f} s  [green]back[/]")
            while time.monotonic() - began < self.seconds:
                await self._picture(live, began)
            self.race.ended = True
            for each in writers:
                if not each.done():
                    each.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    async def _picture(self, live: Live, began: float) -> None:
        did = self.race.did
        table = Table(
            title=f"{self.writers:,} writers, {len(COUNTERS)} counters · {time.monotonic() - began:4.1f} s"
        )
        for name in ("won", "too late", "without an answer"):
            table.add_column(name, justify="right")
        table.add_row(*(f"{did[name]:,}" for name in ("won", "too late", "without an answer")))
        live.update(table)
        await asyncio.sleep(0.25)

    # ---- what happens

    def kill_view(self) -> None:
        """kill -9, and start."""
        self.view.kill()
        self.kills += 1
        time.sleep(0.5)
        self.view.start()

    def empty_view(self) -> None:
        """The same without its store: it is made again from the log."""
        self.view.kill()
        self.kills += 1
        self.view.empty()
        self.view.start()

    def kill_broker(self) -> None:
        """kill -9, and start on the same files."""
        self.broker.kill()
        self.kills += 1
        time.sleep(0.5)
        self.broker.start()

    def kill_both(self) -> None:
        """Nobody is there."""
        self.view.kill()
        self.kills += 1
        self.kill_broker()
        self.view.start()

    # ---- the proof

    def _prove(self) -> int:
        """Counters, log and history must say the same."""
        final = {key: count_of(self.race.values.get(NAMESPACE, key, LATEST)) for key in COUNTERS}
        log = PlainLog.of(records(self.broker.store_dir), "KV_" + NAMESPACE)
        acknowledged = Counter(each.key for each in self.race.history.operations if each.applied)
        in_log = Counter(each.key for each in log.writes.values() if each.applied)
        table = Table(title="additions that took effect")
        for name in ("counter", "value", "in the log", "acknowledged", "without an answer", "verdict"):
            table.add_column(name, justify="left" if name in ("counter", "verdict") else "right")
        good = True
        self.console.print()
        for key in COUNTERS:
            there, told = in_log[key.hex()], acknowledged[key.hex()]
            same = final[key] == there >= told
            good &= same
            table.add_row(
                key.decode(), f"{final[key]:,}", f"{there:,}", f"{told:,}", f"{there - told:,}",
                "[green]equal[/]" if same else "[red]DIFFERENT[/]",
            )  # fmt: skip
        self.console.print(table)
        began = time.monotonic()
        [verdict] = checked([self.race.history.save(self.work / "history.jsonl")])
        wrong = against(log, self.race.history)
        self._tell(verdict, wrong, time.monotonic() - began)
        return 0 if good and verdict.good and not wrong else 1

    def _tell(self, verdict: Checked, wrong: list[str], seconds: float) -> None:
        did = self.race.did
        colour = "green" if verdict.good else "red"
        self.console.print(
            f"{len(self.race.writers):,} of {self.writers:,} writers won {did['won']:,} races and lost {did['too late']:,}; "
            f"{self.kills} processes were killed",
            soft_wrap=True,
        )
        self.console.print(
            f"porcupine, in {seconds:.1f} s: {verdict.operations:,} calls, {verdict.unanswered:,} writes without an answer: "
            f"[{colour}]{verdict.verdict}[/]",
            soft_wrap=True,
        )
        for line in (*wrong[:5], *([] if verdict.good else [verdict])):
            self.console.print(str(line), markup=False)


def main() -> int:
    """Run the demo; 0 if everything is proved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=50.0, help="of the race")
    parser.add_argument("--keep", action="store_true", help="leave store and history on disk and say where")
    options = parser.parse_args()
    console, version = Console(), cache.ROCKETMQ_5
    with work_directory(options.keep) as work:
        console.print("starting name server, broker and view …")
        with (
            NameServer(version, work / "namesrv") as name_server,
            Broker(version, work / "broker", name_server) as broker,
        ):
            return KvDemo(work, broker, options.writers, options.seconds, console).run()


if __name__ == "__main__":
    sys.exit(main())
