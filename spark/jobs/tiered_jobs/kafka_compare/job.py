"""What a sink of kind kafka gave, read back on executors and held against the archive.

The same comparison as tiered sink verify, and the same words; the work is shared out by partitions of Kafka, each of which one
task reads once, beside the archive's queues that go there. Executors need the extra kafka, reach the brokers of Kafka
themselves, and look up the order's env: and file: options where they run. No jar is needed: the client is that of the sink.
Exit code 0: the same; 1: different; 9: what could be compared is the same, and that was not all.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.errors import Invalid, NotFound
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metadata.memory import MemoryStore
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.comparison.comparing import merged
from tiered.sink.comparison.telling import EXIT_CODES, tell
from tiered.sink.comparison.verifying import reader_of, taking, whole_scope
from tiered_jobs.kafka_compare.parts import ComparedPart, compare_part, shared_out
from tiered_jobs.work import SharedFlags, Work, whole_flag
from tiered_spark.options import parse_options
from tiered_spark.snapshot import TABLE_CACHE_BYTES, shared_provider

if TYPE_CHECKING:
    from collections.abc import Callable

    from tiered_spark.snapshot import Snapshot

KIND = "kafka"


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """Which sink, and in how many tasks."""

    sink: Annotated[str, typer.Option("--sink", metavar="NAME", help="What the sink is called.")]
    tasks: Annotated[int, whole_flag("--tasks", 1, 10_000, "Tasks at most.")] = 200


def writes(work: Work) -> tuple[str, ...]:
    """Nothing; wrong flags are found by a dry run too."""
    _sink_of(work, _snapshot(work))
    return ()


def run(work: Work) -> int:
    """Compare; an exit code."""
    snapshot = _snapshot(work)
    work.check_topics([snapshot], includeSystemTopics="true")
    stored, place = _sink_of(work, snapshot), snapshot.place
    keys = ArchiveKeys(place.cluster, place.broker)
    archive = ArchiveReader(
        shared_provider(place.url), keys, MemoryStore(), table_cache_bytes=TABLE_CACHE_BYTES
    )
    view = archive.at()
    with closing(reader_of(stored, place.cluster, place.broker, place.archive_id)) as reader:
        scope = whole_scope(view, stored, reader, _takes(work, snapshot, stored))
        if not scope.queues:
            raise NotFound(
                "the sink takes none of these topics of the archive", sink=stored.name, found=work.args.topics
            )
        parts = shared_out(scope, reader, work.args.tasks)
        ordered = reader.ordered
    work.say(f"{len(scope.queues)} queues in {len(parts)} tasks")
    assert view.head is not None  # it has queues
    tasks = [ComparedPart(place, view.head.seq, stored, part) for part in parts]
    found = merged(work.spark.sparkContext.parallelize(tasks, len(tasks)).map(compare_part).collect())
    tell(work.out, stored.name, found, ordered=ordered, pending=scope.pending, json=work.args.json)
    return EXIT_CODES[found.verdict]


def _snapshot(work: Work) -> Snapshot:
    """The one archive that the flags name."""
    args = work.args
    if args.start is not None or args.end is not None or args.as_of_commit is not None:
        raise Invalid(
            "all that a sink was given is compared", flags="--from, --to, --as-of-commit",
            hint="leave them out; --topics narrows it",
        )  # fmt: skip
    return work.snapshot_of_sink()


def _sink_of(work: Work, snapshot: Snapshot) -> StoredSink:
    place = snapshot.place
    keys = ArchiveKeys(place.cluster, place.broker)
    stored = SinkBook(shared_provider(place.url), keys, place.archive_id).sink(work.args.sink)
    if stored.order.kind != KIND:
        raise Invalid(
            "this job compares sinks of kind kafka", sink=stored.name, found=stored.order.kind,
            hint=f"tiered sink verify --sink {stored.name}",
        )  # fmt: skip
    return stored


def _takes(work: Work, snapshot: Snapshot, stored: StoredSink) -> Callable[[str], bool]:
    """Topics that the sink takes and the flags name."""
    place, options = snapshot.place, parse_options(work.options())
    of_sink = taking(stored, TopicPolicy(cluster=place.cluster, broker=place.broker))
    return lambda topic: of_sink(topic) and options.takes(topic)
