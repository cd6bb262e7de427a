"""Times, keys and ids through the read facade, against the messages that were sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import Stage, aged_cold
from tests.kit.collecting import HOUR_MS, Sweeping
from tests.kit.merging import merge_all
from tests.kit.pipeline import PREPARED
from tests.kit.readstore import Cold, cold
from tests.kit.sealing import seal_all
from tiered.archive.read.lookup import KeyLookup
from tiered.codec.record.message import Message
from tiered.errors import Corrupt, NotFound, Unavailable
from tiered.model import BoundaryType, MessageQueue, Past
from tiered.settings import ONE_DAY_MS

ALWAYS = (0, 1 << 60)


@pytest.fixture(scope="module", params=["inline", "in objects", Stage.MERGED, Stage.SEALED, Stage.MIXED])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cold]:
    """Three topics in five flushes; a key of every message of a queue, one of every fifth, one of its own."""
    small = {"block_bytes": 4096} | ({"inline_bytes": 0} if request.param == "in objects" else {})
    stage = request.param if isinstance(request.param, Stage) else Stage.FRESH
    with aged_cold(tmp_path_factory.mktemp("lookups"), stage, open_now=False, dispatch=small) as made:
        for flush in range(5):
            for number in range(40):
                made.broker.time_ms += 7
                made.broker.send(
                    ("Orders", "Others")[number % 2], number % 4 // 2, b"%d-%d" % (flush, number) * 20,
                    properties={"KEYS": f"all k{number % 5} f{flush}", "UNIQ_KEY": f"U{flush}-{number}"},
                    sys_flag=PREPARED if number == 39 else 0,
                )  # fmt: skip
            made.archive()
        yield made


@pytest.fixture
def scene(written: Cold) -> Iterator[Cold]:
    """The same archive for every test, since none writes; a reader of its own for each."""
    reader = written.open()
    yield written
    written.stores.remove(reader)
    reader.close()


def sent(scene: Cold, topic: str = "Orders") -> list[tuple[Message, bytes]]:
    return [(m, raw) for m, raw in scene.broker.sent if m.topic == topic and not m.sys_flag]


def test_the_newest_in_the_brokers_order(scene: Cold) -> None:
    rows = sent(scene)
    for key, wanted in (
        ("all", rows),
        ("k2", [r for r in rows if "k2" in r[0].keys]),
        ("f3", [r for r in rows if "f3" in r[0].keys]),
        ("absent", []),
        ("", []),
    ):
        for count in (1, 3, 32, 1000):
            found = scene.store.query_message(KeyLookup("Orders", key, count, *ALWAYS))
            assert [bytes(r) for r in found] == [raw for _, raw in wanted[-count:]]
            found = [m.record for m in scene.store.query(KeyLookup("Orders", key, count, oldest=True))]
            assert found == [raw for _, raw in wanted[:count]]
    assert scene.store.query_message(KeyLookup("Orders", "all", 0, *ALWAYS)) == []
    assert scene.store.query_message(KeyLookup("Orders", "all", -1, *ALWAYS)) == []
    assert scene.store.query_message(KeyLookup("Nope", "all", 5, *ALWAYS)) == []


def test_in_a_range_of_time_both_ends_included(scene: Cold) -> None:
    rows = sent(scene)
    for first, last in ((0, 0), (3, 17), (40, 99), (10, 11)):
        begin, end = rows[first][0].store_timestamp, rows[last][0].store_timestamp
        found = scene.store.query_message(KeyLookup("Orders", "all", 1000, begin, end))
        assert [bytes(r) for r in found] == [raw for _, raw in rows[first : last + 1]]
        inner = scene.store.query_message(KeyLookup("Orders", "all", 1000, begin + 1, end - 1))
        assert [bytes(r) for r in inner] == [raw for _, raw in rows[first + 1 : last]]
        assert len(scene.store.query_message(KeyLookup("Orders", "all", 2, begin, end))) == min(
            2, last - first + 1
        )
    assert scene.store.query_message(KeyLookup("Orders", "all", 5, 10, 5)) == []


def test_unique_keys(scene: Cold) -> None:
    message, raw = sent(scene)[42]
    assert message.unique_key is not None
    (found,) = scene.store.query_message(KeyLookup("Orders", message.unique_key, 32, *ALWAYS, unique=True))
    assert bytes(found) == raw
    assert scene.store.query_message(KeyLookup("Orders", message.unique_key, 32, *ALWAYS)) == [], (
        "no key of the user's"
    )
    assert scene.store.query_message(KeyLookup("Orders", "all", 32, *ALWAYS, unique=True)) == []


def test_a_common_key_does_not_read_everything(scene: Cold) -> None:
    """The newest few are in the newest runs: no older block is fetched."""
    scene.provider.calls.clear()
    scene.store.query_message(KeyLookup("Orders", "all", 4, *ALWAYS))
    few = len(scene.provider.calls)
    scene.provider.calls.clear()
    scene.store.query_message(KeyLookup("Orders", "all", 1000, *ALWAYS))
    several_runs = len(list(scene.daemon.state.runs(MessageQueue("Orders", 0), 1))) > 2
    assert few < len(scene.provider.calls) / (2 if several_runs else 1)


def test_every_record_by_its_place(scene: Cold) -> None:
    for message, raw in scene.broker.sent:
        found = scene.store.view_message(message.physical_offset)
        assert found is not None
        assert bytes(found) == raw, "prepared ones, too: the broker has them by id"
    for wrong in (-1, 1, scene.broker.sent[7][0].physical_offset + 1, scene.broker.position, 1 << 62):
        assert scene.store.view_message(wrong) is None
    message = scene.broker.sent[3][0]
    assert scene.store.locate(message.physical_offset, store_host=message.store_host) is not None
    assert scene.store.locate(message.physical_offset, store_host="10.9.9.9:1") is None
    for message, raw in scene.broker.sent[::7]:
        if not message.sys_flag & 0x4:
            located = scene.store.locate(message.physical_offset, topic=message.topic)
            assert located is not None
            assert located.record == raw
        assert scene.store.locate(message.physical_offset, topic="Elsewhere") is None


def test_a_view_by_place_costs_few_requests(scene: Cold) -> None:
    message = sent(scene)[30][0]
    scene.store.view_message(message.physical_offset)
    scene.provider.calls.clear()
    scene.store.view_message(message.physical_offset)
    assert len(scene.provider.calls) <= 2, "physical offsets, then the block"


def test_times_of_offsets(scene: Cold) -> None:
    for queue in (0, 1):
        rows = [m for m, _ in sent(scene) if m.queue_id == queue]
        for message in rows:
            assert scene.store.message_time("Orders", queue, message.queue_offset) == message.store_timestamp
        assert scene.store.earliest_message_time("Orders", queue) == rows[0].store_timestamp
        for offset in (-1, len(rows), 1 << 60):
            assert scene.store.message_time("Orders", queue, offset) is None
    assert scene.store.message_time("Nope", 0, 0) is None
    assert scene.store.earliest_message_time("Nope", 0) is None


def test_offsets_of_times(scene: Cold) -> None:
    rows = [m for m, _ in sent(scene) if m.queue_id == 0]
    for message in rows[::7]:
        for boundary in BoundaryType:
            at = message.store_timestamp
            assert scene.store.offset_by_time("Orders", 0, at, boundary) == message.queue_offset
            assert scene.store.offset_by_time("Orders", 0, at - 1, boundary) == message.queue_offset
    end = rows[-1].queue_offset + 1
    assert scene.store.offset_by_time("Orders", 0, rows[-1].store_timestamp + 1) == end
    assert scene.store.offset_by_time("Orders", 0, -5) == 0
    assert scene.store.offset_by_time("Nope", 0, 0) is None
    assert scene.store.offset_by_time("Orders", -1, 0) is None


def test_times_that_go_back_inside_a_queue(tmp_path: Path) -> None:
    """A broker's clock was set back: the first offset at or after a time is still the first."""
    with cold(tmp_path, open_now=False) as scene:
        for time_ms in (50, 70, 60, 60, 90, 20, 20, 100):
            scene.broker.send("T", store_timestamp=time_ms)
        scene.archive()
        scene.open()
        for time_ms, lower, upper in (
            (20, 0, 0),
            (60, 1, 1),
            (71, 4, 4),
            (90, 4, 4),
            (95, 7, 7),
            (101, 8, 8),
        ):
            assert scene.store.offset_by_time("T", 0, time_ms) == lower
            assert scene.store.offset_by_time("T", 0, time_ms, BoundaryType.UPPER) == upper


def test_no_more_bytes_than_asked_for_but_one_message(scene: Cold) -> None:
    rows = sent(scene)
    sizes = [len(raw) for _, raw in rows]
    for last in (1, 5, 44):
        for less in (0, 1):
            most = max(1, last - less)
            found = scene.store.query_message(
                KeyLookup("Orders", "all", 1000, *ALWAYS, max_bytes=sum(sizes[-last:]) - less)
            )
            assert [bytes(r) for r in found] == [raw for _, raw in rows[-most:]]
    found = [
        m.record
        for m in scene.store.query(KeyLookup("Orders", "all", 7, oldest=True, max_bytes=sum(sizes[:5])))
    ]
    assert found == [raw for _, raw in rows[:5]]


QUESTIONS: tuple[Callable[[Any], Any], ...] = (
    lambda store: [bytes(r) for r in store.query_message(KeyLookup("Orders", "all", 1000, *ALWAYS))],
    lambda store: [item.record for item in store.query(KeyLookup("Orders", "U4-2", 5, unique=True))],
    lambda store: store.earliest_message_time("Orders", 0),
    lambda store: [store.message_time("Orders", 0, offset) for offset in (0, 20, 49)],
    lambda store: [store.offset_by_time("Orders", 0, 1_700_000_000_000 + ms) for ms in (0, 500, 1 << 40)],
    lambda store: store.newest().record,
)  # fmt: skip


def collected(scene: Cold, stage: Stage) -> None:
    """What the reader's view names is merged or sealed, named and deleted, a grace later."""
    if stage is Stage.SEALED:
        scene.clock.set_wall(scene.broker.time_ms + 2 * ONE_DAY_MS)
        seal_all(scene.daemon)
    else:
        merge_all(scene.daemon)
    sweeping = Sweeping.of(scene)
    sweeping.count(sweeping.gc)
    assert sweeping.after_grace()["deleted_keys"] > 0


@pytest.fixture
def in_objects(tmp_path: Path) -> Iterator[Cold]:
    with cold(tmp_path, open_now=False, dispatch={"block_bytes": 4096, "inline_bytes": 0}) as made:
        for flush in range(5):
            for number in range(20):
                made.broker.time_ms += 7
                keys = {"KEYS": f"all k{number % 5}", "UNIQ_KEY": f"U{flush}-{number}"}
                made.broker.send("Orders", number % 2, b"%d-%d" % (flush, number) * 20, properties=keys)
            made.archive()
        yield made


@pytest.mark.parametrize("stage", [Stage.MERGED, Stage.SEALED])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_view_older_than_a_deletion_looks_again_by_itself(
    in_objects: Cold, question: Any, stage: Stage
) -> None:
    wanted = question(in_objects.open())
    old: Any = in_objects.open()
    collected(in_objects, stage)
    seq = old.view.head.seq
    assert question(old) == wanted
    assert old.view.head.seq > seq


def test_what_was_trimmed_and_deleted_is_no_answer_and_no_error(in_objects: Cold) -> None:
    old = in_objects.open()
    in_objects.clock.advance(2 * HOUR_MS / 1000)
    in_objects.broker.time_ms = in_objects.clock.now_ms()
    in_objects.broker.send("Orders", 0, b"young", properties={"KEYS": "all"})
    in_objects.archive()
    sweeping = Sweeping.of(in_objects)
    assert sweeping.count(sweeping.retention) == {"trimmed_queues": 2}
    sweeping.count(sweeping.gc)
    assert sweeping.after_grace()["deleted_keys"] == 5
    (young,) = old.query(KeyLookup("Orders", "all", 1000, *ALWAYS))
    assert young.message.body == b"young"
    assert old.message_time("Orders", 0, 0) is None
    assert old.earliest_message_time("Orders", 1) is None


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_archive_as_it_was_that_was_deleted_since_says_so(in_objects: Cold, question: Any) -> None:
    head = in_objects.daemon.state.head()
    assert head is not None
    wanted = question(in_objects.open())
    then = Past(commit=head.seq)
    assert question(in_objects.open(as_of=then)) == wanted
    collected(in_objects, Stage.MERGED)
    with pytest.raises(NotFound, match="as it was then cannot be read any more") as caught:
        question(in_objects.open(as_of=then))
    assert caught.value.fields["as_of"] == head.seq
    assert "snapshot_retention_ms" in str(caught.value)


def test_the_oldest_commit_that_can_still_be_read_is_named_exactly(in_objects: Cold) -> None:
    """Of what was merged in two goes the first is deleted, and the second named for deletion only: between them lies a commit
    from which on everything is there."""
    question = QUESTIONS[0]
    first = in_objects.daemon.state.head()
    assert first is not None
    collected(in_objects, Stage.MERGED)
    for number in range(20):
        in_objects.broker.send("Orders", number % 2, b"later-%d" % number, properties={"KEYS": "all"})
    in_objects.archive()
    merge_all(in_objects.daemon)
    sweeping = Sweeping.of(in_objects)
    sweeping.count(sweeping.gc)
    head = in_objects.daemon.state.head()
    assert head is not None

    def fails(seq: int) -> str | None:
        store = in_objects.open(as_of=Past(commit=seq))
        try:
            question(store)
        except NotFound as error:
            return str(error)
        return None

    begin = first.seq - 2
    failing = {seq: said for seq in range(begin, head.seq + 1) if (said := fails(seq)) is not None}
    oldest = max(failing) + 1
    assert list(failing) == list(range(begin, oldest))
    assert first.seq < oldest < head.seq
    for said in failing.values():
        assert f"commit {oldest} is the oldest that can be chosen" in said


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_object_that_is_still_named_is_damage_and_a_log_that_is_away_is_unavailable(
    in_objects: Cold, question: Any
) -> None:
    store = in_objects.open()
    for item in list(in_objects.daemon.state.objects()):
        in_objects.provider.delete(store.view.objects.key_of(item))
    with pytest.raises(Corrupt, match="missing"):
        question(store)
    other: Any = in_objects.open()

    def away(*, force: bool = False) -> bool:
        if force:
            raise Unavailable("away")
        return False

    other._follower.follow = away
    with pytest.raises(Unavailable, match="away"):
        question(other)
