"""Commits of which nothing is left, edits nor messages: what they held becomes a gap, and everything else stays as it was."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, Assembly, AtOnce, assemble, live_rows, memory, one_after_another
from tests.kit.histories import History, store_changes
from tests.kit.pipeline import INNER_BATCH, PREPARED, Crafted
from tests.kit.readstore import READER, reader_follower
from tiered.archive.fold.apply import apply
from tiered.archive.read.find import find_identity
from tiered.archive.read.flatfile import RunReader
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.archive.state.values import LOST, RunState
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.format.edits import Commit, EditBatch, EditKind, batch
from tiered.errors import Corrupt
from tiered.fetch.pull import Pull
from tiered.metadata.memory import MemoryStore
from tiered.metrics import Metrics
from tiered.model import GetMessageStatus, MessageQueue
from tiered.opening.lineage import Relation
from tiered.repair.behind import look_behind
from tiered.repair.infer import lose
from tiered.repair.mend import Mender
from tiered.repair.step import Step
from tiered.settings import MIB, Settings
from tiered.store import MessageStore

Row = tuple[MessageQueue, int, int, bytes]
ORDERS = MessageQueue("Orders", 0)


class Scene:
    """One daemon's flushes, each inside its commit, with everything that may come behind a lost one."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock(1_700_000_060_000)
        self.store = memory(self.clock)
        self.broker = Crafted(directory / "store", file_bytes=1 << 17)
        self.daemon = self.start(1)
        self.flushes: list[int] = []
        self.flush(("Orders", 0), ("Orders", 1), ("Orders", 2))
        self.flush(("Orders", 0), ("Orders", 1), ("Late", 0), prepared=True)
        self.flush(("Orders", 1), ("New", 0), ("Batch", 0), prepared=True)
        self.flush(("Orders", 0), ("New", 0), ("Batch", 0), ("Again", 0))
        self.broker.following["Again", 0] = 0
        self.flush(("Again", 0), ("Once", 0), ("Orders", 2), prepared=True)
        self.before_restart = self.flush(("Again", 0), ("Orders", 0))
        self.restart(2)
        self.flush(("Orders", 0), ("Orders", 1), ("Late", 0), ("New", 0))
        self.flush(("Orders", 0), ("Orders", 1), ("Short", 0))
        self.flush(("Orders", 0), ("Short", 0))
        self.broker.crash(self.broker.sent[-7][0].physical_offset)
        self.broker.following["Batch", 0] = 12  # of which none was lost
        self.broker.send(body=b"after the loss")
        self.restart(3)
        self.flush(("Orders", 0), ("Short", 0), ("Batch", 0))
        self.flush(*((topic, 0) for topic in ("Orders", "Late", "New", "Batch", "Again", "Short")))
        self.daemon.close()
        self.bytes = {s.key: bytes(self.store.get(s.key).data) for s in self.store.list(KEYS.root)}
        self.rows = self.read()

    def start(self, seed: int) -> Assembly:
        return assemble(self.broker.store, self.store, self.clock, seed=seed)

    def elsewhere(self, directory: Path) -> tuple[Crafted, Assembly]:
        """A copy of the broker, and a daemon without any local state."""
        shutil.copytree(self.broker.directory, directory / "commitlog")
        broker = deepcopy(self.broker)
        broker.store = directory
        return broker, assemble(directory, self.store, self.clock, seed=60)

    def restart(self, seed: int) -> None:
        self.daemon.close()
        self.daemon = self.start(seed)

    def flush(self, *queues: tuple[str, int], prepared: bool = False) -> int:
        for number, (topic, queue_id) in enumerate(queues * 2):
            batch = {"sys_flag": INNER_BATCH, "properties": {"INNER_NUM": "3"}} if topic == "Batch" else {}
            self.broker.send(topic, queue_id, b"%d-%d" % (len(self.broker.sent), number) * 9, **batch)
        if prepared:
            self.broker.send(body=b"half", sys_flag=PREPARED)
        self.daemon.settle()
        head = self.daemon.state.head()
        assert head is not None
        self.flushes.append(head.seq)
        return head.seq

    def fold(self) -> View:
        return ArchiveReader(self.store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()

    def read(self, archive: View | None = None) -> dict[int, list[Row]]:
        """Every row, live or closed, by the commit that it came with."""
        archive = archive or self.fold()
        reader, found = RunReader(archive.state, archive.objects), defaultdict(list)
        runs: list[RunState] = [*archive.state.runs_all(), *archive.state.closed_parts()]
        for run in runs:
            for stretch in reader.stretches(run, run.start, run.end):
                found[run.id.commit_seq] += [
                    (run.queue, run.generation, int(offset), bytes(stretch.record(i)))
                    for i, offset in enumerate(stretch.queue_offsets)
                ]
        return dict(found)

    def lose(self, *numbers: int, how: str = "garbage") -> None:
        for seq in numbers:
            if how == "removed":
                self.store.delete(KEYS.commit(seq))
            else:
                self.store.put(KEYS.commit(seq), [self.bytes[KEYS.commit(seq)][:90]], create_only=False)

    def restore(self) -> None:
        for stored in list(self.store.list(KEYS.root)):
            self.store.delete(stored.key)
        for key, whole in self.bytes.items():
            self.store.put(key, [whole])

    def plan(self) -> tuple[Mender, list[Step]]:
        mender = Mender(
            self.store, KEYS, find_identity(self.store, KEYS), None, lambda n: b"r" * n, table_cache_bytes=MIB
        )
        return mender, mender.plan()

    def repair(self) -> list[Step]:
        mender, steps = self.plan()
        mender.mend(steps)
        return steps


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"))


@pytest.fixture
def scene(made: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    one_after_another(monkeypatch)
    made.restore()
    yield made
    made.restore()


def lost_offsets(archive: View) -> set[tuple[MessageQueue, int, int]]:
    return {
        (gap.queue, gap.generation, offset)
        for gap in archive.state.gaps()
        for offset in range(gap.start, gap.end)
        if gap.reason == LOST
    }


def check(scene: Scene, *lost: int) -> None:
    """All rows but those of the lost commits are there, byte for byte; a gap is where one of those was, and nowhere else."""
    archive = scene.fold()
    assert scene.read(archive) == {seq: rows for seq, rows in scene.rows.items() if seq not in lost}, lost
    gone: set[tuple[MessageQueue, int, int]] = set()
    for seq in lost:
        for queue, generation, offset, _ in scene.rows.get(seq, []):
            owned = 3 if queue.topic == "Batch" else 1
            gone |= {(queue, generation, offset + i) for i in range(owned)}
    ends = {
        (g.queue, g.generation): g.max_offset
        for q in archive.state.queues()
        for g in archive.state.generations(q.queue)
    }
    known = {row for row in gone if row[2] < ends.get(row[:2], 0)}
    live = live_rows(archive.state, archive.objects)
    kept = {(queue, generation, offset) for queue, rows in live.items() for generation, offset, _ in rows}
    assert lost_offsets(archive) == known - kept, lost
    report = Verifier(archive).run(deep=True)
    assert report.damage == []
    assert report.repaired == len(lost)
    assert report.physical_gaps >= 1


@pytest.mark.parametrize("how", ["garbage", "removed"])
def test_every_flush_that_is_gone_becomes_a_gap_and_nothing_else_changes(scene: Scene, how: str) -> None:
    """In the middle, with several queues, new queues and generations, batches, transactions, an epoch or a rewind behind it."""
    cut = scene.flushes[-3]  # all of it was cut off by the rewind behind it: nothing is left to tell of it
    for seq in (seq for seq in scene.flushes[:-1] if seq != cut):
        scene.restore()
        scene.lose(seq, how=how)
        before = {s.key for s in scene.store.list(KEYS.root)}
        (step,) = scene.plan()[1]
        assert {s.key for s in scene.store.list(KEYS.root)} == before, "a plan writes nothing"
        assert step.put is not None
        assert step.put.startswith(KEYS.repair_prefix(seq)), (
            "the commit's own key stays free for a copy of it"
        )
        assert step.lost[0].queue is None, "the part of the log first"
        told = {(x.queue, x.generation, o) for x in step.lost if x.queue for o in range(x.start, x.end)}
        scene.repair()
        check(scene, seq)
        assert lost_offsets(scene.fold()) <= told
        assert scene.plan()[1] == [], "and nothing is left to do"
        scene.store.put(KEYS.commit(seq), [scene.bytes[KEYS.commit(seq)]], create_only=False)
        assert scene.read() == scene.rows, "a copy of the commit counts again"


def test_several_are_gone(scene: Scene) -> None:
    for lost in (
        (scene.flushes[1], scene.flushes[2]),
        (scene.flushes[1], scene.before_restart + 1),
        scene.flushes[1:4:2],
    ):
        scene.restore()
        scene.lose(*lost)
        assert all(step.put for step in scene.repair())
        check(scene, *lost)


def test_readers_are_told_of_the_gap_and_go_on_behind_it(scene: Scene) -> None:
    seq = scene.flushes[3]
    scene.lose(seq)
    scene.repair()
    first = min(row[2] for row in scene.rows[seq] if row[0] == ORDERS)
    follower = reader_follower(scene.store, scene.clock, Metrics())
    store = MessageStore(Settings(), follower, AtOnce(), scene.clock, Metrics())
    follower.open()
    answer = store.get_message(Pull(READER, "Orders", 0, first, 32))
    after = first + sum(row[0] == ORDERS for row in scene.rows[seq])
    assert (answer.status, answer.next_begin_offset) == (GetMessageStatus.OFFSET_FOUND_NULL, after)
    assert store.get_message(Pull(READER, "Orders", 0, after, 32)).status is GetMessageStatus.FOUND
    store.close()


def test_a_daemon_goes_on_and_is_not_confused_by_what_the_broker_still_has(
    scene: Scene, tmp_path: Path
) -> None:
    lost = scene.flushes[-4]
    scene.lose(lost)
    scene.repair()
    held = scene.read()
    broker, daemon = scene.elsewhere(tmp_path / "store")
    assert daemon.opened.outcome.relation is Relation.SAME, (
        "what the archive lost is no tail that the broker lost"
    )
    assert not daemon.opening.gap_was_rewritten()
    broker.send("Orders", 0, b"one more")
    daemon.settle()
    assert live_rows(daemon.state, daemon.objects)[ORDERS][-1][2] == broker.sent[-1][1]
    daemon.close()
    now = scene.read()
    assert {seq: now[seq] for seq in held} == held
    assert Verifier(scene.fold()).run(deep=True).damage == []


def test_the_newest_is_gone_and_archived_anew(scene: Scene, tmp_path: Path) -> None:
    """Nothing behind it says what it held: the archive ends before it, and the daemon archives what the broker still has."""
    scene.lose(scene.flushes[-1])
    (step,) = scene.repair()
    assert "archives anew" in step.advice
    assert scene.read() == {seq: rows for seq, rows in scene.rows.items() if seq != scene.flushes[-1]}
    _, daemon = scene.elsewhere(tmp_path / "store")
    daemon.settle()
    daemon.close()
    anew = [rows for seq, rows in scene.read().items() if seq > scene.flushes[-1]]
    assert sorted(row for rows in anew for row in rows) == sorted(scene.rows[scene.flushes[-1]])


def test_what_was_cut_off_behind_leaves_no_gap(scene: Scene) -> None:
    """The broker lost it, too: rows that were closed at once are missing, and said to be perhaps."""
    lost = scene.flushes[-3]
    scene.lose(lost, how="removed")
    (step,) = scene.repair()
    assert step.put is not None
    assert step.put.startswith(KEYS.repair_prefix(lost))
    assert "lost as well" in step.advice
    assert scene.read() == {seq: rows for seq, rows in scene.rows.items() if seq != lost}
    assert lost_offsets(scene.fold()) == set()


def test_what_cannot_be_told_is_said(scene: Scene) -> None:
    """The first commit alone: not even the epoch it opened is known."""
    scene.lose(0)
    for seq in range(1, scene.flushes[-1] + 1):
        scene.store.delete(KEYS.commit(seq))
    (step,) = scene.plan()[1]
    assert (step.source, step.put) == (None, None)
    assert "versions or a copy" in step.advice


class Untrimmed(History):
    """What daemons write today: flushes, rewinds, epochs."""

    def step(self) -> Commit:
        while True:
            edits: list[EditBatch] | None = self.chance.choices(
                [self.flush, self.rewind, self.claim], (10, 2, 1)
            )[0]()
            if edits is not None:
                return self.add(edits)


def runs_but(state: ArchiveState, seq: int) -> set[RunState]:
    runs = (*state.runs_all(), *state.closed_parts())
    bounds = {"physical_start": 0, "physical_end": 0}  # of a run that was cut they depend on the cuts before
    return {replace(run, **bounds) for run in runs if run.id.commit_seq != seq}


@pytest.mark.depends_only_on_imports
@pytest.mark.history
@pytest.mark.parametrize("seed", [0, 1, 5, 7])
def test_random_histories_fold_as_before_without_any_one_flush(seed: int) -> None:
    history = Untrimmed(random.Random(seed))
    for _ in range(16):
        history.step()
    base, tried = MemoryStore(), 0
    for commit in history.commits:
        state = ArchiveState(base)
        head = state.head()
        if head is not None and any(edit.kind is EditKind.APPEND_RUN for edit in commit.edits):
            edits = lose(state, (), look_behind(history.commits[commit.seq + 1 :], head.lineage))
            if edits is not None:
                copy = MemoryStore()
                copy.put_many(base.iterate(b""), applied=base.applied())
                for later in (
                    replace(commit, edits=edits, inline_length=0),
                    *history.commits[commit.seq + 1 :],
                ):
                    store_changes(copy, apply(copy, later))
                assert runs_but(ArchiveState(copy), commit.seq) == runs_but(history.state, commit.seq)
                tried += 1
        store_changes(base, apply(base, commit))
    assert tried >= 5


def test_a_loss_keeps_the_rules_of_a_queue() -> None:
    history = Untrimmed(random.Random(1))
    while not list(history.state.queues()):
        history.step()
    queue = next(q for q in history.state.queues() if q.generation is not None)
    sound = {
        "topic": [queue.queue.topic], "queue_id": [queue.queue.queue_id], "generation": [queue.generation],
        "start": [queue.max_offset], "end": [queue.max_offset + 4], "bytes": [400], "physical_end": [10**6],
    }  # fmt: skip
    for column, value in (
        ("start", queue.max_offset + 1),
        ("end", queue.max_offset - 1),
        ("physical_end", 0),
        ("generation", 9),
    ):
        with pytest.raises(Corrupt):
            apply(
                history.store,
                history.next_commit([_loss({**sound, column: [value]}), history._progress([10**6])]),
            )
    with pytest.raises(Corrupt, match="Progress"):
        apply(history.store, history.next_commit([_loss(sound)]))
    apply(history.store, history.next_commit([_loss(sound), history._progress([10**6])]))


def _loss(columns: dict[str, list[object]]) -> EditBatch:
    return batch(EditKind.LOSS, **columns)
