"""The destination *rocketmq*: the contract against a broker that breaks as told; loops, topics, what is carried along."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.kit.fakebroker import Stored
from tests.kit.fakecluster import FakeCluster
from tests.kit.replacing import replace
from tests.kit.sinkscene import PLACE
from tiered.broker.client import Dial
from tiered.clock import ManualClock, SystemClock
from tiered.codec.record.message import Message
from tiered.codec.remoting.frame import Command
from tiered.errors import Corrupt, Invalid, Refused, Unavailable
from tiered.model import MessageQueue
from tiered.provider.memory import MemoryProvider
from tiered.sink.base import Accepted, Placed, Sink, SinkPosition
from tiered.sink.comparison.base import ANOTHER_SINKS, Marks, ReadBack
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import Interrupted, TestedSink
from tiered.sink.contract.samples import Received, batch_of, message_of, ordinary
from tiered.sink.deadletters import DeadLetters
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder
from tiered.sink.rocketmq.carried import ORIGINS, BrokerOrigin, came_from, carrying
from tiered.sink.rocketmq.cluster import DestinationCluster
from tiered.sink.rocketmq.kind import BrokerKind
from tiered.sink.rocketmq.reading import BrokerReadBack
from tiered.sink.rocketmq.sink import BrokerSending, BrokerSink

CARRIED = ("TIERED_MSG_ID", "TIERED_QUEUE", "TIERED_OFFSET", "TIERED_ORIGINS", "TIERED_SINK")


class Quick(SystemClock):
    """Pauses between tries are not waited for."""

    def wait(self, seconds: float, event: object = None) -> bool:
        return False


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        yield made


def opened(
    cluster: FakeCluster, *, create: int = 4, attempts: int = 2, dead: DeadLetters | None = None
) -> BrokerSink:
    dial = Dial(timeout_seconds=20)
    there = DestinationCluster([cluster.address], Quick(), dial, create)
    return BrokerSink(there, PLACE, Quick(), dial, BrokerSending("g", attempts), dead)


class TestedBroker(TestedSink):
    huge = 1_000
    takes_empty_bodies = False
    largest_body = 1 << 20

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster

    def open(self) -> Sink:
        return opened(self.cluster)

    def read(self) -> Iterable[Received]:
        """Source queues, as the properties tell them: several may share one of the destination."""
        for topic in list(self.cluster.queues):
            for queue in self.cluster.queues[topic].values():
                for stored in queue.sent.values():
                    carried = stored.properties
                    source, offset = carried["TIERED_QUEUE"], int(carried["TIERED_OFFSET"])
                    name, _, number = source.rpartition("/")
                    assert name == topic
                    own = {k: v for k, v in carried.items() if k not in CARRIED}
                    yield Received(topic, int(number), offset, stored.body, own)

    def read_back(self) -> ReadBack:
        options = {"name_servers": self.cluster.address}
        return BrokerKind(Quick()).read_back(SinkOrder("orders", "rocketmq", options), PLACE)

    def interrupted(self, request: int, *, done: bool) -> AbstractContextManager[Interrupted]:
        return self.cluster.broken(request, done=done)

    def away(self) -> AbstractContextManager[None]:
        return self.cluster.away()


class TestBrokerSink(SinkContract):
    @pytest.fixture
    def tested(self, cluster: FakeCluster) -> TestedBroker:
        return TestedBroker(cluster)


def test_what_is_carried_along() -> None:
    here = BrokerOrigin("C1", "b", "10.0.0.1:10911")
    there = BrokerOrigin("C2", "b", "10.0.0.2:10911")
    first = carrying({"TAGS": "t"}, here, "ID", "Orders/3", 17, "one")
    assert first == {
        "TAGS": "t", "TIERED_MSG_ID": "ID", "TIERED_QUEUE": "Orders/3", "TIERED_OFFSET": "17",
        "TIERED_ORIGINS": "C1/b/10.0.0.1:10911", "TIERED_SINK": "one",
    }  # fmt: skip
    second = carrying(first, there, "ID2", "Orders/0", 4, "two")
    assert second == {**first, ORIGINS: "C1/b/10.0.0.1:10911,C2/b/10.0.0.2:10911", "TIERED_SINK": "two"}
    assert came_from(second, {str(here)})
    assert not came_from(second, {str(here._replace(address="10.0.0.3:10911"))})
    assert not came_from({}, {str(here)})


def test_a_message_is_not_sent_back_where_it_was(cluster: FakeCluster) -> None:
    was_there = f"A/a/1.1.1.1:1,{BrokerOrigin(*cluster.names, cluster.address)}"
    messages = [message_of("T", 0, n, b"%d" % n, {ORIGINS: was_there} if n % 2 else {}) for n in range(6)]
    sink = opened(cluster)
    assert sink.write(batch_of(messages)[0]) == Accepted(6, came_back=3)
    assert sink.write(batch_of(messages[:1])[0]) == Accepted(1)
    assert [stored.body for stored in cluster.sent("T")] == [b"0", b"2", b"4", b"0"]
    sink.close()


def test_a_sink_that_would_feed_its_own_source_is_refused(cluster: FakeCluster) -> None:
    cluster.names = PLACE.cluster, PLACE.broker
    order = SinkOrder("orders", "rocketmq", {"name_servers": cluster.address})
    with pytest.raises(Refused, match="feed its own source"):
        BrokerKind().open(order, PLACE)
    sink = BrokerKind().open(replace(order, options={**order.options, "same_names": "true"}), PLACE)
    sink.write(batch_of(ordinary(1))[0])  # another broker of the same names
    own = [replace(message_of("T", 0, 0, b"x"), store_host=cluster.address)]
    with pytest.raises(Refused, match="feed its own source"):
        sink.write(batch_of(own)[0])
    sink.close()
    assert cluster.sent("T") == []


def test_topics_are_made_with_queues_enough_or_missed_by_name(cluster: FakeCluster) -> None:
    sink = opened(cluster)
    sink.write(batch_of([message_of("Wide", 11, 0, b"x"), message_of("Narrow", 0, 0, b"y")])[0])
    assert cluster.made == {"Wide": 12, "Narrow": 4}
    sink.close()
    without = opened(cluster, create=0)
    without.write(batch_of([message_of("Narrow", 0, 1, b"z")])[0])
    with pytest.raises(Invalid, match="does not have a topic"):
        without.write(batch_of([message_of("New", 0, 0, b"x")])[0])
    without.close()


def test_where_messages_lie_is_told(cluster: FakeCluster) -> None:
    sink = opened(cluster)
    sink.write(batch_of(ordinary(3, topics=["T"]))[0])
    sink.write(batch_of(ordinary(2, first=3, topics=["T"]))[0])
    placed = sink.flush(SinkPosition()).placed
    assert sorted(p.queue.queue_id for p in placed) == [0, 1]
    assert {p._replace(queue=placed[0].queue, partition=0) for p in placed} == {
        Placed(placed[0].queue, 0, 5, "T@broker-o", 0, 0)
    }
    assert sink.flush(SinkPosition()).placed == ()
    sink.close()


def test_one_message_of_a_queue_is_on_its_way(cluster: FakeCluster) -> None:
    """A broker that is busy stores none of what follows."""
    cluster.answers += [(2, "busy"), (2, "busy"), (2, "busy")]
    sink = opened(cluster, attempts=5)
    sink.write(batch_of([message_of("T", 0, n, b"%d" % n) for n in range(4)])[0])
    assert [stored.body for stored in cluster.sent("T")] == [b"0", b"1", b"2", b"3"]
    sink.close()


def test_answers_that_say_wait_and_answers_that_say_no(cluster: FakeCluster) -> None:
    sink = opened(cluster)
    cluster.answers += [(14, "disk full")] * 2
    with pytest.raises(Unavailable, match="disk full"):
        sink.write(batch_of([message_of("T", 0, 0, b"x")])[0])
    cluster.answers += [(16, "AclException: no rights")]
    with pytest.raises(Invalid, match="rights of the keys"):
        sink.write(batch_of([message_of("T", 0, 0, b"x")])[0])
    cluster.answers += [(13, "body too large")]
    with pytest.raises(Invalid, match="T/0 at 0"):
        sink.write(batch_of([message_of("T", 0, 0, b"x")])[0])
    sink.close()


def test_what_a_broker_refuses_becomes_a_dead_letter(cluster: FakeCluster) -> None:
    store = MemoryProvider("dead", ManualClock())
    sink = opened(cluster, dead=DeadLetters(store, "orders"))
    cluster.answers += [(0, ""), (13, "body too large")]
    accepted = sink.write(batch_of([message_of("T", 0, n, b"%d" % n) for n in range(3)])[0])
    assert (accepted.messages, accepted.dead_letters) == (3, 1)
    assert [stored.body for stored in cluster.sent("T")] == [b"0", b"2"]
    [found] = store.list("")
    assert json.loads(bytes(store.get(found.key).data))["body"] == "1"
    sink.close()


def test_an_empty_body_stops_the_sink_by_name(cluster: FakeCluster) -> None:
    """A broker of 5.5 answers such a send with a NullPointerException, which looks as if it would pass."""
    sink = opened(cluster)
    with pytest.raises(Invalid, match="body is empty"):
        sink.write(batch_of([message_of("T", 0, 0, b"")])[0])
    sink.close()
    assert cluster.sent("T") == []


def test_what_is_wrong_with_an_order_is_said(cluster: FakeCluster) -> None:
    def order(**options: str) -> SinkOrder:
        return SinkOrder("orders", "rocketmq", {"name_servers": cluster.address, **options})

    BrokerKind().check(order())
    for wrong, said in (
        (order(name_servers=""), r"options\.name_servers"),
        (order(name_servers="nowhere"), r"options\.name_servers"),
        (order(create_topics="perhaps"), "create_topics"),
        (order(access_key="env:HOME"), "two keys"),
        (order(tls="true", ca_file="/no/such"), "ca_file"),
        (order(topic="x"), "no such option"),
    ):
        with pytest.raises(Invalid, match=said):
            BrokerKind().check(wrong)
    with pytest.raises(Unavailable, match="tell no broker"):
        BrokerKind().check(order(name_servers="127.0.0.1:1"))


# ---- read back


def back(
    cluster: FakeCluster, *, dead: DeadLetters | None = None, place: SinkPlace = PLACE
) -> BrokerReadBack:
    dial = Dial(timeout_seconds=0.5)
    return BrokerReadBack(DestinationCluster([cluster.address], Quick(), dial, 4), place, Quick(), dial, dead)


def marked(parts: Iterable[Marks]) -> list[tuple[MessageQueue, int, int, int]]:
    """Queue, offset, origin and content, in the order of reading."""
    return [
        (marks.queues[queue], *mark)
        for marks in parts
        for queue, *mark in zip(*(column.tolist() for column in marks[1:]), strict=True)
    ]


def given(cluster: FakeCluster, messages: list[Message]) -> list[tuple[MessageQueue, int, int, int]]:
    sink = opened(cluster)
    sink.write(batch_of(messages)[0])
    sink.close()
    return marked([back(cluster).given(batch_of(messages)[0])])


def orders(count: int) -> list[Message]:
    return [message_of("T", 1, n, b"%d" % n, {"DELAY": "3", "TAGS": "t"}) for n in range(count)]


T1 = MessageQueue("T", 1)


def changed(stored: Stored, old: str, new: str) -> Stored:
    """With other text among its properties."""
    text = stored.ext["properties"]
    assert old in text
    return Stored({**stored.ext, "properties": text.replace(old, new)}, stored.body)


def test_each_kind_of_change_at_the_destination_is_seen(cluster: FakeCluster) -> None:
    """Also what is no more than one property; what brokers note, and messages of others, count for nothing."""
    wanted = given(cluster, orders(70))
    queue = cluster.queues["T"][1]
    assert marked(back(cluster).read([T1])) == wanted
    queue.maximum, carried = 71, queue.sent[3].properties[ORIGINS]
    ours = f"{PLACE.cluster}/{PLACE.broker}"
    for origins in ("x", f"A/a/1:1,{ours}/1:1", f"Q/{PLACE.broker}/1:1", f"{ours}2/1:1"):
        queue.sent[70] = changed(queue.sent[3], carried, origins)
        assert marked(back(cluster).read([T1])) == wanted, origins
    queue.maximum = 70
    for old, new in (
        ("TAGS\x01t", "TAGS\x01u"),
        ("OFFSET\x013", "OFFSET\x014"),
        ("MSG_ID\x01", "MSG_ID\x010"),
    ):
        kept, queue.sent[3] = queue.sent[3], changed(queue.sent[3], old, new)
        found = marked(back(cluster).read([T1]))
        assert [at for at, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]] == [3]
        queue.sent[3] = kept


def test_what_came_by_another_sink_is_on_neither_side_and_said(cluster: FakeCluster) -> None:
    hopped = [replace(m, properties={**m.properties, ORIGINS: "A/a/1.1.1.1:1"}) for m in orders(2)]
    assert given(cluster, hopped) == []
    reader = back(cluster)
    assert (marked(reader.read([T1])), reader.ordered) == ([], True)
    assert "by another sink" in str(reader.unread())
    there = BrokerOrigin(*cluster.names, cluster.address)
    came_back = [replace(m, properties={**m.properties, ORIGINS: str(there)}) for m in orders(2)]
    reader = back(cluster)
    assert marked([reader.given(batch_of(came_back)[0])]) == []
    assert reader.unread() is None, "the sink does not send these, so nothing is left uncompared"


def test_a_queue_that_lies_in_two_has_no_order_and_one_without_a_beginning_is_said(
    cluster: FakeCluster,
) -> None:
    given(cluster, orders(6))
    queues = cluster.queues["T"]
    for offset in (4, 5):
        queues[0].sent[offset - 4] = queues[1].sent.pop(offset)
    queues[0].maximum, queues[1].maximum, queues[1].minimum = 2, 4, 1
    reader = back(cluster)
    assert [offset for _, offset, _, _ in marked(reader.read([T1]))] == [4, 5, 1, 2, 3]
    assert (reader.ordered, reader.begins_late(T1), reader.begins_late(MessageQueue("U", 1))) == (
        False,
        True,
        False,
    )
    assert "no order is compared" in str(reader.unread())


def test_a_broker_that_gives_nothing_or_refuses_is_not_taken_for_an_empty_one(cluster: FakeCluster) -> None:
    given(cluster, orders(3))
    for answer, error in (
        (Command(16, remark="no permission"), Invalid), (Command(2, remark="busy"), Unavailable),
        (Command(19, ext={"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "3"}), Unavailable),
        (Command(0, ext={"nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3"}, body=b"no records"), Corrupt),
    ):  # fmt: skip
        cluster.instead = lambda asked, answer=answer: replace(answer) if asked.code == 11 else None  # type: ignore[misc]
        with pytest.raises(error):
            marked(back(cluster).read([T1]))
    cluster.instead = lambda asked: Command(1, remark="system error") if asked.code == 202 else None
    with pytest.raises(Unavailable, match="GET_TOPIC_STATS_INFO"):
        marked(back(cluster).read([T1]))


def test_files_deleted_while_they_are_read_are_said(cluster: FakeCluster) -> None:
    given(cluster, orders(70))
    reader = back(cluster)
    parts = iter(reader.read([T1]))
    next(parts)
    cluster.delete("T", 1, 50)
    assert [offset for _, offset, _, _ in marked(parts)] == list(range(50, 70))
    assert "deleted messages while they were read" in str(reader.unread())


def test_another_sinks_messages_are_not_ours(cluster: FakeCluster) -> None:
    """Whose a message is it says itself; one of before says nothing, and is ours."""
    ours = given(cluster, orders(3))
    reader = back(cluster)
    assert marked(reader.read([T1])) == ours
    other = back(cluster, place=replace(PLACE, sink_id=b"\6" * 16))
    assert {origin for _, _, origin, _ in marked(other.read([T1]))} == {ANOTHER_SINKS}
    for queue in cluster.queues["T"].values():
        for stored in queue.sent.values():
            stored.ext["properties"] = re.sub(r"TIERED_SINK\x01[^\x02]*", "", stored.ext["properties"])
    assert marked(other.read([T1])) == ours
    reader.close()
    other.close()


def test_dead_letters_are_read_back(cluster: FakeCluster) -> None:
    store = MemoryProvider("dead", ManualClock())
    sink = opened(cluster, dead=DeadLetters(store, "orders"))
    cluster.answers += [(13, "body too large")]
    sink.write(batch_of(orders(2))[0])
    reader = back(cluster, dead=DeadLetters(store, "orders"))
    assert [mark[:2] for mark in marked(reader.buried())] == [(T1, 0)]
    assert [mark[:2] for mark in marked(reader.read([T1]))] == [(T1, 1)]
    sink.close()
    reader.close()
