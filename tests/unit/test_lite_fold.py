"""Aliases in the fold: which rule refuses which commit, and what a ``Rewind`` leaves."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.kit.histories import History, open_epoch
from tests.kit.litehistories import Alias, LiteHistory, pack
from tiered.archive.fold.apply import apply
from tiered.archive.rewrite.aliasplan import Sought, alias_change_edit, changes_from, settled
from tiered.archive.state.aliases import alias_runs, lite_queue, unpack_alias_run
from tiered.archive.state.keys import ALIAS, LITE_QUEUE
from tiered.codec.format.aliases import Aliases
from tiered.codec.format.edits import EditBatch, EditKind, batch
from tiered.errors import Corrupt
from tiered.model import MessageQueue

A = MessageQueue("%LMQ%a", 0)


class Flushes(LiteHistory):
    """Flushes whose records are in the lite queues that a test says."""

    def __init__(self) -> None:
        super().__init__(random.Random(7), topics=1, queues=2)

    def records(self, count: int = 4) -> tuple[list[EditBatch], list[Alias]]:
        """The edits of a flush, without aliases, and its records."""
        while True:
            edits = [b for b in self.flush() if b.kind is not EditKind.QUEUE_ALIAS]
            found = sorted(self._appended(edits), key=lambda place: place[2].physical)
            if len(found) >= count:
                return edits, [(mq, g, r.offset, r.physical, r.time) for mq, g, r in found]
            self.add(edits)

    def aliased(self, records: Any) -> Aliases:
        return pack({})

    def put(self, edits: list[EditBatch], made: dict[str, dict[tuple[int, int], Alias]]) -> None:
        self.add([*edits[:-1], pack(made).edit(), edits[-1]])

    def refuses(self, rule: str, edits: list[EditBatch], aliases: Aliases) -> None:
        before = list(self.store.iterate(b""))
        with pytest.raises(Corrupt, match=rule):
            apply(self.store, self.next_commit([*edits[:-1], aliases.edit(), edits[-1]]))
        assert list(self.store.iterate(b"")) == before


def at(generation: int, first: int, records: list[Alias]) -> dict[tuple[int, int], Alias]:
    return {(generation, first + i): alias for i, alias in enumerate(records)}


def test_a_run_for_each_stretch_and_from_any_offset() -> None:
    log = Flushes()
    edits, found = log.records()
    log.put(edits, {A.topic: at(1, 5, found[:2]) | at(1, 9, found[2:4])})
    first, second = alias_runs(log.store, A, 1)
    assert (first.first_offset, first.end, second.first_offset, second.end) == (5, 7, 9, 11)
    for offset, runs in ((0, 2), (6, 2), (7, 1), (8, 1), (10, 1), (11, 0)):
        assert len(list(alias_runs(log.store, A, 1, offset))) == runs
    row = second.rows[1]
    assert (*second.target(int(row["target"])), int(row["offset"])) == found[3][:3]


@pytest.mark.parametrize(
    ("rule", "made"),
    [
        ("count up", lambda f: {A.topic: at(2, 0, f[:1])}),
        ("count up", lambda f: {A.topic: at(0, 0, f[:1])}),
        ("ascend", lambda f: {A.topic: at(1, 5, f[:1]) | at(1, 4, f[1:2])}),
        ("physical offsets ascend", lambda f: {A.topic: at(1, 5, [f[1], f[0]])}),
        ("physical offsets ascend", lambda f: {A.topic: at(1, 5, [f[0], f[0]])}),
        ("archived record", lambda f: {A.topic: at(1, 0, [(f[0][0], f[0][1], 10**6, *f[0][3:])])}),
        ("archived record", lambda f: {A.topic: at(1, 0, [(f[0][0], 9, *f[0][2:])])}),
        ("above what earlier", lambda f: {A.topic: at(1, 0, [(*f[0][:3], f[0][3] - 1, 0)])}),
        ("in range", lambda f: {A.topic: at(1, 2**60 + 1, f[:1])}),
        ("named once", lambda f: {"": at(1, 0, f[:1])}),
    ],
)
def test_what_is_refused(rule: str, made: Any) -> None:
    log = Flushes()
    for _ in range(3):
        log.add([b for b in log.flush() if b.kind is not EditKind.QUEUE_ALIAS])
    edits, found = log.records()
    log.refuses(rule, edits, pack(made(found)))


def test_runs_must_hold_all_aliases() -> None:
    log = Flushes()
    edits, found = log.records()
    good = pack({A.topic: at(1, 0, found)})
    for rows in (0, len(found) - 1, len(found) + 1):
        runs = {**good.runs, "rows": np.array([rows], np.int64)}
        log.refuses(
            "hold all",
            edits,
            Aliases(good.queues, good.topics, good.queue_ids, good.generations, runs, good.rows),
        )


def test_only_an_epoch_that_says_so_has_aliases() -> None:
    """Programs that do not know them were refused when that epoch was opened."""
    log = History(random.Random(7))
    edits = log.flush()
    with pytest.raises(Corrupt, match="requires their feature"):
        apply(log.store, log.next_commit([*edits[:-1], pack({}).edit(), edits[-1]]))
    late = Flushes()
    late.epoch += 1
    with pytest.raises(Corrupt, match="never opened without it"):
        late.add([open_epoch(late.epoch, late.writer, late.lineage)])


def test_a_rewind_reaches_generations_on_both_sides_of_another_lineage() -> None:
    log = Flushes()
    position = log.physical[1]
    for generation, lineage in enumerate((1, 2, 1), 1):
        if lineage == 2:
            log.add([log._claim(new_lineage=True)])
        elif log.lineage == 2:
            log.lineage = 1
            log.add([log._claim(new_lineage=False)])
        edits, found = log.records()
        log.put(edits, {A.topic: at(generation, 0, found)})
    assert [len(list(alias_runs(log.store, A, g))) for g in (1, 2, 3)] == [1, 1, 1]
    while True:
        edits = log.rewind() or []
        log.add(edits)
        if int(edits[0].ints("physical_offset")[0]) == position:
            break
    assert [len(list(alias_runs(log.store, A, g))) for g in (1, 2, 3)] == [0, 1, 0]
    seen = lite_queue(log.store, A)
    assert seen is not None
    assert (seen.generation, seen.highest_generation, seen.max_offset) == (None, 3, 0)


def test_what_came_back_at_the_same_offsets_stays() -> None:
    """Planned, then the broker lost its tail, and wrote other messages in these places: the plan is settled, or refused."""
    log = Flushes()
    edits, found = log.records()
    log.put(edits, {A.topic: at(1, 0, found[:4])})
    for queue, number in {record[:2] for record in found}:
        generation = log.model.queues[queue].generations[number]
        generation.minimum = first = generation.maximum
        fields = {
            "topic": queue.topic,
            "queue_id": queue.queue_id,
            "generation": number,
            "first_offset": first,
        }
        log.add([batch(EditKind.TRIM_QUEUE, **fields)])
    (planned,), _ = changes_from(log.state, Sought(), b"", 9)
    assert (planned.first_offset, planned.gone) == (4, 4)
    log.edges[log.lineage] = {found[2][3]}
    log.add(log.rewind() or [])
    edits, again = log.records()
    log.put(edits, {A.topic: at(1, 2, again[:4])})
    with pytest.raises(Corrupt, match="goes after its record"):
        log.add([alias_change_edit([planned])])
    (left,) = settled(log.state, [planned])
    assert (left.first_offset, left.gone) == (2, 2)
    log.add([alias_change_edit([left])])
    assert [(run.first_offset, len(run.rows)) for run in alias_runs(log.store, A, 1)] == [(2, 4)]


def test_a_damaged_run_is_not_read() -> None:
    log = Flushes()
    edits, found = log.records()
    log.put(edits, {A.topic: at(1, 0, found)})
    (value,) = [v for _, v in log.store.iterate(ALIAS)]
    for cut in (0, 10, 60, len(value) - 1):
        with pytest.raises(Corrupt, match="alias run"):
            unpack_alias_run(0, value[:cut])
    with pytest.raises(Corrupt, match="alias run"):
        unpack_alias_run(0, value + b"\\0")


def test_a_commit_writes_only_what_it_touches() -> None:
    log = Flushes()
    edits, found = log.records()
    log.put(edits, {f"%LMQ%{i}": at(1, 0, found[:1]) for i in range(50)})
    log.add(log.claim())
    edits, found = log.records()
    aliases = pack({"%LMQ%7": at(1 if log.lineage == 1 else 2, 9, found)}).edit()
    changes = apply(log.store, log.next_commit([*edits[:-1], aliases, edits[-1]]))
    assert sorted(key[:1] for key in changes.values if key[:1] in (ALIAS, LITE_QUEUE)) == [ALIAS, LITE_QUEUE]
