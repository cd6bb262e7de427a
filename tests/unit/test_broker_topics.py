"""What retention learns from the broker's own list of topics: reserve.time, topics that are gone; when it must not believe."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tiered.archive.rewrite.policy import BrokerSays, RetentionRule, policy_from
from tiered.daemon.brokertopics import NOTES_FILE, BrokersTopics
from tiered.errors import Invalid, Unavailable
from tiered.settings import ONE_DAY_MS, Retain, Settings, Source, State
from tiered.source.topics import BrokerTopicLists, read_topics

ARCHIVE = bytes(range(16))
HOUR_MS = 3_600_000


@dataclass
class Beside:
    """A broker's directory with its list of topics, and what is asked of it at a time that a test sets."""

    directory: Path
    now: int = 1_000 * ONE_DAY_MS
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
        settings = Retain(**{"deleted_topic_ms": 3 * ONE_DAY_MS, **retain})  # type: ignore[arg-type]
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
    assert table.reserved_ms() == {"Orders": 72 * HOUR_MS, "D": 36_500 * ONE_DAY_MS}
    assert table.compacted() == {"E"}
    assert beside.says("Orders", topic_attributes=False) == BrokerSays()
    assert beside.says("Orders", deleted_topic_ms=0) == BrokerSays(
        {"Orders": 72 * HOUR_MS, "D": 36_500 * ONE_DAY_MS}, compacted=frozenset({"E"})
    )


def test_a_list_of_a_broker_before_5_has_no_attributes(beside: Beside) -> None:
    beside.file.write_text('{"topicConfigTable":{"Orders":{"perm":6,"order":false}},"dataVersion":{1:2}}')
    assert beside.says("Orders") == BrokerSays()


def test_a_rule_of_our_own_goes_before_the_attribute_which_goes_before_the_default() -> None:
    reserved_ms = {"Orders": 5 * ONE_DAY_MS, "Audit": 5 * ONE_DAY_MS, "Both": 9 * ONE_DAY_MS}
    said = BrokerSays(reserved_ms, compacted=frozenset({"State", "Both", "Trace"}))
    settings = Retain(keep_ms=30 * ONE_DAY_MS, keep_bytes=1 << 30, topics=("Audit=forever", "Trace=2d"))
    policy = policy_from(settings, broker=said)
    assert policy.rule("State").forever, "its newest message of a key may be old"
    assert policy.rule("Both").keep_ms == 9 * ONE_DAY_MS
    assert policy.rule("Trace") == RetentionRule(2 * ONE_DAY_MS)
    assert policy.rule("Orders") == RetentionRule(5 * ONE_DAY_MS, 1 << 30)
    assert policy.rule("Audit").forever
    assert policy.rule("Other") == RetentionRule(30 * ONE_DAY_MS, 1 << 30)
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
        beside.says("Orders", deleted_topic_ms=0, keep_ms=ONE_DAY_MS)
    assert beside.says("Orders", deleted_topic_ms=0) == BrokerSays(), "nothing would be trimmed anyway"
    assert (
        beside.says("Orders", deleted_topic_ms=0, keep_ms=ONE_DAY_MS, topic_attributes=False) == BrokerSays()
    )


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


def test_a_store_that_goes_away_behind_its_list_has_deleted_nothing(beside: Beside) -> None:
    (beside.store / "consumequeue" / "Unlisted" / "0").mkdir(parents=True)
    table = read_topics(str(beside.store))
    assert table is not None
    away = beside.store.rename(beside.store.with_name("elsewhere"))
    with pytest.raises(Unavailable, match="list of topics"):
        table.deleted(["Unlisted"])
    beside.store.mkdir()
    with pytest.raises(Unavailable):
        table.deleted(["Unlisted"])
    beside.store.rmdir()
    away.rename(beside.store)
    assert table.deleted(["Unlisted"]) == set()


def test_a_topic_expires_a_while_after_it_was_seen_to_be_gone(beside: Beside) -> None:
    topics = ("Orders", "Gone")
    assert beside.says(*topics).expired == frozenset()
    beside.now += 3 * ONE_DAY_MS - 1
    assert beside.says(*topics).expired == frozenset()
    beside.now += 1
    assert beside.says(*topics).expired == {"Gone"}
    beside.write(Gone={})  # it is back
    assert beside.says(*topics).expired == frozenset()
    beside.write(Gone=None)
    assert beside.says(*topics).expired == frozenset(), "gone anew: the time begins anew"
    beside.now += 3 * ONE_DAY_MS
    assert beside.says(*topics).expired == {"Gone"}
    assert beside.says(*topics, deleted_topic_ms=0).expired == frozenset()


def test_only_what_was_compared_with_the_broker_notes_and_notes_are_of_one_archive(beside: Beside) -> None:
    beside.notes = False
    for _ in range(2):
        assert beside.says("Gone").expired == frozenset()
        beside.now += 30 * ONE_DAY_MS
    notes = beside.directory / "state" / NOTES_FILE
    assert not notes.exists()
    beside.notes = True
    beside.says("Gone")
    kept = notes.read_bytes()
    beside.notes = False
    beside.now += 3 * ONE_DAY_MS
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
    policy_from(Retain(deleted_topic_ms=ONE_DAY_MS))


def test_a_list_is_parsed_once_a_change(beside: Beside) -> None:
    beside.write(Orders={"reserve.time": "5"})
    lists = BrokerTopicLists(str(beside.store))
    for _ in range(3):
        found = lists.read()
        assert found is not None
        assert found.reserved_ms() == {"Orders": 5 * HOUR_MS}
    assert lists.parsed == 1
    beside.write(Orders={"reserve.time": "50"})
    found = lists.read()
    assert found is not None
    assert found.reserved_ms() == {"Orders": 50 * HOUR_MS}
    assert lists.parsed == 2
    beside.file.write_text(beside.file.read_text()[:-3])
    with pytest.raises(Unavailable):
        lists.read()


def test_a_list_that_was_written_twice_within_one_tick(beside: Beside) -> None:
    """Same length, same times: the second reading tells."""
    beside.write(Orders={"reserve.time": "5"})
    lists = BrokerTopicLists(str(beside.store))
    times = (10**18, 10**18)
    os.utime(beside.file, ns=times)
    lists.read()
    beside.write(Orders={"reserve.time": "6"})
    os.utime(beside.file, ns=times)
    found = lists.read()
    assert found is not None
    assert found.reserved_ms() == {"Orders": 6 * HOUR_MS}


@pytest.mark.parametrize("topics", [0, 1, 300])
def test_names_are_kept_as_numbers_and_told_apart(beside: Beside, topics: int) -> None:
    names = [f"topic-{number}" for number in range(topics)]
    beside.write(**{name: {"cleanup.policy": "COMPACTION"} for name in names[::7]})
    beside.write(**{name: {} for name in names[1::7]})
    found = read_topics(str(beside.store))
    assert found is not None
    there = {*names[::7], *names[1::7]}
    assert found.deleted(names) == set(names) - there
    assert found.compacted() == set(names[::7])
    assert len(found.attributes) == len({*there, *beside.topics})


@pytest.mark.parametrize(
    "text",
    [
        '{"topicConfigTable":{"Orders":{"perm":6}},"dataVersion":{0:1}}',
        '{"note":"\\"topicConfigTable\\":{}","topicConfigTable":{"Orders":{"perm":6}}}',
        '{"topicConfigTable":{"Orders":{"perm":6,"map":{1:2}}}}',
        '{ "topicConfigTable" :\n{ "Orders" : { "attributes" : null } , "B" : {} } }',
    ],
)
def test_lists_that_are_written_in_other_ways(beside: Beside, text: str) -> None:
    beside.write()
    beside.file.write_text(text)
    found = read_topics(str(beside.store))
    assert found is not None
    assert found.deleted(["Orders", "Gone"]) == {"Gone"}


@pytest.mark.parametrize(
    "text",
    [
        '{"topicConfigTable":{"Orders":{}',
        '{"topicConfigTable":{"Orders":{}}',
        '{"topicConfigTable":{"Orders":7}}',
        "{}",
    ],
)
def test_lists_that_are_not_whole(beside: Beside, text: str) -> None:
    beside.write()
    beside.file.write_text(text)
    with pytest.raises(Unavailable):
        read_topics(str(beside.store))
