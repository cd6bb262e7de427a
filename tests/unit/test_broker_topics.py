"""What retention learns from the broker's own list of topics: reserve.time, topics that are gone; when it must not believe."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.kit.collecting import HOUR_MS, Sweeping
from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene, scene
from tiered.archive.rewrite.policy import BrokerSays, RetentionRule, policy_from
from tiered.daemon.brokertopics import NOTES_FILE, BrokersTopics
from tiered.errors import Invalid, Unavailable
from tiered.settings import Retain, Settings, Source, State
from tiered.source.topics import read_topics

DAY_MS = 24 * HOUR_MS
ARCHIVE = bytes(range(16))


@dataclass
class Beside:
    """A broker's directory with its list of topics, and what is asked of it at a time that a test sets."""

    directory: Path
    now: int = 1_000 * DAY_MS
    notes: bool = True
    archive_id: bytes = ARCHIVE
    asked: int = 0
    topics: dict[str, dict[str, str]] = field(default_factory=lambda: {"TBW102": {}})

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def file(self) -> Path:
        return self.store / "config" / "topics.json"

    def write(self, **topics: Mapping[str, str] | None) -> None:
        """The list, as a broker of 5.x writes it; ``None`` takes a topic out."""
        for topic, attributes in topics.items():
            self.topics.pop(topic, None)
            if attributes is not None:
                self.topics[topic] = dict(attributes)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        table = {name: {"attributes": found, "perm": 6} for name, found in self.topics.items()}
        self.file.write_text(json.dumps({"dataVersion": {"counter": 3}, "topicConfigTable": table}))

    def broker(self) -> BrokersTopics:
        state = State(directory=str(self.directory / "state"))
        (self.directory / "state").mkdir(exist_ok=True)
        settings = Settings(source=Source(store_dir=str(self.store)), state=state)
        return BrokersTopics(settings, self.archive_id, notes=self.notes)

    def now_ms(self) -> int:
        self.asked += 1
        return self.now

    def says(self, *topics: str, **retain: int | bool) -> BrokerSays:
        settings = Retain(**{"deleted_topic_ms": 3 * DAY_MS, **retain})  # type: ignore[arg-type]
        return self.broker().says(settings, lambda: topics, self.now_ms)


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    made = Beside(tmp_path)
    made.write(Orders={"reserve.time": "72"}, Payments={})
    return made


def test_hours_of_a_topic_are_read_and_nothing_else(beside: Beside) -> None:
    beside.write(
        A={"reserve.time": "-1"}, B={"reserve.time": "0"}, C={"reserve.time": "soon"}, D={"reserve.time": "9" * 18},
        E={"cleanup.policy": "COMPACTION"},
    )  # fmt: skip
    table = read_topics(str(beside.store))
    assert table is not None
    assert table.reserved_ms() == {"Orders": 72 * HOUR_MS, "D": 36_500 * DAY_MS}
    assert table.compacted() == {"E"}
    assert beside.says("Orders", topic_attributes=False) == BrokerSays()
    assert beside.says("Orders", deleted_topic_ms=0) == BrokerSays(
        {"Orders": 72 * HOUR_MS, "D": 36_500 * DAY_MS}, compacted=frozenset({"E"})
    )


def test_a_list_of_a_broker_before_5_has_no_attributes(beside: Beside) -> None:
    beside.file.write_text('{"topicConfigTable":{"Orders":{"perm":6,"order":false}},"dataVersion":{1:2}}')
    assert beside.says("Orders") == BrokerSays()


def test_a_rule_of_our_own_goes_before_the_attribute_which_goes_before_the_default() -> None:
    reserved_ms = {"Orders": 5 * DAY_MS, "Audit": 5 * DAY_MS, "Both": 9 * DAY_MS}
    said = BrokerSays(reserved_ms, compacted=frozenset({"State", "Both", "Trace"}))
    settings = Retain(keep_ms=30 * DAY_MS, keep_bytes=1 << 30, topics=("Audit=forever", "Trace=2d"))
    policy = policy_from(settings, broker=said)
    assert policy.rule("State").forever, "its newest message of a key may be old"
    assert policy.rule("Both").keep_ms == 9 * DAY_MS
    assert policy.rule("Trace") == RetentionRule(2 * DAY_MS)
    assert policy.rule("Orders") == RetentionRule(5 * DAY_MS, 1 << 30)
    assert policy.rule("Audit").forever
    assert policy.rule("Other") == RetentionRule(30 * DAY_MS, 1 << 30)
    assert not policy_from(Retain(), broker=said).forever


@pytest.mark.parametrize(
    "content",
    [
        "", "{", '{"topicConfigTable":{"Orders":{"perm":6}}', "[]", '{"topicConfigTable":{}}', '{"topicConfigTable":[1]}',
        '{"topicConfigTable":{"Orders":7}}', '{"dataVersion":{}}', None,
    ],
)  # fmt: skip
def test_a_list_that_is_not_whole_is_no_reason_to_trim(beside: Beside, content: str | None) -> None:
    beside.file.unlink()
    if content is not None:
        beside.file.write_text(content)
    with pytest.raises(Unavailable, match="list of topics") as found:
        beside.says("Orders")
    assert found.value.fields["path"] == str(beside.file)
    assert "retain.topic_attributes" in str(found.value.hint)
    with pytest.raises(Unavailable):
        beside.says("Orders", deleted_topic_ms=0, keep_ms=DAY_MS)
    assert beside.says("Orders", deleted_topic_ms=0) == BrokerSays(), "nothing would be trimmed anyway"
    assert beside.says("Orders", deleted_topic_ms=0, keep_ms=DAY_MS, topic_attributes=False) == BrokerSays()


def test_a_directory_that_is_away_is_no_reason_to_trim_and_a_store_without_a_broker_says_nothing(
    beside: Beside, tmp_path: Path
) -> None:
    beside.file.unlink()
    beside.file.parent.rmdir()
    with pytest.raises(Unavailable):
        beside.says("Orders")
    (beside.store / "commitlog").mkdir()
    assert beside.says("Orders") == BrokerSays(), "generated: a real broker has a config directory"
    assert read_topics("") is None


def test_a_topic_counts_as_deleted_only_without_its_queues(beside: Beside) -> None:
    queue = beside.store / "consumequeue" / "Gone" / "0"
    queue.mkdir(parents=True)
    table = read_topics(str(beside.store))
    assert table is not None
    assert table.deleted(["Gone", "Orders", "Payments"]) == set()
    queue.rmdir()
    asked = [
        "Gone",
        "Orders",
        "!off-queue",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "%LMQ%q",
        "%RETRY%group",
    ]
    assert table.deleted(asked) == {"Gone", "%RETRY%group"}
    (beside.store / "batchconsumequeue" / "Gone" / "3").mkdir(parents=True)
    assert table.deleted(asked) == {"%RETRY%group"}


def test_a_topic_expires_a_while_after_it_was_seen_to_be_gone(beside: Beside) -> None:
    topics = ("Orders", "Gone")
    assert beside.says(*topics).expired == frozenset()
    beside.now += 3 * DAY_MS - 1
    assert beside.says(*topics).expired == frozenset()
    beside.now += 1
    assert beside.says(*topics).expired == {"Gone"}
    beside.write(Gone={})  # it is back
    assert beside.says(*topics).expired == frozenset()
    beside.write(Gone=None)
    assert beside.says(*topics).expired == frozenset(), "gone anew: the time begins anew"
    beside.now += 3 * DAY_MS
    assert beside.says(*topics).expired == {"Gone"}
    assert beside.says(*topics, deleted_topic_ms=0).expired == frozenset()


def test_only_what_was_compared_with_the_broker_notes_and_notes_are_of_one_archive(beside: Beside) -> None:
    beside.notes = False
    for _ in range(2):
        assert beside.says("Gone").expired == frozenset()
        beside.now += 30 * DAY_MS
    notes = beside.directory / "state" / NOTES_FILE
    assert not notes.exists()
    beside.notes = True
    beside.says("Gone")
    kept = notes.read_bytes()
    beside.notes = False
    beside.now += 3 * DAY_MS
    assert beside.says("Gone").expired == {"Gone"}
    other = replace(beside, archive_id=bytes(16))
    assert other.says("Gone").expired == frozenset()
    for damaged in (b"", b"{", b"[]", kept[:-9]):
        notes.write_bytes(damaged)
        assert beside.says("Gone").expired == frozenset()


def test_without_anything_gone_nobody_asks_for_the_time(beside: Beside) -> None:
    beside.says("Orders", "Payments")
    assert beside.asked == 0


def test_less_than_the_least_age_is_refused_by_the_key() -> None:
    with pytest.raises(Invalid, match="shorter than the least age") as found:
        policy_from(Retain(deleted_topic_ms=HOUR_MS))
    assert found.value.fields["key"] == "retain.deleted_topic_ms"
    policy_from(Retain(deleted_topic_ms=DAY_MS))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


@dataclass
class Told:
    """A broker that says what a test tells it."""

    said: BrokerSays

    def heeded(self, settings: Retain) -> bool:
        return True

    def says(self, *_: object) -> BrokerSays:
        return self.said


def test_a_topic_that_is_gone_is_trimmed_whole_but_for_what_is_young_and_comes_back_as_a_new_generation(
    small: Scene,
) -> None:
    small.broker.time_ms = small.clock.now_ms()
    small.send(20)
    small.clock.advance(2 * HOUR_MS / 1000)
    small.broker.time_ms = small.clock.now_ms()
    small.send(5)
    broker = Told(BrokerSays(expired=frozenset({"Orders"})))
    kept = Sweeping.of(small, keep_ms=0, broker=broker, topics=("Orders=forever",))
    assert kept.retention.plan().jobs == 0
    sweeping = Sweeping.of(small, keep_ms=0, broker=broker)
    outlook = sweeping.retention.plan()
    assert [(row["first_offset"], row["reason"]) for row in outlook.rows] == [(20, "topic deleted")]
    sweeping.all(sweeping.retention)
    small.clock.advance(2 * HOUR_MS / 1000)
    sweeping.all(sweeping.retention)
    assert list(small.state.runs(ORDERS, 1)) == []
    broker.said = BrokerSays()
    small.broker.time_ms = small.clock.now_ms()
    again = [small.broker.send("Orders", 0, b"again %d" % n, queue_offset=n) for n in range(3)]
    small.daemon.settle(SETTLED_SECONDS)
    queue = small.state.queue(ORDERS)
    assert queue is not None
    assert (queue.generation, queue.min_offset, queue.max_offset) == (2, 0, len(again))
    assert sweeping.retention.plan().jobs == 0


def test_reserve_time_trims_a_topic_that_the_settings_keep_for_ever(small: Scene) -> None:
    small.broker.time_ms = small.clock.now_ms()
    small.send(20)
    broker = Told(BrokerSays({"Orders": 1}))
    sweeping = Sweeping.of(small, keep_ms=0, broker=broker)
    assert sweeping.retention.plan().jobs == 0, "nothing goes below the least age, whatever the broker says"
    small.clock.advance(2 * HOUR_MS / 1000)
    assert sweeping.count(sweeping.retention) == {"trimmed_queues": 1}
    assert list(small.state.runs(ORDERS, 1)) == []
