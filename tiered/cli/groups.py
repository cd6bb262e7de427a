"""``tiered groups``: how far the broker's subscription groups are, beside what is archived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tiered.archive.read.view import View
from tiered.cli.access import OpenedArchive, reading
from tiered.cli.options import (
    ArchiveUrl,
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
from tiered.clock import SystemClock
from tiered.daemon.groupbook import GroupBook, KeptOffset, groups_directory, groups_stamp
from tiered.errors import NotFound, TieredError
from tiered.metadata.peek import peek_redo
from tiered.model import MessageQueue
from tiered.settings import Settings
from tiered.text.human import Kind
from tiered.text.output import Column

if TYPE_CHECKING:
    from tiered.metadata.rockspeek import RocksDbLook

COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("queue_id", "queue", Kind.COUNT),
    Column("next_offset", "next", Kind.COUNT),
    Column("archived_min", "archived from", Kind.COUNT, less=2),
    Column("archived_max", "to", Kind.COUNT),
    Column("behind", kind=Kind.COUNT),
    Column("where"),
    Column("changed", kind=Kind.TIME, less=1),
)

BROKER, ARCHIVE, EITHER, LOST, END, UNKNOWN = (
    "broker", "archive", "broker or archive", "before the archive", "at the end", "not archived",
)  # fmt: skip


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: DaemonState = None,
    prefix: Prefix = "",
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="GROUP", help="Only groups behind this one, in the order of their bytes."
        ),
    ] = None,
    limit: Limit = 0,
    sets: SetValues = None,
    json: JsonFlag = False,
    json_lines: JsonLines = False,
) -> None:
    """The next offset of each subscription group in each queue, as the daemon saw it in the broker's own files, and how many
    offsets the archive has behind it.

    where: who has the message at the next offset, as far as the local commitlog's first file tells. "archive": the broker has
    deleted it, a consumer without the gateway would skip to the broker's minimum. A page is --limit groups; the next one begins
    --after the last of them. Groups without an offset have one row without a topic.
    """
    out = output(json, json_lines)
    with reading(out, config, archive, sets, store=store) as opened:
        settings = opened.loaded.settings
        with closing(look_at_groups(settings, state, opened.view.identity.archive_id)) as kept:
            book = GroupBook(kept)
            note = book.note()
            wanted = book.groups(prefix=prefix, after=after)
            oldest = _oldest_local(settings)
            page = Paged(wanted, limit)

            def rows() -> Iterator[tuple[object, ...]]:
                for group in page:
                    found = False
                    for each in book.offsets(group):
                        found = True
                        yield _row(opened, each, oldest)
                    if not found:
                        yield (group, None, None, None, None, None, None, None, None)

            out.table(COLUMNS, rows())
            page.note_more(out, "groups", lambda group: group)
            if note is not None:
                seconds = max(0, SystemClock().now_ms() - note.seen_ms) // 1000
                out.note(f"the broker's lists were last noted {seconds} s ago")
            if oldest is None:
                out.note("which messages the broker still has is not known: name its store with --store")


def look_at_groups(settings: Settings, state: str | None, archive_id: bytes) -> RocksDbLook:
    """What the daemon keeps, as it is now."""
    directory = state or settings.state_directory
    hint = "the daemon keeps them beside the broker; name its state directory with --state or --store"
    if not directory:
        raise NotFound("it is not known where the broker's groups are kept", hint=hint)
    try:
        return peek_redo(Path(groups_directory(directory)), groups_stamp(archive_id))
    except NotFound as error:
        raise NotFound("the broker's groups are not kept here", path=directory, hint=hint) from error


def _oldest_local(settings: Settings) -> int | None:
    """The first physical offset that the broker still has; ``None`` where its log cannot be seen."""
    if not settings.source.store_dir:
        return None
    from tiered.source.open import open_source

    try:
        source = open_source(settings.source, settings.hold, SystemClock())
        try:
            return source.min_offset()
        finally:
            source.close()
    except TieredError:
        return None


def _row(opened: OpenedArchive, kept: KeptOffset, oldest: int | None) -> tuple[object, ...]:
    queue = MessageQueue(kept.topic, kept.queue_id)
    known = opened.view.known(queue)
    if known is None or known.generation is None:
        return (
            kept.group,
            kept.topic,
            kept.queue_id,
            kept.offset,
            None,
            None,
            None,
            UNKNOWN,
            kept.changed_ms,
        )
    behind = max(0, known.max_offset - max(kept.offset, known.min_offset))
    where = _where(opened.view, queue, kept.offset, known.min_offset, known.max_offset, oldest)
    return (
        kept.group, kept.topic, kept.queue_id, kept.offset, known.min_offset, known.max_offset, behind, where,
        kept.changed_ms,
    )  # fmt: skip


def _where(
    view: View, queue: MessageQueue, offset: int, low: int, high: int, oldest: int | None
) -> str | None:
    """Who has the message at an offset."""
    if offset >= high:
        return END
    if offset < low:
        return LOST
    generation = view.known(queue)
    if oldest is None or generation is None or generation.generation is None:
        return None
    run = next(iter(view.state.runs(queue, generation.generation, from_offset=offset)), None)
    if run is None or view.head is None or run.lineage != view.head.lineage:
        return ARCHIVE
    if run.physical_start >= oldest:
        return BROKER
    return ARCHIVE if run.physical_end <= oldest else EITHER
