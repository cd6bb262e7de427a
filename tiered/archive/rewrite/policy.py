"""What retention may take, as somebody wrote it: rules by topic, the least age, legal holds, what the broker asks for. Values
only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from tiered.errors import Invalid, Refused
from tiered.settings.keeping import Retain
from tiered.text.human import duration
from tiered.text.values import DURATIONS, SIZES, scaled

MOST_APART_MS = 300_000
"""Clocks of host and store further apart than this stop everything that deletes (law 6)."""

_FORM = "write pattern=rule, a rule being a time, a size, both with a space between, or forever: Orders*=30d 100GiB"


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """What stays of a topic: messages younger than ``keep_ms``, and the newest ``keep_bytes``; ``None`` sets no limit.

    A message goes when either says so.
    """

    keep_ms: int | None = None
    keep_bytes: int | None = None

    @property
    def forever(self) -> bool:
        """Whether nothing ever goes."""
        return self.keep_ms is None and self.keep_bytes is None


@dataclass(frozen=True, slots=True)
class LegalHold:
    """Messages of topics that fit ``pattern`` with store times in [``start_ms``, ``end_ms``) stay until the hold is dropped."""

    name: str
    pattern: str
    start_ms: int
    end_ms: int

    def covers(self, topic: str) -> bool:
        """Whether the topic fits the pattern."""
        return fnmatchcase(topic, self.pattern)


@dataclass(frozen=True, slots=True)
class BrokerSays:
    """What the broker asks for. ``reserved_ms``: how long messages of a topic stay, by its own attribute; ``expired``: topics
    that the broker deleted, and whose time since then is over; ``compacted``: topics that it keeps by key, however old."""

    reserved_ms: Mapping[str, int] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()
    compacted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RequiredSink:
    """A sink that was ordered as required. ``takes``: whether it is given a topic's messages."""

    sink_id: bytes
    name: str
    takes: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """All of it. ``patterns``: the first that fits a topic decides; else what the broker says of it, in place of the time of
    ``default``; else ``default``. ``sinks``: what they were not given yet stays."""

    default: RetentionRule = RetentionRule()
    patterns: tuple[tuple[str, RetentionRule], ...] = ()
    min_age_ms: int = 0
    holds: tuple[LegalHold, ...] = ()
    broker: BrokerSays = BrokerSays()
    sinks: tuple[RequiredSink, ...] = ()

    def rule(self, topic: str) -> RetentionRule:
        """The rule of a topic while the broker has it."""
        reserved_ms = self.broker.reserved_ms.get(topic)
        other = RetentionRule() if topic in self.broker.compacted else self.default
        if reserved_ms is not None:
            other = replace(self.default, keep_ms=reserved_ms)
        return next((rule for pattern, rule in self.patterns if fnmatchcase(topic, pattern)), other)

    def expired(self, topic: str) -> bool:
        """Whether a topic goes because the broker deleted it: not where a rule of its own keeps it for ever."""
        own = next((rule for pattern, rule in self.patterns if fnmatchcase(topic, pattern)), None)
        return topic in self.broker.expired and (own is None or not own.forever)

    def holds_of(self, topic: str) -> tuple[LegalHold, ...]:
        """The holds that cover a topic."""
        return tuple(hold for hold in self.holds if hold.covers(topic))

    @property
    def forever(self) -> bool:
        """Whether nothing of any topic ever goes."""
        ruled = self.default.forever and all(rule.forever for _, rule in self.patterns)
        return ruled and not self.broker.reserved_ms and not self.broker.expired


@dataclass(frozen=True, slots=True)
class Moment:
    """When retention runs. ``now_ms``: what host and store agree on. ``aged_seq``: the last commit that the store has held for
    the least age, -1 for none: what came later is too young, whatever its store time says."""

    now_ms: int
    aged_seq: int


def agreed_now(local_ms: int, store_ms: int) -> int:
    """The earlier of two clocks, since no clock alone deletes; ``Refused`` where they are far apart."""
    if abs(local_ms - store_ms) > MOST_APART_MS:
        raise Refused(
            "the clocks of this host and of the store are too far apart: nothing is trimmed or deleted",
            hint="set this host's clock (NTP), or find out why the store's is wrong",
            expected=f"at most {MOST_APART_MS} ms apart", found=f"{local_ms - store_ms} ms", host=local_ms, store=store_ms,
        )  # fmt: skip
    return min(local_ms, store_ms)


def policy_from(
    settings: Retain, holds: Sequence[LegalHold] = (), broker: BrokerSays = BrokerSays()
) -> RetentionPolicy:
    """The policy that settings and broker describe. ``Invalid`` names key, value and fix where they contradict each other."""
    default = RetentionRule(settings.keep_ms or None, settings.keep_bytes or None)
    _check_age("retain.keep_ms", duration(settings.keep_ms), default.keep_ms, settings.min_age_ms)
    deleted_ms = settings.deleted_topic_ms
    _check_age("retain.deleted_topic_ms", duration(deleted_ms), deleted_ms or None, settings.min_age_ms)
    patterns: list[tuple[str, RetentionRule]] = []
    for entry in settings.topics:
        pattern, rule = _parsed(entry)
        _check_age("retain.topics", entry, rule.keep_ms, settings.min_age_ms)
        hidden_by = next((earlier for earlier, _ in patterns if _includes(earlier, pattern)), None)
        if hidden_by is not None:
            raise Invalid(
                "a rule of retain.topics never decides: an earlier pattern fits every topic that it fits",
                key="retain.topics", found=entry, earlier=hidden_by,
                hint="leave one of the two out"
                if pattern == hidden_by
                else f"write {pattern} before {hidden_by}, or leave one of them out",
            )  # fmt: skip
        patterns.append((pattern, rule))
    return RetentionPolicy(default, tuple(patterns), settings.min_age_ms, tuple(holds), broker)


def _parsed(entry: str) -> tuple[str, RetentionRule]:
    pattern, _, text = entry.partition("=")
    words, keep_ms, keep_bytes = text.split(), None, None
    for word in [] if words == ["forever"] else words:
        time, size = scaled(word, DURATIONS), scaled(word, SIZES)
        if time is not None and time >= 1 and keep_ms is None:
            keep_ms = int(time)
        elif size is not None and size >= 1 and keep_bytes is None:
            keep_bytes = int(size)
        else:
            raise _not_a_rule(entry)
    if not pattern.strip() or not words:
        raise _not_a_rule(entry)
    return pattern.strip(), RetentionRule(keep_ms, keep_bytes)


def _not_a_rule(entry: str) -> Invalid:
    return Invalid("retain.topics holds what is not a rule", key="retain.topics", found=entry, hint=_FORM)


def _check_age(key: str, found: str, keep_ms: int | None, min_age_ms: int) -> None:
    if keep_ms is not None and keep_ms < min_age_ms:
        raise Invalid(
            "retention is shorter than the least age, below which nothing is trimmed",
            key=key, found=found, expected=f"at least retain.min_age_ms, {duration(min_age_ms)}",
            hint=f"raise {key}, or lower retain.min_age_ms",
        )  # fmt: skip


def _includes(earlier: str, later: str) -> bool:
    """Whether every topic that fits ``later`` fits ``earlier``, as far as the patterns' own text shows it."""
    plain = not set("*?[") & set(later)
    return earlier == later or ((plain or not set("?[") & set(earlier)) and fnmatchcase(later, earlier))
