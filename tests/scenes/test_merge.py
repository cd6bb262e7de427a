"""Merged runs hold what their sources held, byte for byte; what is merged when; and sources that change or are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.archiveedits import Edits, rewind, start_again
from tests.kit.assemble import KEYS, assemble, live_rows
from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene, scene
from tests.kit.merging import (
    QUEUES,
    AtOnceTurn,
    archiving_beside_plans,
    closed_rows,
    commits_of_rows,
    looked_at,
    merge_all,
    merging,
    spread,
)
from tests.kit.pipeline import INNER_BATCH
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.read.lookup import KeyLookup, locate_physical, query_key
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.archive.state.values import RunState
from tiered.archive.state.view import ArchiveState
from tiered.errors import Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, PhysicalOffset
from tiered.opening import rewind as opening_rewind


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


@pytest.fixture
def inline(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, inline_bytes=1 << 20) as made:
        yield made


def live(made: Scene) -> list[RunState]:
    return list(made.state.runs_all())


def levels(made: Scene) -> set[int]:
    """Levels of the objects that runs lie in."""
    return {item.level for item in made.state.objects() if item.references}


def test_rows_are_the_same_and_runs_are_fewer(small: Scene) -> None:
    spread(small, 12)
    before, came, runs = small.daemon.rows(), commits_of_rows(small), live(small)
    done = merge_all(small.daemon)
    assert live_rows(small.state, small.objects()) == before
    assert commits_of_rows(small) == came
    assert len(live(small)) == len(before) < len(runs)
    assert done[0].figures["merged_runs"] == len(runs)
    assert done[0].figures["messages"] == sum(map(len, before.values()))
    assert levels(small) == {1}


def test_what_is_archived_while_a_merge_is_planned_waits_for_the_next(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread(small, 6)
    runs = len(live(small))
    archiving_beside_plans(small, monkeypatch)
    task = merging(small.daemon)
    assert task.plan().figures["runs"] == runs < len(live(small))
    runs = len(live(small))
    assert task.run_once(AtOnceTurn(small.daemon)).figures["merged_runs"] == runs
    assert levels(small) == {0, 1}
    assert live_rows(small.state, small.objects()) == small.daemon.rows()


def test_counters_times_and_places_of_queues_do_not_change(small: Scene) -> None:
    spread(small, 8)

    def shown() -> list[object]:
        return [
            (
                q.queue,
                q.min_offset,
                q.max_offset,
                q.flat_end,
                q.messages,
                q.bytes,
                q.min_store_time,
                q.max_store_time,
            )
            for q in small.state.queues()
        ]

    before = shown()
    merge_all(small.daemon)
    assert shown() == before
    for run in live(small):
        assert (run.first_queue_offset, run.first_flat_offset) == (0, 0), "one run from the beginning on"


def test_look_ups_find_the_same(small: Scene) -> None:
    spread(small, 8)
    names = ["k1", "k2", "only-4", "only-100", "never"]

    def found() -> list[object]:
        asked = [query_key(small.state, small.objects(), KeyLookup("Orders", name)) for name in names]
        unique = query_key(small.state, small.objects(), KeyLookup("Orders", "u5", unique=True))
        at = [m.physical_offset for m, _ in small.broker.sent[::7]]
        placed = [locate_physical(small.state, small.objects(), PhysicalOffset(offset), 1) for offset in at]
        return [[(item.queue_offset, item.record) for item in items] for items in (*asked, unique)] + [
            None if item is None else (item.queue, item.queue_offset, item.record) for item in placed
        ]

    before = found()
    assert any(before[:3])
    merge_all(small.daemon)
    assert found() == before


def test_verify_finds_a_merged_archive_sound(small: Scene) -> None:
    spread(small, 6)
    merge_all(small.daemon)
    archive = ArchiveReader(small.provider, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()
    report = Verifier(archive).run(deep=True)
    assert report.damage == []
    assert report.messages >= len(small.broker.sent)


def test_trimmed_and_rewound_runs_keep_their_live_part_and_closed_history_its_own(small: Scene) -> None:
    spread(small, 5)
    edits = Edits(small)
    edits.trim(ORDERS, 7)
    messages = [m for m, _ in small.broker.sent if (m.topic, m.queue_id, m.sys_flag) == ("Orders", 0, 0)]
    rewind(small, messages[len(messages) * 2 // 3])
    rewind(small, messages[len(messages) // 2])
    before, closed, came = small.daemon.rows(), closed_rows(small), commits_of_rows(small)
    assert len(closed) >= 4
    merge_all(small.daemon)
    assert live_rows(small.state, small.objects()) == before
    assert closed_rows(small) == closed
    assert commits_of_rows(small) == came
    assert {item.references for item in small.state.objects() if item.level == 0} == {0}


def test_a_trim_into_an_inner_batch_leaves_its_run_as_it_is(small: Scene) -> None:
    for number in range(6):
        fields = {"sys_flag": INNER_BATCH, "properties": {"INNER_NUM": "3"}} if number % 2 else {}
        small.broker.send(body=b"%d" % number, **fields)
    small.daemon.settle(SETTLED_SECONDS)
    small.send(3)
    Edits(small).trim(ORDERS, 2)  # in the middle of offsets 1 to 4
    before, runs = small.daemon.rows(), live(small)
    merge_all(small.daemon)
    assert small.daemon.rows() == before
    assert live(small)[0] == runs[0]
    assert levels(small) == {0, 1}
    assert merge_all(small.daemon)[-1].trouble is None, "that is no damage"


def test_data_inside_commits_is_not_needed_any_more(inline: Scene) -> None:
    spread(inline, 5)
    inline.send(40, noise=True)  # a run larger than a block, in a commit
    assert [o for o in inline.state.objects() if not o.path and o.references]
    before = inline.daemon.rows()
    merge_all(inline.daemon)
    assert not [o for o in inline.state.objects() if not o.path and o.references]
    assert inline.daemon.rows() == before


def test_each_source_is_fetched_once(inline: Scene) -> None:
    spread(inline, 10)
    inline.provider.gets.clear()
    turn = AtOnceTurn(inline.daemon)
    merging(inline.daemon).run_once(turn)
    keys = [key for key, _, _ in inline.provider.gets]
    assert len(keys) == len(set(keys)) == len(inline.daemon.proven) - 1
    assert sum(turn.spent) >= inline.provider.bytes


def test_large_runs_of_level_0_stay_where_they_are(small: Scene) -> None:
    small.send(40, noise=True)
    small.send(2)
    large = live(small)[0]
    merge_all(small.daemon)
    assert live(small)[0] == large
    assert [o.level for o in small.state.objects() if o.references] == [0, 1]


def test_jobs_are_bounded_by_bytes_and_by_runs(small: Scene) -> None:
    spread(small, 12)
    before, runs = small.daemon.rows(), live(small)
    by_runs = merging(small.daemon, job_runs=1 + max(len(runs) // 6, 8)).plan()
    assert 3 <= by_runs.jobs <= 12
    rows = by_runs.rows
    assert sum(int(str(row["runs"])) for row in rows) == len(runs)
    assert all(int(str(a["last_commit"])) < int(str(b["first_commit"])) for a, b in pairwise(rows))
    done = merge_all(small.daemon, job_bytes=40_000)
    assert len([d for d in done if d.figures]) >= 3
    assert small.daemon.rows() == before


def test_the_jobs_of_a_round_list_objects_once_and_find_what_others_added(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread(small, 12)
    before, taken = small.daemon.rows(), looked_at(monkeypatch)
    done = merge_all(small.daemon, job_runs=4)
    jobs = sum(bool(each.figures) for each in done)
    assert jobs > 6
    added = len(set(taken))
    assert added > 12 + jobs // 2, "what jobs added was looked at"
    assert len(taken) <= 4 * added, (
        "by both plans of the round, by its first job, and by those behind it only what was added"
    )
    assert live_rows(small.state, small.objects()) == before


def test_a_merged_run_is_merged_again_once_it_grows_as_much_as_is_asked(small: Scene) -> None:
    small.send(6)
    merge_all(small.daemon)
    first = live(small)
    small.send(2)
    merge_all(small.daemon)
    assert live(small)[0] == first[0]
    assert len(live(small)) == 2
    small.send(6)
    merge_all(small.daemon)
    assert len(live(small)) == 1, "six, and two and six"
    assert small.daemon.rows()[ORDERS][-1][1] == 13


def test_commits_of_rows_outlive_a_second_merge(small: Scene) -> None:
    """Streams by commit are exact only while each row says which commit archived it."""
    small.send(3)
    merge_all(small.daemon)
    small.send(3)
    came = commits_of_rows(small)
    merge_all(small.daemon)
    assert len(live(small)) == 1
    assert commits_of_rows(small) == came
    assert len(set(came[ORDERS, 1])) == 2


def test_nothing_to_do_is_nothing_done(small: Scene) -> None:
    small.send(3)
    merge_all(small.daemon)
    head = small.state.head()
    done = merge_all(small.daemon)
    assert [d.more for d in done] == [False]
    assert small.state.head() == head


def test_a_job_is_due_an_interval_after_the_last_round(small: Scene) -> None:
    task = merging(small.daemon)
    assert not task.due(small.clock.monotonic())
    small.clock.advance(601)
    assert task.due(small.clock.monotonic())
    small.send(3)
    assert not task.run_once(AtOnceTurn(small.daemon)).more
    small.send(3)
    assert not task.due(small.clock.monotonic()), "what came meanwhile waits"


@pytest.mark.parametrize("window_bytes", [700, 20_000, opening_rewind.WINDOW_BYTES])
def test_records_are_compared_with_the_broker_in_its_own_order(
    small: Scene, monkeypatch: pytest.MonkeyPatch, window_bytes: int
) -> None:
    """A merged run reaches over many commits, and is younger than runs that lie between its records."""
    monkeypatch.setattr(opening_rewind, "WINDOW_BYTES", window_bytes)
    spread(small, 6)
    merge_all(small.daemon, job_runs=16)
    spread(small, 3, seed=2)
    Edits(small).merge(ORDERS, [run for run in live(small) if run.queue == ORDERS][-2:])
    spread(small, 2, seed=3)
    for offset in (0, small.broker.sent[60][0].physical_offset, small.broker.sent[-3][0].physical_offset + 1):
        found = list(opening_rewind.archived_from(small.state, small.objects(), 1, PhysicalOffset(offset)))
        wanted = [(m.physical_offset, raw) for m, raw in small.broker.sent if m.physical_offset >= offset]
        assert [(record.physical_offset, bytes(record.data)) for record in found] == wanted


# ---- what changes between plan and commit


def test_a_queue_that_was_trimmed_meanwhile_is_left_out(small: Scene) -> None:
    spread(small, 4)
    turn = AtOnceTurn(small.daemon, before=lambda: Edits(small).trim(ORDERS, 3) and None)
    task = merging(small.daemon)
    runs = [run for run in live(small) if run.queue == ORDERS]
    task.run_once(turn)
    kept = [run for run in live(small) if run.queue == ORDERS]
    assert [run.id for run in kept] == [run.id for run in runs if run.end > 3]
    assert len([run for run in live(small) if run.queue == QUEUES[2]]) == 1, "other queues are merged"
    before = small.daemon.rows()
    merge_all(small.daemon)
    assert small.daemon.rows() == before
    assert levels(small) == {1}


def test_a_job_all_of_whose_sources_changed_takes_no_place(small: Scene) -> None:
    small.send(5)
    small.send(5)
    head = small.state.head()
    assert head is not None
    own = OwnKeys()
    turn = AtOnceTurn(small.daemon, before=lambda: Edits(small).trim(ORDERS, 3) and None)
    done = merging(small.daemon, own_keys=own).run_once(turn)
    assert done.figures == {"dropped_jobs": 1}
    assert done.more
    assert len(own.given_up()) == 1
    after = small.state.head()
    assert after is not None
    assert after.seq == head.seq + 1, "the trim's"


def test_a_job_that_another_merge_was_faster_than_is_dropped(small: Scene) -> None:
    small.send(5)
    small.send(5)
    before = small.daemon.rows()
    turn = AtOnceTurn(small.daemon, before=lambda: merge_all(small.daemon) and None)
    assert merging(small.daemon).run_once(turn).figures == {"dropped_jobs": 1}
    assert small.daemon.rows() == before


def test_a_job_of_an_epoch_that_is_over_is_dropped(small: Scene) -> None:
    small.send(5)
    task = merging(small.daemon)
    old = small.daemon

    def take_over() -> None:
        other = assemble(
            small.broker.store, small.provider, small.clock, writer=b"B" * 16, take_over=True, seed=99,
            metadata=MemoryStore(),
        )  # fmt: skip
        other.close()
        old.log.follow()

    assert task.run_once(AtOnceTurn(old, before=take_over)).figures == {"dropped_jobs": 1}


# ---- what cannot be read, and what cannot be put


@pytest.mark.parametrize("where", ["block", "columns", "footer"])
def test_a_damaged_object_is_left_out_and_told_and_the_rest_is_merged(small: Scene, where: str) -> None:
    spread(small, 6)
    before = small.daemon.rows()
    items = [o for o in small.state.objects() if o.references]
    item = items[2]
    key = KEYS.key(item.path)
    at = {"block": 10, "columns": item.sections[3][0] + 5, "footer": item.length - 300}[where]

    def spoil(asked: str, start: int, data: bytes) -> bytes:
        if asked != key or not start <= at < start + len(data):
            return data
        changed = bytearray(data)
        changed[at - start] ^= 1
        return bytes(changed)

    small.provider.spoil = spoil
    done = merge_all(small.daemon)
    assert sum(d.trouble is not None for d in done) == 1
    assert key in str(done[0].trouble)
    assert [o for o in small.state.objects() if o.references and not o.level] == [
        small.state.object(item.ref)
    ], "only what lies in the damaged one stays"
    small.provider.spoil = lambda key, start, data: data
    assert small.daemon.rows() == before


def test_a_lost_object_is_left_out(small: Scene) -> None:
    spread(small, 3)
    item = [o for o in small.state.objects() if o.references][1]
    small.provider.delete(KEYS.key(item.path))
    done = merge_all(small.daemon)
    assert sum(d.trouble is not None for d in done) == 1
    assert levels(small) == {0, 1}


def test_a_store_that_is_away_changes_nothing(small: Scene) -> None:
    small.send(5)
    runs, own = live(small), OwnKeys()

    def gate(key: str, start: int, length: int) -> None:
        raise Unavailable("the store is away")

    small.provider.gate = gate
    with pytest.raises(Unavailable):
        merging(small.daemon, own_keys=own).run_once(AtOnceTurn(small.daemon))
    assert live(small) == runs
    assert own.given_up() == []


def test_what_is_put_and_not_committed_is_given_up(small: Scene) -> None:
    small.send(5)
    own = OwnKeys()

    def stop() -> None:
        path = next(o for o in (k for v, k in small.provider.inner.calls if v == "put") if "/data/" in o)  # type: ignore[attr-defined]
        raise Unavailable(path)

    with pytest.raises(Unavailable):
        merging(small.daemon, own_keys=own).run_once(AtOnceTurn(small.daemon, before=stop))
    (path,) = own.given_up()
    assert not own.in_hand(path)
    assert small.provider.head(KEYS.key(path)).length > 0
    assert small.state.object_at(path) is None
    own.retired(path)
    assert own.given_up() == []


def test_a_restart_behind_a_merge_reads_the_same(small: Scene) -> None:
    spread(small, 5)
    merge_all(small.daemon)
    before = small.daemon.rows()
    start_again(small)
    assert small.daemon.rows() == before
    spread(small, 3, seed=2, most=10)
    merge_all(small.daemon)
    assert levels(small) == {1}


def test_a_merge_while_a_rewind_is_planned_leaves_nothing_of_the_lost_tail(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is quiet then: it takes what maintenance offers."""
    daemon, broker = small.daemon, small.broker
    spread(small, 2)
    lost = len(broker.sent)
    spread(small, 3, seed=2)
    before = ArchiveState.run_before
    merged = []

    def run_before(state: ArchiveState, mq: MessageQueue, generation: int, offset: int) -> RunState | None:
        if not merged:
            merged.append(merge_all(daemon))
        return before(state, mq, generation, offset)

    broker.crash(broker.sent[lost][0].physical_offset)
    broker.send(body=b"the broker goes on")
    broker.mark_started(daemon.clock.now_ms())
    monkeypatch.setattr(ArchiveState, "run_before", run_before)
    daemon.clock.advance(60)
    daemon.settle()
    assert merged
    assert live_rows(small.state, small.objects()) == daemon.rows()
    found = {q: [raw for _, _, raw in rows] for q, rows in daemon.rows().items()}
    assert found == {q: [r.raw for r in v.rows] for q, v in broker.oracle().queues.items()}
