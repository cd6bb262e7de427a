"""``tiered maintain``: merge, seal, trim and collect now, for cron and for archives whose daemon is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from tiered.allocator import keep_freed_memory
from tiered.cli.options import JsonFlag, output
from tiered.cli.writing import WriterFlags, do_all, exit_code_of, tell, told, with_writer_flags
from tiered.clock import SystemClock
from tiered.daemon.maintain import TaskReport, outlooks
from tiered.errors import Invalid
from tiered.text.output import Column, Output


@with_writer_flags
def command(
    *,
    once: Annotated[bool, typer.Option("--once", help="Do all that there is to do, and end.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what there is to do; nothing is written, a daemon may run.")
    ] = False,
    given: WriterFlags,
    json: JsonFlag = False,
) -> int:
    """Merge small runs into larger objects; seal days that are over; trim queues where section [retain] asks for it; delete
    what nothing refers to, as gc.enabled says. A daemon does this by itself; this is for cron while no daemon runs.

    It opens an epoch as a daemon does, so it waits for a foreign writer to fall silent. A task is complete if a look after all
    others found nothing more to do for it; else "left" says what. Exit code 1 if something could not be read, or rounds had no
    end, that of its error if a task could not be done; everything else was done.
    """
    if not once and not dry_run:
        raise Invalid(
            "tiered maintain needs --once or --dry-run",
            hint="the daemon does it again and again by itself: tiered run",
        )
    out = output(json)
    keep_freed_memory()  # blocks and row groups of megabytes come and go
    if dry_run:
        reports = outlooks(given.load().settings, SystemClock())
        _foretell(out, reports, json=json)
        return exit_code_of(reports)
    return tell(out, do_all(out, given), json=json)


def _foretell(out: Output, reports: list[TaskReport], *, json: bool) -> None:
    """What there is to do."""
    if json:
        out.record(
            {
                r.name: {
                    "jobs": r.outlook.jobs,
                    **r.outlook.figures,
                    "rows": [dict(row) for row in r.outlook.rows],
                    **({"troubles": r.troubles} if r.troubles else {}),
                    **told(r),
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
