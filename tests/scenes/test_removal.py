"""Commits below the floor, checkpoints and shards that nobody needs: what goes, what must not ("Ageing", C and K)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.archiveedits import start_again
from tests.kit.assemble import KEYS, assemble, live_rows
from tests.kit.collecting import GRACE_MS, Sweeping, needed, stored
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all
from tests.kit.scrubbing import overwrite
from tests.scenes.test_collection import flush, rows
from tiered.archive.care.opening import put_checkpoint
from tiered.archive.checkpoint import store as saving
from tiered.archive.checkpoint.format import cut
from tiered.archive.checkpoint.store import checkpoint_keys, fold_pairs, read_manifest, write_checkpoint
from tiered.archive.log.asof import fold_as_of
from tiered.archive.log.reader import LogReader
from tiered.archive.log.shadow import FoldCheck, FoldsDiffer, Shadow
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.archive.rewrite.collect import NameForDeletion
from tiered.archive.rewrite.collection import look
from tiered.archive.rewrite.floor import NewFloor
from tiered.archive.state.keys import QUEUE
from tiered.archive.state.values import Head
from tiered.clock import ManualClock
from tiered.errors import Corrupt, Denied, Fenced, Invalid, NotFound, TieredError, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Stored
from tiered.provider.deleting import delete_each
from tiered.provider.memory import MemoryProvider
from tiered.repair.mend import Mender
from tiered.settings import MIB, Gc

DAY = 86_400.0
RETENTION_MS = Gc().commit_retention_ms


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Scene]:
    """All data travels inside the commits."""
    with scene(tmp_path, inline_bytes=MIB) as made:
        yield made


def head_of(made: Scene) -> Head:
    found = made.state.head()
    assert found is not None
    return found


def commits(made: Scene) -> list[int]:
    return [int(s.key[-20:]) for s in made.provider.list(KEYS.commit_prefix)]


def saved(made: Scene) -> list[int]:
    """Numbers of checkpoints, newest first."""
    return [int(key[-20:]) for key in checkpoint_keys(made.provider, KEYS)]


def shards(made: Scene) -> set[str]:
    return {str(KEYS.path(s.key)) for s in made.provider.list(f"{KEYS.root}shard/")}


def named(made: Scene) -> set[str]:
    """Shards of all checkpoints."""
    return {
        s.path
        for key in checkpoint_keys(made.provider, KEYS)
        for s in read_manifest(made.provider, key).shards
    }


def aged(made: Scene, sweeping: Sweeping, days: int, step: float = DAY / 2) -> None:
    """Archive, save, sweep: half a day at a time."""
    for _ in range(int(days * DAY / step)):
        flush(made, 1)
        sweeping.save()
        merge_all(made.daemon)
        sweeping.count(sweeping.gc)
        made.clock.advance(step)


def from_nothing(made: Scene) -> dict[object, object]:
    """Rows that a reader with nothing local finds: the bucket alone (S9)."""
    opened = ArchiveReader(made.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at()
    return dict(live_rows(opened.state, opened.objects))


def test_an_archive_that_lives_for_long_keeps_a_week_of_commits_and_a_day_of_checkpoints(
    small: Scene,
) -> None:
    sweeping = Sweeping.of(small)
    aged(small, sweeping, 10)
    wanted, head = rows(small), head_of(small)
    first = commits(small)[0]
    assert 0 < first < head.floor < head.seq
    assert commits(small) == list(range(first, head.seq + 1)), "from the lowest number up"
    assert len(saved(small)) < 8
    assert head.floor in saved(small)
    assert shards(small) - {r.path for r in small.state.retired()} == named(small) - {
        r.path for r in small.state.retired()
    }
    assert from_nothing(small) == wanted
    assert stored(small) >= needed(small)


def test_the_floor_is_a_checkpoint_of_a_day_ago_and_two_stand_above_what_it_gives_up(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    flush(small)
    first = sweeping.save()
    assert sweeping.count(sweeping.gc) == {}
    flush(small)
    second = sweeping.save()
    assert sweeping.count(sweeping.gc) == {}, "the first was the head a moment ago"
    small.clock.advance(DAY - 60)
    sweeping.count(sweeping.gc)
    assert head_of(small).floor == 0
    small.clock.advance(60)
    assert sweeping.count(sweeping.gc)["moved_floors"] == 1
    assert head_of(small).floor == first.seq, "the second-newest"
    assert {first.seq, second.seq} == set(saved(small))
    small.clock.advance(DAY)
    assert sweeping.count(sweeping.gc) == {}


def test_others_checkpoints_count_for_nothing(small: Scene) -> None:
    """Of an earlier epoch, or late ones of a writer that was superseded (hole H12)."""
    first = Sweeping.of(small)
    for _ in range(3):
        flush(small)
        first.save()
    small.clock.advance(2 * DAY)
    start_again(small)
    second = Sweeping.of(small)
    second.count(second.gc)
    assert head_of(small).floor == 0
    flush(small)
    second.save()
    second.count(second.gc)
    assert head_of(small).floor == 0, "one may rot"
    flush(small)
    second.save()
    assert second.count(second.gc)["moved_floors"] == 1
    assert head_of(small).floor == saved(small)[2], "an old one is the floor that can be read from"


def test_a_checkpoint_that_does_not_verify_counts_for_nothing(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    for _ in range(2):
        flush(small)
        sweeping.save()
    small.clock.advance(2 * DAY)
    for path in shards(small):
        if path not in {
            s.path for s in read_manifest(small.provider, KEYS.checkpoint(saved(small)[0])).shards
        }:
            small.provider.delete(KEYS.key(path))
    sweeping.count(sweeping.gc)
    assert head_of(small).floor == 0


def test_a_floor_over_a_shard_that_was_retired_meanwhile_settles_to_nothing(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    manifests = []
    for _ in range(2):
        flush(small)
        manifests.append(sweeping.save())
    turn = AtOnceTurn(small.daemon)
    floor = NewFloor(manifests[0].seq, tuple(manifests), 0.0)
    retired = replace(
        manifests[0], shards=(replace(manifests[0].shards[0], path=f"shard/0000000000-{UUID}"),)
    )
    turn.commit(NameForDeletion([retired.shards[0].path], sweeping.own_keys, 0.0))
    assert turn.commit(NewFloor(manifests[0].seq, (retired, manifests[1]), 0.0)) is None
    assert turn.commit(floor) is not None
    assert turn.commit(floor) is None, "it is there already"


UUID = "00000000-0000-4000-8000-000000000001"


def test_shards_are_kept_while_a_kept_checkpoint_names_them_or_this_process_may(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    own, other = sweeping.own_keys, f"shard/0000000001-{UUID}"
    small.provider.put(KEYS.key(other), [b"of this epoch, by nobody that is known"])
    manifests = []
    for _ in range(3):
        flush(small)
        manifests.append(sweeping.save())
        small.clock.advance(DAY)
    sweeping.count(sweeping.gc)
    floor = head_of(small).floor
    assert floor == manifests[1].seq
    gone = {s.path for s in manifests[0].shards} - {s.path for m in manifests[1:] for s in m.shards}
    assert {r.path for r in small.state.retired()} == {*gone, f"checkpoint/{manifests[0].seq:020d}"}
    kept = [s.path for m in manifests[1:] for s in m.shards]
    assert AtOnceTurn(small.daemon).commit(NameForDeletion(kept, own, 0.0)) is None
    in_hand = f"shard/0000000001-{UUID[:-1]}2"
    own.checkpoints.makes(in_hand)
    with own.making(in_hand):
        small.provider.put(KEYS.key(in_hand), [b"of a checkpoint in the making"])
        assert AtOnceTurn(small.daemon).commit(NameForDeletion([in_hand], own, 0.0)) is None
        sweeping.after_grace()
        assert {other, in_hand} <= shards(small)
    assert sweeping.count(sweeping.gc) == {"named_keys": 1}
    sweeping.after_grace()
    assert other in shards(small), "who made it is not known (D3)"
    start_again(small)
    later = Sweeping.of(small)
    later.count(later.gc)
    later.after_grace()
    assert shards(small) == named(small)


def test_a_manifest_that_cannot_be_read_keeps_all_shards(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    flush(small)
    manifest = sweeping.save()
    start_again(small)
    flush(small)
    orphan = f"shard/0000000001-{UUID}"
    small.provider.put(KEYS.key(orphan), [b"x"])
    data = small.provider.get(manifest.key).data
    small.provider.delete(manifest.key)
    small.provider.put(manifest.key, [b"x" + bytes(data)[1:]])
    again = Sweeping.of(small)
    (done,) = again.all(again.gc)
    assert "cannot be read" in str(done.trouble)
    assert list(small.state.retired()) == []


@pytest.mark.parametrize("error", [Unavailable, Invalid])
def test_a_manifest_that_the_store_never_gives_keeps_all_shards_and_nothing_else(
    small: Scene, error: type[TieredError]
) -> None:
    """The floor passes it over, as one that is damaged."""
    sweeping = Sweeping.of(small)
    manifests = []
    for _ in range(2):
        flush(small)
        manifests.append(sweeping.save())
    start_again(small)
    small.clock.advance(2 * DAY)

    def fails(key: str, start: int, length: int) -> None:
        if key == manifests[1].key:
            raise error("cannot read an object", key=key, found="EIO")

    again = Sweeping.of(small)
    for _ in range(2):
        flush(small)
        again.save()
    merge_all(small.daemon)
    small.provider.gate = fails
    shard = f"shard/0000000001-{UUID}"
    small.provider.put(KEYS.key(shard), [b"x"])
    troubles = [done.trouble for done in again.all(again.gc)]
    assert head_of(small).floor == manifests[0].seq
    assert any("cannot be read" in str(trouble) for trouble in troubles)
    named = [retired.path for retired in small.state.retired()]
    assert named
    assert not [path for path in named if path.startswith("shard/")]
    small.provider.gate = lambda key, start, length: None
    small.clock.advance(DAY)
    again.all(again.gc)
    assert small.state.is_retired(shard)


def test_manifests_are_deleted_before_their_shards(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeping = Sweeping.of(small)
    for _ in range(3):
        flush(small)
        sweeping.save()
        small.clock.advance(DAY)
    sweeping.count(sweeping.gc)
    gone: list[str] = []
    delete = small.provider.inner.delete_many

    def heard(keys: list[str]) -> Mapping[str, TieredError]:
        gone.extend(key.split("/")[2] for key in keys)
        return delete(keys)

    monkeypatch.setattr(small.provider, "delete_many", heard)
    sweeping.after_grace()
    assert gone == sorted(gone)
    assert set(gone) >= {"checkpoint", "shard"}


def test_commits_with_data_that_is_read_stay_and_go_a_grace_after_the_last_reference(inline: Scene) -> None:
    """Hole H11: inline data has no other grace."""
    sweeping = Sweeping.of(inline)
    flush(inline, 3)
    old = commits(inline)[-1]
    sweeping.save()
    flush(inline)
    sweeping.save()
    inline.clock.advance(DAY)
    sweeping.count(sweeping.gc)
    assert head_of(inline).floor >= old
    flush(inline)
    sweeping.save()
    inline.clock.advance(RETENTION_MS / 1000)
    sweeping.count(sweeping.gc)
    held = {ref.ref.commit_seq for ref in inline.state.objects() if ref.references}
    assert held & set(range(old)) <= set(commits(inline))
    assert 0 not in commits(inline), "an OpenEpoch holds no data"
    before = rows(inline)
    merge_all(inline.daemon)
    sweeping.save()
    kept = commits(inline)
    sweeping.count(sweeping.gc)
    inline.clock.advance(GRACE_MS / 1000 - 1)
    sweeping.count(sweeping.gc)
    assert commits(inline)[: len(kept)] == kept, "a reader of an older view may still want them"
    inline.clock.advance(2)
    assert sweeping.count(sweeping.gc)["removed_commits"] > 0
    assert not held & set(range(old)) & set(commits(inline))
    assert rows(inline) == before == from_nothing(inline)


def test_commits_stay_for_their_retention_after_the_floor_moved(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    for _ in range(2):
        flush(small)
        sweeping.save()
    small.clock.advance(30 * DAY)
    sweeping.count(sweeping.gc)
    floor, kept = head_of(small).floor, commits(small)
    assert floor > 0
    small.clock.advance(RETENTION_MS / 1000 - 1)
    sweeping.count(sweeping.gc)
    assert set(kept) <= set(commits(small)), "their age is not what counts"
    small.clock.advance(1)
    assert look(small.daemon.log.reader, small.state, Gc(), small.clock).commits == floor
    assert sweeping.count(sweeping.gc)["removed_commits"] == floor
    assert commits(small)[0] == floor
    assert sweeping.count(sweeping.gc) == {}


def test_what_stands_for_a_removed_commit_goes_with_it(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    for _ in range(2):
        flush(small)
        sweeping.save()
    low, high = KEYS.repair(1, b"\1" * 16), KEYS.repair(head_of(small).seq, b"\2" * 16)
    for key in (low, high):
        small.provider.put(key, [b"stands for a commit"])
    small.clock.advance(2 * DAY)
    sweeping.count(sweeping.gc)
    small.clock.advance(RETENTION_MS / 1000)
    sweeping.count(sweeping.gc)
    assert [s.key for s in small.provider.list(KEYS.repair_prefix())] == [high]


@pytest.mark.parametrize("what", ["checkpoint/", "shard/"])
def test_without_the_first_commits_the_last_checkpoint_comes_from_a_copy(small: Scene, what: str) -> None:
    """Nobody opens the archive before that."""
    aged(small, Sweeping.of(small), 10)
    wanted, copy = rows(small), MemoryProvider("", ManualClock())
    for each in small.provider.list(KEYS.root):
        copy.put(each.key, [bytes(small.provider.get(each.key).data)])
    assert put_checkpoint(small.provider, KEYS, copy) == []
    for each in list(small.provider.list(KEYS.root + what)):
        overwrite(small.provider, str(KEYS.path(each.key)), b"damaged")
    with pytest.raises(Corrupt):
        from_nothing(small)
    would = put_checkpoint(small.provider, KEYS, copy, apply=False)
    assert would == put_checkpoint(small.provider, KEYS, copy)
    assert would[-1] == next(checkpoint_keys(small.provider, KEYS))
    assert from_nothing(small) == wanted


def test_as_of_below_the_floor_names_the_oldest(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    for _ in range(2):
        flush(small)
        sweeping.save()
    small.clock.advance(2 * DAY)
    sweeping.count(sweeping.gc)
    floor = head_of(small).floor
    reader = LogReader(small.provider, KEYS, small.daemon.log.reader.identity)
    assert fold_as_of(reader, MemoryStore(), floor).seq == floor
    with pytest.raises(NotFound) as caught:
        fold_as_of(reader, MemoryStore(), floor - 1)
    assert f"commit {floor} is the oldest" in str(caught.value)
    small.clock.advance(RETENTION_MS / 1000)
    sweeping.count(sweeping.gc)
    assert commits(small)[0] == floor
    assert fold_as_of(reader, MemoryStore(), floor).seq == floor
    with pytest.raises(NotFound) as caught:
        fold_as_of(reader, MemoryStore(), floor - 1)
    assert f"commit {floor} is the oldest" in str(caught.value)


def test_what_was_the_head_within_a_day_can_be_read_as_of_then(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    seen: list[tuple[float, int, object]] = []
    for _ in range(24):
        flush(small, 1, seed=len(seen))
        sweeping.save()
        merge_all(small.daemon)
        sweeping.count(sweeping.gc)
        seen.append((small.clock.monotonic(), head_of(small).seq, rows(small)))
        small.clock.advance(DAY / 6)
        sweeping.count(sweeping.gc)
        for when, seq, wanted in seen:
            if small.clock.monotonic() - when <= DAY:
                opened = ArchiveReader(small.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at(seq)
                assert live_rows(opened.state, opened.objects) == wanted
    assert head_of(small).floor > seen[8][1]


def test_without_the_first_commits_a_wrong_fold_is_still_found_out(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    aged(small, sweeping, 10)
    assert 0 not in commits(small)
    log = small.daemon.log
    local = log.store.snapshot()
    shadow = Shadow(log.reader, MemoryStore())
    shadow.follow(local)
    assert list(shadow.compared(local)) == list(fold_pairs(local))
    wrong = MemoryStore()
    log.reader.fold(wrong)
    key, value = next(iter(wrong.iterate(QUEUE)))
    wrong.put_many([(key, value[:-1] + bytes([value[-1] ^ 1]))])
    with pytest.raises(FoldsDiffer) as found:
        list(shadow.compared(wrong.snapshot()))
    assert found.value.key == key
    assert shadow.judge(wrong.snapshot()) is FoldCheck.LOCAL_WRONG


@pytest.fixture
def tiny_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "cut", lambda pairs, shard_bytes: cut(pairs, 300))


def test_removed_commits_are_no_damage_and_one_above_the_floor_is_still_mended(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    aged(small, sweeping, 10)
    identity = small.daemon.log.reader.identity

    def opened() -> View:
        return ArchiveReader(small.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at()

    def mender() -> Mender:
        return Mender(
            small.provider, KEYS, identity, None, lambda n: b"r" * n, table_cache_bytes=MIB
        )  # fmt: skip

    report = Verifier(opened()).run(deep=True)
    assert (report.damage, mender().plan()) == ([], [])
    flush(small, 2)
    lost = head_of(small).seq - 1
    small.provider.delete(KEYS.commit(lost))
    steps = mender().plan()
    assert [step.seq for step in steps] == [lost]
    mender().mend(steps)
    assert opened().state.head() == small.state.head()
    assert mender().plan() == []


@pytest.mark.usefixtures("tiny_shards")
def test_shards_are_lent_by_the_epoch_just_before_alone(small: Scene) -> None:
    first = Sweeping.of(small)
    flush(small)
    lender = first.save()
    start_again(small)
    second = Sweeping.of(small, lender=lender.key)
    manifest = second.save()
    assert {s.path for s in manifest.shards} & {s.path for s in lender.shards}
    start_again(small)
    third = Sweeping.of(small, lender=lender.key)
    manifest = third.save()
    assert not {s.path for s in manifest.shards} & {s.path for s in lender.shards}


@pytest.mark.usefixtures("tiny_shards")
def test_a_shard_that_was_retired_is_not_lent(small: Scene) -> None:
    first = Sweeping.of(small)
    flush(small)
    lender = first.save()
    start_again(small)
    second = Sweeping.of(small, lender=lender.key)
    paths = [s.path for s in lender.shards]
    assert AtOnceTurn(small.daemon).commit(NameForDeletion(paths, second.own_keys, 0.0)) is not None
    assert not {s.path for s in second.save().shards} & set(paths)


def test_a_checkpoint_that_somebody_else_put_first_is_not_ours(small: Scene) -> None:
    sweeping = Sweeping.of(small)
    flush(small)
    ids = iter(bytes([9, n]) * 8 for n in range(100))
    write_checkpoint(
        small.provider, KEYS, small.daemon.log.store.snapshot(), None, lambda: KEYS.shard(1, next(ids))
    )
    sweeping.save()
    assert sweeping.own_keys.checkpoints.newest_first() == []
    assert {s.path for s in sweeping.heard.checkpoints[0].shards} == named(small)
    assert sweeping.count(sweeping.gc) == {"named_keys": len(shards(small) - named(small))}


def test_a_writer_that_slept_for_weeks_sweeps_what_it_knows_of_and_breaks_nothing(small: Scene) -> None:
    """Another took over, moved the floor, removed commits; the first one wakes, sweeps by its old fold, and is fenced."""
    first = Sweeping.of(small)
    aged(small, first, 3)
    old = small.daemon
    small.daemon = assemble(small.broker.store, small.provider, small.clock, writer=b"B" * 16, seed=77)
    second = Sweeping.of(small)
    aged(small, second, 12)
    wanted, kept = rows(small), commits(small)
    assert kept[0] > 0
    first.scene = Scene(small.broker, old, small.provider, small.clock)
    first.saver.count()
    first.saver.step()  # a late checkpoint, or none: it counts for nobody
    with contextlib.suppress(Fenced):  # or it finds nothing that it may do: what it waited for is gone
        for _ in range(3):
            first.count(first.gc)
    with pytest.raises(Fenced):
        AtOnceTurn(old).commit(NameForDeletion([f"config/0000000000-{UUID}"], first.own_keys, 0.0))
    assert from_nothing(small) == wanted == rows(small)
    assert set(kept) <= set(commits(small)), "it knows of no floor that the other one does not"
    (won,) = set(commits(small)) - set(kept)
    assert won < kept[0], "a number that was freed, under which its put was created and did not count"
    aged(small, second, 2)
    assert won not in commits(small)
    assert from_nothing(small) == rows(small)
    old.close()


def test_two_sweepers_at_once_remove_the_same(small: Scene) -> None:
    """One of them superseded: deletes of what is gone are success (D6)."""
    first = Sweeping.of(small)
    aged(small, first, 9)
    for key in [s.key for s in small.provider.list(KEYS.commit_prefix)][:3]:
        small.provider.delete(key)
    gone = [r.path for r in small.state.retired()][:2]
    for path in gone:
        small.provider.delete(KEYS.key(path))
    wanted = rows(small)
    aged(small, first, 3)
    assert from_nothing(small) == rows(small)
    assert all(rows(small)[queue][: len(found)] == found for queue, found in wanted.items())
    assert not set(gone) & {r.path for r in small.state.retired()}


def test_a_listing_that_lags_gives_up_nothing_that_is_needed(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put in the last two days is not listed; what was deleted meanwhile still is."""
    seen: list[tuple[float, list[Stored]]] = []
    inner = small.provider.inner.list

    def lagging(prefix: str, *, start_after: str | None = None, limit: int | None = None) -> Iterator[Stored]:
        now = small.clock.monotonic()
        seen.append((now, list(inner(""))))
        old = next((found for when, found in reversed(seen) if when <= now - 2 * DAY), [])
        if prefix == KEYS.checkpoint_prefix:  # of which the probe asks whether they are listed at once
            old = list(inner(""))
        matching = [
            s for s in old if s.key.startswith(prefix) and (start_after is None or s.key > start_after)
        ]
        return iter(matching[:limit])

    monkeypatch.setattr(small.provider, "list", lagging)
    sweeping = Sweeping.of(small)
    aged(small, sweeping, 12)
    monkeypatch.undo()
    assert from_nothing(small) == rows(small)
    assert needed(small) <= stored(small)
    assert {s.path for m in sweeping.own_keys.checkpoints.newest_first() for s in m.shards} <= shards(small)


def test_without_the_right_to_delete_everything_stays_and_is_done_when_it_is_there(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a batch: commits and old checkpoints may not be deleted, data objects may."""
    sweeping = Sweeping.of(small)
    delete = small.provider.inner.delete

    def half(key: str) -> None:
        if "/data/" not in key:
            raise Denied("the store refuses access", key=key)
        delete(key)

    monkeypatch.setattr(small.provider, "delete_many", lambda keys: delete_each(half, keys))
    aged(small, sweeping, 9)
    assert commits(small)[0] == 0
    assert from_nothing(small) == rows(small)
    refused = [r.path for r in small.state.retired() if not r.path.startswith("data/")]
    assert refused
    assert "could not be deleted" in " ".join(str(done.trouble) for done in sweeping.all(sweeping.gc))
    monkeypatch.undo()
    sweeping.after_grace()
    assert commits(small)[0] > 0
    assert not set(refused) & {r.path for r in small.state.retired()}
    assert from_nothing(small) == rows(small)
