"""Plans and jobs of Spark among very many queues: CPU, memory beyond PySpark's own, and GETs, each in a process that knows
nothing.

python -m tests.bench.sparkplanning URL KIND [OPTION=VALUE ...]: one, as JSON. KIND ``batch``, or ``stream``: the plan of a
batch of the last commits, after one of everything; or what a job does before it reads an object: ``profile``, ``audit``
(what each task is to check); or ``queues``: the table of that name.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.counted import TOLD, CountingGets
from tests.bench.readers import peak_bytes
from tests.bench.run import Row
from tests.kit.manyqueues import many_queues, topic_name
from tiered.clock import SystemClock
from tiered.provider import open as opening
from tiered.provider.open import open_provider
from tiered.settings import Store
from tiered_jobs.audit.check import shares
from tiered_jobs.profile import facts
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.options import Options, parse_options
from tiered_spark.plan import ScanPartition, partitions, wanted_runs
from tiered_spark.snapshot import open_snapshots
from tiered_spark.stream import MessageStreamReader
from tiered_spark.tables import METADATA
from tiered_spark.wanted import first_wish

TOPIC_QUEUES = 1000
BEHIND = 5
LAST = 3
LIMITED = "≤ 10 GETs, ≤ 150 MB"


def planning(work: Path, queues: int) -> list[Row]:
    """Plans of one queue, of a topic, of all, and of a batch."""
    topics = max(1, queues // TOPIC_QUEUES)
    url = f"file://{work / 'archive'}"
    store = open_provider(url, Store(), SystemClock())
    many_queues(store, queues=queues, topics=topics, behind=BEHIND)
    one = f"topics={topic_name(topics // 2)}"
    rows = []
    jobs = [(kind, (), "arrays") for kind in JOBS]
    for kind, words, target in (
        ("batch", (one, "queueIds=7"), LIMITED),
        ("batch", (one,), LIMITED),
        ("batch", (), "-"),
        ("stream", (one,), LIMITED),
        ("stream", (), "-"),
        *jobs,
    ):
        told = _told(url, kind, words)
        rows.append(
            Row(
                f"{kind} {' '.join(words) or 'of everything'}, {queues:,} queues"
                + (f" ({told['runs']:,} runs)" if told["runs"] else ""),
                f"{told['cpu_seconds']:.2f} s of CPU, +{told['peak_bytes'] / 1e6:.0f} MB, {told['gets']} GETs of "
                f"{told['bytes'] / 1e6:.1f} MB",
                "-", "-", target,
            )
        )  # fmt: skip
    return rows


def _told(url: str, kind: str, words: tuple[str, ...]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.bench.sparkplanning", url, kind, *words]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def _profile(options: Options) -> None:
    nothing = np.zeros(0, np.int64)
    setattr(facts, "_of_object", lambda *_: (nothing, nothing, nothing))  # noqa: B010 - objects are not there
    facts.gather(open_snapshots(options), options)


def _audit(options: Options) -> None:
    (one,) = open_snapshots(options)
    shares(partitions(one, wanted_runs(one, options, first_wish(options)), options))


def _queues(options: Options) -> None:
    for one in open_snapshots(options):
        for _ in METADATA["queues"].batches(one, options):
            pass


JOBS: dict[str, Callable[[Options], None]] = {"profile": _profile, "audit": _audit, "queues": _queues}


def main(url: str, kind: str, *words: str) -> int:
    """One plan."""
    bare: Any = opening.open_driver
    opening.open_driver = lambda *arguments: CountingGets(bare(*arguments))
    options = parse_options({"archive": url, **dict(word.split("=", 1) for word in words)})
    before, began, asked = peak_bytes(), time.process_time(), dict(TOLD)
    found: Sequence[object] = ()
    if kind in JOBS:
        JOBS[kind](options)
    elif kind == "batch":
        found = MessageReader(options, message_schema()).partitions()
    else:
        stream = MessageStreamReader(options, message_schema())
        end = stream.latestOffset()
        stream.partitions(stream.initialOffset(), end)
        began, asked = time.process_time(), dict(TOLD)
        found = stream.partitions({place: seq - LAST for place, seq in end.items()}, end)
    told = {"cpu_seconds": time.process_time() - began, "peak_bytes": peak_bytes() - before}
    told |= {name: TOLD[name] - asked[name] for name in TOLD}
    plans = [part for part in found if isinstance(part, ScanPartition)]
    told["runs"] = sum(len(portion.pieces) for plan in plans for portion in plan.portions)
    print(json.dumps(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
