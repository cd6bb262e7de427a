"""Two key-value views of one real broker, clients of both, faults drawn by a seed, and whether the histories can be.

Views are killed, paused, and lose their stores; the broker is killed
and started again, or paused. At the end each key's history is checked by porcupine, the history is held against the broker's
own log, both views must have what the log comes to, and what a client was told is written once and for all must be there.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from tests.kit.broker import Broker
from tests.kit.golden import records
from tests.kit.kvhistory import FAILED, UNKNOWN, Checked, History, Operation, checked, digest, went_back
from tests.kit.kvplain import PlainLog, against
from tests.kit.kvproc import ViewProcess
from tests.kit.kvworkload import LATEST, Asked, Chooser, Recorded, Workload
from tiered.errors import TieredError
from tiered.keyvalue import Entry

POOL = (b"k/a", b"k/b", b"k/\xffc")
"""Keys that everybody writes."""
CLIENTS = 4
"""Of each view."""
PAUSE_SECONDS = 0.004
"""Between two calls of a client: checkers and servers have the machine, too."""
FAST = {"kv.flush_ms": 300, "kv.timeout_ms": 1500, "kv.map_bytes": "64MiB", "kv.cache_bytes": "8MiB"}
STORES = ("rocksdb", "map")
FAULTS = ("view killed", "store emptied", "view paused", "broker paused", "broker killed")
AGAIN_SECONDS = 60.0


@dataclass(slots=True)
class KvOutcome:
    """What a campaign did and found. ``wrong``: each thing that cannot be."""

    seed: int
    actions: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    verdict: Checked | None = None
    messages: int = 0
    entries: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        """Whether all of it can be, and somebody looked."""
        return not self.wrong and self.verdict is not None and self.verdict.good


class KvCampaign:
    """Two views of ``broker``, clients of both in a namespace of the seed's own, and what happens to them."""

    def __init__(
        self, work: Path, broker: Broker, seed: int, *, keys: Sequence[bytes] = POOL, **settings: object
    ) -> None:
        """``settings``: of both views."""
        work.mkdir(parents=True, exist_ok=True)
        self.work, self.broker, self.seed = work, broker, seed
        self.chance = random.Random(seed)
        self.outcome = KvOutcome(seed)
        self.history = History()
        self.namespace = f"soak-{seed}-{os.getpid()}"
        self.views = [
            ViewProcess(work, broker, name, **{**FAST, "kv.store": store, **settings})
            for name, store in zip(("one", "two"), STORES, strict=True)
        ]
        self._keys = list(keys)
        self.workload: Workload
        self._actions: dict[str, tuple[int, Callable[[], None]]] = {
            "view killed": (5, self.kill_view),
            "store emptied": (3, self.empty_view),
            "view paused": (4, self.pause_view),
            "broker paused": (2, self.pause_broker),
            "broker killed": (1, self.kill_broker),
            "quiet": (2, lambda: self.rest(0.5)),
        }

    # ---- the whole

    def run(self, seconds: float, once: Sequence[str] = FAULTS, *, acknowledged: int = 0) -> KvOutcome:
        """So long, and each fault of ``once`` at least once, and, if a machine is slow, in peace until so many writes to keys
        of their own are acknowledged; then everything is looked at."""
        began = time.monotonic()
        try:
            self._begin()
            self.workload = workload = Workload(self._clients(), PAUSE_SECONDS).start()
            due = self.chance.sample(once, len(once))
            try:
                while due or time.monotonic() - began < seconds:
                    self.rest(self.chance.random() * 0.4)
                    self.act(due.pop() if due else self._drawn())
                while self._acknowledged() < acknowledged and time.monotonic() - began < AGAIN_SECONDS:
                    self.rest(0.1)
            finally:
                workload.end()
            for client in workload.clients:
                self.outcome.errors += client.errors
            self._finish()
        finally:
            for view in self.views:
                view.end()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def _begin(self) -> None:
        for view in self.views:
            view.start()
        first = self.views[0].values()
        first.create(self.namespace)
        self._alone(first, Asked("put", (b"once/first",), value=b"first"))

    def _clients(self) -> list[Recorded]:
        return [
            self._client(view, number * CLIENTS + of)
            for number, view in enumerate(self.views)
            for of in range(CLIENTS)
        ]

    def _client(self, view: ViewProcess, number: int) -> Recorded:
        chance = random.Random(f"{self.seed}/{number}")
        chooser = Chooser(number, chance, self._keys, prefix=b"k/", once=b"once/%d/" % number)
        return Recorded(view.values(10.0), self.namespace, chooser, self.history, lambda: view.shown_by)

    def _drawn(self) -> str:
        return self.chance.choices(list(self._actions), [weight for weight, _ in self._actions.values()])[0]

    # ---- what happens

    def act(self, name: str) -> None:
        """One fault, over when it returns."""
        self._actions[name][1]()
        self.outcome.actions[name] += 1

    def rest(self, seconds: float) -> None:
        """Nothing."""
        time.sleep(seconds)

    def kill_view(self) -> None:
        """kill -9, and start."""
        view = self.chance.choice(self.views)
        view.kill()
        self.rest(self.chance.random() * 0.3)
        view.start(ready=self.chance.random() < 0.7)

    def empty_view(self) -> None:
        """The same, and its store is gone: it begins with the log's first message."""
        view = self.chance.choice(self.views)
        view.kill()
        view.empty()
        view.start(ready=self.chance.random() < 0.7)

    def pause_view(self) -> None:
        """SIGSTOP for a moment, or for longer than its writes wait."""
        view = self.chance.choice(self.views)
        view.pause()
        self.rest(self.chance.choice((0.1, 0.5, 2.0)))
        view.resume()

    def pause_broker(self) -> None:
        """SIGSTOP of the broker."""
        os.kill(self.broker.pid, signal.SIGSTOP)
        self.rest(self.chance.choice((0.1, 0.5, 2.0)))
        os.kill(self.broker.pid, signal.SIGCONT)

    def kill_broker(self) -> None:
        """kill -9 of the broker, and start: what it acknowledged is in the page cache."""
        self.broker.kill()
        self.rest(self.chance.random() * 0.5)
        self.broker.start()

    # ---- what must hold

    def _finish(self) -> None:
        """Read everything from both views, and hold all of it against the log."""
        for view in self.views:
            if not view.alive:
                view.start()
            view.wait_ready()
        found = [self._all(view) for view in self.views]
        for view in self.views:
            for key in self._keys:
                self._alone(view.values(), Asked("get", (key,)))
        outcome, history = self.outcome, self.history
        plain = PlainLog.of(records(self.broker.store_dir), "KV_" + self.namespace)
        outcome.messages, outcome.entries = plain.next, len(plain.last())
        outcome.outcomes = Counter(each.outcome for each in history.operations if each.writes)
        for view, held in zip(self.views, found, strict=True):
            self._hold(view, held, plain)
            outcome.wrong += self._lost(view.name, held)
            if "Traceback" in (said := view.log.read_text()):
                outcome.wrong.append(f"view {view.name}: {said[said.index('Traceback') :][:2000]}")
        outcome.wrong += against(plain, history) + went_back(history.operations)
        [outcome.verdict] = checked([history.save(self.work / f"history-{self.seed}.jsonl")])

    def _hold(self, view: ViewProcess, held: dict[str, tuple[int, str]], plain: PlainLog) -> None:
        """What a view has against what the log comes to."""
        wanted = {key: entry.shown for key, entry in plain.last().items()}
        wrong = {key for key in held.keys() | wanted if held.get(key) != wanted.get(key)}
        if wrong:
            told = f"view {view.name} has other entries than the log: {sorted(wrong)[:5]}"
            self.outcome.wrong.append(told)

    def _lost(self, name: str, held: dict[str, tuple[int, str]]) -> list[str]:
        """Puts to keys of their own that a client was answered for, and that are not there. Where the first try had no answer
        and the client asked again, word for word, the first may have come into the log last."""
        once = self._once()
        self.outcome.actions["acknowledged once and for all"] = len(once)
        tried = {each.key for each in self.history.operations if each.outcome == UNKNOWN}
        return [
            f"view {name} lost {each}"
            for each in once
            if not _is_there(each, held.get(each.key), again=each.key in tried)
        ]

    def _once(self) -> list[Operation]:
        beginning = b"once/".hex()
        return [
            each for each in tuple(self.history.operations) if each.key.startswith(beginning) and each.applied
        ]

    def _acknowledged(self) -> int:
        return len(self._once())

    def _all(self, view: ViewProcess, namespace: str = "") -> dict[str, tuple[int, str]]:
        """Every entry that a view has now, page by page."""
        found: list[Entry] = []
        after: bytes | None = None
        until = time.monotonic() + AGAIN_SECONDS
        while True:
            try:
                page = view.values().page(
                    namespace or self.namespace, b"", after=after, count=500, rule=LATEST
                )
            except TieredError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
                continue
            found += page.entries
            after = page.after
            if after is None:
                return {entry.key.hex(): (entry.version, digest(entry.value)) for entry in found}

    def _alone(self, values: object, asked: Asked) -> None:
        """A call that must be answered, in time."""
        client = Recorded(
            values, self.namespace, Chooser(99, self.chance, self._keys), self.history, lambda: "last"  # type: ignore[arg-type]
        )  # fmt: skip
        until = time.monotonic() + AGAIN_SECONDS
        while not client.ask(asked):
            if time.monotonic() > until:
                raise AssertionError(f"{asked} is not answered: {client.errors}")
            time.sleep(0.1)


def _is_there(put: Operation, found: tuple[int, str] | None, *, again: bool) -> bool:
    """Whether ``found``, version and value, is what ``put`` put; ``again``: or what another try of the same put did."""
    if found is None or put.version is None:
        return False
    version, value = found
    return value == put.value and (version == put.version or (again and version > put.version))


def shown(outcome: KvOutcome) -> Table:
    """One campaign as a table."""
    table = Table(title=f"seed {outcome.seed}, {outcome.seconds:.0f} s", show_header=False)
    for name, count in outcome.actions.items():
        table.add_row(name, f"{count:,}")
    table.add_row("messages in the log", f"{outcome.messages:,}")
    writes = outcome.outcomes
    told = f"{writes.total():,}, of them unknown {writes[UNKNOWN]:,}, failed {writes[FAILED]:,}"
    table.add_row("writes", told)
    if outcome.verdict is not None:
        table.add_row("operations checked", f"{outcome.verdict.operations:,}")
        table.add_row("verdict", f"[{'green' if outcome.verdict.good else 'red'}]{outcome.verdict.verdict}")
    return table
