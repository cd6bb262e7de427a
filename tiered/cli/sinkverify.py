"""``tiered sink verify``: what a sink's destination has, held against the archive."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from tiered.cli.access import reading
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.errors import NotFound
from tiered.sink.book import SinkBook
from tiered.sink.comparison.telling import EXIT_CODES, tell
from tiered.sink.comparison.verifying import compare, reader_of, taking, whole_scope


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
