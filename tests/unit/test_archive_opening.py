"""An archive opened for reading: at its head, at a commit, at a time; followed; its views stay as they are."""

from __future__ import annotations

import pytest

from tests.kit.assemble import KEYS, Counting, memory, open_log
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.scope import Scope
from tiered.clock import ManualClock
from tiered.codec.format.edits import EditKind, Rows, batch
from tiered.errors import NotFound, Unavailable
from tiered.metadata.base import MetadataStore
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.settings import MIB


class Scene:
    """A log of one epoch, ten seconds from commit to commit; commit n archives up to 100 n."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store: Counting = memory(self.clock)
        self.log: CommitLog = open_log(self.store, self.clock)
        self.log.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)

    def more(self, commits: int) -> None:
        for _ in range(commits):
            self.clock.advance(10)
            with self.log.next_place() as place:
                planned = self.log.plan(place, [progress_edit(1, [(100 * place.seq, place.seq, 0)])])
            self.log.put(planned)

    def floor(self, seq: int) -> None:
        with self.log.next_place() as place:
            planned = self.log.plan(place, [batch(EditKind.RETIRE, keys=Rows([[]]), floor=Rows([seq]))])
        self.log.put(planned)

    def checkpoint(self) -> None:
        ids = iter(bytes([7, n]) * 8 for n in range(100))
        write_checkpoint(self.store, KEYS, self.log.store.snapshot(), None, lambda: KEYS.shard(1, next(ids)))

    def reader(self, fold: MetadataStore | None = None) -> ArchiveReader:
        return ArchiveReader(self.store, KEYS, MemoryStore() if fold is None else fold, table_cache_bytes=MIB)

    def commits_read(self) -> list[int]:
        return [int(key[-20:]) for verb, key in self.store.calls if verb == "get" and "/commit/" in key]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def reached(reader: ArchiveReader) -> int:
    progress = reader.progress()
    assert progress is not None
    return progress.physical_offset


def test_nothing_is_asked_before_it_is_opened(scene: Scene) -> None:
    scene.store.calls.clear()
    reader = scene.reader()
    assert scene.store.calls == []
    assert reader.opened is None
    for ask in (lambda: reader.view, reader.progress, lambda: reader.known(MessageQueue("T", 0))):
        with pytest.raises(Unavailable, match="not open"):
            ask()


def test_views_stay_when_the_reader_goes_on(scene: Scene) -> None:
    scene.more(3)
    reader = scene.reader()
    before = reader.at()
    assert reader.follow() is before, "nothing was committed"
    scene.more(2)
    after = reader.follow()
    assert (before.head is not None and before.head.seq, before.state.head()) == (3, before.head)
    assert (after.head is not None and after.head.seq, after.state.head()) == (5, after.head)
    assert reader.view is after
    assert reached(reader) == 500
    assert reader.known(MessageQueue("\ud800", 0)) is reader.known(MessageQueue("T", -1)) is None


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("checkpoint_at", [None, 2, 6])
def test_one_opened_at_a_commit_stays_there(scene: Scene, checkpoint_at: int | None, partial: bool) -> None:
    for seq in range(1, 9):
        scene.more(1)
        if seq == checkpoint_at:
            scene.checkpoint()
    scene.store.calls.clear()
    reader = scene.reader(PartialStore(Scope({})) if partial else None)
    view = reader.at(4)
    assert reached(reader) == 400
    assert [seq for seq in scene.commits_read() if seq < 9] == {
        None: [0, 1, 2, 3, 4, 5, 6, 7, 8],
        2: [3, 4, 5, 6, 7, 8],
        6: [0, 1, 2, 3, 4, 7, 8],
    }[checkpoint_at], "no commit twice: the floor is looked for from there on, or from a newer checkpoint"
    assert [key for verb, key in scene.store.calls if verb == "get"].count(KEYS.identity) == 1
    scene.more(1)
    assert reader.follow() is view


def test_a_time_is_the_last_commit_before_it(scene: Scene) -> None:
    scene.more(5)
    time_ms = scene.store.head(KEYS.commit(3)).last_modified_ms
    for later in (0, 9999):
        reader = scene.reader()
        view = reader.at(time_ms=time_ms + later)
        assert reached(reader) == 300
        scene.more(1)
        assert reader.follow() is view
    with pytest.raises(NotFound, match="no commit at this time"):
        scene.reader().at(time_ms=1)


@pytest.mark.parametrize(("checkpointed", "gone"), [(False, False), (True, False), (True, True)])
def test_commits_below_the_floor_are_refused_though_they_are_there(
    scene: Scene, checkpointed: bool, gone: bool
) -> None:
    scene.more(4)
    if checkpointed:
        scene.checkpoint()
    scene.floor(3)
    if gone:
        scene.store.delete(KEYS.commit(1))
    with pytest.raises(NotFound, match=r"commits 3 to 5.*commit 3 is the oldest"):
        scene.reader().at(2)
    reader = scene.reader()
    reader.at(4)
    assert reached(reader) == 400


def test_damage_behind_a_commit_does_not_keep_it_from_being_read(scene: Scene) -> None:
    scene.more(5)
    scene.store.delete(KEYS.commit(5))
    scene.store.put(KEYS.commit(5), [b"damage"], create_only=True)
    reader = scene.reader()
    reader.at(4)
    assert reached(reader) == 400


def test_a_closed_reader_keeps_no_view(scene: Scene) -> None:
    reader = scene.reader()
    reader.at()
    reader.close()
    reader.follow()
    assert reader.opened is None
