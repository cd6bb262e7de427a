"""What is damaged or missing is mended from a copy: the same rows, nothing written over, nothing believed unseen."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.aged import BAND_BYTES
from tests.kit.archiveedits import NUMBERS, Edits, rewind, start_again
from tests.kit.assemble import KEYS, live_rows
from tests.kit.fetchscene import SETTLED_SECONDS, Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all, spread
from tests.kit.movingfold import nobody_walks_over_the_live_fold
from tests.kit.scrubbing import Scrubbing, flip, overwrite, paths
from tests.kit.sealing import after_midnight, all_rows, seal_all
from tiered.archive.care.commitlog import LocalRecords
from tiered.archive.care.mend import MEND_AGAIN_SECONDS, PUT_AGAIN, WRITTEN_ANEW, Mend
from tiered.archive.care.notes import DamagedKey
from tiered.archive.care.walk import MESSAGES_GONE
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.keys import CommitKey, build, parse
from tiered.archive.log.identity import ensure_identity
from tiered.archive.log.maintenance import Done, OwnKeys
from tiered.archive.rewrite.holds import add_hold
from tiered.archive.rewrite.merge import MergeOptions
from tiered.archive.rewrite.mergeplan import Bounds
from tiered.archive.rewrite.policy import LegalHold
from tiered.archive.rewrite.writing import Layout
from tiered.clock import ManualClock
from tiered.codec.format.commit import encode_stand_in
from tiered.codec.format.sections import SectionKind
from tiered.daemon.maintenance import MaintenanceLoop
from tiered.errors import Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.metrics import Metrics
from tiered.provider.base import Fetched, Provider
from tiered.provider.memory import MemoryProvider
from tiered.provider.wrap import Wrapped
from tiered.settings import Maintenance, Settings


class Mending:
    """A copy of a scene's archive as it is now, the scrub over the scene, and the task."""

    def __init__(self, made: Scene, *, job_bytes: int = 1 << 20) -> None:
        self.made = made
        self.copy: Provider = MemoryProvider("", ManualClock())
        for stored in made.provider.list(KEYS.root):
            self.copy.put(stored.key, [bytes(made.provider.get(stored.key).data)])
        self.rows = all_rows(made)
        self.looking = Scrubbing.of(made)
        self.looking.rest()
        self.job_bytes = job_bytes

    def task(self, *, copied: bool = True, local: bool = False) -> Mend:
        options = MergeOptions(
            1.0, 1000, Bounds(4096, 4096, 2, self.job_bytes, 1000), Layout(4096, 1, 1 << 16)
        )
        daemon = self.made.daemon
        return Mend(
            daemon.log, self.made.clock, options, OwnKeys(), self.looking.book, (lambda: self.copy) if copied else None,
            local=LocalRecords(daemon.source, 1 << 22) if local else None,
        )  # fmt: skip

    def all(self, task: Mend | None = None) -> list[Done]:
        """Look at everything, then mend until nothing is left."""
        self.looking.later()
        task, found = task or self.task(), []
        while not found or found[-1].more:
            found.append(task.run_once(AtOnceTurn(self.made.daemon)))
            assert len(found) < 100
        return found

    def check_whole(self) -> None:
        """The archive has the rows that it had, and nothing is wrong with it."""
        assert all_rows(self.made) == self.rows
        self.looking.later()
        assert self.looking.damaged() == {}


@contextmanager
def sealed_scene(tmp_path: Path) -> Iterator[Scene]:
    """Days that are over, merged and sealed."""
    with scene(tmp_path) as made:
        spread(made, 4)
        merge_all(made.daemon)
        after_midnight(made)
        seal_all(made.daemon)
        yield made


@pytest.fixture(params=["level 0", "level 1", "level 2", "inside commits"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    inline = {"inline_bytes": 1 << 20} if request.param == "inside commits" else {}
    with scene(tmp_path, **inline) as found:
        spread(found, 4)
        if request.param in ("level 1", "level 2"):
            merge_all(found.daemon)
        if request.param == "level 2":
            after_midnight(found)
            seal_all(found.daemon)
        yield found


def needed(made: Scene) -> list[str]:
    """Paths that runs lie in."""
    return sorted(
        {o.path or build(CommitKey(o.ref.commit_seq)) for o in made.state.objects() if o.references}
    )


def test_what_is_missing_is_put_again_under_its_own_key(made: Scene) -> None:
    mending = Mending(made)
    for path in needed(made):
        made.provider.delete(KEYS.key(path))
    head = made.state.head()
    mending.looking.later(0.3)
    plan = mending.task().plan()
    assert {row["how"] for row in plan.rows} == {PUT_AGAIN}
    assert plan.jobs == len(needed(made))
    done = mending.all()
    assert all(one.trouble is None for one in done)
    assert made.state.head() == head, "no commit is needed"
    for path in needed(made):
        assert made.provider.get(KEYS.key(path)).data == mending.copy.get(KEYS.key(path)).data
    mending.check_whole()


@pytest.mark.parametrize("made", ["level 0", "level 1", "inside commits"], indirect=True)
def test_what_is_damaged_is_written_anew_and_nothing_is_written_over(made: Scene) -> None:
    mending = Mending(made)
    spoiled = {}
    for path in needed(made):
        flip(made.provider, path, 100)
        spoiled[path] = bytes(made.provider.get(KEYS.key(path)).data)
    done = mending.all()
    assert [one.trouble for one in done if one.trouble] == []
    for path, data in spoiled.items():
        assert bytes(made.provider.get(KEYS.key(path)).data) == data
    assert not set(spoiled) & set(needed(made)), "nothing refers to them any more"
    mending.check_whole()


@pytest.mark.parametrize("made", ["level 0", "level 1", "inside commits"], indirect=True)
def test_a_large_object_is_written_anew_in_parts(made: Scene) -> None:
    mending = Mending(made, job_bytes=3000)
    path = max(needed(made), key=lambda p: made.provider.head(KEYS.key(p)).length)
    flip(made.provider, path, 100)
    done = mending.all()
    assert sum("written_bytes" in one.figures for one in done) > 1
    mending.check_whole()


@pytest.mark.parametrize("made", ["level 0", "level 1", "inside commits"], indirect=True)
def test_a_copy_that_is_damaged_too_is_not_believed(made: Scene) -> None:
    mending = Mending(made)
    uncollected_gone(made)
    path = needed(made)[0]
    sound = flip(made.provider, path, 100)
    flip(mending.copy, path, 101)
    task = mending.task()
    troubles = [one.trouble for one in mending.all(task) if one.trouble]
    assert len(troubles) == 1
    assert KEYS.key(path) in troubles[0]
    assert list(mending.looking.damaged()) == [path], "still listed"
    assert not task.due(made.clock.monotonic()), "and not tried again at once"
    made.provider.delete(KEYS.key(path))
    assert [one.trouble for one in mending.all() if one.trouble]
    overwrite(mending.copy, path, sound)
    mending.all()
    mending.check_whole()


class Away(Wrapped):
    """A store that does not answer, or lets nobody in, or that has answered only who it is."""

    def __init__(
        self, inner: Provider, *, known: bool = False, error: type[TieredError] = Unavailable
    ) -> None:
        super().__init__(inner)
        self._known, self._error = known, error

    def around(self) -> AbstractContextManager[None]:
        raise self._error("it is away")

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        if self._known and key == KEYS.identity:
            return self.inner.get(key, start, length)
        return super().get(key, start, length)


def useless(mending: Mending, trouble: str) -> None:
    """A copy that cannot help."""
    if trouble == "does not answer":
        mending.copy = Away(mending.copy)
    elif trouble == "lets nobody in":
        mending.copy = Away(mending.copy, error=Invalid)
    elif trouble == "is not there":
        mending.copy = MemoryProvider("", ManualClock())
    else:
        for path in needed(mending.made):
            if trouble == "lacks it":
                mending.copy.delete(KEYS.key(path))
            else:
                flip(mending.copy, path, 101)


@pytest.mark.parametrize(
    "trouble", ["lacks it", "has it damaged", "is not there", "does not answer", "lets nobody in"]
)
@pytest.mark.parametrize("missing", [True, False])
def test_where_the_copy_cannot_help_the_other_sources_are_asked(
    made: Scene, trouble: str, missing: bool
) -> None:
    mending = Mending(made)
    useless(mending, trouble)
    before = [path for path in needed(made) if not (missing and path.startswith("commit/"))]
    for path in before:
        if missing:
            made.provider.delete(KEYS.key(path))
        else:
            flip(made.provider, path, 100)
    done = mending.all(mending.task(local=True))
    assert [one.trouble for one in done if one.trouble] == []
    assert not set(before) & set(needed(made)), "written anew"
    mending.check_whole()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("missing", [True, False])
def test_a_copy_that_does_not_answer_is_named_and_asked_again(
    made: Scene, missing: bool, known: bool
) -> None:
    mending = Mending(made)
    uncollected_gone(made)
    whole, path = mending.copy, needed(made)[0]
    mending.copy = Away(whole, known=known)
    if missing:
        made.provider.delete(KEYS.key(path))
    else:
        flip(made.provider, path, 100)
    task = mending.task()
    (trouble,) = [one.trouble for one in mending.all(task) if one.trouble]
    assert "the copy of the archive does not answer: it is away" in trouble
    mending.copy = whole
    made.clock.advance(MEND_AGAIN_SECONDS)
    assert task.due(made.clock.monotonic())
    assert [one.trouble for one in mending.all(mending.task()) if one.trouble] == []
    mending.check_whole()


@pytest.mark.parametrize("made", ["level 0", "level 1"], indirect=True)
@pytest.mark.parametrize("copied", [True, False])
def test_what_the_store_never_gives_is_mended_like_damage_and_holds_no_other_key_back(
    made: Scene, copied: bool
) -> None:
    mending = Mending(made)
    uncollected_gone(made)
    first, last = needed(made)[0], needed(made)[-1]
    flip(made.provider, first, 100)

    def fails(key: str, start: int, length: int) -> None:
        if key == KEYS.key(last):
            raise Unavailable("cannot read an object", key=key, found="EIO")

    made.provider.gate = fails
    notes = mending.looking.book.notes
    for path in {first, last}:
        notes = notes.damaged(DamagedKey(path, "cannot be read", "", None, 1, 1))
    mending.looking.book.notes = notes
    task, done = mending.task(copied=copied, local=not copied), list[Done]()
    while not done or done[-1].more:
        done.append(task.run_once(AtOnceTurn(made.daemon)))
    if copied or first != last:
        assert [one.trouble for one in done if one.trouble] == []
        made.provider.gate = lambda key, start, length: None
        mending.check_whole()
    else:
        (trouble,) = [one.trouble for one in done if one.trouble]
        assert "what it still has cannot be read" in trouble, "its commits, which the log does not know"


@pytest.mark.parametrize("made", ["level 0"], indirect=True)
def test_of_what_no_run_lies_in_only_sound_bytes_are_put_again(made: Scene) -> None:
    """Nothing would be put over them later, and no walk over the listing would tell."""
    log, ids = made.daemon.log, iter(range(1, 100))
    write_checkpoint(
        made.provider, KEYS, log.store, None, lambda: KEYS.shard(1, next(ids).to_bytes(16, "big")), shard_bytes=2000
    )  # fmt: skip
    hold = LegalHold("case", "Orders", 0, 10)
    add_hold(made.provider, KEYS, log.reader.identity.archive_id, hold, "", 1, random.Random(1).randbytes)
    mending = Mending(made)
    lost = [p for p in paths(made.provider) if p.startswith(("hold/", "shard/", "archive.json"))]
    assert len(lost) >= 3
    notes = mending.looking.book.notes
    for path in lost:
        sound = bytes(mending.copy.get(KEYS.key(path)).data)
        made.provider.delete(KEYS.key(path))
        if path != "archive.json":  # by which a copy is known
            overwrite(mending.copy, path, bytes([sound[0] ^ 1]) + sound[1:])
        notes = notes.damaged(DamagedKey(path, "it is not there", "", None, 1, 1))
    mending.looking.book.notes = notes
    task = mending.task()
    while task.run_once(AtOnceTurn(made.daemon)).more:
        pass
    assert set(mending.looking.damaged()) == set(lost) - {"archive.json"}
    assert not (set(lost) - {"archive.json"}) & set(paths(made.provider))
    for path in lost[1:]:
        whole = bytes(mending.copy.get(KEYS.key(path)).data)
        overwrite(mending.copy, path, bytes([whole[0] ^ 1]) + whole[1:])
    while task.run_once(AtOnceTurn(made.daemon)).more:
        pass
    mending.check_whole()
    assert set(lost) <= set(paths(made.provider))


@pytest.mark.parametrize("made", ["level 0"], indirect=True)
def test_a_shard_whose_checkpoint_the_store_never_gives_holds_no_other_key_back(made: Scene) -> None:
    write_checkpoint(made.provider, KEYS, made.daemon.log.store, None, lambda: KEYS.shard(1, b"s" * 16))
    mending = Mending(made)
    stored = paths(made.provider)
    manifest, shard = (next(p for p in stored if p.startswith(area)) for area in ("checkpoint/", "shard/"))

    def fails(key: str, start: int, length: int) -> None:
        if key == KEYS.key(manifest):
            raise Unavailable("cannot read an object", key=key, found="EIO")

    made.provider.gate = fails
    notes = mending.looking.book.notes
    for path in (manifest, shard, "archive.json"):
        notes = notes.damaged(DamagedKey(path, "it is not there", "", None, 1, 1))
    mending.looking.book.notes = notes
    for path in (shard, "archive.json"):
        made.provider.delete(KEYS.key(path))
    task = mending.task()
    while task.run_once(AtOnceTurn(made.daemon)).more:
        pass
    assert set(mending.looking.damaged()) == {manifest, shard}, "what is in a shard its checkpoint says"
    assert "archive.json" in paths(made.provider)


def test_another_commit_is_not_put_for_the_one_that_is_missing(made: Scene) -> None:
    mending = Mending(made)
    head = made.state.head()
    assert head is not None
    path, behind = (build(CommitKey(seq)) for seq in (head.seq - 1, head.seq))
    whole = bytes(mending.copy.get(KEYS.key(path)).data)
    overwrite(mending.copy, path, bytes(mending.copy.get(KEYS.key(behind)).data))
    made.provider.delete(KEYS.key(path))
    (trouble,) = [one.trouble for one in mending.all() if one.trouble]
    assert "a commit of the copy is not the one that is missing" in trouble
    with pytest.raises(NotFound):
        made.provider.head(KEYS.key(path))
    overwrite(mending.copy, path, whole)
    assert [one.trouble for one in mending.all() if one.trouble] == []
    assert made.provider.get(KEYS.key(path)).data == whole
    mending.check_whole()


def test_another_archive_is_no_copy(made: Scene) -> None:
    mending = Mending(made)
    flip(made.provider, needed(made)[0], 100)
    mending.looking.later()
    mending.copy = MemoryProvider("", ManualClock())
    ensure_identity(mending.copy, KEYS, 1, lambda count: b"x" * count)
    if not str(needed(made)[0]).startswith("segment/"):
        with pytest.raises(Refused, match="not a copy"):
            mending.all()
    made.provider.delete(KEYS.key(needed(made)[0]))
    with pytest.raises(Refused, match="not a copy"):
        mending.all()


def test_a_damaged_sealed_file_is_put_again_once_it_is_deleted(tmp_path: Path) -> None:
    with sealed_scene(tmp_path) as made:
        mending = Mending(made)
        path = next(p for p in needed(made) if p.startswith("segment/"))
        flip(made.provider, path, 100)
        made.provider.delete(KEYS.key(path))
        mending.all()
        mending.check_whole()


@pytest.mark.parametrize("made", ["level 0", "level 1", "inside commits"], indirect=True)
@pytest.mark.parametrize("missing", [True, False])
def test_whatever_ends_it_it_is_done_by_the_next(made: Scene, missing: bool) -> None:
    """A put or a commit of unknown outcome at every step; a new process each time."""
    mending = Mending(made)
    path = needed(made)[0]
    if missing:
        made.provider.delete(KEYS.key(path))
    else:
        flip(made.provider, path, 100)
    mending.looking.later()
    for number in range(1, 12):
        seen = 0

        def stop(key: str, start: int, length: int, number: int = number) -> None:
            nonlocal seen
            seen += 1
            if seen == number:
                raise Unavailable("away")

        made.provider.gate = stop
        try:
            mending.task().run_once(AtOnceTurn(made.daemon))
        except Unavailable:
            made.provider.gate = lambda key, start, length: None
            if not (
                missing and path.startswith("commit/")
            ):  # which no daemon opens: its fold is all there is
                start_again(made)
            continue
        finally:
            made.provider.gate = lambda key, start, length: None
        break
    mending.all()
    mending.check_whole()


def test_edits_of_a_commit_are_left_to_repair(made: Scene) -> None:
    mending = Mending(made)
    path = build(CommitKey(1))
    flip(made.provider, path, made.provider.head(KEYS.key(path)).length - 300)
    troubles = [one.trouble for one in mending.all() if one.trouble]
    assert "tiered repair" in troubles[0]
    outlook = mending.task().plan()
    assert (outlook.jobs, outlook.trouble) == (0, "1 of 1 damaged or missing keys cannot be mended")
    assert path in paths(made.provider)


@pytest.mark.parametrize("made", ["inside commits"], indirect=True)
@pytest.mark.parametrize("source", ["copy", "log", "copy that says otherwise"])
@pytest.mark.parametrize("short", [False, True], ids=["lost", "cut"])
def test_messages_of_a_commit_that_a_repair_stands_for_come_back(
    made: Scene, source: str, short: bool
) -> None:
    """The listing alone finds that they are gone: what stands for the commit has its edits and nothing else."""
    mending, reader = Mending(made), made.daemon.log.reader
    path = needed(made)[0]
    lost = parse(path)
    assert isinstance(lost, CommitKey)
    found = reader.read(lost.seq)
    assert found is not None
    edits = found.commit.edits if source != "copy that says otherwise" else found.commit.edits[:-1]
    made.provider.put(
        KEYS.repair(lost.seq, found.commit.commit_id), encode_stand_in(replace(found.commit, edits=edits))
    )
    made.provider.delete(KEYS.key(path))
    if short:
        made.provider.put(KEYS.key(path), [b"cut"])
    mending.looking.later(0.3)
    assert mending.looking.damaged() == {
        path: "an object is shorter than its tables say" if short else MESSAGES_GONE
    }
    done = mending.all(mending.task(copied=source != "log", local=source == "log"))
    assert [one.trouble for one in done if one.trouble] == []
    assert (path in needed(made)) == (source == "copy" and not short), "put again where that changes no fold"
    mending.check_whole()


class Looping:
    """A daemon's loop over the task alone."""

    def __init__(self, mending: Mending, task: Mend) -> None:
        self.clock = mending.made.clock
        settings = Settings(maintenance=Maintenance(max_bytes_per_second=0))
        line = mending.made.daemon.line
        self.loop = MaintenanceLoop((task,), line, self.clock, settings, Metrics(), lambda: False)

    def an_hour(self) -> str | None:
        """Its steps within an hour; what it says then."""
        for _ in range(60):
            self.loop.step()
            self.clock.advance(MEND_AGAIN_SECONDS / 60)
        return self.loop.problem()


@pytest.mark.parametrize("made", ["level 0"], indirect=True)
def test_what_could_not_be_mended_is_tried_again_by_the_daemon_within_the_hour(made: Scene) -> None:
    mending = Mending(made)
    path = needed(made)[0]
    data = bytes(made.provider.get(KEYS.key(path)).data)
    for store in (made.provider, mending.copy):
        store.delete(KEYS.key(path))
    mending.looking.later()
    looping = Looping(mending, mending.task())
    assert "a key cannot be mended" in (looping.an_hour() or "")
    mending.copy.put(KEYS.key(path), [data])
    looping.an_hour()
    looping.an_hour()
    mending.check_whole()


@pytest.mark.parametrize("made", ["level 0"], indirect=True)
def test_what_could_not_be_mended_is_no_longer_told_once_somebody_restored_it(made: Scene) -> None:
    mending = Mending(made)
    path = needed(made)[0]
    sound = flip(made.provider, path, 100)
    mending.looking.later()
    looping = Looping(mending, mending.task(copied=False))
    assert "a key cannot be mended" in (looping.an_hour() or "")
    overwrite(made.provider, path, sound)
    mending.looking.later(0.3)
    assert mending.looking.damaged() == {}
    looping.an_hour()
    assert looping.an_hour() is None


def test_nothing_to_mend(made: Scene) -> None:
    mending = Mending(made)
    assert mending.task().plan().jobs == 0
    assert not mending.task().due(made.clock.monotonic())
    assert WRITTEN_ANEW


def test_nothing_is_mended_by_a_walk_over_a_fold_that_changes(made: Scene) -> None:
    mending = Mending(made)
    for path in needed(made):
        flip(made.provider, path, 0 if path.startswith("commit/") else 40)
    mending.looking.later()
    task = mending.task()
    with nobody_walks_over_the_live_fold(made.daemon) as over:
        assert task.plan().figures["damaged_keys"]
        assert task.run_once(AtOnceTurn(made.daemon, before=over)).more


def uncollected_gone(made: Scene) -> None:
    """What was merged or sealed away is not in the bucket any more."""
    for item in made.state.objects():
        if item.path and not item.references:
            made.provider.delete(KEYS.key(item.path))


@pytest.mark.parametrize("made", ["level 0", "inside commits"], indirect=True)
@pytest.mark.parametrize("missing", [True, False])
def test_what_the_broker_still_has_is_written_anew_from_its_log(made: Scene, missing: bool) -> None:
    mending = Mending(made)
    for path in needed(made):
        if missing and path.startswith("data/"):
            made.provider.delete(KEYS.key(path))
        else:
            flip(made.provider, path, 100)
    before = set(needed(made))
    done = mending.all(mending.task(copied=False, local=True))
    assert [one.trouble for one in done if one.trouble] == []
    assert not before & set(needed(made)), "nothing refers to them any more"
    mending.check_whole()


@pytest.mark.parametrize("copied", [True, False])
def test_a_damaged_dictionary_is_mended_from_a_copy_or_the_log(tmp_path: Path, copied: bool) -> None:
    with scene(tmp_path, dictionary_bytes=1024) as made:
        for number in range(300):
            made.broker.send("Quiet", number % 150, b'{"order":%d,"state":"created"}' % (number * 7919))
        made.daemon.settle(SETTLED_SECONDS)
        mending = Mending(made)
        damaged = [item for item in made.state.objects() if SectionKind.DICTIONARY in item.sections]
        assert damaged
        for item in damaged:
            position, length, _ = item.sections[SectionKind.DICTIONARY]
            flip(made.provider, item.path, position + length // 2)
        done = mending.all(mending.task(copied=copied, local=not copied))
        assert [one.trouble for one in done if one.trouble] == []
        assert not {item.path for item in damaged} & set(needed(made))
        mending.check_whole()


@pytest.mark.parametrize("made", ["level 1"], indirect=True)
def test_which_commits_archived_its_records_is_still_read_in_the_damaged_object(made: Scene) -> None:
    mending = Mending(made)
    uncollected_gone(made)
    before = needed(made)
    for path in before:
        flip(made.provider, path, 100)  # in its first block
    done = mending.all(mending.task(copied=False, local=True))
    assert [one.trouble for one in done if one.trouble] == []
    assert not set(before) & set(needed(made))
    mending.check_whole()


def test_of_a_sealed_file_the_head_of_a_row_group_says_it_while_the_bodies_are_damaged(
    tmp_path: Path,
) -> None:
    with scene(tmp_path) as made:
        spread(made, 4)
        merge_all(made.daemon)
        after_midnight(made)
        seal_all(made.daemon, band_bytes=BAND_BYTES)
        mending = Mending(made)
        uncollected_gone(made)
        before = needed(made)
        banded = 0
        for path in before:
            item, objects = made.state.object_at(path), made.objects()
            assert item is not None
            segment = objects.sealed(item).segment
            if not segment.directory.is_banded(0):
                continue
            flip(made.provider, path, segment.range_of_bands(1, 2).start + 5)
            banded += 1
        done = mending.all(mending.task(copied=False, local=True))
        assert [one.trouble for one in done if one.trouble] == []
        assert banded
        assert len(set(before) & set(needed(made))) == len(before) - banded
        mending.check_whole()


@pytest.mark.parametrize("made", ["level 1", "level 2"], indirect=True)
def test_where_nobody_knows_the_commits_it_stays_listed(made: Scene) -> None:
    mending = Mending(made)
    uncollected_gone(made)
    for path in needed(made):
        made.provider.delete(KEYS.key(path))
    done = mending.all(mending.task(copied=False, local=True))
    troubles = [one.trouble for one in done if one.trouble]
    assert len(troubles) == len(needed(made))
    assert "nowhere else" in troubles[0]
    assert mending.looking.damaged()


@pytest.mark.parametrize("made", ["level 1", "level 2"], indirect=True)
def test_what_an_object_was_made_of_mends_it_until_it_is_collected(made: Scene) -> None:
    mending = Mending(made)
    before = needed(made)
    for number, path in enumerate(before):
        if number % 2:
            made.provider.delete(KEYS.key(path))
        else:
            flip(made.provider, path, 100)
    done = mending.all(mending.task(copied=False))
    assert [one.trouble for one in done if one.trouble] == []
    assert not set(before) & set(needed(made))
    mending.check_whole()


def test_a_damaged_sealed_file_is_written_anew_from_the_copy_and_sealed_again(tmp_path: Path) -> None:
    with sealed_scene(tmp_path) as made:
        mending = Mending(made)
        uncollected_gone(made)
        before = needed(made)
        for path in before:
            flip(made.provider, path, 100)
        assert [one.trouble for one in mending.all() if one.trouble] == []
        mending.check_whole()
        seal_all(made.daemon)
        assert not set(before) & set(needed(made))
        assert all(path.startswith("segment/") for path in needed(made))
        mending.check_whole()


def test_trimmed_and_rewound_runs_are_mended_in_their_bounds(tmp_path: Path) -> None:
    with scene(tmp_path, inline_bytes=0) as made:
        spread(made, 6)
        plain = [m for m, _ in made.broker.sent[-20:] if not m.sys_flag]
        rewind(made, plain[0])
        queue = next(q for q in made.state.queues() if q.messages > 12 and q.queue.topic == "Orders")
        Edits(made).trim(queue.queue, queue.min_offset + 7)
        mending, before = Mending(made), live_rows(made.state, made.objects())
        closed = {part.object for part in made.state.closed_parts()}
        for path in needed(made):
            flip(made.provider, path, 100)
        done = mending.all(mending.task(copied=False, local=True))
        troubled = [one.trouble for one in done if one.trouble]
        assert len(troubled) == len(closed) > 0, "what the broker lost it cannot give back"
        left = {run.object for run in made.state.runs_all()} & closed
        assert not left, "but what lies beside it"
        assert live_rows(made.state, made.objects()) == before


def test_another_broker_at_the_same_place_is_not_believed(tmp_path: Path) -> None:
    with scene(tmp_path, inline_bytes=0) as made:
        spread(made, 2)
        mending = Mending(made)
        for path in needed(made):
            flip(made.provider, path, 100)
        message = next(m for m, _ in made.broker.sent if m.topic == "Orders" and not m.sys_flag)
        at = message.physical_offset + 56  # its store time
        made.broker.write(at, (message.store_timestamp + 1).to_bytes(8, "big"))
        done = mending.all(mending.task(copied=False, local=True))
        troubled = [one.trouble for one in done if one.trouble]
        assert any("not those that the fold names" in each for each in troubled)
        assert mending.looking.damaged()


@pytest.mark.parametrize("made", ["level 1"], indirect=True)
def test_an_object_that_has_only_some_of_them_is_not_taken_for_all(made: Scene) -> None:
    mending = Mending(made)
    older = [item.path for item in made.state.objects() if item.path and not item.references]
    made.provider.delete(KEYS.key(older[-1]))
    for path in needed(made):
        made.provider.delete(KEYS.key(path))
    done = mending.all(mending.task(copied=False))
    assert any(one.trouble for one in done)
    assert mending.looking.damaged()
    kept = {q.queue: (q.min_offset, q.max_offset, q.messages) for q in made.state.queues()}
    assert all(low + count == high for low, high, count in kept.values())
    for path in older[-1:]:
        made.provider.put(KEYS.key(path), [bytes(mending.copy.get(KEYS.key(path)).data)])
    mending.all(mending.task(copied=False))
    mending.check_whole()


def test_what_a_rewind_closed_is_not_taken_from_what_was_written_there_since(tmp_path: Path) -> None:
    with scene(tmp_path, inline_bytes=0) as made:
        for number in range(4):
            made.broker.send("Orders", 0, b"%d" % number * (400 - number), properties={"KEYS": "k"})
        made.broker.send("Orders", 0, b"lost %d" % next(copy(NUMBERS)))  # as long as what comes in its place
        made.daemon.settle(SETTLED_SECONDS)
        rewind(made, made.broker.sent[-1][0])
        (closed,) = made.state.closed_parts()
        mending, before = Mending(made), live_rows(made.state, made.objects())
        for path in needed(made):
            flip(made.provider, path, 100)
        done = mending.all(mending.task(copied=False, local=True))
        assert len([one.trouble for one in done if one.trouble]) == 1
        assert list(made.state.closed_parts()) == [closed]
        assert live_rows(made.state, made.objects()) == before
