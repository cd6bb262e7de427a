"""Numbers of removed commits are free: no writer counts what it wins there, no reader believes it (holes H1, H2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.assemble import KEYS, Counting, memory, plan, put
from tests.unit.test_archive_reader import checkpoint, commits_read, history, more, pairs
from tiered.archive.keys import BEAT_PREFIX
from tiered.archive.log.counting import COUNTED_WINDOW_MS
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.planned import PlannedCommit
from tiered.archive.log.reader import LOOK_AGAIN_MS, LogReader
from tiered.archive.log.writer import Claim, CommitLog
from tiered.clock import ManualClock
from tiered.errors import Corrupt, Fenced, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Fetched
from tiered.settings.keeping import LEAST_COMMIT_RETENTION_MS

HOUR_MS, WEEK_SECONDS = 3_600_000, 7 * 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Counting:
    return memory(clock)


def test_the_settings_allow_no_retention_that_the_rules_do_not_hold_for() -> None:
    assert LEAST_COMMIT_RETENTION_MS > 2 * COUNTED_WINDOW_MS
    assert LEAST_COMMIT_RETENTION_MS >= 2 * LOOK_AGAIN_MS


def test_a_success_counts_within_an_hour_and_is_proven_after_it(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 1)
    store.calls.clear()
    clock.advance(HOUR_MS / 1000)
    more(log, 1)
    assert store.calls == [("put", KEYS.commit(2))]
    store.calls.clear()
    clock.advance(HOUR_MS / 1000 + 1)
    more(log, 1)
    assert store.calls == [
        ("put", KEYS.commit(3)), ("head", KEYS.commit(4)), ("list", KEYS.checkpoint_prefix)
    ], "nothing behind it, and then no checkpoint that stands for it"  # fmt: skip
    store.calls.clear()
    more(log, 1)
    assert store.calls == [("put", KEYS.commit(4))], "which counted"


def test_a_claim_is_always_proven(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 0)
    store.calls.clear()
    log.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)
    assert store.calls == [
        ("list", KEYS.commit_prefix), ("list", KEYS.key(BEAT_PREFIX)), ("put", KEYS.commit(1)), ("head", KEYS.commit(2)),
        ("list", KEYS.checkpoint_prefix),
    ]  # fmt: skip


def test_while_the_proof_cannot_be_had_it_is_asked_for_again(store: Counting, clock: ManualClock) -> None:
    log = history(store, clock, 1)
    clock.advance(2 * HOUR_MS / 1000)
    planned = plan(log, progress_edit(1, [(900, 1, 0)]))
    store.say("ok", Unavailable("503"), Unavailable("503"))
    written_ms = clock.now_ms()
    assert log.put(planned) == written_ms
    assert log.proven().head() == log.tip


def asleep(store: Counting, clock: ManualClock, sleeper: CommitLog) -> PlannedCommit:
    """``sleeper`` plans commit 2 and sleeps; another takes over, saves two checkpoints and, later, removes commits 0 to 3."""
    planned = plan(sleeper, progress_edit(1, [(900, 1, 0)]))
    other = history(store, clock, 3, writer=b"B" * 16, seed=9)
    checkpoint(other, 1)
    more(other, 2)
    checkpoint(other, 2)
    clock.advance(WEEK_SECONDS)
    for seq in range(4):
        store.delete(KEYS.commit(seq))
    return planned


def test_a_number_that_was_freed_is_won_and_does_not_count(store: Counting, clock: ManualClock) -> None:
    sleeper = history(store, clock, 1)
    planned = asleep(store, clock, sleeper)
    before = pairs(sleeper.store)  # type: ignore[arg-type]
    with pytest.raises(Fenced, match="while this one paused"):
        sleeper.put(planned)
    assert sleeper.reader.is_there(2), "it was created"
    assert pairs(sleeper.store) == before  # type: ignore[arg-type]


def test_what_follows_is_a_fence_although_the_commit_is_in_the_history(
    store: Counting, clock: ManualClock
) -> None:
    log = history(store, clock, 1)
    planned = plan(log, progress_edit(1, [(900, 1, 0)]))
    store.put(KEYS.commit(2), planned.parts)  # done, the answer lost, and the writer slept
    other = history(store, clock, 1, writer=b"B" * 16, seed=9)
    assert other.tip is not None
    clock.advance(2 * HOUR_MS / 1000)
    with pytest.raises(Fenced):
        log.put(planned)


class Pausing(Counting):
    """A store before whose next ``get`` of a key something happens, once."""

    def before(self, key: str, happens: Callable[[], None]) -> None:
        self._paused = (key, happens)

    _paused: tuple[str, Callable[[], None]] | None = None

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        if self._paused is not None and self._paused[0] == key:
            happens, self._paused = self._paused[1], None
            happens()
        return super().get(key, start, length)


def test_a_reader_that_slept_believes_no_freed_number(store: Counting, clock: ManualClock) -> None:
    """It saw the archive end at 1; when it comes back a sleeping writer has put a commit that fits under number 2."""
    log = history(store, clock, 1)
    seen, reader = MemoryStore(), LogReader(store, KEYS, log.reader.identity)
    assert reader.fold(seen) == log.tip
    planned = asleep(store, clock, log)
    with pytest.raises(Fenced):
        log.put(planned)
    store.calls.clear()
    applied: list[int] = []
    head = reader.follow(seen, applied.append)
    assert applied == [], "it begins anew, from the newest checkpoint"
    truth = MemoryStore()
    assert head == LogReader(store, KEYS, log.reader.identity).fold(truth)
    assert head is not None
    assert (head.epoch, head.seq) == (2, 7)
    assert pairs(seen) == pairs(truth)


def test_an_opener_that_slept_over_its_listing_calls_nothing_damaged(clock: ManualClock) -> None:
    store = Pausing(memory(clock).inner)
    log = history(store, clock, 1)
    checkpoint(log, 7)
    opener = LogReader(store, KEYS, log.reader.identity)

    def sleep() -> None:
        planned = asleep(store, clock, log)
        with pytest.raises(Fenced):
            log.put(planned)

    store.before(KEYS.commit(2), sleep)
    truth, seen, applied = MemoryStore(), MemoryStore(), list[int]()
    head = opener.fold(seen, applied.append)
    assert applied == []
    assert head == LogReader(store, KEYS, log.reader.identity).fold(truth)
    assert pairs(seen) == pairs(truth)
    assert store._paused is None


def test_an_answer_that_comes_late_is_believed_while_no_checkpoint_stands_above(
    store: Counting, clock: ManualClock
) -> None:
    log = history(store, clock, 1)
    seen = MemoryStore()
    log.reader.fold(seen)
    clock.advance(WEEK_SECONDS)
    more(log, 2)
    store.calls.clear()
    assert log.reader.follow(seen) == log.tip
    assert commits_read(store) == [2, 3, 4]
    assert [call for call in store.calls if call[0] == "list"] == [("list", KEYS.checkpoint_prefix)] * 2


def test_a_checkpoint_that_cannot_be_used_does_not_make_a_reader_begin_for_ever(
    store: Counting, clock: ManualClock
) -> None:
    log = history(store, clock, 1)
    seen = MemoryStore()
    log.reader.fold(seen)
    more(log, 2)
    checkpoint(log, 1)
    (shard,) = store.list(f"{KEYS.root}shard/")
    store.delete(shard.key)
    clock.advance(WEEK_SECONDS)
    more(log, 1)
    assert log.reader.follow(seen) == log.tip
    store.delete(KEYS.commit(1))
    with pytest.raises(Corrupt, match="missing"):
        LogReader(store, KEYS, log.reader.identity).fold(MemoryStore())


def test_a_put_counts_from_its_own_date(store: Counting, clock: ManualClock) -> None:
    """An answer that was lost is dated by the read-back; it is within the window only if that is."""
    log = history(store, clock, 1)
    put(log, progress_edit(1, [(300, 1, 0)]))
    clock.advance(HOUR_MS / 1000 - 10)
    planned = plan(log, progress_edit(1, [(400, 1, 0)]))
    store.put(KEYS.commit(3), planned.parts)
    clock.advance(20)
    store.calls.clear()
    log.put(planned)
    assert ("head", KEYS.commit(4)) in store.calls
