"""What is known of the archive must not be old when its messages take the place of the broker's."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from tests.kit.gatewaydesk import (
    RETRY,
    Desk,
    answered,
    asking,
    at_default_level,
    fields,
    found,
    offsets_of,
    pull,
    simple,
    too_small,
)
from tests.kit.readstore import Cold, cold
from tiered.codec.record.message import decode_message
from tiered.codec.remoting.frame import Command
from tiered.errors import Unavailable
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.knowledge.caughtup import CALM_SECONDS
from tiered.gateway.knowledge.opening import LOOK_SECONDS, LateArchive
from tiered.settings import Fetch
from tiered.store.messages import FRESH_SECONDS

TOPIC = "Orders"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Cold]:
    """A queue of a hundred messages, archived and read."""
    with cold(tmp_path, open_now=False) as made:
        send(made, "old", 100)
        made.open()
        yield made


def send(scene: Cold, name: str, count: int) -> list[bytes]:
    """A queue made anew, archived: its messages from offset 0 on, every second with tag *a*."""
    for number in range(count):
        scene.broker.time_ms += 10
        scene.broker.send(
            TOPIC, 0, b"%s-%d" % (name.encode(), number), queue_offset=number,
            properties={"TAGS": "ab"[number % 2], "KEYS": "order", "UNIQ_KEY": f"{name}{number}"},
        )  # fmt: skip
    scene.archive()
    return [raw for _, raw in scene.broker.sent[-count:]]


@pytest.fixture
def desk(scene: Cold) -> Iterator[Desk]:
    made = Desk(at_default_level(scene.store))
    yield made
    made.close()


@pytest.fixture
def plain() -> Iterator[Desk]:
    """A desk over a made-up archive."""
    made = Desk()
    made.archive.fill("T", 0, 0, 150)
    yield made
    made.close()


def bodies(answer: Command | str) -> list[bytes]:
    """Bodies of the messages in an answer."""
    assert isinstance(answer, Command), answer
    found_bodies, data, position = [], bytes(answer.body), 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        found_bodies.append(decode_message(data[position : position + size]).body)
        position += size
    return found_bodies


class TestAQueueMadeAnew:
    """It has more messages than the old one, all of them archived, and nobody has read the archive since."""

    def test_a_filter_near_the_minimum_gets_the_new_messages(self, scene: Cold, desk: Desk) -> None:
        raws = send(scene, "new", 150)
        scene.clock.advance(FRESH_SECONDS)
        desk.begin = 1 << 40
        whole = answered(0, "FOUND", 15, 0, 150, body=b"".join(raws[10:15:2]))
        assert desk.ask(pull(TOPIC, offset=10, subscription="a"), whole) is whole
        lacking = answered(0, "FOUND", 15, 0, 150, body=raws[14])
        made = desk.ask(pull(TOPIC, offset=10, count=3, subscription="a"), lacking)
        assert bodies(made) == [b"new-10", b"new-12", b"new-14"]

    def test_cold_pulls_get_the_new_messages(self, scene: Cold, desk: Desk) -> None:
        send(scene, "new", 150)
        scene.clock.advance(FRESH_SECONDS)
        assert bodies(desk.ask(pull(TOPIC, offset=10, count=2), too_small(140, 150))) == [
            b"new-10",
            b"new-11",
        ]

    def test_what_was_looked_at_lately_is_not_looked_at_again(self, scene: Cold, desk: Desk) -> None:
        assert desk.ask(pull(TOPIC, offset=10, count=2), too_small(90, 100)) != RETRY
        scene.provider.calls.clear()
        scene.clock.advance(FRESH_SECONDS - 1)
        assert desk.ask(pull(TOPIC, offset=10, count=2), too_small(90, 100)) != RETRY
        assert scene.provider.calls == []

    def test_a_search_by_key_finds_the_newest(self, scene: Cold, desk: Desk) -> None:
        send(scene, "new", 3)
        scene.clock.advance(FRESH_SECONDS)
        query = asking(
            12, topic=TOPIC, key="order", maxNum="32", beginTimestamp="0", endTimestamp=str(1 << 50)
        )
        assert b"new-2" in bodies(desk.ask(query, simple(22, "can not find")))
        scene.clock.advance(FRESH_SECONDS)
        scene.provider.say(*[Unavailable("away")] * 5)
        assert desk.ask(query, simple(22, "can not find")) == RETRY

    def test_a_search_by_time_is_made_in_what_the_gateway_looked_at_last(
        self, scene: Cold, desk: Desk
    ) -> None:
        archive = LateArchive(lambda stack: scene.store, Fetch())
        assert archive.step().wait_seconds == LOOK_SECONDS
        at = decode_message(scene.raws(TOPIC)[30]).store_timestamp
        search = asking(29, topic=TOPIC, queueId="0", timestamp=str(at), boundaryType="LOWER")
        assert fields(desk.ask(search, simple(0, offset="0")))["offset"] == "30"
        send(scene, "new", 150)
        scene.clock.advance(LOOK_SECONDS)
        archive.step()
        assert fields(desk.ask(search, simple(0, offset="0")))["offset"] == "0"


def test_an_archive_whose_log_cannot_be_read_is_a_problem_and_one_that_can_be_none(scene: Cold) -> None:
    archive = LateArchive(lambda stack: scene.store, Fetch())
    archive.step()
    assert archive.problem is None
    scene.clock.advance(LOOK_SECONDS)
    scene.provider.say(*[Unavailable("away")] * 5)
    assert archive.step().wait_seconds < LOOK_SECONDS
    assert "away" in str(archive.problem)
    scene.provider._script.clear()
    scene.clock.advance(LOOK_SECONDS)
    assert archive.step().wait_seconds == LOOK_SECONDS
    assert archive.problem is None


class TestLooks:
    def failed(self) -> Future[bool]:
        look: Future[bool] = Future()
        look.set_exception(Unavailable("away"))
        return look

    def test_a_look_that_fails_makes_those_wait_who_would_get_archived_messages(self, plain: Desk) -> None:
        gappy = found("T", 0, range(60, 70), 0, 200)
        for answer in (too_small(100, 200), gappy):
            plain.archive.looks = [self.failed()]
            assert plain.ask(pull(offset=40), answer) == RETRY
        plain.begin = 1 << 20
        for outcome in (RETRY, gappy):
            plain.archive.looks = [self.failed()]
            assert plain.ask(pull(offset=40, subscription="a"), gappy) == outcome
            plain.clock.advance(CALM_SECONDS)
        assert not [asked for asked in plain.archive.asked if asked[0] == "get"]
        assert offsets_of(plain.ask(pull(offset=40, count=2), too_small(100, 200))) == [40, 41]

    def test_a_look_that_hangs_holds_up_no_answer_that_lacks_nothing(self, plain: Desk) -> None:
        plain.archive.levels["T"] = StorageLevel.FORCE
        hot = found("T", 0, range(120, 122), 100, 200)
        plain.archive.looks = [Future()]
        assert plain.ask(pull(offset=120), hot) is hot
        assert len(offsets_of(plain.ask(pull(offset=120), hot))) == 30

    def test_hot_answers_ask_for_no_look(self, plain: Desk) -> None:
        plain.archive.looks = [self.failed()]
        hot = found("T", 0, range(120, 122), 100, 200)
        assert plain.ask(pull(offset=120), hot) is hot
        assert len(plain.archive.looks) == 1


def test_where_in_the_log_a_filter_far_above_the_minimum_reads_is_known_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two million messages above the minimum, and still in a file that may be being deleted."""
    first = 2_000_000
    with cold(tmp_path, open_now=False) as scene:
        for number in range(50):
            scene.broker.send(TOPIC, 0, queue_offset=first + number, properties={"TAGS": "ab"[number % 2]})
        scene.archive()
        scene.open()
        desk = Desk(at_default_level(scene.store))
        raws = scene.raws(TOPIC)
        desk.begin = decode_message(raws[6]).physical_offset
        request = pull(TOPIC, offset=first, subscription="a")
        for answer in (
            answered(0, "FOUND", first + 8, 0, first + 50, body=raws[6]),
            answered(20, "NO_MATCHED_MESSAGE", first + 6, 0, first + 50),
        ):
            assert offsets_of(desk.ask(request, answer))[:4] == [first, first + 2, first + 4, first + 6]
            with monkeypatch.context() as patched:
                patched.setattr("tiered.gateway.pull.compare.FAR_BYTES", -desk.begin)
                assert desk.ask(request, answer) is answer
            begin, desk.begin = desk.begin, None
            assert desk.ask(request, answer) is answer  # a broker that does not say where it begins
            desk.begin = begin
        beyond = answered(0, "FOUND", first + 60, 0, first + 70, body=raws[49])
        assert desk.ask(pull(TOPIC, offset=first + 50, subscription="a"), beyond) is beyond
        desk.close()
