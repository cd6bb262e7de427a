"""A month of traffic in seconds: a broker, the daemon's way in and its maintenance in one thread, under a simulated clock.

The archive lies in memory while it ages, so that the store's clock is the simulated one too; ``write`` puts it into a directory
where other programs read it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.kit.assemble import KEYS, Assembly, Counting, assemble
from tests.kit.contents import Contents, Queue, digest
from tests.kit.merging import AtOnceTurn
from tests.kit.pipeline import Crafted
from tiered.archive.log.maintenance import OwnKeys, Task
from tiered.archive.rewrite.collection import Collection
from tiered.clock import ManualClock
from tiered.daemon.checkpointer import Checkpointer
from tiered.daemon.maintenance import tasks_of
from tiered.metadata.memory import MemoryStore
from tiered.provider.memory import MemoryProvider
from tiered.settings import Archive, Settings

DAY_SECONDS = 86_400
SEALED_LEVEL = 2
TOPICS: Mapping[str, int] = {"Orders": 4, "Payments": 4, "Clicks": 8}
"""Topics and their queues. ``Clicks`` is the one that retention shortens."""
_WORDS = (
    "paid",
    "sent",
    "late",
    "gone",
    "home",
    "item",
    "card",
    "order",
    "price",
    "euro",
    "total",
    "first",
    "again",
    "north",
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """How much a day is: flushes, and messages in each."""

    flushes_a_day: int = 24
    messages_a_flush: int = 100


@dataclass
class Month:
    """The broker, its daemon and the tasks; ``requests`` counts what the store was asked, by verb."""

    broker: Crafted
    provider: Counting
    clock: ManualClock
    daemon: Assembly
    tasks: tuple[Task, ...]
    saver: Checkpointer
    traffic: Traffic
    chance: random.Random
    done: dict[str, dict[str, int]] = field(default_factory=dict)

    def day(self) -> None:
        """A day of traffic; maintenance whenever a task says that it is due, a checkpoint at its end."""
        step = DAY_SECONDS / self.traffic.flushes_a_day
        for _ in range(self.traffic.flushes_a_day):
            began = self.clock.monotonic()
            self._send()
            self.daemon.settle(1.0)
            self.clock.advance(max(0.0, step - (self.clock.monotonic() - began)))
            self.maintain()
        self.saver.count()
        self.saver.step()

    def maintain(self) -> None:
        """Every task that is due, until it has nothing more to do."""
        for task in self.tasks:
            if task.due(self.clock.monotonic()):
                self._run(task)

    def sweep(self, grace_seconds: float) -> None:
        """The end: what was named for deletion and has waited long enough goes."""
        self.clock.advance(grace_seconds)
        for task in self.tasks:
            if isinstance(task, Collection):
                self._run(task)

    def expire(self, kept_files: int) -> None:
        """The broker deletes its oldest files."""
        while len(self.broker.bases()) > kept_files:
            self.broker.delete_oldest()

    def objects(self) -> dict[str, tuple[int, int]]:
        """Objects and bytes in the bucket, by kind of key."""
        found: dict[str, tuple[int, int]] = {}
        for item in self.provider.inner.list(KEYS.key("")):
            kind = str(KEYS.path(item.key)).split("/")[0]
            count, total = found.get(kind, (0, 0))
            found[kind] = count + 1, total + item.length
        return found

    def minimums(self) -> dict[Queue, int]:
        """First offset of each queue that the archive still has."""
        runs = self.daemon.state.runs_all()
        found: dict[Queue, int] = {}
        for run in runs:
            queue = run.queue.topic, run.queue.queue_id
            found[queue] = min(found.get(queue, run.start), run.start)
        return found

    def sealed(self) -> dict[Queue, range]:
        """Offsets of each queue that lie in Parquet files: those before the rest."""
        found: dict[Queue, range] = {}
        for run in self.daemon.state.runs_all():
            item = self.daemon.state.object(run.object)
            if item is not None and item.level == SEALED_LEVEL:
                queue = run.queue.topic, run.queue.queue_id
                old = found.get(queue, range(run.start, run.start))
                found[queue] = range(min(old.start, run.start), max(old.stop, run.end))
        return found

    def contents(self, kept: Callable[[Queue, int], bool]) -> Contents:
        """What was sent, of it the queues and offsets that were ``kept``."""
        return Contents.of(
            (m.topic, m.queue_id, m.queue_offset, digest(m.body))
            for m, _ in self.broker.sent
            if kept((m.topic, m.queue_id), m.queue_offset)
        )

    def live(self) -> Contents:
        """What was sent, from the archive's first offset of each queue on."""
        minimums = self.minimums()
        return self.contents(lambda queue, offset: offset >= minimums[queue])

    def in_files(self) -> Contents:
        """What was sent and lies in Parquet files."""
        sealed = self.sealed()
        return self.contents(lambda queue, offset: offset in sealed.get(queue, range(0)))

    def write(self, directory: Path) -> None:
        """The bucket as files, under the same keys."""
        for item in self.provider.inner.list(""):
            path = directory / item.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.provider.inner.get(item.key).data)

    def _send(self) -> None:
        self.broker.time_ms = self.clock.now_ms()
        names = list(TOPICS)
        for _ in range(self.traffic.messages_a_flush):
            number = len(self.broker.sent)
            topic = self.chance.choice(names)
            body = " ".join(self.chance.choices(_WORDS, k=60)).encode()
            self.broker.send(
                topic, self.chance.randrange(TOPICS[topic]), body,
                properties={"TAGS": f"tag-{number % 4}", "KEYS": f"key-{number}", "UNIQ_KEY": f"{number:032X}"},
            )  # fmt: skip

    def _run(self, task: Task) -> None:
        sums = self.done.setdefault(task.name, {})
        while True:
            done = task.run_once(AtOnceTurn(self.daemon))
            for name, value in done.figures.items():
                if isinstance(value, int):
                    sums[name] = sums.get(name, 0) + value
            if not done.more:
                return


def ageing(kept_days: int, *, commit_days: int = 7) -> Settings:
    """Maintenance as an operator sets it, with rounds that are worth their time here. ``kept_days``: of ``Clicks``;
    ``commit_days``: how long commits stay."""
    made = Settings()
    day_ms = DAY_SECONDS * 1000
    return replace(
        made,
        seal=replace(made.seal, enabled=True),
        maintenance=replace(made.maintenance, merge_interval_ms=day_ms // 4),
        retain=replace(
            made.retain, topics=(f"Clicks={kept_days}d",), interval_ms=day_ms, max_trim_percent=50
        ),
        gc=replace(made.gc, enabled="true", interval_ms=day_ms, commit_retention_ms=commit_days * day_ms),
    )


@contextmanager
def month(
    directory: Path, settings: Settings, *, start_ms: int, traffic: Traffic, file_bytes: int = 1 << 20
) -> Iterator[Month]:
    """An empty broker and archive at ``start_ms``, with the tasks that ``settings`` ask for."""
    clock = ManualClock(start_ms)
    broker = Crafted(directory / "store", file_bytes=file_bytes, time_ms=start_ms)
    provider = Counting(MemoryProvider("", clock))
    daemon = assemble(broker.store, provider, clock)
    try:
        own_keys = OwnKeys()
        tasks = tasks_of(daemon.log, clock, settings, own_keys)
        saver = Checkpointer(
            daemon.log, Archive(checkpoint_commits=1), clock, random.Random(1).randbytes,
            shadow=MemoryStore(), events=daemon.heard, own_keys=own_keys,
        )  # fmt: skip
        yield Month(broker, provider, clock, daemon, tasks, saver, traffic, random.Random(7))
    finally:
        daemon.close()
