"""The destination *kafka* without a Kafka: names, options, the position as records, runs of what was placed, errors."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.sinkscene import PLACE
from tiered.clock import ManualClock
from tiered.errors import Corrupt, Fenced, Invalid, Unavailable
from tiered.feed.base import FeedPosition, Follow, LogAnchor
from tiered.model import MessageQueue, PhysicalOffset
from tiered.sink.base import Placed, Rewound, SinkPosition, WentTo
from tiered.sink.contract.samples import batch_of, message_of
from tiered.sink.kafka import hanging
from tiered.sink.kafka.client import Heard
from tiered.sink.kafka.hanging import GivenQueues, Hanging, _Committed, _committed
from tiered.sink.kafka.keeping import position_topic, transactional_id
from tiered.sink.kafka.kind import KafkaKind
from tiered.sink.kafka.markers import marker_of
from tiered.sink.kafka.naming import MAX_NAME, kafka_name, target_name
from tiered.sink.kafka.positions import (
    Kept,
    SinkOwner,
    owner_record,
    position_records,
    route_record,
    topic_record,
)
from tiered.sink.kafka.records import MESSAGE_ID, OFFSET, QUEUE, SINK, TOPIC, headers_of
from tiered.sink.kafka.reports import Reports
from tiered.sink.kafka.rereading import _found
from tiered.sink.kafka.routes import QueueRoute, QueueRoutes
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.topics import KafkaTopic
from tiered.sink.messages import messages_of
from tiered.sink.order import SinkOrder
from tiered.sink.shape import MessageShape
from tiered.sink.webhook.requests import PostedLine, PostedRequest

LEGAL = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


# ---- names


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("Orders", "Orders"), ("a-b_C9", "a-b_C9"), ("%RETRY%g", ".25RETRY.25g"), ("a|b", "a.7cb"), ("a.7cb", "a.2e7cb"),
        ("..", ".2e.2e"), ("__tiered.x", ".5f_tiered.2ex"), ("Grüße", "Gr.c3.bc.c3.9fe"), ("orders", "orders"),
    ],
)  # fmt: skip
def test_names_are_legal_and_usual_ones_stay(name: str, made: str) -> None:
    assert kafka_name(name) == made
    assert set(made) <= LEGAL


@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=20, unique=True))
def test_names_that_differ_stay_different(names: list[str]) -> None:
    made = [target_name("{topic}", name, "b", "c") for name in names]
    assert len(set(made)) == len(names)
    assert all(set(name) <= LEGAL and name not in (".", "..") and not name.startswith("__") for name in made)


def test_of_two_sinks_that_had_one_name_none_goes_on_where_the_other_stood() -> None:
    """Nor does a receiver of requests take the one's for the other's that came again."""
    places = [replace(PLACE, sink_id=sink_id) for sink_id in (b"\1" * 16, b"\2" * 16)]
    places += [replace(place, part="2") for place in places]
    request = PostedRequest((PostedLine("T", 0, 5, b"{}"),))
    for told in (position_topic, transactional_id):
        assert len(set(map(told, places))) == 4
        assert told(places[2]) == f"{told(places[0])}.2"
    assert request.key(places[0]) != request.key(places[1])


def test_long_names_end_with_a_digest_of_all() -> None:
    one, other = (target_name("mine.{topic}", "%" * 200 + end, "b", "c") for end in "xy")
    assert len(one) == len(other) == MAX_NAME
    assert one != other
    assert target_name("{cluster}.{broker}.all", "T", "b|1", "c") == "c.b.7c1.all"


# ---- options


def order(**options: str) -> SinkOrder:
    return SinkOrder("s", "kafka", {"brokers": "h:9092", **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mode": "exactly"}, "options.mode"),
        ({"topic": "a b"}, "options.topic"),
        ({"topic": "{queue}"}, "options.topic"),
        ({"topic_config": "retention.ms"}, "options.topic_config"),
        ({"too_large": "dead-letter"}, "options.dead_letter_topic"),
        ({"dead_letter_topic": "{topic}.dead"}, "options.dead_letter_topic"),
        ({"kafka.transactional.id": "mine"}, "options.kafka.transactional.id"),
        ({"kafka.enable.idempotence": "false"}, "options.kafka.enable.idempotence"),
        ({"buffer_bytes": "1"}, "options.buffer_bytes"),
        ({"timeout_ms": "soon"}, "options.timeout_ms"),
        ({"kafka.sasl.password": "env:NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE"),
        ({"brokers": ""}, "options.brokers"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(Invalid) as wrong:
        KafkaSettings.of(order(**options))
    assert said in str(wrong.value)


def test_every_buffer_of_the_client_is_bounded_and_secrets_are_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PASSWORD_OF_TESTS", "sesame")
    settings = KafkaSettings.of(
        order(
            **{
                "kafka.sasl.password": "env:PASSWORD_OF_TESTS",
                "buffer_bytes": "2MiB",
                "buffer_messages": "500",
            }
        )
    )
    told = settings.producer("me")
    assert (told["queue.buffering.max.kbytes"], told["queue.buffering.max.messages"]) == (2048, 500)
    assert (told["transactional.id"], told["enable.idempotence"], told["sasl.password"]) == (
        "me",
        True,
        "sesame",
    )
    assert settings.secrets == ("sesame",)
    assert "transactional.id" not in KafkaSettings.of(order(mode="idempotent")).producer("me")


def test_without_the_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: object, **more: object) -> object:
        if name.startswith("confluent_kafka"):
            raise ImportError(name, name=name)
        return real(name, *rest, **more)  # type: ignore[arg-type]

    for name in [name for name in sys.modules if name.startswith("confluent_kafka")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Invalid, match=r"rocketmq-tiered\[kafka\]"):
        KafkaKind().check(order())


# ---- the position


def test_a_position_comes_back_as_it_was_kept() -> None:
    one, other = MessageQueue("T", 0), MessageQueue("a/b:c\udc80", 7)
    log = FeedPosition(PhysicalOffset(900), LogAnchor(800, 100, 5))
    kept = Kept()
    records = [
        owner_record(SinkOwner(3, "first")), topic_record("K", "id-1"),
        *position_records(SinkPosition(FeedPosition(), {one: Follow(1, None)}), {one: ("K", 1)}),
        *position_records(SinkPosition(log, {one: Follow(5, 800), other: Follow(2, 700)}), {one: ("K", 1)}),
        owner_record(SinkOwner(4, "second")),
    ]  # fmt: skip
    for key, value in records:
        kept.take(key, value)
    assert kept.position == SinkPosition(log, {one: Follow(5, 800), other: Follow(2, 700)})
    assert (kept.owner, kept.topics, kept.partitions) == (
        SinkOwner(4, "second"),
        {"K": "id-1"},
        {one: ("K", 1)},
    )
    assert len({key for key, _ in records}) == 5, "compaction keeps the last of each queue"


@pytest.mark.parametrize("value", [b"", b"null", b"{}", b"[1]", b'{"topic": "T", "queue": "x", "next": 1}'])
def test_a_position_that_cannot_be_read_is_said(value: bytes) -> None:
    for key in (b"owner", b"queue:0:T", b"topic:T"):
        with pytest.raises(Corrupt, match="position that Kafka keeps"):
            Kept().take(key, value)


# ---- where messages came to lie


class Reported:
    """What the client hands to a report."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return "K"


def placed(
    reports: Reports, routes: list[QueueRoute], given: list[tuple[int, int, int]]
) -> tuple[Placed, ...]:
    """Give (route, queue offset), reported at an offset."""
    for route, _, offset in given:
        reports.of(routes[route].topic, routes[route].partition)(None, Reported(offset))  # type: ignore[arg-type]
    every = np.ones(len(given), bool)
    reports.give(np.array([g[0] for g in given]), np.array([g[1] for g in given]), every)
    return reports.placed(routes)


def test_half_a_position_is_none() -> None:
    """Of a topic that was deleted and made anew while the sink ran: who opened it is not there any more."""
    kept = Kept()
    kept.check_whole("__tiered.x.copy")
    kept.take(*topic_record("Orders", "id"))
    for key, value in position_records(SinkPosition(FeedPosition(), {MessageQueue("T", 1): Follow(3)}), {}):
        kept.take(key, value)
    with pytest.raises(Invalid, match=r"position was deleted.*__tiered.x.copy.*rewind-to"):
        kept.check_whole("__tiered.x.copy")
    kept.take(*owner_record(SinkOwner(1, "one")))
    kept.check_whole("__tiered.x.copy")


def test_topics_that_are_gone_or_others_are_forgotten_with_their_partitions() -> None:
    queues = [MessageQueue("T", number) for number in range(3)]
    kept = Kept()
    for name in ("same", "gone", "other"):
        kept.take(*topic_record(name, "id of before"))
    places = {queues[0]: ("same", 1), queues[1]: ("gone", 1), queues[2]: ("other", 1)}
    for key, value in position_records(
        SinkPosition(FeedPosition(), dict.fromkeys(queues, Follow(3))), places
    ):
        kept.take(key, value)
    now = {"same": KafkaTopic("same", 2, "id of before"), "other": KafkaTopic("other", 2, "another id")}
    assert sorted(kept.forget(now)) == ["gone", "other"]
    assert (kept.topics, kept.partitions) == ({"same": "id of before"}, {queues[0]: ("same", 1)})
    again = Kept()
    for record in (topic_record("gone", "id"), topic_record("gone", None)):
        again.take(*record)
    assert again.topics == {}


def test_a_partition_of_a_queue_by_another_name_counts_while_its_topic_is_the_one() -> None:
    renamed, other = MessageQueue("o", 1), MessageQueue("p", 1)
    kept = Kept()
    for record in (
        topic_record("o", "id"), topic_record("p", "id of now"), route_record(renamed, "o", 3, "id of before"),
        route_record(renamed, "o", 1, "id"), route_record(other, "p", 1, "id of before"),
    ):  # fmt: skip
        kept.take(*record)
    kept.settle()
    assert (kept.partitions, kept.queues) == ({renamed: ("o", 1)}, {})


def test_consecutive_messages_are_one_run() -> None:
    queues = [MessageQueue("T", n) for n in range(3)]
    routes = [QueueRoute(n, q, "K", n % 2) for n, q in enumerate(queues)]
    found = placed(
        Reports(), routes,
        [(0, 5, 10), (1, 0, 4), (0, 6, 11), (1, 1, 5), (2, 9, 12), (0, 7, 13), (0, 9, 14), (1, 2, 9)],
    )  # fmt: skip
    assert found == (
        Placed(queues[0], 5, 2, "K", 0, 10), Placed(queues[0], 7, 1, "K", 0, 13), Placed(queues[0], 9, 1, "K", 0, 14),
        Placed(queues[1], 0, 2, "K", 1, 4), Placed(queues[1], 2, 1, "K", 1, 9), Placed(queues[2], 9, 1, "K", 0, 12),
    )  # fmt: skip


def given_in_parts(
    reports: Reports, routes: list[QueueRoute], parts: list[list[tuple[int, int, int]]]
) -> tuple[tuple[Placed, ...], list[int]]:
    """Parts of (route, queue offset, offset) in one flush, reported as they are asked for; and of how many each."""
    asked_for = []
    for part in parts:
        number, queue_offset, _ = (np.array(column) for column in zip(*part, strict=True))
        asked = reports.asked([(route.topic, route.partition) for route in routes], number)
        for wanted, (route, _, offset) in zip(asked.tolist(), part, strict=True):
            report = reports.of(routes[route].topic, routes[route].partition) if wanted else reports.rest
            assert report is not None
            report(None, Reported(offset))  # type: ignore[arg-type]
        reports.give(number, queue_offset, asked)
        asked_for.append(int(asked.sum()))
    return reports.placed(routes), asked_for


def test_of_a_part_the_first_and_the_last_of_each_queue_say_where_all_lie() -> None:
    queues = [MessageQueue("T", n) for n in range(3)]
    routes = [QueueRoute(n, q, "K", n % 2) for n, q in enumerate(queues)]
    first = [
        (n % 3, 5 + n // 3, (n // 3 * 2 + (n % 3) // 2) if n % 3 != 1 else 70 + n // 3) for n in range(30)
    ]
    second = [(1, 15 + n, 80 + n) for n in range(10)]
    every, _ = given_in_parts(Reports(sparse=False), routes, [first, second])
    found, asked = given_in_parts(Reports(), routes, [first, second])
    assert found == every
    assert asked == [6, 2]
    assert [p for p in found if p.queue == queues[1]] == [Placed(queues[1], 5, 20, "K", 1, 70)]


def test_somebody_elses_records_among_them_make_a_wide_run_once() -> None:
    """Exact at both ends, with what lies between counted; from then on each record of the partition is asked for."""
    queues = [MessageQueue("T", n) for n in range(2)]
    routes = [QueueRoute(n, q, "K", n) for n, q in enumerate(queues)]
    plain = [(0, n, 10 + n) for n in range(8)]
    mixed = [(0, 8 + n, 18 + n + (3 if n > 4 else 0)) for n in range(8)]
    other = [(1, n, 40 + n) for n in range(8)]
    reports = Reports()
    found, asked = given_in_parts(reports, routes, [plain, mixed, other])
    assert asked == [2, 2, 2]
    assert found == (
        Placed(queues[0], 0, 8, "K", 0, 10),
        Placed(queues[0], 8, 8, "K", 0, 18, 0, 3),
        Placed(queues[1], 0, 8, "K", 1, 40),
    )
    again, asked = given_in_parts(
        reports,
        routes,
        [[(0, 16 + n, 40 + n + (n > 4)) for n in range(8)], [(1, 8 + n, 48 + n) for n in range(8)]],
    )
    assert asked == [8, 2]
    assert again == (
        Placed(queues[0], 16, 5, "K", 0, 40), Placed(queues[0], 21, 3, "K", 0, 46), Placed(queues[1], 8, 8, "K", 1, 48),
    )  # fmt: skip


@given(st.data())
def test_runs_of_few_reports_never_say_what_is_not_so(data: st.DataObject) -> None:
    """Queues share partitions, somebody else's records lie anywhere: ends are exact, and so is all of an exact run."""
    routes = [QueueRoute(n, MessageQueue("T", n), "K", n % 2) for n in range(3)]
    reports, free, reached, truth = Reports(), [0, 0], [0, 0, 0], {}
    for _ in range(data.draw(st.integers(1, 3))):
        parts = []
        for _ in range(data.draw(st.integers(1, 3))):
            part = []
            for route in data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=12)):
                free[route % 2] += data.draw(st.sampled_from((0, 0, 0, 0, 2)))
                reached[route] += data.draw(st.sampled_from((0, 0, 0, 1)))
                part.append((route, reached[route], free[route % 2]))
                truth[route, reached[route]] = free[route % 2]
                reached[route] += 1
                free[route % 2] += 1
            parts.append(part)
        seen = [(route, at) for part in parts for route, at, _ in part]
        told = []
        for run in given_in_parts(reports, routes, parts)[0]:
            route, end = run.queue.queue_id, run.first_offset + run.messages + run.left_out
            inside = [at for at in range(run.first_offset, end) if (route, at) in truth]
            told += [(route, at) for at in inside]
            assert len(inside) == run.messages
            assert truth[route, inside[0]] == run.target_offset
            assert truth[route, inside[-1]] == run.target_offset + run.messages + run.between - 1
            if not run.left_out and not run.between:
                assert [truth[route, at] for at in inside] == list(
                    range(run.target_offset, run.target_offset + run.messages)
                )
        assert sorted(told) == sorted(seen)


def test_a_failure_of_a_record_that_is_not_asked_for_is_told_with_its_cause() -> None:
    reports = Reports()
    failed = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    assert reports.rest is not None
    reports.rest(None, Reported(0))  # type: ignore[arg-type]
    assert reports.failure is None
    reports.rest(failed, Reported(0))  # type: ignore[arg-type]
    reports.rest(KafkaError(KafkaError._PURGE_QUEUE), Reported(0))  # type: ignore[arg-type]
    assert reports.failure == (failed, "K")


def test_offsets_that_go_back_tell_of_another_topic() -> None:
    routes = [QueueRoute(0, MessageQueue("T", 0), "K", 0)]
    reports = Reports()
    placed(reports, routes, [(0, 0, 40), (0, 1, 41)])
    with pytest.raises(Invalid, match="another one now"):
        placed(reports, routes, [(0, 2, 0)])
    going_on = Reports(refuse_recreated=False)
    placed(going_on, routes, [(0, 0, 40)])
    assert placed(going_on, routes, [(0, 1, 0)])[0].target_offset == 0


def test_a_flush_of_dead_letters_alone_has_no_places() -> None:
    reports = Reports()
    reports.give(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))
    assert reports.placed([QueueRoute(0, MessageQueue("T", 0), "K", 0)]) == ()


def test_a_report_that_did_not_come_is_no_success() -> None:
    reports = Reports()
    reports.of("K", 0)
    reports.give(np.array([0]), np.array([0]), np.array([True]))
    with pytest.raises(Unavailable, match="did not report"):
        reports.placed([QueueRoute(0, MessageQueue("T", 0), "K", 0)])


# ---- what the archive kept of where queues go


class Described:
    """A Kafka's topics."""

    def __init__(self, **topics: KafkaTopic) -> None:
        self.there = topics

    def find(self, names: Iterable[str]) -> dict[str, KafkaTopic]:
        return {name: self.there[name] for name in names if name in self.there}

    def ensure(
        self, names: Iterable[str], config: object, partitions: int, *, create: bool
    ) -> dict[str, KafkaTopic]:
        return self.find(names)

    def check_configuration(self, names: Iterable[str], wanted: int) -> None: ...


def routes_of(there: Described, **options: str) -> QueueRoutes:
    topics: Any = there
    return QueueRoutes(
        KafkaSettings.of(order(mode="idempotent", partition="queue", **options)), PLACE, topics, {}, {}
    )


def test_queues_keep_partitions_that_the_archive_remembers() -> None:
    """Also where the topic has got more since: else later messages of a queue would be beside the earlier ones."""
    routes = routes_of(Described(T=KafkaTopic("T", 6, "id-1")))
    old, new = MessageQueue("T", 5), MessageQueue("T", 4)
    routes.remind({old: WentTo("T", 1, "id-1")})
    assert [(r.topic, r.partition) for r in routes.of([old, new])] == [("T", 1), ("T", 4)]


@pytest.mark.parametrize("there", [{}, {"T": KafkaTopic("T", 6, "id-2")}])
def test_a_topic_made_anew_while_nobody_looked_is_refused_or_given_the_rest(
    there: dict[str, KafkaTopic],
) -> None:
    queue = MessageQueue("T", 5)
    went = {queue: WentTo("T", 7, "id-1")}
    with pytest.raises(Invalid, match="deleted, or is another one now"):
        routes_of(Described(**there)).remind(went)
    going_on = routes_of(Described(T=KafkaTopic("T", 6, "id-2")), recreated="go-on")
    going_on.remind(went)
    assert going_on.of([queue])[0].partition == 5, "the partition that it had in the old topic says nothing"


def test_a_topic_that_was_gone_on_with_is_known_again() -> None:
    """A queue that had nothing since remembers the old topic: that is no reason to stop."""
    routes = routes_of(Described(T=KafkaTopic("T", 6, "id-2")))
    idle, busy = MessageQueue("T", 4), MessageQueue("T", 5)
    routes.remind({idle: WentTo("T", 3, "id-1"), busy: WentTo("T", 2, "id-2")})
    assert [route.partition for route in routes.of([idle, busy])] == [4, 2]


# ---- errors


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, Fenced), (KafkaError.INVALID_PRODUCER_EPOCH, Fenced), (KafkaError.PRODUCER_FENCED, Fenced),
        (KafkaError._AUTHENTICATION, Invalid), (KafkaError.TOPIC_AUTHORIZATION_FAILED, Invalid),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Invalid), (KafkaError.MSG_SIZE_TOO_LARGE, Invalid),
        (KafkaError.INVALID_TIMESTAMP, Invalid), (KafkaError._MSG_TIMED_OUT, Unavailable),
        (KafkaError._TRANSPORT, Unavailable), (KafkaError.NOT_ENOUGH_REPLICAS, Unavailable), (KafkaError._STATE, Unavailable),
    ],
)  # fmt: skip
def test_errors_of_the_client_are_those_of_the_port(code: int, kind: type) -> None:
    assert type(Heard().error("it was tried", KafkaError(code))) is kind


def test_what_was_heard_by_the_way_explains_and_hides_secrets() -> None:
    heard = Heard(("sesame",))
    heard(KafkaError(KafkaError._AUTHENTICATION, "SASL: sesame is wrong"))
    told = heard.error("it was tried", KafkaError(KafkaError._TIMED_OUT))
    assert isinstance(told, Invalid)
    assert "SASL: *** is wrong" in str(told)


# ---- records that nobody sees


class Showing:
    """Kafka that shows so many offsets, one more each time it is asked, or no more."""

    def __init__(self, first: int, more: int) -> None:
        self.shown, self.more = first, more

    def ends(self, partitions: Iterable[tuple[str, int]], *, committed: bool) -> dict[tuple[str, int], int]:
        assert committed
        self.shown += self.more
        return dict.fromkeys(partitions, self.shown)


class _Record:
    """A record as it lies in Kafka."""

    def __init__(self, topic: str, queue_id: int, queue_offset: int, **more: bytes) -> None:
        self._told = {
            **{f"rocketmq.{name}": value for name, value in more.items()},
            TOPIC: topic.encode(),
            QUEUE: str(queue_id).encode(),
            OFFSET: str(queue_offset).encode(),
        }

    def headers(self) -> list[tuple[str, bytes]]:
        return list(self._told.items())

    def offset(self) -> int:
        return 70


@pytest.mark.parametrize("shape", [MessageShape(), MessageShape(renames=(("Orders", "o"), ("Pay*", "p*")))])
@pytest.mark.parametrize("topic", ["Orders", "PayIn", "Other"])
def test_a_record_is_before_the_position_by_whatever_name_it_has(shape: MessageShape, topic: str) -> None:
    """Positions tell of queues as the source names them, records as the destination does."""
    queue, there = MessageQueue(topic, 1), MessageQueue(shape.topic(topic), 1)
    kept = Kept(queues={queue: Follow(5)}, partitions={there: ("k", 2)})
    told, part = GivenQueues.of(kept, replace(PLACE, renamed=shape.topic)), Hanging("k", 2, 60, 80)
    assert _committed(part, _Record(there.topic, 1, 4), told) == _Committed(70, there, 4)
    assert _committed(part, _Record(there.topic, 1, 5), told) is None, "the position is before it"
    assert _committed(part, _Record(there.topic, 0, 4), told) is None, "a queue that was never given"
    assert _committed(part._replace(partition=1), _Record(there.topic, 1, 4), told) is None, "somebody else's"
    if there != queue:
        assert _committed(part, _Record(topic, 1, 4), told) is None


@pytest.mark.parametrize(
    ("by", "mine"), [({"sink": b"070707070707"}, True), ({"sink": b"080808080808"}, False), ({}, True)]
)
def test_a_record_says_which_sink_gave_it(by: dict[str, bytes], *, mine: bool) -> None:
    """One that does not say it, as of before, is taken for this sink's."""
    place, queue = replace(PLACE, sink_id=b"\7" * 16), MessageQueue("T", 1)
    record = _Record("T", 1, 4, msgid=b"7F00000100002A9F0000000000000010", **by)
    told = GivenQueues.of(Kept(queues={queue: Follow(5)}, partitions={queue: ("k", 2)}), place)
    assert (_committed(Hanging("k", 2, 60, 80), record, told) is not None) == mine
    assert (_found(70, record.headers(), place.short_id) is not None) == mine


def test_every_record_and_marker_has_its_sinks_id() -> None:
    messages = messages_of(batch_of([message_of("T", 0, n, b"x", {SINK: "mine"}) for n in range(3)])[0])
    for headers in headers_of(messages, "070707070707"):
        assert (headers[SINK], headers[f"rocketmq.property.{SINK}"]) == (b"070707070707", b"mine")
        assert list(headers)[:5] == [TOPIC, QUEUE, OFFSET, MESSAGE_ID, SINK]
    marker = marker_of(Rewound(MessageQueue("T", 0), 3, 5, 1), "070707070707")
    assert marker.headers[SINK] == "070707070707"


@pytest.mark.parametrize(("more", "stops"), [(1, False), (0, True)])
def test_a_record_before_the_position_that_is_never_shown_stops_the_sink(
    monkeypatch: pytest.MonkeyPatch, more: int, stops: bool
) -> None:
    """It may lie behind an open transaction of another producer: only what stays hidden longer than any may be is lost."""
    record = _Committed(7, MessageQueue("T", 0), 3)
    monkeypatch.setattr(hanging, "_before_the_position", lambda *told: {("t", 0): record})
    settings = KafkaSettings.of(SinkOrder("copy", "kafka", {"brokers": "a:9092"}))
    clock = ManualClock()
    topics: Any = Showing(0, more)
    if stops:
        with pytest.raises(Invalid, match="committed a transaction in part"):
            hanging.check_not_committed(settings, topics, clock, [], GivenQueues({}, {}))
        assert clock.monotonic() > settings.transaction_timeout_ms / 1000
    else:
        hanging.check_not_committed(settings, topics, clock, [], GivenQueues({}, {}))
        assert topics.shown == 8
