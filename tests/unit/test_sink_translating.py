"""A group's offsets as Kafka's: by the map, by looking in between where it is wide, and for queues that share a partition."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tiered.archive.state.offsetmap import OffsetMap, map_of_runs, nothing_given
from tiered.model import MessageQueue
from tiered.sink.kafka import translating
from tiered.sink.kafka.rereading import Found
from tiered.sink.kafka.topics import KafkaTopic
from tiered.sink.kafka.translating import QueueOfGroup, Translated, Translator

ONE, TWO = MessageQueue("Orders", 0), MessageQueue("Orders", 4)


@dataclass
class Partition:
    """A partition of Kafka, and how often it was read from."""

    records: list[Found] = field(default_factory=list)
    low: int = 0
    reads: int = 0
    read: int = 0
    topic_id: str = "id"

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return self.low, self.records[-1].at + 1

    def records_(self, low: int, high: int) -> Iterator[Found]:
        self.reads += 1
        for record in self.records:
            if low <= record.at < high:
                self.read += 1
                yield record

    def find(self, names: Any) -> dict[str, KafkaTopic]:
        return {name: KafkaTopic(name, 1, self.topic_id) for name in names}

    def translator(self, **changed: Any) -> Translator:
        belongs = changed.get("belongs", lambda queue, record: True)
        reader: Any = type(
            "Reader",
            (),
            {"bounds": self.bounds, "records": lambda _, t, p, low, high: self.records_(low, high)},
        )()
        return Translator(reader, self, belongs)  # type: ignore[arg-type]


def filled(seed: int, messages: int = 20_000) -> Partition:
    """Two queues in a random order, with holes in the partition."""
    chance, made, at = random.Random(seed), Partition(), 0
    nexts = {ONE: 0, TWO: 0}
    for _ in range(messages):
        queue = chance.choice((ONE, TWO))
        at += chance.choice((1, 1, 1, 2))
        made.records.append(Found(at, queue, nexts[queue], 7))
        nexts[queue] += 1
    return made


def map_of(partition: Partition, queue: MessageQueue) -> OffsetMap:
    lie = [(record.offset, record.at) for record in partition.records if record.queue == queue]
    runs = {"first": [a for a, _ in lie], "messages": [1] * len(lie), "target_offset": [b for _, b in lie]}
    return map_of_runs(0, len(lie), "Orders", "id", 0, runs)


def ask(partition: Partition, committed: dict[MessageQueue, int | None], **changed: Any) -> list[Translated]:
    queues = [QueueOfGroup(queue, at, map_of(partition, queue), queue) for queue, at in committed.items()]
    return partition.translator(**changed).translate(queues)


@pytest.mark.parametrize("seed", range(4))
def test_every_offset_is_found_exactly_and_what_comes_again_is_counted(seed: int) -> None:
    partition, chance = filled(seed), random.Random(seed)
    for _ in range(6):
        committed: dict[MessageQueue, int | None] = {queue: chance.randrange(9_000) for queue in (ONE, TWO)}
        partition.reads = partition.read = 0
        told = ask(partition, committed)
        wanted = [
            next(r.at for r in partition.records if r.queue == q and r.offset == at)
            for q, at in committed.items()
        ]
        assert [one.offset for one in told] == wanted
        assert {one.start for one in told} == {min(wanted)}
        for one, at in zip(told, wanted, strict=True):
            again = sum(1 for r in partition.records if r.queue == one.queue and min(wanted) <= r.at < at)
            assert (one.again, one.counted, one.why) == (again, True, None)
        assert partition.reads < 24, "halved, not read from end to end"
        assert partition.read < 2 * 2_100 + abs(wanted[0] - wanted[1]) + 24


def test_what_is_newest_costs_no_read() -> None:
    partition = filled(1)
    last = map_of(partition, ONE).end
    (told,) = ask(partition, {ONE: last - 3})
    assert partition.reads == 0
    assert (told.offset, told.again) == ([r.at for r in partition.records if r.queue == ONE][-3], 0)
    (told,) = ask(partition, {ONE: last})
    assert (told.offset, told.again) == ([r.at for r in partition.records if r.queue == ONE][-1] + 1, 0)


def test_a_group_that_is_ahead_of_the_sink_gets_the_rest_again() -> None:
    partition = filled(1)
    last = map_of(partition, ONE).end
    (told,) = ask(partition, {ONE: last + 5})
    assert (told.again, told.why) == (5, None)


def test_a_queue_without_an_offset_was_not_consumed() -> None:
    partition = filled(1)
    told = ask(partition, {ONE: 5_000, TWO: None})
    assert (
        told[1].offset
        == told[1].start
        == told[0].start
        == next(r.at for r in partition.records if r.queue == TWO)
    )
    assert told[0].again == 5_000 - sum(
        1 for r in partition.records if r.queue == ONE and r.at < (told[0].start or 0)
    )


def test_another_brokers_records_are_passed_over() -> None:
    partition = filled(3)
    for place in range(0, len(partition.records), 3):
        own = partition.records[place]
        partition.records[place] = own._replace(physical=7)
        partition.records.insert(place, Found(own.at, own.queue, 0, 1_000_000))
    wanted = next(r.at for r in partition.records if r.queue == ONE and r.offset == 4_000 and r.physical == 7)
    mine = Partition([r for r in partition.records if r.physical == 7])
    queues = [QueueOfGroup(ONE, 4_000, map_of(mine, ONE), ONE)]
    translator = partition.translator(belongs=lambda queue, record: record.physical == 7)
    assert [one.offset for one in translator.translate(queues)] == [wanted]


def test_what_cannot_be_said_is_said() -> None:
    partition = filled(1)
    known = map_of(partition, ONE)
    late = map_of_runs(
        100, 200, "Orders", "id", 0, {"first": [120], "messages": [80], "target_offset": [500]}
    )
    early = partition.translator().translate(
        [QueueOfGroup(ONE, 99, late, ONE), QueueOfGroup(TWO, 1, map_of(partition, TWO), TWO)]
    )
    assert early[0].why == "before the map began: the first mapped offset is 120"
    assert early[0].offset is None
    assert early[1].start is None, "a partition with a queue that cannot be translated has no place to begin"
    (nothing,) = partition.translator().translate([QueueOfGroup(ONE, 4, nothing_given(5, 5), ONE)])
    assert nothing.why == "before the map began: the first mapped offset is 5"
    (nothing,) = partition.translator().translate([QueueOfGroup(ONE, 5, nothing_given(5, 5), ONE)])
    assert (nothing.why, nothing.start) == (None, None)
    partition.low = 30_000
    (gone,) = partition.translator().translate([QueueOfGroup(ONE, 10, known, ONE)])
    assert "Kafka has deleted" in str(gone.why)
    partition.low, partition.topic_id = 0, "another"
    (other,) = partition.translator().translate([QueueOfGroup(ONE, 10, known, ONE)])
    assert "another one of the same name" in str(other.why)


def test_too_much_between_is_said_as_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translating, "MAX_REREAD", 1_000)
    partition = filled(1)
    told = ask(partition, {ONE: 100, TWO: 9_000})
    assert (told[0].again, told[0].counted) == (0, True)
    assert told[1].counted is False
    assert (told[1].again or 0) >= 9_000 - 300


def test_records_without_headers_are_not_passed_over() -> None:
    partition = filled(1)
    known = map_of(partition, ONE)
    lies = {record.offset: record.at for record in partition.records if record.queue == ONE}
    partition.records = [record._replace(queue=MessageQueue("?", 0)) for record in partition.records]
    for offset in range(4_000, 4_400, 40):
        (told,) = partition.translator().translate([QueueOfGroup(ONE, offset, known, ONE)])
        assert told.offset is not None
        assert told.offset <= lies[offset]
