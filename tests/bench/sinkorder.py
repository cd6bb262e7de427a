"""What `--in-order` costs a sink: an archive read in the broker's order beside the same one read queue by queue, each in a
process of its own; its memory beside the bound.

python -m tests.bench.sinkorder ARCHIVE_URL HELD_BYTES (0: queue by queue)
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.aged import two_days_ago
from tests.bench.cold import MIB
from tests.bench.readers import peak_bytes
from tests.bench.run import QUIET, TIERED, Row, expect, once
from tests.kit.measured import measure
from tests.kit.oracle import opened
from tiered.archive.read.view import View
from tiered.feed.archived import ArchivedFeed
from tiered.feed.base import Follow
from tiered.feed.inorder import LogOrder
from tiered.settings import Sinks

ROUNDS = 2


class _Looked:
    """An archive as it was looked at once."""

    def __init__(self, view: View) -> None:
        self._view = view

    def at(self) -> View:
        return self._view

    follow = at


def sink_order(work: Path, messages: int, queues: int) -> list[Row]:
    """Messages of 1 KiB in as many queues, as they were archived and sealed; by default settings, and with a quarter of what
    may be held, so that row groups are read again."""
    store, url = work / "store", f"file://{work / 'archive'}"
    two_days_ago(store, messages, queues)
    once(store, url, work / "state", "hold.max_disk_percent=99")
    rows = []
    for stage in ("fresh", "sealed"):
        if stage == "sealed":
            where = ("--store", str(store), "--archive", url, "--state", str(work / "state"))
            measure((*TIERED, "maintain", "--once", *where, *QUIET, "--set", "hold.max_disk_percent=99"))
        most = Sinks().in_order_bytes
        for held in (most, most // 4):
            rounds = [(_read(url, held, messages), _read(url, 0, messages)) for _ in range(ROUNDS)]
            ours, theirs = (max((each[n] for each in rounds), key=lambda r: r["rate"]) for n in (0, 1))
            taken = max(each[0]["peak_bytes"] - each[0]["idle_bytes"] for each in rounds)
            rows.append(Row(
                f"{queues} queues, {stage}, in the log's order, {held // MIB} MiB held",
                f"{ours['rate']:,.0f}/s, {taken / MIB:.0f} MiB", f"{theirs['rate']:,.0f}/s, queue by queue",
                f"{ours['rate'] / theirs['rate']:.2f}", "-",
            ))  # fmt: skip
    return rows


def _read(url: str, held: int, messages: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.sinkorder", url, str(held)]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    expect(told["messages"], messages)
    return {**told, "rate": told["messages"] / told["seconds"]}


def main(url: str, held: int) -> int:
    """Read everything, print figures as JSON."""
    sinks = Sinks()
    order = LogOrder(held, sinks.batch_bytes) if held else None
    archive = _Looked(opened(url))
    feed = ArchivedFeed(archive, "", lambda queue: Follow(), ahead=sinks.backfill_ahead, in_order=order)
    feed.reaches()
    idle, started, messages, last = peak_bytes(), time.monotonic(), 0, -1
    for batch in feed.through():
        messages += len(batch.messages)
        if order is not None and len(batch.messages):
            places = batch.messages.headers["physical_offset"].astype("int64")
            assert int(places[0]) > last, "not the log's order"
            assert (places[1:] > places[:-1]).all(), "not the log's order"
            last = int(places[-1])
    took = time.monotonic() - started
    told = {"messages": messages, "seconds": took, "idle_bytes": idle, "peak_bytes": peak_bytes()}
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
