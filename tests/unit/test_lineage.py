"""Is this still the broker the archive knows? Every branch of the comparison, against a broker that loses its tail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import Assembly, Counting, assemble, memory, progress_of
from tests.kit.pipeline import Crafted
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.checksum import crc32c
from tiered.errors import Refused
from tiered.model import MessageQueue, PhysicalOffset, Progress
from tiered.opening import lineage as lineage_module
from tiered.opening.compare import has_all
from tiered.opening.lineage import ArchivedRecord, Relation, compare, last_identical
from tiered.settings import Hold, Source
from tiered.source.local import LocalCommitLog
from tiered.source.marks import MarkVerdict, check_mark

ORDERS = MessageQueue("Orders", 0)
START_MS = 1_700_000_000_000


class Case:
    """A broker, a store and any number of daemons one after the other."""

    def __init__(self, directory: Path) -> None:
        self.broker = Crafted(directory / "store")
        self.clock = ManualClock(START_MS + 60_000)
        self.store: Counting = memory(self.clock)
        self.open: list[Assembly] = []

    def daemon(self, **options: Any) -> Assembly:
        made = assemble(self.broker.store, self.store, self.clock, seed=len(self.open) + 1, **options)
        self.open.append(made)
        return made

    def archive_all(self, **options: Any) -> Assembly:
        daemon = self.daemon(**options)
        daemon.settle()
        return daemon

    def check(self, daemon: Assembly) -> None:
        """The archive's live rows are exactly what the broker has (generations aside)."""
        expected = {
            q: [(r.queue_offset, r.raw) for r in v.rows] for q, v in self.broker.oracle().queues.items()
        }
        found = {q: [(o, raw) for _, o, raw in rows] for q, rows in daemon.rows().items()}
        assert found == expected


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    made = Case(tmp_path)
    yield made
    for daemon in made.open:
        daemon.close()


def gap_free(state: ArchiveState) -> bool:
    return not list(state.gaps()) and not list(state.phys_gaps())


# ---- single marks


@pytest.fixture
def source(case: Case) -> Iterator[LocalCommitLog]:
    opened = LocalCommitLog(Source(store_dir=str(case.broker.store)), Hold(max_disk_percent=99), case.clock)
    yield opened
    opened.close()


def mark(end: int, data: bytes, crc_from: int = 0) -> Progress:
    return Progress(1, end, crc32c(data), crc_from)


def test_a_mark_inside_a_file(case: Case, source: LocalCommitLog) -> None:
    case.broker.send(body=b"one")
    second = case.broker.send(body=b"two").physical_offset
    end = case.broker.position
    data = b"".join(case.broker.records.values())
    assert check_mark(source, mark(end, data)) is MarkVerdict.MATCH
    assert check_mark(source, mark(end, data[second:], crc_from=second)) is MarkVerdict.MATCH
    assert check_mark(source, mark(end, data[second:])) is MarkVerdict.MISMATCH
    assert check_mark(source, mark(end, data[:-1] + b"!")) is MarkVerdict.MISMATCH


def test_a_mark_over_no_byte_is_no_evidence(case: Case, source: LocalCommitLog) -> None:
    case.broker.send()
    for offset in (0, case.broker.position, 4096):
        assert check_mark(source, Progress(1, offset, 0, offset)) is MarkVerdict.UNKNOWN


def test_a_mark_whose_bytes_are_not_all_local_is_unknown(case: Case, source: LocalCommitLog) -> None:
    case.broker.append_many(100)
    assert case.broker.position > 8192
    case.broker.delete_oldest()
    assert check_mark(source, Progress(1, 300, 1, 0)) is MarkVerdict.UNKNOWN
    assert check_mark(source, Progress(1, 1 << 30, 1, 1 << 29)) is MarkVerdict.UNKNOWN


def file_end_mark(broker: Crafted, base: int, crc_from: int | None = None) -> Progress:
    """The mark at the end of the file at ``base``: its records and the eight header bytes of its blank."""
    start = base if crc_from is None else crc_from
    end = base + broker.file_bytes
    last = max(o for o in broker.records if o < end)
    stop = last + len(broker.records[last])
    data = broker.path(base).read_bytes()
    blank = data[stop - base : stop - base + 8] if stop < end else b""
    return mark(end, data[start - base : stop - base] + blank, crc_from=start)


def test_a_mark_at_a_files_end_covers_the_blanks_header_and_never_its_filler(
    case: Case, source: LocalCommitLog
) -> None:
    for number in range(60):
        case.broker.send(body=b"x" * 40 + bytes([number]))
    wanted = file_end_mark(case.broker, 0)
    assert check_mark(source, wanted) is MarkVerdict.MATCH
    middle = sorted(case.broker.records)[5]
    assert check_mark(source, file_end_mark(case.broker, 0, crc_from=middle)) is MarkVerdict.MATCH
    case.broker.write(4094, b"!!")  # filler
    assert check_mark(source, wanted) is MarkVerdict.MATCH
    last = max(o for o in case.broker.records if o < 4096)
    case.broker.write(last + 60, b"!")  # a record
    assert check_mark(source, wanted) is MarkVerdict.MISMATCH


def test_a_blank_that_is_gone_refutes_the_mark_at_the_files_end(case: Case, source: LocalCommitLog) -> None:
    for _ in range(60):
        case.broker.send(body=b"x" * 40)
    wanted = file_end_mark(case.broker, 0)
    last = max(o for o in case.broker.records if o < 4096)
    case.broker.write(last + len(case.broker.records[last]), bytes(8))
    assert check_mark(source, wanted) is MarkVerdict.MISMATCH


def test_a_blank_of_another_length_is_no_match(case: Case, source: LocalCommitLog) -> None:
    for _ in range(60):
        case.broker.send(body=b"x" * 40)
    last = max(o for o in case.broker.records if o < 4096)
    blank = last + len(case.broker.records[last])
    case.broker.write(blank, (4096 - blank - 1).to_bytes(4, "big"))
    assert check_mark(source, file_end_mark(case.broker, 0)) is MarkVerdict.MISMATCH


def test_a_file_that_records_fill_to_the_last_byte(case: Case, source: LocalCommitLog) -> None:
    """No blank at all: the mark at the file's end is over records only."""
    first = case.broker.send(body=b"")
    used = case.broker.position
    raw = case.broker.next(b"", topic=b"T")
    case.broker.write(used, b"")
    body = bytes(4096 - used - len(raw))
    filling = case.broker.next(b"", topic=b"T")
    assert len(filling) == len(raw)
    from tests.kit.brokerlog import record

    whole = record(used, body, topic=b"T", store_time_ms=START_MS)
    case.broker.write(used, whole)
    case.broker.records[used] = whole
    case.broker.position = 4096
    case.broker.send(body=b"next file")
    assert first.physical_offset == 0
    assert check_mark(source, file_end_mark(case.broker, 0)) is MarkVerdict.MATCH


def test_windows_are_smaller_than_files_and_than_records(
    case: Case, source: LocalCommitLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_module, "WINDOW_BYTES", 300)
    for size in (10, 100, 900, 40, 1200, 60, 700, 900, 10):
        case.broker.send(body=b"x" * size)
    assert case.broker.position > 4096
    wanted = file_end_mark(case.broker, 0)
    assert check_mark(source, wanted) is MarkVerdict.MATCH
    assert check_mark(source, mark(wanted.physical_offset, b"else")) is MarkVerdict.MISMATCH
    third = sorted(case.broker.records)[4]
    data = case.broker.path(0).read_bytes()[:third]
    assert check_mark(source, mark(third, data)) is MarkVerdict.MATCH


# ---- the walk, record by record


def test_the_walk_stops_at_the_first_difference(case: Case, source: LocalCommitLog) -> None:
    for number in range(4):
        case.broker.send(body=bytes([number]) * 20)
    offsets = sorted(case.broker.records)

    def archived(*changed: int) -> Iterator[ArchivedRecord]:
        for number, at in enumerate(offsets):
            data = case.broker.records[at]
            yield ArchivedRecord(at, memoryview(data[:-1] + b"!" if number in changed else data))

    end = case.broker.position
    assert last_identical(source, PhysicalOffset(0), archived()) == (end, True)
    assert last_identical(source, PhysicalOffset(0), archived(2)) == (offsets[2], False)
    assert last_identical(source, PhysicalOffset(0), archived(1)) == (offsets[1], False), (
        "identical ones behind do not count"
    )
    beyond = [ArchivedRecord(1 << 20, memoryview(b"gone"))]
    assert last_identical(source, PhysicalOffset(5), iter(beyond)) == (5, False)


# ---- whole comparisons


def none() -> Any:
    raise AssertionError("not asked for here")


def test_an_empty_archive_is_fresh(case: Case, source: LocalCommitLog) -> None:
    found = compare(
        source, None, [], none, last_archived_ms=none, first_local_ms=none, accept_new_lineage=False
    )
    assert found.relation is Relation.FRESH


def test_the_same_broker_goes_on(case: Case) -> None:
    for number in range(50):
        case.broker.send(queue_id=number % 2)
    first = case.archive_all()
    assert first.opened.outcome.relation is Relation.FRESH
    reached = progress_of(first)
    assert reached == case.broker.position
    for number in range(30):
        case.broker.send(queue_id=number % 2, body=b"later")
    again = case.archive_all()
    assert again.opened.outcome.relation is Relation.SAME
    assert (again.opened.position, again.opened.mark.offset) == (reached, reached)
    case.check(again)
    assert gap_free(again.state)


@pytest.mark.parametrize("flushes", [1, 4])
def test_a_lost_tail_is_rewound(case: Case, flushes: int) -> None:
    daemon = case.daemon()
    for flush in range(flushes):
        for number in range(20):
            case.broker.send(queue_id=number % 3, body=b"%d-%d" % (flush, number))
        daemon.settle()
    cut = sorted(case.broker.records)[-7]
    kept = {q: v[:] for q, v in daemon.rows().items()}
    case.broker.crash(cut)
    for number in range(15):
        case.broker.send(queue_id=number % 3, body=b"rewritten-%d" % number)
    again = case.archive_all()
    assert again.opened.outcome.relation is Relation.REWIND
    assert again.opened.position == cut
    assert ("rewound" in [m for m, _ in again.said]) is True
    case.check(again)
    assert gap_free(again.state)
    closed = sum(p.end - p.start for p in again.state.closed_parts())
    assert closed == 7, "what was cut stays, closed"
    assert all(rows[0] == kept[q][0] for q, rows in again.rows().items())
    third = case.archive_all()
    assert third.opened.outcome.relation is Relation.SAME


def test_a_tail_rewritten_with_the_same_sizes_is_found(case: Case) -> None:
    for number in range(20):
        case.broker.send(body=b"a%02d" % number)
    case.archive_all()
    cut = sorted(case.broker.records)[-5]
    case.broker.crash(cut)
    for number in range(5):
        case.broker.send(body=b"b%02d" % number)
    again = case.archive_all()
    assert (again.opened.outcome.relation, again.opened.position) == (Relation.REWIND, cut)
    case.check(again)


def test_a_tail_that_was_lost_and_not_rewritten_yet(case: Case) -> None:
    for number in range(20):
        case.broker.send(body=b"a%02d" % number)
    case.archive_all()
    cut = sorted(case.broker.records)[-5]
    case.broker.crash(cut)
    case.broker.write(cut, bytes(1000))
    again = case.archive_all()
    assert (again.opened.outcome.relation, again.opened.position) == (Relation.REWIND, cut)
    case.check(again)
    case.broker.send(body=b"new")
    again.settle()
    case.check(again)


def test_a_rewind_over_a_files_end(case: Case) -> None:
    """The tail's files were deleted with it: the local log ends before the archived one."""
    daemon = case.daemon()
    for number in range(130):
        case.broker.send(queue_id=number % 2, body=b"x" * 60)
        if number % 40 == 0:
            daemon.settle()
    daemon.settle()
    assert case.broker.position > 3 * 4096
    cut = next(o for o in sorted(case.broker.records) if o > 5000)
    case.broker.crash(cut)
    for number in range(50):
        case.broker.send(queue_id=number % 2, body=b"y" * 70)
    again = case.archive_all()
    assert (again.opened.outcome.relation, again.opened.position) == (Relation.REWIND, cut)
    case.check(again)
    assert gap_free(again.state)


def blank_of(broker: Crafted, base: int) -> int:
    last = max(o for o in broker.records if o < base + broker.file_bytes)
    return last + len(broker.records[last])


def test_only_the_blank_was_lost(case: Case) -> None:
    """The broker goes on inside a file that the archive took for finished: a rewind that cuts no record, or a silent hole."""
    broker = case.broker
    while broker.position < 3500:
        broker.send(body=b"x" * 40)
    broker.send(body=b"y" * 900)  # does not fit: rolls
    daemon = case.daemon()
    while progress_of_or_zero(daemon) < 4096:
        if (wait := daemon.step()) > 0:
            case.clock.advance(wait)
    assert progress_of(daemon) == 4096
    assert sum(len(v) for v in daemon.rows().values()) == len(broker.sent) - 1
    blank = blank_of(broker, 0)
    broker.crash(blank)
    for number in range(3):
        broker.send(body=b"instead-%d" % number)
    assert broker.position < 4096
    again = case.archive_all()
    assert (again.opened.outcome.relation, again.opened.position) == (Relation.REWIND, blank)
    assert not list(again.state.closed_parts()), "it cut no record"
    case.check(again)


def progress_of_or_zero(daemon: Assembly) -> int:
    head = daemon.state.head()
    assert head is not None
    return head.progress[head.lineage].physical_offset if head.lineage in head.progress else 0


def test_no_mark_matches_but_the_first_local_record_is_identical(case: Case) -> None:
    """H8: one flush, one mark, and it lies above the truncation."""
    for number in range(20):
        case.broker.send(body=b"a%02d" % number)
    case.archive_all()
    cut = sorted(case.broker.records)[3]
    case.broker.crash(cut)
    for number in range(40):
        case.broker.send(body=b"rewritten%02d" % number)
    again = case.archive_all()
    outcome = again.opened.outcome
    assert (outcome.relation, outcome.matched, outcome.offset) == (Relation.REWIND, None, cut)
    case.check(again)


def test_no_mark_has_all_its_bytes_but_the_records_are_the_same(case: Case) -> None:
    """H8 without a loss: the file in which the only mark began is gone."""
    daemon = case.daemon(dispatch={"group_commit_interval_ms": 3_600_000})
    for number in range(100):
        case.broker.send(body=b"a%02d" % number)
    while progress_of_or_zero(daemon) < 8192:  # the age limit is far away: flushes end with files only
        if (wait := daemon.step()) > 0:
            case.clock.advance(wait)
    reached = progress_of(daemon)
    assert reached == 8192
    case.broker.delete_oldest()
    found = compare_now(case, daemon, marks=[Progress(1, reached, 1, 0)])
    assert (found.relation, found.offset) == (Relation.SAME, reached)


def compare_now(case: Case, daemon: Assembly, *, marks: list[Progress] | None = None, **options: Any) -> Any:
    from tiered.opening.rewind import archived_from

    state = daemon.state
    head = state.head()
    assert head is not None
    given: dict[str, Callable[[], int | None]] = {
        "last_archived_ms": lambda: max(q.max_store_time or 0 for q in state.queues()),
        "first_local_ms": lambda: daemon.source.first_time(
            next(f for f in daemon.source.files() if f.base == daemon.source.min_offset())
        ),
    }
    return compare(
        daemon.source,
        head.progress[head.lineage],
        state.marks(head.lineage) if marks is None else marks,
        lambda offset: archived_from(state, daemon.objects, head.lineage, offset),
        **{"accept_new_lineage": False, **given, **options},
    )


def roll_and_delete(case: Case, *, keep_from: int) -> None:
    while case.broker.bases() and case.broker.bases()[0] < keep_from:
        case.broker.delete_oldest()


def test_everything_archived_is_gone_and_more(case: Case) -> None:
    """(b): local minimum above Progress, and newer: the same lineage, with a physical gap."""
    for number in range(30):
        case.broker.send(body=b"a%02d" % number)
    first = case.archive_all()
    reached = progress_of(first)
    first.close()
    for path in Path(f"{case.broker.store}.tiered-hold").rglob("*"):
        if path.is_file():
            path.unlink()
    case.broker.time_ms += 10_000
    while case.broker.position < 9000:
        case.broker.send(body=b"unseen" * 10)
    roll_and_delete(case, keep_from=8192)
    survivors = [m for m, _ in case.broker.sent if m.physical_offset >= 8192]
    again = case.archive_all()
    assert (again.opened.outcome.relation, again.opened.position) == (Relation.BEHIND, reached)
    assert [(g.start, g.end) for g in again.state.phys_gaps()] == [(reached, 8192)]
    assert again.gaps == [(reached, 8192, "deleted before it could be archived")]
    queue_gaps = [(g.start, g.end) for g in again.state.gaps(ORDERS)]
    assert queue_gaps == [(30, survivors[0].queue_offset)]
    assert [o for _, o, _ in again.rows()[ORDERS]][30:] == [m.queue_offset for m in survivors]


def test_local_minimum_equal_to_progress(case: Case) -> None:
    """H9: nothing is missing, nothing can be compared."""
    broker = case.broker
    while broker.position < 3500:
        broker.send(body=b"x" * 40)
    broker.send(body=b"y" * 900)
    daemon = case.daemon()
    while progress_of_or_zero(daemon) < 4096:
        if (wait := daemon.step()) > 0:
            case.clock.advance(wait)
    broker.delete_oldest()
    for path in Path(f"{broker.store}.tiered-hold").rglob("*"):
        if path.is_file() and path.name.startswith("0" * 20):
            path.unlink()
    again = case.archive_all()
    outcome = again.opened.outcome
    assert (outcome.relation, outcome.offset) == (Relation.SAME, 4096)
    assert "nothing could be compared" in outcome.reason
    case.check(again)
    assert gap_free(again.state)


def test_an_older_broker_above_progress_is_refused(case: Case) -> None:
    """(b) asks for store times that are not older than the last archived."""
    for number in range(30):
        case.broker.send(body=b"a%02d" % number)
    case.archive_all()
    case.broker.time_ms -= 3_600_000
    while case.broker.position < 9000:
        case.broker.send(body=b"older" * 10)
    roll_and_delete(case, keep_from=8192)
    with pytest.raises(Refused) as caught:
        case.daemon()
    assert caught.value.fields["local_minimum"] == 8192


def reinstall(case: Case) -> None:
    """Another broker on an empty disk."""
    for base in case.broker.bases():
        case.broker.path(base).unlink()
    store, time_ms = case.broker.store, case.broker.time_ms
    case.broker = Crafted(store, time_ms=time_ms + 1000)
    for number in range(25):
        case.broker.send(queue_id=number % 2, body=b"another broker %d" % number)


def test_a_reinstalled_broker_is_refused_and_nothing_is_written(case: Case) -> None:
    for number in range(40):
        case.broker.send(queue_id=number % 2)
    case.archive_all()
    commits = len(list(case.store.list("")))
    reinstall(case)
    with pytest.raises(Refused, match="--new-lineage") as caught:
        case.daemon()
    assert caught.value.fields["local_minimum"] == 0
    assert len(list(case.store.list(""))) == commits
    for base in case.broker.bases():
        case.broker.path(base).unlink()
    with pytest.raises(Refused, match="local_minimum=empty"):
        case.daemon()


def test_a_reinstalled_broker_as_a_new_lineage(case: Case) -> None:
    for number in range(40):
        case.broker.send(queue_id=number % 2)
    before = case.archive_all()
    old = before.rows()
    reinstall(case)
    again = case.archive_all(archive={"new_lineage": True})
    assert again.opened.outcome.relation is Relation.NEW
    head = again.state.head()
    assert head is not None
    assert (head.lineage, head.highest_lineage) == (2, 2)
    rows = again.rows()
    for queue, queue_of_oracle in case.broker.oracle().queues.items():
        assert [r for r in rows[queue] if r[0] == 1] == old[queue]
        assert [(o, raw) for g, o, raw in rows[queue] if g == 2] == [
            (r.queue_offset, r.raw) for r in queue_of_oracle.rows
        ]
    third = case.archive_all(archive={"new_lineage": True})
    assert third.opened.outcome.relation is Relation.SAME, (
        "the setting does not start a lineage at every start"
    )
    assert third.opened.lineage == 2


def test_a_broker_reinstalled_under_the_running_daemon_is_refused(case: Case) -> None:
    for number in range(40):
        case.broker.send(queue_id=number % 2)
    daemon = case.archive_all(archive={"new_lineage": True})
    rows = daemon.rows()
    reinstall(case)
    case.broker.mark_started(case.clock.now_ms())
    with pytest.raises(Refused, match="reinstalled under the running daemon"):
        daemon.settle()
    assert daemon.rows() == rows


def test_whether_broker_and_hold_have_every_byte_between_two_heads(case: Case) -> None:
    case.broker.send()
    case.broker.roll()
    case.broker.send()
    daemon = case.archive_all()
    seen = daemon.state.head()
    assert seen is not None

    def at(offset: int) -> Head:
        return replace(seen, progress={1: replace(seen.progress[1], physical_offset=PhysicalOffset(offset))})

    end = seen.progress[1].physical_offset
    assert has_all(daemon.source, at(0), seen)
    assert not has_all(daemon.source, at(0), at(end + 1)), "it lost a tail as well"
    assert not has_all(daemon.source, replace(at(0), lineage=2), seen)
    assert not has_all(daemon.source, replace(seen, progress={}), seen)
    source = daemon.source
    first = source.files()[0].end
    min((case.broker.store / "commitlog").iterdir()).unlink()
    again = case.daemon().source
    assert not has_all(again, at(0), seen)
    assert has_all(again, at(first), seen)


def test_other_bytes_in_the_place_of_what_was_archived_are_not_what_was_there(case: Case) -> None:
    """Without its newest commits the archive would not know that the broker lost them as well."""
    case.broker.send(body=b"kept")
    end = case.archive_all().state.head()
    lost = case.broker.send(body=b"lost")
    seen = case.archive_all().state.head()
    assert end is not None
    assert seen is not None
    assert has_all(case.daemon().source, end, seen)
    case.broker.crash(lost.physical_offset)
    case.broker.send(body=b"anew")
    assert not has_all(case.daemon().source, end, seen)
