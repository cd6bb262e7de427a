"""Archive lag beside a sink that is ten times too slow for the log, and beside one that throws everything away."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.lagageing import (
    LOOK_SECONDS,
    RATE,
    Look,
    Phase,
    caught_up,
    commits_of,
    lag_row,
    look_of,
    writing,
)
from tests.bench.live import GROUP_COMMIT
from tests.bench.run import NoFigure, Row
from tests.kit.daemonproc import Daemon
from tests.kit.pacedsinks import KIND, with_paced
from tests.kit.realdaemon import tiered
from tiered.clock import SystemClock
from tiered.source.generator.store import GeneratorOptions, StoreGenerator

QUEUES = 8
TIMES_TOO_SLOW = 10
SINK = "paced"


def sink_slow(work: Path, seconds: float) -> list[Row]:
    """A sink that takes all at once, a slow one, and the first again, each with a daemon and an archive of its own. Retention
    waits for the sink; settings are as they are by default, but orders of sinks are seen sooner."""
    environment = with_paced(work / "installed")
    phases, given = [], []
    for number, per_second in enumerate((0, RATE // TIMES_TOO_SLOW, 0)):
        phase, sink = _phase(work / f"{number}", environment, seconds, per_second)
        phases.append((phase, commits_of(work / f"{number}" / "archive")))
        given.append(int(sink["messages"]))
    wrote = [sum(batch.messages for batch in phase.batches) for phase, _ in phases]
    if any(given[at] < wrote[at] for at in (0, 2)) or given[1] * 2 > wrote[1]:
        raise NoFigure(f"of {wrote} messages the sinks had {given}: the one is not slow, or the others are")
    waits = [phase.waits(commits) for phase, commits in phases]
    lags = [phase.lags for phase, _ in phases]
    what, beside = (
        f"append → in the bucket, {RATE:,}/s, one sink {TIMES_TOO_SLOW} × too slow",
        "writing to null",
    )
    return [
        lag_row(f"{what}, p50", waits[1], waits[::2], 50, "-", beside=beside),
        lag_row("the same, p99", waits[1], waits[::2], 99, "≤ 1.2", beside=beside),
        lag_row("lag by /status, p99", lags[1], lags[::2], 99, "≤ 1.2", beside=beside),
        Row("messages that the sink had", f"{given[1]:,} of {wrote[1]:,}", f"{given[0]:,}, {given[2]:,}: all", "-", "-"),
    ]  # fmt: skip


def _phase(
    work: Path, environment: Mapping[str, str], seconds: float, per_second: int
) -> tuple[Phase, dict[str, Any]]:
    """Load for so long beside such a sink; and how that stood when everything was archived. 0: as fast as it comes."""
    store, url = work / "store", f"file://{work / 'archive'}"
    options = GeneratorOptions(
        store_dir=store, topics=("Bench",), queues=QUEUES, file_bytes=64 << 20, queue_file_units=100_000
    )
    with StoreGenerator(options, SystemClock()) as generator:
        generator.append(10)
    daemon = Daemon(
        work, store, url, name="slow", environment=environment, **{**GROUP_COMMIT, "sinks.look_ms": 200}
    )
    looks: list[Look] = []
    with daemon.running():
        daemon.wait_until(lambda: caught_up(daemon.status()), "what is there archived")
        words = ("sink", "add", SINK, "--kind", KIND, "--option", f"per_second={per_second}", "--required")
        done = tiered(*words, "--archive", url, environment=environment)
        assert done.code == 0, done.err
        daemon.wait_until(lambda: _sink(daemon).get("phase") == "live", "a sink that is live")
        with writing(options) as batches:
            began = time.monotonic()
            while time.monotonic() - began < seconds:
                looks.append(look_of(daemon.status()))
                time.sleep(LOOK_SECONDS)
        daemon.wait_until(lambda: caught_up(daemon.status()), "everything archived")
        if not per_second:
            daemon.wait_until(lambda: _sink(daemon).get("lag_bytes") == 0, "everything given")
        sink = _sink(daemon)
        daemon.stop()
    return Phase(batches, looks, {}), sink


def _sink(daemon: Daemon) -> dict[str, Any]:
    rows = (daemon.status().get("sinks") or {}).get("sinks", [])
    return dict(rows[0]) if rows else {}
