"""Whose archive is it? Nothing cold goes to clients of a broker that is not the one that was archived."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.gatewaydesk import (
    RETRY,
    Desk,
    answered,
    asking,
    at_default_level,
    found,
    offsets_of,
    pull,
    simple,
    too_small,
)
from tests.kit.pipeline import Crafted
from tests.kit.readstore import Cold, cold
from tiered.clock import ManualClock
from tiered.codec.record.message import Message, decode_message, encode_message
from tiered.codec.remoting.codes import RequestCode
from tiered.codec.remoting.frame import Command
from tiered.errors import TieredError, Unavailable
from tiered.gateway.knowledge.questions import Floors
from tiered.gateway.knowledge.samebroker import WATCH_SECONDS, SameBroker
from tiered.gateway.ports import ConnectionInfo
from tiered.metrics import Metrics

TOPIC = "Orders"
COUNT = 40
"""Messages that are archived, of one queue."""


class Wire:
    """A broker that answers views of its records, from ``begin`` on."""

    def __init__(self, log: Crafted) -> None:
        self.log = log
        self.begin = 0
        self.refuses = False
        self.asked = 0

    async def ask(self, address: str, request: Command, seconds: float) -> Command:
        """As brokers do it: offset 0 is the start of the oldest file."""
        self.asked += 1
        if self.refuses:
            return simple(16, "No permission")
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            message, raw = self.log.sent[-1]
            end = message.physical_offset + len(raw)
            return simple(0, None, json.dumps({"table": {"commitLogMaxOffset": str(end)}}).encode())
        offset = int(request.ext["offset"])
        records = {m.physical_offset: raw for m, raw in self.log.sent if m.physical_offset >= self.begin}
        body = records.get(offset if offset else min(records, default=0))
        return (
            simple(1, f"can not find message by the offset, {offset}")
            if body is None
            else simple(0, None, body)
        )


class Scene:
    """An archive, the broker that answers now, and the gateway's desk."""

    def __init__(self, archived: Cold) -> None:
        self.archived = archived
        self.wire = Wire(archived.broker)
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.pool = ThreadPoolExecutor(2)
        floors = Floors(self.wire.ask, self.clock)
        self.same = SameBroker(archived.store, floors, self.pool, self.metrics, self.clock)
        self.desk = Desk(at_default_level(archived.store), broker=self.same)

    def close(self) -> None:
        """End the pools."""
        self.desk.close()
        self.pool.shutdown()

    def later(self) -> None:
        """Time for another comparison, and for another look at the log."""
        self.clock.advance(60)
        self.archived.fresh()

    def reconnect(self) -> None:
        """The broker ended the client's connection, which makes a new one."""
        old = self.desk.connection
        self.desk.answers.closed(old)
        self.desk.connection = replace(old, number=old.number + 1)

    def cold(self, *, low: int = 30, high: int = 90) -> Command | str:
        """A pull of what the broker says that it has deleted."""
        return self.desk.ask(pull(TOPIC, 0, 10), too_small(low, high))

    def checks(self, outcome: str) -> float:
        """Comparisons so far."""
        return self.metrics.value("tiered_gateway_broker_checks_total", outcome=outcome) or 0

    @property
    def differs(self) -> float | None:
        """What the gauge says."""
        return self.metrics.value("tiered_gateway_broker_differs")


def send(log: Crafted, count: int, word: str) -> None:
    for number in range(count):
        log.time_ms += 10
        log.send(TOPIC, 0, f"{word}-{number}".encode(), properties={"KEYS": "k"})


@contextmanager
def archive(directory: Path) -> Iterator[Cold]:
    with cold(directory, open_now=False) as made:
        send(made.broker, COUNT, "old")
        made.archive()
        made.open()
        yield made


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with archive(tmp_path) as archived:
        made = Scene(archived)
        yield made
        made.close()


def installed_anew(directory: Path, count: int) -> Crafted:
    """The same broker's name, another store; offsets begin at 0."""
    log = Crafted(directory / "anew", file_bytes=1 << 16)
    log.time_ms += 1_000_000
    send(log, count, "new")
    return log


def test_the_archived_broker_is_compared_once_for_a_connection(scene: Scene) -> None:
    for _ in range(3):
        assert offsets_of(scene.cold()) == list(range(10, COUNT))
    assert (scene.wire.asked, scene.checks("same")) == (1, 1)
    scene.reconnect()
    assert offsets_of(scene.cold()) == list(range(10, COUNT))
    assert (scene.wire.asked, scene.checks("same")) == (2, 2)


class TestInstalledAnew:
    """The archiver refuses this broker; its offsets are those of its former life."""

    @pytest.mark.parametrize("begin", [0, 60], ids=["has all", "has deleted what lies there"])
    @pytest.mark.parametrize("count", [10, 90], ids=["shorter", "longer"])
    def test_nothing_of_the_former_life_is_served(
        self, scene: Scene, tmp_path: Path, count: int, begin: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        anew = installed_anew(tmp_path, count)
        scene.wire.log = anew
        if begin and count > begin:
            scene.wire.begin = anew.sent[begin][0].physical_offset
            for at, (message, _) in enumerate(anew.sent):  # and its clock is behind
                older = replace(message, store_timestamp=message.store_timestamp - 2_000_000)
                anew.sent[at] = older, encode_message(older)
        with caplog.at_level(logging.INFO, "tiered.gateway"):
            for _ in range(3):
                assert scene.cold() == RETRY
                scene.clock.advance(2)
        assert scene.differs == 1
        assert scene.same.problem is not None
        assert scene.desk.count("pull", "retry") == 3
        assert [r.levelname for r in caplog.records] == ["ERROR"], "said once"

    def test_no_other_question_is_answered_from_it(self, scene: Scene, tmp_path: Path) -> None:
        scene.wire.log = installed_anew(tmp_path, 90)
        desk, place = scene.desk, str(scene.archived.broker.sent[10][0].physical_offset)
        queue = {"topic": TOPIC, "queueId": "0"}
        key = {
            "topic": TOPIC,
            "key": "k",
            "maxNum": "32",
            "beginTimestamp": "0",
            "endTimestamp": str(1 << 60),
        }
        assert desk.ask(asking(31, **queue), simple(0, offset="30")) == RETRY
        assert desk.ask(asking(32, **queue), simple(0, timestamp="-1")) == RETRY
        assert desk.ask(asking(29, **queue, timestamp="5"), simple(0, offset="30")) == RETRY
        assert desk.ask(asking(33, offset=place), simple(1, "can not find")) == RETRY
        assert desk.ask(asking(12, **key), simple(22, "can not find")) == RETRY
        table = b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"Orders"}:30}}'
        order = asking(222, topic=TOPIC, group="G", timestamp="1000", isForce="true")
        assert desk.ask(order, simple(0, None, table)) == RETRY
        stats = (
            b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"Orders"}:'
            b'{"lastUpdateTimestamp":0,"maxOffset":90,"minOffset":30}}}'
        )
        answer = simple(0, None, stats)
        assert desk.ask(asking(202, topic=TOPIC), answer) is answer, "as the broker says it"
        assert desk.count("topic_stats", "unchecked") == 1, "and that is said"
        hot = found(TOPIC, 0, range(40, 41), 30, 90)
        assert desk.ask(pull(TOPIC, 0, 40), hot) is hot

    def test_a_connection_from_before_says_nothing_about_the_next(self, scene: Scene, tmp_path: Path) -> None:
        assert offsets_of(scene.cold()) == list(range(10, COUNT))
        scene.wire.log = installed_anew(tmp_path, 90)
        scene.reconnect()
        assert scene.cold() == RETRY

    def test_once_the_archive_is_right_all_is_served_again(
        self, scene: Scene, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        log = scene.wire.log
        scene.wire.log = installed_anew(tmp_path, 90)
        assert scene.cold() == RETRY
        scene.wire.log = log
        assert scene.cold() == RETRY, "not asked again at once"
        scene.later()
        with caplog.at_level(logging.INFO, "tiered.gateway"):
            assert offsets_of(scene.cold()) == list(range(10, COUNT))
        assert (scene.differs, scene.same.problem) == (0, None)
        assert "the broker is the archived one" in caplog.text

    def test_nobody_asks_and_it_is_seen_all_the_same(self, scene: Scene, tmp_path: Path) -> None:
        log = scene.wire.log
        scene.wire.log = installed_anew(tmp_path, 90)

        async def looked() -> None:
            def brokers() -> list[ConnectionInfo]:
                return [replace(scene.desk.connection, number=0)]

            watching = asyncio.create_task(scene.same.watch(brokers))
            await settled(lambda: scene.same.problem is not None)
            watching.cancel()
            scene.wire.log = log
            scene.clock.advance(WATCH_SECONDS)
            watching = asyncio.create_task(scene.same.watch(brokers))
            await settled(lambda: scene.same.problem is None)
            watching.cancel()

        asyncio.run(looked())
        assert scene.differs == 0


async def settled(true: object) -> None:
    assert callable(true)
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


class TestNotEverythingIsThere:
    def test_all_that_is_archived_is_deleted(self, scene: Scene) -> None:
        """Nothing can be compared; what the broker has now was stored later. The archiver goes on, too."""
        send(scene.wire.log, 5, "later")
        scene.wire.begin = scene.wire.log.sent[COUNT][0].physical_offset
        assert offsets_of(scene.cold(low=COUNT)) == list(range(10, COUNT))

    def test_a_replica_that_is_behind(self, scene: Scene) -> None:
        del scene.wire.log.sent[COUNT // 2 :]
        assert offsets_of(scene.cold()) == list(range(10, COUNT))

    def test_a_replica_that_has_nothing_archived_in_common(self, scene: Scene) -> None:
        """Its first record is not archived, and its log ends before the archive's."""
        log = scene.wire.log
        first = log.sent[0][0]
        other = Message("Excluded", 0, 0, first.physical_offset + 1, b"x", store_timestamp=1)
        log.sent[:] = [(other, encode_message(other))]
        assert scene.cold() == RETRY
        assert (scene.differs, scene.same.problem) == (0, None)
        assert scene.same.unknown is not None
        assert "nothing can be compared" in scene.same.unknown

    def test_a_lost_tail_until_the_archiver_has_rewound(self, scene: Scene) -> None:
        archived = scene.archived
        archived.broker.crash(archived.broker.sent[30][0].physical_offset)
        send(archived.broker, 20, "another tail")
        assert scene.cold() == RETRY
        archived.restart()
        archived.archive()
        scene.later()
        assert offsets_of(scene.cold()) == list(range(10, 42))

    def test_nothing_is_archived_yet(self, tmp_path: Path) -> None:
        with cold(tmp_path) as archived:
            made = Scene(archived)
            asyncio.run(made.same.require(made.desk.connection))
            assert made.wire.asked == 0
            made.close()


class TestItCannotBeSeen:
    def test_a_broker_that_does_not_let_the_gateway_ask(self, scene: Scene) -> None:
        scene.wire.refuses = True
        with pytest.raises(Unavailable, match=r"gateway\.access_key"):
            asyncio.run(scene.same.require(scene.desk.connection))
        assert scene.cold() == RETRY
        assert scene.same.problem is None
        assert scene.same.unknown is not None
        scene.wire.refuses = False
        scene.later()
        assert offsets_of(scene.cold()) == list(range(10, COUNT))
        assert scene.same.unknown is None

    def test_then_a_record_that_it_gives_to_a_client_is_compared(self, scene: Scene) -> None:
        """Whoever is waiting when it comes is served; a later connection waits for the next one."""
        scene.wire.refuses = True
        assert scene.cold() == RETRY
        self.hot(scene, scene.wire.log.sent[COUNT - 1][1])
        scene.later()
        assert offsets_of(scene.cold()) == list(range(10, COUNT))
        scene.reconnect()
        assert scene.cold() == RETRY
        self.hot(scene, scene.wire.log.sent[COUNT - 1][1])
        scene.later()
        assert offsets_of(scene.cold()) == list(range(10, COUNT))

    def test_one_from_before_a_connection_says_nothing_about_it(self, scene: Scene) -> None:
        scene.wire.refuses = True
        assert scene.cold() == RETRY
        self.hot(scene, scene.wire.log.sent[COUNT - 1][1])
        scene.reconnect()
        scene.later()
        assert scene.cold() == RETRY

    def test_one_that_is_not_archived_yet_is_compared_when_it_is(self, scene: Scene) -> None:
        scene.wire.refuses = True
        assert scene.cold() == RETRY
        send(scene.wire.log, 1, "newest")
        self.hot(scene, scene.wire.log.sent[COUNT][1])
        scene.later()
        assert scene.cold() == RETRY
        scene.archived.archive()
        scene.later()
        assert offsets_of(scene.cold()) == list(range(10, COUNT + 1))

    def test_one_of_another_life_shows_that(self, scene: Scene, tmp_path: Path) -> None:
        scene.wire.log, scene.wire.refuses = installed_anew(tmp_path, 90), True
        assert scene.cold() == RETRY
        self.hot(scene, scene.wire.log.sent[0][1])
        scene.later()
        assert scene.cold() == RETRY
        assert scene.differs == 1

    @staticmethod
    def hot(scene: Scene, record: bytes) -> None:
        """Another client of the broker is given a record."""
        mine = scene.desk.connection
        scene.desk.connection = replace(mine, number=99)
        offset = decode_message(record).queue_offset
        answer = answered(0, "FOUND", offset + 1, 0, 90, body=record)
        assert scene.desk.ask(pull(TOPIC, 0, offset), answer) is answer
        scene.desk.connection = mine

    def test_it_does_not_touch_connections_that_were_compared(self, scene: Scene) -> None:
        assert offsets_of(scene.cold()) == list(range(10, COUNT))
        old = scene.desk.connection
        scene.wire.refuses = True
        scene.desk.connection = replace(old, number=2)
        assert scene.cold() == RETRY
        scene.desk.connection = old
        assert offsets_of(scene.cold()) == list(range(10, COUNT))

    def test_a_store_that_is_away(self, scene: Scene) -> None:
        scene.archived.provider.say(*[Unavailable("away")] * 20)
        with pytest.raises(TieredError, match="away"):
            asyncio.run(scene.same.require(scene.desk.connection))
        assert scene.checks("unknown") == 1


def test_many_connections_share_a_comparison(scene: Scene) -> None:
    async def all_at_once() -> None:
        await asyncio.gather(
            *(scene.same.require(replace(scene.desk.connection, number=number)) for number in range(500))
        )

    asyncio.run(all_at_once())
    assert scene.wire.asked <= 2
