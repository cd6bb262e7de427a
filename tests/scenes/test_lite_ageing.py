"""Lite queues grow old: aliases go after their records, never before, and runs become one; readers see no difference."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit.assemble import put
from tests.kit.histories import store_changes
from tests.kit.litebroker import broker_of as broker
from tests.kit.litebroker import lite_cold
from tests.kit.litehistories import LiteHistory
from tests.kit.merging import AtOnceTurn
from tests.kit.readstore import Cold, cold
from tiered.archive.fold.apply import apply
from tiered.archive.rewrite import aliascare
from tiered.archive.rewrite.aliascare import AliasCare, ReplaceAliases
from tiered.archive.rewrite.aliasplan import FULL, AliasChange, alias_change_edit, joins_of, settled
from tiered.archive.state.aliases import ALIAS_ROW, AliasRun, alias_runs, lite_queue
from tiered.archive.state.keys import ALIAS, offset_key, queue_key
from tiered.archive.state.scope import Scope
from tiered.codec.format.edits import EditKind, batch
from tiered.errors import Corrupt
from tiered.metadata.memory import MemoryStore
from tiered.model import GetMessageStatus, MessageQueue

A = MessageQueue("%LMQ%a", 0)
S = GetMessageStatus
EVERY = 1.0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cold]:
    with lite_cold(tmp_path) as (scene, _):
        yield scene


def fill(made: Cold, flushes: int, names: Sequence[str] = ("%LMQ%a",), queue_id: int = 0) -> None:
    """A message a flush: runs of one alias."""
    for _ in range(flushes):
        made.broker.time_ms += 10
        broker(made).place(names, queue_id=queue_id)
        made.archive()


def trim(made: Cold, first: int, queue_id: int = 0) -> None:
    edit = batch(EditKind.TRIM_QUEUE, topic="Orders", queue_id=queue_id, generation=1, first_offset=first)
    put(made.daemon.log, edit)


def care(made: Cold) -> AliasCare:
    return AliasCare(made.daemon.log, made.clock, EVERY)


def aged(made: Cold, task: AliasCare) -> dict[str, Any]:
    """A round of the task, with its figures."""
    sums: dict[str, Any] = {}
    for _ in range(50):
        done = task.run_once(AtOnceTurn(made.daemon))
        for name, value in done.figures.items():
            sums[name] = sums.get(name, 0) + value
        if not done.more:
            return sums
    raise AssertionError("it comes to an end")


def runs(made: Cold, queue: MessageQueue = A) -> list[tuple[int, int]]:
    return [(run.first_offset, len(run.rows)) for run in alias_runs(made.daemon.state.view, queue, 1)]


def readable(made: Cold, name: str = "%LMQ%a") -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while (answer := made.get(name, 0, offset, 100)).status is not S.OFFSET_OVERFLOW_ONE:
        found |= dict(zip(answer.queue_offsets, map(bytes, answer.records), strict=True))
        offset = answer.next_begin_offset
    return found


def test_small_runs_become_one_and_nothing_is_read_otherwise(made: Cold) -> None:
    fill(made, 30, ["%LMQ%a", "%LMQ%b"])
    assert len(runs(made)) == 30
    task = care(made)
    assert not task.due(made.clock.monotonic())
    assert task.plan().jobs == 1
    assert aged(made, task) == {"trimmed_aliases": 0, "joined_alias_runs": 60}
    assert runs(made) == [(0, 30)]
    found = lite_queue(made.daemon.state.view, A)
    assert found is not None
    assert (found.messages, found.runs, found.max_offset) == (30, 1, 30)
    made.open()
    for name in ("%LMQ%a", "%LMQ%b"):
        assert readable(made, name) == broker(made).placed()[name]
    assert aged(made, task) == {}
    assert task.plan().jobs == 0
    fill(made, 7)
    assert aged(made, task) == {}, "too few to be worth it"


def test_only_queues_that_grew_since_the_last_round_are_looked_at(
    made: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = care(made)
    fill(made, 9, ["%LMQ%a"])
    broker(made).numbered["%LMQ%b"] = 5
    for number in range(9):  # with holes between, so that its runs stay as they are
        broker(made).numbered["%LMQ%b"] = 2 * number
        fill(made, 1, ["%LMQ%b"])
    looked: list[bytes] = []
    before = joins_of
    monkeypatch.setattr(
        "tiered.archive.rewrite.aliasplan.joins_of",
        lambda view, queue, g: looked.append(queue) or before(view, queue, g),
    )
    aged(made, task)
    assert len(looked) == 2
    fill(made, 9, ["%LMQ%a"])
    aged(made, task)
    assert looked[2:] == [queue_key(A)]


def test_aliases_go_after_their_records(made: Cold) -> None:
    fill(made, 10)
    fill(made, 5, queue_id=1)
    task = care(made)
    aged(made, task)
    trim(made, 7)
    assert aged(made, task) == {"trimmed_aliases": 7, "joined_alias_runs": 0}
    found = lite_queue(made.daemon.state.view, A)
    assert found is not None
    assert (found.min_offset, found.messages, found.min_store_time) == (
        7, 8, broker(made).sent[7][0].store_timestamp,
    )  # fmt: skip
    made.open()
    answer = made.get("%LMQ%a", 0, 2)
    assert (answer.status, answer.next_begin_offset, answer.min_offset) == (S.OFFSET_TOO_SMALL, 7, 7)
    assert readable(made) == {o: raw for o, raw in broker(made).placed()["%LMQ%a"].items() if o >= 7}
    trim(made, 3, queue_id=1)
    assert aged(made, task) == {}, "one before them is kept"
    trim(made, 10)
    assert aged(made, task)["trimmed_aliases"] == 6
    trim(made, 5, queue_id=1)
    assert aged(made, task)["trimmed_aliases"] == 2
    assert runs(made) == []
    found = lite_queue(made.daemon.state.view, A)
    assert found is not None
    assert (found.min_offset, found.max_offset, found.messages, found.runs) == (15, 15, 0, 0)
    fill(made, 1)
    assert runs(made) == [(15, 1)], "it goes on where it was"


def test_without_a_trim_nothing_is_looked_at(made: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(made, 3)
    task = care(made)
    aged(made, task)
    monkeypatch.setattr(
        "tiered.archive.rewrite.aliasplan.trims_of", lambda *_: pytest.fail("no queue was trimmed")
    )
    fill(made, 3)
    aged(made, task)


def test_a_round_goes_on_where_a_turn_ended(made: Cold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aliascare, "CHANGES", 2)
    names = [f"%LMQ%{number}" for number in range(5)]
    fill(made, 8, names)
    trim(made, 4)
    task = care(made)
    before = made.daemon.state.head()
    assert aged(made, task) == {"trimmed_aliases": 20, "joined_alias_runs": 40}
    after = made.daemon.state.head()
    assert before is not None
    assert after is not None
    assert after.seq - before.seq == 5
    for name in names:
        assert runs(made, MessageQueue(name, 0)) == [(4, 4)]


def test_a_change_is_settled_where_it_stands(made: Cold) -> None:
    """What the plan saw go may have come back: fewer aliases go then, and without any there is no commit."""
    fill(made, 6)
    trim(made, 3)
    planned = AliasChange(queue_key(A), 1, first_offset=6, gone=6)
    assert settled(made.daemon.state, [planned]) == [replace(planned, first_offset=3, gone=3)]
    put(made.daemon.log, alias_change_edit(settled(made.daemon.state, [planned])))
    assert ReplaceAliases([planned], 0.0).settle(None, made.daemon.state) is None  # type: ignore[arg-type]
    joins = AliasChange(queue_key(A), 1, start=0, end=9, joined=2)
    assert settled(made.daemon.state, [planned, joins]) == [joins]


def joinable(rows: Sequence[int], holes: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Which offsets are joined where runs have so many aliases, with a hole before some."""
    store, first = MemoryStore(), 0
    for number, count in enumerate(rows):
        first += number in holes
        run = AliasRun(first, 0, 1, [queue_key(A) + bytes(4)], np.zeros(count, ALIAS_ROW))
        store.put_many([(offset_key(ALIAS, queue_key(A), 1, first), run.pack())])
        first += count
    return [(found.start, found.end) for found in joins_of(store, queue_key(A), 1)]


@pytest.mark.parametrize(
    ("rows", "holes", "joined"),
    [
        ([1] * 7, (), []),
        ([1] * 8, (), [(0, 8)]),
        ([100, *[1] * 8], (), [(100, 108)]),
        ([8, 8, 8, 8, 8, 8, 8, *[1] * 8], (), [(0, 64)]),
        ([1] * 20, (10,), [(0, 10), (11, 21)]),
        ([FULL, *[1] * 8], (), [(FULL, FULL + 8)]),
        ([FULL - 1] * 9, (), [(0, 2 * FULL - 2), (2 * FULL - 2, 4 * FULL - 4), (4 * FULL - 4, 6 * FULL - 6),
                              (6 * FULL - 6, 8 * FULL - 8)]),
    ],
)  # fmt: skip
def test_which_runs_are_joined(
    rows: list[int], holes: tuple[int, ...], joined: list[tuple[int, int]]
) -> None:
    assert joinable(rows, holes) == joined


def test_an_alias_is_written_a_few_times_however_many_there_are() -> None:
    """A flush of one alias at a time, a round after every ten."""
    chance, sizes, written = random.Random(5), [], 0
    for number in range(3000):
        sizes += [1] * chance.randint(1, 12)
        if number % 3:
            continue
        for start, end in joinable(sizes[-200:]):
            offset, ends = sum(sizes[:-200]), np.cumsum(sizes)
            first = int(np.searchsorted(ends, offset + start, side="right"))
            last = int(np.searchsorted(ends, offset + end))
            written += end - start
            sizes[first : last + 1] = [end - start]
    total = sum(sizes)
    assert written < 6 * total
    assert len(sizes) < 100
    assert all(size < 2 * FULL for size in sizes)


def test_the_fold_lets_no_alias_go_whose_record_is_there() -> None:
    history = LiteHistory(random.Random(3), topics=1, queues=1)
    while not history.lite:
        history.add(history.flush())
    name = next(iter(history.lite))
    (generation, offset) = min(history.lite[name].aliases)
    change = AliasChange(queue_key(MessageQueue(name, 0)), generation, first_offset=offset + 1, gone=1)
    before = list(history.store.iterate(b""))
    with pytest.raises(Corrupt, match="goes after its record"):
        apply(history.store, history.next_commit([alias_change_edit([change])]))
    assert list(history.store.iterate(b"")) == before
    part = MemoryStore()
    for commit in history.commits:
        store_changes(part, apply(part, commit, Scope.queue(name, 0)))
    apply(part, history.next_commit([alias_change_edit([change])]), Scope.queue(name, 0))


def test_what_is_not_there_is_passed_over() -> None:
    history = LiteHistory(random.Random(4))
    history.add(history.flush())
    before = [pair for pair in history.store.iterate(b"") if pair[0][:1] in b"ab"]
    edit = batch(
        EditKind.REPLACE_ALIASES, topic=["%LMQ%none", "%LMQ%none", "%LMQ%a"], generation=[1, 0, 77],
        first_offset=[5, 0, 5], start=[0, 5, 0], end=[9, 1, 100],
    )  # fmt: skip
    history.add([edit])
    assert [pair for pair in history.store.iterate(b"") if pair[0][:1] in b"ab"] == before
    with pytest.raises(Corrupt, match="in range"):
        history.add(
            [batch(EditKind.REPLACE_ALIASES, topic="%LMQ%a", generation=1, first_offset=-1, start=0, end=0)]
        )


def test_archives_without_lite_queues_are_left_alone(tmp_path: Path) -> None:
    with cold(tmp_path, open_now=False) as scene:
        scene.broker.send("Orders", body=b"x")
        scene.archive()
        task = care(scene)
        assert (aged(scene, task), task.plan().jobs) == ({}, 0)
        with pytest.raises(Corrupt, match="requires their feature"):
            put(scene.daemon.log, alias_change_edit([]))
