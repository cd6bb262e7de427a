"""Sealed files of finished days, made here instead of beside the broker.

Each task reads a topic's day, writes its Parquet files with the daemon's own code, and leaves a proposal for each. The daemon
that holds the archive's epoch checks them and commits them, or refuses what has changed meanwhile; nothing is part of the
archive before. Without a running daemon, and after its restart, proposals are worth nothing and are collected like anything
that nobody refers to. Turn seal.enabled off in the daemon, or both do the same work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from tiered.archive.rewrite.seal import SealOptions, refuse_encrypted
from tiered.archive.rewrite.sealplan import disjoint_jobs
from tiered.archive.state.view import ArchiveState
from tiered.errors import Invalid
from tiered.metadata.memory import MemoryStore
from tiered.settings import Seal, Settings
from tiered.text.human import Kind
from tiered.text.values import size_bytes
from tiered_jobs.seal.proposing import SealTask, propose
from tiered_jobs.work import SharedFlags, Work, number_flag
from tiered_spark.options import Options, parse_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiered_spark.snapshot import Snapshot

HOUR_MS = 3_600_000
SHOWN = (
    "proposals", "written_files", "messages", "record_bytes", "written_bytes", "verbatim_messages", "left_to_other_days_bytes",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """Which days, and how large files become."""

    min_age_hours: Annotated[
        float, number_flag("--min-age-hours", 0, 87_600, "How long a day must be over.")
    ] = 1.0
    segment_bytes: Annotated[
        str, typer.Option("--segment-bytes", metavar="SIZE", help="Stored bytes at which a file ends.")
    ] = "512MiB"


def writes(work: Work) -> list[str]:
    """The files' place, for each archive."""
    _options(work)
    return [f"{s.place.url}/{s.view.keys.root}segment/" for s in work.snapshots()]


def run(work: Work) -> None:
    """Make the files and leave the proposals."""
    parsed, options = _options(work)
    told: list[dict[str, object]] = []
    snapshots = work.snapshots()
    work.check_topics(snapshots)
    for snapshot in snapshots:
        tasks = list(_tasks(work, snapshot, parsed, options))
        work.say(f"{snapshot.place}: {len(tasks)} tasks")
        sums: Counter[str] = Counter()
        if tasks:
            for each in work.spark.sparkContext.parallelize(tasks, len(tasks)).map(propose).collect():
                sums.update(each.figures)
                for trouble in each.troubles:
                    work.say(trouble)
        head = snapshot.view.head
        told.append(
            {
                "archive": str(snapshot.place), "commit": snapshot.commit,
                "epoch": None if head is None else head.epoch, "tasks": len(tasks),
                **{name: sums[name] for name in SHOWN},
            }
        )  # fmt: skip
    kinds = {name: Kind.SIZE if name.endswith("bytes") else Kind.COUNT for name in SHOWN}
    work.out.record({"archives": told}, title="proposed", kinds=kinds)


def _options(work: Work) -> tuple[Options, SealOptions]:
    args = work.args
    if args.start is not None or args.end is not None or args.as_of_commit is not None:
        raise Invalid(
            "days are sealed whole, as they are now", flags="--from, --to, --as-of-commit",
            hint="leave them out; --topics narrows it",
        )  # fmt: skip
    seal = Seal(
        enabled=True,
        min_age_ms=int(args.min_age_hours * HOUR_MS),
        segment_bytes=size_bytes("--segment-bytes", args.segment_bytes),
    )
    return parse_options(work.options()), replace(SealOptions.of(Settings(seal=seal)), directory=None)


def _tasks(work: Work, snapshot: Snapshot, parsed: Options, options: SealOptions) -> Iterator[SealTask]:
    """All that is to be sealed now, each run in one task: what it holds of a second day is left to the next time."""
    store = MemoryStore()
    head = snapshot.view.log.fold_until(store, snapshot.commit)
    assert head is not None  # it has a commit
    refuse_encrypted(head)
    state, now_ms = ArchiveState(store.snapshot()), work.clock.now_ms()
    jobs = disjoint_jobs(state, options.bounds, now_ms, lambda what: snapshot.shows(what.topic, parsed))
    for day, job in jobs:
        yield SealTask(snapshot.place, head.epoch, head.seq, head.commit_id, day, job, options)
