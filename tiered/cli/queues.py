"""``tiered queues``: offsets of every archived queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from typing import Annotated

import numpy as np
import typer

from tiered.archive.checkpoint.pieces import in_pieces
from tiered.archive.read.hollow import lost_inside
from tiered.archive.read.view import MAX_QUEUE_ID
from tiered.archive.state.aliases import lite_queues
from tiered.archive.state.cached import peek_fold
from tiered.archive.state.keys import LITE_QUEUE
from tiered.archive.state.listing import ListedQueue, list_queues, list_topics
from tiered.archive.state.scope import Scope
from tiered.archive.state.values import GapState
from tiered.archive.state.view import ArchiveState, dispatch_offsets
from tiered.cli.absent import absent_topic
from tiered.cli.access import OpenedArchive, reading
from tiered.cli.options import (
    ArchiveUrl,
    AsOf,
    ConfigFile,
    DaemonState,
    JsonFlag,
    JsonLines,
    Limit,
    Prefix,
    SetValues,
    StoreDir,
    output,
)
from tiered.cli.paging import Paged
from tiered.cli.topics import System
from tiered.errors import Invalid, TieredError
from tiered.metadata.base import MetadataView
from tiered.model import MessageQueue
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

FIRST_QUEUES, PAGE_QUEUES = 32, 1000
"""Queues whose dispatch offsets are looked up together: few at first, so that the first rows come soon."""


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: DaemonState = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only this topic.")] = None,
    prefix: Prefix = "",
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="TOPIC/QUEUE",
            help="Only queues behind this one, in the order of topics and ids.",
        ),
    ] = None,
    limit: Limit = 0,
    lite: Annotated[
        bool,
        typer.Option("--lite", help="Lite queues (%LMQ%…) instead; messages are counted in each of them."),
    ] = False,
    system: System = False,
    as_of: AsOf = None,
    sets: SetValues = None,
    json: JsonFlag = False,
    json_lines: JsonLines = False,
) -> None:
    """Queues: readable offsets [min, max), commit offset (proven in the archive), dispatch offset (taken in by the daemon).

    A page is --limit queues; the next one begins --after the last of them.
    """
    out = output(json, json_lines)
    if topic is not None and prefix:
        raise Invalid("--topic and --prefix do not go together", hint="give one of them")
    start = None if after is None else _place(after)
    scope, pieces = (
        Scope.beginning(prefix) if topic is None else Scope.topic(topic),
        topic is None,
    )
    with ExitStack() as stack:
        opened = stack.enter_context(
            reading(out, config, archive, sets, store=store, as_of=as_of, scope=scope, pieces=pieces)
        )
        view = opened.view.state
        if topic is not None:
            _check_known(view, topic, lite)
        local = _local(opened, state, stack)
        wanted = (
            _lite(view.view, topic, prefix, start)
            if lite
            else (
                listed
                for listed in _queues(view.view, topic, prefix, start)
                if system or topic is not None or not opened.topics.is_system(listed.queue.queue.topic)
            )
        )
        page, inside = Paged(wanted, limit), dict[MessageQueue, list[GapState]]()
        for gap in () if lite else lost_inside(opened.view, topic):
            inside.setdefault(gap.queue, []).append(gap)
        out.table(COLUMNS, _rows(local, iter(page), inside))
        page.note_more(out, "queues", lambda listed: listed.queue.queue)
        if local is None:
            out.note(
                "dispatch offsets are kept in the daemon's state directory; name it with --state or --store"
            )


def _check_known(view: ArchiveState, topic: str, lite: bool) -> None:
    """``NotFound`` for a topic without queues."""
    if next(lite_queues(view.view, name=topic) if lite else view.queues(topic), None) is None:
        lites = (found.queue.topic for found in in_pieces(view.view, lite_queues, kind=LITE_QUEUE))
        topics = (found.topic for found in in_pieces(view.view, list_topics))
        raise absent_topic(topic, lites if lite else topics)


def _queues(
    view: MetadataView, topic: str | None, prefix: str, after: MessageQueue | None
) -> Iterator[ListedQueue]:
    listed = partial(list_queues, topic=topic, prefix=prefix, after=after)
    if topic is not None:
        return listed(view)
    return in_pieces(view, listed, prefix=prefix, after=None if after is None else after.topic)


def _lite(
    view: MetadataView, topic: str | None, prefix: str, after: MessageQueue | None
) -> Iterator[ListedQueue]:
    """Lite queues; what lies between their alias runs is not looked for here."""
    listed = partial(lite_queues, name=topic, prefix=prefix, after=after)
    behind = None if after is None else after.topic
    found = (
        listed(view)
        if topic is not None
        else in_pieces(view, listed, prefix=prefix, after=behind, kind=LITE_QUEUE)
    )
    return (ListedQueue(queue, ()) for queue in found)


def _local(opened: OpenedArchive, state: str | None, stack: ExitStack) -> MetadataView | None:
    """The daemon's metadata, if it lies on this machine."""
    settings = opened.loaded.settings
    directory = state or settings.state_directory
    if not directory:
        return None
    try:
        return stack.enter_context(peek_fold(settings.state.metadata, f"{directory}/metadata"))
    except TieredError:
        return None


def _place(after: str) -> MessageQueue:
    """The queue that ``--after`` names, as rows and notes do."""
    topic, slash, number = after.rpartition("/")
    if not slash or not number.isascii() or not number.isdigit() or int(number) > MAX_QUEUE_ID:
        raise Invalid(
            "--after needs a topic and a queue id", found=after, hint="for example --after Orders/3"
        )
    return MessageQueue(topic, int(number))


def _rows(
    local: MetadataView | None, page: Iterator[ListedQueue], inside: Mapping[MessageQueue, Sequence[GapState]]
) -> Iterator[tuple[object, ...]]:
    at_once = FIRST_QUEUES
    while some := list(islice(page, at_once)):
        yield from _some_rows(local, some, inside)
        at_once = PAGE_QUEUES


def _some_rows(
    local: MetadataView | None, page: list[ListedQueue], inside: Mapping[MessageQueue, Sequence[GapState]]
) -> Iterator[tuple[object, ...]]:
    dispatched: list[int | None] = [None] * len(page)
    if local is not None:
        queues = [listed.queue.queue for listed in page]
        ids = np.array([q.queue_id for q in queues], dtype=np.int64)
        offsets, known = dispatch_offsets(local, [q.topic for q in queues], ids)
        dispatched = [int(o) if k else None for o, k in zip(offsets, known, strict=True)]
    for listed, dispatch in zip(page, dispatched, strict=True):
        queue = listed.queue
        lost = chain(listed.gaps, inside.get(queue.queue, ()))
        gaps = [[g.start, g.end, g.reason] for g in sorted(lost, key=lambda g: (g.generation, g.start))]
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
