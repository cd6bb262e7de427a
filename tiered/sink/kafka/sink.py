"""A sink into Kafka: messages become records, a flush a transaction with the position in it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tiered.archive.state.offsetmap import OffsetMap
from tiered.clock import Clock
from tiered.errors import Fenced, TieredError, Unavailable
from tiered.model import MessageQueue
from tiered.sink.base import (
    Accepted,
    Placed,
    Rewound,
    SafePoint,
    SinkBatch,
    SinkPosition,
    Unmapped,
    WentTo,
)
from tiered.sink.kafka.client import GONE, IN_VAIN, Heard, asking, kafka_library, made, transaction_error
from tiered.sink.kafka.hanging import GivenQueues, check_not_committed, end_hanging, hanging
from tiered.sink.kafka.keeping import Keeping, KeptReports, position_topic, transactional_id
from tiered.sink.kafka.markers import marker_of
from tiered.sink.kafka.partmaps import PartMaps
from tiered.sink.kafka.positions import (
    Kept,
    SinkOwner,
    owner_record,
    position_deleted,
    topic_record,
)
from tiered.sink.kafka.records import BODY, Headers, headers_of, keys_of, queue_of, times_of
from tiered.sink.kafka.reports import Report, Reports
from tiered.sink.kafka.rereading import RecordReader, SoughtPlaces, placed_again
from tiered.sink.kafka.routes import QueueRoutes
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.topics import KafkaTopics, check_same
from tiered.sink.kafka.values import looked_at, too_large, values_of
from tiered.sink.kinds import SinkPlace
from tiered.sink.messages import SinkMessages, messages_of

log = logging.getLogger(__name__)

_PART = 1_024
"""Messages made into records at once, between two looks at what Kafka reported."""
_WAIT_SECONDS = 0.2
_CLOSE_SECONDS = 2.0


class KafkaSink:
    """One opening. Errors as of ``Sink``; after any of them nothing is written any more."""

    def __init__(self, settings: KafkaSettings, place: SinkPlace, clock: Clock) -> None:
        """Open it: in mode transactional any other process that has it is fenced, and what that had not committed is undone."""
        self._settings = settings
        self._place = place
        self._clock = clock
        self._heard = Heard(settings.secrets)
        self._reports = Reports(
            refuse_recreated=settings.refuse_recreated,
            sparse=settings.headers,
            committed=settings.transactional,
        )
        self._topics = KafkaTopics(settings, clock)
        self._topics.reachable()
        self._keeping = Keeping(settings, place, self._topics, clock)
        self._producer: Any = None
        self._in_transaction = False
        self._owner = SinkOwner(place.epoch, os.urandom(8).hex())
        self._retold: list[tuple[bytes, bytes]] = []
        """Records about topics that are others now, for the flush of a sink that begins anew."""
        self._kept_reports = KeptReports(self._keeping.topic, self._reports)
        kept = Kept()
        if settings.transactional:
            self._keeping.make()
            self._check_epoch(place)
        library = kafka_library()
        self._producer = made(library.Producer, settings.producer(transactional_id(place)), self._heard)
        try:
            if settings.transactional:
                with self._opening(place):
                    self._producer.init_transactions(settings.seconds)
                    kept = self._kept(place)
                    self._own()
            self._routes = QueueRoutes(settings, place, self._topics, kept.partitions, kept.topics)
            if settings.dead_letter_topic:
                self._routes.topic(settings.dead_letter_topic)
        except BaseException:
            self.close()
            raise
        self._position = kept.position if settings.transactional else None
        self._part_maps = PartMaps(kept.maps) if settings.transactional and place.part else None

    def position(self) -> SinkPosition | None:
        return self._position

    def write(self, batch: SinkBatch) -> Accepted:
        messages = messages_of(batch)
        dead = 0
        with self._telling("messages were given"):
            self._begin()
            for first in range(0, len(messages), _PART):
                dead += self._write_part(messages.since(first, min(first + _PART, len(messages))))
        return Accepted(len(batch.rows), dead)

    def mark(self, rewound: Sequence[Rewound]) -> None:
        """Records in the partitions of the queues, if the order wants them."""
        if not self._settings.markers:
            return
        with self._telling("marks were given"):
            self._begin()
            for gone, route in zip(rewound, self._routes.of([gone.queue for gone in rewound]), strict=True):
                key, headers = marker_of(gone, self._place.short_id)
                self._put(route.topic, None, key, route.partition, 0, headers)

    def remind(self, went: Mapping[MessageQueue, WentTo]) -> None:
        """In mode transactional Kafka keeps this itself, in step with the messages."""
        if not self._settings.transactional:
            self._routes.remind(went)

    def join(self, parts: Sequence[str], maps: Mapping[MessageQueue, OffsetMap]) -> None:
        """Queues keep the partitions that they were given; the messages are there."""
        if self._settings.transactional:
            topics = {told.target: told.target_id for told in maps.values() if told.target}
            partitions = {q: (told.target, told.partition) for q, told in maps.items() if told.target}
            self._routes.take_over(partitions, topics)
            self._retold += [topic_record(*known) for known in topics.items()]

    def joined(self, parts: Sequence[str]) -> None:
        """Their positions are of no use any more: whoever opens one of them again finds that the backfill ended."""
        if self._settings.transactional:
            places = [replace(self._place, part=part) for part in parts]
            self._topics.delete([position_topic(place) for place in places])

    def flush(self, position: SinkPosition) -> SafePoint:
        with self._telling("a flush"):
            if self._settings.transactional:
                self._begin()
                while self._retold:
                    self._keep(*self._retold.pop())
                for topic in self._routes.unkept():
                    self._keep(*topic_record(topic.name, topic.id))
                for key, value in self._routes.records(position):
                    self._keep(key, value)
            self._settle()
            placed = self._reports.placed(self._routes.all)
            if self._settings.transactional:
                if self._part_maps is not None and placed:
                    for key, value in self._part_maps.learned(placed):
                        self._keep(key, value)
                    self._settle()
                self._commit()
        return SafePoint(position, placed)

    def placed_between(
        self, unmapped: Mapping[MessageQueue, Unmapped]
    ) -> dict[MessageQueue, tuple[Placed, ...]]:
        """See ``OffsetSink``: by the headers of the records; of a part, by what Kafka keeps with its position."""
        if self._part_maps is not None:
            return self._part_maps.placed(unmapped)
        if not self._settings.headers:
            return {}
        asked: dict[MessageQueue, SoughtPlaces] = {}
        none: dict[MessageQueue, tuple[Placed, ...]] = {}
        for queue, gap in unmapped.items():
            topic, partition = self._routes.partitions().get(queue, ("", 0))
            topic_id = self._routes.known_id(topic)
            if topic_id:
                lowest = gap.target_offset if gap.target_id == topic_id else 0
                asked[queue] = SoughtPlaces(topic, partition, topic_id, lowest, gap)
            elif gap.first is None:  # where a queue begins of which no message was ever given
                none[queue] = ()
        return none | placed_again(RecordReader(self._settings, self._place.short_id, self._clock), asked)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.purge()
            if self._in_transaction:
                producer.abort_transaction(_CLOSE_SECONDS)
            producer.poll(0)
        except kafka_library().KafkaException as error:
            # The next opening undoes the transaction, or Kafka does when its time is up.
            log.debug("closed with a transaction open: %s", self._heard.said(error.args[0]))

    # ---- opening

    def _kept(self, place: SinkPlace) -> Kept:
        """What Kafka keeps, with topics that are the ones that have this sink's messages; of a sink that begins anew,
        without those that are not."""
        kept = self._keeping.read()
        now = self._topics.find([*kept.topics, self._keeping.topic])
        if place.anew:
            self._retold = [topic_record(name, None) for name in kept.forget(now)]
        else:
            kept.check_whole(self._keeping.topic)
            check_same(kept.topics, now, self._settings.refuse_recreated)
        hung = hanging(
            self._topics, [(topic.name, at) for topic in now.values() for at in range(topic.partitions)]
        )
        if hung:
            given = GivenQueues.of(kept, place)
            check_not_committed(self._settings, self._topics, self._clock, hung, given)
            end_hanging(self._producer, self._heard, hung, self._settings.seconds)
        if place.part:  # its queues go where the sink itself would put them
            whole = Keeping(self._settings, replace(place, part=""), self._topics, self._clock).read()
            kept.beside(whole)
        return kept

    def _check_epoch(self, place: SinkPlace) -> None:
        """A later writer's sink must not be fenced by an earlier one's that wakes up."""
        owner = self._keeping.read().owner
        if owner is not None and owner.epoch > place.epoch:
            raise Fenced(
                "a later writer of the archive has this sink", found=owner.epoch, expected=place.epoch
            )

    def _own(self) -> None:
        self._begin()
        self._keep(*owner_record(self._owner))
        self._settle()
        self._commit()

    @contextmanager
    def _opening(self, place: SinkPlace) -> Iterator[None]:
        """Around what makes the sink this process's. Whoever fences it may be an earlier writer that just woke up: the
        next try finds out whose the sink is."""
        try:
            with asking(self._heard, "the sink was opened", transactional_id=transactional_id(place)):
                yield
        except SystemError:  # as of ``_telling``
            raise Unavailable("the sink was opened: Kafka's client met a fatal error") from None
        except Fenced as error:
            raise Unavailable("another process opened the sink at the same time", found=error.said) from error

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Around all that speaks to Kafka: errors as of ``Sink``."""
        try:
            with asking(self._heard, what):
                yield
        except (
            SystemError
        ):  # a fatal error that the client's callbacks lost on its way; the client is done for
            raise self._whose(Fenced(f"{what}: Kafka's client met a fatal error")) from None
        except Fenced as error:
            raise self._whose(error) from error

    def _whose(self, error: Fenced) -> TieredError:
        """Kafka also fences a producer whose transaction was open too long: then the sink is still this process's."""
        if not self._settings.transactional:
            return Unavailable(error.said)
        try:
            owner = self._keeping.read().owner
        except TieredError as away:
            return Unavailable(
                "Kafka took this sink's transaction away, and does not say for whom", found=away.message
            )
        if owner is not None and owner.epoch < self._owner.epoch:
            return Unavailable("an earlier writer, which was overtaken, opened this sink", found=error.said)
        if owner != self._owner:
            return error
        return Unavailable(
            "a transaction was open longer than Kafka allows", found=error.said,
            hint="raise the sink's transaction_timeout_ms if this comes again",
        )  # fmt: skip

    # ---- writing

    def _write_part(self, messages: SinkMessages) -> int:
        pairs = messages.topic << 32 | messages.queue_id & 0xFFFF_FFFF
        distinct, which = np.unique(pairs, return_inverse=True)
        queues = [MessageQueue(messages.topics[pair >> 32], pair & 0xFFFF_FFFF) for pair in distinct.tolist()]
        routes = self._routes.of(queues)
        keys = keys_of(messages, self._settings.key)
        headers: Sequence[Headers] = (
            headers_of(messages, self._place.short_id) if self._settings.headers else [{}] * len(messages)
        )
        values: list[bytes] = messages.stored
        times = times_of(messages, self._settings)
        kept = np.arange(len(messages))
        most = self._settings.max_message_bytes
        if looked_at(messages, most):
            large = too_large(messages, keys, headers, most, buried=bool(self._settings.dead_letter_topic))
            for at in sorted(large):
                self._bury(messages, at, keys[at], headers[at], times[at])
            kept = np.delete(kept, sorted(large))
            values, headers = values_of(messages, headers, kept, most)
            keys, times = [keys[at] for at in kept.tolist()], [times[at] for at in kept.tolist()]
        given = which[kept]
        places = [(route.topic, route.partition) for route in routes]
        asked = self._reports.asked(places, given)
        calls = [(*place, self._reports.rest) for place in places]
        calls += [(*place, self._reports.of(*place)) for place in places]
        produce = self._producer.produce
        where = map(calls.__getitem__, (given + len(routes) * asked).tolist())
        for value, key, head, time, (topic, partition, report) in zip(
            values, keys, headers, times, where, strict=True
        ):
            try:
                produce(topic, value, key, partition, report, None, time, head)
            except BufferError:
                self._put(topic, value, key, partition, time, head, report)
        number = np.array([route.number for route in routes], np.int64)
        self._reports.give(number[given], messages.queue_offset[kept], asked)
        self._producer.poll(0)
        self._check()
        return len(messages) - len(kept)

    def _bury(self, messages: SinkMessages, at: int, key: bytes | None, headers: Headers, time: int) -> None:
        """A record that tells of a message that is too large: all but its body, which is in the archive."""
        where = queue_of(messages, at)
        told = f"left out: {len(messages.stored[at])} bytes as stored; tiered read --topic {where.topic}"
        told += f" --queue {where.queue_id} --offset {int(messages.queue_offset[at])}"
        topic = self._settings.dead_letter_topic
        head = {**headers, BODY: told.encode("utf-8", "replace")}
        self._put(topic, None, key, self._routes_hash(where), time, head)

    def _routes_hash(self, queue: MessageQueue) -> int:
        return queue.queue_id % self._routes.topic(self._settings.dead_letter_topic).partitions

    def _keep(self, key: bytes, value: bytes) -> None:
        self._put(self._keeping.topic, value, key, 0, 0, {}, self._kept_reports.take)

    def _put(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        time: int,
        headers: Headers,
        report: Report | None = None,
    ) -> None:
        """A record, once there is room for it. Without ``report`` only its failure matters."""
        report = report or self._reports.rest
        while True:
            try:
                self._producer.produce(topic, value, key, partition, report, None, time, headers)
                return
            except BufferError:
                self._wait()

    def _wait(self) -> None:
        """Until the client's buffers have room; what is not sent in time fails, and so this ends."""
        self._producer.poll(_WAIT_SECONDS)
        self._check()

    # ---- transactions

    def _begin(self) -> None:
        if self._producer is None:
            raise Unavailable("the sink is closed")
        if self._settings.transactional and not self._in_transaction:
            with asking(self._heard, "a transaction was begun"):
                self._producer.begin_transaction()
            self._in_transaction = True

    def _settle(self) -> None:
        """Wait until Kafka has every record."""
        if self._producer is None:
            raise Unavailable("the sink is closed")
        left = self._producer.flush(self._settings.seconds + 1)
        self._check()
        if left:
            raise Unavailable(
                "Kafka does not take records", waiting=left, heard="; ".join(self._heard.errors.values())
            )

    def _commit(self) -> None:
        with asking(self._heard, "a transaction was committed"):
            self._producer.commit_transaction(self._settings.seconds)
        self._in_transaction = False

    def _check(self) -> None:
        self._kept_reports.check()
        if self._reports.failure is not None:
            raise self._failure(*self._reports.failure)

    def _failure(self, error: Any, topic: str) -> TieredError:
        if topic == self._keeping.topic and error.name() in GONE:
            return position_deleted(topic)
        cause = (
            transaction_error(self._producer) if self._in_transaction and error.name() in IN_VAIN else None
        )
        if cause is not None:
            return self._heard.error("records were given", cause)
        return self._heard.error("a record was given", error, topic=topic)
