"""``make bench``: run benchmarks by name and print one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.aged import aged_read
from tests.bench.agedday import aged_day
from tests.bench.agedpiece import Piece
from tests.bench.backlog import backlog, to_s3
from tests.bench.churning import churning
from tests.bench.coldpush import gateway_cold
from tests.bench.collecting import collecting
from tests.bench.encryption import encryption
from tests.bench.engines import engines
from tests.bench.folding import folding
from tests.bench.gateway import gateway_hop
from tests.bench.keyvalue import key_value
from tests.bench.keyvalueredo import redo
from tests.bench.keyvalueserve import http_gets, puts
from tests.bench.lagageing import lag_ageing
from tests.bench.live import idle, latency, objects, restart
from tests.bench.million import million
from tests.bench.nodes import read_nodes
from tests.bench.opening import one_queue, opening
from tests.bench.placement import placement
from tests.bench.quietqueues import quiet_queues
from tests.bench.read import cases as read_cases
from tests.bench.rocketmq import rocketmq_tiered
from tests.bench.run import Row, whole
from tests.bench.sealing import seal_day
from tests.bench.segments import segments
from tests.bench.sinkkafka import sink_kafka
from tests.bench.sinklive import sink_backfill, sink_latency
from tests.bench.sinkmirror import sink_mirror
from tests.bench.sinkorder import sink_order
from tests.bench.sinkslow import sink_slow
from tests.bench.startup import start_up
from tests.bench.timequery import time_query
from tests.bench.verifying import verifying

MESSAGES, QUICK_MESSAGES = 3_560_000, 60_000  # 4 GiB of records
AGED_DAY = (Piece(3600, 100, 64), Piece(3600, 100, 1024))
AGED_QUICK = (Piece(180, 100, 64, round_seconds=60),)


def planning(work: Path, queues: int) -> list[Row]:
    """Spark's plans: PySpark is imported for these alone."""
    from tests.bench import sparkplanning

    return sparkplanning.planning(work, queues)


def cases(quick: bool, queues: int | None = None) -> dict[str, Callable[[Path], list[Row]]]:
    """Benchmarks by name, at full or smoke-test size. ``queues``: of ``million…``, if others are wanted."""
    messages = QUICK_MESSAGES if quick else MESSAGES
    return {
        "backlog": lambda work: backlog(work, messages, 500 if quick else 10_000),
        "s3": lambda work: to_s3(work, messages // 2),
        "encryption": lambda work: encryption(work, messages // 4),
        "latency": lambda work: latency(work, 4 if quick else 20),
        "objects": lambda work: objects(work, 4 if quick else 15),
        "idle": lambda work: idle(work, 2 if quick else 10),
        "restart": lambda work: restart(work, 2_000 if quick else 100_000),
        "rocketmq-tiered": lambda work: rocketmq_tiered(work, 20_000 if quick else 500_000),
        "gateway-hop": lambda work: gateway_hop(work, 2 if quick else 10, 5_000 if quick else 40_000),
        "gateway-cold": lambda work: gateway_cold(work, 20_000 if quick else 500_000),
        "million": lambda work: million(work, queues or (2_000 if quick else 1_000_000)),
        "million-plans": lambda work: planning(work, queues or (20_000 if quick else 1_000_000)),
        "churning": lambda work: churning(work, queues or (600 if quick else 600_000)),
        "quiet-queues": lambda work: quiet_queues(work, 20_000 if quick else 1_000_000),
        "opening": lambda work: opening(300 if quick else 1000),
        "start-up": lambda work: start_up(work, 1 if quick else 7),
        "one-queue": lambda work: one_queue(work, 2000 if quick else 100_000),
        "time-query": lambda work: time_query(work, 100_000 if quick else 10_000_000),
        "rare-edits": lambda work: folding(*((100, 100, 10) if quick else (10_000, 1000, 100))),
        "aged-read": lambda work: aged_read(work, *((6_000, 60) if quick else (300_000, 1000))),
        "aged-day": lambda work: aged_day(work, AGED_QUICK if quick else AGED_DAY),
        "gc-plan": lambda work: collecting(work, 20_000 if quick else 1_000_000),
        "seal-day": lambda work: seal_day(work, *((4_000, 8) if quick else (300_000, 64))),
        "lag-ageing": lambda work: lag_ageing(work, *((8_000, 6) if quick else (600_000, 40))),
        "read-nodes": lambda work: read_nodes(work, *((2_000, 16) if quick else (32_000, 256))),
        "sinkkafka": lambda work: sink_kafka(work, 10_000 if quick else 400_000),
        "sinklatency": lambda work: sink_latency(work, 4 if quick else 20),
        "sinkbackfill": lambda work: sink_backfill(work, 30_000 if quick else 10_000_000),
        "sinkmirror": lambda work: sink_mirror(work, 10_000 if quick else 400_000),
        "sinkorder": lambda work: sink_order(work, *((6_000, 30) if quick else (400_000, 64))),
        "sinkslow": lambda work: sink_slow(work, 6 if quick else 40),
        "placement": lambda work: placement(work, 100 if quick else None),
        "engines": lambda work: engines(3_000 if quick else 300_000),
        "kv-store": lambda work: key_value(work, *((20_000, 40_000) if quick else (2_000_000, 10_000_000))),
        "kv-redo": lambda work: redo(work, 20_000 if quick else 2_000_000),
        "kv-http": lambda work: http_gets(work, *((20_000, 50) if quick else (10_000_000, 2_000))),
        "kv-put": lambda work: puts(work, 200 if quick else 10_000),
        "segments": lambda work: segments(2_000 if quick else 100_000),
        "verifying": lambda work: verifying(work, 20_000 if quick else 400_000, 64),
        **read_cases(quick),
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    """Names and size."""
    names = sorted(cases(True))
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(names)}; default: all")
    parser.add_argument("--quick", action="store_true", help="smoke-test sizes: the figures mean nothing")
    parser.add_argument(
        "--queues", type=int, help="how many of them `million` is to measure; default: a million"
    )
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(names))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names)}")
    return options


def once_more(case: Callable[[Path], list[Row]], name: str, number: int) -> list[Row]:
    """One round of a benchmark, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix=f"tiered-bench-{name}-{number}-") as work:
        return case(Path(work))


def main(arguments: list[str]) -> int:
    """Run, print, 0."""
    options = parse(arguments)
    console = Console(width=150)
    table = Table(title="ratios to a baseline run beside them; machines differ, ratios less")
    for heading in ("what", "ours", "baseline", "ratio", "must reach"):
        table.add_column(heading)
    wanted = options.names or list(cases(options.quick))
    for name in wanted:
        console.print(f"running {name} …")
        for row in whole(partial(once_more, cases(options.quick, options.queues)[name], name)):
            table.add_row(row.what, row.ours, row.baseline, row.ratio, row.target)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
