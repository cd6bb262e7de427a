"""Offsets of a consumer group of Kafka: read, and set where nobody consumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiered.errors import Conflict
from tiered.sink.kafka.client import Heard, asking, kafka_library, made
from tiered.sink.kafka.settings import KafkaSettings

Places = Mapping[tuple[str, int], int]
"""An offset for each topic and partition."""


class ConsumerGroup:
    """One group. One thread. Errors as of ``Heard``."""

    def __init__(self, settings: KafkaSettings, name: str) -> None:
        self.name = name
        self._seconds = settings.seconds
        self._heard = Heard(settings.secrets)
        self._admin: Any = made(kafka_library().admin.AdminClient, settings.client(), self._heard)

    def committed(self, wanted: Places) -> dict[tuple[str, int], int]:
        """What the group has in these partitions, where it has anything."""
        library = kafka_library()
        partitions = [library.TopicPartition(*place) for place in wanted]
        asked = library.ConsumerGroupTopicPartitions(self.name, partitions)
        with asking(self._heard, "offsets of a consumer group were asked for", group=self.name):
            found = self._admin.list_consumer_group_offsets([asked])[self.name].result(self._seconds)
        return {(p.topic, p.partition): int(p.offset) for p in found.topic_partitions if p.offset >= 0}

    def check(self, wanted: Places, *, back: bool) -> None:
        """``Conflict`` if the group has members, or would go back and is not to."""
        with asking(self._heard, "a consumer group was asked for", group=self.name):
            found = self._admin.describe_consumer_groups([self.name])[self.name].result(self._seconds)
        if found.members:
            hosts = sorted({member.host for member in found.members})
            raise Conflict(
                "Kafka's consumer group has live members, which would go on with offsets of their own", group=self.name,
                found=f"{len(found.members)} at {', '.join(hosts[:5])}",
                hint="stop its consumers first, or name another group: --kafka-group",
            )  # fmt: skip
        behind = [
            f"{topic}/{partition} from {now} to {wanted[topic, partition]}"
            for (topic, partition), now in sorted(self.committed(wanted).items())
            if now > wanted[topic, partition]
        ]
        if behind and not back:
            raise Conflict(
                "Kafka's consumer group is further already, and would go back", group=self.name,
                found="; ".join(behind[:5]), partitions=len(behind), hint="--back, if messages are to come again",
            )  # fmt: skip

    def move(self, wanted: Places) -> None:
        """Set the offsets: Kafka itself refuses it where members came meanwhile."""
        library = kafka_library()
        partitions = [library.TopicPartition(*place, offset) for place, offset in wanted.items()]
        asked = library.ConsumerGroupTopicPartitions(self.name, partitions)
        with asking(self._heard, "offsets of a consumer group were set", group=self.name):
            found = self._admin.alter_consumer_group_offsets([asked])[self.name].result(self._seconds)
            for partition in found.topic_partitions:
                if partition.error is not None:
                    raise library.KafkaException(partition.error)
