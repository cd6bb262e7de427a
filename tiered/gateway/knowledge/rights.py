"""Whether a broker grants a key the topic that it asks for, as far as its answers show.

Two questions reach archived messages and are not checked by topic: a lite pull (361) by brokers of 5.x, and a view by id (33)
by any. Others are: what a broker answers to a pull (11) or a query by key (12), and that it takes a heartbeat that subscribes
to the topic, is evidence that the key may read it. Requests without a key come from clients of brokers that ask for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cachetools import LRUCache

from tiered.clock import Clock
from tiered.codec.remoting.codes import PULL_LOOKED, RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.gateway.knowledge.clients import subscribed_topics
from tiered.gateway.ports import clipped
from tiered.gateway.reply import reply

GRANT_SECONDS = 120.0
"""How long evidence counts: rights may be taken away. Clients send a heartbeat every 30 seconds."""

MAX_GRANTS = 65_536
MAX_NAME = 255
"""Characters of a key, or of a topic, that are kept; longer ones belong to nobody, and prove nothing."""
ACCESS_KEY = "AccessKey"
_OWN_RULES = "%"
"""Topics of groups (retry, dead letters) begin so; brokers judge them by the group, or not at all."""

_CHECKED: Mapping[int, frozenset[int]] = {
    RequestCode.PULL_MESSAGE: PULL_LOOKED,
    RequestCode.QUERY_MESSAGE: frozenset({ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND}),
}
"""Requests that brokers judge by their topic, and how they answer those that they accept."""


class Rights:
    """Evidence by key and topic. ``believes``: a setting does without. On the event loop only."""

    def __init__(self, clock: Clock, *, believes: bool) -> None:
        self._clock = clock
        self._believes = believes
        self._granted: LRUCache[tuple[str, str], float] = LRUCache(MAX_GRANTS)  # until when

    def learn(self, request: Command, answer: Command) -> None:
        """The broker has answered: what does that show?"""
        key = request.ext.get(ACCESS_KEY)
        if not key or self._believes or len(key) > MAX_NAME:
            return
        topics: Iterable[str] = ()
        if answer.code in _CHECKED.get(request.code, ()):
            topics = (request.ext.get("topic", ""),)
        elif request.code == RequestCode.HEART_BEAT and answer.code == ResponseCode.SUCCESS:
            topics = subscribed_topics(request.body)
        until = self._clock.monotonic() + GRANT_SECONDS
        for topic in topics:
            if 0 < len(topic) <= MAX_NAME and not topic.startswith(_OWN_RULES):
                self._granted[key, topic] = until

    def may_read(self, fields: Mapping[str, str], topic: str) -> bool:
        """Whether archived messages of ``topic`` may go to the client that sent ``fields``."""
        key = fields.get(ACCESS_KEY)
        if not key or self._believes:
            return True
        return self._granted.get((key, topic), 0.0) > self._clock.monotonic()


def unproven(answer: Command, topic: str) -> Command:
    """The refusal. Consumers try again, and are served once there is evidence."""
    return reply(
        answer,
        ResponseCode.NO_PERMISSION,
        f"[gateway] nothing shows that the broker grants this key the topic {clipped(topic)}: it did not check that for this"
        " request; subscribe, pull (11) or query by key first, or set gateway.unproven_reads",
    )
