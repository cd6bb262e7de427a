"""Two views of one log, by random histories: whatever is killed, lost, emptied or asked again, each call has its place in the
order of the log, and both views end with the same bytes.

Histories are held against the log itself, by a plain reading of it (``kvplain.py``), and against porcupine, which knows nothing
of the log. That both would notice is asked of them with faults planted in the program.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.golden import parse_record
from tests.kit.kvhistory import NOT_LINEARIZABLE, History, checked, went_back
from tests.kit.kvlog import PREFIX, KeyValueLog
from tests.kit.kvplain import PlainEntry, against
from tests.kit.kvviews import KEYS, NAMESPACE, Content, ForgetfulStore, SimulatedView, SimulatedWorld
from tests.kit.kvworkload import NOT_DONE, Asked, Chooser, Recorded, Workload
from tiered.clock import ManualClock
from tiered.errors import Refused, Unavailable
from tiered.keyvalue import Condition, Entry, ReadRule, WriteOutcome
from tiered.view import redo
from tiered.view.layout import entries_prefix, entry_of, split_entry_key
from tiered.view.view import KeyValueView

pytestmark = pytest.mark.no_cover

SEEDS = 120
PARTS = 10
EVENTS = 300
HAPPEN = {
    "put answered", "delete answered", "get answered", "get_many answered", "page answered", "answer lost", "message lost",
    "message long under way", "given up", "view killed", "store failed", "store emptied",
}  # fmt: skip


def entries(view: SimulatedView, now_ms: int) -> dict[str, PlainEntry]:
    """What a view's store holds and has not expired."""
    pairs = view.store.iterate(entries_prefix(NAMESPACE))
    held = [entry_of(split_entry_key(key)[1], value) for key, value in pairs]
    return {
        entry.key.hex(): PlainEntry(entry.version, entry.value, entry.stored_ms, entry.expires_ms)
        for entry in held
        if entry.expires_ms is None or entry.expires_ms > now_ms
    }


def ran(seed: int) -> SimulatedWorld:
    world = SimulatedWorld(seed)
    world.run(EVENTS)
    return world


@pytest.mark.depends_only_on_imports
@pytest.mark.history
@pytest.mark.parametrize("part", range(PARTS))
def test_each_call_has_its_place_in_the_log_and_both_views_end_alike(part: int) -> None:
    did: Counter[str] = Counter()
    for seed in range(part, SEEDS, PARTS):
        world = ran(seed)
        plain, now_ms = world.plain(), world.clock.now_ms()
        assert against(plain, world.history) + world.wrong == [], f"seed {seed}"
        assert went_back(world.history.operations) == [], f"seed {seed}"
        one, two = (view.store.content() for view in world.views)
        assert one == two, f"seed {seed}"
        assert one[1] is not None, f"seed {seed}"
        wanted = {key: entry for key, entry in plain.last().items() if (entry.ends_ms or now_ms + 1) > now_ms}
        assert entries(world.views[0], now_ms) == wanted != {}, f"seed {seed}"
        did += world.did
    assert did.keys() == HAPPEN


@pytest.mark.porcupine
def test_porcupine_says_the_same(tmp_path: Path) -> None:
    paths = [ran(1000 + seed).history.save(tmp_path / f"{seed}") for seed in range(20)]
    found = checked(paths)
    assert [str(each) for each in found if not each.good] == []
    assert sum(each.operations for each in found) > 40 * len(paths)


def no_conditions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(redo, "_holds", lambda condition, entry: True)


def no_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeyValueView, "_wait_latest", lambda self: None)


def stored_twice(patch: pytest.MonkeyPatch) -> None:
    """Some messages come once more, later."""
    plain, chance = KeyValueLog.write, random.Random(5)
    earlier: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def write(self: KeyValueLog, *given: Any, **named: Any) -> int:
        if len(self.records) < 2:
            earlier.clear()
        elif chance.random() < 0.15:
            again, its = earlier[-min(3, len(earlier))]
            plain(self, *again, **its)
        earlier.append((given, named))
        return plain(self, *given, **named)

    patch.setattr(KeyValueLog, "write", write)


def position_without_its_entries(patch: pytest.MonkeyPatch) -> None:
    """A crash takes entries back, and leaves what says how far they are."""
    plain = ForgetfulStore.crashed

    def crashed(self: ForgetfulStore) -> Content:
        old, new = plain(self)[0], self.content()
        entries = {key: value for key, value in old.items() if key.startswith(b"e")}
        return entries | {key: value for key, value in new[0].items() if key.startswith(b"n")}, new[1]

    patch.setattr(ForgetfulStore, "crashed", crashed)


@pytest.mark.porcupine
@pytest.mark.parametrize("plant", [no_conditions, no_waiting, stored_twice, position_without_its_entries])
def test_faults_of_the_program_are_noticed_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    by_log, by_porcupine = 0, []
    for seed in range(8):
        world = ran(seed)
        by_log += against(world.plain(), world.history) != []
        by_porcupine.append(world.history.save(tmp_path / f"{seed}"))
    assert by_log > 1
    assert sum(each.verdict == NOT_LINEARIZABLE for each in checked(by_porcupine)) > 1


def test_a_store_that_a_crash_takes_back_begins_behind_one_of_its_batches() -> None:
    log, clock, chance = KeyValueLog(), ManualClock(), random.Random(3)
    view = SimulatedView("one", log, clock, chance)
    for number in range(60):
        log.write(NAMESPACE, b"k", b"%d" % number)
    view.settle()
    view.view.finish()
    for number in range(60, 90):
        log.write(NAMESPACE, b"k", b"%d" % number)
        view.step()
    left = {view.store.crashed()[1] for _ in range(200)}
    assert len(left) > 10
    view.crash()
    before = view.view.get(NAMESPACE, b"k")
    assert before is not None
    assert before.version >= 59
    view.settle()
    after = view.view.get(NAMESPACE, b"k")
    assert after is not None
    assert (after.value, view.lives) == (b"89", 2)


class Answers:
    """``KeyValues`` by script."""

    def __init__(self, *script: object) -> None:
        self.script = list(script)

    def _next(self, *_: object, **__: object) -> object:
        found = self.script.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    put = delete = get = get_many = page = _next


def recorded(*script: object) -> Recorded:
    ticks = iter(range(100))
    chooser = Chooser(3, random.Random(1), KEYS)
    return Recorded(Answers(*script), "n", chooser, History(), lambda: "one", lambda: next(ticks))  # type: ignore[arg-type]


def test_what_is_written_down_of_calls_and_answers() -> None:
    client = recorded(
        WriteOutcome(True, 7), WriteOutcome(False, 9, 8), Unavailable("x", outcome=NOT_DONE),
        Refused("x", outcome="unknown"), Unavailable("x"), ConnectionResetError(), Unavailable("x"),
        Entry(b"k", b"v", 7, 1), None,
    )  # fmt: skip
    write, read = Asked("put", (b"k",), value=b"v", condition=Condition(version=6)), Asked("get", (b"k",))
    answered = [client.ask(each) for each in (*[write] * 6, *[read] * 3)]
    assert answered == [True, True, False, False, False, False, False, True, True]
    noted = client.history.operations
    assert [each.outcome for each in noted] == [
        "answered", "answered", "failed", "unknown", "unknown", "unknown", "failed", "answered", "answered",
    ]  # fmt: skip
    assert [(each.applied, each.version, each.current) for each in noted[:3]] == [
        (True, 7, None), (False, 9, 8), (False, None, None),
    ]  # fmt: skip
    assert [(each.call, each.returned) for each in noted[:3]] == [(0, 1), (2, 3), (4, None)]
    assert {each.if_version for each in noted[:6]} == {6}
    assert noted[-2].found == (7, noted[0].value)
    assert noted[-1].found is None
    assert client.errors.total() == 5
    assert client.chooser.seen == {}


def test_a_view_that_began_anew_during_a_read_by_any_is_not_held_to_what_it_showed() -> None:
    client = recorded(Entry(b"a", b"v", 7, 1))
    names = iter(["one", "two"])
    client._view = lambda: next(names)
    client.ask(Asked("get", (b"a",), ReadRule()))
    [noted] = client.history.operations
    assert noted.shown_by == "one or another, call 0"


def test_a_chooser_asks_everything_and_draws_from_what_it_was_told() -> None:
    chooser = Chooser(1, random.Random(4), KEYS)
    chooser.seen = dict.fromkeys(KEYS, (5, b"five"))
    drawn = [chooser.draw() for _ in range(600)]
    assert {each.kind for each in drawn} == {"get", "put", "delete", "get_many", "page"}
    conditions = {
        (each.condition.absent, each.condition.version, each.condition.value_sha256 is not None)
        for each in drawn
    }
    assert conditions == {
        (False, None, False),
        (True, None, False),
        (False, 5, False),
        (False, None, True),
        (False, 5, True),
    }
    values = [each.value for each in drawn if each.kind == "put"]
    assert len(set(values)) == len(values) > 200
    chooser.learn(Asked("put", (b"a",), value=b"new"), WriteOutcome(True, 8))
    chooser.learn(Asked("delete", (b"c",)), WriteOutcome(True, 9))
    chooser.learn(Asked("put", (b"b\x00",), value=b"no"), WriteOutcome(False, 10, 6))
    assert chooser.seen == {b"a": (8, b"new"), b"b\x00": (6, b"five")}


def test_threads_that_ask_end_and_a_client_that_breaks_is_told() -> None:
    client = recorded(WriteOutcome(True, 1))
    client.chooser.kinds = {"put": 1}
    workload = Workload([client]).start()
    workload._threads[0].join(60)
    with pytest.raises(AssertionError, match="client 3: IndexError"):
        workload.end()


def test_a_plain_log_has_each_write_as_the_rules_say() -> None:
    log = KeyValueLog()
    log.write(NAMESPACE, b"k", b"1", ttl_ms=10)
    log.write(NAMESPACE, b"k", b"2", Condition(absent=True))
    log.now_ms += 10
    log.write(NAMESPACE, b"k", b"3", Condition(absent=True))
    log.write(NAMESPACE, b"k", None, Condition(version=9))
    world = SimulatedWorld(0)
    world.log = log
    plain = world.plain()
    assert [(write.applied, write.current) for write in plain.writes.values()] == [
        (True, None), (False, 0), (True, None), (False, 2),
    ]  # fmt: skip
    assert [None if (held := plain.at("6b", at)) is None else held.version for at in range(5)] == [
        None,
        0,
        0,
        2,
        2,
    ]
    assert parse_record(log.records[0]).topic == PREFIX + NAMESPACE
