"""Tables for a data team out of an archive, in layers; each run takes what is new.

bronze       every message as it was archived, by topic and day
silver       bodies decoded as --declarations says, duplicates removed; dead_letter: what could not be decoded
gold         messages, bytes, delays and retries per topic, tag and hour

The state of each layer lies inside its directory. A run that was cut off is simply run again. A second run on a table is
refused while the first one is at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tiered.errors import Invalid
from tiered.text.human import Kind
from tiered.text.values import size_bytes
from tiered_jobs.pipeline import gold, silver
from tiered_jobs.pipeline.bronze import Bronze, check
from tiered_jobs.pipeline.claim import TableClaim
from tiered_jobs.pipeline.declarations import Declaration, read_declarations
from tiered_jobs.pipeline.formats import FORMATS
from tiered_jobs.pipeline.table import Files, Table
from tiered_jobs.work import SharedFlags, Work
from tiered_spark.limits import ADMISSION

LAYERS = ("bronze", "silver", "gold")


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """What is written."""

    table: Annotated[
        str,
        typer.Option("--table", metavar="URL", help="Directory of the layers: a path, file:, s3a: …"),
    ]
    layers: Annotated[
        str | None,
        typer.Option(
            "--layers",
            metavar="NAMES",
            help="Of bronze, silver, gold, joined with commas; default: all, silver with --declarations.",
        ),
    ] = None
    declarations: Annotated[
        str | None,
        typer.Option(
            "--declarations",
            metavar="FILE",
            help="TOML: how the bodies of which topics are decoded, for silver.",
        ),
    ] = None
    format: Annotated[str, typer.Option("--format", help="Of bronze: " + ", ".join(FORMATS) + ".")] = (
        "parquet"
    )
    skip_lost: Annotated[
        bool,
        typer.Option(
            "--skip-lost",
            help="What retention removed before this table had it is left out, with a warning; default: an error.",
        ),
    ] = False
    batch_bytes: Annotated[
        str | None,
        typer.Option(
            "--batch-bytes", metavar="SIZE",
            help="About so much of the archive in one batch of bronze; default: 4GiB, with Spark 4.1 all of it.",
        ),
    ] = None  # fmt: skip


def writes(work: Work) -> list[str]:
    """Directories that a run would write to."""
    layers, declared, table, _ = _parsed(work)
    places = [table.bronze] if "bronze" in layers else []
    if "silver" in layers:
        places += [table.silver(one.table) for one in declared] + [table.dead_letters]
    return places + ([table.gold] if "gold" in layers else [])


def run(work: Work) -> None:
    """Fill the layers, one after the other."""
    layers, declared, table, batch_bytes = _parsed(work)
    FORMATS[work.args.format].check(work.spark)
    tables = silver.prepare(work.spark, declared) if "silver" in layers else []
    summary: dict[str, object] = {"table": table.root, "layers": list(layers)}
    if "bronze" not in layers:
        check(work.spark, table)
    with TableClaim(Files(work.spark), table, work.clock, work.say) as claim:
        bronze = Bronze(table, claim.beat, FORMATS[work.args.format])
        for one in tables:
            one.keep(work, bronze)  # before bronze takes all that is new
        if "bronze" in layers:
            summary["bronze"] = bronze.fill(work, batch_bytes)
        if bronze.there(work.spark):
            if "silver" in layers:
                summary["silver"] = silver.fill(work, bronze, tables)
            if "gold" in layers:
                summary["gold"] = gold.fill(work, bronze)
    kinds = {
        "bytes": Kind.SIZE,
        **dict.fromkeys(("rows", "dead_letters", "late", "duplicates", "topic_days"), Kind.COUNT),
    }
    work.out.record(summary, title="added", kinds=kinds)


def _parsed(work: Work) -> tuple[tuple[str, ...], list[Declaration], Table, int]:
    """Layers, declarations, table, bytes of a batch. ``Invalid`` names the flag."""
    args = work.args
    if args.as_of_commit is not None:
        raise Invalid(
            "the pipeline follows the archive",
            flag="--as-of-commit",
            found=args.as_of_commit,
            hint="leave it out",
        )
    given = args.layers.split(",") if args.layers is not None else None
    names = tuple(name.strip() for name in given) if given else _default(args.declarations)
    for name in names:
        if name not in LAYERS:
            raise Invalid("unknown layer", flag="--layers", found=name, hint="layers: " + ", ".join(LAYERS))
    if "silver" in names and args.declarations is None:
        hint = "add --declarations FILE; config/pipeline-example.toml shows one"
        raise Invalid(
            "silver needs to know how bodies are decoded", flag="--layers", found=args.layers, hint=hint
        )
    if args.format not in FORMATS:
        raise Invalid(
            "unknown format", flag="--format", found=args.format, hint="formats: " + ", ".join(FORMATS)
        )
    default = "4GiB" if ADMISSION else "0"
    size = size_bytes("--batch-bytes", args.batch_bytes if args.batch_bytes is not None else default)
    declared = read_declarations(args.declarations) if args.declarations is not None else []
    return names, declared, Table(args.table), size


def _default(declarations: str | None) -> tuple[str, ...]:
    return LAYERS if declarations is not None else ("bronze", "gold")
