"""POP groups that are not watched, and what they are skipped over: nothing is owed to them, so it is at least said.

A group that no setting names may pop all the same. It is known to when its clients say so, when it has offsets in a retry topic
that popping alone makes, or when its positions move though the broker knows no client of it: then a Proxy pops for it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from itertools import islice

from tiered.broker.questions import AllOffsets, Broker, BrokerFacts
from tiered.clock import Clock
from tiered.metrics import Metrics
from tiered.replay.base import RETRY_PREFIX, GroupPosition, GroupQueue
from tiered.replay.groups import Groups, has_popped, is_system
from tiered.replay.rule import Aging, judge

log = logging.getLogger("tiered.replay")

MAX_TOPICS = 64
"""Topics whose bounds are asked for in one look, beside those of watched groups; the others have their turn in the next."""
MAX_ASKED = 5
"""Groups asked about in one look because their positions moved without a client."""
SAY_SECONDS = 60.0
"""Between two lines about one group and topic."""


class Unwatched:
    """In memory only: what was skipped before a start is not told again. Not for several threads."""

    def __init__(self, groups: Groups, clock: Clock, metrics: Metrics) -> None:
        self._groups = groups
        self._clock = clock
        self._metrics = metrics
        self._before: dict[tuple[str, str], Mapping[int, int]] = {}
        self._moving: set[tuple[str, str]] = set()
        self._known: dict[GroupQueue, GroupPosition] = {}
        self._aging: dict[GroupQueue, Aging] = {}
        self._said: dict[
            tuple[str, str], tuple[float, int]
        ] = {}  # when the next may be, and what was not said
        self._turn = 0
        self.skipped: dict[str, int] = {}
        """Messages that each group was skipped over, as far as was seen since the start."""

    def look(
        self,
        broker: Broker,
        offsets: AllOffsets,
        facts: BrokerFacts,
        watched: Collection[tuple[str, str]],
        aged_seconds: float,
    ) -> None:
        """One look. ``watched``: groups with the topics that are watched of them."""
        popping: dict[tuple[str, str], dict[int, int]] = {}
        standing: dict[tuple[str, str], Mapping[int, int]] = {}
        left = MAX_ASKED
        for group, seen in offsets.topics().items():
            if is_system(group):
                continue
            for topic in seen:
                key = group, topic
                if key in watched or topic.startswith(RETRY_PREFIX):
                    continue
                queues = dict(offsets.committed.get(key, {}))
                if facts.kv:
                    queues |= offsets.pulled.get(key, {})
                standing[key] = queues
                if left and self._moved_alone(key, queues):
                    left -= 1
                    if not self._groups.learn(broker, group).connected:
                        self._moving.add(key)
                if self._pops(key, seen):
                    popping[key] = queues
        self._before = standing
        self._moving &= standing.keys()
        self._metrics.replay_unwatched.set(len({group for group, _ in popping}))
        self._judge(broker, popping, aged_seconds)

    def _pops(self, key: tuple[str, str], seen: Collection[str]) -> bool:
        group, topic = key
        facts = self._groups.facts(group)
        if topic in facts.pulls:
            self._moving.discard(key)
            return False
        return topic in facts.pops or has_popped(group, topic, seen) or key in self._moving

    def _moved_alone(self, key: tuple[str, str], queues: Mapping[int, int]) -> bool:
        """Whether positions went on though the broker is not known to know a client."""
        before = self._before.get(key, {})
        if key in self._moving or self._groups.facts(key[0]).connected:
            return False
        return any(offset > before.get(queue_id, offset) for queue_id, offset in queues.items())

    def _judge(
        self, broker: Broker, popping: Mapping[tuple[str, str], Mapping[int, int]], aged_seconds: float
    ) -> None:
        now = self._clock.monotonic()
        names = sorted({topic for _, topic in popping})
        start = self._turn % max(1, len(names))
        chosen = list(islice((*names[start:], *names[:start]), MAX_TOPICS))
        self._turn = start + len(chosen)
        bounds = {topic: broker.bounds(topic) or {} for topic in chosen}
        alive = {GroupQueue(*key, queue_id) for key, queues in popping.items() for queue_id in queues}
        self._known = {queue: known for queue, known in self._known.items() if queue in alive}
        self._aging = {queue: self._aging.get(queue) or Aging() for queue in alive}
        for (group, topic), queues in popping.items():
            skipped = 0
            for queue_id, offset in queues.items():
                queue, bound = GroupQueue(group, topic, queue_id), bounds.get(topic, {}).get(queue_id)
                aged = self._aging[queue].note(now, offset, aged_seconds)
                if bound is None or offset < 0:
                    continue
                self._known[queue], missed = judge(self._known.get(queue), offset, bound[0], aged)
                skipped += 0 if missed is None else len(missed)
            if skipped:
                self._say(group, topic, skipped, now)

    def _say(self, group: str, topic: str, skipped: int, now: float) -> None:
        self._metrics.replay_unwatched_skipped.inc(skipped)
        self.skipped[group] = self.skipped.get(group, 0) + skipped
        after, unsaid = self._said.get((group, topic), (now, 0))
        if now < after:
            self._said[group, topic] = after, unsaid + skipped
            return
        self._said[group, topic] = now + SAY_SECONDS, 0
        log.warning(
            "a POP group that is not watched is skipped over messages that the broker has deleted",
            extra={
                "group": group,
                "topic": topic,
                "messages": skipped + unsaid,
                "why": self._groups.why_not(group, (topic,), ()) or "this topic is not watched",
                "hint": "name the group in replay.groups; tiered replay sends the messages that it missed",
            },
        )
