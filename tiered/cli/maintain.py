"""``tiered maintain``: merge what is small, now, for cron and for archives whose daemon is stopped."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, StoreDir, flags, output
from tiered.clock import SystemClock
from tiered.daemon import logs
from tiered.daemon.checks import check, require
from tiered.daemon.config import environment, load
from tiered.daemon.crashing import install_crash
from tiered.daemon.maintain import TaskReport, maintain, outlooks
from tiered.daemon.signals import Signals
from tiered.errors import Invalid, TieredError
from tiered.text.output import Column, Output


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="DIR", help="Local state directory (state.directory).")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Do all that there is to do, and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what there is to do; nothing is written, a daemon may run.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Claim the archive now, though another writer may be alive.")
    ] = False,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Merge small runs into larger objects. A daemon does this by itself; this is for cron while no daemon runs.

    It opens an epoch as a daemon does, so it waits for a foreign writer to fall silent. Exit code 1 if something could not be
    read; everything else was done.
    """
    if not once and not dry_run:
        raise Invalid(
            "tiered maintain needs --once or --dry-run",
            hint="the daemon does it again and again by itself: tiered run",
        )
    out = output(json)
    given = flags(store, archive, sets)
    if state is not None:
        given["state.directory"] = state
    env = environment()
    install_crash(env)
    loaded = load(config, env, given)
    check(loaded)
    require(loaded, "archive.url")
    settings, clock, stop = loaded.settings, SystemClock(), threading.Event()
    if dry_run:
        _foretell(out, outlooks(settings, clock), json=json)
        return 0
    if not settings.state_directory:
        require(loaded, "state.directory")
    logs.configure(settings.log, loaded.secrets())
    with Signals(stop, clock), out.progress("turns", 0) as advance:
        reports = maintain(settings, clock, stop, take_over=take_over, progress=advance)
    _tell(out, reports, json=json)
    return TieredError.exit_code if any(report.troubles for report in reports) else 0


def _foretell(out: Output, reports: list[TaskReport], *, json: bool) -> None:
    """What there is to do."""
    if json:
        out.record(
            {
                r.name: {
                    "jobs": r.outlook.jobs,
                    **r.outlook.figures,
                    "rows": [dict(row) for row in r.outlook.rows],
                }
                for r in reports
            }
        )
        return
    out.table(
        (Column("task"), Column("jobs"), Column("said", "what", flexible=True)),
        [(r.name, r.outlook.jobs, r.outlook.said) for r in reports],
    )
    for report in reports:
        if report.outlook.rows:
            names = list(report.outlook.rows[0])
            rows = [[row[name] for name in names] for row in report.outlook.rows]
            out.table([name.replace("_", " ") for name in names], rows, title=report.name)
    out.note("nothing was written; --once does it")


def _tell(out: Output, reports: list[TaskReport], *, json: bool) -> None:
    """What was done."""
    told = {
        r.name: {"turns": r.turns, "complete": r.complete, **r.figures, "troubles": r.troubles}
        for r in reports
    }
    if json:
        out.record(told)
        return
    for report in reports:
        if not report.turns:
            out.record({"task": report.name, "done": report.outlook.said})
            continue
        out.record(
            {"task": report.name, "turns": report.turns, "complete": report.complete, **report.figures}
        )
        for trouble in report.troubles:
            out.note(f"left as it is: {trouble}")
