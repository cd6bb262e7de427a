"""``tiered sink verify``: what a sink's destination has, held against the archive."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from tiered.cli.access import reading
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.errors import EXIT_INCOMPLETE, NotFound, TieredError
from tiered.sink.book import SinkBook
from tiered.sink.comparison.found import COUNTS, Compared, QueueFound, SinkVerdict
from tiered.sink.comparison.verifying import compare, reader_of, taking, whole_scope
from tiered.text.human import Kind
from tiered.text.output import Column, Output

FOUND = (
    Column("topic", flexible=True),
    Column("queue_id", "queue"),
    *(Column(name, name.replace("_", " "), kind=Kind.COUNT) for name in COUNTS[:6]),
    *(Column(name, name.replace("_", " "), kind=Kind.COUNT, less=1) for name in COUNTS[6:]),
    Column("first", "first difference"),
    Column("first_offset", "at offset"),
)
EXIT_CODES = {
    SinkVerdict.SAME: 0,
    SinkVerdict.DIFFERENT: TieredError.exit_code,
    SinkVerdict.INCOMPLETE: EXIT_INCOMPLETE,
}


def verify_command(
    sink: Annotated[str, typer.Option("--sink", metavar="NAME", help="What the sink is called.")],
    topic: Annotated[str, typer.Option("--topic", metavar="TOPIC", help="Only this one; all.")] = "",
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Read the archive and the destination, and compare every message that the sink was given: counts, order in each queue,
    content. Nothing is changed; the sink may go on meanwhile. Exit code 0: the same; 1: different; 9: what could be compared is
    the same, and that was not all."""
    out = output(json)
    with reading(out, config, archive, sets, whole=True) as opened:
        settings, identity = opened.loaded.settings, opened.view.identity
        log = opened.view.log
        stored = SinkBook(log.provider, opened.view.keys, identity.archive_id).sink(sink)
        source = settings.source
        with closing(reader_of(stored, source.cluster, source.broker, identity.archive_id)) as reader:
            view = opened.reader.follow()
            scope = whole_scope(view, stored, reader, taking(stored, opened.topics, topic))
            if topic and not scope.queues:
                raise NotFound(
                    "the sink takes no topic of this name that the archive has",
                    topic=topic,
                    hint="tiered topics",
                )
            found = compare(view, reader, scope)
            ordered, pending = reader.ordered, scope.pending
    tell(out, sink, found, ordered=ordered, pending=pending, json=json)
    return EXIT_CODES[found.verdict]


def tell(out: Output, sink: str, found: Compared, *, ordered: bool, pending: int, json: bool) -> None:
    """The answer: the same words whoever compared."""
    told: dict[str, object] = {
        "sink": sink, "verdict": str(found.verdict), "queues": found.compared_queues,
        "different_queues": found.different_queues, **found.totals, "not_given_yet": pending, "order_compared": ordered,
    }  # fmt: skip
    if json:
        out.record(
            {
                **told,
                "not_compared": list(found.unread),
                "differences": [each._asdict() for each in found.queues],
            }
        )
        return
    out.record(told, kinds=dict.fromkeys((*COUNTS, "not_given_yet"), Kind.COUNT))
    if found.queues:
        out.table(FOUND, [_row(each) for each in found.queues], title="queues with anything but the same")
    for words in found.unread:
        out.note(f"not compared: {words}")
    if not ordered:
        out.note("this kind of destination keeps no order, so none is compared")
    if found.totals["not_comparable"]:
        out.note("not comparable: one side deleted them (retention), or the sink never was to have them")


def _row(each: QueueFound) -> list[object]:
    values = each._asdict()
    return [values[column.name] for column in FOUND]
