"""Reading the log: the end, the cached fold, checkpoints, and what is Corrupt only at the second look."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.assemble import KEYS, Counting, memory, open_log, put
from tiered.archive.ahead import AHEAD_BYTES, MOST_AHEAD, MOST_KNOWN, read_numbers
from tiered.archive.checkpoint.store import checkpoint_keys, write_checkpoint
from tiered.archive.keys import BEAT_PREFIX
from tiered.archive.log import reader as reader_module
from tiered.archive.log.asof import commit_at
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.reader import MERGE_COMMITS, LogReader
from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.state.keys import HEAD
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.format.commit import COMMIT_FOOTER_BYTES, encode_commit
from tiered.errors import Corrupt, NotFound, Refused, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Provider, Stored
from tiered.provider.wrap import Wrapped


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Counting:
    return memory(clock)


def history(store: Counting, clock: ManualClock, commits: int, **options: object) -> CommitLog:
    """A log of one epoch and ``commits`` further commits."""
    log = open_log(store, clock, **options)  # type: ignore[arg-type]
    log.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)
    more(log, commits)
    return log


def more(log: CommitLog, commits: int) -> None:
    head = log.tip
    assert head is not None
    at = head.progress[1].physical_offset if 1 in head.progress else 0
    for number in range(commits):
        put(log, progress_edit(1, [(at + 100 * (number + 1), number, 0)]))


def pairs(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    return list(store.iterate(b""))


def commits_read(store: Counting) -> list[int]:
    return [int(key[-20:]) for verb, key in store.calls if verb == "get" and "/commit/" in key]


def checkpoint(log: CommitLog, tag: int) -> None:
    ids = iter(bytes([tag, n]) * 8 for n in range(100))
    write_checkpoint(log.reader.provider, KEYS, log.store.snapshot(), None, lambda: KEYS.shard(1, next(ids)))


def test_the_end_is_a_404_and_then_a_listing(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 3)
    store.calls.clear()
    fresh, seen = MemoryStore(), list[int]()
    assert log.reader.fold(fresh, seen.append) == log.tip
    assert seen == [0, 1, 2, 3]
    end = [("get", KEYS.commit(4)), ("list", KEYS.checkpoint_prefix)]
    behind = [("list", KEYS.commit_prefix), ("list", KEYS.key(BEAT_PREFIX))]
    assert store.calls[-4:] == [*end, *behind], "and no commit behind lost ones"
    assert pairs(fresh) == pairs(log.store)


@pytest.mark.parametrize("lost", [(3,), (3, 4), (2, 3, 4)])
def test_commits_lost_in_a_row_are_never_a_shorter_log(
    store: Counting, clock: ManualClock, lost: tuple[int, ...]
) -> None:
    log, follower, seen = history(store, clock, 1), MemoryStore(), MemoryStore()
    reader = LogReader(store, KEYS, log.reader.identity, clock)
    reader.fold(follower)
    more(log, 4)
    for seq in lost:
        store.delete(KEYS.commit(seq))
    named = f"commit {lost[0]}" if len(lost) == 1 else f"commits {lost[0]} to {lost[-1]}"
    with pytest.raises(
        Corrupt, match=f"missing from the log, although later.*expected={named}, .*is commit {lost[-1] + 1}"
    ):
        log.reader.fold(seen)
    head = reader.follow(follower)
    assert head is not None
    assert head.seq == lost[0] - 1
    store.calls.clear()
    assert reader.follow(follower) == head
    assert ("list", KEYS.commit_prefix) not in store.calls, "not at each look"
    clock.advance(reader_module.LOOK_BEHIND_SECONDS)
    for _ in range(2):
        with pytest.raises(Corrupt, match="missing from the log"):
            reader.follow(follower)


def test_an_end_is_looked_behind_only_while_it_does_not_move(store: Counting, clock: ManualClock) -> None:
    log, follower = history(store, clock, 1), MemoryStore()
    reader = LogReader(store, KEYS, log.reader.identity, clock)
    reader.fold(follower)
    for _ in range(4):
        clock.advance(reader_module.LOOK_BEHIND_SECONDS - 1)
        more(log, 1)
        store.calls.clear()
        assert reader.follow(follower) == log.tip
        assert ("list", KEYS.commit_prefix) not in store.calls


def test_no_epoch_is_claimed_in_a_hole(store: Counting, clock: ManualClock) -> None:
    """Two lost commits looked like the end of the log: the next writer put its own under their numbers."""
    log = history(store, clock, 2)
    other = open_log(store, clock)
    other.follow()
    more(log, 3)
    for seq in (3, 4):
        store.delete(KEYS.commit(seq))
    with pytest.raises(Corrupt, match="missing from the log"):
        other.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)
    assert other.reader.read(3) is None


def test_an_empty_log_has_no_head(store: Counting, clock: ManualClock) -> None:
    log = open_log(store, clock)
    assert log.reader.fold(MemoryStore()) is None
    assert log.reader.read(0) is None
    assert log.reader.checkpoint_above(-1) is False


def test_more_commits_than_one_batch(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, MERGE_COMMITS + 7)
    fresh = MemoryStore()
    log.reader.fold(fresh)
    assert pairs(fresh) == pairs(log.store)
    assert fresh.applied() == log.store.applied()


def test_a_cached_fold_that_agrees_saves_the_rest(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 5)
    cache = MemoryStore()
    log.reader.fold(cache)
    more(log, 2)
    store.calls.clear()
    assert log.reader.fold(cache) == log.tip
    assert commits_read(store) == [5, 6, 7, 8]
    assert pairs(cache) == pairs(log.store)


def test_a_cached_fold_of_another_history_is_thrown_away(clock: ManualClock) -> None:
    mine, other = memory(clock), memory(clock)
    log = history(mine, clock, 4)
    foreign = history(other, clock, 2, seed=9, writer=b"B" * 16)
    cache = foreign.store
    assert log.reader.fold(cache) == log.tip
    assert pairs(cache) == pairs(log.store)  # type: ignore[arg-type]


def test_a_cached_fold_of_a_fork_is_thrown_away(clock: ManualClock) -> None:
    """Same archive, same number, another commit: the bucket is right."""
    mine, fork = memory(clock), memory(clock)
    log = history(mine, clock, 3)
    fork.put(KEYS.identity, [mine.get(KEYS.identity).data])
    forked = history(fork, clock, 2, seed=5)
    assert forked.reader.identity == log.reader.identity
    assert log.reader.fold(forked.store) == log.tip
    assert pairs(forked.store) == pairs(log.store)  # type: ignore[arg-type]


def test_a_bucket_that_ends_before_the_cache_is_refused(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 3)
    before = pairs(log.store)  # type: ignore[arg-type]
    store.delete(KEYS.commit(3))
    with pytest.raises(Refused) as caught:
        log.reader.fold(log.store)
    assert caught.value.fields["key"] == KEYS.commit(3)
    assert "state directory" in str(caught.value.hint)
    assert pairs(log.store) == before, "the cache is the last witness: it stays"  # type: ignore[arg-type]


def test_a_cache_whose_commit_was_removed_is_rebuilt_from_the_checkpoint_above(
    store: Counting, clock: ManualClock
) -> None:
    log = history(store, clock, 2)
    cache = MemoryStore()
    log.reader.fold(cache)
    more(log, 3)
    checkpoint(log, 1)
    for seq in range(6):
        store.delete(KEYS.commit(seq))
    assert log.reader.fold(cache) == log.tip
    assert pairs(cache) == pairs(log.store)  # type: ignore[arg-type]


def test_a_fresh_reader_begins_at_the_newest_checkpoint(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 3)
    checkpoint(log, 1)
    more(log, 2)
    fresh = MemoryStore()
    store.calls.clear()
    assert log.reader.fold(fresh) == log.tip
    assert commits_read(store) == [4, 5, 6]
    assert pairs(fresh) == pairs(log.store)  # type: ignore[arg-type]


def test_a_rotten_checkpoint_counts_as_absent(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 2)
    checkpoint(log, 1)
    more(log, 2)
    checkpoint(log, 2)
    key = KEYS.checkpoint(4)
    data = bytearray(store.get(key).data)
    data[len(data) // 2] ^= 1
    store.put(key, [data], create_only=False)
    fresh = MemoryStore()
    store.calls.clear()
    assert log.reader.fold(fresh) == log.tip
    assert commits_read(store) == [3, 4, 5], "from the older checkpoint on"
    assert pairs(fresh) == pairs(log.store)  # type: ignore[arg-type]


def test_a_checkpoint_without_its_shard_counts_as_absent(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 2)
    checkpoint(log, 1)
    (shard,) = store.list(f"{KEYS.root}shard/")
    store.delete(shard.key)
    store.calls.clear()
    assert log.reader.fold(MemoryStore()) == log.tip
    assert commits_read(store) == [0, 1, 2, 3]


def test_a_rotten_checkpoint_above_the_end_is_no_endless_loop(store: Counting, clock: ManualClock) -> None:
    """A checkpoint above the last commit says that commits are missing; if it cannot be used either, that is damage."""
    log = history(store, clock, 2)
    store.put(KEYS.checkpoint(9), [b"rotten"])
    store.calls.clear()
    with pytest.raises(Corrupt) as caught:
        log.reader.fold(MemoryStore())
    assert caught.value.fields["key"] == KEYS.commit(3)
    assert len(store.calls) < 60


def test_commits_and_checkpoint_written_while_reading(store: Counting, clock: ManualClock) -> None:
    """GET n+1 says 404, then the writer commits and saves a checkpoint, then the listing shows it: not the end."""
    log = history(store, clock, 2)
    original, done = log.reader.checkpoint_above, list[int]()

    def late(seq: int) -> bool:
        if not done:
            done.append(seq)
            more(log, 2)
            checkpoint(log, 1)
        return original(seq)

    reader = LogReader(store, KEYS, log.reader.identity)
    reader.checkpoint_above = late  # type: ignore[method-assign]
    fresh = MemoryStore()
    head = reader.fold(fresh)
    assert head is not None
    assert (done, head.seq) == ([2], 4)


def test_a_commit_that_does_not_fit_is_corrupt_after_starting_again(
    store: Counting, clock: ManualClock
) -> None:
    log = history(store, clock, 2)
    found = log.reader.read(2)
    assert found is not None
    wrong = replace(found.commit, seq=3, commit_id=b"x" * 16, previous_id=b"y" * 16)
    store.put(KEYS.commit(3), encode_commit(wrong))
    store.calls.clear()
    with pytest.raises(Corrupt, match="names the one before it"):
        log.reader.fold(MemoryStore())
    assert commits_read(store) == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_damaged_cache_is_mended_from_the_bucket(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 2)
    cache = MemoryStore()
    log.reader.fold(cache)
    head = ArchiveState(cache).head()
    assert head is not None
    wrong = replace(head, epoch=7)  # right position, wrong content: the next commit does not fit
    cache.put_many([(HEAD, wrong.pack())], applied=head.position())
    more(log, 1)
    assert log.reader.fold(cache) == log.tip
    assert pairs(cache) == pairs(log.store)  # type: ignore[arg-type]


def test_a_store_that_does_not_answer_is_not_damage(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 2)
    cache = MemoryStore()
    log.reader.fold(cache)
    before = pairs(cache)
    store.say(Unavailable("away"))
    with pytest.raises(Unavailable):
        log.reader.fold(cache)
    assert pairs(cache) == before


def test_a_commit_larger_than_the_first_request(
    store: Counting, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = history(store, clock, 1)
    monkeypatch.setattr(reader_module, "TAIL_BYTES", COMMIT_FOOTER_BYTES)
    store.calls.clear()
    found = log.reader.read(1)
    assert found is not None
    assert found.commit.seq == 1
    assert store.calls == [("get", KEYS.commit(1))] * 2
    assert (found.date_ms, found.last_modified_ms) == (clock.now_ms(), clock.now_ms())


def test_a_commit_cut_short_is_corrupt(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 1)
    whole = store.get(KEYS.commit(1)).data
    store.put(KEYS.commit(1), [whole[-COMMIT_FOOTER_BYTES:]], create_only=False)
    with pytest.raises(Corrupt, match="shorter than its footer says"):
        log.reader.read(1)
    store.put(KEYS.commit(1), [whole[:-1]], create_only=False)
    with pytest.raises(Corrupt):
        log.reader.read(1)
    store.put(KEYS.commit(1), [b""], create_only=False)
    with pytest.raises(Corrupt):
        log.reader.read(1)


def test_a_commit_under_anothers_key_is_corrupt(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 2)
    store.put(KEYS.commit(3), [store.get(KEYS.commit(1)).data])
    with pytest.raises(Corrupt, match="another's key"):
        log.reader.read(3)
    stranger = LogReader(store, KEYS, ArchiveIdentity(b"z" * 16, "DefaultCluster", "broker-a", 0))
    with pytest.raises(Corrupt, match="another's key"):
        stranger.read(1)


# ---- the past


@pytest.mark.parametrize("checkpoint_at", [None, 3])
def test_the_fold_as_it_was(store: Counting, clock: ManualClock, checkpoint_at: int | None) -> None:
    log = history(store, clock, 0)
    folds = [pairs(log.store)]
    for seq in range(1, 7):
        more(log, 1)
        folds.append(pairs(log.store))
        if seq == checkpoint_at:
            checkpoint(log, 1)
    for seq, wanted in enumerate(folds):
        fresh = MemoryStore()
        head = log.reader.fold_until(fresh, seq)
        assert head.seq == seq
        assert pairs(fresh) == wanted
    for seq in (7, 1 << 40):
        with pytest.raises(NotFound, match="commits 0 to 6"):
            log.reader.fold_until(MemoryStore(), seq)


def test_a_past_whose_commits_are_gone_is_named(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 3)
    checkpoint(log, 1)
    more(log, 2)
    store.delete(KEYS.commit(1))
    assert log.reader.fold_until(MemoryStore(), 4).seq == 4
    with pytest.raises(NotFound, match=r"commits 1 to 2.*a later commit"):
        log.reader.fold_until(MemoryStore(), 2)


def test_the_commit_of_a_time(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 0)
    times = [store.head(KEYS.commit(0)).last_modified_ms]
    for _ in range(5):
        clock.advance(10.0)
        more(log, 1)
        times.append(times[-1] + 10_000)
    head = log.reader.fold(MemoryStore())
    assert head is not None
    for seq, time_ms in enumerate(times):
        assert commit_at(log.reader, head, time_ms) == seq
        assert commit_at(log.reader, head, time_ms + 9_999) == seq
    with pytest.raises(NotFound, match=f"{times[0]} ms since 1970 or later"):
        commit_at(log.reader, head, times[0] - 1)


@pytest.mark.parametrize("gone", [[0], [3], [4], [1, 2, 3], [5]])
@pytest.mark.parametrize("put_again", [True, False])
def test_the_commit_of_a_time_where_others_are_lost_or_were_put_again(
    store: Counting, clock: ManualClock, gone: list[int], put_again: bool
) -> None:
    """Neither fails, and neither hides what came after them."""
    log = history(store, clock, 0)
    for _ in range(5):
        clock.advance(10.0)
        more(log, 1)
    times = [store.head(KEYS.commit(seq)).last_modified_ms for seq in range(6)]
    head = log.reader.fold(MemoryStore())
    assert head is not None
    clock.advance(1000.0)
    for seq in gone:
        data = bytes(store.get(KEYS.commit(seq)).data)
        store.delete(KEYS.commit(seq))
        if put_again:
            store.put(KEYS.commit(seq), [data])
    for seq, time_ms in enumerate(times):
        if not {*range(seq + 1)} <= {*gone} and seq not in gone:
            assert commit_at(log.reader, head, time_ms) == seq
            assert commit_at(log.reader, head, time_ms + 9_999) == seq


class Late(Wrapped):
    """Answers each get after a moment, and says how many were under way at once."""

    def __init__(self, inner: Provider, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._now = self.most = 0
        self.asked: list[int] = []

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            if "/commit/" in key:
                self.asked.append(int(key[-20:]))
        time.sleep(self._seconds)
        try:
            return self.inner.get(key, start, length)
        finally:
            with self._lock:
                self._now -= 1


def test_commits_behind_the_checkpoint_are_read_ahead(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 3)
    checkpoint(log, 1)
    more(log, 256)
    sixteen = threading.Barrier(16)

    class Held(Late):
        """Sixteen commits are answered when all of them were asked for."""

        def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
            if KEYS.commit(130) <= key < KEYS.commit(146):
                sixteen.wait(60)
            return super().get(key, start, length)

    late, seen, fresh = Held(store, 0.0), list[int](), MemoryStore()
    assert LogReader(late, KEYS, log.reader.identity).fold(fresh, seen.append) == log.tip
    assert pairs(fresh) == pairs(log.store)  # type: ignore[arg-type]
    assert seen == list(range(4, 260))
    assert late.most <= MOST_KNOWN, "bounded"
    assert late.asked.count(260) in (1, 2), "the end is asked for again if not all before it was in hand"
    assert max(late.asked) <= 260 + MOST_AHEAD, "and little beyond it"


@pytest.mark.parametrize("commits", [1, 2, 3, 4])
def test_a_reader_that_keeps_up_asks_for_nothing_beyond_the_end(
    store: Counting, clock: ManualClock, commits: int
) -> None:
    log = history(store, clock, 5)
    cache = MemoryStore()
    log.reader.fold(cache)
    more(log, commits)
    store.calls.clear()
    log.reader.follow(cache)
    assert commits_read(store) == list(range(6, 6 + commits + 1))


def test_a_commit_put_while_those_behind_it_are_asked_for_is_read(
    store: Counting, clock: ManualClock
) -> None:
    """The 404 of n+1 may be older than commit n: it ends nothing."""
    log, answered = history(store, clock, 19), threading.Event()
    hidden = {KEYS.commit(seq): store.inner.get(KEYS.commit(seq)).data for seq in range(15, 20)}
    for key in hidden:
        store.delete(key)

    class Arriving(Late):
        def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
            if key == KEYS.commit(15):
                assert answered.wait(10)
                for name, data in hidden.items():
                    self.inner.put(name, [data])
            try:
                return super().get(key, start, length)
            finally:
                if key == KEYS.commit(16):
                    answered.set()

    arriving, fresh = Arriving(store, 0.001), MemoryStore()
    assert LogReader(arriving, KEYS, log.reader.identity).fold(fresh) == log.tip
    assert arriving.asked.count(16) == 2, "it was asked for before 15 was there"


def test_large_edits_are_not_all_held_at_once() -> None:
    asked: list[int] = []

    def read(number: int) -> int | None:
        asked.append(number)
        return number if number < 40 else None

    assert list(read_numbers(read, 0, None, lambda value: AHEAD_BYTES)) == list(range(40))
    assert asked == list(range(41)), "one after another"


def test_an_error_is_raised_where_its_commit_is_come_to() -> None:
    def read(number: int) -> int | None:
        if number == 25:
            raise Unavailable("away")
        return number

    taken = []
    with pytest.raises(Unavailable):
        for number in read_numbers(read, 0, None, lambda value: 1):
            taken.append(number)
    assert taken == list(range(25))
    assert list(read_numbers(lambda n: n, 0, 50, lambda value: 1)) == list(range(51))


@pytest.mark.parametrize("gap", [1, 7, 256])
def test_the_newest_checkpoint_is_found_among_many_without_listing_all(clock: ManualClock, gap: int) -> None:
    provider = memory(clock)
    seqs = list(range(5, 5 + 9000 * gap, gap))
    for seq in seqs:
        provider.inner.put(KEYS.checkpoint(seq), [b"x"])
    provider.inner.put(f"{KEYS.checkpoint_prefix}zzz", [b"nobody's"])
    newest = [KEYS.checkpoint(seq) for seq in reversed(seqs)]
    assert list(checkpoint_keys(provider, KEYS)) == newest
    provider.calls.clear()
    assert next(checkpoint_keys(provider, KEYS)) == newest[0]
    assert len(provider.calls) <= 12
    below = seqs[4321]
    assert next(checkpoint_keys(provider, KEYS, below)) == KEYS.checkpoint(below)
    assert next(checkpoint_keys(provider, KEYS, below - 1)) == KEYS.checkpoint(below - gap)
    assert next(checkpoint_keys(provider, KEYS, 3), None) is None


def test_a_long_row_of_commits_is_listed_once(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 3)
    checkpoint(log, 1)
    more(log, 300)
    answered, together = threading.Event(), threading.Barrier(MOST_AHEAD + 8)

    class Listed(Late):
        """Commits from 150 on are answered when the log was listed; of those from 220 on forty at once."""

        def list(
            self, prefix: str, *, start_after: str | None = None, limit: int | None = None
        ) -> Iterator[Stored]:
            found = list(self.inner.list(prefix, start_after=start_after, limit=limit))
            if prefix == KEYS.commit_prefix:
                answered.set()
            return iter(found)

        def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
            if KEYS.commit(150) <= key <= KEYS.commit(400):
                assert answered.wait(60)
            if KEYS.commit(220) <= key < KEYS.commit(220 + together.parties):
                together.wait(60)
            return super().get(key, start, length)

    listed, fresh = Listed(store, 0.0), MemoryStore()
    store.calls.clear()
    assert LogReader(listed, KEYS, log.reader.identity).fold(fresh) == log.tip
    assert pairs(fresh) == pairs(log.store)  # type: ignore[arg-type]
    assert store.calls.count(("list", KEYS.commit_prefix)) == 2, "and once behind the end"
    assert [seq for seq in listed.asked if seq > 303] == [304], (
        "and nothing beyond the end but what proves it"
    )


def test_a_page_of_names_that_fails_leaves_reading_as_it_was(store: Counting, clock: ManualClock) -> None:
    log, fresh = history(store, clock, 120), MemoryStore()

    class Unlisted(Late):
        """No page of the log's names, but of what lies behind its end."""

        def list(
            self, prefix: str, *, start_after: str | None = None, limit: int | None = None
        ) -> Iterator[Stored]:
            if prefix == KEYS.commit_prefix and start_after != KEYS.commit(120):
                raise Unavailable("away")
            return self.inner.list(prefix, start_after=start_after, limit=limit)

    unlisted = Unlisted(store, 0.001)
    assert LogReader(unlisted, KEYS, log.reader.identity).fold(fresh) == log.tip
    assert pairs(fresh) == pairs(log.store)  # type: ignore[arg-type]
    assert unlisted.most <= MOST_AHEAD
