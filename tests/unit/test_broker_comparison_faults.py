"""Comparisons of broker and archive that meet faults of their own: nothing may be skipped, nothing lost may stay live."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.assemble import Assembly, assemble, memory, progress_of, put
from tests.kit.pipeline import Crafted
from tiered.clock import ManualClock
from tiered.codec.format.edits import EditKind, batch
from tiered.errors import Unavailable
from tiered.model import MessageQueue, PhysicalOffset

QUEUE = MessageQueue("Orders", 0)
NOW_MS = 1_700_000_060_000


def broker(directory: Path, clock: ManualClock) -> Crafted:
    made = Crafted(directory / "store", file_bytes=1 << 16)
    made.mark_started(clock.now_ms() - 50_000)
    return made


def send(log: Crafted, count: int, word: str) -> None:
    for i in range(count):
        log.send(topic="Orders", body=f"{word}-{i:02d}".encode())


def live(assembly: Assembly) -> list[bytes]:
    return [row[2] for row in assembly.rows().get(QUEUE, [])]


@pytest.mark.parametrize("tail_lost", [False, True])
def test_a_comparison_that_failed_is_made_again(tmp_path: Path, tail_lost: bool) -> None:
    clock = ManualClock(NOW_MS)
    store, log = memory(clock), broker(tmp_path, clock)
    send(log, 20, "first")
    made = assemble(log.store, store, clock, dispatch={"group_commit_interval_ms": 2000})
    made.settle()
    send(log, 10, "more")
    made.step()
    assert made.dispatcher.buffer, "records are buffered when the broker restarts"
    if tail_lost:
        log.crash(log.sent[14][0].physical_offset)
        send(log, 8, "rewritten")
    log.mark_started(clock.now_ms())
    clock.advance(1.1)
    real, left = made.source.copy_local, [1]

    def once(start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        if left[0]:
            left[0] -= 1
            raise Unavailable("one I/O error")
        return real(start, end)

    made.source.copy_local = once  # type: ignore[method-assign]
    with pytest.raises(Unavailable):
        made.dispatcher.step()
    send(log, 3, "later")
    made.settle()
    assert live(made) == [raw for _, raw in log.sent]
    assert list(made.state.gaps(QUEUE)) == []
    assert progress_of(made) == log.position
    made.close()


def test_a_rewind_takes_a_gap_of_the_lost_tail_with_it(tmp_path: Path) -> None:
    """A damaged record becomes a gap; the broker then cuts its log there and writes on: the queue goes on in its generation."""
    clock = ManualClock(NOW_MS)
    store, log = memory(clock), broker(tmp_path, clock)
    send(log, 20, "number")
    bad = log.sent[7][0].physical_offset
    log.write(bad + log.records[bad].index(b"number-07"), b"NUMBER")
    made = assemble(log.store, store, clock, source={"corrupt_wait_ms": 2000})
    made.settle()
    assert [(g.start, g.end) for g in made.state.gaps(QUEUE)] == [(7, 8)]
    log.crash(bad)
    clock.advance(5)
    send(log, 13, "anewone")
    log.mark_started(clock.now_ms() - 10)
    clock.advance(1.1)
    made.settle()
    queue = made.state.queue(QUEUE)
    assert queue is not None
    assert (queue.generation, queue.min_offset, queue.max_offset) == (1, 0, 20)
    assert live(made) == [raw for _, raw in log.sent]
    assert list(made.state.gaps(QUEUE)) == []
    made.close()


def test_a_rewind_takes_a_run_that_was_trimmed_within(tmp_path: Path) -> None:
    """Retention has taken the first messages of a queue's only run; then the broker loses all that the run came from."""
    clock = ManualClock(NOW_MS)
    store, log = memory(clock), broker(tmp_path, clock)
    log.send(topic="Payments", body=b"stays")
    send(log, 20, "number")
    made = assemble(log.store, store, clock)
    made.settle()
    trim = batch(EditKind.TRIM_QUEUE, topic="Orders", queue_id=0, generation=1, first_offset=5)
    put(made.log, trim)
    made.close()
    log.crash(log.sent[1][0].physical_offset)
    del log.sent[1:]
    send(log, 8, "anewone")
    log.mark_started(clock.now_ms())
    clock.advance(1.1)
    made = assemble(log.store, store, clock)
    made.settle()
    assert live(made) == [raw for message, raw in log.sent if message.topic == "Orders"]
    assert progress_of(made) == log.position
    made.close()


@pytest.mark.parametrize("word", ["rewrit", "rewritten-longer"])
def test_stale_bytes_behind_a_cut_do_not_stay_live(tmp_path: Path, word: str) -> None:
    """The comparison comes before the broker writes over what it cut: the gap's place is watched until it does."""
    clock = ManualClock(NOW_MS)
    store, log = memory(clock), broker(tmp_path, clock)
    send(log, 20, "number")
    bad = log.sent[7][0].physical_offset
    log.write(bad + log.records[bad].index(b"number-07"), b"NUMBER")
    made = assemble(log.store, store, clock, source={"corrupt_wait_ms": 2000})
    made.settle()
    log.crash(bad)
    clock.advance(5)
    log.mark_started(clock.now_ms())
    clock.advance(1.1)
    made.dispatcher.step()
    made.settle(3)
    send(log, 13, word)
    clock.advance(1.1)
    made.settle()
    assert live(made) == [raw for _, raw in log.sent]
    made.close()
