"""Kill the daemon at every point where messages come to a sink, start it again, and read the destination from outside: each
message once, in the order of its queue. Meanwhile the broker writes on and deletes its oldest file."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import FaultBroker
from tiered.clock import SystemClock
from tiered.crashpoint import SinkPoint

SINKS = {
    **SMALL_FLUSHES,
    "sinks.look_ms": 100,
    "sinks.commit_ms": 100,
    "sinks.flush_ms": 20,
    "sinks.flush_bytes": 65_536,
}
POINTS = [(point, times) for point in SinkPoint for times in (1, 4)]


def received(out: Path) -> dict[tuple[str, int], list[int]]:
    """Physical offsets by queue, as the manifests of the destination say."""
    found: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for manifest in sorted((out / "copy" / "manifests").glob("[0-9]*.json")):
        for file in json.loads(manifest.read_bytes())["files"]:
            for line in (out / file["key"]).read_bytes().splitlines():
                message = json.loads(line)
                found[message["topic"], message["queue_id"]].append(message["physical_offset"])
    return dict(found)


@pytest.mark.parametrize(("point", "times"), POINTS)
def test_kill_restart_read(tmp_path: Path, point: SinkPoint, times: int) -> None:
    broker = FaultBroker.started(tmp_path / "store", 600)
    url, out = f"file://{tmp_path / 'archive'}", tmp_path / "out"
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **SINKS)
    assert daemon.once() == 0
    done = tiered(
        "sink", "add", "copy", "--kind", "file", "--option", f"location=file://{out}", "--archive", url
    )
    assert done.code == 0, done.err
    daemon.start(crash=point, times=times, ready=False)
    for _ in range(1200):
        if not daemon.alive:
            break
        broker.write(20)
        time.sleep(0.05)
    assert daemon.wait() == CRASHED, f"the daemon never reached {point.name} {times} times"
    broker.write(200)
    broker.expire(1)
    wanted = {
        queue: [record.physical_offset for record in records]
        for queue, records in broker.oracle.queues().items()
    }
    with daemon.running():
        end = broker.physical_offset

        def caught_up() -> bool:
            said = daemon.status().get("sinks", {}).get("sinks", [])
            return bool(said) and said[0]["position"] == end and said[0]["phase"] == "live"

        daemon.wait_until(caught_up, "everything is at the sink")
        (row,) = daemon.status()["sinks"]["sinks"]
        assert (row["lost_messages"], row["lost_at_source"], row["begun_anew"]) == (0, 0, 0)
        assert daemon.status()["sinks"]["progress"] is None
        assert daemon.stop() == 0, daemon.output()
    assert received(out) == wanted
    broker.close()


def test_begun_again_at_a_time(tmp_path: Path) -> None:
    """Messages of that time and later come again, each queue in its order, some before it, too; the daemon runs all the while,
    and is killed as soon as it was told."""
    broker = FaultBroker.started(tmp_path / "store", 300)
    url, out = f"file://{tmp_path / 'archive'}", tmp_path / "out"
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **SINKS)
    assert daemon.once() == 0
    done = tiered(
        "sink", "add", "copy", "--kind", "file", "--option", f"location=file://{out}", "--archive", url
    )
    assert done.code == 0, done.err

    def wanted() -> dict[tuple[str, int], list[int]]:
        queues = broker.oracle.queues().items()
        return {queue: [record.physical_offset for record in records] for queue, records in queues}

    with daemon.running():
        for _ in range(4):
            broker.write(100)
            daemon.wait_archived(broker.physical_offset)
        moment_ms = SystemClock().now_ms() + 1
        time.sleep(0.05)
        behind = broker.physical_offset
        broker.write(150)
        daemon.wait_until(lambda: received(out) == wanted(), "everything is at the sink")
        moment = datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
        done = tiered("sink", "rewind-to", "copy", moment, "--archive", url)
        assert done.code == 0, done.err
        daemon.kill()
        before = wanted()
        broker.write(50)
        daemon.start()
        ends = {queue: offsets[-1] for queue, offsets in wanted().items()}

        def again() -> bool:
            found = received(out)
            return all(found[queue][-1] == end for queue, end in ends.items()) and found != wanted()

        daemon.wait_until(again, "messages of then and later are at the sink again")
        assert daemon.stop() == 0, daemon.output()
    for queue, offsets in received(out).items():
        first, rest = offsets[: len(before[queue])], offsets[len(before[queue]) :]
        assert first == before[queue]
        assert rest == wanted()[queue][-len(rest) :], "a stretch up to the end, in its order"
        late = [offset for offset in wanted()[queue] if offset >= behind]
        assert set(late) <= set(rest)
        assert len(rest) < len(wanted()[queue]), "not everything"
    broker.close()
