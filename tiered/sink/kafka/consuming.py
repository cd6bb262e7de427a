"""Reading a sink's records back: a consumer that commits nothing, and its polling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiered.sink.kafka.client import Heard, kafka_library, made
from tiered.sink.kafka.settings import KafkaSettings

WAIT_SECONDS = 0.5
"""How long the first message to come is waited for."""


def reader(settings: KafkaSettings, heard: Heard, group: str, more: Mapping[str, object]) -> Any:
    """A consumer at ``read_committed`` that is told the ends of partitions, makes no topic and commits nothing; ``more``: what
    else it is told, or otherwise. To be closed. Errors as of ``made``."""
    told = {
        **settings.client(), "group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False,
        "enable.partition.eof": True, "allow.auto.create.topics": False, **more,
    }  # fmt: skip
    return made(kafka_library().Consumer, told, heard)


def polled(consumer: Any, most: int) -> list[Any]:
    """What has come: one message that is waited for a moment, and up to ``most`` that are here with it. ``consume`` alone would
    wait for all that it was asked."""
    first = consumer.poll(WAIT_SECONDS)
    return [] if first is None else [first, *consumer.consume(most, 0)]


def is_end(message: Any) -> bool:
    """Whether it is no record but the end of its partition. Raises whatever else is told in a record's place."""
    error = message.error()
    if error is None:
        return False
    if error.name() != "_PARTITION_EOF":
        raise kafka_library().KafkaException(error)
    return True
