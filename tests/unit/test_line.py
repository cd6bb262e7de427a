"""Who gets the next place in the log, and who may plan there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.kit.assemble import KEYS, AtOnce, Counting, Heard, memory, open_log
from tests.kit.assemble import plan as planned
from tiered.archive.keys import Area, ObjectKey, build
from tiered.archive.log.flush import DataObject, Flush, Priority, Proven
from tiered.archive.log.line import CommitLine
from tiered.archive.log.marks import Mark
from tiered.archive.log.planned import Place
from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.format.object import EncodedObject
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.model import PhysicalOffset
from tiered.provider.base import Stored


@pytest.fixture
def store() -> Counting:
    return memory(ManualClock())


@pytest.fixture
def give_up() -> threading.Event:
    return threading.Event()


@pytest.fixture
def log(store: Counting, give_up: threading.Event) -> CommitLog:
    made = open_log(store, ManualClock(), give_up=give_up)
    made.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)
    return made


class Line(CommitLine):
    """A line, and all that was told of it."""

    def __init__(self, log: CommitLog, pool: ThreadPoolExecutor | AtOnce, depth: int = 10) -> None:
        self.heard = Heard()
        self.released: list[int] = []
        super().__init__(log, pool, depth=depth, release=self.released.append, events=self.heard)

    def proofs(self) -> list[Proven]:
        """Everything in line, proven."""
        while self.step(0):
            pass
        return self.heard.proofs


@pytest.fixture
def held() -> Iterator[tuple[ThreadPoolExecutor, threading.Event]]:
    """A pool of one thread, busy until told."""
    go_on = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(go_on.wait, 30)
        yield pool, go_on
        go_on.set()


def flush(offset: int, priority: Priority = Priority.ARCHIVE, release: int | None = None) -> Flush:
    """A commit of a ``Progress``."""
    up_to = None if release is None else PhysicalOffset(release)
    return Flush((Mark.at(PhysicalOffset(offset)).progress(1),), up_to, 0.0, priority=priority)


def test_archiving_goes_before_whatever_else_waits(
    log: CommitLog, held: tuple[ThreadPoolExecutor, threading.Event]
) -> None:
    pool, go_on = held
    line = Line(log, pool)
    seal, reads = flush(300, Priority.SEALING), flush(200, Priority.READS)
    first, second = flush(100, release=100), flush(150, release=150)
    for one in (seal, first, reads, second):
        line.submit(one)
    assert line.pending() == (0, 0)
    assert not line.idle
    go_on.set()
    while not line.wait_idle(0):
        line.step(1.0)
    assert [event.flush for event in line.heard.proofs] == [first, second, reads, seal]
    seqs = [event.commit.commit.seq for event in line.heard.proofs]
    assert seqs == list(range(1, 5)), "the log knows no priorities"
    assert line.released == [100, 150]


def test_what_is_waited_for_begins_with_an_idle_line(log: CommitLog) -> None:
    line = Line(log, AtOnce())
    line.submit(flush(100))
    with pytest.raises(RuntimeError, match="idle"):
        line.commit(flush(200))
    assert len(line.proofs()) == 1
    assert line.commit(flush(200, release=200)).commit.commit.seq == 2
    assert line.released == [200]
    assert len(line.heard.proofs) == 1, "the caller knows"


def test_a_commit_that_is_waited_for_may_be_tried_again(
    log: CommitLog, store: Counting, give_up: threading.Event
) -> None:
    line = Line(log, AtOnce())
    store.say("dropped")
    give_up.set()
    with pytest.raises(Unavailable, match="unknown"):
        line.commit(flush(100))
    log.follow()
    assert line.commit(flush(100)).commit.commit.seq == 1


def test_a_flush_that_cannot_be_planned_ends_the_line(log: CommitLog) -> None:
    line = Line(log, AtOnce())
    line.submit(flush(100))
    line.submit(flush(50))  # a Progress that goes back
    with pytest.raises(TieredError):
        line.step(0)
    with pytest.raises(TieredError):
        _ = line.room


class Pointless:
    """What settles to nothing."""

    messages = raw_bytes = 0
    priority = Priority.SEALING

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        return None


def test_what_is_offered_takes_a_place_only_where_one_more_may_follow(log: CommitLog) -> None:
    line = Line(log, AtOnce(), depth=3)
    line.submit(flush(100))
    first = line.offer(flush(200, Priority.SEALING), 0)
    assert first is not None
    assert not first.done()
    assert line.offer(flush(300, Priority.SEALING), 0) is None, "the last place is for archiving"
    assert line.room
    assert len(line.proofs()) == 2
    proven = first.result(0)
    assert proven is not None
    assert proven.commit.commit.seq == 2


def test_what_is_offered_waits_for_its_turn_behind_what_has_no_place_yet(
    log: CommitLog, held: tuple[ThreadPoolExecutor, threading.Event]
) -> None:
    line = Line(log, held[0])
    line.submit(flush(100))
    assert line.offer(flush(200, Priority.SEALING), 0) is None


def test_what_is_overdue_takes_a_place_of_its_own_where_archiving_leaves_none(log: CommitLog) -> None:
    line = Line(log, AtOnce(), depth=3)
    for offset in (100, 200, 300):
        line.submit(flush(offset))
    assert line.offer(flush(400, Priority.SEALING), 0) is None
    offered = line.offer(flush(400, Priority.SEALING), 0, overdue=True)
    assert offered is not None
    assert line.offer(flush(500, Priority.SEALING), 0, overdue=True) is None, "one of them at a time"
    assert [event.commit.commit.seq for event in line.proofs()] == [1, 2, 3, 4]
    assert offered.done()


def test_archiving_that_never_rests_and_what_is_always_overdue_share_the_line(log: CommitLog) -> None:
    """Archiving fills every place at once, and the next overdue flush is offered as soon as one was proven: none of them waits
    for more than a line of the other."""
    line, depth, offset = Line(log, AtOnce(), depth=3), 3, 0
    offered = None
    for _ in range(40):
        while line.room:
            line.submit(flush(offset := offset + 10))
        if offered is None or offered.done():
            offered = line.offer(flush(offset := offset + 10, Priority.SEALING), 0, overdue=True)
            assert offered is not None
        line.step(0)
    order = "".join("a" if p.flush.priority is Priority.ARCHIVE else "m" for p in line.heard.proofs)
    assert max(map(len, order.split("m"))) <= depth + 1, order
    assert "mm" not in order
    assert order.count("m") >= 40 // (depth + 2)


def test_nothing_that_comes_later_goes_before_what_is_overdue(
    log: CommitLog, held: tuple[ThreadPoolExecutor, threading.Event]
) -> None:
    line = Line(log, held[0])
    line.submit(flush(100))
    offered = line.offer(flush(200, Priority.SEALING), 0, overdue=True)
    line.submit(flush(300))
    held[1].set()
    while not line.wait_idle(0):
        line.step(1.0)
    assert offered is not None
    proven = offered.result(0)
    assert proven is not None
    assert proven.commit.commit.seq == 2


def test_what_settles_to_nothing_takes_no_place(log: CommitLog) -> None:
    line = Line(log, AtOnce())
    offered = line.offer(Pointless(), 0)
    assert offered is not None
    assert offered.result(0) is None
    assert line.idle
    line.submit(flush(100))
    assert [event.commit.commit.seq for event in line.proofs()] == [1]


def test_an_offer_that_breaks_a_rule_ends_nothing_but_itself(log: CommitLog) -> None:
    line = Line(log, AtOnce())
    line.submit(flush(100))
    offered = line.offer(flush(50, Priority.SEALING), 0)  # a Progress that goes back
    assert offered is not None
    with pytest.raises(Corrupt):
        offered.result(0)
    line.submit(flush(200))
    assert [event.commit.commit.seq for event in line.proofs()] == [1, 2]


def test_who_waits_for_an_offer_hears_that_the_line_ended(log: CommitLog, store: Counting) -> None:
    line = Line(log, AtOnce())
    offered = line.offer(flush(100, Priority.SEALING), 0)
    assert offered is not None
    line.submit(flush(50))
    with pytest.raises(TieredError):
        line.step(0)
    with pytest.raises(TieredError):
        offered.result(0)


def test_a_commit_that_is_waited_for_lets_what_was_offered_pass_and_takes_nothing_more(
    log: CommitLog,
) -> None:
    line = Line(log, AtOnce())
    offered = line.offer(flush(100, Priority.SEALING), 0)
    with ThreadPoolExecutor(1) as pool:
        committed = pool.submit(line.commit, flush(200))
        with pytest.raises(TimeoutError):
            committed.result(0.1)
        assert line.offer(flush(300, Priority.SEALING), 0) is None
        assert line.step(0)
        assert committed.result(30).commit.commit.seq == 2
    assert offered is not None
    assert offered.done()


def test_an_object_that_is_there_is_not_put_again(log: CommitLog, store: Counting) -> None:
    path = build(ObjectKey(Area.DATA, 1, b"o" * 16))
    made = DataObject(path, b"o" * 16, EncodedObject([b"bytes"], 5, {}), there=True)
    line = Line(log, AtOnce())
    store.calls.clear()
    line.offer(replace(flush(100, Priority.SEALING), objects=(made,)), 0)
    assert len(line.proofs()) == 1
    assert [key for verb, key in store.calls if verb == "put"] == [KEYS.commit(1)]


def test_an_object_is_seen_before_a_commit_names_it(
    log: CommitLog, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A success says what was answered, and not that anything is there."""
    path, stored = build(ObjectKey(Area.DATA, 1, b"o" * 16)), store.put
    key, answers = KEYS.key(path), iter([True, True, False])

    def put(name: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        lies = name == key and next(answers)
        return Stored(name, 5, 0, 0) if lies else stored(name, parts, create_only=create_only)

    monkeypatch.setattr(store, "put", put)
    line = Line(log, AtOnce())
    made = DataObject(path, b"o" * 16, EncodedObject([b"bytes"], 5, {}))
    line.submit(replace(flush(100), objects=(made,)))
    assert len(line.proofs()) == 1
    assert store.inner.get(key).data == b"bytes"
    assert [call for call in store.calls if call[0] in ("put", "head")][-5:-1] == [
        ("head", key), ("head", key), ("put", key), ("head", key),
    ]  # fmt: skip


def test_a_commit_is_planned_once_while_its_place_is_held(log: CommitLog) -> None:
    edits = flush(100).edits
    with log.next_place() as place:
        log.plan(place, edits)
        with pytest.raises(RuntimeError, match="once"):
            log.plan(place, edits)
    with log.next_place() as place:
        pass
    with pytest.raises(RuntimeError, match="held"):
        log.plan(place, edits)
    assert planned(log, *flush(200).edits).commit.seq == 2


def test_a_place_is_one_callers_alone(log: CommitLog) -> None:
    with ThreadPoolExecutor(1) as pool:
        with log.next_place() as place:
            other = pool.submit(planned, log, *flush(200).edits)
            with pytest.raises(TimeoutError):
                other.result(0.1)
            mine = log.plan(place, flush(100).edits)
        assert (mine.commit.seq, other.result(30).commit.seq) == (1, 2)
