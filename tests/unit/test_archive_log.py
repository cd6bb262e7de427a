"""Writing the log: what a success is, what a fence is, and what is sent again."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, Counting, Heard, memory, open_log, plan
from tiered.archive.log.marks import gap_edit, progress_edit
from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.state.values import Head
from tiered.clock import ManualClock, SystemClock
from tiered.codec.types import Buffer
from tiered.errors import Conflict, Corrupt, Fenced, Refused, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Stored
from tiered.provider.fsspec import FsspecProvider
from tiered.provider.posix import PosixProvider
from tiered.provider.wrap import Wrapped
from tiered.settings import Store
from tiered.text.human import second

A, B = b"A" * 16, b"B" * 16


class Remembering(Wrapped):
    """Keeps the bytes of every put, done or not."""

    def __init__(self, inner: Counting) -> None:
        super().__init__(inner)
        self.bodies: list[bytes] = []

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        self.bodies.append(b"".join(bytes(p) for p in parts))
        return super().put(key, parts, create_only=create_only)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def claimed(log: CommitLog, *, lineage: int = 1) -> Head:
    return log.claim(Claim(lineage=lineage, host="h"), 0, before_try=lambda head: None)


def progress(log: CommitLog, offset: int) -> int:
    """Commit a ``Progress``; its number."""
    planned = plan(log, progress_edit(1, [(offset, 7, 0)]))
    log.put(planned)
    return planned.commit.seq


def test_a_commit_enters_the_cache_when_it_is_proven_and_not_before(clock: ManualClock) -> None:
    log = open_log(memory(clock), clock)
    assert log.tip is None
    first = claimed(log)
    assert (first.seq, first.epoch, first.writer_id) == (0, 1, A)
    one = plan(log, progress_edit(1, [(100, 1, 0)]))
    two = plan(log, progress_edit(1, [(250, 2, 0)]))
    assert (one.commit.seq, two.commit.seq) == (1, 2)
    assert two.commit.previous_id == one.commit.commit_id
    assert log.planned().head().progress[1].physical_offset == 250  # type: ignore[union-attr]
    assert log.proven().head() == first
    assert log.put(one) == clock.now_ms()
    assert log.proven().head().progress[1].physical_offset == 100  # type: ignore[union-attr]
    log.put(two)
    assert log.proven().head() == log.tip == log.planned().head()
    assert one.length == sum(len(p) for p in one.parts)


def test_a_lost_answer_is_a_success(clock: ManualClock) -> None:
    store, unknown = memory(clock), list[int]()
    log = open_log(store, clock, events=Heard(on_resend=lambda error: unknown.append(1)))
    claimed(log)
    planned = plan(log, progress_edit(1, [(9, 1, 0)]))
    written_at = clock.now_ms()
    store.say("lost")
    store.calls.clear()
    assert log.put(planned) == written_at, "the date of the put that happened, not of the read-back"
    key = KEYS.commit(1)
    assert store.calls == [("put", key), ("put", key), ("get", key)]
    assert unknown == [1]
    assert clock.monotonic() == 1.0
    assert log.proven().head() == log.tip


def test_our_own_commit_behind_a_412_is_a_success(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    claimed(log)
    planned = plan(log, progress_edit(1, [(9, 1, 0)]))
    store.put(KEYS.commit(1), planned.parts)
    clock.advance(60)
    assert log.put(planned) == clock.now_ms() - 60_000
    assert log.proven().head() == log.tip


def test_what_is_built_upon_is_made_durable_first(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever put it may have died, or lost the answer, before it was."""
    durable: list[str] = []
    monkeypatch.setattr("tiered.archive.log.writer.make_durable", lambda provider, key: durable.append(key))
    store = memory(clock)
    claimed(open_log(store, clock))
    assert durable == []
    log = open_log(store, clock)
    assert durable == [KEYS.commit(0)], "the head that an opener found"
    planned = plan(log, progress_edit(1, [(9, 1, 0)]))
    store.put(KEYS.commit(1), planned.parts)
    log.put(planned)
    assert durable == [KEYS.commit(0), KEYS.commit(1)], "its own commit that it met"


def test_another_commit_behind_a_412_is_a_fence(clock: ManualClock) -> None:
    store = memory(clock)
    ours, theirs = open_log(store, clock), open_log(store, clock, writer=B, seed=2)
    before = claimed(ours)
    theirs.follow()
    claimed(theirs)
    planned = plan(ours, progress_edit(1, [(9, 1, 0)]))
    store.calls.clear()
    with pytest.raises(Fenced) as caught:
        ours.put(planned)
    assert caught.value.fields["key"] == KEYS.commit(1)
    assert caught.value.fields["expected"] == planned.commit.commit_id.hex()
    assert caught.value.fields["writer"] == B.hex()
    assert caught.value.fields["time"] == second(clock.now_ms())
    assert "--take-over" in str(caught.value.hint)
    assert store.calls == [("put", KEYS.commit(1)), ("get", KEYS.commit(1))], (
        "a fenced writer touches nothing"
    )
    assert ours.proven().head() == before, "nothing of it entered the cache"


def test_a_412_and_then_nothing_is_a_fence(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    claimed(log)
    planned = plan(log, progress_edit(1, [(9, 1, 0)]))
    store.say(Conflict("exists"))
    with pytest.raises(Fenced, match="found=nothing"):
        log.put(planned)


def test_an_unknown_outcome_is_the_same_bytes_again_until_the_key_can_be_read(clock: ManualClock) -> None:
    counting = memory(clock)
    store, unknown = Remembering(counting), list[int]()
    log = open_log(store, clock, events=Heard(on_resend=lambda error: unknown.append(1)))
    claimed(log)
    planned = plan(log, progress_edit(1, [(9, 1, 0)]))
    store.bodies.clear()
    # a timeout, a 503, a put that happened and whose answer was lost; then the read-back does not answer either
    counting.say("dropped", Unavailable("503"), "lost", "ok", Unavailable("no read-back"))
    log.put(planned)
    assert len(store.bodies) == 5
    assert set(store.bodies) == {b"".join(map(bytes, planned.parts))}
    assert len(unknown) == 4
    assert clock.monotonic() == 1 + 2 + 4 + 8
    assert log.proven().head() == log.tip


def test_the_pause_between_tries_is_bounded(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    claimed(log)
    planned = plan(log, progress_edit(1, [(9, 1, 0)]))
    store.say(*["dropped"] * 8)
    log.put(planned)
    assert clock.monotonic() == 1 + 2 + 4 + 8 + 16 + 3 * 30


def test_told_to_give_up_the_outcome_stays_unknown(clock: ManualClock) -> None:
    give_up = threading.Event()
    store = memory(clock)
    log = open_log(store, clock, give_up=give_up)
    before = claimed(log)
    planned = plan(log, progress_edit(1, [(9, 1, 0)]))
    store.say("lost")
    give_up.set()
    with pytest.raises(Unavailable, match="unknown") as caught:
        log.put(planned)
    assert caught.value.fields["cause"] == "lost"
    assert log.proven().head() == before
    restarted = open_log(store, clock, store=log.store)
    assert restarted.tip.commit_id == planned.commit.commit_id, "it had happened: the next start finds it"  # type: ignore[union-attr]


def test_a_commit_that_breaks_a_rule_is_refused_before_it_is_written(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    claimed(log)
    progress(log, 100)
    tip = log.tip
    store.calls.clear()
    with pytest.raises(Corrupt):
        plan(log, progress_edit(1, [(50, 1, 0)]))
    assert log.tip == tip
    assert store.calls == []
    assert progress(log, 200) == 2, "and the place is still free"


def test_a_claim_applies_whatever_it_meets_and_tries_the_next_number(clock: ManualClock) -> None:
    store = memory(clock)
    ours, theirs = open_log(store, clock), open_log(store, clock, writer=B, seed=2)
    claimed(theirs)
    progress(theirs, 100)
    heads: list[tuple[int, bytes] | None] = []
    head = ours.claim(
        Claim(lineage=1, host="here"),
        5,
        before_try=lambda h: heads.append(None if h is None else (h.seq, h.writer_id)),
    )
    assert heads == [None, (1, B)]
    assert (head.seq, head.epoch, head.writer_id, head.host) == (2, 2, A, "here")
    assert head.progress[1].physical_offset == 100
    with pytest.raises(Fenced):
        progress(theirs, 200)


def test_a_claim_meets_its_own_late_put(clock: ManualClock) -> None:
    """The put of a former run of the same writer lands while it opens: no fence, one number later."""
    store = memory(clock)
    former = open_log(store, clock)
    claimed(former)
    late = plan(former, progress_edit(1, [(100, 1, 0)]))
    again = open_log(store, clock, seed=2)
    tries: list[int] = []

    def lands_late(head: Head | None) -> None:
        if not tries:
            store.put(KEYS.commit(1), late.parts)
        assert head is not None
        tries.append(head.seq)

    head = again.claim(Claim(lineage=1, host="h"), 0, before_try=lands_late)
    assert tries == [0, 1]
    assert (head.seq, head.epoch) == (2, 2)
    assert head.progress[1].physical_offset == 100


def test_a_claim_behind_a_removed_commit_starts_again(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    tries: list[int] = []

    def conflict_once(head: Head | None) -> None:
        if not tries:
            store.say(Conflict("exists"))
        tries.append(1)

    assert log.claim(Claim(lineage=1, host="h"), 0, before_try=conflict_once).seq == 0
    assert len(tries) == 2


def test_an_older_program_does_not_go_on_with_what_a_newer_one_left(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may read, where the newer one says so; going on could break what it does not know of."""
    store = memory(clock)
    newer = open_log(store, clock)
    with monkeypatch.context() as patched:
        patched.setattr("tiered.archive.log.writer.MIN_WRITER", 2)
        claimed(newer)
    older = open_log(store, clock, writer=B, seed=2)
    head = older.follow()
    assert head is not None
    with pytest.raises(Refused, match="needs a writer of a newer format") as caught:
        claimed(older)
    assert caught.value.fields["found"] == 2
    assert older.follow() == head, "nothing was written"


def test_a_claim_may_be_called_off(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)

    def no(head: Head | None) -> None:
        raise Unavailable("not now")

    with pytest.raises(Unavailable):
        log.claim(Claim(lineage=1, host="h"), 0, before_try=no)
    assert not any(verb == "put" and "commit" in key for verb, key in store.calls)


def test_a_foreign_head_rests_before_it_is_taken_over(clock: ManualClock) -> None:
    store = memory(clock)
    ours, theirs = open_log(store, clock), open_log(store, clock, writer=B, seed=2)
    assert ours.foreign_writer(None, 60_000).rest_ms == 0
    head = claimed(theirs)
    ours.follow()
    assert theirs.foreign_writer(head, 60_000).rest_ms == 0, "one's own head needs no wait"
    assert ours.foreign_writer(head, 60_000).rest_ms == 60_000
    clock.advance(45)
    assert ours.foreign_writer(head, 60_000).rest_ms == 15_000
    clock.advance(15)
    assert ours.foreign_writer(head, 60_000).rest_ms == 0
    store.delete(KEYS.commit(0))
    assert ours.foreign_writer(head, 60_000).rest_ms > 0, "a head that is gone must be looked at again"


def test_the_store_decides_how_old_a_head_is_not_this_host(clock: ManualClock) -> None:
    store, host = memory(clock), ManualClock(clock.now_ms() + 86_400_000)
    theirs = open_log(store, clock, writer=B)
    head = claimed(theirs)
    ours = open_log(store, host, seed=2)
    assert ours.foreign_writer(head, 60_000).rest_ms == 60_000


def test_a_head_without_a_time_is_watched(clock: ManualClock) -> None:
    """fsspec tells no time of an object that is of the same clock as its answers: a standby goes by what it sees itself."""
    theirs = open_log(fsspec_memory("watched", clock), clock, writer=B)
    head = claimed(theirs)
    clock.advance(3600)
    ours = open_log(fsspec_memory("watched", clock), clock, seed=2)
    assert ours.foreign_writer(head, 60_000).rest_ms == 60_000
    clock.advance(45)
    assert ours.foreign_writer(head, 60_000).rest_ms == 15_000
    progress(theirs, 100)  # it lives
    ours.follow()
    assert ours.foreign_writer(ours.tip, 60_000).rest_ms == 60_000
    clock.advance(59.5)
    assert ours.foreign_writer(ours.tip, 60_000).rest_ms == 500
    clock.advance(0.5)
    assert ours.foreign_writer(ours.tip, 60_000).rest_ms == 0
    ours.claim(Claim(lineage=1, host="standby"), clock.now_ms(), before_try=lambda head: None)


@pytest.mark.parametrize("ahead_seconds", [-3600, 3600])
def test_the_file_servers_clock_decides_for_a_standby_that_never_wrote(
    tmp_path: Path, ahead_seconds: int
) -> None:
    """On NFS a file's time is the server's: a host whose clock is ahead must not take over at once, nor one behind never."""
    server = SystemClock()
    host = ManualClock(server.now_ms() + 1000 * ahead_seconds)
    url = str(tmp_path / "archive")
    theirs = open_log(PosixProvider(url, server), ManualClock(server.now_ms()), writer=B)
    head = claimed(theirs)
    ours = open_log(PosixProvider(url, host), host, seed=2)
    assert 50_000 < ours.foreign_writer(head, 60_000).rest_ms <= 60_000
    os.utime(tmp_path / "archive" / KEYS.commit(0), (server.now_ms() / 1000 - 30.1,) * 2)  # files' times tick
    assert 10_000 < ours.foreign_writer(head, 60_000).rest_ms <= 30_000
    os.utime(tmp_path / "archive" / KEYS.commit(0), (server.now_ms() / 1000 - 61,) * 2)
    assert ours.foreign_writer(head, 60_000).rest_ms == 0
    assert not list(tmp_path.rglob(".tiered-tmp-*"))


@pytest.mark.parametrize(("checkpoint", "fenced"), [(3, True), (0, False), (None, False)])
def test_a_writer_that_slept_until_the_commits_behind_its_own_were_removed_is_fenced(
    checkpoint: int | None, fenced: bool, tmp_path: Path, clock: ManualClock
) -> None:
    """In a directory its commit is put behind the one before it alone, which is gone, too. What knows nothing of a later
    checkpoint is another disk, which may be taken away again: nothing is put there, and nobody ends."""
    store = PosixProvider(str(tmp_path / "archive"), clock)
    give_up, said = threading.Event(), list[str]()

    def heard(error: Exception) -> None:
        said.append(str(error))
        give_up.set()

    ours = open_log(store, clock, give_up=give_up, events=Heard(on_resend=heard))
    claimed(ours)
    planned = plan(ours, progress_edit(1, [(9, 1, 0)]))
    theirs = open_log(store, clock, writer=B, seed=2)
    claimed(theirs)
    last = [progress(theirs, 100 * n) for n in (1, 2, 3)][-1]
    if checkpoint is not None:
        store.put(KEYS.checkpoint(checkpoint), [b"one"])
    for seq in range(last + 1):
        store.delete(KEYS.commit(seq))
    if fenced:
        with pytest.raises(Fenced, match="took this archive over while this one paused"):
            ours.put(planned)
    else:
        with pytest.raises(Unavailable):
            ours.put(planned)
        assert "an object that this one builds on is missing here" in said[0]
    assert list(store.list(KEYS.commit_prefix)) == []


def fsspec_memory(name: str, clock: ManualClock) -> FsspecProvider:
    return FsspecProvider("memory", f"/{name}", {}, Store(), clock)


def test_a_new_cache_knows_what_the_bucket_knows(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    claimed(log)
    progress(log, 100)
    gap = plan(log, gap_edit(1, 100, 150, "deleted"), progress_edit(1, [(150, 0, 150)]))
    log.put(gap)
    fresh = open_log(store, clock, seed=3, store=MemoryStore())
    assert fresh.tip == log.tip
    assert [(g.start, g.end) for g in fresh.proven().phys_gaps()] == [(100, 150)]
    assert list(fresh.store.iterate(b"")) == list(log.store.iterate(b""))


def test_a_cached_fold_of_another_archive_is_not_used_and_said_so(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    other = open_log(memory(clock), clock, seed=2)
    claimed(other)
    progress(other, 100)
    log = open_log(memory(clock), clock, store=other.store)
    assert log.tip is None
    assert list(log.store.iterate(b"")) == []
    assert "it was of another history" in (log.store.cleared or "")
    assert "the cached fold is made again from the bucket" in caplog.text
