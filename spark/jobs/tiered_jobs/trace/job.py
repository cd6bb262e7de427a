"""The life of one thing over topics, in time order.

The start is found by the key index of each object, within --topics, --from and --to; what belongs to the messages found is then
looked up everywhere: delays, half messages and their end, retries of groups, dead letters. A record belongs to a message if it
has the same unique key or names it as its origin. Exit code 5 if nothing is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tiered.errors import Invalid, NotFound
from tiered.text.human import Kind
from tiered.text.output import Column
from tiered_jobs.work import SharedFlags, Work, commits, whole_flag

COLUMNS = (
    Column("store_timestamp", "stored", Kind.TIME),
    Column("since_ms", "ms since", Kind.COUNT, less=2),
    Column("step"),
    Column("topic", flexible=True),
    Column("queue_id", "queue", less=1),
    Column("queue_offset", "offset", Kind.COUNT),
    Column("group", less=1),
    Column("tags", less=4),
    Column("message", "message", less=3),
    Column("born_host", "born host", less=5),
    Column("body_size", "size", Kind.SIZE, less=5),
)

LOST = "{:,} messages were lost before they could be archived, and one of its steps may be among them: see table=gaps"

ASKED = {"key": "key", "unique_key": "unique key", "message_id": "message id", "transaction": "transaction"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """What to look for, exactly one, and how much of it."""

    key: Annotated[str | None, typer.Option("--key", help="One of a message's KEYS.")] = None
    unique_key: Annotated[
        str | None,
        typer.Option(
            "--unique-key",
            help="The id that the client made (UNIQ_KEY), which clients show as message id.",
        ),
    ] = None
    message_id: Annotated[
        str | None,
        typer.Option("--message-id", help="The broker's id of one copy: store host and physical offset."),
    ] = None
    transaction: Annotated[
        str | None,
        typer.Option(
            "--transaction",
            help="A transaction's id; that of RocketMQ's clients is the unique key.",
        ),
    ] = None
    limit: Annotated[int, whole_flag("--limit", 1, 100_000, "Steps at most, the oldest.")] = 1000


def writes(work: Work) -> tuple[str, ...]:
    """Nothing; wrong flags are found by a dry run too."""
    _asked(work)
    return ()


def run(work: Work) -> None:
    """Find, order, name, show. ``NotFound`` if there is nothing."""
    from tiered_jobs.trace.search import Search
    from tiered_jobs.trace.steps import steps

    kind, value = _asked(work)
    snapshots = work.snapshots()
    work.begin()
    search = Search(work, snapshots, limit=work.args.limit)
    found = search.find(kind, value)
    if not found:
        raise NotFound(
            f"no archived message has this {ASKED[kind]}", hint=_where_else(kind), **{kind: value, "topics": work.args.topics}
        )  # fmt: skip
    told = steps(found, search.decisions(found))
    summary: dict[str, Any] = {
        kind: value,
        "steps": len(told),
        "messages": len({row["message"] for row in told}),
        "topics": len({row["topic"] for row in told}),
        "first_store_timestamp": told[0]["store_timestamp"],
        "last_store_timestamp": told[-1]["store_timestamp"],
        "complete": not (search.more or search.unfollowed),
        "gap_messages": work.gap_messages({"topics": "*", "includeSystemTopics": "true"}, snapshots),
        "archives": commits(snapshots),
    }
    if work.args.json:
        work.out.record({**summary, "life": told})
        return
    work.out.table(COLUMNS, [[row[c.name] for c in COLUMNS] for row in told])
    times = {"first_store_timestamp": Kind.TIME, "last_store_timestamp": Kind.TIME}
    work.out.record({k: v for k, v in summary.items() if k != "archives"}, kinds=times)
    if search.more:
        work.out.note(
            f"there are more than {work.args.limit} steps: the oldest are shown; --limit shows more"
        )
    if summary["gap_messages"]:
        work.out.note(LOST.format(summary["gap_messages"]))
    if search.unfollowed:
        work.out.note("the last look-up found keys that were not followed: trace one of these steps, too")


def _asked(work: Work) -> tuple[str, str]:
    """(flag, value). ``Invalid`` for what no message can have."""
    flags = {name: "--" + name.replace("_", "-") for name in ASKED}
    given = [name for name in ASKED if getattr(work.args, name) is not None]
    if not given:
        raise Invalid(
            f"one of the arguments {' '.join(flags.values())} is required", hint="tiered spark trace --help"
        )
    if given[1:]:
        raise Invalid(
            f"{flags[given[1]]} is not allowed with argument {flags[given[0]]}", hint="give one of them"
        )
    kind, flag = given[0], flags[given[0]]
    value = str(getattr(work.args, kind)).strip()
    if not value:
        raise Invalid(f"{flag} is empty", hint="tiered spark trace --help")
    if kind == "key" and " " in value:
        raise Invalid(f"{flag} takes one key", found=value, hint="blanks divide keys: give one of them")
    if kind == "message_id":
        from tiered.codec.record.hosts import decode_message_id

        decode_message_id(value)
    return kind, value


def _where_else(kind: str) -> str:
    if kind == "message_id":
        return "clients show the unique key as message id: try --unique-key; tiered status shows what is archived"
    if kind == "transaction":
        return "transactions are found by the unique key of their message; try --key with one of its keys"
    return "keys are exact; check --topics, --from and --to, and see tiered status for what is archived"
