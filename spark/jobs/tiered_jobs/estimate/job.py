"""What keeping an archive costs a month, for choices of retention, codec and size of objects, at the prices of a table.

Sizes and rates are the archive's own, of all its topics: from its fold, one listing of its log and a sample of at most
--sample-blocks blocks, so that the estimate itself costs few requests whatever the archive's size. Needs no session of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from tiered.errors import Invalid, NotFound
from tiered.settings.option import ONE_DAY_MS
from tiered.text.human import Kind, size
from tiered.text.output import Column
from tiered.text.prices import Price, read_prices
from tiered.text.values import duration_ms, size_bytes, whole
from tiered_jobs.estimate.codecs import Codec, Sample, measure
from tiered_jobs.estimate.model import Cost, Load, Scenario, assumptions, month
from tiered_jobs.estimate.stats import ArchiveStats, load_of, scaled, stats_of
from tiered_jobs.work import SharedFlags, Work, commits, number_flag, whole_flag


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """Prices, and the choices that are reckoned."""

    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", metavar="FILE", help="A price table in TOML; default: list prices that come with it."
        ),
    ] = None
    stores: Annotated[
        str,
        typer.Option(
            "--stores", metavar="NAMES", help="Names of stores in the price table, joined with commas."
        ),
    ] = "*"
    retention: Annotated[
        str, typer.Option("--retention", metavar="TIMES", help="How long it is kept, joined with commas.")
    ] = "7d,30d,365d"
    reads_per_month: Annotated[
        float,
        number_flag("--reads-per-month", 0, 1e6, "How often all of it is read a month; 0.1: a tenth of it."),
    ] = 1.0
    reads_leave: Annotated[
        bool,
        typer.Option("--reads-leave", help="What is read leaves the store's region: egress is charged."),
    ] = False
    merge: Annotated[str, typer.Option("--merge", metavar="SIZE", help="Size of merged objects.")] = "256MiB"
    sample_blocks: Annotated[
        int,
        whole_flag(
            "--sample-blocks",
            0,
            100_000,
            "Blocks that are fetched and compressed again; 0: none, and no other codecs.",
        ),
    ] = 64
    levels: Annotated[
        str, typer.Option("--levels", metavar="N", help="Levels of zstd to try, joined with commas.")
    ] = "3,9"
    bytes_per_day: Annotated[
        str | None,
        typer.Option(
            "--bytes-per-day",
            metavar="SIZE",
            help="Records that come in a day, before compression; objects and requests in proportion. Default: as measured.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """``Invalid`` for a flag whose text means nothing."""
        _ = self.retention_days, self.merge_bytes, self.zstd_levels, self.daily_bytes

    @property
    def retention_days(self) -> list[float]:
        """Each of ``retention``."""
        return [duration_ms("--retention", part) / ONE_DAY_MS for part in self.retention.split(",")]

    @property
    def merge_bytes(self) -> int:
        """``merge``."""
        return size_bytes("--merge", self.merge, least=1)

    @property
    def zstd_levels(self) -> list[int]:
        """Each of ``levels``, ascending."""
        return sorted({whole("--levels", part, 1, 22) for part in self.levels.split(",")})

    @property
    def daily_bytes(self) -> int | None:
        """``bytes_per_day``."""
        given = self.bytes_per_day
        return None if given is None else size_bytes("--bytes-per-day", given, least=1)


def writes(work: Work) -> list[str]:
    """For ``--dry-run``: nothing is written; flags and prices are checked."""
    _check(work)
    return []


def run(work: Work) -> None:
    """Measure, and reckon."""
    args = work.args
    prices = _check(work)
    table = read_prices(args.prices)
    snapshots = work.snapshots()
    work.say("looking at the fold and the log of " + ", ".join(str(s.place) for s in snapshots))
    stats = [found for found in map(stats_of, snapshots) if found.messages]
    if not stats:
        raise NotFound(
            "the archive has no message to measure",
            hint="wait for messages, or name another archive with --archive",
        )
    loads = _loads(stats, args.daily_bytes)
    sample = None
    if args.sample_blocks:
        work.say(f"compressing a sample of at most {args.sample_blocks} blocks again")
        sample = measure(
            snapshots, sum(s.raw for s in stats), args.sample_blocks, args.zstd_levels, work.clock
        )
    scenarios = _scenarios(args.retention_days, args.merge_bytes, sample)
    rows = [
        (scenario, price, _cost(loads, scenario, price, args.reads_per_month, args.reads_leave))
        for scenario in scenarios for price in prices
    ]  # fmt: skip
    made = {
        "job": "estimate",
        "archives": commits(snapshots),
        "measured": _measured(stats, loads),
        "codecs": [] if sample is None else [_codec(c) for c in (*sample.now, *sample.levels.values())],
        "prices": {"file": table.file, "currency": table.currency, "stores": [asdict(p) for p in prices]},
        "assumptions": assumptions(scenarios, reads=args.reads_per_month, leaves=args.reads_leave),
        "scenarios": [_row(*row) for row in rows],
    }
    _show(work, made)


def _check(work: Work) -> list[Price]:
    args = work.args
    for flag, value, plain in (
        ("--topics", args.topics, "*"),
        ("--from", args.start, None),
        ("--to", args.end, None),
    ):
        if value != plain:
            raise Invalid(
                "an estimate is of whole archives: objects and requests are shared by all topics and times",
                flag=flag, found=value, hint=f"leave {flag} out; --cluster and --broker choose archives",
            )  # fmt: skip
    return read_prices(args.prices).only(args.stores)


def _loads(stats: Sequence[ArchiveStats], bytes_a_day: int | None) -> list[Load]:
    if bytes_a_day is None and any(not s.message_span for s in stats):
        raise Invalid(
            "all messages were stored at one moment, so the bytes per day are unknown", flag="--bytes-per-day",
            found="nothing", hint="give them, such as --bytes-per-day 50GiB",
        )  # fmt: skip
    loads = [load_of(s) for s in stats]
    if bytes_a_day is None:
        return loads
    every = sum(load.raw for load in loads)
    # The share first: of one archive it is 1, and the rate exactly what was given.
    return [scaled(load, bytes_a_day * (load.raw / every)) for load in loads]


def _scenarios(days: Sequence[float], merge: int, sample: Sample | None) -> list[Scenario]:
    codecs = [("now", 1.0)]
    if sample is not None:
        codecs += [(codec.name, sample.factor(level)) for level, codec in sample.levels.items()]
    return [Scenario(kept, size, *codec) for kept in days for size in (None, merge) for codec in codecs]


def _cost(loads: Sequence[Load], scenario: Scenario, price: Price, reads: float, leaves: bool) -> Cost:
    found = [month(load, scenario, price, reads=reads, leaves=leaves) for load in loads]
    return Cost(*(sum(getattr(one, f.name) for one in found) for f in fields(Cost)))


def _measured(stats: Sequence[ArchiveStats], loads: Sequence[Load]) -> dict[str, Any]:
    objects = sum(len(s.data) for s in stats)
    stored, raw = sum(s.stored for s in stats), sum(s.raw for s in stats)
    return {
        "messages": sum(s.messages for s in stats),
        "record_bytes": raw,
        "block_bytes": sum(s.blocks for s in stats),
        "table_bytes": sum(s.tables for s in stats),
        "stored_bytes": round(stored),
        "stored_share": round(stored / raw, 4),
        "objects": objects,
        "mean_object_bytes": round(sum(float(s.data.sum()) for s in stats) / objects) if objects else None,
        "commits": sum(s.commit_count for s in stats),
        "span_seconds": max(s.message_span for s in stats) / 1000,
        "record_bytes_per_day": round(sum(load.raw for load in loads)),
        "writes_per_day": round(sum(load.puts for load in loads), 1),
        "gets_of_a_full_read": sum(s.scan_gets for s in stats),
    }


def _codec(codec: Codec) -> dict[str, Any]:
    speed = None if not codec.seconds else round(codec.raw / codec.seconds / 1e6, 1)
    return {
        "codec": codec.name, "measured": codec.seconds is not None, "blocks": codec.blocks, "raw_bytes": codec.raw,
        "stored_bytes": codec.stored, "ratio": round(codec.ratio, 4), "mb_per_second": speed,
    }  # fmt: skip


def _row(scenario: Scenario, price: Price, cost: Cost) -> dict[str, Any]:
    money = {f.name: round(getattr(cost, f.name), 4) for f in fields(Cost) if f.name.endswith("_cost")}
    return {
        "retention_days": scenario.days, "merge_bytes": scenario.merge_bytes, "codec": scenario.codec, "store": price.name,
        "stored_bytes": round(cost.stored), "writes": round(cost.puts), "gets": round(cost.gets), **money,
        "total": round(cost.total, 4),
    }  # fmt: skip


_SIZES = (
    "record_bytes",
    "block_bytes",
    "table_bytes",
    "stored_bytes",
    "mean_object_bytes",
    "record_bytes_per_day",
)
_COUNTS = ("messages", "objects", "commits", "writes_per_day", "gets_of_a_full_read")
_KINDS = (
    dict.fromkeys(_SIZES, Kind.SIZE) | dict.fromkeys(_COUNTS, Kind.COUNT) | {"span_seconds": Kind.SECONDS}
)


def _show(work: Work, made: dict[str, Any]) -> None:
    if work.args.json:
        work.out.record(made)
        return
    work.out.record(made["measured"], title="measured", kinds=_KINDS)
    if made["codecs"]:
        columns: tuple[Column | str, ...] = ("codec", Column("blocks", kind=Kind.COUNT), Column("raw_bytes", "raw", Kind.SIZE),
                   Column("stored_bytes", "stored", Kind.SIZE), "ratio", Column("mb_per_second", "MB/s a core"))  # fmt: skip
        rows = [
            (c["codec"] + ("" if c["measured"] else " (now)"), c["blocks"], c["raw_bytes"], c["stored_bytes"], c["ratio"],
             c["mb_per_second"])
            for c in made["codecs"]
        ]  # fmt: skip
        work.out.table(columns, rows, title="\ncodecs, on a sample of blocks")
    _show_scenarios(work, made)
    lines = [
        f"{p['name']}: {p['title']}, list price of {p['date']}, check yours ({p['source']})"
        for p in made["prices"]["stores"]
    ]
    work.out.lines(["", *(f"* {line}" for line in (*made["assumptions"], *lines))])


def _show_scenarios(work: Work, made: dict[str, Any]) -> None:
    columns: tuple[Column | str, ...] = (
        "retention", "store", "objects", "codec", Column("stored", kind=Kind.SIZE), Column("writes", kind=Kind.COUNT, less=3),
        Column("gets", kind=Kind.COUNT, less=3), *(Column(name, kind=_MONEY) for name in ("storage", "PUT", "GET")),
        Column("retrieval", kind=_MONEY, less=1), Column("egress", kind=_MONEY, less=1), Column("total", kind=_MONEY),
    )  # fmt: skip
    rows = [
        (
            f"{row['retention_days']:g} d", row["store"], size(row["merge_bytes"]) if row["merge_bytes"] else "as now",
            row["codec"], row["stored_bytes"], row["writes"], row["gets"],
            *(f"{row[f'{name}_cost']:,.2f}" for name in ("storage", "put", "get", "retrieval", "egress")),
            f"{row['total']:,.2f}",
        )
        for row in made["scenarios"]
    ]  # fmt: skip
    work.out.table(columns, rows, title=f"\na month, in {made['prices']['currency']}")


_MONEY = Kind.COUNT  # set to the right; texts stay as they are
