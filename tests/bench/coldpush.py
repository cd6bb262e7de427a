"""A push consumer that reads a topic from its first message: RocketMQ's own tiered storage, and the broker behind the gateway.

One broker takes the messages with RocketMQ's tiered storage (POSIX provider, level FORCE) until its tier has them all; the
Java client reads them from there, with the cache it has by default and with one of 64 MiB. Then the broker runs without the
tier, the same client reads the broker's own warm files, the same commitlog is archived, the broker deletes it, and the same
client reads through the gateway, again with the default budget and with 64 MiB. Every read is a new group's first, on a process
that has read nothing yet.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.bench.javaload import JavaLoad, Pushed, cpu_seconds
from tests.bench.rocketmq import PLUGIN, QUEUES, TOPIC, in_tier
from tests.bench.run import NoFigure, Row, expect, once, whole
from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import wait_for
from tests.kit.gatewayproc import Gateway
from tests.kit.realdaemon import expire, settled_minimums
from tiered.settings import Fetch

MIB = 1 << 20
HEAP_MIB = 1024
THEIR_SHARE = 0.3  # of the heap: RocketMQ's default of ``readAheadCacheSizeThresholdRate``
SMALL_MIB = 64
TIER_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Read:
    """What the consumer was handed, and CPU seconds of all servers meanwhile."""

    pushed: Pushed
    cpu_seconds: float

    @property
    def cpu_each(self) -> float:
        """Microseconds a message."""
        return self.cpu_seconds / max(self.pushed.consumed, 1) * 1e6

    def __str__(self) -> str:
        """Rate, CPU and what is missing."""
        return (
            f"{self.pushed.per_second:,.0f}/s, {self.cpu_each:.0f} µs CPU each, {self.pushed.skipped} skipped"
        )


@dataclass(slots=True)
class Scene:
    """One broker, one client, the messages."""

    work: Path
    names: NameServer
    broker: Broker
    java: JavaLoad
    messages: int

    def fill(self) -> None:
        """Produce, and wait until the broker's own tier has everything."""
        self.broker.create_topic(TOPIC, QUEUES)
        self.broker.client().run(
            "produce", topic=TOPIC, n=self.messages, queues=QUEUES, min=1024, max=1024, threads=4, batch=16, digest=0,
            heap_mib=512, seconds=300.0,
        )  # fmt: skip
        wait_for(
            lambda: in_tier(self.work / "tier")[0] >= self.messages, "everything in the tier", TIER_SECONDS
        )

    def read(self, group: str, name_server: str, *pids: int) -> Read:
        """All of it, by a new group. A round in which not every message came is no figure: ``NoFigure``."""
        before = sum(map(cpu_seconds, pids))
        pushed = self.java.push(TOPIC, name_server, group, self.messages)
        expect(pushed.consumed, self.messages, f"messages came to {group}")
        expect(pushed.skipped, 0, f"messages were skipped by {group}")
        return Read(pushed, sum(map(cpu_seconds, pids)) - before)

    def theirs(self, group: str) -> Read:
        """From the broker's tier."""
        return whole(lambda number: self.read(f"{group}-{number}", self.names.address, self.broker.pid))

    def small_cache(self) -> None:
        """Run the broker again, with a small cache for its tier."""
        self.broker.set_conf("readAheadCacheSizeThresholdRate", SMALL_MIB / HEAP_MIB)
        self.broker.restart()

    def warm(self) -> Read:
        """From the broker's own files without a tier, read once before."""
        self.broker.set_conf("messageStorePlugIn", "")
        self.broker.restart()
        self.theirs("warming")
        return self.theirs("warm")

    def only_archived(self) -> str:
        """Archive the commitlog, and let the broker delete what it may."""
        url = f"file://{self.work / 'archive'}"
        once(self.broker.store_dir, url, self.work / "state", "hold.max_disk_percent=99")
        expire(self.broker)
        return url

    def deleted(self) -> int:
        """Messages that the broker has no more."""
        return sum(settled_minimums(self.broker, TOPIC, 60).values())

    def ours(self, url: str, name: str, budget_bytes: int = Fetch().budget_bytes) -> Read:
        """Through a gateway that was just started; a round that was not whole runs again, on another."""
        return whole(lambda number: self._ours(url, f"{name}-{number}", budget_bytes))

    def _ours(self, url: str, name: str, budget_bytes: int) -> Read:
        with Gateway(
            self.work,
            self.names.address,
            url,
            name=name,
            **{"fetch.budget_bytes": budget_bytes},  # type: ignore[arg-type]
        ).running() as gateway:
            wait_for(lambda: gateway.metric("tiered_gateway_archive_open") == 1.0, "the archive opened", 60)
            try:
                return self.read(name, gateway.address, self.broker.pid, gateway.child.pid)
            except NoFigure:  # a consumer that was given less is worth a look
                print(gateway.child.output(), self.java.client_log(), sep="\n", file=sys.stderr)
                raise


def gateway_cold(work: Path, messages: int) -> list[Row]:
    """``messages`` of 1 KiB on 8 queues, four reads from the first one."""
    conf: dict[str, object] = {
        **PLUGIN, "mappedFileSizeCommitLog": max(4, messages // 8_000) * MIB,
        "readAheadCacheSizeThresholdRate": THEIR_SHARE,
    }  # fmt: skip
    with (
        NameServer(cache.ROCKETMQ_5, work / "ns") as names,
        Broker(
            cache.ROCKETMQ_5,
            work / "broker",
            names,
            heap_mib=HEAP_MIB,
            tieredStoreFilePath=work / "tier",
            **conf,  # type: ignore[arg-type]
        ) as broker,
    ):  # fmt: skip
        scene = Scene(work, names, broker, JavaLoad(work / "java"), messages)
        scene.fill()
        theirs = scene.theirs("theirs")
        scene.small_cache()
        theirs_small = scene.theirs("theirs-small")
        warm = scene.warm()
        url = scene.only_archived()
        cold = scene.deleted()
        ours = scene.ours(url, "ours")
        ours_small = scene.ours(url, "ours-small", SMALL_MIB * MIB)
    return _rows(messages, cold, (ours, ours_small), (theirs, theirs_small), warm)


def _ratio(read: Read, beside: Read) -> str:
    return f"{read.pushed.per_second / max(beside.pushed.per_second, 1):.2f}"


def _cpu_ratio(read: Read, beside: Read) -> str:
    return f"{read.cpu_each / beside.cpu_each:.2f}"


def _rows(
    messages: int, cold: int, ours: tuple[Read, Read], theirs: tuple[Read, Read], warm: Read
) -> list[Row]:
    held = f"{THEIR_SHARE * HEAP_MIB:.0f} MiB"
    return [
        Row(
            f"push consumer from offset 0, {messages:,} messages of 1 KiB, {cold:,} of them deleted by the broker",
            str(ours[0]),
            f"{theirs[0]} (RocketMQ's own tier, cache {held})",
            _ratio(ours[0], theirs[0]),
            "≥ 2",
        ),
        Row(
            f"the same, cache of {SMALL_MIB} MiB",
            str(ours[1]),
            f"{theirs[1]} (RocketMQ's own tier)",
            _ratio(ours[1], theirs[1]),
            "≥ 6",
        ),
        Row(
            "the same two: CPU of all servers a message",
            f"{ours[0].cpu_each:.0f} / {ours[1].cpu_each:.0f} µs",
            f"{theirs[0].cpu_each:.0f} / {theirs[1].cpu_each:.0f} µs",
            f"{_cpu_ratio(ours[0], theirs[0])} / {_cpu_ratio(ours[1], theirs[1])}",
            "≤ 0.6",
        ),
        Row(
            "push consumer from offset 0, default caches",
            str(ours[0]),
            f"{warm} (the broker's own warm files)",
            _ratio(ours[0], warm),
            "≥ 0.6",
        ),
        Row(
            f"cache of {SMALL_MIB} MiB beside the default",
            f"{_ratio(ours[1], ours[0])} of the rate",
            f"{_ratio(theirs[1], theirs[0])} of the rate (RocketMQ's own tier)",
            "-",
            "no collapse",
        ),
    ]
