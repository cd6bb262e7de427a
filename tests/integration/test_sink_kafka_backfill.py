"""A Kafka sink whose history others give, against a real Kafka broker: each message once, in order, and where it lies."""

from __future__ import annotations

import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from tests.kit.kafkabroker import KafkaBroker, Read, committed, kafka_broker
from tests.kit.sinkbackfilling import Backfilled
from tiered.clock import SystemClock
from tiered.errors import Fenced, Unavailable
from tiered.model import MessageQueue
from tiered.sink.comparison.found import SinkVerdict
from tiered.sink.ending import end_backfill
from tiered.sink.giving import PartPace, give_part
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase

pytestmark = pytest.mark.kafka
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def made(kafka: KafkaBroker, tmp_path: Path) -> Backfilled:
    """One partition of all queues of a topic, so that parts write between each other."""
    name = f"back-{next(_numbers)}"
    options = {
        "brokers": kafka.address, "topic": name, "partitions": "1", "partition": "hash", "timeout_ms": "30000",
    }  # fmt: skip
    return Backfilled(tmp_path, SinkOrder(name, "kafka", options))


def lies(kafka: KafkaBroker, made: Backfilled) -> dict[MessageQueue, list[tuple[int, Read]]]:
    """What a consumer sees: queue offsets of each queue with their records, in Kafka's order."""
    found: defaultdict[MessageQueue, list[tuple[int, Read]]] = defaultdict(list)
    for read in committed(kafka.address, made.scene.stored.name):
        headers = dict(read.headers)
        queue = MessageQueue(headers["rocketmq.topic"].decode(), int(headers["rocketmq.queue"]))
        found[queue].append((int(headers["rocketmq.offset"]), read))
    return found


def assert_exact(kafka: KafkaBroker, made: Backfilled) -> None:
    """Each message once and in order, at the place that the archive's map says, and the comparison says so, too."""
    made.scene.commit()
    found, maps = lies(kafka, made), made.maps()
    assert {queue: len(rows) for queue, rows in found.items()} == made.scene.next
    for queue, rows in found.items():
        assert [offset for offset, _ in rows] == list(range(made.scene.next[queue]))
        for offset, read in rows:
            place = maps[queue].locate(offset)
            assert place is not None, (queue, offset)
            assert place.low <= read.offset <= place.high, (queue, offset)
        assert maps[queue].start == 0
    whole = made.scene.verified()
    assert (whole.verdict, whole.totals["same"]) == (SinkVerdict.SAME, sum(made.scene.next.values()))


def test_attempts_that_end_anywhere_give_each_message_once(kafka: KafkaBroker, made: Backfilled) -> None:
    """One is killed with a transaction open and wakes up behind the one that took over; the other ends between flushes."""
    made.put(60)
    made.ask()
    plan = made.plan()
    asleep = made.open(plan, 0)
    with pytest.raises(Unavailable):
        made.give(plan, 0, fail_after=3, opened=asleep)
    with pytest.raises(Unavailable):
        made.give(plan, 1, fail_after=4)
    made.give(plan, 0)
    made.give(plan, 1)
    with pytest.raises(Fenced):
        give_part(0, made.scene.view, asleep, made.book.ranges(plan, 0), PartPace(1, lambda: None))
    asleep.close()
    assert all(made.book.done(plan)[number].maps for number in (0, 1))
    made.scene.put(5)
    made.scene.archive()
    assert made.finish() is SinkPhase.LIVE
    assert_exact(kafka, made)
    left = [name for name in kafka.admin().list_topics(timeout=30).topics if ".backfill." in name]
    assert left == [], "positions of parts"


def test_a_part_waits_until_what_it_put_is_shown(kafka: KafkaBroker, made: Backfilled) -> None:
    """What it has committed lies behind another part's open transaction, and no consumer sees it until that has ended."""
    made.put(60)
    made.ask()
    plan = made.plan()
    neighbour = made.open(plan, 0)
    with pytest.raises(Unavailable):
        made.give(plan, 0, fail_after=3, opened=neighbour)
    with pytest.raises(Unavailable):
        made.give(plan, 1, fail_after=4)
    ending = threading.Timer(1.0, neighbour.close)
    ending.start()
    made.give(plan, 1)
    ending.join()
    made.give(plan, 0)
    assert made.finish() is SinkPhase.LIVE
    assert_exact(kafka, made)


def test_a_process_that_ends_between_kafka_and_the_archive(kafka: KafkaBroker, made: Backfilled) -> None:
    """It has taken up the backfill, and given more; the next one knows both, and where all of it lies."""
    made.put(30)
    made.ask()
    plan = made.plan()
    for number in range(plan.parts):
        made.give(plan, number, flush_bytes=1 << 20)
    made.put(10)
    assert made.finish() is SinkPhase.LIVE
    made.scene.restart()
    made.hold()
    made.put(10)
    assert made.scene.run() is SinkPhase.LIVE
    assert_exact(kafka, made)


def test_a_queue_goes_on_in_the_partition_that_the_sink_gave_it(kafka: KafkaBroker, made: Backfilled) -> None:
    """The topic has more partitions by the time of the backfill, and a new queue gets one of these; and more again behind."""
    made.put(12)
    assert made.scene.run() is SinkPhase.LIVE
    made.scene.commit()
    name = made.scene.stored.name
    widen(kafka, name, 7)
    made.ask()
    made.put(12)
    made.scene.put(5, topic="Later")
    made.scene.archive()
    plan = made.plan()
    assert {each.first for n in range(plan.parts) for each in made.book.ranges(plan, n)} == {0, 4, 8}
    for number in range(plan.parts):
        made.give(plan, number)
    widen(kafka, name, 11)
    made.scene.put(4, topic="Later")
    made.scene.archive()
    assert made.finish() is SinkPhase.LIVE
    partitions = {queue: {read.partition for _, read in rows} for queue, rows in lies(kafka, made).items()}
    assert [partitions[MessageQueue(topic, 0)] for topic in ("Bills", "Orders")] == [{0}, {0}]
    assert len(partitions[MessageQueue("Later", 0)]) == 1
    assert_exact(kafka, made)


def test_without_transactions_a_part_is_given_again_and_the_map_tells_of_the_last_time(
    kafka: KafkaBroker, tmp_path: Path
) -> None:
    name = f"back-{next(_numbers)}"
    options = {"brokers": kafka.address, "topic": name, "partitions": "2", "mode": "idempotent"}
    made = Backfilled(tmp_path, SinkOrder(name, "kafka", options))
    made.put(60)
    made.ask()
    plan = made.plan()
    with pytest.raises(Unavailable):
        made.give(plan, 0, fail_after=4)
    before = {queue: len(rows) for queue, rows in lies(kafka, made).items()}
    [(again, times)] = before.items()
    assert times > 0
    for number in range(plan.parts):
        made.give(plan, number)
    made.put(6)
    assert made.finish() is SinkPhase.LIVE
    made.scene.commit()
    found, maps = lies(kafka, made), made.maps()
    for queue, rows in found.items():
        wanted = list(range(made.scene.next[queue]))
        first = times if queue == again else 0
        assert [offset for offset, _ in rows] == wanted[:first] + wanted
        for offset, read in rows[first:]:
            place = maps[queue].locate(offset)
            assert place is not None
            assert place.low <= read.offset <= place.high
    made.scene.runner.close()


def widen(kafka: KafkaBroker, topic: str, partitions: int) -> None:
    admin = kafka.admin()
    for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(30)


def test_one_that_is_ended_early_goes_on_from_what_was_given(kafka: KafkaBroker, made: Backfilled) -> None:
    """Who gives a part meanwhile is fenced; the rest is given by the sink itself."""
    made.put(45)
    made.ask()
    plan = made.plan()
    giving = made.open(plan, 0)
    with pytest.raises(Unavailable):
        made.give(plan, 0, fail_after=3, opened=giving)
    orders = made.orders()
    stored = orders.sink(made.scene.stored.name)
    ended = end_backfill(orders, made.book, stored, made.place, SystemClock(), os.urandom)
    with pytest.raises(Fenced):
        give_part(0, made.scene.view, giving, made.book.ranges(plan, 0), PartPace(1, lambda: None))
    giving.close()
    done = made.book.done(plan)
    assert sorted(done) == list(range(plan.parts))
    assert 0 < sum(each.messages for each in done.values()) < plan.messages
    made.follow(ended)
    assert made.scene.run() is SinkPhase.LIVE
    assert_exact(kafka, made)
