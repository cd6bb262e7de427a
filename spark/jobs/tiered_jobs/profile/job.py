"""Topics at a glance.

Messages, bytes, tags, sizes, delays from birth to storing, and messages over time come from headers, without fetching a block;
keys and producers take the records, unless --quick. Numbers of keys are approximate, usually within 3 %; percentiles are at
most 1/32 too high; stored and record bytes are those of whole blocks; all other numbers are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tiered.errors import Invalid, NotFound
from tiered.text.human import Kind
from tiered.text.output import Column
from tiered.text.values import duration_ms
from tiered_jobs.profile import result
from tiered_jobs.profile.facts import Facts, gather
from tiered_jobs.profile.html import page
from tiered_jobs.profile.scan import OTHERS, Counted, count_headers, count_records
from tiered_jobs.work import SharedFlags, Work, commits, whole_flag
from tiered_spark.options import parse_options

HEADERS = "topic string, store_timestamp long, born_timestamp long, tags string, body_size int"
RECORDS = "topic,born_host,unique_key,keys"

BUCKETS = 168
"""Most time buckets of a topic, unless ``--bucket`` says otherwise."""

_MOST_BUCKETS = 2000
_WIDTHS_MS = (1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000, 2_592_000_000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """How much is counted, and what the report shows."""

    quick: Annotated[
        bool, typer.Option("--quick", help="Headers only: no block is fetched; no keys, no producers.")
    ] = False
    limit: Annotated[
        int,
        whole_flag(
            "--limit", 1, 10_000, "Topics, those with most messages; the rest is summed up as others."
        ),
    ] = 1000
    top: Annotated[int, whole_flag("--top", 1, 1000, "Tags and producers of a topic.")] = 10
    bucket: Annotated[
        str | None,
        typer.Option(
            "--bucket",
            metavar="TIME",
            help=f"Messages over time in steps of TIME, such as 1h; default: so that there are at most {BUCKETS}.",
        ),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a report with plots, one file, nothing else needed."
        ),
    ] = None
    plots: Annotated[int, whole_flag("--plots", 0, 10_000, "Topics with plots in the report.")] = 100

    def __post_init__(self) -> None:
        """``Invalid`` for a flag whose text means nothing."""
        _ = self.bucket_ms

    @property
    def bucket_ms(self) -> int | None:
        """``bucket``."""
        return None if self.bucket is None else duration_ms("--bucket", self.bucket)


def writes(work: Work) -> list[str]:
    """For ``--dry-run``."""
    _check_file(work.args.html)
    return [] if work.args.html is None else [f"{work.args.html}: a report in HTML"]


def run(work: Work) -> None:
    """Count, and say what was found."""
    args = work.args
    _check_file(args.html)
    options = parse_options(work.options())
    snapshots = work.snapshots()
    work.check_topics(snapshots)
    work.say("looking at the tables of the archive")
    facts = gather(snapshots, options)
    if not len(facts.topics):
        raise NotFound(
            "no topic matches",
            topics=args.topics,
            hint="tiered topics lists them; RocketMQ's own need --include-system-topics",
        )
    width = bucket_width(facts.times, args.bucket_ms)
    found: dict[str | None, Counted] = {}
    in_all: tuple[int, int, int] | None = None
    if facts.times is not None:
        work.say("counting headers")
        found = count_headers(work.read_at(snapshots, HEADERS), width, args.limit, args.top)
        if found and not args.quick:
            total = sum(one.messages for one in found.values())
            work.say(f"reading the records of {total:,} messages for keys and producers")
            in_all = count_records(work.read_at(snapshots, RECORDS), found, OTHERS in found, args.top)
    _add_silent(found, facts, args.limit)
    made = result.summary(found, facts, commits(snapshots), width, in_all, made_ms=work.clock.now_ms())
    if args.html is not None:
        _write(args.html, page(made, args.plots))
        made["html"] = str(args.html)
    _show(work, made)


def bucket_width(times: tuple[int, int] | None, asked: int | None) -> int:
    """Ms of a time bucket. ``Invalid`` if the one that was asked for is too fine."""
    span = 1 if times is None else times[1] - times[0] + 1
    if asked is None:
        return next((w for w in _WIDTHS_MS if span <= w * (BUCKETS - 1)), 365 * 86_400_000)
    if span > asked * _MOST_BUCKETS:
        raise Invalid(
            "--bucket is too short for the time the messages take", found=f"{asked} ms",
            expected=f"at most {_MOST_BUCKETS} buckets in {span} ms", hint="take a longer one, or narrow --from and --to",
        )  # fmt: skip
    return asked


def _add_silent(found: dict[str | None, Counted], facts: Facts, limit: int) -> None:
    """Topics of the archive without a message in the range."""
    if OTHERS in found:
        found[OTHERS].topics = len(facts.topics) - (len(found) - 1)
        return
    silent = len(facts.topics) - len(found)
    shown = facts.others([name for name in found if name is not None], limit - len(found))
    for topic in shown:
        found[topic] = Counted()
    if silent > len(shown):
        found[OTHERS] = Counted(topics=silent - len(shown))


def _check_file(path: Path | None) -> None:
    if path is None:
        return
    if path.is_dir():
        raise Invalid("--html is a directory", found=path, hint=f"--html {path / 'profile.html'}")
    if not path.parent.is_dir():
        raise NotFound("the directory of --html does not exist", found=path, hint=f"mkdir -p {path.parent}")


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_text(text, encoding="utf-8", errors="replace")
        beside.replace(path)
    except OSError as error:
        raise Invalid(
            "--html cannot be written", found=path, why=error.strerror, hint="name another file"
        ) from error


_COLUMNS = (
    Column("topic"),
    Column("messages", kind=Kind.COUNT),
    Column("body_bytes", "body", Kind.SIZE),
    Column("stored_bytes", "stored", Kind.SIZE, less=2),
    Column("queues", kind=Kind.COUNT, less=3),
    Column("unique_keys", "≈ unique keys", Kind.COUNT, less=4),
    Column("keys", "≈ keys", Kind.COUNT, less=4),
    Column("size_p50", "size p50", Kind.SIZE, less=3),
    Column("size_p99", "size p99", Kind.SIZE, less=2),
    Column("delay_p50", "delay ms p50", Kind.COUNT, less=3),
    Column("delay_p99", "p99", Kind.COUNT, less=2),
    Column("absurd", "no clock", Kind.COUNT, less=3),
    Column("first", kind=Kind.TIME, less=6),
    Column("last", kind=Kind.TIME, less=5),
    Column("lost", kind=Kind.COUNT, less=1),
    Column("tags", "top tags", less=5, flexible=True),
    Column("producers", "top producers", less=6),
)


def _show(work: Work, made: dict[str, Any]) -> None:
    if work.args.json:
        work.out.record(made)
        return
    rows = [_row(topic) for topic in made["topics"]]
    if made["others"] is not None:
        rows.append(_row({**made["others"], "topic": f"({made['others']['topics']:,} others)"}))
    work.out.table(_COLUMNS, rows, title="topics")
    totals = dict(made["totals"])
    work.out.record(totals, title="\nin all", kinds=result.TOTAL_KINDS)
    if "html" in made:
        work.say(f"wrote {made['html']}")


def _row(topic: dict[str, Any]) -> tuple[object, ...]:
    size, delay = topic["body_size"], topic["delay_ms"]
    return (
        topic["topic"], topic["messages"], topic["body_bytes"], topic["stored_bytes"], topic["queues"],
        topic["unique_keys_approx"], topic["keys_approx"], size["p50"], size["p99"], delay["p50"], delay["p99"],
        delay["absurd_clock"], topic["first_store_timestamp"], topic["last_store_timestamp"], topic["gaps"]["messages"],
        _listed(topic["tags"], "tag"), _listed(topic["producers"] or (), "address"),
    )  # fmt: skip


def _listed(found: Any, name: str) -> str:
    return " ".join(f"{one[name]}:{one['messages']}" for one in found[:3])
