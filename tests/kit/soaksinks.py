"""``make soak-sinks``: a real RocketMQ broker's log into a real Kafka, under faults (``sinksoak.py``), for each of some seeds.

``python -m tests.kit.soaksinks --kills N --seconds N --seed S``: until so many kills or seconds, whichever comes first; 0 if a
plain consumer at ``read_committed`` finds nothing lost, doubled or reordered. The same seed asks for the same steps.
``--mode idempotent``: of a sink that may repeat; the repeats are counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.kit.kafkabroker import KafkaBroker
from tests.kit.sinksoak import SinkCampaign, SinkOutcome, proxies
from tests.kit.stack import real_stack


def soak(
    work: Path, seed: int, kills: int, seconds: float, console: Console, *, once: bool = True
) -> SinkOutcome:
    """One campaign with servers of its own."""
    kafka = KafkaBroker(work / "kafka")
    try:
        with real_stack(work / "real") as stack, proxies(stack, kafka, seed) as (to_kafka, to_s3):
            campaign = SinkCampaign(
                work / "daemons", stack, kafka, to_kafka, to_s3, seed, _sayer(console), once=once
            )
            return campaign.run(kills=kills, seconds=seconds)
    finally:
        kafka.remove()


def shown(outcome: SinkOutcome) -> Table:
    """One campaign as a table."""
    table = Table(title=f"seed {outcome.seed}, {outcome.seconds:.0f} s", show_header=False)
    for name, count in (*outcome.killed.items(), *outcome.actions.items(), *outcome.sent.items()):
        table.add_row(name, f"{count:,}")
    table.add_row("kills", f"{outcome.kills:,}")
    table.add_row("comparisons", f"{outcome.checks:,}, of {outcome.compared:,} messages in all")
    table.add_row("of them dead letters", f"{outcome.dead_letters:,}")
    table.add_row("repeats", f"{outcome.repeats:,}")
    table.add_row(
        "given, then lost by the broker", f"{outcome.lost_by_broker:,}; said: {outcome.said_lost:,}"
    )
    return table


def _sayer(console: Console):  # type: ignore[no-untyped-def]
    return lambda line: console.print(line, markup=False, highlight=False)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", choices=("transactional", "idempotent"), default="transactional")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--keep", action="store_true", help="leave everything on disk and say where")
    options = parser.parse_args()
    work, console = Path(tempfile.mkdtemp(prefix="tiered-soak-sinks-")), Console()
    once = options.mode == "transactional"
    console.print(
        f"seed {options.seed}, {options.mode}, until {options.kills} kills or {options.seconds:.0f} s"
    )
    outcome = soak(work, options.seed, options.kills, options.seconds, console, once=once)
    console.print(shown(outcome))
    if options.json is not None:
        facts = {
            "seed": outcome.seed, "mode": options.mode, "kills": outcome.kills, "repeats": outcome.repeats,
            "error": outcome.error, "steps": outcome.steps,
        }  # fmt: skip
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    if outcome.error is not None:
        console.print(outcome.error, markup=False)
    doubled = "doubled 0" if once else f"repeats {outcome.repeats:,} (allowed)"
    console.print(f"[green]lost 0, {doubled}, reordered 0" if outcome.good else "[red]FAILED")
    if options.keep or not outcome.good:
        console.print(f"kept in {work}; again: --seed {outcome.seed}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
