"""``tiered verify``: is the archive whole?"""

from __future__ import annotations

from typing import Annotated

import typer

from tiered.archive.verify import Damage, Report, Verifier
from tiered.cli.access import reading
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.cli.output import Column, Kind, Output
from tiered.errors import Corrupt, TieredError

REMEDY = "restore the keys named above from the bucket's versions or a copy of the archive; all else stays readable"


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte again and check its checksums and tables.")
    ] = False,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Check the log, the fold and every object; --deep reads every byte again. Exit code 1 on damage; gaps are no damage."""
    out = output(json)
    try:
        with reading(out, config, archive, sets) as opened:
            total = sum(1 for _ in opened.archive.state.objects())
            with out.progress("verifying objects", total) as advance:
                report = Verifier(opened.archive, advance).run(deep=deep)
    except Corrupt as error:  # the log itself cannot be folded: nothing behind that can be looked at
        report = Report()
        fields = dict(error.fields)
        where = str(fields.pop("key", "the log"))
        report.damage.append(Damage(error.message, where, ", ".join(f"{k}={v}" for k, v in fields.items())))
    _tell(out, report, deep=deep, json=json)
    return 0 if report.sound else TieredError.exit_code


def _tell(out: Output, report: Report, *, deep: bool, json: bool) -> None:
    told: dict[str, object] = {
        "verdict": "sound" if report.sound else "DAMAGED",
        "deep": deep,
        "commits": report.commits,
        "objects": report.objects,
        "runs": report.runs,
        "blocks": report.blocks,
        "messages": report.messages,
        "bytes": report.bytes,
        "gaps": report.gaps,
        "physical_gaps": report.physical_gaps,
    }
    if json:
        told["damage"] = [{"what": d.what, "key": d.key, "detail": d.detail} for d in report.damage]
    out.record(told, kinds={"bytes": Kind.SIZE, "messages": Kind.COUNT})
    if report.damage and not json:
        out.table(
            (Column("what"), Column("key", "where"), Column("detail")),
            ((d.what, d.key, d.detail) for d in report.damage),
            title="damage",
        )
        out.note(REMEDY)
