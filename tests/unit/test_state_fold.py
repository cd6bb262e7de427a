"""What each edit means and which rule refuses which commit, one small archive at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from tests.kit.histories import ARCHIVE_ID, open_epoch, run_batch, store_changes
from tiered.archive.fold.apply import apply
from tiered.archive.fold.marks import KEPT_FILES, KEPT_MARKS
from tiered.archive.keys import build, segment_key
from tiered.archive.state.keys import FILE_MARK, FOLD_PREFIXES, lineage_key
from tiered.archive.state.layout import MARK_STRUCT
from tiered.archive.state.view import ArchiveState, dispatch_offsets, dispatch_pairs
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, batch
from tiered.errors import Corrupt, Refused
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, ObjectRef, Progress, RunId

WRITER = b"w" * 16
Q = MessageQueue("orders", 0)
R = MessageQueue("orders", 1)


def file_marks(state: ArchiveState, lineage: int) -> list[Progress]:
    """The last mark of each commitlog file, newest first."""
    pairs = state.view.iterate(lineage_key(FILE_MARK, lineage), reverse=True)
    return [Progress(lineage, *MARK_STRUCT.unpack(value)) for _, value in pairs]


class Log:
    """An archive in memory with one epoch open, lineage 1."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.seq = 0
        self.epoch = 1
        self.add(open_epoch(1, WRITER, 1))

    @property
    def state(self) -> ArchiveState:
        return ArchiveState(self.store)

    def commit(self, *edits: EditBatch, **changed: Any) -> Commit:
        made = Commit(
            self.seq,
            self.epoch,
            ARCHIVE_ID,
            name(self.seq),
            name(self.seq - 1) if self.seq else bytes(16),
            WRITER,
            edits,
        )
        return replace(made, **changed)

    def add(self, *edits: EditBatch, **changed: Any) -> None:
        store_changes(self.store, apply(self.store, self.commit(*edits, **changed)))
        self.seq += 1

    def refuses(self, rule: str, *edits: EditBatch, **changed: Any) -> Corrupt:
        before = list(self.store.iterate(b""))
        with pytest.raises(Corrupt) as found:
            apply(self.store, self.commit(*edits, **changed))
        assert rule in str(found.value)
        assert list(self.store.iterate(b"")) == before
        return found.value


def name(seq: int) -> bytes:
    return b"commit" + (seq + 1).to_bytes(10, "big")


def objects(*paths: str, level: int = 0, length: int = 1000) -> EditBatch:
    n = len(paths)
    return batch(
        EditKind.ADD_OBJECT,
        key=list(paths),
        object_id=[b"o" * 16] * n,
        level=[level] * n,
        length=[length] * n,
        sections=Rows([{1: [0, 10, 1]}] * n),
    )


def run(
    mq: MessageQueue, first: int, rows: int, flat: int, physical: int, /, **changed: Any
) -> dict[str, Any]:
    """A run of records of 100 bytes, back to back."""
    return {
        "topic": mq.topic, "queue_id": mq.queue_id, "generation": 1, "first_queue_offset": first, "rows": rows,
        "queue_offsets": rows, "first_flat_offset": flat, "bytes": rows * 100, "min_store_time": physical,
        "max_store_time": physical + rows, "object": 0, "first_row": 0, "first_block": 0, "block_count": 1,
        "physical_start": physical, "physical_end": physical + rows * 100, **changed,
    }  # fmt: skip


def generation(mq: MessageQueue, first: int, physical: int, number: int = 1, lineage: int = 1) -> EditBatch:
    return batch(
        EditKind.NEW_GENERATION,
        topic=mq.topic,
        queue_id=mq.queue_id,
        generation=number,
        lineage=lineage,
        first_queue_offset=first,
        physical_offset=physical,
    )


def progress(offset: int, crc: int = 7, crc_from: int = 0, lineage: int = 1) -> EditBatch:
    return batch(EditKind.PROGRESS, lineage=lineage, physical_offset=offset, mark_crc=crc, crc_from=crc_from)


def gap(mq: MessageQueue, start: int, end: int, number: int = 1) -> EditBatch:
    return batch(
        EditKind.GAP,
        topic=mq.topic,
        queue_id=mq.queue_id,
        generation=number,
        start=start,
        end=end,
        reason="jump",
    )


def rewind(position: int, *rows: tuple[MessageQueue, int, int, int]) -> EditBatch:
    queues = {
        "topic": [q.topic for q, *_ in rows], "queue_id": [q.queue_id for q, *_ in rows],
        "generation": [g for _, g, _, _ in rows], "max_offset": [m for _, _, m, _ in rows],
        "flat_end": [f for *_, f in rows],
    }  # fmt: skip
    return batch(EditKind.REWIND, lineage=1, physical_offset=position, mark_crc=3, crc_from=0, queues=queues)


def trim(mq: MessageQueue, first: int, number: int = 1) -> EditBatch:
    return batch(
        EditKind.TRIM_QUEUE, topic=mq.topic, queue_id=mq.queue_id, generation=number, first_offset=first
    )


def retire(*paths: str, floor: int | None = None) -> EditBatch:
    return batch(EditKind.RETIRE, keys=Rows([list(paths)]), floor=Rows([floor]))


def deleted(*paths: str) -> EditBatch:
    return batch(EditKind.DELETED, keys=Rows([list(paths)]))


def merge(
    sources: Sequence[tuple[int, int, int, int, int | None]], *targets: dict[str, Any], **changed: Any
) -> EditBatch:
    names = ("commit_seq", "index", "start", "end", "closed_by")
    columns = dict(zip(names, map(list, zip(*sources, strict=True)), strict=True))
    made = [{"closed_by": None, **t} for t in targets]
    rows = {n: [t[n] for t in made] for n in made[0]}
    return batch(EditKind.REPLACE_RUNS, sources=columns, targets={**rows, **changed})


@pytest.fixture
def log() -> Log:
    """Commit 0 opens; commit 1: Q [10, 20) at 0; commit 2: Q [20, 30) at 1000."""
    made = Log()
    made.add(objects("data/a"), generation(Q, 10, 0), run_batch([run(Q, 10, 10, 0, 0)]), progress(1000))
    made.add(objects("data/b"), run_batch([run(Q, 20, 10, 1000, 1000)]), progress(2000))
    return made


# ---- OpenEpoch and the chain


def test_the_first_commit_must_open_an_epoch() -> None:
    commit = Commit(0, 0, ARCHIVE_ID, name(0), bytes(16), WRITER, [])
    with pytest.raises(Corrupt, match="the first commit opens an epoch"):
        apply(MemoryStore(), commit)


def test_an_epoch_is_what_its_open_epoch_says() -> None:
    log = Log()
    log.epoch = 2
    log.add(open_epoch(2, b"x" * 16, 2, host="other", broker_epoch=9, store_time_ms=5), writer_id=b"x" * 16)
    head = log.state.head()
    assert head is not None
    assert (head.epoch, head.writer_id, head.lineage, head.highest_lineage) == (2, b"x" * 16, 2, 2)
    assert (head.host, head.broker_epoch, head.epoch_store_time_ms, head.epoch_seq) == ("other", 9, 5, 1)
    assert head.position() == (1).to_bytes(8, "big") + name(1) + ARCHIVE_ID
    log.refuses("a commit is of the epoch's writer", progress(0, lineage=2))
    log.refuses("epoch in force", progress(0, lineage=2), writer_id=b"x" * 16, epoch=1)


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"lineage": 3}, "lineages count up"),
        ({"lineage": 0}, "lineages count up"),
        ({"epoch": 3}, "epochs count up"),
        ({"writer_id": b"y" * 16}, "writer id is its commit's"),
        ({"required_features": Rows([[1]])}, "required features"),
        ({"broker_epoch": Rows(["x"])}, "broker epoch"),
    ],
)
def test_wrong_claims(changed: dict[str, Any], rule: str) -> None:
    log = Log()
    log.epoch = 2
    log.refuses(rule, open_epoch(**{"epoch": 2, "writer_id": WRITER, "lineage": 1, **changed}))


def test_an_epoch_is_the_next_one() -> None:
    log = Log()
    for log.epoch in (1, 3):
        log.refuses("epochs count up", open_epoch(log.epoch, WRITER, 1))


def test_a_commit_follows_the_head(log: Log) -> None:
    log.refuses("numbered without a hole", progress(2100), seq=log.seq + 1)
    log.refuses("numbered without a hole", progress(2100), seq=log.seq - 1)
    log.refuses("names the one before it", progress(2100), previous_id=name(0))
    log.refuses("of this archive", progress(2100), archive_id=b"?" * 16)


def test_an_epoch_is_opened_alone() -> None:
    log = Log()
    log.epoch = 2
    log.refuses("holds nothing else", open_epoch(2, WRITER, 1), progress(0))


@pytest.mark.parametrize("changed", [{"min_reader": 99}, {"required_features": Rows([["teleport"]])}])
def test_an_archive_of_the_future_is_refused(changed: dict[str, Any]) -> None:
    log = Log()
    log.epoch = 2
    with pytest.raises(Refused) as found:
        apply(log.store, log.commit(open_epoch(2, WRITER, 1, **changed)))
    assert "newer" in (found.value.hint or "")


def test_reserved_kinds_are_refused(log: Log) -> None:
    for kind in (EditKind.BROKER_CONFIG, EditKind.PHYS_MAP):
        with pytest.raises(Refused, match=kind.name):
            apply(log.store, log.commit(EditBatch(kind, {})))


# ---- runs, gaps, generations


def test_what_a_queue_and_its_runs_look_like(log: Log) -> None:
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.generation, queue.min_offset, queue.max_offset, queue.flat_end) == (1, 10, 30, 2000)
    assert (queue.messages, queue.bytes, queue.runs, queue.last_physical_end) == (20, 2000, 2, 2000)
    assert (queue.min_store_time, queue.max_store_time) == (0, 1010)
    first, second = log.state.runs(Q, 1)
    assert (first.id, first.object, first.start, first.end) == (RunId(1, 0), ObjectRef(1, 0), 10, 20)
    assert (second.first_flat_offset, second.flat_end, second.closed_by) == (1000, 2000, None)
    assert [r.id.commit_seq for r in log.state.runs(Q, 1, from_offset=19)] == [1, 2]
    assert [r.id.commit_seq for r in log.state.runs(Q, 1, from_offset=20)] == [2]
    assert list(log.state.runs(Q, 1, from_offset=30)) == []
    assert [r.id for r in log.state.runs_all()] == [RunId(1, 0), RunId(2, 0)]
    found = log.state.object_at("data/a")
    assert found is not None
    assert (found.references, found.level, found.sections) == (1, 0, {1: (0, 10, 1)})
    assert log.state.queue(R) is None


def test_the_violation_names_the_row(log: Log) -> None:
    error = log.refuses(
        "a run starts at its queue's maximum",
        objects("data/c"),
        run_batch([run(Q, 31, 10, 2000, 2000)]),
        progress(3000),
    )
    assert error.fields["queue"] == "orders/0"
    assert (error.fields["commit"], error.fields["expected"], error.fields["found"]) == (3, 30, 31)


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (run(Q, 30, 10, 2001, 2000), "flat offset"),
        (run(Q, 30, 10, 2000, 2000, physical_end=2999), "lie in its physical range"),
        (run(Q, 30, 10, 2000, 2000, generation=2), "current generation"),
        (run(R, 0, 10, 0, 2000), "current generation"),
        (run(Q, 30, 10, 2000, 2000, object=1), "object was added"),
        (run(Q, 30, 10, 2000, 2000, queue_offsets=9), "owns a queue offset"),
        (run(Q, 30, 10, 2000, 2000, min_store_time=9999), "store times are ordered"),
        (run(Q, 30, 10, 2000, 2000, rows=-1), "rows is in range"),
        (run(Q, 2**61, 10, 2000, 2000), "first_queue_offset is in range"),
    ],
)
def test_wrong_runs(log: Log, row: dict[str, Any], rule: str) -> None:
    log.refuses(rule, objects("data/c"), run_batch([row]), progress(9000))


def test_a_flush_ends_in_progress(log: Log) -> None:
    rule = "a flush ends in a Progress"
    log.refuses(rule, objects("data/c"), run_batch([run(Q, 30, 10, 2000, 2000)]))
    log.refuses(rule, objects("data/c"), run_batch([run(Q, 30, 10, 2000, 2000)]), progress(2999))


def test_nothing_is_archived_twice(log: Log) -> None:
    rule = "above what earlier commits archived"
    log.refuses(
        rule, objects("data/c"), generation(R, 0, 2000), run_batch([run(R, 0, 1, 0, 1900)]), progress(3000)
    )


def test_runs_of_one_queue_in_one_batch(log: Log) -> None:
    rows = [run(Q, 30, 2, 2000, 2000), run(R, 5, 1, 0, 2200), run(Q, 32, 3, 2200, 2300)]
    log.add(objects("data/c"), generation(R, 5, 2200), run_batch(rows), progress(2600))
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.max_offset, queue.flat_end, queue.runs, queue.messages) == (35, 2500, 4, 25)
    assert [r.id for r in log.state.runs(Q, 1)][2:] == [RunId(3, 0), RunId(3, 2)]
    wrong = [run(Q, 35, 2, 2500, 2600), run(Q, 37, 2, 2700, 2799)]
    log.refuses("physical ranges ascend", objects("data/d"), run_batch(wrong), progress(9000))
    wrong = [run(Q, 35, 2, 2500, 2600), run(R, 6, 1, 100, 2800), run(Q, 38, 3, 2700, 2900)]
    error = log.refuses("queue's maximum", objects("data/d"), run_batch(wrong), progress(9000))
    assert (error.fields["expected"], error.fields["found"]) == (37, 38)


def test_a_gap_moves_the_maximum(log: Log) -> None:
    log.add(objects("data/c"), gap(Q, 30, 40), run_batch([run(Q, 40, 1, 2000, 2000)]), progress(2100))
    (found,) = log.state.gaps(Q)
    assert (found.start, found.end, found.reason, found.commit_seq) == (30, 40, "jump", 3)
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.max_offset, queue.messages) == (41, 21)
    log.refuses("a gap starts at its queue's maximum", gap(Q, 40, 50))
    log.refuses("a gap starts at its queue's maximum", gap(Q, 42, 50))
    log.refuses("a gap has queue offsets", gap(Q, 41, 41))


def test_the_first_run_sets_the_minimum() -> None:
    log = Log()
    edits = (
        objects("data/a"),
        generation(Q, 0, 0),
        gap(Q, 0, 7),
        run_batch([run(Q, 7, 1, 0, 0)]),
        progress(100),
    )
    log.add(*edits)
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (7, 8)


def test_a_generation_begins_with_a_run(log: Log) -> None:
    log.refuses("a generation begins with a run", generation(R, 0, 2000))
    twice = (generation(R, 0, 2000), generation(R, 0, 2000, number=2))
    log.refuses(
        "a generation begins with a run", objects("data/c"), *twice, run_batch([run(R, 0, 1, 0, 2000)])
    )
    log.refuses("generations count up", generation(Q, 0, 2000, number=3))
    log.refuses("epoch's lineage", generation(R, 0, 2000, lineage=2))
    log.refuses("higher physical offset", generation(Q, 0, 1999, number=2))


def test_a_new_generation_ends_the_one_before(log: Log) -> None:
    row = run(Q, 0, 3, 0, 2000, generation=2)
    log.add(objects("data/c"), generation(Q, 0, 2000, number=2), run_batch([row]), progress(2300))
    old, new = log.state.generations(Q)
    assert (old.generation, old.current, old.max_offset) == (1, False, 30)
    assert (new.generation, new.current, new.min_offset, new.max_offset, new.flat_end) == (2, True, 0, 3, 300)
    assert [r.start for r in log.state.runs(Q, 1)] == [10, 20]
    log.refuses(
        "current generation", objects("data/d"), run_batch([run(Q, 30, 1, 2000, 2300)]), progress(3000)
    )


def test_a_new_lineage_needs_new_generations(log: Log) -> None:
    log.epoch = 2
    log.add(open_epoch(2, WRITER, 2))
    row = run(Q, 30, 1, 2000, 2000)
    log.refuses("epoch's lineage", objects("data/c"), run_batch([row]), progress(3000, lineage=2))
    log.refuses("an epoch writes its own lineage", progress(3000))
    row = run(Q, 0, 1, 0, 0, generation=2)
    edits = (
        objects("data/c"),
        generation(Q, 0, 0, number=2, lineage=2),
        run_batch([row]),
        progress(100, lineage=2),
    )
    log.add(*edits)
    head = log.state.head()
    assert head is not None
    assert {n: p.physical_offset for n, p in head.progress.items()} == {1: 2000, 2: 100}


# ---- Progress, marks, PhysGap


def test_progress_is_monotone(log: Log) -> None:
    log.add(progress(2000))
    log.refuses("progress never goes back", progress(1999))
    log.refuses("begins at or below", progress(3000, crc_from=3001))


def test_marks_are_kept_newest_first_and_one_per_file() -> None:
    log = Log()
    count, per_file = KEPT_MARKS + 904, 4
    offsets = np.arange(1, count + 1) * 10
    log.add(
        batch(
            EditKind.PROGRESS,
            lineage=[1] * count,
            physical_offset=offsets,
            mark_crc=offsets % 1000,
            crc_from=(offsets - 1) // (10 * per_file) * 10 * per_file,
        )
    )
    marks = list(log.state.marks(1))
    assert marks[0].physical_offset == count * 10
    assert [m.physical_offset for m in marks[:KEPT_MARKS]] == offsets[::-1][:KEPT_MARKS].tolist()
    files = [m.physical_offset for m in file_marks(log.state, 1)]
    ends = list(range(count * 10, 0, -10 * per_file))[:KEPT_FILES]
    assert files == ends
    assert [m.physical_offset for m in marks[KEPT_MARKS:]] == [e for e in ends if e < offsets[-KEPT_MARKS]]
    index = log.state.mark_index(1)
    assert (index.next_mark - index.first_mark, index.next_file - index.first_file) == (
        KEPT_MARKS,
        KEPT_FILES,
    )


def test_a_rewind_takes_marks_and_gaps_back(log: Log) -> None:
    log.add(
        batch(EditKind.PHYS_GAP, lineage=1, start=2000, end=2500, reason="deleted"),
        batch(
            EditKind.PROGRESS,
            lineage=[1] * 3,
            physical_offset=[2600, 3000, 4000],
            mark_crc=[1, 2, 3],
            crc_from=[0, 0, 3000],
        ),
    )
    assert [m.physical_offset for m in file_marks(log.state, 1)] == [4000, 3000]
    log.add(rewind(2300))
    assert [m.physical_offset for m in log.state.marks(1)] == [2300, 2000, 1000]
    assert file_marks(log.state, 1) == [Progress(1, 2300, 3, 0)]
    (found,) = log.state.phys_gaps(1)
    assert (found.start, found.end, found.reason) == (2000, 2300, "deleted")
    head = log.state.head()
    assert head is not None
    assert head.progress[1] == Progress(1, 2300, 3, 0)
    log.add(progress(2600, crc=9))
    log.refuses("a Rewind goes back", rewind(2601))


def test_physical_gaps_ascend(log: Log) -> None:
    def lost(start: int, end: int) -> EditBatch:
        return batch(EditKind.PHYS_GAP, lineage=1, start=start, end=end, reason="x")

    log.refuses("above what was archived", lost(1999, 3000))
    log.refuses("has bytes", lost(3000, 3000))
    log.add(lost(2000, 3000))
    log.refuses("above what was archived", lost(2999, 4000))


# ---- Rewind


def test_a_rewind_closes_runs_whole_and_in_part(log: Log) -> None:
    log.add(rewind(500, (Q, 1, 15, 500)))
    (kept,) = log.state.runs(Q, 1)
    assert (kept.id, kept.start, kept.end, kept.flat_end, kept.physical_end) == (
        RunId(1, 0),
        10,
        15,
        500,
        500,
    )
    parts = [(p.id, p.start, p.end, p.closed_by) for p in log.state.closed_parts(Q)]
    assert parts == [(RunId(1, 0), 15, 20, 3), (RunId(2, 0), 20, 30, 3)]
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.max_offset, queue.flat_end, queue.messages, queue.bytes, queue.runs) == (15, 500, 5, 500, 1)
    assert (queue.min_store_time, queue.max_store_time) == (0, 10)
    assert [o.references for o in log.state.objects()] == [2, 1]
    log.add(objects("data/c"), run_batch([run(Q, 15, 2, 500, 500)]), progress(700))
    log.refuses("not retired", retire("data/b"))


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (rewind(500, (Q, 1, 10, 500)), "maximum fits"),
        (rewind(500, (Q, 1, 20, 500)), "maximum fits"),
        (rewind(500, (Q, 1, 15, 0)), "flat end fits"),
        (rewind(1000, (Q, 1, 21, 1000)), "maximum fits"),
        (rewind(1000, (Q, 1, 20, 999)), "flat end fits"),
        (rewind(500), "names every generation"),
        (rewind(500, (Q, 2, 15, 500)), "generations that exist"),
        (rewind(500, (R, 1, 15, 500)), "generations that exist"),
        (rewind(2000, (Q, 1, 30, 2000)), "records above it"),
        (rewind(500, (Q, 1, 15, 500), (Q, 1, 15, 500)), "once"),
        (batch(EditKind.REWIND, lineage=1, physical_offset=5, mark_crc=0, crc_from=0, queues=Rows([7])), "columns"),
        (
            batch(EditKind.REWIND, lineage=1, physical_offset=5, mark_crc=0, crc_from=0, queues={
                "topic": ["a"], "queue_id": [0], "generation": [1], "max_offset": [None], "flat_end": [0]}),
            "in range",
        ),
    ],
)  # fmt: skip
def test_wrong_rewinds(log: Log, edit: EditBatch, rule: str) -> None:
    log.refuses(rule, edit)


def test_a_rewind_that_empties_a_generation_brings_the_one_before_back(log: Log) -> None:
    row = run(Q, 0, 3, 0, 2000, generation=2)
    log.add(objects("data/c"), generation(Q, 0, 2000, number=2), run_batch([row]), progress(2300))
    log.add(rewind(1500, (Q, 2, 0, 0), (Q, 1, 25, 1500)))
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.generation, queue.highest_generation, queue.max_offset) == (1, 2, 25)
    old, emptied = log.state.generations(Q)
    assert (old.current, emptied.generation, emptied.current, emptied.runs) == (True, 2, False, 0)
    log.refuses("count up", generation(Q, 0, 1500, number=2))
    row = run(Q, 25, 1, 1500, 1500)
    log.add(objects("data/d"), run_batch([row]), progress(1600))


def test_a_rewind_to_nothing_leaves_no_generation_current(log: Log) -> None:
    log.add(rewind(0, (Q, 1, 10, 0)))
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.generation, queue.lineage, queue.highest_generation, queue.max_offset) == (None, None, 1, 0)
    table, known = log.state.queue_table(["orders", "orders"], np.array([0, 1]))
    assert known.tolist() == [True, False]
    assert table["generation"].tolist() == [0, 0]
    assert table["highest_generation"].tolist() == [1, 0]
    assert [p.end - p.start for p in log.state.closed_parts()] == [10, 10]
    row = run(Q, 0, 1, 0, 0, generation=2)
    log.add(objects("data/c"), generation(Q, 0, 0, number=2), run_batch([row]), progress(100))


def test_a_second_rewind_above_a_partial_cut_leaves_the_run_alone(log: Log) -> None:
    log.add(rewind(500, (Q, 1, 15, 500)))
    log.add(objects("data/c"), generation(R, 0, 600), run_batch([run(R, 0, 2, 0, 600)]), progress(900))
    log.add(rewind(700, (R, 1, 1, 100)))
    assert [(r.start, r.end) for r in log.state.runs(Q, 1)] == [(10, 15)]


# ---- TrimQueue


def test_trimming_moves_the_minimum(log: Log) -> None:
    log.add(trim(Q, 15))
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.min_offset, queue.messages, queue.bytes, queue.runs) == (15, 15, 2000, 2)
    assert [(r.start, r.end) for r in log.state.runs(Q, 1)] == [(15, 20), (20, 30)]
    assert [r.start for r in log.state.runs(Q, 1, from_offset=16)] == [15, 20]
    log.refuses("at most", trim(Q, 14))
    log.refuses("at most", trim(Q, 31))
    log.refuses("exists", trim(R, 0))
    log.add(trim(Q, 30))
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset, queue.runs, queue.min_store_time) == (30, 30, 0, None)
    assert [o.references for o in log.state.objects()] == [0, 0]


def test_trimming_takes_closed_parts_and_gaps_too(log: Log) -> None:
    log.add(rewind(500, (Q, 1, 15, 500)))
    log.add(objects("data/c"), gap(Q, 15, 40), run_batch([run(Q, 40, 2, 500, 500)]), progress(900))
    log.add(trim(Q, 25))
    assert [(p.start, p.end) for p in log.state.closed_parts()] == [(25, 30)]
    assert [(g.start, g.end) for g in log.state.gaps()] == [(25, 40)]
    log.add(trim(Q, 40))
    assert (list(log.state.closed_parts()), list(log.state.gaps())) == ([], [])
    assert [o.references for o in log.state.objects()] == [0, 0, 1]


def test_an_emptied_generation_can_be_trimmed_to_its_closed_end(log: Log) -> None:
    log.add(rewind(0, (Q, 1, 10, 0)))
    log.refuses("at most", trim(Q, 31))
    log.add(trim(Q, 30))
    assert list(log.state.closed_parts()) == []


# ---- ReplaceRuns


def test_merged_runs_serve_the_same_offsets(log: Log) -> None:
    target = run(Q, 10, 20, 0, 0, max_store_time=1010)
    log.add(objects("data/m", level=1), merge([(1, 0, 10, 20, None), (2, 0, 20, 30, None)], target))
    (found,) = log.state.runs(Q, 1)
    assert (found.id, found.object, found.start, found.end, found.lineage) == (
        RunId(3, 0),
        ObjectRef(3, 0),
        10,
        30,
        1,
    )
    assert [o.references for o in log.state.objects()] == [0, 0, 1]
    queue = log.state.queue(Q)
    assert queue is not None
    assert (queue.runs, queue.messages, queue.bytes) == (1, 20, 2000)
    log.add(retire("data/a", "data/b"))
    assert [r.path for r in log.state.retired()] == ["data/a", "data/b"]


@pytest.mark.parametrize(
    ("sources", "target", "rule"),
    [
        ([(1, 0, 10, 20, None)], run(Q, 10, 20, 0, 0), "cover exactly"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 9, 0, 0), "cover exactly"),
        ([(1, 0, 10, 19, None)], run(Q, 10, 9, 0, 0), "live bounds"),
        ([(1, 0, 10, 20, 2)], run(Q, 10, 10, 0, 0), "every source"),
        ([(9, 0, 10, 20, None)], run(Q, 10, 10, 0, 0), "every source"),
        ([(1, 0, 10, 20, None)], run(R, 10, 10, 0, 0), "every source"),
        ([(1, 0, 10, 20, None)] * 2, run(Q, 10, 10, 0, 0), "named once"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 5, 0), "flat offsets"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, bytes=999), "flat offsets"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, rows=9), "sources' records"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, max_store_time=99), "store times"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, physical_end=2000), "physical range"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, physical_end=999), "a target begins and ends where"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, physical_start=1), "a target begins and ends where"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, min_store_time=1), "whole runs keep their store times"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, max_store_time=9), "whole runs keep their store times"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, object=1), "object was added"),
        ([(1, 0, 10, 20, None)], run(Q, 10, 10, 0, 0, topic=5), "topic is text"),
    ],
)
def test_wrong_replacements(log: Log, sources: list[Any], target: dict[str, Any], rule: str) -> None:
    log.refuses(rule, objects("data/m", level=1), merge(sources, target))


def test_each_target_keeps_the_bounds_of_its_own_sources(log: Log) -> None:
    """Two targets: what a later ``Rewind`` or a search by time relies on is said of each, not of both together."""
    sources = [(1, 0, 10, 20, None), (2, 0, 20, 30, None)]
    low, high = run(Q, 10, 10, 0, 0), run(Q, 20, 10, 1000, 1000)
    added = objects("data/m", level=1)
    log.refuses("physical range", added, merge(sources, {**low, "physical_end": 2000}, high))
    log.refuses("physical range", added, merge(sources, low, {**high, "physical_start": 0}))
    log.refuses("store times", added, merge(sources, {**low, "max_store_time": 1010}, high))
    log.add(added, merge(sources, low, high))
    assert [(r.physical_start, r.physical_end) for r in log.state.runs(Q, 1)] == [(0, 1000), (1000, 2000)]


def test_parts_of_one_run_lie_one_behind_the_other(log: Log) -> None:
    left, right = run(Q, 10, 4, 0, 0), run(Q, 14, 6, 400, 400, min_store_time=4, max_store_time=10)
    added = objects("data/m", level=1)
    crossing = [{**left, "physical_end": 500}, right]
    log.refuses("physical ranges ascend", added, merge([(1, 0, 10, 20, None)], *crossing))
    log.add(added, merge([(1, 0, 10, 20, None)], left, right))


def test_what_was_cut_may_be_bounded_more_tightly(log: Log) -> None:
    """Bounds of a run that was cut are those of the whole run; a target's are of the records that are left."""
    log.add(trim(Q, 15))
    target = run(Q, 15, 5, 500, 500, min_store_time=5, max_store_time=9, physical_end=1000)
    log.add(objects("data/m", level=1), merge([(1, 0, 15, 20, None)], target))
    assert [(r.start, r.physical_start) for r in log.state.runs(Q, 1)] == [(15, 500), (20, 1000)]


def test_closed_parts_are_merged_as_closed_parts(log: Log) -> None:
    log.add(rewind(500, (Q, 1, 15, 500)))
    sources = [(1, 0, 15, 20, 3), (2, 0, 20, 30, 3)]
    target = run(Q, 15, 15, 500, 500, closed_by=3, min_store_time=0, max_store_time=1010)
    log.add(objects("segment/m", level=2), merge(sources, target))
    (part,) = log.state.closed_parts(Q)
    assert (part.id, part.start, part.end, part.closed_by) == (RunId(4, 0), 15, 30, 3)
    assert [o.references for o in log.state.objects()] == [1, 0, 1]
    assert [(r.start, r.end) for r in log.state.runs(Q, 1)] == [(10, 15)]


# ---- objects, Retire, Deleted


def test_inline_data_is_named_by_its_commit() -> None:
    log = Log()
    edits = (generation(Q, 0, 0), run_batch([run(Q, 0, 1, 0, 0)]), progress(100))
    inline = replace(objects(""), columns={**objects("").columns, "object_id": [name(1)]})
    log.refuses("named by its commit", objects(""), *edits, inline_length=1000)
    log.refuses("length stated", inline, *edits, inline_length=999)
    log.add(inline, *edits, inline_length=1000)
    found = log.state.object(ObjectRef(1, 0))
    assert found is not None
    assert (found.path, found.object_id, found.references) == ("", name(1), 1)
    log.add(trim(Q, 1))
    assert [o.references for o in log.state.objects()] == [0]
    log.add(retire(floor=2))
    assert list(log.state.objects()) == []


def test_retired_and_deleted(log: Log) -> None:
    log.refuses("an object that runs lie in", retire("data/a"))
    log.refuses("never retired", retire("commit/0/1"))
    log.refuses("never retired", retire("archive.json"))
    log.refuses("never retired", retire(f"datakey/{1:010d}-{UUID(bytes=bytes(16))}"))
    log.refuses("only retired keys", deleted("data/a"))
    log.add(trim(Q, 20))
    log.add(retire("data/a", "shard/orphan"))
    found = log.state.object_at("data/a")
    assert found is not None
    assert found.retired_by == 4
    assert [(r.path, r.commit_seq, r.object) for r in log.state.retired()] == [
        ("data/a", 4, ObjectRef(1, 0)),
        ("shard/orphan", 4, None),
    ]
    log.refuses("retired once", retire("data/a"))
    log.refuses("a retired key is never used again", objects("shard/orphan"))
    log.refuses("never used again", objects("data/a"))
    log.refuses("never used again", objects("data/b"))
    log.add(deleted("data/a", "shard/orphan"))
    assert (list(log.state.retired()), log.state.object_at("data/a")) == ([], None)


def test_an_object_is_made_in_the_epoch_of_its_commit(log: Log) -> None:
    """DESIGN.md, "Ageing", D8: what a later epoch retired, deleted and forgot cannot come back."""
    now, before = (f"data/{epoch:010d}-{UUID(bytes=bytes(16))}" for epoch in (2, 1))
    log.epoch = 2
    log.add(open_epoch(2, WRITER, 1))
    log.add(retire(before))
    log.add(deleted(before))
    log.refuses("made in its commit's epoch", objects(before))
    sealed = build(segment_key("T", date(2024, 1, 1), 1, bytes(16)))
    log.refuses("made in its commit's epoch", objects(sealed, level=2))
    log.add(objects(now))


def test_nothing_lies_in_a_retired_object(log: Log) -> None:
    edits = (run_batch([run(Q, 30, 1, 2000, 2000)]), progress(2100))
    log.refuses("a retired object is never", objects("data/c"), retire("data/c"), *edits)


def test_a_key_is_deleted_by_a_later_commit(log: Log) -> None:
    log.refuses("by a later commit", retire("shard/orphan"), deleted("shard/orphan"))


def test_what_stands_for_commits_and_what_opening_needs_is_not_retired(log: Log) -> None:
    checkpoint, stand_in = "checkpoint/{:020d}".format, f"repair/{1:020d}-{UUID(bytes=bytes(16))}"
    log.refuses("never retired", retire(stand_in))
    log.refuses("below the floor", retire(checkpoint(0)))
    log.add(retire(floor=2))
    log.refuses("below the floor", retire(checkpoint(2)))
    log.refuses("below the floor", retire(checkpoint(3)))
    log.add(retire(checkpoint(1), checkpoint(2), floor=3))
    assert [r.path for r in log.state.retired()] == [checkpoint(1), checkpoint(2)]


def test_the_floor_never_goes_down(log: Log) -> None:
    log.add(retire(floor=2))
    log.refuses("the floor never goes down", retire(floor=1))
    log.refuses("the floor never goes down", retire(floor=5))
    log.refuses("the floor never goes down", batch(EditKind.RETIRE, keys=Rows([[]]), floor=Rows(["2"])))
    log.refuses("a list of text", batch(EditKind.RETIRE, keys=Rows([5]), floor=Rows([None])))
    log.add(retire(floor=4))
    head = log.state.head()
    assert head is not None
    assert (head.floor, list(log.state.floors())) == (4, [(2, 3), (4, 4)])


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (objects("data/a"), "never used again"),
        (objects("segment/x"), "says its level"),
        (objects("data/x", level=2), "says its level"),
        (objects("data/x", length=0), "has bytes"),
        (objects("data/x", length=5), "sections"),
        (
            replace(objects("data/x"), columns={**objects("data/x").columns, "sections": [{1: [0, 1]}]}),
            "sections",
        ),
        (replace(objects("data/x"), columns={**objects("data/x").columns, "sections": [None]}), "sections"),
    ],
)
def test_wrong_objects(log: Log, edit: EditBatch, rule: str) -> None:
    log.refuses(rule, edit)


# ---- listing


def test_queues_are_listed_by_topic_and_paged() -> None:
    log = Log()
    names = [MessageQueue(t, q) for t in ("a", "a\0b", "ab", "%RETRY%é", "b") for q in (0, 1, 300)]
    log.add(
        objects("data/a"),
        *(generation(mq, 0, 0) for mq in names),
        run_batch([run(mq, 0, 1, 0, i * 100) for i, mq in enumerate(names)]),
        progress(10_000),
    )
    assert {q.queue for q in log.state.queues()} == set(names)
    assert [q.queue for q in log.state.queues("a")] == names[:3]
    assert [q.queue for q in log.state.queues("a\0b")] == names[3:6]
    assert [q.queue.queue_id for q in log.state.queues("a", after=MessageQueue("a", 0))] == [1, 300]
    listed = [q.queue for q in log.state.queues()]
    paged, after = [], None
    while page := [q.queue for q, _ in zip(log.state.queues(after=after), range(4), strict=False)]:
        paged, after = paged + page, page[-1]
    assert paged == listed


def test_dispatch_offsets_lie_beside_the_fold(log: Log) -> None:
    log.store.put_many(dispatch_pairs(["orders", "other"], np.array([0, 7]), np.array([35, 2**40])))
    offsets, known = dispatch_offsets(log.state.view, ["other", "orders", "none"], np.array([7, 0, 0]))
    assert offsets.tolist() == [2**40, 35, 0]
    assert known.tolist() == [True, True, False]
    noted = [key for key, _ in log.state.view.iterate(b"") if key[:1] not in FOLD_PREFIXES]
    assert max(noted) < min(FOLD_PREFIXES), (
        "a walk that ends before a note would read its block, which may be large"
    )


def test_what_is_in_the_fold_was_taken_in(log: Log) -> None:
    """The flush that is on its way is kept beside it, in the place of the one before."""
    assert log.state.queue(Q).max_offset == 30  # type: ignore[union-attr]
    for under_way, expected in ((35, 35), (7, 30)):
        log.store.put_many(dispatch_pairs(["other"], np.array([1]), np.array([3])))
        log.store.put_many(dispatch_pairs([Q.topic], np.array([Q.queue_id]), np.array([under_way])))
        offsets, known = dispatch_offsets(log.state.view, [Q.topic, "other"], np.array([Q.queue_id, 1]))
        assert (offsets.tolist(), known.tolist()) == ([expected, 0], [True, False])
