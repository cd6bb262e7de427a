"""Which sinks retention waits for, by their orders: required ones, and those whose history others are giving just now."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tiered.archive.keys import ArchiveKeys
from tiered.archive.rewrite.policy import RequiredSink
from tiered.filter.topicpolicy import TopicPolicy
from tiered.provider.base import Provider
from tiered.sink.book import SinkBook, StoredSink


def required_sinks(
    provider: Provider, keys: ArchiveKeys, archive_id: bytes
) -> Callable[[], list[RequiredSink]]:
    """A look at the orders each time it is asked. ``Corrupt`` where one cannot be read: then nothing is trimmed."""
    book = SinkBook(provider, keys, archive_id)
    policy = TopicPolicy(cluster=keys.cluster, broker=keys.broker)

    def takes(stored: StoredSink, topic: str) -> bool:
        return stored.order.takes(topic, system=policy.is_system(topic))

    def look() -> list[RequiredSink]:
        return [
            RequiredSink(stored.sink_id, stored.name, partial(takes, stored))
            for stored in book.sinks()
            if stored.holds_retention
        ]

    return look
