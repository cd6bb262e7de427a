"""``tiered gaps``: messages that are lost for good: when, why, which queues, how many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from typing import Annotated

import typer

from tiered.archive.read.hollow import lost_inside
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.archive.state.values import GapState, PhysGapState
from tiered.archive.state.view import ArchiveState
from tiered.cli.access import OpenedArchive, reading
from tiered.cli.options import ArchiveUrl, AsOf, ConfigFile, JsonFlag, JsonLines, Limit, SetValues, output
from tiered.errors import NotFound
from tiered.text.human import Kind
from tiered.text.output import Column

COLUMNS = (
    Column("recorded_ms", "recorded", kind=Kind.TIME),
    Column("why", flexible=True),
    Column("topic"),
    Column("queue_id", "queue", kind=Kind.COUNT),
    Column("generation", kind=Kind.COUNT, less=2),
    Column("start", "from", kind=Kind.COUNT),
    Column("end", "to", kind=Kind.COUNT),
    Column("messages", kind=Kind.COUNT),
    Column("bytes", "at most", kind=Kind.SIZE, less=1),
    Column("commit", kind=Kind.COUNT, less=3),
)
LATER = (
    "a gap stays one: a log is only ever continued. If the broker's disk, or a copy of it, came back with these messages, "
    "archive it beside (tiered run --once --store DIR --archive ANOTHER-URL --state ANOTHER-DIRECTORY): tiered read and tiered "
    "replay take them from there"
)
INSIDE = (
    "what a lost commit held inside itself may come back: tiered scrub --once --repair --state DIRECTORY with --copy URL or "
    "--store DIR puts it again from a copy of the archive or the broker's commitlog, where one of them still has it"
)


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    topic: Annotated[str | None, typer.Option("--topic", help="Only queues of this topic.")] = None,
    limit: Limit = 0,
    as_of: AsOf = None,
    sets: SetValues = None,
    json: JsonFlag = False,
    json_lines: JsonLines = False,
) -> None:
    """Messages that are lost for good, or with a commit: when that was recorded, why, of which queues, and how many.

    Rows without a topic are parts of the broker's log, in bytes: what was lost of queues lay in them, if it is known.
    The time is that of the commit, or of its repair, in the bucket, and unknown once that is collected.
    """
    out = output(json, json_lines)
    scope = EVERYTHING if topic is None else Scope.topic(topic)
    with reading(out, config, archive, sets, as_of=as_of, scope=scope) as opened:
        inside = list(lost_inside(opened.view, topic, closed=True))
        rows = _rows(opened, topic, inside)
        first = list(islice(rows, 1))
        out.table(COLUMNS, islice(chain(first, rows), limit or None))
        if limit and next(rows, None) is not None:
            out.note("there are more of them: --topic, or a higher --limit, shows them")
        if inside:
            out.note(INSIDE)
        if next(_recorded(opened.view.state, topic), None) is not None:
            out.note(LATER)
        elif not inside:
            out.note(
                "no message is lost, as far as the log knows; what the bucket lost is seen by tiered verify"
            )


def _recorded(state: ArchiveState, topic: str | None) -> Iterator[PhysGapState | GapState]:
    """Gaps of the log, and those of queues."""
    yield from state.phys_gaps() if topic is None else ()
    yield from (gap for gap in state.gaps() if topic is None or gap.queue.topic == topic)


def _rows(
    opened: OpenedArchive, topic: str | None, inside: Sequence[GapState]
) -> Iterator[tuple[object, ...]]:
    log = opened.view.log

    @lru_cache(maxsize=1024)
    def recorded(seq: int) -> int | None:
        with suppress(NotFound):
            return log.provider.head(log.keys.commit(seq)).last_modified_ms
        stand_in = next(iter(log.provider.list(log.keys.repair_prefix(seq), limit=1)), None)
        return None if stand_in is None else stand_in.last_modified_ms

    for gap in chain(_recorded(opened.view.state, topic), inside):
        when = recorded(gap.commit_seq)
        if isinstance(gap, PhysGapState):
            lost = gap.end - gap.start
            yield when, gap.reason, None, None, None, gap.start, gap.end, None, lost, gap.commit_seq
        else:
            yield (
                when, gap.reason, gap.queue.topic, gap.queue.queue_id, gap.generation,
                gap.start, gap.end, gap.end - gap.start, None, gap.commit_seq,
            )  # fmt: skip
