"""Memory is bounded by settings, not by load (S13): measured as resident memory of the daemon's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.daemonproc import Daemon
from tests.kit.faultbroker import KIB, FaultBroker
from tests.kit.oracle import compare, opened
from tiered.archive.read.verify import Verifier
from tiered.settings import Dispatch, State

MIB = 1024 * KIB
BACKLOG_BYTES = 640 * MIB
ALLOCATOR_BYTES = 48 * MIB
"""Arenas, thread stacks and what numpy and zstd keep for themselves."""


def bound_bytes(flush_bytes: int, *, depth: int = Dispatch().pipeline_flushes, largest: int = 0) -> int:
    """Most that archiving may add: each flush under way and the one in preparation hold their bytes about twice (the private
    copy, its blocks), and the cached fold and the tables have caches of their own."""
    size = max(flush_bytes, largest)
    return (depth + 1) * 2 * size + 2 * largest + State().cache_bytes + ALLOCATOR_BYTES


def idle_rss(daemon: Daemon, broker: FaultBroker) -> int:
    """Resident memory once the daemon runs and has nothing to do."""
    daemon.wait_archived(broker.physical_offset)
    return daemon.rss_bytes()


@pytest.mark.slow
def test_backlog_far_larger_than_the_bound(tmp_path: Path) -> None:
    idle = FaultBroker.started(tmp_path / "idle", 10)
    resting = Daemon(
        tmp_path, tmp_path / "idle", f"file://{tmp_path / 'idle-archive'}", name="resting", fork=False
    )
    with resting.running():
        base = idle_rss(resting, idle)
        assert resting.stop() == 0
    idle.close()
    broker = FaultBroker(
        tmp_path / "store", queues=16, body_bytes=1024, file_bytes=64 * MIB, vary_bodies=False,
        queue_file_units=100_000,
    )  # fmt: skip
    broker.open()
    while broker.physical_offset < BACKLOG_BYTES:
        broker.append(50_000)
    daemon = Daemon(
        tmp_path, tmp_path / "store", f"file://{tmp_path / 'archive'}", fork=False,
        **{"dispatch.group_commit_bytes": 16 * MIB, "dispatch.group_commit_interval_ms": 1000},
    )  # fmt: skip
    with daemon.running():
        daemon.wait_archived(broker.physical_offset, seconds=200)
        added = daemon.peak_rss_bytes() - base
        assert daemon.stop() == 0
    assert added <= bound_bytes(16 * MIB), f"{added / MIB:.0f} MiB over {base / MIB:.0f} MiB idle"
    assert bound_bytes(16 * MIB) < BACKLOG_BYTES / 2
    archive = opened(daemon.archive)
    assert sum(queue.messages for queue in archive.state.queues()) == sum(broker.next_offsets.values())
    broker.close()


def test_the_largest_message(tmp_path: Path) -> None:
    """4 MiB bodies, the broker's limit, among small ones."""
    broker = FaultBroker.started(tmp_path / "store", 50, file_bytes=16 * MIB)
    daemon = Daemon(
        tmp_path,
        tmp_path / "store",
        f"file://{tmp_path / 'archive'}",
        **{"dispatch.group_commit_bytes": 4 * MIB},
    )
    with daemon.running():
        base = idle_rss(daemon, broker)
        for _ in range(4):
            broker.append_bodies(3, 4 * MIB)
            broker.append(20)
            daemon.wait_archived(broker.physical_offset)
        added = daemon.peak_rss_bytes() - base
        assert daemon.stop() == 0, daemon.output()
    broker.oracle.look(broker.physical_offset)
    verdict = compare(daemon.archive, broker.oracle)
    assert verdict.good, verdict
    assert verdict.readable == 50 + 4 * 23
    assert max(len(record.data) for _, record in broker.oracle.records.values()) > 4 * MIB
    assert added <= bound_bytes(4 * MIB, largest=4 * MIB + 64 * KIB), f"{added / MIB:.0f} MiB"
    broker.close()


@pytest.mark.parametrize("inline_bytes", [0, 4 * MIB])
def test_messages_larger_than_a_group_commit_and_a_block(tmp_path: Path, inline_bytes: int) -> None:
    """A flush holds one message at least, however large; so does a block, an object and a commit."""
    broker = FaultBroker.started(tmp_path / "store", 20, file_bytes=4 * MIB)
    daemon = Daemon(
        tmp_path, tmp_path / "store", f"file://{tmp_path / 'archive'}", fork=False,
        **{
            "dispatch.group_commit_bytes": 64 * KIB, "dispatch.block_bytes": 4 * KIB,
            "dispatch.object_bytes": 64 * KIB, "dispatch.inline_bytes": inline_bytes,
        },
    )  # fmt: skip
    for size in (300 * KIB, 64 * KIB, 64 * KIB - 91, 1 * MIB):
        broker.append_bodies(2, size)
        broker.append(15)
    assert daemon.once() == 0, daemon.output()
    broker.oracle.look(broker.physical_offset)
    archive = opened(daemon.archive)
    verdict = compare(archive, broker.oracle)
    assert verdict.good, verdict
    assert verdict.readable == 20 + 4 * 17
    assert Verifier(archive).run(deep=True).sound
    broker.close()
