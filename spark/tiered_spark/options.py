"""The options of ``spark.read.format("rocketmq_tiered")``, parsed and checked in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from tiered.clock import time_ms
from tiered.errors import Invalid
from tiered.settings import MIB
from tiered_spark.ranges import Range

TABLES = ("messages", "queues", "gaps", "commits", "blocks", "plan")
ON_DAMAGE = ("fail", "skip")
POSITIONS = ("earliest", "latest")


@dataclass(frozen=True, slots=True)
class Options:
    """One scan's options. Times in ms since 1970, ends excluded; ``clusters``, ``brokers`` and ``topics`` are shell patterns.

    ``in_flight_bytes`` bounds what a task has asked for and not handed on.
    """

    archives: tuple[str, ...]
    clusters: tuple[str, ...] = ("*",)
    brokers: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)
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
    starting: str = "earliest"
    max_bytes: int | None = None
    max_messages: int | None = None

    @property
    def times(self) -> Range:
        """Store times wanted."""
        everything = Range()
        low = everything.low if self.starting_ms is None else self.starting_ms
        return Range(low, everything.high if self.ending_ms is None else self.ending_ms - 1)

    def takes(self, topic: str) -> bool:
        """Whether a topic matches ``topics``."""
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)


def parse_options(given: Mapping[str, str]) -> Options:
    """``Invalid`` names the option, its value and the fix. Names are compared without case, as Spark does."""
    known = {name.lower(): name for name in _PARSERS}
    values: dict[str, object] = {}
    for name, value in given.items():
        if name.lower() == "path":
            raise Invalid(
                "the option path is not used: an archive is no file that Spark opens",
                found=value, hint="option('archive', 'file:///…' or 's3://bucket/prefix') and load() without a path",
            )  # fmt: skip
        if name.lower() not in known:
            near = get_close_matches(name.lower(), known, 1)
            hint = f"did you mean {known[near[0]]}?" if near else "options: " + ", ".join(sorted(_PARSERS))
            raise Invalid("there is no such option", option=name, found=value, hint=hint)
        spelled = known[name.lower()]
        target, parse = _PARSERS[spelled]
        values[target] = parse(spelled, value)
    if not values.get("archives"):
        raise Invalid("no archive is named", option="archive", hint="option('archive', 's3://bucket/prefix')")
    if values.get("as_of_commit") is not None and values.get("as_of_ms") is not None:
        raise Invalid("asOfCommit and asOfTimestamp exclude each other", hint="give one of them")
    return Options(**values)  # type: ignore[arg-type]


def parse_time(name: str, value: str) -> int:
    """Ms since 1970 of ISO 8601 (UTC unless it says otherwise) or of a number of ms."""
    found = time_ms(value.strip())
    if found is None:
        raise _wrong(name, value, "a time such as 2026-01-01T00:00:00Z, or ms since 1970")
    return found


def _wrong(name: str, value: str, expected: str) -> Invalid:
    return Invalid(f"the option {name} is wrong", found=value, expected=expected, hint=f"option('{name}', …)")


def _words(name: str, value: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in value.split(",") if part.strip())
    if not found:
        raise _wrong(name, repr(value), "one or several, joined with commas")
    return found


def _flag(name: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise _wrong(name, value, "true or false")
    return value.strip().lower() == "true"


def _text(name: str, value: str) -> str:
    return value


def _whole(low: int, high: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise _wrong(name, value, f"a whole number from {low} to {high}")
        return number

    return parse


def _one_of(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        if value.strip().lower() not in choices:
            raise _wrong(name, value, " or ".join(choices))
        return value.strip().lower()

    return parse


_PARSERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "archive": ("archives", _words),
    "cluster": ("clusters", _words),
    "broker": ("brokers", _words),
    "topics": ("topics", _words),
    "includeSystemTopics": ("system_topics", _flag),
    "columns": ("columns", _text),
    "table": ("table", _one_of(TABLES)),
    "keys": ("keys", _words),
    "startingTimestamp": ("starting_ms", parse_time),
    "endingTimestamp": ("ending_ms", parse_time),
    "decodeBody": ("decode_body", _flag),
    "onDamage": ("on_damage", _one_of(ON_DAMAGE)),
    "partitionBytes": ("partition_bytes", _whole(MIB // 16, 1024 * MIB)),
    "requestsPerTask": ("requests", _whole(1, 64)),
    "maxBytesInFlight": ("in_flight_bytes", _whole(MIB, 4096 * MIB)),
    "asOfCommit": ("as_of_commit", _whole(0, 2**63 - 1)),
    "asOfTimestamp": ("as_of_ms", parse_time),
    "startingPosition": ("starting", _one_of(POSITIONS)),
    "maxBytesPerTrigger": ("max_bytes", _whole(1, 1 << 50)),
    "maxMessagesPerTrigger": ("max_messages", _whole(1, 1 << 50)),
}
