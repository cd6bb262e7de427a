"""``tiered queues``: offsets of every archived queue."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from typing import Annotated

import numpy as np
import typer

from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.archive.state.values import QueueState
from tiered.archive.state.view import dispatch_offsets
from tiered.cli.absent import absent_topic
from tiered.cli.access import OpenedArchive, reading
from tiered.cli.options import ArchiveUrl, AsOf, ConfigFile, JsonFlag, SetValues, StoreDir, output
from tiered.cli.topics import System
from tiered.errors import TieredError
from tiered.metadata.peek import Peek, peek
from tiered.text.human import Kind
from tiered.text.output import Column

COLUMNS = (
    Column("topic"),
    Column("queue_id", "queue", Kind.COUNT),
    Column("min_offset", "min", Kind.COUNT, less=3),
    Column("max_offset", "max", Kind.COUNT),
    Column("commit_offset", "commit", Kind.COUNT),
    Column("dispatch_offset", "dispatch", Kind.COUNT),
    Column("messages", kind=Kind.COUNT),
    Column("bytes", kind=Kind.SIZE, less=2),
    Column("generation", kind=Kind.COUNT, less=4),
    Column("oldest", kind=Kind.TIME, less=6),
    Column("newest", kind=Kind.TIME, less=5),
    Column("gaps", kind=Kind.RANGES, flexible=True),
)

PAGE_QUEUES = 1000


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="DIR", help="The daemon's state directory, for dispatch offsets."),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    system: System = False,
    as_of: AsOf = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Queues: readable offsets [min, max), commit offset (proven in the archive), dispatch offset (taken in by the daemon)."""
    out = output(json)
    scope = EVERYTHING if topic is None else Scope.topic(topic)
    with reading(out, config, archive, sets, store=store, as_of=as_of, scope=scope) as opened:
        view = opened.view.state
        if topic is not None and next(view.queues(topic), None) is None:
            raise absent_topic(topic, (name for name, _ in groupby(view.queues(), lambda q: q.queue.topic)))
        local = _local(opened, state)

        def rows() -> Iterator[tuple[object, ...]]:
            wanted = (
                q
                for q in opened.view.state.queues(topic)
                if system or topic is not None or not opened.topics.is_system(q.queue.topic)
            )
            while page := list(islice(wanted, PAGE_QUEUES)):
                yield from _rows(opened, local, page)

        out.table(COLUMNS, rows())
        if local is None:
            out.note(
                "dispatch offsets are kept in the daemon's state directory; name it with --state or --store"
            )


def _local(opened: OpenedArchive, state: str | None) -> Peek | None:
    """The daemon's metadata, if it lies on this machine."""
    settings = opened.loaded.settings
    directory = state or settings.state_directory
    if not directory:
        return None
    try:
        return peek(settings.state.metadata, f"{directory}/metadata")
    except TieredError:
        return None


def _rows(opened: OpenedArchive, local: Peek | None, page: list[QueueState]) -> Iterator[tuple[object, ...]]:
    dispatched: list[int | None] = [None] * len(page)
    if local is not None:
        ids = np.array([q.queue.queue_id for q in page], dtype=np.int64)
        offsets, known = dispatch_offsets(local, [q.queue.topic for q in page], ids)
        dispatched = [int(o) if k else None for o, k in zip(offsets, known, strict=True)]
    for queue, dispatch in zip(page, dispatched, strict=True):
        gaps = [[g.start, g.end, g.reason] for g in opened.view.state.gaps(queue.queue)]
        yield (
            queue.queue.topic,
            queue.queue.queue_id,
            queue.min_offset,
            queue.max_offset,
            queue.max_offset,
            dispatch,
            queue.messages,
            queue.bytes,
            queue.generation,
            queue.min_store_time,
            queue.max_store_time,
            gaps,
        )
