"""Commits that are damaged or lost, mended from what is left; what stands for one is folded like the one that was."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, Assembly, assemble, live_rows, memory, one_after_another
from tests.kit.pipeline import PREPARED, Crafted
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.log.shadow import difference
from tiered.archive.read.find import find_identity
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.clock import ManualClock
from tiered.codec.format.commit import decode_commit_footer
from tiered.errors import Conflict, Corrupt
from tiered.metadata.memory import MemoryStore
from tiered.repair.mend import Mender
from tiered.repair.step import Step
from tiered.settings import MIB

LOST = 7
IDS = itertools.count(1)
Rows = dict[object, list[tuple[int, int, bytes]]]


class Scene:
    """An archive with every kind of commit that a daemon writes: claims, flushes of several runs, a generation, a rewind."""

    def __init__(self, directory: Path, *, inline: bool) -> None:
        self.clock = ManualClock(1_700_000_060_000)
        self.store = memory(self.clock)
        self.broker = Crafted(directory / "store", file_bytes=1 << 17)
        self.options = {
            "block_bytes": 4096,
            "object_bytes": 65_536,
            **({} if inline else {"inline_bytes": 0}),
        }
        for flush in range(2):
            for number in range(12):
                self.broker.send(
                    queue_id=number % 3, body=b"%d-%d" % (flush, number) * 20, properties={"KEYS": f"k{number}"},
                    sys_flag=PREPARED if number % 6 == 5 else 0,
                )  # fmt: skip
            self.run(flush)
        self.broker.send(topic="Again", body=b"first life")
        self.broker.send(topic="Again", body=b"first life, too")
        self.run(7)
        self.broker.send(topic="Again", body=b"second life", queue_offset=0)
        self.run(8)
        self.broker.crash(self.broker.sent[-LOST][0].physical_offset)
        self.broker.send(body=b"after the loss")
        self.local = MemoryStore()
        self.run(9, self.local)
        self.head = self.fold().state.head()
        assert self.head is not None
        self.last = self.head.seq
        self.bytes = [bytes(self.store.get(KEYS.commit(seq)).data) for seq in range(self.last + 1)]
        self.rows = self.read()

    def run(self, seed: int, metadata: MemoryStore | None = None) -> None:
        made: Assembly = assemble(
            self.broker.store, self.store, self.clock, seed=seed + 1, metadata=metadata, dispatch=self.options
        )
        made.settle()
        made.close()

    def fold(self) -> View:
        return ArchiveReader(self.store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()

    def read(self, archive: View | None = None) -> Rows:
        archive = archive or self.fold()
        return dict(live_rows(archive.state, archive.objects))

    def damage(self, seq: int, how: str) -> None:
        key, whole = KEYS.commit(seq), self.bytes[seq]
        if how == "removed":
            self.store.delete(key)
            return
        footer = decode_commit_footer(whole, key=key)
        spoilt = bytearray(whole)
        spoilt[footer.inline_length + 8] ^= 4
        self.store.put(key, [bytes(spoilt) if how == "edits" else whole[:-100]], create_only=False)

    def restore(self) -> None:
        for seq, whole in enumerate(self.bytes):
            self.store.put(KEYS.commit(seq), [whole], create_only=False)
        for stored in list(self.store.list(KEYS.repair_prefix())):
            self.store.delete(stored.key)
        for stored in list(self.store.list(KEYS.checkpoint_prefix)):
            self.store.delete(stored.key)

    def mender(self, *, local: bool = False) -> Mender:
        identity = find_identity(self.store, KEYS)
        return Mender(
            self.store,
            KEYS,
            identity,
            self.local if local else None,
            lambda n: b"r" * n,
            table_cache_bytes=MIB,
        )

    def checkpoint(self, seq: int) -> None:
        at = MemoryStore()
        self.fold().log.fold_until(at, seq)
        write_checkpoint(self.store, KEYS, at, None, lambda: KEYS.shard(1, next(IDS).to_bytes(16, "big")))


@pytest.fixture(scope="module", params=["inside commits", "in objects"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), inline=request.param == "inside commits")


@pytest.fixture(autouse=True)
def sound(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    one_after_another(monkeypatch)
    scene.restore()
    yield
    scene.restore()


def one(steps: list[Step]) -> Step:
    assert len(steps) == 1, steps
    return steps[0]


@pytest.mark.parametrize("how", ["edits", "cut"])
@pytest.mark.parametrize("source", ["local", "checkpoint"])
def test_every_commit_can_be_made_anew_from_a_later_fold(scene: Scene, how: str, source: str) -> None:
    for seq in range(scene.last + 1):
        scene.restore()
        if source == "checkpoint":
            scene.checkpoint(min(seq + 2, scene.last))
        scene.damage(seq, how)
        mender = scene.mender(local=source == "local")
        before = {s.key for s in scene.store.list(KEYS.root)}
        step = one(mender.plan())
        assert {s.key for s in scene.store.list(KEYS.root)} == before, "a plan writes nothing"
        assert (step.seq, step.exact) == (seq, True), step
        mender.mend([step])
        for stored in list(scene.store.list(KEYS.checkpoint_prefix)):
            scene.store.delete(stored.key)  # so that the commit is folded
        archive = scene.fold()
        assert difference(archive.state.view, scene.local) is None, seq
        assert scene.read(archive) == scene.rows
        report = Verifier(archive).run(deep=True)
        assert report.damage == []
        assert report.repaired == 1
        assert scene.mender().plan() == [], "and nothing is left to do"


def goes_on(scene: Scene, metadata: MemoryStore) -> None:
    """A daemon opens what was repaired, archives more, and everything reads as it should; the scene is as before."""
    keys = {s.key for s in scene.store.list(KEYS.root)}
    copy = MemoryStore()
    copy.put_many(metadata.iterate(b""), applied=metadata.applied())
    scene.run(50, copy)
    archive = scene.fold()
    found = {q: [raw for _, _, raw in rows] for q, rows in live_rows(archive.state, archive.objects).items()}
    assert found == {q: [raw for _, _, raw in rows] for q, rows in scene.rows.items()}
    assert difference(archive.state.view, copy) is None, "readers and the daemon hold the same"
    for stored in list(scene.store.list(KEYS.root)):
        if stored.key not in keys:
            scene.store.delete(stored.key)


@pytest.mark.parametrize("how", ["edits", "cut", "removed"])
def test_every_commit_can_be_made_anew_from_what_its_objects_say(scene: Scene, how: str) -> None:
    """No local state, no checkpoint: all messages are there, in their places; only marks are not known."""
    for seq in range(scene.last + 1):
        scene.restore()
        inline = decode_commit_footer(scene.bytes[seq], key="").inline_length
        if how == "removed" and (inline or seq == scene.last):
            continue  # with the messages inside it they are gone, and the last leaves no trace in the log
        scene.damage(seq, how)
        mender = scene.mender()
        steps = mender.plan()
        assert one(steps).source == "its objects and the commits behind it"
        mender.mend(steps)
        archive = scene.fold()
        assert scene.read(archive) == scene.rows, seq
        assert Verifier(archive).run(deep=True).damage == []
        if seq in (2, scene.last - 1):
            goes_on(scene, MemoryStore())


def test_a_daemon_goes_on_with_the_fold_that_it_had(scene: Scene) -> None:
    scene.damage(scene.last, "edits")
    with pytest.raises(Corrupt, match="tiered repair"):
        scene.fold()
    mender = scene.mender(local=True)
    mender.mend(mender.plan())
    goes_on(scene, scene.local)


def test_damage_side_by_side(scene: Scene) -> None:
    for seq in (5, 6, 7, scene.last):
        scene.damage(seq, "cut")
    mender = scene.mender(local=True)
    steps = mender.plan()
    assert [(s.seq, s.put is not None) for s in steps] == [
        (5, True),
        (6, True),
        (7, True),
        (scene.last, True),
    ]
    mender.mend(steps)
    assert scene.read() == scene.rows


def test_the_newest_commits_are_lost(scene: Scene) -> None:
    """The local state knows them. Their objects are there: they are put back. They are not: the broker is asked again."""
    for seq in (scene.last - 1, scene.last):
        scene.damage(seq, "removed")
    inline = decode_commit_footer(scene.bytes[scene.last], key="").inline_length > 0
    mender = scene.mender(local=True)
    steps = mender.plan()
    assert [(s.seq, s.fold_again) for s in steps] == [(scene.last - 1, False), (scene.last, inline)]
    mender.mend(steps)
    if inline:
        assert "archives anew" in steps[-1].advice
        scene.run(60)
        archive = scene.fold()
        assert {
            q: [raw for _, _, raw in rows] for q, rows in live_rows(archive.state, archive.objects).items()
        } == {q: [raw for _, _, raw in rows] for q, rows in scene.rows.items()}
        for stored in list(scene.store.list(KEYS.commit_prefix)):
            scene.store.delete(stored.key)
    else:
        assert scene.read() == scene.rows
        goes_on(scene, scene.local)


def test_a_repair_of_another_history_is_not_taken(scene: Scene) -> None:
    """Of several only the one that the next commit names; under a foreign id, or damaged itself, none."""
    scene.damage(6, "edits")
    mender = scene.mender(local=True)
    step = one(mender.plan())
    assert step.put is not None
    whole = b"".join(bytes(p) for p in step.parts)
    scene.store.put(KEYS.repair(6, b"x" * 16), [whole])
    with pytest.raises(Corrupt):
        scene.fold()
    mender.mend([step])
    assert scene.read() == scene.rows
    scene.store.put(step.put, [whole[:-1]], create_only=False)
    with pytest.raises(Corrupt):
        scene.fold()


def test_a_repair_is_put_once(scene: Scene) -> None:
    scene.damage(6, "edits")
    first, second = scene.mender(local=True), scene.mender(local=True)
    steps, others = first.plan(), second.plan()
    first.mend(steps)
    with pytest.raises(Conflict):
        second.mend(others)
    assert scene.mender(local=True).plan() == []
