"""Which groups pop what. The broker keeps no list: it is put together from settings, from what connected clients say, and from
the retry topics that popping alone makes.

Which of them want order is in the broker's configuration of the group. (The remoting client pops without order whatever its
listener is, and reads retry topics: it is not meant.)

``Groups`` is shared: one thread asks the broker, a few groups at a time (``learn``), the others read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path

from tiered.broker.questions import AllOffsets, Broker, BrokerFacts
from tiered.clock import Clock
from tiered.errors import BadRequest, Unavailable
from tiered.filter.base import RowFilter
from tiered.filter.tags import row_filter
from tiered.replay.base import RETRY_PREFIX, GroupQueue

LEARN_SECONDS = 15.0
"""A group is asked about again after this long."""
OTHERS_SECONDS = 60.0
"""The same for a group that settings do not name."""
LEARN_AT_ONCE = 20
"""Groups asked about in one go."""
CLIENTS_ASKED = 2
"""Clients of a group that are asked what they do: they all should do the same."""

_SYSTEM_GROUPS = (
    "CID_RMQ_SYS_*",
    "CID_ONSAPI_*",
    "TOOLS_CONSUMER",
    "__MONITOR_CONSUMER",
    "SELF_TEST_C_GROUP",
)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What is known of a group now. ``filters``: topic → (expression type, expression), of connected clients only;
    ``connected``: the broker knows clients of it, which those of a Proxy need not be."""

    pops: frozenset[str] = frozenset()
    pulls: frozenset[str] = frozenset()
    ordered: bool = False
    filters: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    connected: bool = False


UNKNOWN = GroupFacts()


class Groups:
    """What is known of all groups. ``patterns``: those that settings name; none: every group that is seen to pop."""

    def __init__(self, patterns: Collection[str], clock: Clock, *, order_file: Path | None = None) -> None:
        """``order_file``: where the broker keeps what ordered groups have in hand, if it can be read here."""
        self._patterns = tuple(patterns)
        self._order_file = order_file
        self._clock = clock
        self._lock = threading.Lock()
        self._facts: dict[str, GroupFacts] = {}
        self._asked_at: dict[str, float] = {}

    def facts(self, group: str) -> GroupFacts:
        """What is known of a group."""
        with self._lock:
            return self._facts.get(group, UNKNOWN)

    def asked(self, group: str) -> bool:
        """Whether the broker was asked about it since the start."""
        with self._lock:
            return group in self._facts

    def keep(self, groups: Set[str]) -> None:
        """Forget all others."""
        with self._lock:
            for known in (self._facts, self._asked_at):
                for group in known.keys() - groups:
                    del known[group]

    def named(self, group: str) -> bool:
        """Whether it may be watched at all: a pattern fits, or there are none, and it is not one of the broker's own."""
        if is_system(group):
            return False
        return not self._patterns or any(fnmatchcase(group, pattern) for pattern in self._patterns)

    def topics(self, group: str, seen: Collection[str], watched: Collection[str]) -> set[str]:
        """Those of the topics ``seen`` with the group's offsets that it pops; ``watched``: those it was seen to pop before.

        A group that a pattern names pops every topic that its connected clients are not seen to pull.
        """
        if not self.named(group):
            return set()
        facts = self.facts(group)
        own_retry = f"{RETRY_PREFIX}{group}"
        plain = {t for t in seen if not t.startswith(RETRY_PREFIX)} - facts.pulls
        retried = {t for t in plain if has_popped(group, t, seen)}
        popped = plain if self._patterns else plain & (facts.pops | retried | set(watched))
        retries = {f"{own_retry}{divider}{t}" for t in popped for divider in "_+"}
        return popped | {t for t in seen if t in retries}

    def why_not(self, group: str, seen: Collection[str], watched: Collection[str]) -> str | None:
        """Why none of the topics ``seen`` with the group's offsets is watched; ``None``: one is. See ``topics``."""
        if is_system(group):
            return "one of RocketMQ's own"
        if not self.named(group):
            return "no pattern of replay.groups fits its name"
        if self.topics(group, seen, watched):
            return None
        if not self.asked(group):
            return "the broker was not asked about it yet"
        if self.facts(group).pulls:
            return "its clients pull, they do not pop"
        return (
            "no client is seen to pop for it; groups that pop through a Proxy must be named in replay.groups"
        )

    def row_filter(self, group: str, topic: str) -> RowFilter | None:
        """The group's own filter of a topic, while connected clients tell it; ``None``: everything is wanted."""
        known = self.facts(group).filters.get(topic)
        return None if known is None else _compiled(*known)

    def due(self, groups: Iterable[str]) -> list[str]:
        """Which of the groups to ask about next: named ones first, and of these those never asked about. The others are asked
        about now and then, so that it is said when one of them pops."""
        now = self._clock.monotonic()
        with self._lock:
            asked_at = dict(self._asked_at)
        wanted = []
        for group in groups:
            if is_system(group):
                continue
            named = self.named(group)
            every = LEARN_SECONDS if named else OTHERS_SECONDS
            if now - asked_at.get(group, now - every) >= every:
                wanted.append((not named, asked_at.get(group, -every), group))
        return [group for _, _, group in sorted(wanted)[:LEARN_AT_ONCE]]

    def learn(self, broker: Broker, group: str) -> GroupFacts:
        """Ask the broker, and through it some clients, about a group."""
        with self._lock:
            self._asked_at[group] = self._clock.monotonic()
        facts = ask(broker, group)
        if self.facts(group).ordered or group in ordered_groups(self._order_file):
            facts = replace(facts, ordered=True)
        with self._lock:
            self._facts[group] = facts
        return facts


def ask(broker: Broker, group: str) -> GroupFacts:
    """What the broker and connected clients say of a group."""
    ordered = broker.is_ordered(group)
    consumers = broker.consumers(group)
    if consumers is None:
        return GroupFacts(ordered=ordered)
    pops: frozenset[str] = frozenset(consumers.filters) if consumers.pops else frozenset()
    pulls: frozenset[str] = frozenset()
    for client in consumers.clients[:CLIENTS_ASKED]:
        try:
            running = broker.running(group, client)
        except Unavailable:  # a client that does not answer says nothing of the broker
            continue
        if running is not None:
            pops, pulls = pops | running.pops, pulls | running.pulls
    return GroupFacts(pops, pulls - pops, ordered, consumers.filters, connected=True)


def is_system(group: str) -> bool:
    """Whether it is one of RocketMQ's own."""
    return any(fnmatchcase(group, pattern) for pattern in _SYSTEM_GROUPS)


def has_popped(group: str, topic: str, seen: Collection[str]) -> bool:
    """Whether the group has offsets in a retry topic that popping alone makes. ``seen``: all topics with its offsets."""
    own_retry = f"{RETRY_PREFIX}{group}"
    return not {f"{own_retry}_{topic}", f"{own_retry}+{topic}"}.isdisjoint(seen)


def ordered_groups(path: Path | None) -> set[str]:
    """Groups that have popped in order, by the broker's own file (``config/consumerOrderInfo.json``): its keys are
    ``topic@group``. Empty if it is not there, or not what it was."""
    if path is None:
        return set()
    try:
        table = json.loads(path.read_bytes())["table"]
        return {str(key).partition("@")[2] for key in table}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def positions(
    offsets: AllOffsets,
    groups: Groups,
    watched: Iterable[GroupQueue],
    facts: BrokerFacts,
    lanes: Iterable[GroupQueue] = (),
) -> dict[GroupQueue, int]:
    """Next offset that the broker will hand out, for every queue that a POP group reads, and for those of ``lanes`` that it
    names."""
    before: dict[str, set[str]] = {}
    for queue in watched:
        before.setdefault(queue.group, set()).add(queue.topic)
    found: dict[GroupQueue, int] = {}
    for group, seen in offsets.topics().items():
        for topic in groups.topics(group, seen, before.get(group, ())):
            queues = _queues(offsets, groups, group, topic, facts)
            found |= {GroupQueue(group, topic, queue_id): offset for queue_id, offset in queues.items()}
    for lane in lanes:
        queues = _queues(offsets, groups, lane.group, lane.topic, facts)
        if lane.queue_id in queues:
            found[lane] = queues[lane.queue_id]
    return found


def _queues(
    offsets: AllOffsets, groups: Groups, group: str, topic: str, facts: BrokerFacts
) -> dict[int, int]:
    """Queue id → next offset, of one group in one topic."""
    queues = dict(offsets.committed.get((group, topic), {}))
    if facts.kv and not groups.facts(group).ordered:
        queues |= offsets.pulled.get((group, topic), {})
    return queues


@lru_cache(1000)
def _compiled(kind: str, expression: str) -> RowFilter | None:
    """The filter; an expression that we do not understand filters nothing: the broker, too, applies it when it hands out."""
    try:
        return row_filter(expression, kind)
    except BadRequest:
        return None
