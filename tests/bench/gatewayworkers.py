"""A gateway of two workers beside one of a single process: hot pulls and sends, and cold groups at four places of a log.

One broker, first with all its messages, then with none but the newest; unmodified Java clients with a connection for each
thread, since a connection stays with one worker. Where there are cores enough the workers have one each, and broker and
clients the others; where there are not, the rows say so: more workers then gain only what broker and clients leave them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.coldpush import HEAP_MIB
from tests.bench.javaload import JavaLoad, Pushed, Way, cpu_seconds
from tests.bench.run import NoFigure, Row, once, whole
from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.coldscene import ColdScene
from tests.kit.daemonproc import wait_for
from tests.kit.gatewayproc import Gateway
from tests.kit.realdaemon import expire, settled_minimums

TOPIC = "Bench"
QUEUES = 8
PLACES = 4
WORKERS = 2
MIB = 1 << 20
FREE = "≥ 1.6 where cores are free"


@dataclass(frozen=True, slots=True)
class Cores:
    """Which cores the workers have, and which broker and clients; without ``apart`` all have all."""

    workers: Sequence[int]
    others: Sequence[int]
    apart: bool

    @classmethod
    def found(cls) -> Cores:
        """Of this machine: a core for each worker and as many for the rest, or none apart."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2 * WORKERS:
            return cls(cores, cores, False)
        return cls(cores[:WORKERS], cores[WORKERS:], True)

    def __str__(self) -> str:
        """As rows say it."""
        if self.apart:
            return f"a core a worker, {len(self.others)} for broker and clients"
        return f"{len(self.others)} cores for all: not free"


def pin(pid: int, cores: Sequence[int]) -> None:
    """Every thread that a process has now, and so those that it makes later."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), cores)


@contextmanager
def others_apart(cores: Cores, broker: Broker) -> Iterator[None]:
    """The broker, and whatever this process starts, on the cores that are not the workers'."""
    before = os.sched_getaffinity(0)
    pin(broker.pid, cores.others)
    os.sched_setaffinity(0, cores.others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pids_of(gateway: Gateway) -> list[int]:
    """Of the processes that carry bytes."""
    if gateway.workers == 1:
        return [gateway.child.pid]
    return [worker["pid"] for worker in gateway.status()["workers"].values()]


@dataclass(slots=True)
class Scene:
    """A broker and its archive."""

    work: Path
    names: NameServer
    broker: Broker
    java: JavaLoad
    cores: Cores
    messages: int
    url: str = ""

    def fill(self) -> None:
        """Produce and archive."""
        self.broker.create_topic(TOPIC, QUEUES)
        self.broker.client().run(
            "produce", topic=TOPIC, n=self.messages, queues=QUEUES, min=1024, max=1024, threads=4, batch=16, digest=0,
            heap_mib=512, seconds=300.0,
        )  # fmt: skip
        self.url = f"file://{self.work / 'archive'}"
        self.archive()

    def archive(self) -> None:
        """All that the broker has."""
        sets = ("hold.max_disk_percent=99", "archive.takeover_wait_ms=0")
        once(self.broker.store_dir, self.url, self.work / "state", *sets)

    @contextmanager
    def gateway(self, workers: int, name: str) -> Iterator[Gateway]:
        """One that has read nothing yet, with its archive open."""
        settings = {"gateway.workers": workers}
        made = Gateway(self.work, self.names.address, self.url, name=name, **settings)  # type: ignore[arg-type]
        with made.running() as gateway:
            wait_for(gateway.archive_open, "the archive opened", 60)
            for pid, core in zip(pids_of(gateway), self.cores.workers, strict=False):
                pin(pid, [core] if self.cores.apart else self.cores.workers)
            yield gateway


# ---- hot


def hot(scene: Scene, slices: int) -> list[Row]:
    """Pulls and sends by each gateway in turn."""
    with scene.gateway(1, "one") as one, scene.gateway(WORKERS, "two") as two:
        rows = []
        for command, what in (("pull", "hot pull of 32 × 1 KiB"), ("send", "hot send of 1 KiB")):
            pids = [pids_of(one), pids_of(two)]
            before = [[cpu_seconds(pid) for pid in each] for each in pids]
            found = scene.java.in_turn(
                command,
                TOPIC,
                [one.address, two.address],
                threads=QUEUES,
                clients=QUEUES,
                batch=32,
                slices=slices,
            )
            used = [
                [cpu_seconds(pid) - cpu for pid, cpu in zip(each, was, strict=True)]
                for each, was in zip(pids, before, strict=True)
            ]
            rows += _hot_rows(f"{what}, {QUEUES} threads, a connection each", scene.cores, found, used)
        return rows


def _hot_rows(what: str, cores: Cores, found: Sequence[Way], used: Sequence[Sequence[float]]) -> list[Row]:
    one, two = found
    each = [sum(cpu) / way.calls * 1e6 for cpu, way in zip(used, found, strict=True)]
    shares = " / ".join(f"{cpu / max(sum(used[1]), 1e-9):.2f}" for cpu in used[1])
    return [
        Row(
            f"{what}: two workers ({cores})",
            _rates(two),
            f"{_rates(one)} (one)",
            f"{two.median_rate / one.median_rate:.2f}",
            FREE,
        ),
        Row(
            "the same: CPU of the gateway a call; of each worker",
            f"{each[1]:.0f} µs; {shares}",
            f"{each[0]:.0f} µs (one)",
            f"{each[1] / each[0]:.2f}",
            "report",
        ),
    ]


def _rates(way: Way) -> str:
    return f"{way.median_rate:,.0f} ({min(way.rates):,.0f}–{max(way.rates):,.0f}) messages/s"


# ---- cold


@dataclass(frozen=True, slots=True)
class Reading:
    """Groups that read at once: messages a second of all together, CPU of broker and gateway a message, and of the clients,
    which are one process."""

    per_second: float
    cpu_each_us: float
    clients_each_us: float

    @classmethod
    def of(cls, pushed: Sequence[Pushed], cpu: float) -> Reading:
        """From the first batch of any to the last of any."""
        consumed = sum(one.consumed for one in pushed)
        seconds = max(one.begun + one.seconds for one in pushed) - min(one.begun for one in pushed)
        clients = max(one.cpu_seconds for one in pushed)
        return cls(consumed / seconds, cpu / consumed * 1e6, clients / consumed * 1e6)


class ColdGroups:
    """Groups at ``PLACES`` places of what the broker has deleted; each reads as far as the next one's place."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._minimums = settled_minimums(scene.broker, TOPIC, 60)
        self.messages = sum(low // PLACES for low in self._minimums.values())
        self._number = 0

    def read(self, groups: int, workers: int) -> Reading:
        """By a gateway that was just started; a round in which a group was not given all runs again."""
        return whole(lambda _: self._read(groups, workers))

    def _read(self, groups: int, workers: int) -> Reading:
        self._number += 1
        scene = self._scene
        placing = ColdScene(scene.work, scene.names, scene.broker)
        names = [f"cold-{self._number}-{place}" for place in range(groups)]
        for place, name in enumerate(names):
            placing.commit(name, {q: low // PLACES * place for q, low in self._minimums.items()}, TOPIC)
        with scene.gateway(workers, f"cold-{self._number}") as gateway:
            pids = [scene.broker.pid, *pids_of(gateway)]
            before = sum(map(cpu_seconds, pids))
            pushed = scene.java.push_all(TOPIC, gateway.address, names, self.messages, placed=1, idle=60)
            cpu = sum(map(cpu_seconds, pids)) - before
        for name, one in zip(names, pushed, strict=True):
            if one.consumed < self.messages or one.skipped:
                raise NoFigure(
                    f"{name}: {one.consumed} of {self.messages} came, {one.skipped} skipped: no figure"
                )
        return Reading.of(pushed, cpu)


def cold(scene: Scene, rounds: int) -> list[Row]:
    """One group, four groups, four groups by two workers, in turn."""
    groups = ColdGroups(scene)
    kinds = ((1, 1), (PLACES, 1), (PLACES, WORKERS))
    found: dict[tuple[int, int], list[Reading]] = {kind: [] for kind in kinds}
    for round_ in range(rounds):
        for kind in kinds if round_ % 2 == 0 else reversed(kinds):
            found[kind].append(groups.read(*kind))
    one, four, two = (found[kind] for kind in kinds)
    return [
        Row(
            f"{PLACES} cold groups at {PLACES} places, {groups.messages:,} messages each, one gateway ({scene.cores})",
            _reading(four),
            f"{_reading(one)} (one group)",
            _ratio(four, one),
            "≥ 1.5 on two cores",
        ),
        Row(f"the same {PLACES} groups, two workers", _reading(two), f"{_reading(four)} (one)", _ratio(two, four), FREE),
    ]  # fmt: skip


def _rate(found: Sequence[Reading]) -> float:
    return median(one.per_second for one in found)


def _reading(found: Sequence[Reading]) -> str:
    rates = [one.per_second for one in found]
    cpu = median(one.cpu_each_us for one in found)
    clients = median(one.clients_each_us for one in found)
    spread = f"{_rate(found):,.0f} ({min(rates):,.0f}–{max(rates):,.0f})/s"
    return f"{spread}, CPU each: {cpu:.0f} µs servers, {clients:.0f} µs clients"


def _ratio(found: Sequence[Reading], beside: Sequence[Reading]) -> str:
    pairs = [a.per_second / b.per_second for a, b in zip(found, beside, strict=True)]
    return f"{_rate(found) / _rate(beside):.2f} ({min(pairs):.2f}–{max(pairs):.2f})"


def gateway_workers(work: Path, messages: int, slices: int, rounds: int) -> list[Row]:
    """``messages`` of 1 KiB; ``slices`` of a second by each way while they are hot, ``rounds`` of cold groups."""
    file_bytes = max(4, messages // 8_000) * MIB
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(cache.ROCKETMQ_5, work / "ns"))
        broker = stack.enter_context(
            Broker(
                cache.ROCKETMQ_5,
                work / "broker",
                names,
                heap_mib=HEAP_MIB,
                mappedFileSizeCommitLog=file_bytes,
            )
        )
        scene = Scene(work, names, broker, JavaLoad(work / "java"), Cores.found(), messages)
        scene.fill()
        with others_apart(scene.cores, broker):
            rows = hot(scene, slices)
            once(
                broker.store_dir, scene.url, work / "state", "hold.max_disk_percent=99"
            )  # what was sent meanwhile
            expire(broker)
            return rows + cold(scene, rounds)
