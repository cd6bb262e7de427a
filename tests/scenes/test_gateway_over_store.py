"""The answers over the real store: a broker's log, archived, and a broker that has deleted most of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.aged import Stage, aged_cold
from tests.kit.collecting import Sweeping
from tests.kit.gatewaydesk import (
    RETRY,
    Desk,
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
from tests.kit.replacing import replace
from tests.kit.sealing import seal_all
from tiered.codec.record.message import decode_message
from tiered.codec.remoting.frame import Command
from tiered.errors import Unavailable
from tiered.fetch.fair import TenantGroup
from tiered.gateway.nodes import reads
from tiered.settings import ONE_DAY_MS, Settings, Tenants

TOPIC = "Orders"


@pytest.fixture(params=[Stage.FRESH, Stage.SEALED, Stage.MIXED], ids=lambda stage: stage.value)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cold]:
    """Two hundred messages in two queues, archived in four flushes, and a reader."""
    with aged_cold(tmp_path, request.param, open_now=False) as made:
        for flush in range(4):
            for number in range(50):
                made.broker.time_ms += 10
                made.broker.send(
                    queue_id=number % 2, body=b"%d" % (50 * flush + number),
                    properties={"KEYS": f"k{number % 4}", "UNIQ_KEY": f"U{50 * flush + number}", "TAGS": "ab"[flush % 2]},
                )  # fmt: skip
            made.archive()
        made.open()
        yield made


@pytest.fixture
def desk(scene: Cold) -> Iterator[Desk]:
    made = Desk(at_default_level(scene.store))
    yield made
    made.close()


def drain(desk: Desk, low: int, end: int, offset: int = 0, **options: str) -> list[bytes]:
    """Everything a consumer gets from an offset to where the broker's log starts."""
    got: list[bytes] = []
    while offset < low:
        made = desk.ask(pull(TOPIC, 1, offset, count=7, **options), too_small(low, end))
        assert isinstance(made, Command)
        assert made.code in (0, 20), made.remark
        body, position = bytes(made.body), 0
        for _ in offsets_of(made):
            size = int.from_bytes(body[position : position + 4], "big")
            got.append(body[position : position + size])
            position += size
        assert int(made.ext["nextBeginOffset"]) > offset
        offset = int(made.ext["nextBeginOffset"])
    return got


def test_records_come_verbatim_over_runs_of_several_commits(scene: Cold, desk: Desk) -> None:
    assert drain(desk, 98, 100) == scene.raws(TOPIC, 1)[:98]


def test_tags_are_filtered(scene: Cold, desk: Desk) -> None:
    expected = [raw for raw in scene.raws(TOPIC, 1) if decode_message(raw).tags == "b"]
    assert drain(desk, 100, 100, subscription="b") == expected
    assert drain(desk, 100, 100, subscription="TAGS = 'b' AND KEYS = 'k1'", kind="SQL92") == [
        raw for raw in expected if decode_message(raw).keys == ("k1",)
    ]


def test_questions_about_a_queue(scene: Cold, desk: Desk) -> None:
    first = decode_message(scene.raws(TOPIC, 1)[0])
    queue = {"topic": TOPIC, "queueId": "1"}
    assert fields(desk.ask(asking(31, **queue), simple(0, "", offset="90"))) == {"offset": "0"}
    earliest = desk.ask(asking(32, **queue), simple(0, timestamp=str(first.store_timestamp + 900)))
    assert fields(earliest) == {"timestamp": str(first.store_timestamp)}
    middle = decode_message(scene.raws(TOPIC, 1)[33])
    for boundary in ("LOWER", "UPPER"):
        ask = asking(29, **queue, timestamp=str(middle.store_timestamp), boundaryType=boundary)
        assert fields(desk.ask(ask, simple(0, offset="90"))) == {"offset": "33"}


def test_single_messages(scene: Cold, desk: Desk) -> None:
    raw = scene.raws(TOPIC, 1)[33]
    message = decode_message(raw)
    view = asking(33, offset=str(message.physical_offset), topic=TOPIC)
    for answer in (simple(1, "can not find"), simple(0, None, b"\0" * 5000)):
        made = desk.ask(view, answer)
        assert isinstance(made, Command)
        assert (made.code, bytes(made.body)) == (0, raw)
    query = asking(
        12, topic=TOPIC, key=message.unique_key or "", maxNum="32", beginTimestamp="0",
        endTimestamp=str(1 << 50), _UNIQUE_KEY_QUERY="true",
    )  # fmt: skip
    made = desk.ask(query, simple(22, "can not find"))
    assert isinstance(made, Command)
    assert bytes(made.body) == raw


def test_what_is_committed_meanwhile_is_found(scene: Cold, desk: Desk) -> None:
    scene.broker.send(queue_id=1, body=b"late")
    assert desk.ask(pull(TOPIC, 1, 100), too_small(101, 101)) == RETRY
    scene.archive()
    scene.fresh()
    desk.clock.advance(5)
    assert offsets_of(desk.ask(pull(TOPIC, 1, 100), too_small(101, 101))) == [100]


def test_a_store_that_is_away_makes_clients_wait_and_hot_reads_go_on(scene: Cold, desk: Desk) -> None:
    scene.fresh()
    scene.provider.say(*[Unavailable("away")] * 50)
    assert desk.ask(pull(TOPIC, 1, 0), too_small(98, 100)) == RETRY
    assert desk.ask(pull("Unknown", 1, 0), too_small(98, 100)) == RETRY
    hot = found(TOPIC, 1, range(99, 100), 98, 100)
    assert desk.ask(pull(TOPIC, 1, 99), hot) is hot
    scene.provider._script.clear()
    scene.fresh()
    assert drain(desk, 98, 100) == scene.raws(TOPIC, 1)[:98]


def test_a_queue_over_before_the_archive_began_passes_when_the_log_is_archived(
    scene: Cold, desk: Desk
) -> None:
    answer = too_small(7, 7)
    assert desk.ask(pull("Over", 0, 0), answer) == RETRY
    desk.clock.advance(5)
    scene.fresh()
    desk.begin = decode_message(scene.broker.sent[-1][1]).physical_offset
    assert desk.ask(pull("Over", 0, 0), answer) == replace(answer, code=20)


def test_a_consumer_far_behind_whose_objects_are_sealed_and_deleted_meanwhile(tmp_path: Path) -> None:
    """The gateway's view is older than the deletion: it looks again by itself, and the consumer reads on."""
    with cold(tmp_path, open_now=False, dispatch={"inline_bytes": 0}) as scene:
        for number in range(60):
            scene.broker.send(queue_id=1, body=b"%d" % number)
            if number % 20 == 19:
                scene.archive()
        desk = Desk(at_default_level(scene.open()))
        try:
            half = drain(desk, 30, 60)
            scene.clock.set_wall(scene.broker.time_ms + 2 * ONE_DAY_MS)
            seal_all(scene.daemon)
            sweeping = Sweeping.of(scene)
            sweeping.count(sweeping.gc)
            assert sweeping.after_grace()["deleted_keys"] == 3
            scene.store._puller._engine_of(scene.store.view).cache.clear()
            assert half + drain(desk, 60, 60, len(half)) == scene.raws(TOPIC, 1)
        finally:
            desk.close()


def test_a_tenant_over_its_budget_waits_and_then_has_everything(
    scene: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole cold path: what a consumer gets is complete and in order, however often it had to wait."""
    slow = replace(Settings(), tenants=Tenants(limits=("default=4KiB/s 1/s",), burst_ms=1000))
    store = scene.open(settings=slow, shared=True)
    desk, slept = Desk(at_default_level(store)), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        for clock in (scene.clock, desk.clock):
            clock.advance(seconds)

    monkeypatch.setattr(reads.asyncio, "sleep", sleep)
    assert drain(desk, 100, 100) == scene.raws(TOPIC, 1)
    assert slept
    assert all(0 < seconds <= 10 for seconds in slept)
    assert int(str(store.shares.status()["default"]["refused"])) >= len(slept)
    desk.close()


def test_a_tenant_whose_wait_is_too_long_tries_again_at_the_same_offset(scene: Cold) -> None:
    slow = replace(Settings(), tenants=Tenants(limits=("default=4KiB/s 1/s",), burst_ms=1000))
    store = scene.open(settings=slow, shared=True)
    store.shares.charge(TenantGroup("default", "G"), 10**6)
    desk = Desk(at_default_level(store), answer_bytes=1024 * 1024)
    desk.answers._pulls._reads._most_waiting = 0
    for _ in range(2):
        assert desk.ask(pull(TOPIC, 1, 5), too_small(98, 100)) == RETRY
    assert desk.count("pull", "retry") == 2
    scene.clock.advance(1000)
    made = desk.ask(pull(TOPIC, 1, 5, count=1), too_small(98, 100))
    assert isinstance(made, Command)
    assert offsets_of(made) == [5]
    desk.close()
