"""Groups and their offsets: read as brokers write them, kept with writes of what changed, shown beside the archive."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import rocksdict

from tests.kit import golden
from tiered.clock import ManualClock
from tiered.daemon.groupbook import GroupBook, GroupKeeper, GroupsNote
from tiered.daemon.groups import NOTE_SECONDS, GroupsFollower
from tiered.errors import Unavailable
from tiered.metadata.base import RedoStore
from tiered.metadata.memory import MemoryRedoStore
from tiered.metrics import Metrics
from tiered.source.grouplists import BrokerGroups, Entry, GroupConfig, GroupOffset, NotKept

CONFIG = b'{"retryMaxTimes":16}'


def entries(store: Path) -> list[Entry]:
    return BrokerGroups(str(store)).read(list)


def offsets(store: Path) -> list[Entry]:
    return [found for found in entries(store) if isinstance(found, GroupOffset)]


class Config:
    """A broker's directory whose lists a test writes."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.config = store / "config"
        self.config.mkdir(parents=True, exist_ok=True)
        self.ticks = 10**18

    def json(self, name: str, **content: object) -> None:
        path = self.config / name
        path.write_text(json.dumps(content))
        self.ticks += 1
        os.utime(path, ns=(self.ticks, self.ticks))

    def write(self, groups: Sequence[str], told: dict[str, dict[int, int]]) -> None:
        self.json("subscriptionGroup.json", subscriptionGroupTable={g: {"retryMaxTimes": 16} for g in groups})
        self.json("consumerOffset.json", offsetTable=told)

    def rocks(
        self, name: str, pairs: dict[bytes, bytes], families: dict[str, dict[bytes, bytes]] | None = None
    ) -> None:
        db = rocksdict.Rdict(str(self.config / name), rocksdict.Options(raw_mode=True))
        for key, value in pairs.items():
            db.put(key, value)
        for family, content in (families or {}).items():
            made = db.create_column_family(family, rocksdict.Options(raw_mode=True))
            for key, value in content.items():
                made.put(key, value)
            made.close()
        db.close()


@pytest.fixture
def broker(tmp_path: Path) -> Config:
    return Config(tmp_path / "store")


def test_what_rocketmq_wrote(tmp_path: Path) -> None:
    store = golden.unpack("broker-store", tmp_path) / "store"
    found = entries(store)
    assert GroupOffset("g_retry", "OrderEvents", 3, 1697) in found
    assert GroupOffset("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 90) in found
    configs = {each.group: json.loads(each.config) for each in found if isinstance(each, GroupConfig)}
    assert configs["SELF_TEST_C_GROUP"]["retryMaxTimes"] == 16
    assert not any(isinstance(each, NotKept) for each in found)


def test_a_unified_store_that_rocketmq_wrote(tmp_path: Path) -> None:
    found = entries(golden.unpack(golden.ROCKS, tmp_path) / "unified")
    assert {each.group for each in found if isinstance(each, GroupConfig)} >= {
        "TOOLS_CONSUMER",
        "CID_ONSAPI_PULL",
    }
    assert offsets(tmp_path / "unified") == []


_TOLD = [GroupOffset("g", "Orders", 0, 12), GroupOffset("g", "Orders", 7, 1 << 40)]
_VALUE = b'{"offsetTable":{0:12,7:1099511627776}}'


def _v2(group: bytes, topic: bytes, queue: int) -> bytes:
    named = (len(n).to_bytes(2, "big") + n + b"\1" for n in (group, topic))
    return b"\1\0\1\2" + b"".join(named) + queue.to_bytes(4, "big")


def test_stores_in_each_layout(tmp_path: Path) -> None:
    one, unified, v2 = (Config(tmp_path / name) for name in ("one", "unified", "v2"))
    one.rocks("topics", {b"TBW102": b"{}"})
    one.rocks("subscriptionGroups", {b"g": CONFIG})
    one.rocks("consumerOffsets", {b"Orders@g": _VALUE})
    unified.rocks(
        "metadata",
        {},
        {
            "topic": {b"T": b"{}"},
            "subscriptionGroup": {b"g": CONFIG},
            "consumerOffset": {b"Orders@g": _VALUE},
        },
    )
    key = {_v2(b"g", b"Orders", q): n.to_bytes(8, "big") for q, n in ((0, 12), (7, 1 << 40))}
    v2.rocks(
        "rdb",
        {
            b"\1\0\3\1data_version": bytes(24),
            b"\1\0\4\2\0\1g": b"\1" + CONFIG,
            b"\1\0\4\1data_version": b"",
            **key,
        },
    )
    for made in (one, unified, v2):
        assert set(entries(made.store)) == {*_TOLD, GroupConfig("g", CONFIG)}


def test_lite_queues_have_a_file_of_their_own(broker: Config) -> None:
    broker.write(["g"], {"Old@g": {0: 1}})
    broker.json("lmqConsumerOffset.json", offsetTable={"Orders@g": {0: 5}}, lmqOffsetTable={"%LMQ%a@g": 9})
    assert offsets(broker.store) == [GroupOffset("g", "Orders", 0, 5), GroupOffset("g", "%LMQ%a", 0, 9)]
    broker.write(["g"], {"New@g": {0: 1}})
    assert offsets(broker.store) == [GroupOffset("g", "New", 0, 1)]


def test_what_makes_no_sense_is_counted_and_left_out(broker: Config) -> None:
    broker.write(["g"], {"a@b@c": {0: 1}, "alone": {0: 1}, "T@g": {0: 5, -1: 3, 1 << 31: 2}, "T\0@g": {0: 1}})
    found = entries(broker.store)
    assert [each for each in found if isinstance(each, GroupOffset)] == [GroupOffset("g", "T", 0, 5)]
    assert sum(isinstance(each, NotKept) for each in found) == 5


@pytest.mark.parametrize("name", ["subscriptionGroup.json", "consumerOffset.json"])
@pytest.mark.parametrize("damage", ["cut", "renamed"])
def test_a_file_that_is_being_rewritten_is_no_answer(broker: Config, name: str, damage: str) -> None:
    broker.write(["g"], {"T@g": {0: 5}})
    path = broker.config / name
    if damage == "cut":
        path.write_text(path.read_text()[:-4])
    else:
        path.rename(str(path) + ".bak")
    with pytest.raises(Unavailable, match="list of groups"):
        entries(broker.store)


# ---- what is kept


def kept(store: RedoStore) -> dict[str, list[tuple[str, int, int]]]:
    book = GroupBook(store)
    return {g: [(o.topic, o.queue_id, o.offset) for o in book.offsets(g)] for g in book.groups()}


def test_only_what_changed_is_written() -> None:
    store = MemoryRedoStore()
    keeper = GroupKeeper(store)
    told: list[Entry] = [GroupConfig(f"g{n}", CONFIG) for n in range(300)]
    told += [GroupOffset(f"g{n}", "T", q, 10) for n in range(300) for q in range(4)]
    note = keeper.update(iter(told), 1000)
    assert (note, keeper.written) == (GroupsNote(1000, 300, 1200, 0), 1500)
    keeper.update(iter(told), 2000)
    assert keeper.written == 1500
    told[300] = GroupOffset("g0", "T", 0, 11)
    keeper.update(iter(told), 3000)
    assert keeper.written == 1501
    (first, second, *_) = GroupBook(store).offsets("g0")
    assert (first.offset, first.changed_ms, second.changed_ms) == (11, 3000, 1000)
    del told[301:305]
    keeper.update(iter(told), 4000)
    assert keeper.written == 1505
    assert kept(store)["g0"] == [("T", 0, 11)]
    keeper.update(iter(()), 5000)
    assert kept(store) == {}
    assert GroupBook(store).note() == GroupsNote(5000, 0, 0, 0)


def test_groups_are_paged_in_the_order_of_their_bytes() -> None:
    store = MemoryRedoStore()
    names = ["a", "a-1", "aa", "ab", "b", "日本", "%RETRY%a"]
    told: list[Entry] = [GroupConfig(name, CONFIG) for name in names[::2]]
    told += [GroupOffset(name, "T", 0, 1) for name in names[1:]]
    GroupKeeper(store).update(iter(told), 1)
    book, ordered = GroupBook(store), sorted(names, key=str.encode)
    assert list(book.groups()) == ordered
    assert list(book.groups(prefix="a")) == ["a", "a-1", "aa", "ab"]
    assert list(book.groups(prefix="a", after="a")) == ["a-1", "aa", "ab"]
    assert list(book.groups(after="aa")) == ordered[ordered.index("aa") + 1 :]
    assert book.config("a") == CONFIG
    assert book.config("a-1") is None


class Full(MemoryRedoStore):
    full = False
    reopened = 0

    def flush(self) -> None:
        if self.full:
            raise Unavailable("the disk is full")

    def reopen(self) -> None:
        self.reopened += 1


def test_the_broker_is_followed_and_what_fails_is_said(broker: Config) -> None:
    clock, store, metrics = ManualClock(), Full(), Metrics()
    follower = GroupsFollower(store, BrokerGroups(str(broker.store)), clock, 30.0, metrics)

    def look(after: float = 31.0) -> None:
        clock.advance(after)
        follower.step()

    broker.write(["g"], {"T@g": {0: 5}})
    look()
    assert kept(store) == {"g": [("T", 0, 5)]}
    written, noted = follower._keeper.written, GroupBook(store).note()
    look()
    assert (follower._keeper.written, GroupBook(store).note()) == (written, noted), "nothing changed"
    look(NOTE_SECONDS)
    assert GroupBook(store).note() != noted
    broker.write(["g"], {"T@g": {0: 6}})
    (broker.config / "consumerOffset.json").write_text("{")
    with pytest.raises(Unavailable):
        look()
    assert kept(store) == {"g": [("T", 0, 5)]}
    assert "not a whole list" in str(follower.status()["problem"])
    clock.advance(100)
    assert "tiered_groups_age_seconds 131.0" in metrics.expose().decode()
    broker.write(["g", "h"], {"T@g": {0: 6}})
    store.full = True
    with pytest.raises(Unavailable, match="full"):
        look()
    store.full = False
    look()
    assert store.reopened == 2
    assert kept(store) == {"g": [("T", 0, 6)], "h": []}
    assert follower.status() == {"age_seconds": 0.0, "problem": None, "groups": 2, "offsets": 1, "skipped": 0}


def test_without_a_brokers_configuration_nothing_is_asked(tmp_path: Path) -> None:
    store = MemoryRedoStore()
    follower = GroupsFollower(store, BrokerGroups(str(tmp_path)), ManualClock(), 30.0, Metrics())
    follower.step()
    assert GroupBook(store).note() is None
