"""``tiered topics``: what is archived, by topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from tiered.archive.state.values import QueueState
from tiered.cli.access import reading
from tiered.cli.options import ArchiveUrl, AsOf, ConfigFile, JsonFlag, SetValues, output
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
    system: System = False,
    as_of: AsOf = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Archived topics: queues, messages, bytes as stored by the broker, first and last store time, gaps."""
    out = output(json)
    with reading(out, config, archive, sets, as_of=as_of) as opened:
        state = opened.view.state

        def rows() -> Iterator[tuple[object, ...]]:
            group: list[QueueState] = []
            for queue in state.queues():
                if group and group[0].queue.topic != queue.queue.topic:
                    yield _row(group)
                    group = []
                if system or not opened.topics.is_system(queue.queue.topic):
                    group.append(queue)
            if group:
                yield _row(group)

        def _row(group: list[QueueState]) -> tuple[object, ...]:
            oldest = [q.min_store_time for q in group if q.min_store_time is not None]
            newest = [q.max_store_time for q in group if q.max_store_time is not None]
            return (
                group[0].queue.topic,
                len(group),
                sum(q.messages for q in group),
                sum(q.bytes for q in group),
                min(oldest, default=None),
                max(newest, default=None),
                sum(1 for q in group for _ in state.gaps(q.queue)),
            )

        out.table(COLUMNS, rows())
