"""RocketMQ's own tiered storage (POSIX provider, defaults, level FORCE) and this daemon beside each other on one real broker.

Both follow the same broker's store while the Java client sends; the clock that counts starts with the last acknowledged
message. The net rates compare what each moves per second while it moves anything: the broker's tier as its files grow,
the daemon archiving the same commitlog once more into an empty archive.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.run import Row, expect, idle_run, once
from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import Daemon
from tests.kit.oracle import opened
from tiered.archive.state.view import ArchiveState
from tiered.metadata.memory import MemoryStore

TOPIC = "Bench"
QUEUES = 8
SAMPLE_SECONDS = 0.1
WAIT_SECONDS = 120.0
MIB = 1 << 20

PLUGIN: dict[str, object] = {
    "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
    "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
    "tieredStorageLevel": "FORCE",
    "timerWheelEnable": "false",
    "mappedFileSizeCommitLog": 256 * MIB,
    "mappedFileSizeConsumeQueue": 6_000_000,
}


@dataclass(slots=True)
class Growth:
    """What a sampler saw: (seconds, messages, bytes) whenever something had changed."""

    samples: list[tuple[float, int, int]] = field(default_factory=list)

    def complete_at(self, messages: int) -> float | None:
        """When ``messages`` were there."""
        return next((at for at, found, _ in self.samples if found >= messages), None)

    def bytes_per_second(self) -> float:
        """Bytes over the time in which they grew: the pauses between sweeps do not count."""
        grown, seconds = 0, 0.0
        for (before, _, low), (after, _, high) in zip(self.samples, self.samples[1:], strict=False):
            if high > low:
                grown += high - low
                seconds += min(after - before, 2 * SAMPLE_SECONDS)
        return grown / seconds if seconds else 0.0


def watch(
    look: Callable[[], tuple[int, int]], growth: Growth, stop: threading.Event, enough: int
) -> threading.Thread:
    """Sample ``look`` in a thread until ``enough`` messages are there."""

    def loop() -> None:
        last = (-1, -1)
        while not stop.is_set():
            found = look()
            if found != last:
                growth.samples.append((time.monotonic(), *found))
                last = found
            if found[0] >= enough:
                return
            stop.wait(SAMPLE_SECONDS)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    return thread


def in_tier(directory: Path) -> tuple[int, int]:
    """Messages (20-byte consume-queue units) and commitlog bytes of the topic in the broker's own tier."""
    units = size = 0
    for folder, _, names in os.walk(directory):
        if f"/{TOPIC}/" not in folder + "/":
            continue
        for name in names:
            try:
                length = os.stat(os.path.join(folder, name)).st_size
            except OSError:
                continue
            if "/CONSUME_QUEUE/" in folder + "/":
                units += length // 20
            elif "/COMMIT_LOG/" in folder + "/":
                size += length
    return units, size


def in_broker(broker: Broker) -> int:
    """Messages of the topic that the broker acknowledged."""
    return sum(broker.offsets(TOPIC, queue).stop for queue in range(QUEUES))


class InArchive:
    """Messages and bytes of the topic that a reader of the bucket finds, told by nobody but the bucket."""

    def __init__(self, url: str) -> None:
        self._archive = opened(url)
        self._fold = MemoryStore()

    def __call__(self) -> tuple[int, int]:
        self._archive.log.fold(self._fold)
        queues = list(ArchiveState(self._fold).queues(TOPIC))
        return sum(q.messages for q in queues), sum(q.bytes for q in queues)


def rocketmq_tiered(work: Path, messages: int) -> list[Row]:
    """Produce ``messages`` of 1 KiB over 8 queues; when has each of the two everything, and how fast was it."""
    idle = idle_run(work)
    tier, url = work / "tier", f"file://{work / 'archive'}"
    theirs, ours, broker_has, stop = Growth(), Growth(), Growth(), threading.Event()
    with (
        NameServer(cache.ROCKETMQ_5, work / "ns") as names,
        Broker(
            cache.ROCKETMQ_5, work / "broker", names, heap_mib=1024, tieredStoreFilePath=tier, **PLUGIN
        ) as broker,
    ):
        broker.create_topic(TOPIC, QUEUES)
        settings = {"dispatch.group_commit_interval_ms": 1000, "source.confirm_reread_ms": 200}
        daemon = Daemon(work, broker.store_dir, url, name="beside", **settings)
        with daemon.running():
            watches = [
                watch(lambda: (in_broker(broker), 0), broker_has, stop, messages),
                watch(lambda: in_tier(tier), theirs, stop, messages),
                watch(InArchive(url), ours, stop, messages),
            ]
            load = broker.client().start(
                "produce", topic=TOPIC, n=messages, queues=QUEUES, min=1024, max=1024, threads=4, batch=16, digest=0, seed=5,
                heap_mib=512,
            )  # fmt: skip
            load.wait(300.0)
            deadline = time.monotonic() + WAIT_SECONDS
            for thread in watches:
                thread.join(max(1.0, deadline - time.monotonic()))
            stop.set()
            daemon.stop()
    sent = broker_has.complete_at(messages)
    assert sent is not None, "the broker never had all messages"
    again = once(
        broker.store_dir, f"file://{work / 'again'}", work / "again-state", "hold.max_disk_percent=99"
    )
    expect(ours.samples[-1][1], messages, "messages are in the archive beside the broker")
    expect(InArchive(f"file://{work / 'again'}")()[0], messages, "messages are in the archive made again")
    return _rows(messages, sent, theirs, ours, (again.seconds - idle.seconds, ours.samples[-1][2]))


def _rows(messages: int, sent: float, theirs: Growth, ours: Growth, again: tuple[float, int]) -> list[Row]:
    their_end, our_end = theirs.complete_at(messages), ours.complete_at(messages)
    their_wait = (their_end or sent + WAIT_SECONDS) - sent
    our_wait = (our_end or sent + WAIT_SECONDS) - sent
    their_rate, our_rate = theirs.bytes_per_second(), again[1] / again[0]
    more = "" if their_end is not None else "more than "
    return [
        Row(
            f"{messages:,} messages of a real broker: all there after the last send",
            f"{our_wait:.1f} s" if our_end is not None else f"more than {our_wait:.0f} s",
            f"{more}{their_wait:.1f} s (RocketMQ's own tier, POSIX)",
            f"{their_wait / max(our_wait, SAMPLE_SECONDS):.0f} × sooner",
            "≥ 20 × sooner",
        ),
        Row(
            "the same commitlog, net rate",
            f"{our_rate / 1e6:.0f} MB/s",
            f"{their_rate / 1e6:.0f} MB/s (RocketMQ's own tier, while it grew)",
            f"{our_rate / their_rate:.2f}" if their_rate else "-",
            "≥ 2",
        ),
    ]
