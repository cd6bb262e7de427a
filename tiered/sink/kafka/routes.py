"""Which partition of which topic the messages of a queue go to: always one, so that their order stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import xxhash

from tiered.errors import Invalid
from tiered.model import MessageQueue
from tiered.sink.base import SinkPosition, WentTo
from tiered.sink.kafka.naming import target_name
from tiered.sink.kafka.positions import position_records, route_record
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.topics import KafkaTopic, KafkaTopics, check_same
from tiered.sink.kinds import SinkPlace

_TIMELESS = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""Of topics that are created. Kafka judges records by their own time, which is the message's: old ones would be deleted as soon
as they came, and one of a clock that goes ahead would be refused, and all behind it."""


@dataclass(frozen=True, slots=True)
class QueueRoute:
    """``number`` counts a sink's queues from 0. ``topic_id``: Kafka's of the topic."""

    number: int
    queue: MessageQueue
    topic: str
    partition: int
    topic_id: str = ""


class QueueRoutes:
    """The queues met so far. A queue that had a partition before keeps it, whatever the topic has by now; a new one gets one by
    the partitions that the topic has when it is met. One thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        place: SinkPlace,
        topics: KafkaTopics,
        kept: Mapping[MessageQueue, tuple[str, int]],
        known: Mapping[str, str],
    ) -> None:
        """``kept``: partitions that queues were given by earlier processes; ``known``: ids of topics that have messages."""
        self._settings = settings
        self._place = place
        self._topics = topics
        self._kept = dict(kept)
        self._given: list[MessageQueue] = []
        """Queues whose partitions are not kept yet."""
        self._known = dict(known)
        self._found: dict[str, KafkaTopic] = {}
        self._routes: dict[MessageQueue, QueueRoute] = {}
        self.all: list[QueueRoute] = []
        """By their numbers."""

    def of(self, queues: list[MessageQueue]) -> list[QueueRoute]:
        """The routes of queues. ``Invalid``, ``Unavailable``."""
        fresh = [queue for queue in queues if queue not in self._routes]
        if fresh:
            self._look([self._target(queue) for queue in fresh])
            for queue in fresh:
                self._add(queue)
        return [self._routes[queue] for queue in queues]

    def take_over(self, kept: Mapping[MessageQueue, tuple[str, int]], known: Mapping[str, str]) -> None:
        """Partitions that queues were given beside this sink, before it met them, and the ids of their topics."""
        self._kept |= kept
        self._given += kept
        self._known |= known

    def remind(self, went: Mapping[MessageQueue, WentTo]) -> None:
        """Where queues went as somebody else kept it. Of a topic that was others before, any of which may stand there, the one
        that is there now counts. ``Invalid``: none of them is, if that is to be refused."""
        ids: dict[str, set[str]] = {}
        for at in went.values():
            ids.setdefault(at.target, set()).add(at.target_id)
        now = self._topics.find(ids)
        same = {name: now[name].id for name, known in ids.items() if name in now and now[name].id in known}
        check_same(
            {name: min(known) for name, known in ids.items() if name not in same},
            now,
            self._settings.refuse_recreated,
        )
        self.take_over(
            {q: (at.target, at.partition) for q, at in went.items() if same.get(at.target) == at.target_id},
            same,
        )

    def topic(self, name: str) -> KafkaTopic:
        """A topic that is no queue's, created if need be."""
        self._look([name])
        return self._found[name]

    def partitions(self) -> dict[MessageQueue, tuple[str, int]]:
        """Where the queues met go, to be kept."""
        return self._kept

    def records(self, position: SinkPosition) -> Iterator[tuple[bytes, bytes]]:
        """What Kafka is to keep of a position, and of partitions that it does not keep yet; asked once before it does."""
        yield from position_records(position, self._kept)
        given, self._given = self._given, []
        for queue in given:
            if queue not in position.queues:  # its topic is renamed: the position has another name
                target, partition = self._kept[queue]
                yield route_record(queue, target, partition, self.known_id(target))

    def known_id(self, topic: str) -> str | None:
        """Kafka's id of a topic that has messages of this sink."""
        found = self._found.get(topic)
        return self._known.get(topic) if found is None else found.id

    def unkept(self) -> list[KafkaTopic]:
        """Topics whose ids are not kept yet; asked once before they are."""
        fresh = [topic for name, topic in self._found.items() if self._known.get(name) != topic.id]
        self._known.update((topic.name, topic.id) for topic in fresh)
        return fresh

    def _target(self, queue: MessageQueue) -> str:
        kept = self._kept.get(queue)
        if kept is not None:
            return kept[0]
        return target_name(self._settings.topic, queue.topic, self._place.broker, self._place.cluster)

    def _look(self, names: list[str]) -> None:
        fresh = list(dict.fromkeys(name for name in names if name not in self._found))
        if not fresh:
            return
        before = {name: self._known[name] for name in fresh if name in self._known}
        if before:
            check_same(before, self._topics.find(before), self._settings.refuse_recreated)
        config, wanted = {**_TIMELESS, **self._settings.topic_config}, self._settings.max_message_bytes
        if wanted > 1_000_000:
            config.setdefault("max.message.bytes", str(wanted + 4_096))
        found = self._topics.ensure(
            fresh, config, self._settings.partitions, create=self._settings.create_topics
        )
        self._topics.check_configuration(found, wanted)
        self._found |= found

    def _add(self, queue: MessageQueue) -> None:
        target, partition = self._kept.get(queue, (None, None))
        if target is None or partition is None:
            target = self._target(queue)
            partition = self._partition(queue, self._found[target].partitions)
            self._given.append(queue)
        elif partition >= self._found[target].partitions:
            raise Invalid(
                "a queue's Kafka partition is not there any more", topic=target, partition=partition, queue=str(queue),
                found=f"{self._found[target].partitions} partitions",
                hint="the topic was made anew with fewer: give it as many, or rewind the sink after removing its position",
            )  # fmt: skip
        self._kept[queue] = target, partition
        route = self._routes[queue] = QueueRoute(
            len(self.all), queue, target, partition, self._found[target].id
        )
        self.all.append(route)

    def _partition(self, queue: MessageQueue, partitions: int) -> int:
        if self._settings.partition == "queue":
            return queue.queue_id % partitions
        name = f"{self._place.broker}\0{queue.topic}\0{queue.queue_id}".encode("utf-8", "surrogateescape")
        return xxhash.xxh3_64_intdigest(name) % partitions
