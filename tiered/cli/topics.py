"""``tiered topics``: what is archived, by topic."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated

import typer

from tiered.archive.checkpoint.pieces import in_pieces
from tiered.archive.read.hollow import lost_inside
from tiered.archive.state.listing import TopicState, list_topics
from tiered.cli.access import reading
from tiered.cli.options import (
    ArchiveUrl,
    AsOf,
    ConfigFile,
    JsonFlag,
    JsonLines,
    Limit,
    Prefix,
    SetValues,
    output,
)
from tiered.cli.paging import Paged
from tiered.text.human import Kind
from tiered.text.output import Column

COLUMNS = (
    Column("topic"),
    Column("queues", kind=Kind.COUNT),
    Column("messages", kind=Kind.COUNT),
    Column("bytes", kind=Kind.SIZE),
    Column("oldest", kind=Kind.TIME, less=2),
    Column("newest", kind=Kind.TIME, less=1),
    Column("gaps", kind=Kind.COUNT),
)

System = Annotated[bool, typer.Option("--system", help="Show RocketMQ's own topics too.")]


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    prefix: Prefix = "",
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="TOPIC", help="Only topics behind this one, in the order of their bytes."
        ),
    ] = None,
    limit: Limit = 0,
    system: System = False,
    as_of: AsOf = None,
    sets: SetValues = None,
    json: JsonFlag = False,
    json_lines: JsonLines = False,
) -> None:
    """Archived topics: queues, messages, bytes as stored by the broker, first and last store time, gaps.

    A page is --limit topics; the next one begins --after the last of them.
    """
    out = output(json, json_lines)
    with reading(out, config, archive, sets, as_of=as_of, pieces=True) as opened:
        listed = partial(list_topics, prefix=prefix, after=after)
        found = in_pieces(opened.view.state.view, listed, prefix=prefix, after=after)
        wanted = (topic for topic in found if system or not opened.topics.is_system(topic.topic))
        page = Paged(wanted, limit)
        inside = Counter(gap.queue.topic for gap in lost_inside(opened.view))
        out.table(COLUMNS, (_row(topic, inside[topic.topic]) for topic in page))
        page.note_more(out, "topics", lambda topic: topic.topic)


def _row(topic: TopicState, inside: int) -> tuple[object, ...]:
    return (
        topic.topic,
        topic.queues,
        topic.messages,
        topic.bytes,
        topic.min_store_time,
        topic.max_store_time,
        topic.gaps + inside,
    )
