"""Which messages two archives, or two parts of one, do not share.

The left side is what the shared flags name, the right side the same with what the --other flags change. A message is found
again within its topic: by its unique key (--by unique_key), by its place (--by place: copies of one broker's queues), or by
keys and body (--by keys_body: senders that make new unique keys). It is different if body, tags or properties are, except what
--ignore names. Exit code 1 if a message is missing, extra or different.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tiered.errors import Invalid, TieredError
from tiered.text.human import Kind
from tiered.text.output import Column
from tiered_jobs.work import SharedFlags, Work, choice_flag, whole_flag

if TYPE_CHECKING:
    from tiered_jobs.compare.match import ComparisonPlan

BY = ("unique_key", "place", "keys_body")
IGNORABLE = ("topic", "body", "tags", "properties")

TOPIC_COLUMNS = (
    Column("topic", flexible=True),
    *(Column(name, kind=Kind.COUNT) for name in ("left", "right", "same", "missing", "extra", "different")),
    *(Column(f"repeated_{side}", kind=Kind.COUNT, less=1) for side in ("left", "right")),
    *(Column(f"unmatched_{side}", kind=Kind.COUNT, less=2) for side in ("left", "right")),
)

EXAMPLE_COLUMNS = (
    Column("what"),
    Column("topic"),
    Column("message", flexible=True),
    Column("left", "left broker/queue/offset"),
    Column("right", "right broker/queue/offset"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """The right side, which is as the left one but for the flags that begin with other; and what makes messages the same."""

    other: Annotated[
        str | None,
        typer.Option(
            "--other",
            metavar="URL",
            help="The right side's archive; what no --other flag gives is as on the left.",
        ),
    ] = None
    other_cluster: Annotated[
        str | None, typer.Option("--other-cluster", metavar="NAMES", help="Its clusters.")
    ] = None
    other_broker: Annotated[
        str | None, typer.Option("--other-broker", metavar="NAMES", help="Its brokers.")
    ] = None
    other_topics: Annotated[
        str | None,
        typer.Option(
            "--other-topics",
            metavar="NAMES",
            help="Its topics; one name on each side: the same topic renamed.",
        ),
    ] = None
    other_from: Annotated[str | None, typer.Option("--other-from", metavar="TIME", help="Store time.")] = None
    other_to: Annotated[
        str | None, typer.Option("--other-to", metavar="TIME", help="Store time, not included.")
    ] = None
    by: Annotated[
        str,
        choice_flag("--by", BY, "How a message is found again:"),
    ] = "unique_key"
    ignore: Annotated[
        str,
        typer.Option(
            "--ignore",
            metavar="NAMES",
            help="Of topic, body, tags, properties, properties.NAME, joined with commas.",
        ),
    ] = ""
    limit: Annotated[int, whole_flag("--limit", 1, 1000, "Examples of each kind at most.")] = 20


def writes(work: Work) -> tuple[str, ...]:
    """Nothing; wrong flags are found by a dry run too."""
    _plan(work)
    return ()


def run(work: Work) -> int:
    """Compare; 1 if there is a difference."""
    from tiered_jobs.compare.match import compare

    plan = _plan(work)
    work.say("reading both sides")
    topics, examples = compare(work, plan)
    totals = {name: sum(row[name] for row in topics) for name in (c.name for c in TOPIC_COLUMNS[1:])}
    unequal = sum(row["unmatched_left"] != row["unmatched_right"] for row in topics)
    bad = bool(totals["missing"] or totals["extra"] or totals["different"] or unequal)
    told: dict[str, Any] = {
        "verdict": "DIFFERENT" if bad else "same", "by": plan.by, "ignored": list(plan.ignored), **totals,
        "gap_messages_left": work.gap_messages({}), "gap_messages_right": work.gap_messages(plan.other),
    }  # fmt: skip
    if work.args.json:
        work.out.record({**told, "topics": topics, "examples": examples})
        return TieredError.exit_code if bad else 0
    work.out.record(
        told, kinds=dict.fromkeys((*totals, "gap_messages_left", "gap_messages_right"), Kind.COUNT)
    )
    work.out.table(TOPIC_COLUMNS, [[row[c.name] for c in TOPIC_COLUMNS] for row in topics], title="topics")
    if examples:
        work.out.table(
            EXAMPLE_COLUMNS, [[row[c.name] for c in EXAMPLE_COLUMNS] for row in examples], title="examples"
        )
    if told["gap_messages_left"] or told["gap_messages_right"]:
        work.out.note(
            "what was lost before it could be archived (gap_messages) is compared with nothing: see table=gaps"
        )
    if totals["unmatched_left"] or totals["unmatched_right"]:
        work.out.note(
            "messages without a unique key are only counted; --by place or --by keys_body matches them"
        )
    return TieredError.exit_code if bad else 0


def _plan(work: Work) -> ComparisonPlan:
    """``Invalid`` if both sides are one, or a flag is wrong."""
    from tiered_jobs.compare.match import ComparisonPlan
    from tiered_spark.options import parse_options

    args = work.args
    changed = {
        "archive": args.other, "cluster": args.other_cluster, "broker": args.other_broker, "topics": args.other_topics,
        "startingTimestamp": args.other_from, "endingTimestamp": args.other_to,
    }  # fmt: skip
    changed = {name: value for name, value in changed.items() if value is not None}
    if not changed:
        raise Invalid(
            "there is nothing to compare with", flag="--other",
            hint="name another archive with --other, or other topics or times with --other-topics, --other-from, --other-to",
        )  # fmt: skip
    if args.other is not None and args.as_of_commit is not None:
        changed["asOfCommit"] = None  # a commit of the left archive
    parse_options(work.options(**changed))
    ignored = tuple(name.strip() for name in args.ignore.split(",") if name.strip())
    for name in ignored:
        if name not in IGNORABLE and not name.startswith("properties."):
            expected = ", ".join((*IGNORABLE, "properties.NAME"))
            raise Invalid("--ignore is wrong", found=name, expected=expected, hint="such as --ignore tags")
    if args.by == "keys_body" and "body" in ignored:
        raise Invalid("--by keys_body cannot ignore the body", found=args.ignore, hint="--by unique_key")
    left, right = args.topics, args.other_topics
    plain = right is not None and not any(mark in left + right for mark in "*?[,")
    return ComparisonPlan(args.by, ignored, changed, left if plain and left != right else None, args.limit)
