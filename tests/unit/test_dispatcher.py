"""The way in, step by step with a clock that stands still: group commit, back-pressure, gaps, restarts, large messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import Assembly, Counting, assemble, progress_of
from tests.kit.pipeline import PREPARED, ROLLBACK, Crafted
from tiered.archive.state.keys import QUEUE
from tiered.clock import ManualClock
from tiered.errors import NotFound, Unavailable
from tiered.model import OFF_QUEUE_TOPIC, MessageQueue, PhysicalOffset
from tiered.settings import MIB
from tiered.source.base import ReadStatus

ORDERS = MessageQueue("Orders", 0)
Make = Callable[..., Assembly]


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    return Crafted(tmp_path / "store", file_bytes=1 << 20)


@pytest.fixture
def daemon(broker: Crafted, store: Counting, clock: ManualClock) -> Iterator[Make]:
    made: list[Assembly] = []

    def make(**options: Any) -> Assembly:
        made.append(assemble(broker.store, store, clock, seed=len(made) + 1, **options))
        made[-1].proven.clear()
        return made[-1]

    yield make
    for one in made:
        one.close()


def expected(broker: Crafted, excluded: Callable[[str], bool] = lambda topic: False) -> dict[Any, Any]:
    return {
        q: [(r.generation, r.queue_offset, r.raw) for r in v.rows]
        for q, v in broker.oracle(excluded).queues.items()
    }


def flushed(assembly: Assembly) -> list[int]:
    return [p.flush.messages for p in assembly.proven]


def test_a_flush_by_count(broker: Crafted, daemon: Make) -> None:
    for _ in range(25):
        broker.send()
    one = daemon(dispatch={"group_commit_count": 10, "group_commit_interval_ms": 3_600_000})
    for _ in range(10):
        one.step()
    assert flushed(one) == [10, 10], "the rest waits for its age"
    assert one.dispatcher.buffer.count == 4, "and the last record for its confirmation"
    one.clock.advance(0.5)
    one.step()
    assert one.dispatcher.buffer.count == 5
    one.clock.advance(3600)
    one.step()
    assert flushed(one) == [10, 10, 5]
    assert one.rows() == expected(broker)


def test_a_commit_looks_each_queue_up_once(
    broker: Crafted, daemon: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = daemon()
    asked: list[bytes] = []
    lookup = made.log.store.get_many
    monkeypatch.setattr(made.log.store, "get_many", lambda keys: (asked.extend(keys), lookup(keys))[1])
    for times in (1, 0):
        for queue_id in range(5):
            broker.send(queue_id=queue_id)
        made.settle()
        queues = [key for key in asked if key.startswith(QUEUE)]
        assert len(set(queues)) == len(queues) == 5 * times, (
            "a plan and its commit ask once, and remember what they put"
        )
        asked.clear()


def test_a_flush_by_bytes(broker: Crafted, daemon: Make) -> None:
    for _ in range(20):
        broker.send(body=bytes(10_000))
    one = daemon(
        dispatch={"group_commit_bytes": 65_536, "block_bytes": 4096, "group_commit_interval_ms": 3_600_000}
    )
    for _ in range(30):
        one.step()
    assert flushed(one)[:2] == [7, 7], "full at 65,536 bytes; a record that does not fit any more comes along"
    assert all(p.flush.raw_bytes <= 65_536 + 10_200 for p in one.proven)


def test_a_flush_by_age_counts_from_the_oldest(broker: Crafted, daemon: Make) -> None:
    one = daemon(dispatch={"group_commit_interval_ms": 1000})
    for _ in range(3):
        broker.send()
    one.step()
    assert one.dispatcher.buffer.count == 2
    for _ in range(7):
        one.clock.advance(0.125)
        broker.send()
        one.step()
    assert flushed(one) == []
    one.clock.advance(0.125)
    one.step()
    assert flushed(one) == [9], "all but the last record, which nothing confirms yet"
    assert one.proven[0].flush.first_seen == 0.0


def test_a_flush_at_a_files_end(broker: Crafted, daemon: Make) -> None:
    broker.file_bytes = 4096
    for _ in range(60):
        broker.send()
    one = daemon(dispatch={"group_commit_interval_ms": 3_600_000})
    for _ in range(12):
        one.step()
    ends = [p.flush.next_offset for p in one.proven]
    assert ends == [4096 * (i + 1) for i in range(len(ends))]
    assert len(ends) == broker.position // 4096
    marks = list(one.state.marks(1))
    assert [m.physical_offset for m in marks if m.mark_crc] == ends[::-1]


def test_an_idle_broker_costs_no_request(broker: Crafted, daemon: Make, store: Counting) -> None:
    for number in range(10):
        broker.send(queue_id=number % 2)
    one = daemon()
    one.settle()
    assert one.dispatcher.caught_up
    head = one.state.head()
    store.calls.clear()
    for _ in range(500):
        wait = one.step()
        assert wait > 0, "an idle step says when to look again"
        one.clock.advance(max(wait, 1.0))
    assert store.calls == []
    assert one.state.head() == head


def test_back_pressure_is_not_reading(broker: Crafted, daemon: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(50):
        broker.send()
    one = daemon(dispatch={"group_commit_count": 10, "pipeline_flushes": 2})
    one.line.committing = False
    reads: list[int] = []
    read = one.source.read
    monkeypatch.setattr(one.source, "read", lambda start, **k: reads.append(start) or read(start, **k))
    for _ in range(12):
        one.dispatcher.step()  # nobody commits
    assert not one.line.room
    assert one.line.pending()[0] == 20
    assert len(reads) == 3, "two flushes in line and references to the third, so the fourth is not read"
    position = one.dispatcher.position
    one.line.step(0)
    for _ in range(2):
        one.dispatcher.step()  # the third is flushed, the fourth is read
    assert one.dispatcher.position > position
    one.settle()
    assert one.rows() == expected(broker)


def test_transactions_and_exclusions(broker: Crafted, daemon: Make) -> None:
    for number in range(12):
        broker.send(body=b"half", sys_flag=PREPARED, topic="RMQ_SYS_TRANS_HALF_TOPIC")
        broker.send(topic="secret-1", body=b"hidden")
        broker.send(queue_id=number % 2)
        broker.send(body=b"", sys_flag=ROLLBACK)
    one = daemon(source={"exclude_topics": ("secret-*",)})
    one.settle()
    assert one.rows() == expected(broker, lambda topic: topic.startswith("secret-"))
    off = one.rows()[MessageQueue(OFF_QUEUE_TOPIC, 0)]
    assert [offset for _, offset, _ in off] == list(range(24))
    assert sum(flushed(one)) == 36
    assert progress_of(one) == broker.position


def test_only_excluded_records_still_move_progress(broker: Crafted, daemon: Make) -> None:
    for _ in range(5):
        broker.send(topic="secret")
    one = daemon(source={"exclude_topics": ("secret",)})
    one.settle()
    assert one.rows() == {}
    assert progress_of(one) == broker.position
    assert flushed(one) == [0], "nothing that was archived is counted"


def test_a_deleted_file_is_a_physical_gap_in_its_place(broker: Crafted, daemon: Make) -> None:
    broker.file_bytes = 4096
    for number in range(30):
        broker.send(queue_id=number % 2)
    one = daemon()
    while broker.position < 3 * 4096:
        broker.send(queue_id=0)
    one.dispatcher.step()
    assert one.dispatcher.buffer
    one.source.release(PhysicalOffset(8192))  # as if the hold had let go
    broker.path(4096).unlink()
    one.settle(seconds=32)
    assert [(g.start, g.end) for g in one.state.phys_gaps()] == [(4096, 8192)]
    assert one.gaps == [(4096, 8192, "corrupt: the commitlog file is missing")]
    lost = [m for m, _ in broker.sent if 4096 <= m.physical_offset < 8192]
    kept = [(m.queue_offset, raw) for m, raw in broker.sent if m.queue_id == 0 and m not in lost]
    assert [(o, raw) for _, o, raw in one.rows()[ORDERS]] == kept
    assert [(g.start, g.end) for g in one.state.gaps(ORDERS)] == [
        (lost[0].queue_offset, lost[-1].queue_offset + 1)
    ]
    assert progress_of(one) == broker.position


def test_a_damaged_record_is_approached_alone_and_given_up_late(
    broker: Crafted, daemon: Make, clock: ManualClock
) -> None:
    for number in range(20):
        broker.send(body=b"number-%02d" % number)
    bad = broker.sent[7][0].physical_offset
    body_at = bad + broker.records[bad].index(b"number-07")
    broker.write(body_at, b"NUMBER")
    one = daemon(source={"corrupt_wait_ms": 30_000})
    began = clock.monotonic()
    while not one.gaps:
        one.clock.advance(max(one.step(), 0.001))
        assert clock.monotonic() - began < 120
    assert clock.monotonic() - began >= 30
    assert one.changed, "the first attempt took it for a change"
    assert "body CRC" in one.changed[0]
    assert len(one.changed) < 5, "and it was not tried over and over"
    end = bad + len(broker.records[bad])
    assert [(start, stop) for start, stop, _ in one.gaps] == [(bad, end)]
    assert "body CRC" in one.gaps[0][2]
    one.settle()
    assert [o for _, o, _ in one.rows()[ORDERS]] == [n for n in range(20) if n != 7]
    assert [(g.start, g.end) for g in one.state.gaps(ORDERS)] == [(7, 8)]
    assert [(g.start, g.end) for g in one.state.phys_gaps()] == [(bad, end)]
    marks = list(one.state.marks(1))
    assert marks[0].crc_from == end, "a mark never spans what could not be read"


def test_a_record_that_mends_itself_is_no_gap(broker: Crafted, daemon: Make) -> None:
    for number in range(10):
        broker.send(body=b"number-%02d" % number)
    bad = broker.sent[4][0].physical_offset
    body_at = bad + broker.records[bad].index(b"number-04")
    broker.write(body_at, b"NUMBER")
    one = daemon()
    for _ in range(100):
        one.clock.advance(max(one.step(), 0.01))
    assert one.changed
    broker.write(body_at, b"number")
    one.settle()
    assert one.gaps == []
    assert one.rows() == expected(broker)


def test_a_restart_of_the_broker_drops_the_buffer_and_compares_again(
    broker: Crafted, daemon: Make, clock: ManualClock
) -> None:
    broker.mark_started(clock.now_ms() - 50_000)
    for number in range(20):
        broker.send(body=b"number-%02d" % number)
    one = daemon(dispatch={"group_commit_interval_ms": 2000})
    one.settle()
    for number in range(10):
        broker.send(body=b"more-%02d" % number)
    one.step()
    assert one.dispatcher.buffer, "taken in and not flushed"
    cut = broker.sent[14][0].physical_offset
    broker.crash(cut)
    for number in range(8):
        broker.send(body=b"rewritten-%02d" % number)
    broker.mark_started(clock.now_ms())
    clock.advance(1.1)
    one.dispatcher.step()
    assert [m for m, _ in one.said if m == "rewound"] == ["rewound"]
    assert one.dispatcher.position >= cut
    one.settle()
    assert [(o, raw) for _, o, raw in one.rows()[ORDERS]] == [(m.queue_offset, raw) for m, raw in broker.sent]
    assert sum(p.end - p.start for p in one.state.closed_parts()) == 6


def test_a_restart_without_a_loss_costs_no_commit(broker: Crafted, daemon: Make, clock: ManualClock) -> None:
    broker.mark_started(clock.now_ms() - 50_000)
    for _ in range(20):
        broker.send()
    one = daemon()
    one.settle()
    head = one.state.head()
    broker.mark_started(clock.now_ms())
    one.settle()
    assert len([m for m, _ in one.said if m.startswith("compared")]) == 2
    assert one.state.head() == head


@pytest.mark.parametrize("when", ["between two looks", "while a flush is copied"])
def test_a_restart_without_a_loss_does_not_make_messages_wait_longer(
    broker: Crafted, daemon: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    broker.mark_started(clock.now_ms() - 50_000)
    one = daemon(dispatch={"group_commit_interval_ms": 2000}, source={"restart_check_ms": 1000})
    one.settle()
    one.proven.clear()
    copy, looked = one.source.copy_into, list[int]()

    def restart_after(start: PhysicalOffset, end: PhysicalOffset, target: memoryview) -> None:
        copy(start, end, target)
        if not looked:
            looked.append(1)
            broker.mark_started(clock.now_ms())

    for _ in range(10):
        broker.send()
    one.step()
    assert one.dispatcher.buffer.count == 9, "the last record waits for its confirmation"
    clock.advance(1.1)
    if when == "between two looks":
        broker.mark_started(clock.now_ms())
    else:
        one.step()
        monkeypatch.setattr(one.source, "copy_into", restart_after)
    one.step()
    clock.advance(0.95)
    for _ in range(4):
        one.step()
    assert len([m for m, _ in one.said if m.startswith("compared")]) == 2
    assert sum(flushed(one)) == 10, "two seconds after they were seen, and not after they were read again"


def test_a_restart_between_copy_and_plan_throws_the_copy_away(
    broker: Crafted, daemon: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.mark_started(clock.now_ms() - 50_000)
    for number in range(20):
        broker.send(body=b"number-%02d" % number)
    one = daemon(source={"restart_check_ms": 60_000})
    copy, done = one.source.copy_into, list[int]()

    def restart_after(start: PhysicalOffset, end: PhysicalOffset, target: memoryview) -> None:
        copy(start, end, target)
        if not done:
            done.append(1)
            broker.crash(broker.sent[10][0].physical_offset)
            for number in range(5):
                broker.send(body=b"rewritten-%02d" % number)
            broker.mark_started(clock.now_ms())

    monkeypatch.setattr(one.source, "copy_into", restart_after)
    one.settle()
    assert one.changed == ["the broker was restarted"]
    assert one.rows() == expected(broker)
    assert not list(one.state.closed_parts()), "nothing of the old life was archived"


def test_bytes_that_go_away_between_read_and_copy_are_read_again(
    broker: Crafted, daemon: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        broker.send()
    one = daemon()
    copy, failed = one.source.copy_into, list[int]()

    def once_gone(start: PhysicalOffset, end: PhysicalOffset, target: memoryview) -> None:
        if not failed:
            failed.append(start)
            raise NotFound("gone")
        copy(start, end, target)

    monkeypatch.setattr(one.source, "copy_into", once_gone)
    one.step()
    one.clock.advance(2)
    with pytest.raises(Unavailable, match="gone"):
        while True:
            one.step()
            one.clock.advance(0.5)
    assert not one.dispatcher.buffer
    one.settle()
    assert one.rows() == expected(broker)


@pytest.mark.parametrize("size", [65_536 - 200, 65_536, 4 * MIB])
def test_messages_as_large_as_a_whole_group_commit_and_larger(
    tmp_path: Path, store: Counting, clock: ManualClock, size: int
) -> None:
    broker = Crafted(tmp_path / "big", file_bytes=16 * MIB)
    for number in range(3):
        broker.send(body=b"small")
        broker.send(body=bytes([number]) * size)
    one = assemble(
        broker.store,
        store,
        clock,
        dispatch={
            "group_commit_bytes": 65_536,
            "block_bytes": 4096,
            "object_bytes": 65_536,
            "inline_bytes": 0,
        },
    )
    one.settle()
    assert one.rows() == expected(broker)
    data = [key for verb, key in store.calls if verb == "put" and "/data/" in key]
    assert len(data) >= 2
    one.close()


@pytest.mark.parametrize(("queues", "name_length", "most"), [(4200, 0, 2048), (1400, 100, 496)])
def test_a_flush_with_too_many_queues_becomes_several_commits(
    broker: Crafted, daemon: Make, queues: int, name_length: int, most: int
) -> None:
    """Names of topics count, too: each may be in no other row."""
    for number in range(queues + 100):
        queue = number % queues
        if name_length:
            broker.send(f"{queue:0{name_length}}")
        else:
            broker.send(queue_id=queue)
    one = daemon(dispatch={"max_edit_bytes": 65_536})
    one.settle()
    assert one.rows() == expected(broker)
    parts = [p.flush for p in one.proven]
    assert len(parts) >= 3
    assert [p.next_offset for p in parts] == sorted({p.next_offset for p in parts})
    taken = [p.dispatch_offsets for p in parts if p.dispatch_offsets is not None]
    assert len(taken[0].topics) <= most
    assert all(p.commit.footer.edits_length <= 65_536 for p in one.proven)


def test_flushes_are_as_large_as_the_edits_of_the_last_ones_let_them_be(
    broker: Crafted, daemon: Make
) -> None:
    """A queue of a real log takes less than what is reckoned with while nothing is known."""
    queues = 2500
    one = daemon(dispatch={"max_edit_bytes": 65_536})
    for _ in range(2):
        for queue in range(queues):
            broker.send(queue_id=queue)
        one.settle()
    assert one.rows() == expected(broker)
    taken = [len(p.flush.dispatch_offsets.topics) for p in one.proven if p.flush.dispatch_offsets is not None]
    assert taken[0] < 2048, "nothing is known yet"
    assert queues in taken[1:], "one flush holds them all"
    assert all(p.commit.footer.edits_length <= 65_536 for p in one.proven)


def test_draining(broker: Crafted, daemon: Make) -> None:
    for _ in range(10):
        broker.send()
    one = daemon(dispatch={"group_commit_interval_ms": 3_600_000})
    one.step()
    assert one.dispatcher.buffer.count == 9
    assert one.dispatcher.drain(0) is False, "flushed, and nobody proves it"
    assert not one.dispatcher.buffer
    one.commit_all()
    assert one.dispatcher.drain(0) is True
    assert flushed(one) == [9]


def test_the_source_says_gap_only_after_the_wait(broker: Crafted, daemon: Make) -> None:
    """A gap is never taken on the first sight of unreadable bytes."""
    for _ in range(5):
        broker.send()
    last = broker.position
    broker.write(last, b"\x00\x00\x00\x64\xde\xad\xbe\xef" + bytes(100))
    one = daemon(source={"corrupt_wait_ms": 30_000})
    for _ in range(200):
        wait = one.step()
        one.clock.advance(wait)
    assert one.gaps == []
    assert one.source.read(PhysicalOffset(last), max_bytes=1000, max_records=1).status is ReadStatus.IDLE


def test_a_comparison_that_fails_is_made_again_before_anything_is_read(
    broker: Crafted, daemon: Make, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.mark_started(clock.now_ms() - 50_000)
    for number in range(10):
        broker.send(body=b"number-%02d" % number)
    one = daemon()
    one.settle()
    broker.crash(broker.sent[6][0].physical_offset)
    for number in range(6):
        broker.send(body=b"rewritten-%02d" % number)
    broker.mark_started(clock.now_ms())
    clock.advance(2)
    reconcile, failed = one.opening.reconcile, list[int]()

    def fails_twice() -> Any:
        if len(failed) < 2:
            failed.append(1)
            raise Unavailable("away")
        return reconcile()

    monkeypatch.setattr(one.opening, "reconcile", fails_twice)
    for _ in range(2):
        with pytest.raises(Unavailable):
            one.step()
        assert not one.dispatcher.buffer
    one.settle()
    assert [(o, raw) for _, o, raw in one.rows()[ORDERS]] == [(m.queue_offset, raw) for m, raw in broker.sent]
