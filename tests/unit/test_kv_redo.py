"""Messages applied to a store: what each write does, what a conditional one is decided by, what is not passed over."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import pytest
import zstandard

from tests.kit.kvlog import PREFIX, KeyValueLog, digest
from tiered.codec.record.layout import SYS_COMPRESSED
from tiered.keyvalue import Condition, Entry
from tiered.metadata.base import RedoStore
from tiered.metadata.memory import MemoryRedoStore
from tiered.model import MessageQueue
from tiered.view import redo as redo_module
from tiered.view.layout import entries_prefix, entry_of, split_entry_key
from tiered.view.redo import KeyValueRedo, NamespaceState

NS = "orders"


@pytest.fixture
def log() -> KeyValueLog:
    return KeyValueLog()


@pytest.fixture
def store() -> Iterator[RedoStore]:
    made = MemoryRedoStore()
    yield made
    made.close()


@pytest.fixture(params=[0, 1000], ids=["as columns", "one by one"])
def redo(store: RedoStore, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> KeyValueRedo:
    """It reads messages in both ways."""
    monkeypatch.setattr(redo_module, "FEW", request.param)
    return KeyValueRedo(store, PREFIX, 1 << 20)


def entries(store: RedoStore, namespace: str = NS) -> dict[bytes, Entry]:
    pairs = store.iterate(entries_prefix(namespace))
    return {split_entry_key(key)[1]: entry_of(split_entry_key(key)[1], value) for key, value in pairs}


def values(store: RedoStore, namespace: str = NS) -> dict[bytes, tuple[bytes, int]]:
    return {key: (entry.value, entry.version) for key, entry in entries(store, namespace).items()}


def test_puts_and_deletes_in_the_order_of_the_log(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    log.write(NS, b"a", b"1")
    log.write(NS, b"b\x00\xff", b"")
    log.write(NS, b"a", b"22")
    log.write("other", b"a", b"theirs")
    log.write(NS, b"c", b"3")
    log.write(NS, b"c", None)
    done = redo.apply(log.batch())
    assert values(store) == {b"a": (b"22", 2), b"b\x00\xff": (b"", 1)}
    assert values(store, "other") == {b"a": (b"theirs", 0)}
    assert (done.messages, done.malformed, done.rejections) == (6, 0, {})
    assert redo.states[NS].next == 5
    again = KeyValueRedo(store, PREFIX, 1 << 20)
    assert (again.states, again.position) == (redo.states, log.batch().position)


def test_a_condition_sees_what_all_writes_before_it_left(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    log.write(NS, b"k", b"old")
    redo.apply(log.batch())
    began = len(log.records)
    lost = [
        log.write(NS, b"k", b"no", Condition(absent=True)),
        log.write(NS, b"k", b"no", Condition(version=7)),
        log.write(NS, b"k", b"no", Condition(value_sha256=digest(b"other"))),
        log.write(NS, b"gone", b"no", Condition(version=0)),
        log.write(NS, b"gone", None, Condition(value_sha256=digest(b""))),
    ]
    won = log.write(NS, b"k", b"new", Condition(version=0, value_sha256=digest(b"old")))
    late = log.write(NS, b"k", b"late", Condition(version=0))
    first = log.write(NS, b"fresh", b"1", Condition(absent=True))
    second = log.write(NS, b"fresh", b"2", Condition(absent=True))
    log.write(NS, b"k", None, Condition(version=won))
    last = log.write(NS, b"k", b"anew", Condition(absent=True))
    done = redo.apply(log.batch(began))
    assert done.rejections[NS] == {
        **dict.fromkeys(lost[:3], 0), **dict.fromkeys(lost[3:], None), late: won, second: first,
    }  # fmt: skip
    assert values(store) == {b"k": (b"anew", last), b"fresh": (b"1", first)}


def test_an_entry_has_expired_by_the_log_s_own_time(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    log.write(NS, b"k", b"1", ttl_ms=100)
    log.now_ms += 99
    early = log.write(NS, b"k", b"2", Condition(absent=True))
    log.now_ms += 1
    late = log.write(NS, b"k", b"3", Condition(absent=True))
    done = redo.apply(log.batch())
    assert done.rejections[NS] == {early: 0}
    assert values(store) == {b"k": (b"3", late)}
    assert entries(store)[b"k"].expires_ms is None


@pytest.mark.parametrize("archived", [False, True])
def test_however_the_log_is_divided_the_store_is_the_same(log: KeyValueLog, archived: bool) -> None:
    for number in range(40):
        key = b"k%d" % (number % 5)
        condition = Condition(version=number - 5) if number % 3 else Condition()
        log.write(NS, key, None if number % 7 == 0 else b"v%d" % number, condition)
    stores = []
    for step in (1, 3, 40):
        store = MemoryRedoStore()
        redo = KeyValueRedo(store, PREFIX, 1 << 20)
        for first in range(0, 40, step):
            redo.apply(log.batch(first, min(first + step, 40), archived=archived))
        stores.append(list(store.iterate(b"e")))
    assert stores[0] == stores[1] == stores[2] != []


def test_what_is_no_write_changes_nothing_and_is_counted(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    good = {"kv_opType": "PUT", "key": "YQ=="}
    bad: list[dict[str, str]] = [
        {"key": "YQ=="}, good | {"kv_opType": "put"}, good | {"key": "YQ"}, good | {"key": "Y Q=="}, {"kv_opType": "PUT"},
        good | {"kv_ifVersion": "x"}, good | {"kv_ifVersion": "-2"}, good | {"kv_ifValue": "YQ=="}, good | {"kv_ttlMs": "0"},
        good | {"kv_ttlMs": "9" * 17}, good | {"kv_ifVersion": "9" * 30}, good | {"kv_ifValue": "?"},
    ]  # fmt: skip
    for properties in bad:
        log.message(PREFIX + NS, b"v", properties)
    log.message(PREFIX + NS, b"not zlib", good, sys_flag=SYS_COMPRESSED)
    log.message(PREFIX + NS, b"v", good, queue_id=3)
    log.message("Orders", b"v", good)
    log.message(PREFIX + "no%name", b"v", good)
    done = redo.apply(log.batch())
    assert (done.malformed, done.off_queue, done.messages) == (len(bad) + 1, 1, len(bad) + 1)
    assert (values(store), redo.states[NS].next, list(redo.states)) == ({}, len(bad) + 1, [NS])


@pytest.mark.parametrize(
    ("flag", "pack"), [(0, zlib.compress), (0x300, zlib.compress), (0x200, zstandard.compress)]
)
def test_bodies_that_a_producer_compressed(
    log: KeyValueLog, store: RedoStore, flag: int, pack: object
) -> None:
    assert callable(pack)
    redo = KeyValueRedo(store, PREFIX, 1000)
    good = {"kv_opType": "PUT", "key": "YQ=="}
    log.message(PREFIX + NS, pack(b"x" * 1000), good, sys_flag=SYS_COMPRESSED | flag)
    log.message(PREFIX + NS, pack(b"x" * 1001), good, sys_flag=SYS_COMPRESSED | flag)
    assert redo.apply(log.batch()).malformed == 1
    assert values(store) == {b"a": (b"x" * 1000, 0)}


def test_a_message_that_is_missing_is_never_passed_over(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    for number in range(6):
        log.write(NS, b"k", b"%d" % number)
        log.write("sound", b"k", b"%d" % number)
    redo.apply(log.batch(0, 4))
    redo.apply(log.batch(6, 12))
    assert values(store) == {b"k": (b"1", 1)}
    assert redo.states[NS].broken == "offsets 2 to 2 are not in the log, nor in an archive that is named"
    assert redo.states["sound"].broken is not None
    assert KeyValueRedo(store, PREFIX, 1 << 20).states == redo.states


def test_what_comes_again_from_the_archive_is_applied_once(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    for number in range(4):
        log.write(
            NS, b"k", b"%d" % number, Condition(version=number - 1) if number else Condition(absent=True)
        )
    redo.apply(log.batch(0, 3, archived=True))
    done = redo.apply(log.batch(1, 4, archived=True))
    assert (done.messages, done.rejections) == (1, {})
    assert values(store) == {b"k": (b"3", 3)}


def test_a_topic_made_anew_begins_an_empty_namespace(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    log.write(NS, b"old", b"1")
    log.write(NS, b"k", b"1")
    log.write("other", b"k", b"1")
    redo.apply(log.batch())
    began, log.next = len(log.records), {}
    log.write(NS, b"k", b"2", Condition(absent=True))
    log.write(NS, b"j", b"3")
    redo.apply(log.batch(began))
    assert values(store) == {b"k": (b"2", 0), b"j": (b"3", 1)}
    assert values(store, "other") == {b"k": (b"1", 0)}
    assert redo.states[NS] == NamespaceState(2, log.ends[-2], None, redo.newest_ms)


def test_a_topic_made_anew_in_the_middle_of_a_batch(
    log: KeyValueLog, store: RedoStore, redo: KeyValueRedo
) -> None:
    log.write(NS, b"old", b"1")
    log.write(NS, b"k", b"1")
    log.next = {}
    log.write(NS, b"k", b"2", Condition(absent=True))
    redo.apply(log.batch())
    assert values(store) == {b"k": (b"2", 0)}


def test_the_feed_is_told_how_far_a_queue_is(log: KeyValueLog, redo: KeyValueRedo) -> None:
    log.write(NS, b"a", b"1")
    log.write(NS, b"a", b"2")
    redo.apply(log.batch())
    told = redo.following(MessageQueue(PREFIX + NS, 0))
    assert (told.next, told.physical) == (2, log.ends[1])
    assert redo.following(MessageQueue(PREFIX + NS, 1)).next == 0
    assert redo.following(MessageQueue("Orders", 0)).next == 0
    redo.forget()
    assert (redo.states, redo.position.physical) == ({}, None)
