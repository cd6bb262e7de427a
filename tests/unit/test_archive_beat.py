"""Signs of life: what an idle writer shows, what those who wait make of it, and the goodbye."""

from __future__ import annotations

import pytest

from tests.kit.assemble import KEYS, Heard, memory, open_log, plan
from tiered.archive.keys import BEAT_PREFIX
from tiered.archive.log.beat import Beats, beat_seconds
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.writer import MAINTAINER, Claim, CommitLog
from tiered.archive.state.values import Head
from tiered.clock import ManualClock
from tiered.errors import Fenced, Refused
from tiered.opening.claim import Claimant
from tiered.provider.base import Provider

A, B = b"A" * 16, b"B" * 16
WAIT_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def claimed(log: CommitLog, role: str = "master") -> Head:
    return log.claim(Claim(lineage=1, host="h1", role=role), 0, before_try=lambda head: None)


def progress(log: CommitLog, offset: int) -> None:
    log.put(plan(log, progress_edit(1, [(offset, 7, 0)])))


def beats_in(store: Provider) -> list[str]:
    return [stored.key for stored in store.list(KEYS.key(BEAT_PREFIX))]


def live(beats: Beats, clock: ManualClock, seconds: float) -> None:
    """What the thread of the beats does."""
    until = clock.monotonic() + seconds
    while clock.monotonic() < until:
        pause = beats.step()
        assert pause is not None
        clock.advance(pause)


def test_an_idle_writer_is_alive_for_as_long_as_it_beats(clock: ManualClock) -> None:
    store = memory(clock)
    theirs, ours = open_log(store, clock, writer=B, seed=2), open_log(store, clock)
    head = claimed(theirs)
    beats = Beats(theirs, clock, beat_seconds(WAIT_MS))
    store.calls.clear()
    least = WAIT_MS
    for _ in range(30):
        live(beats, clock, 20)
        least = min(least, ours.foreign_writer(head, WAIT_MS).rest_ms)
    assert least > WAIT_MS / 2, "one beat may be lost"
    puts = [key for verb, key in store.calls if verb == "put"]
    assert 20 <= len(puts) <= 30
    assert len(beats_in(store)) == 1, "the older ones are gone"
    assert theirs.tip == head, "the log is as it was"
    clock.advance(WAIT_MS / 1000)
    assert ours.foreign_writer(head, WAIT_MS).rest_ms == 0


def test_a_writer_that_commits_puts_no_beat(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    claimed(log)
    beats = Beats(log, clock, beat_seconds(WAIT_MS))
    for n in range(20):
        live(beats, clock, 10)
        progress(log, n)
    assert not beats_in(store)


@pytest.mark.parametrize("later", [False, True])
def test_a_goodbye_holds_until_something_is_committed(clock: ManualClock, *, later: bool) -> None:
    """A put of unknown outcome may land behind it."""
    store = memory(clock)
    theirs, ours = open_log(store, clock, writer=B, seed=2), open_log(store, clock)
    claimed(theirs)
    beats = Beats(theirs, clock, beat_seconds(WAIT_MS))
    live(beats, clock, 50)
    beats.goodbye()
    assert len(beats_in(store)) == 1
    if later:
        progress(theirs, 5)
    head = ours.follow()
    seen = ours.foreign_writer(head, WAIT_MS)
    assert seen.rest_ms == (WAIT_MS if later else 0)


def test_no_goodbye_while_a_commit_is_planned_or_after_another_writer_came(clock: ManualClock) -> None:
    store = memory(clock)
    theirs, ours = open_log(store, clock, writer=B, seed=2), open_log(store, clock)
    claimed(theirs)
    beats = Beats(theirs, clock, beat_seconds(WAIT_MS))
    plan(theirs, progress_edit(1, [(1, 7, 0)]))
    beats.goodbye()
    assert not beats_in(store)
    ours.follow()
    claimed(ours)
    theirs.follow()
    beats.goodbye()
    assert not beats_in(store)


def test_an_idle_writer_notices_that_it_was_fenced_and_by_whom(clock: ManualClock) -> None:
    store = memory(clock)
    theirs, ours = open_log(store, clock, writer=B, seed=2), open_log(store, clock)
    claimed(theirs)
    beats = Beats(theirs, clock, beat_seconds(WAIT_MS))
    beats.check()
    ours.follow()
    claimed(ours, MAINTAINER)
    clock.advance(20)
    for _ in range(20):
        if beats.step() is None:
            break
        clock.advance(5)
    with pytest.raises(Fenced) as caught:
        beats.check()
    assert caught.value.fields["by"] == "a command of maintenance"
    assert caught.value.fields["host"] == "h1"
    assert not beats_in(store)


def test_the_next_epoch_removes_what_the_one_before_left(clock: ManualClock) -> None:
    store = memory(clock)
    first = open_log(store, clock, writer=B, seed=2)
    for writer, log in ((B, first), (A, open_log(store, clock))):
        log.follow()
        claimed(log)
        live(Beats(log, clock, 20), clock, 30)
        (kept,) = beats_in(store)
        assert log.writer_id == writer
        assert log.tip is not None
        assert kept == KEYS.beat(log.tip.epoch, 1)


def test_a_store_that_takes_no_beat_ends_nobody(clock: ManualClock) -> None:
    store = memory(clock)
    log = open_log(store, clock)
    claimed(log)
    beats = Beats(log, clock, 20)
    store.say("dropped", "dropped")
    live(beats, clock, 60)
    beats.check()
    assert len(beats_in(store)) == 1


def claimant(
    log: CommitLog, *, take_over: bool = False, stands_by: bool = False, heard: Heard | None = None
) -> Claimant:
    return Claimant(
        log, WAIT_MS, take_over, lambda: False, heard or Heard(), role=MAINTAINER, stands_by=stands_by
    )


def test_a_command_is_refused_while_another_writer_lives(clock: ManualClock) -> None:
    store = memory(clock)
    theirs, ours = open_log(store, clock, writer=B, seed=2), open_log(store, clock)
    head = claimed(theirs)
    live(Beats(theirs, clock, beat_seconds(WAIT_MS)), clock, 600)
    ours.follow()
    before = len(store.calls)
    with pytest.raises(Refused, match="--take-over") as caught:
        claimant(ours).claim(1)
    assert {"host", "last_sign"} <= set(caught.value.fields)
    assert caught.value.fields["host"] == "h1"
    assert not [call for call in store.calls[before:] if call[0] == "put"]
    assert theirs.follow() == head
    assert claimant(ours, take_over=True).claim(1).role == MAINTAINER


def test_a_command_goes_on_after_a_writer_that_is_gone(clock: ManualClock) -> None:
    store = memory(clock)
    theirs, ours = open_log(store, clock, writer=B, seed=2), open_log(store, clock)
    claimed(theirs)
    live(Beats(theirs, clock, beat_seconds(WAIT_MS)), clock, 100)
    clock.advance(WAIT_MS / 1000)
    ours.follow()
    assert claimant(ours).claim(1).epoch == 2


def test_a_standby_waits_for_a_writer_that_beats_and_follows_one_that_died(clock: ManualClock) -> None:
    store = memory(clock)
    theirs, ours = open_log(store, clock, writer=B, seed=2), open_log(store, clock)
    claimed(theirs)
    live(Beats(theirs, clock, beat_seconds(WAIT_MS)), clock, 100)
    ours.follow()
    began = clock.monotonic()
    assert claimant(ours, stands_by=True).claim(1).epoch == 2
    assert WAIT_MS / 1000 - 25 <= clock.monotonic() - began <= WAIT_MS / 1000


def test_shorter_waits_have_no_beats() -> None:
    assert beat_seconds(0) is None
    assert beat_seconds(120_000) == 40
