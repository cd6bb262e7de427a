"""``make soak-kv``: for each seed a campaign with a broker alone, and one with a master and a slave that take turns.

``python -m tests.kit.soakkv --seconds N --seeds S …``: so many seconds for each campaign; 0 if nothing is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.brokerpair import BrokerPair
from tests.kit.kvlosses import LOST, LossCampaign
from tests.kit.kvsoak import FAULTS, KvOutcome, shown
from tests.kit.kvswitch import SWITCHED, SwitchCampaign

ALONE, PAIR = "alone", "pair"


def alone(work: Path, seeds: list[int], seconds: float, console: Console) -> bool:
    """Campaigns with one broker; whether all of them are good."""
    version, good = cache.ROCKETMQ_5, True
    with NameServer(version, work / "namesrv") as server, Broker(version, work / "broker", server) as broker:
        for seed in seeds:
            good &= told(
                LossCampaign(work / f"seed-{seed}", broker, seed).run(seconds, (*FAULTS, LOST)),
                ALONE,
                console,
            )
    return good


def in_turn(work: Path, seeds: list[int], seconds: float, console: Console) -> bool:
    """Campaigns with a master and its slave; whether all of them are good."""
    version, good = cache.ROCKETMQ_5, True
    with NameServer(version, work / "namesrv") as server, BrokerPair(version, work, server) as pair:
        for seed in seeds:
            campaign = SwitchCampaign(work / f"seed-{seed}", pair, seed)
            good &= told(campaign.run(seconds, (*FAULTS, SWITCHED)), PAIR, console)
    return good


def told(outcome: KvOutcome, brokers: str, console: Console) -> bool:
    """Show a campaign; whether it is good."""
    table = shown(outcome)
    table.title = f"{table.title}, {brokers}"
    console.print(table)
    for line in (*outcome.wrong[:10], *([] if outcome.verdict is None else [outcome.verdict])):
        console.print(str(line), markup=False)
    for error, count in outcome.errors.most_common(12):
        console.print(f"  {count:6,} {error[:140]}", markup=False)
    return outcome.good


def main() -> int:
    """All campaigns; 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each campaign")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--only", choices=(ALONE, PAIR), help="one kind of campaign")
    parser.add_argument("--keep", action="store_true", help="leave everything on disk and say where")
    options = parser.parse_args()
    work, console = Path(tempfile.mkdtemp(prefix="tiered-soak-kv-")), Console()
    good = True
    for name, campaigns in ((ALONE, alone), (PAIR, in_turn)):
        if options.only in (None, name):
            good &= campaigns(work / name, options.seeds, options.seconds, console)
    console.print("[green]linearizable, and nothing acknowledged was lost" if good else "[red]FAILED")
    if options.keep or not good:
        console.print(f"kept in {work}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
