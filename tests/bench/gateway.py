"""What the gateway's hop costs hot traffic, beside what a user would pick instead.

Unmodified Java clients and a real broker. One JVM goes directly, through the gateway, through HAProxy as a TCP proxy and by
RocketMQ's own Proxy (cluster mode, its remoting port) in turn, a second each, with the same number of threads; the order turns
round from round to round. Throughput, with every thread calling again at once, is the median of the slices; the time of calls
is measured at a rate that no way fills. CPU of the process in the middle is read from the kernel around each slice.

The Proxy 5.5.0 loses answers to pulls when four connections' worth of them are under way at once (seen: no answer within the
client's 10 s, and nothing in its log), so pulls through it have a run of their own, two threads by every way. What its gRPC
clients do is told beside, for information: they have a process of their own, after all others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.grpcload import GrpcRates, grpc_rates
from tests.bench.javaload import JavaLoad, Way
from tests.bench.neighbours import Absent, HaProxy
from tests.bench.run import Row, once
from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.gatewayproc import Gateway
from tests.kit.proxy import Proxy, create_typed_topic

TOPIC = "Bench"
QUEUES = 4
MIB = 1 << 20
SEND_PER_SECOND, PULL_PER_SECOND = 1000, 500
SEND_THREADS = 8
PROXY_PULL_THREADS = 2
DIRECT, GATEWAY, HAPROXY, PROXY = "directly", "gateway", "HAProxy", "RocketMQ's Proxy"


@dataclass(slots=True)
class Hop:
    """A broker whose messages are archived and not deleted, and what stands before it."""

    ways: dict[str, tuple[str, int]]
    """By name: address of the name server to ask, and process in the middle (0: none)."""
    java: JavaLoad
    haproxy_version: str = ""
    proxy: Proxy | None = None

    def in_turn(self, command: str, without: str = "", **options: object) -> dict[str, Way]:
        """Every way, but one."""
        ways = {name: way for name, way in self.ways.items() if name != without}
        pids = ",".join(str(pid) for _, pid in ways.values())
        found = self.java.in_turn(
            command, TOPIC, [address for address, _ in ways.values()], pids=pids, **options
        )
        return dict(zip(ways, found, strict=True))


@contextmanager
def hop(work: Path, messages: int) -> Iterator[Hop]:
    """Build it."""
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(cache.ROCKETMQ_5, work / "ns"))
        broker = stack.enter_context(
            Broker(cache.ROCKETMQ_5, work / "broker", names, heap_mib=768, mappedFileSizeCommitLog=256 * MIB,
                   mappedFileSizeConsumeQueue=6_000_000)
        )  # fmt: skip
        broker.create_topic(TOPIC, QUEUES)
        create_typed_topic(broker, TOPIC, QUEUES)
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
        gateway = stack.enter_context(Gateway(work, names.address, archive).running())
        scene = Hop(
            {DIRECT: (names.address, 0), GATEWAY: (gateway.address, gateway.child.pid)},
            JavaLoad(work / "java"),
        )
        try:
            haproxy = stack.enter_context(HaProxy(broker.address, names.address, work / "haproxy"))
            scene.ways[HAPROXY] = haproxy.address, haproxy.pid
            scene.haproxy_version = haproxy.version
        except Absent as error:
            print(f"not run: HAProxy beside the gateway: {error}", file=sys.stderr)
        if cache.installed(cache.PROXY):
            proxy = stack.enter_context(Proxy(broker, work / "proxy"))
            scene.ways[PROXY] = proxy.remoting_address, proxy.pid
            scene.proxy = proxy
        else:
            print(f"not run: {PROXY} beside the gateway: it is not installed", file=sys.stderr)
        yield scene


def gateway_hop(work: Path, slices: int, messages: int) -> list[Row]:
    """Hot sends and pulls of 32 messages of 1 KiB; ``slices`` of a second by each way."""
    with hop(work, messages) as scene:
        send: dict[str, Any] = {"threads": SEND_THREADS, "slices": slices}
        pull: dict[str, Any] = {"batch": 32, "slices": slices}
        rows = _added("send", SEND_PER_SECOND, scene.in_turn("send", rate=SEND_PER_SECOND, **send))
        sent = scene.in_turn("send", **send)
        rows += _throughput("send", SEND_THREADS, sent, scene.haproxy_version)
        rows += _added("pull", PULL_PER_SECOND, scene.in_turn("pull", PROXY, rate=PULL_PER_SECOND, **pull))
        pulled = scene.in_turn("pull", PROXY, **pull)
        rows += _throughput("pull", QUEUES, pulled, scene.haproxy_version)
        if scene.proxy is not None:
            few = scene.in_turn("pull", queues=PROXY_PULL_THREADS, **pull)
            rows += _throughput("pull", PROXY_PULL_THREADS, few, scene.haproxy_version)
            theirs = grpc_rates(work, scene.proxy.endpoint, TOPIC, seconds=slices, warm=max(1, slices // 3))
            rows += _grpc(theirs, sent[GATEWAY], pulled[GATEWAY])
        return rows


def _what(command: str) -> str:
    return "hot send of 1 KiB" if command == "send" else "hot pull of 32 × 1 KiB"


def _throughput(command: str, threads: int, full: dict[str, Way], version: str) -> list[Row]:
    ours = full[GATEWAY]
    goals = {DIRECT: "report", HAPROXY: "≥ 0.85" if command == "pull" else "report", PROXY: "≥ 2"}
    rates = [
        Row(
            f"{_what(command)}, {threads} threads: throughput",
            _rates(ours),
            f"{_rates(way)} ({name}{' ' + version if name == HAPROXY else ''})",
            f"{ours.median_rate / way.median_rate:.2f}",
            goals[name],
        )
        for name, way in full.items()
        if name != GATEWAY
    ]
    return rates + _cpu(command, full)


def _grpc(theirs: GrpcRates, sent: Way, pulled: Way) -> list[Row]:
    """RocketMQ's own other way in: what is received is acknowledged, message by message, where a pull needs no such thing."""
    return [
        Row(
            f"{what}, beside gRPC through RocketMQ's Proxy",
            _rates(ours),
            f"{rate:,.0f} messages/s ({how})",
            f"{ours.median_rate / max(rate, 1.0):.2f}",
            "report",
        )
        for what, ours, rate, how in (
            (f"{_what('send')}, {SEND_THREADS} threads", sent, theirs.sent, "send, as many threads"),
            (_what("pull"), pulled, theirs.received, "receive by 32 and acknowledge, 4 threads"),
        )
    ]


def _rates(way: Way) -> str:
    return f"{way.median_rate:,.0f} ({min(way.rates):,.0f}–{max(way.rates):,.0f}) messages/s"


def _added(command: str, rate: int, paced: dict[str, Way]) -> list[Row]:
    ours = paced[GATEWAY]
    return [
        Row(
            f"{_what(command)}, {rate} calls/s: time of a call, p50 / p99",
            f"{ours.p50_ms:.2f} / {ours.p99_ms:.2f} ms",
            f"{way.p50_ms:.2f} / {way.p99_ms:.2f} ms ({name})",
            f"{ours.p50_ms - way.p50_ms:+.2f} / {ours.p99_ms - way.p99_ms:+.2f} ms",
            {DIRECT: "p50 ≤ +0.25 ms", HAPROXY: "p99 ≤ +0.5 ms"}.get(name, "report"),
        )
        for name, way in paced.items()
        if name != GATEWAY
    ]


def _cpu(command: str, full: dict[str, Way]) -> list[Row]:
    """Of the process in the middle, for a request and its answer."""
    ours = full[GATEWAY].cpu_per_call_us
    return [
        Row(
            f"{_what(command)}: CPU of the process in the middle a call, full load",
            f"{ours:.0f} µs",
            f"{way.cpu_per_call_us:.0f} µs ({name})",
            f"{ours / way.cpu_per_call_us:.2f}" if way.cpu_per_call_us else "-",
            "≤ 2" if name == HAPROXY and command == "pull" else "report",
        )
        for name, way in full.items()
        if name not in (GATEWAY, DIRECT)
    ]
