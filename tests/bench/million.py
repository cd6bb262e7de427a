"""A million queues: archived, opened, rebuilt, one of them read; and one commit among them, RocksDB beside the JSON provider.

One archive, in the order of its life. Traffic: each queue has one message, then as many again by Zipf's law.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import uvloop

from tests.bench.manyqueues import COUNT
from tests.bench.millioncommit import committing
from tests.bench.nodes import SECONDS as NODE_SECONDS
from tests.bench.nodes import reads_of
from tests.bench.run import QUIET, TIERED, NoFigure, Row, idle_run
from tests.kit.daemonproc import Daemon
from tests.kit.measured import Measured, cpu_seconds, measure, peak_bytes
from tests.kit.nodeproc import ReadNode
from tiered.clock import SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.gateway.nodes.reads import Reads
from tiered.metrics import Metrics
from tiered.settings import Archive, Settings
from tiered.source.generator.store import topic_names
from tiered.store import MessageStore

BODY_BYTES = 64
TOPIC_QUEUES = 1000
MIB = 1 << 20
SECONDS = 1200.0
EXTRA = 1000
"""One message more for every so many queues, so that there is something to save."""
READ = 10_000
"""So many queues are read through one gateway."""
AT_ONCE = 64
"""Questions to a read node at one time."""
TOUCHED = 100
"""One queue of so many is touched by the commit that is measured."""


class Life:
    """One store of many queues and its archive."""

    def __init__(self, work: Path, queues: int) -> None:
        self.work = work
        self.queues = queues
        self.topics = max(1, queues // TOPIC_QUEUES)
        self.store, self.state = work / "store", work / "state"
        self.archive = f"file://{work / 'archive'}"
        self.topic = topic_names(self.topics, "DemoTopic")[self.topics // 2]

    def queue_names(self, every: int) -> tuple[list[str], list[int]]:
        """One queue of so many: topics and queue ids."""
        names = topic_names(self.topics, "DemoTopic")
        chosen = range(0, self.queues, every)
        return [names[at % self.topics] for at in chosen], [at // self.topics for at in chosen]

    def generate(self, messages: int) -> Measured:
        """So many messages more."""
        return generated(self.store, messages, self.topics, self.queues // self.topics)

    def once(self) -> Measured:
        """Everything that is new archived, from the state that is there."""
        places = ("--store", str(self.store), "--archive", self.archive, "--state", str(self.state))
        return measure((*TIERED, "run", "--once", *places, *QUIET))

    def opened(self) -> str:
        """Seconds and CPU until a daemon is ready, and its resident memory then; it is killed."""
        daemon = Daemon(self.work, self.store, self.archive, state=self.state, fork=False, **{"web.port": 0})
        started = time.monotonic()
        try:
            daemon.start(ready=False)
            daemon.wait_until(daemon.ready, "ready", SECONDS)
            seconds, resident = time.monotonic() - started, daemon.rss_bytes()
            return f"{seconds:.1f} s, {cpu_seconds(daemon.child.pid):.1f} s, {resident / MIB:.0f} MiB"
        finally:
            daemon.kill()

    def saved(self) -> tuple[float, float, int]:
        """Seconds and CPU until a daemon has saved a checkpoint of everything, and its peak memory; it is killed."""
        daemon = Daemon(
            self.work, self.store, self.archive, state=self.state, fork=False,
            **{"web.port": 0, "archive.checkpoint_commits": 1},
        )  # fmt: skip
        before = self._checkpoints()
        started = time.monotonic()
        try:
            daemon.start(ready=False)
            daemon.wait_until(lambda: bool(self._checkpoints() - before), "a checkpoint", SECONDS)
            pid = daemon.child.pid
            return time.monotonic() - started, cpu_seconds(pid), daemon.peak_rss_bytes()
        finally:
            daemon.kill()

    def _checkpoints(self) -> set[Path]:
        """Those that are there: not what is still being written beside them."""
        found = (self.work / "archive").rglob("checkpoint/*")
        return {path for path in found if not path.name.startswith(".")}

    def asked(self, *verb: str) -> tuple[Measured, int, int]:
        """A verb that reads: its cost, its GETs and what they brought."""
        told = self.work / "gets.json"
        command = (sys.executable, "-m", "tests.bench.counted", str(told), *verb, "--archive", self.archive)
        measured = measure(command)
        figures = json.loads(told.read_text())
        return measured, figures["gets"], figures["bytes"]


def generated(store: Path, messages: int, topics: int, queues: int) -> Measured:
    """Messages appended by ``tiered gen``."""
    command = [
        *TIERED, "gen", "--store", str(store), "--messages", str(messages), "--topics", str(topics), "--queues", str(queues),
        "--body-bytes", str(BODY_BYTES), "--file-bytes", "256MiB", "--zipf", "1", "--no-consume-queues",
    ]  # fmt: skip
    return measure(command)


def million(work: Path, queues: int) -> list[Row]:
    """Every figure of ``queues`` queues."""
    life = Life(work, queues)
    idle = idle_run(work)
    made = life.generate(queues)
    first = life.once()
    life.generate(queues)
    second = life.once()
    few = Life(work / "few", 64)
    few.generate(queues)
    base = few.once()
    shutil.rmtree(few.work)
    net = base.cpu_seconds - idle.cpu_seconds
    name = f"{queues:,} queues"
    rows = [
        Row(f"store of {name} made, a message each: time, CPU", _took(made), "-", "-", "-"),
        _rate(f"archiving their first messages, {name}", first, idle, queues, net, "-"),
        _rate(f"archiving as many again by Zipf's law, {name} known", second, idle, queues, net, "≥ 0.5"),
        _saving(life, name),
        *_reading(
            life, name
        ),  # before another daemon opens: its epoch is a commit, and a GET for who reads behind it
        *_opening(life, name),
    ]
    shutil.rmtree(life.store)
    rows += [
        *_gateway(life, name),
        _node(life, name),
        *committing(work, life.state, life.queue_names(TOUCHED), name),
    ]
    return rows


def _node(life: Life, name: str) -> Row:
    """A read node that knows nothing yet, asked for the beginnings of very many queues as a gateway asks."""
    topics, ids = life.queue_names(max(1, life.queues // READ))
    settings = replace(Settings(), archive=Archive(url=life.archive))
    with (
        ReadNode(life.work, life.archive, "node", fork=False).running() as node,
        ThreadPoolExecutor(4) as pool,
        ExitStack() as stack,
    ):
        store = MessageStore.open(settings, SystemClock(), Metrics(), stack=stack)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_beginnings(reads_of(store, pool, [node]), topics, ids))
        pid = node.child.pid
        peak, cpu = peak_bytes(pid), cpu_seconds(pid)
    if found < len(ids):
        raise NoFigure(f"{found} messages were given of {len(ids)} queues that have one each at least")
    what = f"a read node when {len(ids):,} queues were read, {name}: CPU with its start, peak memory"
    return Row(what, f"{cpu:.1f} s, {peak / MIB:.0f} MiB", "-", "-", "≤ 512 MiB")


async def _beginnings(reads: Reads, topics: list[str], ids: list[int]) -> int:
    """Messages at the beginnings of queues, so many queues at a time."""
    found = 0
    for first in range(0, len(ids), AT_ONCE):
        some = zip(topics[first : first + AT_ONCE], ids[first : first + AT_ONCE], strict=True)
        pulls = [Pull(ReaderId("bench"), topic, queue_id, 0, COUNT) for topic, queue_id in some]
        given = await asyncio.gather(*(reads.read(pull, None, NODE_SECONDS) for pull in pulls))
        found += sum(len(result.records) for result in given)
    return found


def _took(measured: Measured) -> str:
    return f"{measured.seconds:.1f} s, {measured.cpu_seconds:.1f} s, {measured.peak_bytes / 1e6:.0f} MB"


def _rate(what: str, ours: Measured, idle: Measured, messages: int, base_cpu: float, target: str) -> Row:
    """CPU of a message beside that of 64 queues; what a process costs anyway is left out of both."""
    cpu = ours.cpu_seconds - idle.cpu_seconds
    each, base = cpu / messages * 1e6, base_cpu / messages * 1e6
    return Row(
        f"{what}: CPU of a message, rate, peak memory",
        f"{each:.1f} µs, {messages / ours.seconds:,.0f}/s, {ours.peak_bytes / 1e6:.0f} MB",
        f"{base:.1f} µs (64 queues)", f"{base / each:.2f}", target,
    )  # fmt: skip


def _saving(life: Life, name: str) -> Row:
    life.generate(life.queues // EXTRA)
    took, cpu, peak = life.saved()
    return Row(
        f"a checkpoint of everything, from commits that were folded anew for it, {name}: time, CPU, peak memory",
        f"{took:.1f} s, {cpu:.1f} s, {peak / 1e6:.0f} MB", "-", "-", "-",
    )  # fmt: skip


def _opening(life: Life, name: str) -> list[Row]:
    opened = Row(
        f"daemon open, {name} known: ready after, CPU, resident", life.opened(), "-", "-", "≤ 2 s, ≤ 512 MiB"
    )
    shutil.rmtree(life.state / "metadata")
    what = f"the same without its metadata: rebuilt from the bucket, {name}"
    rebuilt = Row(what, life.opened(), "-", "-", "≤ 60 s")
    return [opened, rebuilt]


def _reading(life: Life, name: str) -> list[Row]:
    rows = []
    few, page = "≤ 1 s, ≤ 150 MB, ≤ 10", "≤ 1 s, ≤ 150 MB"
    for what, verb, target in (
        ("read of one queue", ("read", "--topic", life.topic, "--queue", "7"), few),
        ("queues of one topic", ("queues", "--topic", life.topic), few),
        ("topics, a page of 100", ("topics", "--limit", "100"), page),
        ("queues, a page of 100", ("queues", "--limit", "100"), page),
        ("status", ("status",), "≤ 5 s"),
    ):
        measured, gets, size = life.asked(*verb)
        rows.append(
            Row(
                f"tiered {what}, {name}: CPU, peak memory, GETs",
                f"{measured.cpu_seconds:.2f} s, {measured.peak_bytes / 1e6:.0f} MB, {gets} of {size / 1e6:.1f} MB",
                "-", "-", target,
            )
        )  # fmt: skip
    return rows


def _gateway(life: Life, name: str) -> list[Row]:
    """The first cold pull of a gateway that knows nothing yet, and then pulls of very many queues."""
    topics, ids = life.queue_names(max(1, life.queues // READ))
    said = subprocess.run(
        (sys.executable, "-m", "tests.bench.manyqueues", life.archive),
        input=json.dumps(list(zip(topics, ids, strict=True))), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    first, last = json.loads(said.stdout)
    gets = f"{first['gets']} of {first['bytes'] / 1e6:.1f} MB"
    least = len(ids)
    if last["messages"] < least:
        raise NoFigure(f"{last['messages']} messages were read of {least} queues that have one each at least")
    return [
        Row(
            f"first cold pull of a gateway, {name}: CPU with its start, peak memory, GETs",
            f"{first['cpu_seconds']:.2f} s, {first['peak_bytes'] / 1e6:.0f} MB, {gets}",
            "-", "-", "≤ 1 s, ≤ 150 MB, ≤ 10",
        ),
        Row(
            f"the same when {least:,} queues were read: CPU, peak memory, GETs",
            f"{last['cpu_seconds']:.1f} s, {last['peak_bytes'] / MIB:.0f} MiB, {last['gets']:,}", "-", "-", "≤ 512 MiB",
        ),
    ]  # fmt: skip
