"""What is in Kafka, read back by a plain consumer at ``read_committed``: nobody is fenced, and nothing is committed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tiered.clock import Clock
from tiered.errors import Refused, Unavailable
from tiered.model import MessageQueue
from tiered.sink.base import SinkBatch, SinkPosition
from tiered.sink.comparison.base import ANOTHER_SINKS, Marks
from tiered.sink.comparison.content import content_of, marks_of, origin_of, taken_apart
from tiered.sink.kafka.client import Heard, asking, kafka_library, made
from tiered.sink.kafka.consuming import WAIT_SECONDS, polled
from tiered.sink.kafka.keeping import Keeping
from tiered.sink.kafka.naming import target_name
from tiered.sink.kafka.positions import Kept
from tiered.sink.kafka.records import (
    BODY,
    FLAG,
    MESSAGE_ID,
    OFFSET,
    PROPERTY,
    QUEUE,
    SINK,
    TOPIC,
    is_another_sinks,
)
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.topics import KafkaTopics
from tiered.sink.kinds import SinkPlace

_OURS = (TOPIC, QUEUE, OFFSET, MESSAGE_ID, SINK, FLAG, BODY)
_AT_ONCE = 5_000
_BUFFER_KIB = 32 << 10


class KafkaReadBack:
    """Of one sink. A queue whose partition Kafka keeps is read there alone; others in all partitions of their topic."""

    ordered = True

    def __init__(self, settings: KafkaSettings, place: SinkPlace, clock: Clock) -> None:
        if not settings.headers:
            raise Refused(
                "records without headers do not say which messages they are", field="options.headers", found="none",
                hint="compare by the offsets that tiered sink offsets gives, or make the sink anew with headers=all",
            )  # fmt: skip
        self._settings, self._place, self._clock = settings, place, clock
        self._heard = Heard(settings.secrets)
        self._topics = KafkaTopics(settings, clock)
        self._topics.reachable()
        self._kept = Kept()
        keeping = Keeping(settings, place, self._topics, clock)
        if settings.transactional and self._topics.find([keeping.topic]):
            self._kept = keeping.read()
        self._late: set[tuple[str, int]] = set()
        self._open = 0

    def position(self) -> SinkPosition | None:
        return self._kept.position if self._settings.transactional else None

    def target(self, queue: MessageQueue) -> MessageQueue:
        return queue

    def lane(self, queue: MessageQueue) -> str:
        kept = self._kept.partitions.get(queue)
        return self._name(queue) if kept is None else f"{kept[0]}/{kept[1]}"

    def given(self, batch: SinkBatch) -> Marks:
        return taken_apart(batch)

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        whole = sorted({self._name(queue) for queue in queues if queue not in self._kept.partitions})
        found = self._topics.find(whole)
        parts = {(name, number) for name, topic in found.items() for number in range(topic.partitions)}
        parts |= {self._kept.partitions[queue] for queue in queues if queue in self._kept.partitions}
        there = self._topics.find({name for name, _ in parts})
        yield from self._records(
            sorted(
                (name, number) for name, number in parts if name in there and number < there[name].partitions
            )
        )

    def buried(self) -> Iterator[Marks]:
        name = self._settings.dead_letter_topic
        found = self._topics.find([name] if name else [])
        yield from self._records(
            [(name, number) for topic in found.values() for number in range(topic.partitions)]
        )

    def begins_late(self, queue: MessageQueue) -> bool:
        kept = self._kept.partitions.get(queue)
        if kept is not None:
            return kept in self._late
        return any(topic == self._name(queue) for topic, _ in self._late)

    def unread(self) -> str | None:
        if not self._open:
            return None
        return f"a transaction is open in {self._open} partitions, and nobody reads what lies behind it"

    def close(self) -> None:
        """Each reading has a client of its own."""

    def _name(self, queue: MessageQueue) -> str:
        return target_name(self._settings.topic, queue.topic, self._place.broker, self._place.cluster)

    def _records(self, parts: Sequence[tuple[str, int]]) -> Iterator[Marks]:
        """Up to the end that each partition had at the beginning: transactions that are open there are waited for. Kafka writes
        the end of one behind its answer to the producer, so even what a sink knows to be committed may need a moment."""
        if not parts:
            return
        library = kafka_library()
        told = {
            **self._settings.client(), "group.id": f"tiered-verify-{self._place.name}", "isolation.level": "read_committed",
            "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False, "queued.max.messages.kbytes": _BUFFER_KIB, "fetch.wait.max.ms": 20,
        }  # fmt: skip
        ends = self._ends({**told, "isolation.level": "read_uncommitted"}, parts)
        consumer = made(library.Consumer, told, self._heard)
        try:
            with asking(self._heard, "what a sink gave to Kafka was read"):
                yield from self._consumed(consumer, ends)
        finally:
            consumer.close()

    def _ends(self, told: dict[str, Any], parts: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Where partitions that have anything end, open transactions and all."""
        library, ends = kafka_library(), {}
        consumer = made(library.Consumer, told, self._heard)
        try:
            with asking(self._heard, "Kafka was asked where partitions end"):
                for place in parts:
                    low, high = consumer.get_watermark_offsets(
                        library.TopicPartition(*place), timeout=self._settings.seconds
                    )
                    if low > 0:
                        self._late.add(place)
                    if high > low:
                        ends[place] = high
        finally:
            consumer.close()
        return ends

    def _consumed(self, consumer: Any, ends: dict[tuple[str, int], int]) -> Iterator[Marks]:
        library, seconds = kafka_library(), self._settings.seconds
        consumer.assign([library.TopicPartition(name, number, 0) for name, number in ends])
        seconds = max(seconds, self._settings.transaction_timeout_ms / 1000 + WAIT_SECONDS)
        deadline = self._clock.monotonic() + seconds
        waiting: set[tuple[str, int]] = set()
        while ends:
            some = []
            for message in polled(consumer, _AT_ONCE):
                place, error = (message.topic(), message.partition()), message.error()
                if error is not None and error.name() != "_PARTITION_EOF":
                    raise library.KafkaException(error)
                deadline = self._clock.monotonic() + seconds
                if place not in ends:
                    continue
                if error is None:
                    some.append(message)
                if message.offset() >= ends[place] - (error is None):
                    del ends[place]
                    consumer.incremental_unassign([library.TopicPartition(*place)])
                elif error is not None:
                    waiting.add(place)
            if some:
                yield self._marks(some)
            elif self._clock.monotonic() > deadline and waiting.issuperset(ends):
                self._open += len(ends)
                return
            elif self._clock.monotonic() > deadline:
                raise Unavailable(
                    "Kafka does not give what a sink gave to it", topic=min(ends)[0], partitions=len(ends)
                )

    def _marks(self, messages: Sequence[Any]) -> Marks:
        queues, offsets, origins, contents = [], [], [], []
        for message in messages:
            headers = message.headers() or []
            own = {name: value for name, value in headers if name in _OURS}
            try:
                queue = own[TOPIC].decode("utf-8", "surrogateescape"), int(own[QUEUE])
                offset, origin = int(own[OFFSET]), origin_of(own[MESSAGE_ID].decode())
            except (KeyError, ValueError, AttributeError, TypeError):
                continue  # somebody else's record
            if is_another_sinks(own, self._place.short_id):
                origin = ANOTHER_SINKS
            properties = {
                _free(name): (value or b"").decode("utf-8", "replace")
                for name, value in headers
                if name not in _OURS
            }
            queues.append(queue)
            offsets.append(offset)
            origins.append(origin)
            contents.append(content_of(message.value() or b"", properties.items()))
        return marks_of(queues, offsets, origins, contents)


def _free(name: str) -> str:
    """The property's own name."""
    return name.removeprefix(PROPERTY) if name.startswith(PROPERTY) else name
