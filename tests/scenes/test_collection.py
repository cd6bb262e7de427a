"""Collection: what nothing refers to goes, after a commit and a grace; nothing else does, whatever fails meanwhile (S4, S8)."""

from __future__ import annotations

import random
import threading
import tracemalloc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.archiveedits import rewind, start_again
from tests.kit.assemble import KEYS, assemble, live_rows
from tests.kit.collecting import GRACE_MS, HOUR_MS, Sweeping, needed, stored
from tests.kit.fetchscene import ORDERS, Ranges, Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all
from tests.kit.movingfold import nobody_walks_over_the_live_fold, planned_on_a_moving_fold
from tests.scenes.test_seal import Uploads
from tiered import crashpoint
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.rewrite import collection
from tiered.archive.rewrite.collect import Listed, NameForDeletion, SayDeleted, orphans
from tiered.archive.rewrite.collection import Collection, figures, look, said
from tiered.archive.rewrite.floor import Shelf
from tiered.archive.rewrite.removal import removable
from tiered.archive.rewrite.retention import Retention
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.crashpoint import AgeingPoint, CrashPoint
from tiered.errors import Denied, Fenced, Invalid, Refused, TieredError, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.provider.base import Fetched, Stored
from tiered.provider.deleting import delete_each
from tiered.provider.memory import MemoryProvider
from tiered.settings import Gc, Retain

UUID = "00000000-0000-4000-8000-00000000000"
QUEUES = [MessageQueue("Orders", 0), MessageQueue("Orders", 1), MessageQueue("Payments", 0)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def flush(made: Scene, flushes: int = 1, seed: int = 1) -> None:
    """Messages of now in several queues, one commit each."""
    chance = random.Random(seed)
    for _ in range(flushes):
        made.broker.time_ms = made.clock.now_ms()
        for _ in range(chance.randint(3, 12)):
            queue = chance.choice(QUEUES)
            made.broker.send(queue.topic, queue.queue_id, b"%d " % len(made.broker.sent) * 9)
        made.daemon.settle(2.0)


def rows(made: Scene) -> dict[MessageQueue, list[tuple[int, int, bytes]]]:
    return live_rows(made.state, made.objects())


def test_what_a_merge_left_is_named_kept_for_a_grace_and_then_deleted(small: Scene) -> None:
    flush(small, 5)
    before, old = rows(small), stored(small)
    merge_all(small.daemon)
    sweeping = Sweeping.of(small)
    assert len(old) == 5
    assert look(small.daemon.log.reader, small.state, Gc(), small.clock).unreferenced == 5
    assert sweeping.count(sweeping.gc) == {"named_keys": 5}
    assert {r.path for r in small.state.retired()} == old
    small.clock.advance(GRACE_MS / 1000 - 60)
    assert sweeping.count(sweeping.gc) == {}
    assert stored(small) >= old, "a reader of an older view may still want them"
    found = look(small.daemon.log.reader, small.state, Gc(), small.clock)
    assert (found.wait, found.due) == (5, 0)
    small.clock.advance(60)
    assert sweeping.gc.plan().figures["deletable"] == 5
    assert sweeping.count(sweeping.gc) == {"deleted_keys": 5, "failed_deletes": 0}
    assert stored(small) == needed(small) == stored(small) - old
    assert list(small.state.retired()) == []
    assert rows(small) == before
    assert said(look(small.daemon.log.reader, small.state, Gc(), small.clock)) == "nothing to collect"


def test_a_dry_look_writes_nothing(small: Scene) -> None:
    flush(small, 3)
    merge_all(small.daemon)
    head, keys = small.state.head(), stored(small)
    look(small.daemon.log.reader, small.state, Gc(), small.clock)
    assert (small.state.head(), stored(small)) == (head, keys)


def test_off_it_does_nothing(small: Scene) -> None:
    task = Collection(small.daemon.log, small.clock, Gc(enabled="false"), OwnKeys())
    small.clock.advance(100_000)
    assert not task.due(small.clock.monotonic())
    assert task.plan().jobs == 0
    flush(small, 2)
    merge_all(small.daemon)
    assert task.run_once(AtOnceTurn(small.daemon)).figures == {}
    assert list(small.state.retired()) == []
    keeper = Retention(small.daemon.log, small.clock, lambda: Retain())
    assert not keeper.due(small.clock.monotonic())


def test_orphans_are_those_of_earlier_epochs_that_no_commit_knows(small: Scene) -> None:
    flush(small, 2)
    (some, *_) = sorted(stored(small))
    data = small.provider.get(KEYS.key(some)).data
    first, now, strange = f"data/0000000001-{UUID}1", f"data/0000000002-{UUID}2", "data/readme.txt"
    shard, config = f"shard/0000000001-{UUID}3", f"config/0000000001-{UUID}4"
    start_again(small)
    for path in (first, now, strange, shard, config):
        small.provider.put(KEYS.key(path), [data])
    head = small.state.head()
    assert head is not None
    assert head.epoch == 2
    listed = Listed()
    found = set(orphans(small.provider, KEYS, small.state, head.epoch, listed))
    assert (found, listed.foreign, listed.objects) == ({first, config}, 1, 6)
    sweeping = Sweeping.of(small)
    assert sweeping.count(sweeping.gc) == {"named_keys": 3}, "the shard, too: no checkpoint names it"
    assert sweeping.after_grace() == {"deleted_keys": 3, "failed_deletes": 0}
    small.provider.put(KEYS.key(first), [data])  # a put that was on its way all this time
    small.provider.put(KEYS.key(shard), [data])
    assert sweeping.count(sweeping.gc) == {}, "a key is never named twice by one process"
    start_again(small)
    again = Sweeping.of(small)
    assert again.count(again.gc) == {"named_keys": 3}
    again.after_grace()
    assert stored(small) == needed(small) | {strange}


def test_names_are_remembered_up_to_a_number(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that runs for years names orphans all the time; what it forgot and meets again it names once more."""
    monkeypatch.setattr(collection, "KEPT_NAMED", 1)
    flush(small, 2)
    late = [f"data/0000000001-{UUID}{n}" for n in range(1, 4)]
    start_again(small)
    sweeping = Sweeping.of(small)
    for again in (3, 2):
        for path in late:
            small.provider.put(KEYS.key(path), [b"late"])
        assert sweeping.count(sweeping.gc)["named_keys"] == again
        assert sweeping.after_grace()["deleted_keys"] == again
    assert len(stored(small) - needed(small)) == 1, "the one that it remembers"


def test_what_is_all_that_is_left_of_records_is_no_orphan(small: Scene) -> None:
    flush(small, 2)
    small.broker.send(body=b"on its way" * 9)

    def stop(point: object) -> None:
        if point is CrashPoint.AFTER_OBJECTS:
            raise KeyboardInterrupt

    crashpoint.install(stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            small.daemon.settle(2.0)
    finally:
        crashpoint.install(None)
    assert len(stored(small) - needed(small)) == 1
    start_again(small)
    sweeping = Sweeping.of(small)
    assert sweeping.count(sweeping.gc) == {}, "its records are not archived yet"
    small.daemon.settle(2.0)
    assert sweeping.count(sweeping.gc) == {"named_keys": 1}
    sweeping.after_grace()
    assert stored(small) == needed(small)


def test_keys_that_this_process_gave_up_go_in_its_own_epoch(small: Scene) -> None:
    flush(small, 2)
    sweeping = Sweeping.of(small)
    given_up, in_hand = f"data/0000000001-{UUID}1", f"data/0000000001-{UUID}2"
    with sweeping.own_keys.making(given_up):
        small.provider.put(KEYS.key(given_up), [b"half a merge"])
    with sweeping.own_keys.making(in_hand):
        small.provider.put(KEYS.key(in_hand), [b"a merge under way"])
        assert sweeping.count(sweeping.gc) == {"named_keys": 1}
        sweeping.after_grace()
        assert stored(small) == needed(small) | {in_hand}
    assert sweeping.own_keys.given_up() == [in_hand]


def test_what_changed_before_its_place_came_is_left_out(small: Scene) -> None:
    flush(small, 3)
    live = sorted(needed(small))
    merge_all(small.daemon)
    dead = sorted(stored(small) - needed(small))
    assert live == dead
    flush(small)
    (young,) = needed(small) - {p for p in stored(small) if p in dead} - {max(needed(small))} or {
        max(needed(small))
    }
    sweeping = Sweeping.of(small)
    turn = AtOnceTurn(small.daemon)
    made = turn.commit(NameForDeletion([*dead, young], OwnKeys(), 0.0))
    assert made is not None
    assert made.flush.edits[0].columns["keys"] == [dead], "not what runs lie in"
    assert turn.commit(NameForDeletion([*dead, young], OwnKeys(), 0.0)) is None
    assert turn.commit(SayDeleted([young], 0.0)) is None
    assert turn.commit(NameForDeletion([KEYS.commit(1), "archive.json", "data/x"], OwnKeys(), 0.0)) is None
    sweeping.after_grace()
    assert stored(small) == needed(small)


def test_deletes_that_fail_are_told_and_done_again(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    flush(small, 9)
    merge_all(small.daemon)
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    small.clock.advance(GRACE_MS / 1000)
    inner, calls = small.provider.inner.delete, []

    def refuse(key: str) -> None:
        calls.append(key)
        if len(calls) % 3 == 0:
            raise Unavailable("503", key=key)
        inner(key)

    monkeypatch.setattr(small.provider, "delete_many", lambda keys: delete_each(refuse, keys))
    done = sweeping.all(sweeping.gc)
    assert [dict(d.figures) for d in done] == [{"deleted_keys": 6, "failed_deletes": 3}, {}]
    assert "3 of 9 keys could not be deleted" in str(done[0].trouble)
    assert len(list(small.state.retired())) == 3
    assert len(stored(small) - needed(small)) == 3
    assert sweeping.count(sweeping.gc) == {"deleted_keys": 2 + 0, "failed_deletes": 1}
    assert sweeping.count(sweeping.gc) == {"deleted_keys": 1, "failed_deletes": 0}
    assert stored(small) == needed(small)


def test_what_a_batch_deleted_is_committed_and_the_refused_key_is_told_until_it_goes(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush(small, 9)
    merge_all(small.daemon)
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    small.clock.advance(GRACE_MS / 1000)
    bad = KEYS.key(sorted(stored(small) - needed(small))[4])
    inner, refused = small.provider.inner.delete_many, [bad]

    def touchy(keys: Sequence[str]) -> Mapping[str, TieredError]:
        if set(refused) & set(keys):
            raise Denied("the store refuses access", found="403 AccessDenied", key=refused[0])
        return inner(keys)

    monkeypatch.setattr(small.provider, "delete_many", touchy)
    batches = replace(small.provider.capabilities, delete_keys=1000)
    monkeypatch.setattr(type(small.provider), "capabilities", property(lambda self: batches))
    sweeping = Sweeping.of(small)
    for deleted in (8, 0):
        done = sweeping.all(sweeping.gc)
        assert done[0].figures == {"deleted_keys": deleted, "failed_deletes": 1}
        assert bad in str(done[0].trouble)
        assert [KEYS.key(found.path) for found in small.state.retired()] == [bad]
    refused.clear()
    assert sweeping.count(sweeping.gc) == {"deleted_keys": 1, "failed_deletes": 0}
    assert stored(small) == needed(small)


def test_what_the_store_itself_keeps_is_told_once_and_asked_for_again_after_its_date(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush(small, 3)
    merge_all(small.daemon)
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    small.clock.advance(GRACE_MS / 1000)
    until_ms, inner, asked = small.clock.now_ms() + HOUR_MS, small.provider.inner.delete, []

    def locked(key: str) -> None:
        asked.append(key)
        if small.clock.now_ms() < until_ms:
            raise Refused("the store keeps an object by Object Lock", key=key, until_ms=until_ms)
        inner(key)

    monkeypatch.setattr(small.provider, "delete_many", lambda keys: delete_each(locked, keys))
    assert "3 of 3 keys could not be deleted" in str(sweeping.all(sweeping.gc)[0].trouble)
    assert (len(asked), len(list(small.state.retired()))) == (3, 3)
    small.clock.advance(HOUR_MS / 1000 - 1)
    assert [done.trouble for done in sweeping.all(sweeping.gc)] == [None]
    assert len(asked) == 3, "not a request more while it is known to be locked"
    small.clock.advance(1)
    assert sweeping.count(sweeping.gc) == {"deleted_keys": 3, "failed_deletes": 0}
    assert stored(small) == needed(small)


def test_without_a_clock_with_clocks_apart_or_promises_broken_nothing_is_deleted(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush(small, 2)
    merge_all(small.daemon)
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    small.clock.advance(2 * GRACE_MS / 1000)
    before = stored(small)
    weak = Sweeping.of(small, weak=("listings lag",))
    with pytest.raises(Refused, match="does not keep what the archive relies on"):
        weak.count(weak.gc)
    sweeping.gc._clock = ManualClock(small.clock.now_ms() + 301_000)
    with pytest.raises(Refused, match="too far apart"):
        sweeping.count(sweeping.gc)
    sweeping = Sweeping.of(small)
    get = small.provider.inner.get

    def timeless(key: str, start: int | None = None, length: int | None = None) -> Fetched:
        found = get(key, start, length)
        return Fetched(found.data, found.object_length, found.date_ms, None)

    monkeypatch.setattr(small.provider.inner, "get", timeless)
    with pytest.raises(Refused, match="when its objects were written"):
        sweeping.count(sweeping.gc)
    assert stored(small) == before


def test_a_commit_that_is_gone_leaves_what_it_named(small: Scene) -> None:
    flush(small, 2)
    merge_all(small.daemon)
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    head = small.state.head()
    assert head is not None
    small.provider.delete(KEYS.commit(head.seq))
    small.clock.advance(2 * GRACE_MS / 1000)
    (done,) = sweeping.all(sweeping.gc)
    assert f"commit {head.seq} is missing" in str(done.trouble)
    assert len(stored(small)) == 3


def test_a_writer_that_was_superseded_deletes_no_more_than_was_named_and_says_nothing(small: Scene) -> None:
    flush(small, 4)
    merge_all(small.daemon)
    first = Sweeping.of(small)
    first.count(first.gc)
    old = small.daemon
    small.daemon = assemble(small.broker.store, small.provider, small.clock, writer=b"B" * 16, seed=77)
    flush(small, 2, seed=9)
    merge_all(small.daemon)
    wanted = rows(small)
    small.clock.advance(8 * GRACE_MS / 1000)
    first.scene = Scene(small.broker, old, small.provider, small.clock)
    with pytest.raises(Fenced):
        first.count(first.gc)
    assert rows(small) == wanted
    second = Sweeping.of(small)
    second.count(second.gc)
    second.after_grace()
    assert stored(small) == needed(small)
    assert rows(small) == wanted
    assert list(small.state.retired()) == []


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("point", list(AgeingPoint))
def test_killed_anywhere_the_next_run_brings_it_to_an_end(small: Scene, point: AgeingPoint) -> None:
    flush(small, 3)
    merge_all(small.daemon)
    flush(small, 2)
    small.clock.advance(2 * HOUR_MS / 1000)
    flush(small, 2)
    kept = small.clock.now_ms() - HOUR_MS
    reached = threading.Event()

    def kill(at: object) -> None:
        if at is point:
            reached.set()
            raise Killed

    def run(**options: int) -> None:
        sweeping = Sweeping.of(small, **options)
        sweeping.count(sweeping.retention)
        sweeping.save()
        sweeping.count(sweeping.gc)
        flush(small)
        sweeping.save()
        sweeping.after_grace()
        small.clock.advance(Gc().commit_retention_ms / 1000)
        sweeping.count(sweeping.gc)
        sweeping.after_grace()

    crashpoint.install(kill)
    try:
        with pytest.raises(Killed):
            run()
    finally:
        crashpoint.install(None)
    assert reached.is_set()
    # The clock moved; the messages to keep are those in range when the run began.
    start_again(small)
    run(keep_ms=HOUR_MS if point is AgeingPoint.BEFORE_TRIM else 100 * GRACE_MS)
    head = small.state.head()
    assert head is not None
    assert 0 < head.floor == min(int(s.key[-20:]) for s in small.provider.list(KEYS.commit_prefix))
    wanted = {
        queue: [raw for m, raw in small.broker.sent if m.store_timestamp >= kept and m.topic == queue.topic
                and m.queue_id == queue.queue_id]
        for queue in QUEUES
    }  # fmt: skip
    assert {q: [raw for _, _, raw in found] for q, found in rows(small).items()} == {
        q: found for q, found in wanted.items() if found
    }
    assert stored(small) == needed(small)
    assert list(small.state.retired()) == []


@pytest.mark.depends_only_on_imports
@pytest.mark.history
@pytest.mark.parametrize("seed", range(6))
def test_random_lives_of_an_archive_leave_no_orphan_and_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Flushes, merges, trims, rewinds, restarts and sweeps in any order: what is in range stays readable, and at the end only
    what is needed is stored."""
    with scene(tmp_path) as made:
        chance = random.Random(seed)
        sweeping = Sweeping.of(made)
        flush(made, 2, seed)
        for _ in range(14):
            kind = chance.choice(["flush", "flush", "merge", "trim", "sweep", "grace", "restart", "rewind"])
            before = {raw for found in rows(made).values() for _, _, raw in found}
            if kind == "flush":
                flush(made, chance.randint(1, 3), chance.randrange(1 << 30))
            elif kind == "merge":
                merge_all(made.daemon)
            elif kind == "restart":
                start_again(made)
                sweeping = Sweeping.of(made)
            elif kind == "rewind":
                young = [
                    m for m, _ in made.broker.sent[-6:] if made.clock.now_ms() - m.store_timestamp < HOUR_MS
                ]
                if young and len(made.broker.sent) > 8:
                    rewind(made, young[0])
                    sweeping = Sweeping.of(made)
                continue
            elif kind == "trim":
                made.clock.advance(chance.choice([60, 5400]))
                sweeping.count(sweeping.retention)
                young = {
                    raw for m, raw in made.broker.sent if made.clock.now_ms() - m.store_timestamp < HOUR_MS
                }
                assert before & young <= {raw for found in rows(made).values() for _, _, raw in found}
                continue
            elif kind == "grace":
                sweeping.after_grace()
            else:
                sweeping.count(sweeping.gc)
            assert before <= {raw for found in rows(made).values() for _, _, raw in found}, kind
        start_again(made)
        made.daemon.settle(2.0)
        sweeping = Sweeping.of(made)
        sweeping.count(sweeping.gc)
        sweeping.after_grace()
        assert stored(made) == needed(made)
        assert ORDERS.topic in {q.queue.topic for q in made.state.queues()}


def test_uploads_that_nobody_completes_are_shown_and_given_up_and_a_missing_right_is_told(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush(small)
    start_again(small)
    uploads = Uploads(KEYS.key(f"data/0000000001-{UUID}1"), KEYS.key(f"data/0000000002-{UUID}2"))
    capabilities = replace(small.provider.capabilities, uploads=uploads)
    monkeypatch.setattr(Ranges, "capabilities", capabilities, raising=False)
    log = small.daemon.log
    found = look(log.reader, small.state, Gc(), small.clock)
    assert (found.uploads, figures(found)["abandoned_uploads"], found.deletable) == (1, 1, 1)
    assert "1 abandoned uploads to be given up" in said(found)
    assert len(uploads.left) == 2
    sweeping = Sweeping.of(small)
    assert sweeping.gc.plan().jobs == 1
    assert sweeping.count(sweeping.gc) == {"given_up_uploads": 1}
    assert [upload.key for upload in uploads.left] == [KEYS.key(f"data/0000000002-{UUID}2")]
    uploads.refusal = Invalid("no rights to list uploads")
    small.provider.put(KEYS.key(f"data/0000000001-{UUID}3"), [b"an orphan"])
    assert look(log.reader, small.state, Gc(), small.clock).uploads is None
    (done,) = sweeping.all(sweeping.gc)
    assert "no rights" in str(done.trouble)
    assert done.figures == {"named_keys": 1}


class Endless(MemoryProvider):
    """A bucket whose listing is made as it is read: ``numbers`` data objects."""

    numbers = range(0)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        assert start_after is limit is None
        yield from (Stored(KEYS.key(path_of(n)), 1, 1, 1) for n in self.numbers if prefix.endswith("data/"))


def path_of(number: int) -> str:
    return f"data/0000000001-00000000-0000-4000-8000-{number:012x}"


def test_a_walk_over_the_bucket_keeps_nothing_of_what_it_meets() -> None:
    """Memory stays the same for three times the objects: fold and listing are read side by side."""
    peaks = []
    for count in (5_000, 15_000):
        store = MemoryStore()
        store.put_many((b"k" + path_of(n).encode(), bytes(12)) for n in range(count))
        provider = Endless("", ManualClock())
        provider.numbers = range(count)
        state, listed = ArchiveState(store), Listed()
        tracemalloc.start()
        assert list(orphans(provider, KEYS, state, 2, listed)) == []
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert listed.objects == count
    assert peaks[1] < peaks[0] + 200_000


def test_shards_stay_where_the_listing_has_no_checkpoint_at_or_above_the_floor() -> None:
    """The floor is the number of a checkpoint: such a listing lacks what is there, and the shards that it names."""
    provider, shelf = MemoryProvider("", ManualClock()), Shelf()
    provider.put(KEYS.shard(1, b"s" * 16), [b"shard"])
    reader: Any = SimpleNamespace(provider=provider, keys=KEYS)
    own: Any = SimpleNamespace(checkpoints=SimpleNamespace(made=lambda _: False), in_hand=lambda _: False)
    named = []
    for floor in (0, 5):
        head = SimpleNamespace(floor=floor, epoch=3)
        state: Any = SimpleNamespace(head=lambda head=head: head, is_retired=lambda _: False)
        named.append(len(list(shelf.unneeded(reader, state, own))))
    assert (named, shelf.unread) == ([1, 0], KEYS.checkpoint(5))


def test_a_fold_that_changes_while_collection_is_planned_is_planned_on_as_of_one_moment(small: Scene) -> None:
    flush(small, 5)
    merge_all(small.daemon)
    sweeping = Sweeping.of(small)

    def planned() -> tuple[object, object]:
        found = sweeping.gc.plan().figures
        return found["unreferenced_objects"], found["waiting_for_grace"]

    before, after, moving = planned_on_a_moving_fold(
        small.daemon, lambda: sweeping.count(sweeping.gc), planned
    )
    assert (before, after) == ((5, 0), (0, 5))
    assert moving
    assert set(moving) <= {before, after}


def test_nothing_that_waits_for_a_later_turn_holds_on_to_the_fold(small: Scene) -> None:
    """Commits are removed over many turns: what keeps a whole old fold alive, on disk too, is not kept for that."""
    flush(small, 5)
    view = small.daemon.log.frozen().view
    held = weakref.ref(view)
    walk = removable(small.daemon.log.reader, ArchiveState(view), lambda seq: True, lambda seq: True)
    del view
    assert held() is None
    assert list(walk) == []


def test_a_fold_that_changes_while_retention_is_planned_is_planned_on_as_of_one_moment(small: Scene) -> None:
    flush(small, 5)
    small.clock.advance(3 * HOUR_MS / 1000)
    flush(small, 1)
    sweeping = Sweeping.of(small)
    before, after, moving = planned_on_a_moving_fold(
        small.daemon,
        lambda: sweeping.count(sweeping.retention),
        lambda: sweeping.retention.plan().figures["trims"],
    )
    assert (before, after) == (len(QUEUES), 0)
    assert moving
    assert set(moving) <= {before, after}


def test_no_turn_of_retention_or_collection_walks_over_a_fold_that_changes(small: Scene) -> None:
    flush(small, 5)
    merge_all(small.daemon)
    small.clock.advance(3 * HOUR_MS / 1000)
    flush(small, 1)
    sweeping = Sweeping.of(small)
    for task, figure in ((sweeping.retention, "trimmed_queues"), (sweeping.gc, "named_keys")):
        with nobody_walks_over_the_live_fold(small.daemon) as over:
            assert task.run_once(AtOnceTurn(small.daemon, before=over)).figures[figure]
