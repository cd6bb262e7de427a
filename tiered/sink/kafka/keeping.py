"""The topic in which Kafka keeps a sink's position: made, and read up to its committed end."""

from __future__ import annotations

from typing import Any

from tiered.clock import Clock
from tiered.errors import Unavailable
from tiered.sink.kafka.client import Heard, asking, kafka_library
from tiered.sink.kafka.consuming import is_end, polled, reader
from tiered.sink.kafka.positions import Kept, position_deleted
from tiered.sink.kafka.reports import Reports
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.topics import KafkaTopics
from tiered.sink.kinds import SinkPlace

_CONFIG = {
    "cleanup.policy": "compact", "segment.bytes": str(16 << 20), "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}  # fmt: skip
"""Few segments behind the last compaction: what an opening has to read."""
_AT_ONCE = 1_000


def position_topic(place: SinkPlace) -> str:
    """Its name: of the archive as well, since other brokers' sinks may have this sink's name."""
    return f"__tiered.{place.archive_id.hex()[:12]}.{_this_sink(place)}"


def transactional_id(place: SinkPlace) -> str:
    """By which Kafka knows every process that ever has this sink, and lets the last one alone write."""
    return f"tiered.{place.archive_id.hex()}.{_this_sink(place)}"


def _this_sink(place: SinkPlace) -> str:
    """And no other that had its name before."""
    return ".".join(filter(None, (place.name, place.short_id, place.part)))


class Keeping:
    """Reads what Kafka keeps of a sink. One thread. Errors as of ``Heard``."""

    def __init__(self, settings: KafkaSettings, place: SinkPlace, topics: KafkaTopics, clock: Clock) -> None:
        self.topic = position_topic(place)
        self._settings = settings
        self._topics = topics
        self._clock = clock

    def make(self) -> None:
        """See that the topic is there."""
        if not self._topics.find([self.topic]):
            self._topics.ensure([self.topic], _CONFIG, 1, create=True)

    def read(self) -> Kept:
        """All that is committed."""
        heard = Heard(self._settings.secrets)
        consumer = reader(
            self._settings, heard, self.topic,
            {
                "auto.offset.reset": "earliest", "queued.max.messages.kbytes": 16 << 10, "queued.min.messages": 1_000,
                "fetch.wait.max.ms": 20,  # an end that is reached is told when this is over
            },
        )  # fmt: skip
        kept, deadline = Kept(), self._clock.monotonic() + self._settings.seconds
        try:
            with asking(heard, "the position in Kafka was read", topic=self.topic):
                consumer.assign([kafka_library().TopicPartition(self.topic, 0, 0)])
                while True:
                    for message in polled(consumer, _AT_ONCE):
                        if is_end(message):
                            kept.settle()
                            return kept
                        deadline = self._clock.monotonic() + self._settings.seconds
                        if message.key() is not None and message.value() is not None:
                            kept.take(message.key(), message.value())
                    if self._clock.monotonic() > deadline:
                        raise Unavailable("the position in Kafka cannot be read now", topic=self.topic)
        finally:
            consumer.close()


class KeptReports:
    """What Kafka reports of records of the position. A topic that was deleted and made anew while the sink runs begins at its
    first offset again, and has nothing of what was kept before. One thread, as of ``Reports``."""

    def __init__(self, topic: str, reports: Reports) -> None:
        self._topic = topic
        self._reports = reports
        self._last = -1
        self._forgotten = False

    def take(self, error: Any, message: Any) -> None:
        """The client's ``on_delivery``."""
        if error is not None:
            self._reports.failed(error, message)
        elif message.offset() <= self._last:
            self._forgotten = True
        else:
            self._last = message.offset()

    def check(self) -> None:
        """``Invalid`` if the topic was made anew."""
        if self._forgotten:
            raise position_deleted(self._topic)
