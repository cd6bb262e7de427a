"""``tiered verify``: is the archive whole?"""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

import typer

from tiered.allocator import keep_freed_memory
from tiered.archive.keys import CommitKey, split_key
from tiered.archive.read.contentworkers import ContentWorkers, OpenedElsewhere
from tiered.archive.read.verify import READ_AHEAD, Damage, Report, Verifier
from tiered.cli.access import OpenedArchive, reading, store_of
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.clock import SystemClock
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.model import Past
from tiered.text.human import Kind
from tiered.text.output import Column, Output

WORTH_BYTES = 4 << 30
"""From this on processes have started before one could be done."""
REMEDY = (
    "tiered repair shows what can be mended from what is left, and mends it with --apply; otherwise restore the keys named "
    "above from the bucket's versions or a copy of the archive"
)


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Read every byte again and check its checksums, and every record against its tables and its own sum;"
            " tiered scrub --once checks the checksums alone, at twice the rate.",
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="COUNT",
            help="Processes that look at objects for --deep, some 100 MiB each; 1: threads of one."
            " 0: as many as there are CPUs where there is enough to read.",
        ),
    ] = 0,
    fail_on_gap: Annotated[
        bool,
        typer.Option(
            "--fail-on-gap", help="Exit code 1 for messages that are lost, too: tiered gaps lists them."
        ),
    ] = False,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Check the log, the fold and every object; --deep reads every byte again. Exit code 1 on damage; gaps are not damage
    unless --fail-on-gap says so. 4 where the store refused something, and nothing else was wrong: that is named at the end.

    Messages and bytes are those of all stored objects: what was merged or sealed and is not collected yet counts again.
    """
    out = output(json)
    wait = SystemClock().wait
    keep_freed_memory()  # requests of megabytes come and go

    def verified(as_of: int | None) -> Report:
        with reading(out, config, archive, sets, as_of=Past(as_of), whole=True) as opened:
            total = sum(1 for _ in opened.view.state.objects())
            with out.progress("verifying objects", total) as advance:
                workers = _workers(opened, processes) if deep else None
                newer = (lambda: opened.reader.follow().state) if as_of is None else None
                return Verifier(opened.view, advance, wait, workers=workers, newer=newer).run(deep=deep)

    before = None
    try:
        report = verified(None)
    except (Corrupt, Unavailable) as error:  # the log cannot be folded to its end: what lies before can
        before = _before(error)
        if before is None and not isinstance(error, Corrupt):
            raise
        report = Report() if before is None else verified(before)
        _add_damage(report, error)
    _tell(out, report, deep=deep, json=json, as_of=before)
    if report.damage or (fail_on_gap and _has_gaps(report)):
        return TieredError.exit_code
    return Unavailable.exit_code if report.unseen else 0


def _has_gaps(report: Report) -> bool:
    return bool(report.lost_messages or report.gaps or report.physical_gaps)


def _verdict(report: Report) -> str:
    if report.damage:
        return "DAMAGED"
    if report.unseen:
        return "INCOMPLETE"
    return "sound but for gaps" if _has_gaps(report) else "sound"


def _workers(opened: OpenedArchive, processes: int) -> ContentWorkers | None:
    """``processes`` of their own, or as many as pay; ``None``: this one is enough."""
    view, settings = opened.view, opened.loaded.settings
    if not processes:
        size = sum(item.length for item in view.state.objects())
        processes = len(os.sched_getaffinity(0)) if size >= WORTH_BYTES else 1
    if processes < 2 or urlsplit(settings.archive.url).scheme == "memory":  # which no other process sees
        return None
    elsewhere = OpenedElsewhere(
        partial(store_of, settings, processes), view.keys, view.identity.archive_id, READ_AHEAD
    )
    return ContentWorkers(elsewhere, processes)


def _before(error: TieredError) -> int | None:
    """The commit before the one that an error names; ``None`` if it names none, or the first."""
    found = split_key(str(error.fields.get("key", "")))
    named = (
        found[2].seq if found is not None and isinstance(found[2], CommitKey) else error.fields.get("commit")
    )
    return named - 1 if isinstance(named, int) and named > 0 else None


def _add_damage(report: Report, error: TieredError) -> None:
    """What ended the fold, unless the walk over all commits found it too."""
    fields = dict(error.fields)
    where = str(fields.pop("key", "the log"))
    to = report.damage if isinstance(error, Corrupt) else report.unseen
    if where not in {found.key for found in to}:
        to.append(Damage(error.message, where, ", ".join(f"{k}={v}" for k, v in fields.items())))


def _tell(out: Output, report: Report, *, deep: bool, json: bool, as_of: int | None) -> None:
    told: dict[str, object] = {
        "verdict": _verdict(report),
        "deep": deep,
        "commits": report.commits,
        "objects": report.objects,
        "runs": report.runs,
        "blocks": report.blocks,
        "messages": report.messages,
        "bytes": report.bytes,
        "gaps": report.gaps,
        "physical_gaps": report.physical_gaps,
        "lost_messages": report.lost_messages,
        "repaired": report.repaired,
    }
    beside = {
        "aliases": report.aliases, "sink_maps": report.sink_maps, "orders": report.orders,
    }  # fmt: skip
    told.update({name: count for name, count in beside.items() if count})
    if as_of is not None:
        told["as_of"] = as_of
    if json:
        for name, found in (("damage", report.damage), ("notes", report.notes), ("unseen", report.unseen)):
            told[name] = [{"what": d.what, "key": d.key, "detail": d.detail} for d in found]
    out.record(told, kinds={"bytes": Kind.SIZE, "messages": Kind.COUNT})
    if json:
        return
    tables = (("damage", report.damage), ("worth knowing", report.notes), ("not looked at", report.unseen))
    for title, found in tables:
        if found:
            out.table(
                (Column("what"), Column("key", "where"), Column("detail")),
                ((d.what, d.key, d.detail) for d in found),
                title=title,
            )
    if as_of is not None:
        out.note(
            f"the log cannot be read beyond commit {as_of}: queues and objects were verified as they were then"
        )
    if report.damage:
        out.note(REMEDY)
    if report.unseen:
        out.note(
            f"not looked at: {len(report.unseen)}. See what the store says of these keys (their storage class, a policy, "
            "credentials), and verify again"
        )
    if _has_gaps(report):
        out.note(
            "messages were lost for good, and are recorded: tiered gaps tells when, why and which queues"
        )
