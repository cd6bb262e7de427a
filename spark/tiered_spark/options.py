"""The options of ``spark.read.format("rocketmq_tiered")``, parsed and checked in one place."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tiered.errors import Invalid
from tiered.settings import MIB
from tiered_spark.bounds import Bounds, offsets, times
from tiered_spark.optionvalues import (
    Parsers,
    flag,
    listed,
    moment,
    numbers,
    one_of,
    parsed,
    text,
    whole,
    words,
)
from tiered_spark.ranges import Range, half_open

TABLES = ("messages", "queues", "gaps", "aliases", "commits", "blocks", "plan")
ON_DAMAGE = ("fail", "skip")
MISSING_TOPICS = ("fail", "ignore")
POSITIONS = ("earliest", "latest")


_PATTERN = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Options:
    """One scan's options. Times in ms since 1970, ends excluded; ``clusters``, ``brokers`` and ``topics`` are shell patterns.

    ``in_flight_bytes`` bounds what a task has asked for and not handed on.
    """

    archives: tuple[str, ...]
    clusters: tuple[str, ...] = ("*",)
    brokers: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)
    missing_topics: str = "fail"
    system_topics: bool = False
    columns: str = ""
    table: str = "messages"
    starting_ms: int | None = None
    ending_ms: int | None = None
    decode_body: bool = True
    on_damage: str = "fail"
    partition_bytes: int = 64 * MIB
    requests: int = 4
    in_flight_bytes: int = 32 * MIB
    as_of_commit: int | None = None
    as_of_ms: int | None = None
    keys: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    queue_ids: tuple[int, ...] = ()
    starting_offset: int | None = None
    ending_offset: int | None = None
    starting: str = "earliest"
    starting_offsets: Bounds = ()
    ending_offsets: Bounds = ()
    starting_times: Bounds = ()
    ending_times: Bounds = ()
    fail_on_loss: bool = True
    sealed: bool = True
    min_partitions: int | None = None
    max_bytes: int | None = None
    max_messages: int | None = None

    @property
    def times(self) -> Range:
        """Store times wanted."""
        return half_open(self.starting_ms, self.ending_ms)

    @property
    def offsets(self) -> Range:
        """Queue offsets wanted."""
        return half_open(self.starting_offset, self.ending_offset)

    def takes(self, topic: str) -> bool:
        """Whether a topic matches ``topics``."""
        return matches(topic, self.topics)

    @property
    def named_topics(self) -> frozenset[str]:
        """Those of ``topics`` that are names, not patterns."""
        return frozenset(name for name in self.topics if not _PATTERN.intersection(name))


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of some shell patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def exactly(name: str) -> str:
    """A pattern of the options for one name."""
    return glob.escape(name).replace(",", "?")


def perhaps(topics: Iterable[str]) -> dict[str, str]:
    """Options that choose these topics, of which an archive need not have every one. They are not made patterns: no pattern is
    for a name such as ``!`` alone."""
    return {"topics": ",".join(topics), "missingTopics": "ignore"}


def parse_options(given: Mapping[str, str], *, stream: bool | None = None) -> Options:
    """``Invalid`` names the option, its value and the fix. Names are compared without case, as Spark does.

    ``stream``: whether it is for one; a batch takes no option that only a stream would follow.
    """
    values: dict[str, object] = {}
    for name, value in given.items():
        if name.lower() == "path":
            raise Invalid(
                "the option path is not used: an archive is not a file that Spark opens",
                hint="option('archive', 'file:///…' or 's3://bucket/prefix') and load() without a path",
            )
        if name.lower() == "pushfilters":
            _refuse_push_filters(value)
            continue
        if stream is False and name.lower() in _OF_STREAMS:
            raise Invalid(
                "only a stream takes this option: a batch reads all that the other options choose",
                option=_OF_STREAMS[name.lower()],
                found=value,
                hint="leave it out; startingOffsets, startingTimestamp and their like bound a batch",
            )
        if stream and name.lower() == "sealed":
            raise Invalid(
                "a stream reads sealed files, too: its batches are what commits appended",
                option=name,
                hint="leave it out",
            )
        if (name.lower(), value.strip().lower()) == ("startingoffsets", "latest") and stream is not False:
            name = "startingPosition"
        values.update([parsed(_PARSERS, name, value)])
    if not values.get("archives"):
        raise Invalid(
            "no archive is named",
            option="archive",
            hint="option('archive', 's3://bucket/prefix'); CREATE TABLE … USING rocketmq_tiered OPTIONS (archive '…') keeps "
            "its options only without a list of columns: the option columns chooses them",
        )
    if values.get("as_of_commit") is not None and values.get("as_of_ms") is not None:
        raise Invalid("asOfCommit and asOfTimestamp exclude each other", hint="give one of them")
    return Options(**values)  # type: ignore[arg-type]


_OF_STREAMS = {
    name.lower(): name for name in ("startingPosition", "maxBytesPerTrigger", "maxMessagesPerTrigger")
}


def _refuse_push_filters(value: str) -> None:
    if value.strip().lower() != "false":
        raise Invalid(
            "the option pushFilters is gone: Spark reads other queries of a frame or view with the plan that it made of one "
            "query's filters, so that rows were missing",
            hint="topics, queueIds, startingOffsets, endingOffsets, the timestamps, tags and keys choose what is read",
        )


_PARSERS: Parsers = {
    "archive": ("archives", words),
    "cluster": ("clusters", words),
    "broker": ("brokers", words),
    "topics": ("topics", words),
    "missingTopics": ("missing_topics", one_of(MISSING_TOPICS)),
    "includeSystemTopics": ("system_topics", flag),
    "columns": ("columns", text),
    "table": ("table", one_of(TABLES)),
    "keys": ("keys", listed),
    "tags": ("tags", listed),
    "queueIds": ("queue_ids", numbers),
    "startingOffset": ("starting_offset", whole(0, 2**63 - 1)),
    "endingOffset": ("ending_offset", whole(0, 2**63 - 1)),
    "startingTimestamp": ("starting_ms", moment),
    "endingTimestamp": ("ending_ms", moment),
    "decodeBody": ("decode_body", flag),
    "onDamage": ("on_damage", one_of(ON_DAMAGE)),
    "partitionBytes": ("partition_bytes", whole(MIB // 16, 1024 * MIB)),
    "requestsPerTask": ("requests", whole(1, 64)),
    "maxBytesInFlight": ("in_flight_bytes", whole(MIB, 4096 * MIB)),
    "asOfCommit": ("as_of_commit", whole(0, 2**63 - 1)),
    "asOfTimestamp": ("as_of_ms", moment),
    "startingOffsets": ("starting_offsets", offsets),
    "endingOffsets": ("ending_offsets", offsets),
    "startingTimestamps": ("starting_times", times),
    "endingTimestamps": ("ending_times", times),
    "failOnDataLoss": ("fail_on_loss", flag),
    "sealed": ("sealed", flag),
    "minPartitions": ("min_partitions", whole(1, 1_000_000)),
    "startingPosition": ("starting", one_of(POSITIONS)),
    "maxBytesPerTrigger": ("max_bytes", whole(1, 1 << 50)),
    "maxMessagesPerTrigger": ("max_messages", whole(1, 1 << 50)),
}
