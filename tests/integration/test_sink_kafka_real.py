"""The destination *kafka* against a real Kafka broker: the contract of sinks, what records are like, faults. Judged from
outside, by a plain consumer at ``read_committed``."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, OffsetSpec

from tests.kit import kafkafeeder
from tests.kit.kafkabroker import PASSWORD, USER, KafkaBroker, committed
from tests.kit.kafkacuts import KafkaCuts
from tests.kit.ports import free_port
from tests.kit.process import Child
from tests.kit.sinkrunning import KindScene
from tests.kit.sinkscene import PLACE
from tiered.errors import Fenced, Invalid, Refused, TieredError, Unavailable
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue, PhysicalOffset
from tiered.sink.base import OffsetSink, Placed, RewindMarking, Rewound, Sink, SinkPosition, Unmapped, WentTo
from tiered.sink.comparison.base import ReadBack
from tiered.sink.comparison.found import SinkVerdict
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import Interrupted, TestedSink
from tiered.sink.contract.samples import Received, batch_of, message_of, ordinary
from tiered.sink.kafka.keeping import position_topic
from tiered.sink.kafka.kind import KafkaKind
from tiered.sink.kafka.markers import MARKER
from tiered.sink.kafka.sink import KafkaSink
from tiered.sink.kinds import SinkPlace, find_kind
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase

pytestmark = pytest.mark.kafka
_numbers = itertools.count()
CUTS: dict[str, KafkaCuts] = {}
"""Before the broker at this address."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    with KafkaCuts(broker.outside) as cuts:
        broker.advertised = cuts.address
        try:
            broker.start()
            CUTS[broker.address] = cuts
            yield broker
        finally:
            broker.remove()


@pytest.fixture
def place() -> SinkPlace:
    """Another sink in each test."""
    return replace(PLACE, name=f"sink-{next(_numbers)}")


def order_of(kafka: KafkaBroker, place: SinkPlace, **options: str) -> SinkOrder:
    """Topics of a name that no other test has."""
    named = {
        "brokers": kafka.address,
        "topic": f"{place.name}.{{topic}}",
        "partitions": "2",
        "timeout_ms": "30000",
    }
    return SinkOrder(place.name, "kafka", {**named, **options})


def open_sink(kafka: KafkaBroker, place: SinkPlace, **options: str) -> Sink:
    return KafkaKind().open(order_of(kafka, place, **options), place)


def behind(offsets: dict[MessageQueue, int], physical: int = 1) -> SinkPosition:
    return SinkPosition(FeedPosition(PhysicalOffset(physical)), {q: Follow(n, 7) for q, n in offsets.items()})


class TestedKafka(TestedSink):
    largest_body = 600 << 10
    huge = 4_000

    def __init__(self, kafka: KafkaBroker, place: SinkPlace, **options: str) -> None:
        self.kafka, self.place, self.options = kafka, place, options

    def open(self) -> Sink:
        return open_sink(self.kafka, self.place, **self.options)

    def read(self) -> list[Received]:
        topics = self.kafka.admin().list_topics(timeout=30).topics
        found = [
            read
            for topic in topics
            if topic.startswith(f"{self.place.name}.")
            for read in committed(self.kafka.address, topic)
        ]
        return [_received(read.headers, read.value or b"") for read in found]

    def read_back(self) -> ReadBack:
        return KafkaKind().read_back(order_of(self.kafka, self.place, **self.options), self.place)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        pid = self.kafka.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def interrupted(self, request: int, *, done: bool) -> Iterator[Interrupted]:
        cuts = CUTS[self.kafka.address]
        with cuts.at(request, done=done) as cut:
            self.options["brokers"] = cuts.address
            try:
                yield cut
            finally:
                del self.options["brokers"]

    def away(self) -> AbstractContextManager[None]:
        self.options["timeout_ms"] = "3000"
        return self.stopped()


def _received(headers: list[tuple[str, bytes]], body: bytes) -> Received:
    own = {name: value for name, value in headers if name.startswith("rocketmq.")}
    properties = {name: value.decode() for name, value in headers if not name.startswith("rocketmq.")}
    topic, queue, offset = (own[f"rocketmq.{name}"].decode() for name in ("topic", "queue", "offset"))
    return Received(topic, int(queue), int(offset), body, properties)


class TestExactlyOnce(SinkContract):
    @pytest.fixture
    def tested(self, kafka: KafkaBroker, place: SinkPlace) -> TestedKafka:
        return TestedKafka(kafka, place)


class TestAtLeastOnce(SinkContract):
    @pytest.fixture
    def tested(self, kafka: KafkaBroker, place: SinkPlace) -> TestedKafka:
        return TestedKafka(kafka, place, mode="idempotent")


# ---- what records are like


def test_records_carry_what_the_messages_had(kafka: KafkaBroker, place: SinkPlace) -> None:
    messages = [
        replace(
            message_of("T", 3, 7, b"body", {"TAGS": "a", "KEYS": "k1 k2", "rocketmq.offset": "forged"}, physical=99),
            flag=5, born_timestamp=1_600_000_000_000, store_timestamp=1_600_000_000_777,
        ),
        message_of("T", 3, 8, b""),
        replace(message_of("T", 3, 9, b"never compressed"), sys_flag=1),
    ]  # fmt: skip
    sink = open_sink(kafka, place)
    accepted = sink.write(batch_of(messages)[0])
    safe = sink.flush(behind({MessageQueue("T", 3): 10}))
    sink.close()
    first, empty, damaged = committed(kafka.address, f"{place.name}.T")
    assert (accepted.messages, accepted.dead_letters) == (3, 0)
    topic_id = safe.placed[0].target_id
    assert safe.placed == (Placed(MessageQueue("T", 3), 7, 3, f"{place.name}.T", 1, 0, target_id=topic_id),)
    assert topic_id
    assert (first.key, first.value, first.timestamp) == (b"k1 k2", b"body", 1_600_000_000_777)
    headers = dict(first.headers)
    assert headers["rocketmq.topic"] == b"T"
    assert (headers["rocketmq.queue"], headers["rocketmq.offset"], headers["rocketmq.flag"]) == (
        b"3",
        b"7",
        b"5",
    )
    assert headers["rocketmq.msgid"].decode() == messages[0].message_id
    assert (headers["TAGS"], headers["KEYS"]) == (b"a", b"k1 k2")
    assert headers["UNIQ_KEY"].decode() == messages[0].unique_key
    assert headers["rocketmq.property.rocketmq.offset"] == b"forged"
    assert len(headers) == len(first.headers), "no header is there twice"
    assert (empty.key, empty.value) == (None, b"")
    assert damaged.value == b"never compressed"
    assert b"as stored" in dict(damaged.headers)["rocketmq.body"]


def test_keys_times_and_partitions_as_ordered(kafka: KafkaBroker, place: SinkPlace) -> None:
    options = {
        "key": "queue",
        "timestamp": "born",
        "headers": "none",
        "partition": "hash",
        "topic": f"{place.name}.all",
    }
    sink = open_sink(kafka, place, **options)
    messages = [replace(m, born_timestamp=1_500_000_000_000) for m in ordinary(5)]
    sink.write(batch_of(messages)[0])
    sink.flush(SinkPosition())
    sink.close()
    found = committed(kafka.address, f"{place.name}.all")
    assert {read.timestamp for read in found} == {1_500_000_000_000}
    assert [read.headers for read in found] == [[]] * len(messages)
    by_key = {key: [r for r in found if r.key == key] for key in {read.key for read in found}}
    assert set(by_key) == {b"Orders/0", b"Orders/1", b"Payments/0", b"Payments/1"}
    for key, reads in by_key.items():
        assert len({read.partition for read in reads}) == 1, "a queue has one partition"
        assert [read.value for read in reads] == [b"%s %d" % (key.replace(b"/", b" "), n) for n in range(5)]


@pytest.mark.parametrize("name", ["T", "renamed"])
def test_a_queue_keeps_its_partition_when_partitions_are_added(
    kafka: KafkaBroker, place: SinkPlace, name: str
) -> None:
    """Also where its topic has another name in Kafka, by which the position does not know it."""
    first, second, topic = MessageQueue("T", 2), MessageQueue("T", 5), f"{place.name}.{name}"
    order = order_of(kafka, place, **({} if name == "T" else {"shape.rename": f"T={name}"}))
    kind = find_kind("kafka")
    sink = kind.open(order, place)
    sink.write(batch_of([message_of("T", 2, 0, b"before")])[0])
    sink.flush(behind({first: 1}))
    sink.close()
    admin = kafka.admin()
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(30)
    for _ in range(2):  # the first gives nothing of them
        sink = kind.open(order, place)
        position = sink.position()
        assert position is not None
        assert position.queues[first].next == 1
        sink.flush(behind({}))
        sink.close()
    sink = kind.open(order, place)
    sink.write(batch_of([message_of("T", 2, 1, b"behind"), message_of("T", 5, 0, b"new")])[0])
    placed = sink.flush(behind({first: 2, second: 1})).placed
    sink.close()
    assert {(p.queue, p.partition) for p in placed} == {(first, 0), (second, 5)}
    assert [r.value for r in committed(kafka.address, topic) if r.partition == 0] == [b"before", b"behind"]


def test_messages_wait_in_order_while_the_client_is_full(kafka: KafkaBroker, place: SinkPlace) -> None:
    sink = open_sink(kafka, place, buffer_messages="100", linger_ms="0")
    messages = [message_of("T", queue, at, b"%d" % at) for at in range(700) for queue in range(2)]
    sink.write(batch_of(messages)[0])
    placed = sink.flush(behind({MessageQueue("T", queue): 700 for queue in range(2)})).placed
    sink.close()
    assert {(p.first_offset, p.messages, p.target_offset) for p in placed} == {(0, 700, 0)}
    for partition in range(2):
        found = [r.value for r in committed(kafka.address, f"{place.name}.T") if r.partition == partition]
        assert found == [b"%d" % at for at in range(700)]


# ---- what cannot be taken


def test_the_whole_log_lies_in_one_partition_in_the_order_of_the_broker(
    kafka: KafkaBroker, place: SinkPlace, tmp_path: Path
) -> None:
    """From the archive and the log behind it; a topic with more partitions is refused."""
    kafka.create(f"{place.name}.wide", 4)
    order = order_of(kafka, place, topic=f"{place.name}.wide", partitions="1")
    with pytest.raises(Invalid, match="that of one partition"):
        find_kind("kafka").check(replace(order, in_order=True))
    order = order_of(kafka, place, topic=f"{place.name}.all", partitions="1")
    find_kind("kafka").check(replace(order, in_order=True))
    scene = KindScene(tmp_path, replace(order, in_order=True))
    for number in range(60):
        scene.put(1 + number % 4, topic=("Orders", "Bills", "Orders", "Returns")[number % 4])
        if number % 5 == 4:
            scene.archive()
    scene.log.delete_oldest()
    assert scene.run() is SinkPhase.LIVE
    scene.put(7)
    scene.archive()
    scene.run()
    scene.runner.finish()
    found = [read.value for read in committed(kafka.address, f"{place.name}.all")]
    assert found == [body for _, _, body in scene.wrote]


def test_a_large_message_stops_the_sink_or_goes_to_the_dead_letters(
    kafka: KafkaBroker, place: SinkPlace
) -> None:
    messages = [message_of("T", 0, n, b"x" * (3_000 if n == 1 else 10)) for n in range(3)]
    packed = replace(message_of("T", 0, 3, zlib.compress(b"y" * 5_000)), sys_flag=1)
    sink = open_sink(kafka, place, max_message_bytes="2048")
    with pytest.raises(
        Invalid, match=r"larger than this sink may send.*T/0.*queue_offset=1.*dead_letter_topic"
    ):
        sink.write(batch_of(messages)[0])
    sink.close()
    sink = open_sink(kafka, place, max_message_bytes="2048", dead_letter_topic=f"{place.name}.dead")
    accepted = sink.write(batch_of([*messages, packed])[0])
    placed = sink.flush(behind({MessageQueue("T", 0): 4})).placed
    sink.close()
    assert (accepted.messages, accepted.dead_letters) == (4, 2)
    assert [(p.first_offset, p.messages) for p in placed] == [(0, 1), (2, 1)]
    assert [read.value for read in committed(kafka.address, f"{place.name}.T")] == [b"x" * 10] * 2
    dead = committed(kafka.address, f"{place.name}.dead")
    assert [dict(read.headers)["rocketmq.offset"] for read in dead] == [b"1", b"3"]
    assert dead[0].value is None
    assert b"tiered read --topic T --queue 0 --offset 1" in dict(dead[0].headers)["rocketmq.body"]


def test_topics_that_take_less_or_are_missing_stop_the_sink(kafka: KafkaBroker, place: SinkPlace) -> None:
    batch = batch_of([message_of("T", 0, 0, b"x")])[0]
    sink = open_sink(kafka, place, create_topics="false")
    with pytest.raises(Invalid, match=rf"not there.*{place.name}.T.*create_topics=true"):
        sink.write(batch)
    sink.close()
    kafka.create(f"{place.name}.T", max_message_bytes="5000")
    sink = open_sink(kafka, place)
    with pytest.raises(Invalid, match=r"takes smaller messages.*max_message_bytes=5000"):
        sink.write(batch)
    sink.close()
    with pytest.raises(Invalid, match=r"not there"):
        KafkaKind().check(order_of(kafka, place, create_topics="false", topic=f"{place.name}.none"))


@pytest.mark.parametrize("mode", ["transactional", "idempotent"])
def test_a_record_that_fails_between_those_whose_offsets_are_asked_for_is_no_success(
    kafka: KafkaBroker, place: SinkPlace, mode: str
) -> None:
    """Each a batch of its own, and the one in the middle too large for the topic by now: nothing else tells of it."""
    topic, queue = f"{place.name}.T", MessageQueue("T", 0)
    sink = open_sink(kafka, place, mode=mode, timeout_ms="5000")
    sink.write(batch_of([message_of("T", 0, 0, b"x")])[0])
    sink.flush(behind({queue: 1}))
    kafka.configure(topic, max_message_bytes="700000")
    sizes = (600_000, 600_000, 900_000, 600_000, 600_000)
    with pytest.raises(Invalid, match=r"larger than the Kafka topic takes"):
        sink.write(batch_of([message_of("T", 0, 1 + at, b"x" * size) for at, size in enumerate(sizes)])[0])
        sink.flush(behind({queue: 6}))
    sink.close()
    if mode == "transactional":
        assert [read.value for read in committed(kafka.address, topic)] == [b"x"]


def test_the_client_commits_no_transaction_of_which_a_record_failed_unheard(
    kafka: KafkaBroker, place: SinkPlace
) -> None:
    """What the sink relies on where it asks nothing of a record."""
    kafka.create(place.name, 2, max_message_bytes="5000")
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": place.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    heard: list[object] = []
    producer.produce(place.name, b"small", partition=0, on_delivery=lambda error, _: heard.append(error))
    producer.produce(place.name, bytes(50_000), partition=1)
    assert producer.flush(30) == 0
    assert heard == [None]
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producer.commit_transaction(30)
    producer.abort_transaction(30)
    assert committed(kafka.address, place.name) == []


def test_an_idempotent_sink_is_reminded_of_its_partitions_and_topics(
    kafka: KafkaBroker, place: SinkPlace
) -> None:
    """Kafka keeps nothing for it: the archive says where a queue went, and which topic that was."""
    queue, topic = MessageQueue("T", 0), f"{place.name}.T"

    def opened() -> KafkaSink:
        sink = open_sink(kafka, place, mode="idempotent")
        assert isinstance(sink, KafkaSink)
        return sink

    sink = opened()
    sink.write(batch_of([message_of("T", 0, 0, b"x")])[0])
    [first] = sink.flush(behind({queue: 1})).placed
    sink.close()
    went = {queue: WentTo(first.target, 1 - first.partition, first.target_id)}
    sink = opened()
    sink.remind(went)
    sink.write(batch_of([message_of("T", 0, 1, b"x")])[0])
    [second] = sink.flush(behind({queue: 2})).placed
    assert second.partition == 1 - first.partition, (
        "where the archive says, and not where it would go by itself"
    )
    sink.close()
    kafka.delete(topic)
    kafka.create(topic, 2)
    sink = opened()
    with pytest.raises(Invalid, match=r"deleted, or is another one now.*recreated=go-on"):
        sink.remind(went)
    sink.close()


def test_a_topic_that_was_made_anew_is_noticed(kafka: KafkaBroker, place: SinkPlace) -> None:
    queue, topic = MessageQueue("T", 0), f"{place.name}.T"
    sink = open_sink(kafka, place)
    for at in range(2):
        sink.write(batch_of([message_of("T", 0, at, b"x")])[0])
        sink.flush(behind({queue: at + 1}))
    kafka.delete(topic)
    with pytest.raises((Invalid, Unavailable)):
        sink.write(batch_of([message_of("T", 0, 2, b"x")])[0])
        sink.flush(behind({queue: 3}))
    sink.close()
    for _ in range(2):  # gone, then another one
        with pytest.raises(Invalid, match=r"deleted, or is another one now.*recreated=go-on"):
            open_sink(kafka, place)
        if topic not in kafka.admin().list_topics(timeout=30).topics:
            kafka.create(topic, 2)
    sink = open_sink(kafka, place, recreated="go-on")
    position = sink.position()
    assert position is not None
    assert position.queues[queue].next == 2
    sink.write(batch_of([message_of("T", 0, 2, b"again")])[0])
    sink.flush(behind({queue: 3}))
    sink.close()
    open_sink(kafka, place).close()
    assert [read.value for read in committed(kafka.address, topic)] == [b"again"]


def test_a_sink_that_begins_anew_gives_everything_to_new_topics(kafka: KafkaBroker, place: SinkPlace) -> None:
    queue, topic = MessageQueue("T", 5), f"{place.name}.T"
    sink = open_sink(kafka, place, partitions="8")
    sink.write(batch_of([message_of("T", 5, 0, b"before")])[0])
    sink.flush(behind({queue: 1}))
    sink.close()
    kafka.delete(topic)
    kafka.create(topic, 2)
    with pytest.raises(Invalid, match=r"another one now.*[Rr]ewind"):
        open_sink(kafka, place)
    anew = open_sink(kafka, replace(place, anew=True))
    anew.flush(behind({queue: 0}))
    anew.close()
    for at in range(
        2
    ):  # the process that began anew was killed before it gave anything: the next one goes on
        again = open_sink(kafka, place)
        position = again.position()
        assert position is not None
        assert position.queues[queue].next == at
        again.write(batch_of([message_of("T", 5, at, b"%d" % at)])[0])
        again.flush(behind({queue: at + 1}))
        again.close()
    assert [(read.partition, read.value) for read in committed(kafka.address, topic)] == [
        (1, b"0"),
        (1, b"1"),
    ]


@pytest.mark.parametrize("again", [False, True])
def test_a_position_that_was_deleted_is_said(kafka: KafkaBroker, place: SinkPlace, *, again: bool) -> None:
    """Gone while the sink runs, and then perhaps made anew by hand, so that a flush goes well: the next opening knows."""
    queues = [MessageQueue("T", queue) for queue in range(2)]
    sink = open_sink(kafka, place, timeout_ms="2000")
    sink.write(batch_of([message_of("T", 0, 0, b"x"), message_of("T", 1, 0, b"x")])[0])
    sink.flush(behind(dict.fromkeys(queues, 1)))
    kept = position_topic(place)
    kafka.delete(kept)
    if again:
        kafka.create(kept, cleanup_policy="compact")
    with pytest.raises((Invalid, Unavailable)):
        for at in range(1, 4):  # a client may need some time to hear of it
            sink.write(batch_of([message_of("T", 0, at, b"x")])[0])
            sink.flush(behind({queues[0]: at + 1}))
    sink.close()
    told: str | SinkPosition | None
    try:
        told = open_sink(kafka, place).position()
    except Invalid as error:
        told = error.message
    assert told in (SinkPosition(), "the Kafka topic with this sink's position was deleted"), (
        "half a position is none"
    )
    anew = open_sink(kafka, replace(place, anew=True))
    anew.flush(behind(dict.fromkeys(queues, 0)))
    anew.close()
    open_sink(kafka, place).close()


def test_records_of_a_transaction_that_kafka_forgot_are_not_committed_later(
    kafka: KafkaBroker, place: SinkPlace
) -> None:
    """A Kafka of one node that was away for more than ten seconds, longer than a transaction may be open, ends it and its
    partitions never hear of that."""
    queue, topic = MessageQueue("T", 0), f"{place.name}.T"
    sink = open_sink(kafka, place, transaction_timeout_ms="1000", timeout_ms="8000")
    sink.write(batch_of([message_of("T", 0, 0, b"first")])[0])
    sink.flush(behind({queue: 1}))
    sink.write(batch_of([message_of("T", 0, 1, b"again")])[0])
    shown = IsolationLevel.READ_UNCOMMITTED
    wait_until(lambda: end_of(kafka, topic, shown) >= 3, "a record of an open transaction")
    kafka.kill()
    time.sleep(11)
    kafka.start()
    with contextlib.suppress(TieredError):
        sink.flush(behind({queue: 2}))
    sink.close()
    again = open_sink(kafka, place)
    position = again.position()
    assert position is not None
    assert position.queues[queue].next == 1
    again.write(batch_of([message_of("T", 0, 1, b"again")])[0])
    again.flush(behind({queue: 2}))
    again.close()
    assert [read.value for read in committed(kafka.address, topic)] == [b"first", b"again"]


def end_of(kafka: KafkaBroker, topic: str, level: IsolationLevel) -> int:
    admin, at = kafka.admin(), TopicPartition(topic, 0)
    return int(admin.list_offsets({at: OffsetSpec.latest()}, isolation_level=level)[at].result(30).offset)


def wait_until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_credentials_and_rights(
    kafka: KafkaBroker, place: SinkPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINK_PASSWORD", "not the password")
    login = {
        "brokers": kafka.secured, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": USER, "kafka.sasl.password": "env:SINK_PASSWORD", "timeout_ms": "5000",
    }  # fmt: skip
    with pytest.raises(Invalid, match=r"Kafka refuses it.*kafka.sasl") as wrong:
        KafkaKind().check(order_of(kafka, place, **login))
    assert "not the password" not in str(wrong.value)
    monkeypatch.setenv("SINK_PASSWORD", PASSWORD)
    order = order_of(kafka, place, **login)
    KafkaKind().check(order)
    with pytest.raises(Invalid, match=r"AUTHORIZATION_FAILED"):
        KafkaKind().open(order, place)


def test_properties_that_the_client_does_not_have_are_refused(kafka: KafkaBroker, place: SinkPlace) -> None:
    with pytest.raises(Invalid, match=r"kafka.sasl.passwort|No such configuration property"):
        KafkaKind().check(order_of(kafka, place, **{"kafka.sasl.mechanismus": "PLAIN"}))


def test_a_broker_that_is_not_there_is_away(place: SinkPlace) -> None:
    order = SinkOrder(place.name, "kafka", {"brokers": f"127.0.0.1:{free_port()}", "timeout_ms": "1000"})
    with pytest.raises(Unavailable):
        KafkaKind().check(order)


# ---- where messages lie


def test_where_messages_lie_is_found_again(kafka: KafkaBroker, place: SinkPlace) -> None:
    """What a process flushed, and nobody heard of: read again by the next one, as it was. Two queues share a partition, there
    are holes, markers of transactions, and a transaction that was undone."""
    queues = [MessageQueue("T", 0), MessageQueue("T", 2), MessageQueue("T", 1)]
    told: dict[MessageQueue, list[Placed]] = {queue: [] for queue in queues}
    sink = open_sink(kafka, place)
    for flush in range(3):
        messages = [
            message_of(
                "T", queue.queue_id, 10 * flush + at, b"x", physical=100 * flush + 10 * at + queue.queue_id
            )
            for at in range(6)
            for queue in queues
            if (at, queue.queue_id) != (3, 2)
        ]
        sink.write(batch_of(messages)[0])
        follow = SinkPosition(
            FeedPosition(PhysicalOffset(9)), {q: Follow(10 * flush + 6, 100 * flush + 59) for q in queues}
        )
        for run in sink.flush(follow).placed:
            told[run.queue].append(run)
        sink.write(batch_of([message_of("T", 0, 99, b"never flushed")])[0])
        sink.close()
        sink = open_sink(kafka, place)
    assert isinstance(sink, OffsetSink)
    assert {run.partition for run in told[queues[0]] + told[queues[1]]} == {0}
    whole = {queue: Unmapped(None, 26, after=None, upto=259) for queue in queues}
    found = sink.placed_between(whole)
    assert {queue: _lying(runs) for queue, runs in found.items()} == {
        q: _lying(runs) for q, runs in told.items()
    }
    begin = told[queues[0]][-1].target_offset
    later = {queues[0]: Unmapped(12, 26, begin, told[queues[0]][0].target_id, 100, 259)}
    assert _lying(sink.placed_between(later)[queues[0]]) == _lying(told[queues[0]][-1:])
    sink.close()


def _lying(runs: Sequence[Placed]) -> dict[int, tuple[int, str]]:
    """Kafka's offset of each message, and its topic's id."""
    return {
        run.first_offset + at: (run.target_offset + at, run.target_id)
        for run in runs
        for at in range(run.messages)
    }


def test_what_is_not_certain_is_not_said(kafka: KafkaBroker, place: SinkPlace) -> None:
    """Another broker's messages of the same names and numbers in the same partition; records that are gone; no headers."""
    queue, topic = MessageQueue("T", 0), f"{place.name}.T"
    sink = open_sink(kafka, place)
    sink.write(batch_of([message_of("T", 0, n, b"x", physical=n) for n in range(4)])[0])
    sink.flush(behind({queue: 4}))
    assert isinstance(sink, OffsetSink)
    asked = {queue: Unmapped(None, 4)}
    assert set(sink.placed_between(asked)) == {queue}
    other = KafkaKind().open(order_of(kafka, place), replace(place, name=f"{place.name}-twin"))
    other.write(batch_of([message_of("T", 0, n, b"y", physical=1_000 + n) for n in range(4)])[0])
    other.flush(behind({queue: 4}, 1_004))
    other.close()
    assert sink.placed_between(asked) == {}
    assert set(sink.placed_between({queue: Unmapped(None, 4, upto=3)})) == {queue}, (
        "the log's place tells them apart"
    )
    gone, admin = TopicPartition(topic, 0, 2), kafka.admin()
    admin.delete_records([gone])[gone].result(30)
    assert sink.placed_between({queue: Unmapped(None, 4, upto=3)}) == {}
    sink.close()
    plain = open_sink(kafka, place, headers="none")
    assert isinstance(plain, OffsetSink)
    assert plain.placed_between({queue: Unmapped(None, 4, upto=3)}) == {}
    plain.close()


# ---- who has the sink


def test_an_earlier_writer_does_not_fence_a_later_one(kafka: KafkaBroker, place: SinkPlace) -> None:
    later = open_sink(kafka, replace(place, epoch=place.epoch + 1))
    with pytest.raises(Fenced, match=r"later writer"):
        open_sink(kafka, place)
    later.write(batch_of([message_of("T", 0, 0, b"x")])[0])
    later.flush(behind({MessageQueue("T", 0): 1}))
    later.close()


def test_an_earlier_writer_that_wakes_between_two_steps_does_not_stop_a_later_one(
    kafka: KafkaBroker, place: SinkPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked for the owner before there was a later one, and fences that: which is away then, and opens the sink again."""
    later = replace(place, epoch=place.epoch + 1)
    own, wakes = KafkaSink._own, [True]

    def interrupted(sink: KafkaSink) -> None:
        if wakes:
            wakes.clear()
            open_sink(kafka, place).close()
        own(sink)

    monkeypatch.setattr(KafkaSink, "_own", interrupted)
    with pytest.raises(Unavailable, match=r"at the same time|fatal error"):
        open_sink(kafka, later)
    opened = open_sink(kafka, later)
    monkeypatch.setattr(KafkaSink, "_check_epoch", lambda sink, place: None)
    open_sink(kafka, place).close()
    with pytest.raises(Unavailable, match=r"earlier writer"):
        opened.write(batch_of([message_of("T", 0, 0, b"x")])[0])
        opened.flush(behind({MessageQueue("T", 0): 1}))
    opened.close()


def test_a_sink_that_was_taken_over_is_fenced(kafka: KafkaBroker, place: SinkPlace) -> None:
    older = open_sink(kafka, place)
    older.write(batch_of([message_of("T", 0, 0, b"older")])[0])
    newer = open_sink(kafka, place)
    with pytest.raises(Fenced):
        older.flush(behind({MessageQueue("T", 0): 1}))
    newer.write(batch_of([message_of("T", 0, 0, b"newer")])[0])
    newer.flush(behind({MessageQueue("T", 0): 1}))
    older.close()
    newer.close()
    assert [read.value for read in committed(kafka.address, f"{place.name}.T")] == [b"newer"]


def test_a_transaction_that_was_open_too_long_is_not_somebody_else(
    kafka: KafkaBroker, place: SinkPlace
) -> None:
    sink = open_sink(kafka, place, transaction_timeout_ms="1000")
    sink.write(batch_of([message_of("T", 0, 0, b"x")])[0])
    wait_until_aborted(kafka, f"{place.name}.T")
    with pytest.raises(Unavailable):
        sink.flush(behind({MessageQueue("T", 0): 1}))
    sink.close()
    again = open_sink(kafka, place)
    position = again.position()
    assert position is not None
    assert not position.queues
    again.close()


def wait_until_aborted(kafka: KafkaBroker, topic: str) -> None:
    """What is read at ``read_committed`` of partition 0 goes beyond what an open transaction has there."""
    admin, deadline = kafka.admin(), time.monotonic() + 60
    partition = TopicPartition(topic, 0)
    while True:
        asked = admin.list_offsets(
            {partition: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_COMMITTED
        )
        with contextlib.suppress(KafkaException):  # a new topic has no leader at first
            if asked[partition].result(30).offset > 0:
                return
        assert time.monotonic() < deadline, "Kafka does not abort the transaction"
        time.sleep(0.1)


# ---- kill -9


def test_exactly_once_over_kills_of_the_process_and_of_kafka(
    kafka: KafkaBroker, place: SinkPlace, tmp_path: Path
) -> None:
    """Killed with a transaction open, right behind a flush, and with Kafka killed under it."""
    until, queues = 240, 4
    for number, line in enumerate(("written 60", "flushed 80", "written 100")):
        child = feeder(kafka, place, tmp_path / f"{number}.log", until, "--halt", line)
        child.wait_until(lambda line=line, child=child: line in child.output(), 60, line)
        if number == 2:
            kafka.kill()
        child.kill()
    kafka.start()
    last = feeder(kafka, place, tmp_path / "last.log", until)
    assert last.wait(120) == 0, last.output()
    assert "opened at 80\n" in last.output(), "what was committed counts, and nothing else"
    found = committed(kafka.address, f"{place.name}.{kafkafeeder.TOPIC}")
    for queue in range(queues):
        mine = [read for read in found if dict(read.headers)["rocketmq.queue"] == b"%d" % queue]
        assert [read.value for read in mine] == [kafkafeeder.body_of(queue, at) for at in range(until)]
        assert {read.partition for read in mine} == {queue % 2}


def feeder(kafka: KafkaBroker, place: SinkPlace, log: Path, until: int, *more: str) -> Child:
    command = [
        sys.executable,
        "-m",
        "tests.kit.kafkafeeder",
        place.name,
        kafka.address,
        "--until",
        str(until),
        *more,
    ]
    return Child("feeder", command, log)


@pytest.mark.parametrize("markers", ["true", "false"])
def test_what_the_broker_lost_is_told_once_among_the_messages(
    kafka: KafkaBroker, place: SinkPlace, markers: str
) -> None:
    """In the transaction that takes the position back: an opening that was cut off before it leaves no mark."""
    queue = MessageQueue("Marked", 1)
    sink = open_sink(kafka, place, partitions="2", markers=markers)
    sink.write(batch_of([message_of(queue.topic, 1, n, b"%d" % n) for n in range(3)])[0])
    sink.flush(behind({queue: 3}))
    sink.close()
    for cut_off in (True, False):
        sink = open_sink(kafka, place, partitions="2", markers=markers)
        assert isinstance(sink, RewindMarking)
        sink.mark([Rewound(queue, 1, 3, 7)])
        if not cut_off:
            sink.flush(behind({queue: 1}))
            sink.write(batch_of([message_of(queue.topic, 1, 1, b"again")])[0])
            sink.flush(behind({queue: 2}))
        sink.close()
    found = committed(kafka.address, f"{place.name}.Marked")
    assert {read.partition for read in found} == {1}
    marks = [read for read in found if dict(read.headers).get(MARKER) == b"rewound"]
    assert [read.value for read in found if read not in marks] == [b"0", b"1", b"2", b"again"]
    if markers == "false":
        assert marks == []
        return
    [mark] = marks
    assert found.index(mark) == 3
    assert mark.value is None
    assert mark.key == b"rewound/Marked/1"
    assert dict(mark.headers) == {
        "rocketmq.marker": b"rewound", "rocketmq.topic": queue.topic.encode(), "rocketmq.queue": b"1",
        "rocketmq.from": b"1", "rocketmq.to": b"3", "rocketmq.generation": b"7",
        "rocketmq.sink": place.sink_id.hex()[:12].encode(),
    }  # fmt: skip


# ---- compared with the archive


def test_what_is_in_kafka_is_held_against_the_archive(
    kafka: KafkaBroker, place: SinkPlace, tmp_path: Path
) -> None:
    """The same; then a record of a producer that writes it again, one that was changed, and records that Kafka deleted."""
    order = order_of(
        kafka, place, partitions="1", dead_letter_topic=f"{place.name}-dead", max_message_bytes="1500"
    )
    scene = KindScene(tmp_path, order)
    scene.put(10)
    scene.put(5, "Bills")
    scene.archive()
    assert scene.run() is SinkPhase.LIVE
    scene.commit()
    found = scene.verified()
    assert (found.verdict, found.totals["same"], found.compared_queues) == (SinkVerdict.SAME, 15, 2)
    scene.log.append(bytes(2_000), topic=b"Orders", queue_offset=10)
    scene.next[MessageQueue("Orders", 0)] = 11
    scene.put(1)
    scene.archive()
    scene.run()
    scene.commit()
    found = scene.verified()
    assert (found.verdict, found.totals["same"], found.totals["dead_letters"]) == (SinkVerdict.SAME, 16, 1)
    topic = f"{place.name}.Orders"
    records = committed(kafka.address, topic)
    undone = Producer({"bootstrap.servers": kafka.address, "transactional.id": f"{place.name}-undone"})
    undone.init_transactions(30)
    undone.begin_transaction()
    undone.produce(topic, records[3].value, headers=records[3].headers)
    undone.flush(30)
    scene.put(1)
    scene.archive()
    scene.run()
    scene.commit()
    ending = threading.Timer(2.0, undone.abort_transaction, [30])
    ending.start()
    found = (
        scene.verified()
    )  # what the sink committed lies behind a transaction that is open: it is waited for
    ending.join(30)
    assert (found.verdict, found.totals["same"], found.unread) == (SinkVerdict.SAME, 17, ())
    assert scene.verified() == found, "what was never committed is not there"
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(topic, records[3].value, headers=records[3].headers)
    producer.produce(
        topic,
        b"another",
        headers=[*records[4].headers[:2], ("rocketmq.offset", b"13"), records[4].headers[3]],
    )
    producer.flush(30)
    found = scene.verified()
    assert (found.verdict, found.totals["doubled"], found.totals["ahead"]) == (SinkVerdict.DIFFERENT, 1, 1)
    assert [(q.topic, q.first, q.first_offset) for q in found.queues if q.different] == [
        ("Orders", "doubled", 3)
    ]
    bills, admin = TopicPartition(f"{place.name}.Bills", 0, 2), kafka.admin()
    [gone] = admin.delete_records([bills]).values()
    gone.result(30)
    found = scene.verified("Bills")
    assert (found.verdict, found.totals["same"], found.totals["not_comparable"]) == (
        SinkVerdict.INCOMPLETE,
        3,
        2,
    )
    scene.runner.close()
    scene.daemon.close()


def test_records_without_headers_cannot_be_compared(kafka: KafkaBroker, place: SinkPlace) -> None:
    with pytest.raises(Refused, match="without headers"):
        KafkaKind().read_back(order_of(kafka, place, headers="none"), place)
