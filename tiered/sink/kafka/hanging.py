"""Records of a transaction that nobody ended: a broker of Kafka that is killed and started again may forget to.

It then takes the transaction for aborted, but the partitions do not know that: consumers at ``read_committed`` wait at its
first record, and *the next commit of the same producer commits these records, too*: what was given again is there twice. So
they are ended when a sink is opened: a record in the same partition, by the same producer, in a transaction that is aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from tiered.clock import Clock
from tiered.errors import Invalid, Unavailable
from tiered.model import MessageQueue
from tiered.sink.kafka.client import Heard, asking, kafka_library
from tiered.sink.kafka.consuming import WAIT_SECONDS, is_end, reader
from tiered.sink.kafka.positions import Kept
from tiered.sink.kafka.records import OFFSET, QUEUE, TOPIC, is_another_sinks
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.topics import KafkaTopics
from tiered.sink.kinds import SinkPlace

log = logging.getLogger(__name__)

_CLEANED_SECONDS = 20.0
"""How long after its time a transaction may stay open: Kafka looks for such ones every ten seconds by default."""


class Hanging(NamedTuple):
    """A partition with records from ``first`` on, below ``end``, that are neither committed nor aborted."""

    topic: str
    partition: int
    first: int
    end: int


def hanging(topics: KafkaTopics, partitions: Collection[tuple[str, int]]) -> list[Hanging]:
    """Those of these partitions. Other producers' transactions that go on just now are among them."""
    # Committed first: what comes between the two questions only makes more partitions look so.
    shown = topics.ends(partitions, committed=True)
    ends = topics.ends(partitions, committed=False)
    return [Hanging(*at, shown[at], ends[at]) for at in sorted(shown) if shown[at] < ends[at]]


class _Committed(NamedTuple):
    """A record that lies before the position, and is not shown."""

    offset: int
    queue: MessageQueue
    queue_offset: int


class GivenQueues(NamedTuple):
    """What was given, of each queue as records name it: all messages below an offset, and into which partition. ``sink``: by
    whom, as of ``SinkPlace.short_id``."""

    before: Mapping[MessageQueue, int]
    partitions: Mapping[MessageQueue, tuple[str, int]]
    sink: str = ""

    @classmethod
    def of(cls, kept: Kept, place: SinkPlace) -> GivenQueues:
        """By what Kafka keeps, where queues of a renamed topic have their position by its old name."""
        before = {
            MessageQueue(place.renamed(queue.topic), queue.queue_id): follow.next
            for queue, follow in kept.queues.items()
        }
        return cls(before, kept.partitions, place.short_id)


def check_not_committed(
    settings: KafkaSettings, topics: KafkaTopics, clock: Clock, found: Iterable[Hanging], given: GivenQueues
) -> None:
    """``Invalid`` if a record that hangs lies before the position: then its transaction was committed, half of it is not to be
    seen, and to abort the rest would lose messages. One that is not shown because another producer's transaction is open before
    it is waited for, as long as that can be. Records without headers cannot be told."""
    left = _before_the_position(settings, clock, found, given)
    deadline = clock.monotonic() + settings.transaction_timeout_ms / 1000 + _CLEANED_SECONDS
    while left:
        shown = topics.ends(left, committed=True)
        left = {at: record for at, record in left.items() if shown[at] <= record.offset}
        if left and clock.monotonic() > deadline:
            (topic, partition), record = min(left.items())
            raise Invalid(
                "Kafka committed a transaction in part: it keeps the position behind messages that it does not show",
                topic=topic, partition=partition, offset=record.offset, queue=str(record.queue),
                queue_offset=record.queue_offset,
                hint="tiered sink rewind-to NAME TIME gives them again; kafka-transactions.sh find-hanging shows it",
            )  # fmt: skip
        if left:
            clock.wait(WAIT_SECONDS)


def _before_the_position(
    settings: KafkaSettings, clock: Clock, found: Iterable[Hanging], given: GivenQueues
) -> dict[tuple[str, int], _Committed]:
    """The last such record of each partition that has one."""
    heard = Heard(settings.secrets)
    consumer = reader(
        settings, heard, "tiered",
        {"isolation.level": "read_uncommitted", "queued.max.messages.kbytes": 16 << 10},
    )  # fmt: skip
    made: dict[tuple[str, int], _Committed] = {}
    try:
        for part in found:
            deadline = clock.monotonic() + settings.seconds
            with asking(heard, "records of an open transaction were read", topic=part.topic):
                consumer.assign([kafka_library().TopicPartition(part.topic, part.partition, part.first)])
                at = part.first
                while at < part.end:
                    message = consumer.poll(WAIT_SECONDS)
                    if message is None:
                        if clock.monotonic() > deadline:
                            raise Unavailable(
                                "records of an open transaction cannot be read now", topic=part.topic
                            )
                        continue
                    if is_end(message):
                        break
                    at = message.offset() + 1
                    record = _committed(part, message, given)
                    if record is not None:
                        made[part.topic, part.partition] = record
    finally:
        consumer.close()
    return made


def _committed(part: Hanging, message: Any, given: GivenQueues) -> _Committed | None:
    headers = dict(message.headers() or ())
    if is_another_sinks(headers, given.sink):
        return None
    try:
        queue = MessageQueue(headers[TOPIC].decode(), int(headers[QUEUE]))
        offset = int(headers[OFFSET])
    except (KeyError, ValueError, AttributeError):
        return None
    mine = given.partitions.get(queue) == (part.topic, part.partition)
    if mine and offset < given.before.get(queue, 0):
        return _Committed(int(message.offset()), queue, offset)
    return None


def end_hanging(producer: Any, heard: Heard, found: list[Hanging], seconds: float) -> None:
    """Abort what hangs. ``producer``: of the same transactional id, initialised, without a transaction of its own."""
    log.warning(
        "Kafka shows transactions that nobody ended: what this sink has in them is aborted now",
        extra={
            "partitions": len(found),
            "some": [f"{part.topic}/{part.partition} from {part.first}" for part in found[:5]],
        },
    )
    failed: list[Any] = []

    def report(error: Any, _: object) -> None:
        if error is not None:
            failed.append(error)

    with asking(heard, "a transaction that hung was ended"):
        producer.begin_transaction()
        for part in found:
            producer.produce(part.topic, b"", b"aborted", part.partition, report)
        left = producer.flush(seconds + 1)
        if failed:
            raise heard.error("a transaction that hung was ended", failed[0])
        if left:
            raise Unavailable("Kafka does not take records", waiting=left)
        producer.abort_transaction(seconds)
