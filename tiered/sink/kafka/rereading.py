"""A sink's records read again: which message each of them is, by its headers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tiered.clock import Clock
from tiered.errors import Unavailable
from tiered.model import MessageQueue
from tiered.sink.base import Placed, Unmapped
from tiered.sink.kafka.client import Heard, asking, kafka_library
from tiered.sink.kafka.consuming import is_end, polled, reader
from tiered.sink.kafka.records import MESSAGE_ID, OFFSET, QUEUE, SINK, TOPIC, is_another_sinks
from tiered.sink.kafka.settings import KafkaSettings

MAX_REREAD = 1_000_000
"""Offsets of one partition that an opening reads again: some seconds. Where there are more the map begins anew instead."""
_AT_ONCE = 1_000
_OURS = frozenset((TOPIC, QUEUE, OFFSET, MESSAGE_ID, SINK))
_PHYSICAL_DIGITS = 16
"""The last of an offset message id in hexadecimal: the message's place in its broker's log."""


class Found(NamedTuple):
    """A record: its offset in Kafka, and the message that it is. ``physical``: its place in its broker's log."""

    at: int
    queue: MessageQueue
    offset: int
    physical: int


class SoughtPlaces(NamedTuple):
    """Messages of a queue to find in a partition, not below ``lowest``."""

    topic: str
    partition: int
    topic_id: str
    lowest: int
    gap: Unmapped


class RecordReader:
    """Reads committed records of partitions, as far as they are of ``sink`` (``SinkPlace.short_id``) or do not say whose they
    are. One thread. Errors as of ``Heard``. ``close`` when done."""

    def __init__(self, settings: KafkaSettings, sink: str, clock: Clock) -> None:
        self._settings = settings
        self._sink = sink
        self._clock = clock
        self._heard = Heard(settings.secrets)
        self._consumer = reader(
            settings, self._heard, "tiered-rereading",
            {
                "auto.offset.reset": "error", "queued.max.messages.kbytes": 16 << 10, "queued.min.messages": 1_000,
                "fetch.wait.max.ms": 20,  # an end that is reached is told when this is over
            },
        )  # fmt: skip

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset that Kafka still has, and the one behind the last."""
        library = kafka_library()
        with asking(
            self._heard, "the bounds of a partition were asked for", topic=topic, partition=partition
        ):
            low, high = self._consumer.get_watermark_offsets(
                library.TopicPartition(topic, partition), timeout=self._settings.seconds
            )
        return int(low), int(high)

    def records(self, topic: str, partition: int, low: int, high: int) -> Iterator[Found]:
        """Records of ours from offset ``low`` on to below ``high``, or up to the end of what is committed."""
        library = kafka_library()
        deadline = self._clock.monotonic() + self._settings.seconds
        with asking(self._heard, "records were read again", topic=topic, partition=partition):
            self._consumer.assign([library.TopicPartition(topic, partition, low)])
            while low < high:
                for message in polled(self._consumer, _AT_ONCE):
                    if is_end(message):
                        return
                    deadline = self._clock.monotonic() + self._settings.seconds
                    if message.offset() >= high:
                        return
                    found = _found(message.offset(), message.headers(), self._sink)
                    if found is not None:
                        yield found
                if self._clock.monotonic() > deadline:
                    raise Unavailable("records cannot be read again now", topic=topic, partition=partition)

    def close(self) -> None:
        """Let go."""
        self._consumer.close()


def placed_again(
    reader: RecordReader, asked: Mapping[MessageQueue, SoughtPlaces]
) -> dict[MessageQueue, tuple[Placed, ...]]:
    """Where the messages asked for lie, of each queue of which that is certain: all of the partition behind ``lowest`` is still
    there and not too much, and no message is met twice (another broker's, with the same name and numbers, might be)."""
    found: dict[MessageQueue, tuple[Placed, ...]] = {}
    partitions: defaultdict[tuple[str, int], list[MessageQueue]] = defaultdict(list)
    for queue, sought in asked.items():
        partitions[sought.topic, sought.partition].append(queue)
    try:
        for (topic, partition), queues in partitions.items():
            low, high = reader.bounds(topic, partition)
            sure = [q for q in queues if low <= asked[q].lowest and high - asked[q].lowest <= MAX_REREAD]
            if not sure:
                continue
            rows: dict[MessageQueue, list[tuple[int, int]]] = {queue: [] for queue in sure}
            for record in reader.records(topic, partition, min(asked[q].lowest for q in sure), high):
                sought_for = asked.get(record.queue) if record.queue in rows else None
                if (
                    sought_for is not None
                    and record.at >= sought_for.lowest
                    and _fits(record, sought_for.gap)
                ):
                    rows[record.queue].append((record.offset, record.at))
            for queue, places in rows.items():
                runs = _runs(queue, places, asked[queue])
                if runs is not None:
                    found[queue] = runs
    finally:
        reader.close()
    return found


def _fits(record: Found, gap: Unmapped) -> bool:
    if not (gap.first or 0) <= record.offset < gap.end:
        return False
    if gap.after is not None and gap.after >= 0 and record.physical <= gap.after:
        return False
    return gap.upto is None or gap.upto < 0 or record.physical <= gap.upto


def _runs(
    queue: MessageQueue, places: list[tuple[int, int]], sought: SoughtPlaces
) -> tuple[Placed, ...] | None:
    """Consecutive ones as one; ``None`` if they are not in order."""
    if not places:
        return ()
    table = np.array(places, np.int64)
    steps = np.diff(table, axis=0)
    if len(steps) and int(steps.min()) < 1:
        return None
    first = np.flatnonzero(np.concatenate(([True], (steps != 1).any(axis=1))))
    counts = np.diff(np.append(first, len(table)))
    return tuple(
        Placed(queue, begin, count, sought.topic, sought.partition, at, target_id=sought.topic_id)
        for (begin, at), count in zip(table[first].tolist(), counts.tolist(), strict=True)
    )


def _found(at: int, headers: list[tuple[str, Any]] | None, sink: str) -> Found | None:
    """``None``: no record of this sink, or one that is not whole."""
    ours = {name: value for name, value in headers or () if name in _OURS}
    if is_another_sinks(ours, sink):
        return None
    try:
        topic = bytes(ours[TOPIC]).decode("utf-8", "surrogateescape")
        physical = int(bytes(ours[MESSAGE_ID])[-_PHYSICAL_DIGITS:], 16)
        return Found(at, MessageQueue(topic, int(ours[QUEUE])), int(ours[OFFSET]), physical)
    except (KeyError, TypeError, ValueError):
        return None
