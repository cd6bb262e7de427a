"""What a topic's name means: RocketMQ's own topics, and the topics an operator leaves out of the archive.

System topics are archived (a restored broker needs them) and hidden from readers by default.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase, translate
from functools import lru_cache

from tiered.codec.record.systemtopics import is_system_topic
from tiered.errors import Invalid
from tiered.model import OFF_QUEUE_TOPIC

_LOSSES = (
    ("SCHEDULE_TOPIC_XXXX", "delayed messages not yet delivered"),
    ("rmq_sys_wheel_timer", "timer messages not yet delivered"),
    ("RMQ_SYS_TRANS_HALF_TOPIC", "transactions not yet decided"),
    (
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "the record of which transactions are decided (they may be checked again)",
    ),
    ("rmq_sys_REVIVE_LOG_DefaultCluster", "POP acknowledgements in flight"),
    ("%RETRY%group", "messages waiting to be retried"),
    ("%DLQ%group", "dead letters"),
    (OFF_QUEUE_TOPIC, "prepared and rollback records of transactions"),
)


class TopicPolicy:
    """Which topics are RocketMQ's own and which are excluded. Answers are cached, at most ``cache_size`` topics.

    Patterns are shell patterns (``*``, ``?``, ``[…]``), case-sensitive, on the whole name.
    """

    def __init__(
        self, exclude: Sequence[str] = (), *, cluster: str = "", broker: str = "", cache_size: int = 65_536
    ) -> None:
        for pattern in exclude:
            if not pattern.strip():
                raise Invalid(
                    "source.exclude_topics holds an empty pattern", hint="remove it, or name a topic"
                )
        self.patterns = tuple(exclude)
        self._cluster, self._broker = cluster, broker
        excluded = re.compile("|".join(f"(?:{translate(p)})" for p in self.patterns))
        self._excluded = lru_cache(cache_size)(excluded.match)

    def is_system(self, topic: str) -> bool:
        """True for RocketMQ's own topics, the archive's off-queue topic, and the topics named as broker and cluster."""
        return is_system_topic(topic, cluster=self._cluster, broker=self._broker)

    def is_excluded(self, topic: str) -> bool:
        """True if the operator leaves this topic out of the archive."""
        return bool(self.patterns) and self._excluded(topic) is not None


def restore_loss(patterns: Sequence[str]) -> str:
    """What a restore from this archive lacks because of the exclusions, in one sentence; empty if nothing is excluded."""
    if not patterns:
        return ""
    named = ", ".join(patterns)
    text = f"Topics matching {named} are not archived: restore lacks their messages"
    losses = [loss for topic, loss in _LOSSES if any(_may_match(p, topic) for p in patterns)]
    if losses:
        text += ", among them " + "; ".join(losses)
    return text + "."


def _may_match(pattern: str, topic: str) -> bool:
    """Whether the pattern covers this topic, or some topic of its family (``%RETRY%…``)."""
    if fnmatchcase(topic, pattern):
        return True
    family = next((p for p in ("%RETRY%", "%DLQ%", "rmq_sys_REVIVE_LOG_") if topic.startswith(p)), None)
    return family is not None and pattern.startswith(family)
