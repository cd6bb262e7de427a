"""One sink compared, from its order on: what ``tiered sink verify`` and the Spark job do alike."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from tiered.archive.read.view import View
from tiered.filter.topicpolicy import TopicPolicy
from tiered.model import OFF_QUEUE_TOPIC, MessageQueue
from tiered.sink.book import StoredSink
from tiered.sink.comparison.archived import ArchivedMarks
from tiered.sink.comparison.base import ReadBack, open_read_back
from tiered.sink.comparison.comparing import SinkComparison
from tiered.sink.comparison.found import Compared
from tiered.sink.comparison.scope import SinkScope, scope_of
from tiered.sink.kinds import find_kind


def reader_of(stored: StoredSink, cluster: str, broker: str, archive_id: bytes) -> ReadBack:
    """A sink's destination, opened for reading. ``Refused`` if its kind cannot be read back."""
    place = stored.place(archive_id, cluster, broker)
    return open_read_back(find_kind(stored.order.kind), stored.order, place)


def taking(stored: StoredSink, policy: TopicPolicy, topic: str = "") -> Callable[[str], bool]:
    """Which topics are compared: those that the sink takes, or of these the one that is named."""

    def takes(name: str) -> bool:
        if topic and name != topic:
            return False
        return stored.order.takes(name, system=name == OFF_QUEUE_TOPIC or policy.is_system(name))

    return takes


def whole_scope(view: View, stored: StoredSink, reader: ReadBack, takes: Callable[[str], bool]) -> SinkScope:
    """What is to be compared of the archive as it is in ``view``."""
    return scope_of(view, stored, reader.position(), takes)


def compare(
    view: View, reader: ReadBack, scope: SinkScope, only: Collection[MessageQueue] | None = None
) -> Compared:
    """Read both sides of these queues. Errors as of ``ReadBack`` and of reading an archive."""
    if only is not None:
        scope = replace(scope, queues=tuple(each for each in scope.queues if each.queue in only))
    return SinkComparison(ArchivedMarks(view, reader.given), reader, scope).run()
