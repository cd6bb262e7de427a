"""What is damaged or missing is mended from a copy: the same rows, nothing written over, nothing believed unseen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.archiveedits import start_again
from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all, spread
from tests.kit.scrubbing import Scrubbing, flip, overwrite, paths
from tests.kit.sealing import after_midnight, all_rows, seal_all
from tiered.archive.care.mend import PUT_AGAIN, WRITTEN_ANEW, Mend
from tiered.archive.keys import CommitKey, build
from tiered.archive.log.identity import ensure_identity
from tiered.archive.log.maintenance import Done, OwnKeys
from tiered.archive.rewrite.merge import MergeOptions
from tiered.archive.rewrite.plan import Bounds
from tiered.archive.rewrite.writing import Layout
from tiered.clock import ManualClock
from tiered.errors import Refused, Unavailable
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider


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

    def task(self) -> Mend:
        options = MergeOptions(1.0, Bounds(4096, self.job_bytes, 1000), Layout(4096, 1, 1 << 16))
        daemon = self.made.daemon
        return Mend(daemon.log, self.made.clock, options, OwnKeys(), self.looking.book, lambda: self.copy)

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
    with scene(tmp_path) as made:
        spread(made, 4)
        merge_all(made.daemon)
        after_midnight(made)
        seal_all(made.daemon)
        mending = Mending(made)
        path = next(p for p in needed(made) if p.startswith("segment/"))
        flip(made.provider, path, 100)
        assert "delete this key" in next(one.trouble for one in mending.all() if one.trouble)
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
    assert path in paths(made.provider)


def test_nothing_to_mend(made: Scene) -> None:
    mending = Mending(made)
    assert mending.task().plan().jobs == 0
    assert not mending.task().due(made.clock.monotonic())
    assert WRITTEN_ANEW
