"""A sink's position as records of a compacted topic: a key for each queue, one for the log, one for who has the sink.

A record for each queue and not one for all: a flush tells the queues that changed, and compaction keeps the last of each. What
else must outlive a process lies beside it: the partition that a queue was given, and which topic it was (Kafka's id of it). A
queue whose topic the order renames has its position by the source's name, and a record for its partition by the new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiered.archive.state.offsetmap import OffsetMap
from tiered.errors import Corrupt, Invalid, TieredError
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue
from tiered.sink.base import SinkPosition
from tiered.sink.kafka.topics import KafkaTopic
from tiered.sink.keptmaps import map_of_text, map_text

LOG, OWNER = b"log", b"owner"
_QUEUE, _TOPIC, _MAP, _ROUTE = b"queue:", b"topic:", b"map:", b"route:"


@dataclass(frozen=True, slots=True)
class SinkOwner:
    """Who opened the sink last: the epoch of its archive's writer, and a name of that opening."""

    epoch: int
    opening: str


@dataclass(slots=True)
class Kept:
    """All that the topic says. ``partitions``: where each queue's messages go, (topic, partition); ``topics``: Kafka's id of
    each topic that has messages; ``maps``: of a part of a backfill, where its messages lie."""

    owner: SinkOwner | None = None
    log: FeedPosition = field(default_factory=FeedPosition)
    queues: dict[MessageQueue, Follow] = field(default_factory=dict)
    partitions: dict[MessageQueue, tuple[str, int]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    maps: dict[MessageQueue, OffsetMap] = field(default_factory=dict)
    _routes: dict[MessageQueue, tuple[str, int, str | None]] = field(default_factory=dict)

    def settle(self) -> None:
        """Everything was taken: partitions that queues were given in topics that are still the ones count."""
        for queue, (target, partition, topic_id) in self._routes.items():
            if self.topics.get(target) == topic_id:
                self.partitions[queue] = target, partition

    @property
    def position(self) -> SinkPosition:
        """As the port has it."""
        return SinkPosition(self.log, dict(self.queues))

    def forget(self, now: Mapping[str, KafkaTopic]) -> list[str]:
        """Know nothing of topics that are gone, or others ``now``, and give their queues partitions anew; the topics' names."""
        gone = [name for name, known in self.topics.items() if name not in now or now[name].id != known]
        for name in gone:
            del self.topics[name]
        self.partitions = {queue: at for queue, at in self.partitions.items() if at[0] not in gone}
        return gone

    def beside(self, whole: Kept) -> None:
        """Take over, into what is kept of a part, where the sink itself has put messages before."""
        self.partitions = {**whole.partitions, **self.partitions}
        self.topics = {**whole.topics, **self.topics}

    def check_whole(self, topic: str) -> None:
        """``Invalid`` if ``topic``, in which this lies, was made anew while a sink ran: it has what changed since then."""
        if self.owner is None and (self.queues or self.log.physical is not None):
            raise position_deleted(topic)

    def take(self, key: bytes, value: bytes) -> None:
        """A record of the topic, in its order. ``Corrupt``."""
        try:
            if key == LOG:
                self.log = FeedPosition.decode(value)
                return
            told = json.loads(value)
            if key == OWNER:
                self.owner = SinkOwner(int(told["epoch"]), str(told["opening"]))
            elif key.startswith(_TOPIC):
                self._topic(str(told["topic"]), told["id"])
            elif key.startswith(_MAP):
                queue = MessageQueue(str(told["topic"]), int(told["queue"]))
                self.maps[queue] = map_of_text(told["map"])
            elif key.startswith(_ROUTE):
                queue = MessageQueue(str(told["topic"]), int(told["queue"]))
                self._routes[queue] = str(told["target"]), int(told["partition"]), told["id"]
            elif key.startswith(_QUEUE):
                queue = MessageQueue(str(told["topic"]), int(told["queue"]))
                physical = told["physical"]
                self.queues[queue] = Follow(int(told["next"]), None if physical is None else int(physical))
                if told.get("target") is not None:
                    self.partitions[queue] = str(told["target"]), int(told["partition"])
                else:
                    self.partitions.pop(queue, None)
        except (KeyError, TypeError, ValueError) as error:
            raise Corrupt(
                "the position that Kafka keeps of a sink cannot be read", key=ascii(key)[:80], found=ascii(value)[:120],
                hint="somebody else wrote to the topic: delete it, and rewind the sink to where it is to go on",
            ) from error  # fmt: skip

    def _topic(self, name: str, topic_id: str | None) -> None:
        if topic_id is None:
            self.topics.pop(name, None)
        else:
            self.topics[name] = topic_id


def position_deleted(topic: str) -> TieredError:
    """What to say where the sink's position is gone."""
    return Invalid(
        "the Kafka topic with this sink's position was deleted", topic=topic,
        hint="tiered sink rewind-to NAME TIME, or start: what Kafka still has from then on comes twice",
    )  # fmt: skip


def owner_record(owner: SinkOwner) -> tuple[bytes, bytes]:
    """Key and value of who has the sink."""
    return OWNER, _json(epoch=owner.epoch, opening=owner.opening)


def topic_record(topic: str, topic_id: str | None) -> tuple[bytes, bytes]:
    """Key and value of which topic it is; ``None``: there is none any more that counts."""
    return _TOPIC + topic.encode(), _json(topic=topic, id=topic_id)


def position_records(
    position: SinkPosition, partitions: dict[MessageQueue, tuple[str, int]]
) -> Iterable[tuple[bytes, bytes]]:
    """Keys and values of a position: of the log, and of each queue that it tells of."""
    yield LOG, position.log.encode()
    for queue, follow in position.queues.items():
        target, partition = partitions.get(queue, (None, None))
        yield _QUEUE + _name(queue), _json(
            topic=queue.topic, queue=queue.queue_id, next=follow.next, physical=follow.physical,
            target=target, partition=partition,
        )  # fmt: skip


def route_record(
    queue: MessageQueue, target: str, partition: int, topic_id: str | None
) -> tuple[bytes, bytes]:
    """Key and value of where the messages of a queue go that has no position by this name."""
    return _ROUTE + _name(queue), _json(
        topic=queue.topic, queue=queue.queue_id, target=target, partition=partition, id=topic_id
    )


def map_record(queue: MessageQueue, known: OffsetMap) -> tuple[bytes, bytes]:
    """Key and value of where the messages of a part's queue lie."""
    return _MAP + _name(queue), _json(topic=queue.topic, queue=queue.queue_id, map=map_text(known))


def _name(queue: MessageQueue) -> bytes:
    return f"{queue.queue_id}:{queue.topic}".encode("utf-8", "surrogateescape")


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()
