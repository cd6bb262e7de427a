"""The gateway with unmodified Java clients on a real broker: what the hop costs hot traffic, and how fast cold messages come.

The hop is measured in one JVM that goes directly and through the gateway in turn, a second each, with the same number of
threads; the order changes from round to round. Time of calls is measured at a rate that neither way fills, throughput with
every thread calling again at once. The gateway's CPU is read from the kernel, frames from its metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.javaload import JavaLoad, Spent, Way
from tests.bench.run import Row, once
from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.gatewayproc import Gateway

TOPIC = "Bench"
QUEUES = 4
MIB = 1 << 20
SEND_PER_SECOND, PULL_PER_SECOND = 1000, 500
SEND_THREADS = 8


@dataclass(slots=True)
class Hop:
    """A broker whose messages are archived and not deleted, and a gateway before it."""

    direct: str
    gateway: Gateway
    java: JavaLoad

    def beside(self, command: str, **options: object) -> tuple[Way, Way, Spent]:
        """Directly, through the gateway, and what that cost the gateway."""
        before = Spent.of(self.gateway, self.gateway.child.pid)
        ways = (self.direct, self.gateway.address)
        direct, through = self.java.in_turn(command, TOPIC, ways, **options)
        return direct, through, Spent.of(self.gateway, self.gateway.child.pid).since(before)


@contextmanager
def hop(work: Path, messages: int) -> Iterator[Hop]:
    """Build it."""
    with (
        NameServer(cache.ROCKETMQ_5, work / "ns") as names,
        Broker(cache.ROCKETMQ_5, work / "broker", names, heap_mib=768, mappedFileSizeCommitLog=256 * MIB,
               mappedFileSizeConsumeQueue=6_000_000) as broker,
    ):  # fmt: skip
        broker.create_topic(TOPIC, QUEUES)
        broker.client().run(
            "produce",
            topic=TOPIC,
            n=messages,
            queues=QUEUES,
            min=1024,
            max=1024,
            threads=4,
            batch=16,
            digest=0,
        )
        archive = f"file://{work / 'archive'}"
        once(broker.store_dir, archive, work / "state", "hold.max_disk_percent=99")
        with Gateway(work, names.address, archive).running() as gateway:
            yield Hop(names.address, gateway, JavaLoad(work / "java"))


def gateway_hop(work: Path, slices: int, messages: int) -> list[Row]:
    """Hot sends and pulls of 32 messages of 1 KiB; ``slices`` of a second by each way."""
    with hop(work, messages) as scene:
        rows = []
        for command, rate, options in (
            ("send", SEND_PER_SECOND, {"threads": SEND_THREADS}),
            ("pull", PULL_PER_SECOND, {"batch": 32}),
        ):
            paced = scene.beside(command, slices=slices, rate=rate, **options)
            full = scene.beside(command, slices=slices, **options)
            rows += _rows(command, rate, paced, full)
        return rows


def _rows(command: str, rate: int, paced: tuple[Way, Way, Spent], full: tuple[Way, Way, Spent]) -> list[Row]:
    direct, through, cost = full
    slow, fast = paced[1], paced[0]
    what = "hot send of 1 KiB" if command == "send" else "hot pull of 32 × 1 KiB"
    threads = SEND_THREADS if command == "send" else QUEUES
    return [
        Row(
            f"{what}, {threads} threads: throughput",
            f"{through.messages_per_second:,.0f} messages/s",
            f"{direct.messages_per_second:,.0f} messages/s (directly)",
            f"{through.messages_per_second / direct.messages_per_second:.2f}",
            "≥ 0.7",
        ),
        Row(
            "… time of a call then, p50 / p99",
            f"{through.p50_ms:.2f} / {through.p99_ms:.2f} ms",
            f"{direct.p50_ms:.2f} / {direct.p99_ms:.2f} ms (directly)",
            f"+{through.p99_ms - direct.p99_ms:.2f} ms at p99",
            "-",
        ),
        Row(
            f"{what}, {rate} calls/s: time of a call, p50 / p99",
            f"{slow.p50_ms:.2f} / {slow.p99_ms:.2f} ms",
            f"{fast.p50_ms:.2f} / {fast.p99_ms:.2f} ms (directly)",
            f"+{slow.p99_ms - fast.p99_ms:.2f} ms at p99",
            "≤ +1 ms at p99",
        ),
        Row(
            f"{what}: CPU of the gateway, full load / {rate} calls/s",
            f"{cost.per_frame_us:.0f} / {paced[2].per_frame_us:.0f} µs a frame",
            "-",
            f"{cost.frames:,.0f} / {paced[2].frames:,.0f} frames",
            "report",
        ),
    ]
