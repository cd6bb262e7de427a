"""Sealed days hold what their sources held, byte for byte; what is sealed when; and sources that change or are damaged."""

from __future__ import annotations

import errno
import io
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.kit.aged import Stage, age
from tests.kit.archiveedits import Edits, rewind, start_again
from tests.kit.assemble import KEYS
from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Ranges, Scene, scene
from tests.kit.merging import QUEUES, AtOnceTurn, archiving_beside_plans, looked_at, merge_all, spread
from tests.kit.oddrecords import laid
from tests.kit.pipeline import INNER_BATCH
from tests.kit.sealing import (
    HOUR_MS,
    MIDNIGHT_MS,
    across_midnights,
    after_midnight,
    all_rows,
    seal_all,
    sealing,
)
from tiered.archive.keys import Area, ObjectKey, SegmentKey, build, parse, segment_key
from tiered.archive.log.maintenance import Figures, OwnKeys
from tiered.archive.read.held import Held
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.sources import Gathered, Piece, Sources
from tiered.archive.rewrite.writing import SourceRecords
from tiered.archive.state.values import ObjectState
from tiered.codec.checksum import crc32c
from tiered.codec.format.object import ROW_DTYPE
from tiered.codec.format.sections import CODEC_NONE
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Invalid, TieredError, Unavailable
from tiered.provider.base import UnfinishedUpload
from tiered.provider.resolve import put_own
from tiered.settings import ONE_DAY_MS


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def referenced(made: Scene, level: int) -> list[ObjectState]:
    return [item for item in made.state.objects() if item.references and item.level == level]


def places(made: Scene) -> list[tuple[str, date]]:
    """Topic and day of each segment."""
    found = [parse(item.path) for item in referenced(made, 2)]
    assert all(isinstance(each, SegmentKey) for each in found)
    return sorted((each.folder, each.day) for each in found if isinstance(each, SegmentKey))


def shown(made: Scene) -> list[object]:
    return [
        (q.queue, q.min_offset, q.max_offset, q.flat_end, q.messages, q.bytes, q.min_store_time, q.max_store_time)
        for q in made.state.queues()
    ]  # fmt: skip


@pytest.mark.parametrize("stage", [Stage.FRESH, Stage.MERGED])
def test_rows_are_the_same_and_lie_in_files_by_topic_and_day(small: Scene, stage: Stage) -> None:
    age(small, stage)
    before, queues = all_rows(small), shown(small)
    after_midnight(small, days=2)
    done = seal_all(small.daemon)
    assert all_rows(small) == before
    assert shown(small) == queues
    first, second = date(2023, 11, 14), date(2023, 11, 15)
    topics = ["%21off-queue", "Orders", "Payments"]
    assert places(small) == [(topic, day) for topic in topics for day in (first, second)]
    assert not referenced(small, 0) + referenced(small, 1)
    assert sum(int(each.figures.get("messages") or 0) for each in done) == sum(map(len, before.values()))


def test_what_is_sealed_takes_its_memory_where_the_process_does(small: Scene) -> None:
    import pyarrow as pa

    spread(small, 2)
    after_midnight(small)
    pa.set_memory_pool(pa.mimalloc_memory_pool())
    seal_all(small.daemon)
    assert pa.default_memory_pool().backend_name == "system"


def test_the_jobs_of_a_round_list_objects_once(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    across_midnights(small, range(5))
    before = all_rows(small)
    after_midnight(small, days=6)
    taken = looked_at(monkeypatch)
    done = seal_all(small.daemon)
    added = len(set(taken))
    assert sum(bool(each.figures) for each in done) == 6
    assert len(taken) <= 3 * added, "by both looks for days that wait, and once by the jobs"
    assert all_rows(small) == before


def test_what_is_archived_while_a_day_is_planned_waits(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    spread(small, 6)
    after_midnight(small)
    runs = len(list(small.state.runs_all()))
    archiving_beside_plans(small, monkeypatch)
    task = sealing(small.daemon)
    assert task.plan().figures["runs"] == runs < len(list(small.state.runs_all()))
    done = task.run_once(AtOnceTurn(small.daemon))
    assert done.figures["written_files"] == 1
    assert {item.level for item in small.state.objects() if item.references} == {0, 2}


def test_a_day_that_is_not_over_for_long_enough_waits(small: Scene) -> None:
    spread(small, 2)
    for wall_ms, waits in ((MIDNIGHT_MS - 1, 0), (MIDNIGHT_MS + HOUR_MS - 1, 0), (MIDNIGHT_MS + HOUR_MS, 1)):
        small.clock.set_wall(wall_ms)
        assert bool(sealing(small.daemon).plan().jobs) == bool(waits)


def test_what_a_run_leaves_to_other_days_is_written_anew_and_sealed_with_its_own(small: Scene) -> None:
    for number in range(6):
        small.broker.time_ms = MIDNIGHT_MS + (number - 3) * 1000
        small.send(2)
    merge_all(small.daemon)
    assert len(list(small.state.runs_all())) == 1, "it reaches over midnight"
    before = all_rows(small)
    after_midnight(small)
    done = seal_all(small.daemon)
    assert [run.queue_offsets for run in small.state.runs_all()] == [6, 6]
    assert [item.level for item in small.state.objects() if item.references] == [2, 1]
    assert done[0].figures["left_to_other_days_bytes"]
    assert all_rows(small) == before
    first, second = small.state.runs_all()
    assert first.max_store_time == MIDNIGHT_MS - 1000
    assert second.min_store_time == MIDNIGHT_MS
    after_midnight(small, days=2)
    seal_all(small.daemon)
    assert {item.level for item in small.state.objects() if item.references} == {2}
    assert all_rows(small) == before


def test_a_round_seals_days_in_which_no_run_began(small: Scene) -> None:
    across_midnights(small, (0, 2, 4))
    assert [row["day"] for row in planned(small, days=6)] == ["2023-11-14", "2023-11-16", "2023-11-18"]
    before = all_rows(small)
    seal_all(small.daemon)
    assert planned(small, days=6) == []
    assert [day.day for _, day in places(small)] == [14, 15, 16, 17, 18, 19]
    assert all_rows(small) == before


def test_what_is_cut_at_midnight_is_sealed_with_all_else_of_its_day(small: Scene) -> None:
    for run in ((0, 1, 2), (2, 3)):
        for day in run:
            small.broker.time_ms = MIDNIGHT_MS + day * ONE_DAY_MS - 1000
            small.send(2, flush=False)
        small.daemon.settle(SETTLED_SECONDS)
    assert [row["day"] for row in planned(small, days=5)] == ["2023-11-14", "2023-11-16"]
    before = all_rows(small)
    seal_all(small.daemon)
    assert [day.day for _, day in places(small)] == [14, 15, 16, 17], "a file each"
    assert not referenced(small, 0) + referenced(small, 1)
    assert all_rows(small) == before


def test_a_round_seals_every_day_of_a_run(small: Scene) -> None:
    across_midnights(small, range(5))
    merge_all(small.daemon)
    assert len(list(small.state.runs_all())) == 1
    after_midnight(small, days=6)
    before = all_rows(small)
    seal_all(small.daemon)
    assert [day.day for _, day in places(small)] == [14, 15, 16, 17, 18, 19]
    assert all_rows(small) == before


def test_what_lost_its_turn_is_not_written_again_and_again_with_days_behind_it(small: Scene) -> None:
    for days in (0, 2, 1):
        small.broker.time_ms = MIDNIGHT_MS + days * ONE_DAY_MS - 1000
        small.send(2, flush=days == 2 or days == 1)
    after_midnight(small, days=3)
    task, head = sealing(small.daemon), small.state.head()
    turn = AtOnceTurn(small.daemon)
    commit, turn.commit = turn.commit, lambda flush: None  # type: ignore[method-assign]
    assert task.run_once(turn).figures == {"dropped_jobs": 1}
    assert small.state.head() == head
    turn.commit = commit  # type: ignore[method-assign]
    done = []
    while not done or done[-1].more:
        done.append(task.run_once(turn))
        assert len(done) < 9, "it comes to an end"
    assert [day.day for _, day in places(small)] == [15]
    seal_all(small.daemon)
    assert [day.day for _, day in places(small)] == [14, 15, 16]


def planned(made: Scene, days: int) -> list[Figures]:
    after_midnight(made, days=days)
    return list(sealing(made.daemon).plan().rows)


def test_a_broker_whose_clock_went_back_at_midnight_has_each_message_in_its_own_day(small: Scene) -> None:
    for seconds in (-2, 1, -1, 2, -3, 3):
        small.broker.time_ms = MIDNIGHT_MS + seconds * 1000
        small.send(2)
    before = all_rows(small)
    merge_all(small.daemon)
    after_midnight(small)
    seal_all(small.daemon)
    assert all_rows(small) == before
    (segment,) = referenced(small, 2)
    runs = [run for run in small.state.runs_all() if run.object == segment.ref]
    assert [(run.first_queue_offset, run.rows) for run in runs] == [(0, 2), (4, 2), (8, 2)]
    after_midnight(small, days=2)
    seal_all(small.daemon)
    assert all_rows(small) == before
    assert not referenced(small, 1)


def test_trimmed_and_rewound_runs_keep_their_live_part_and_closed_history_its_own_files(small: Scene) -> None:
    spread(small, 5)
    Edits(small).trim(ORDERS, 7)
    messages = [m for m, _ in small.broker.sent if (m.topic, m.queue_id, m.sys_flag) == ("Orders", 0, 0)]
    rewind(small, messages[len(messages) * 2 // 3])
    rewind(small, messages[len(messages) // 2])
    before = all_rows(small)
    closings = {(closed_by, name[0].topic) for *name, closed_by in before}
    assert len({closed_by for closed_by, _ in closings}) == 3
    after_midnight(small)
    seal_all(small.daemon)
    assert all_rows(small) == before
    assert not referenced(small, 0) + referenced(small, 1)
    assert len(referenced(small, 2)) == len(closings)


def test_a_trim_into_an_inner_batch_leaves_its_run_as_it_is(small: Scene) -> None:
    for number in range(6):
        fields = {"sys_flag": INNER_BATCH, "properties": {"INNER_NUM": "3"}} if number % 2 else {}
        small.broker.send(body=b"%d" % number, **fields)
    small.daemon.settle(SETTLED_SECONDS)
    small.send(3)
    Edits(small).trim(ORDERS, 2)  # in the middle of offsets 1 to 4
    before = all_rows(small)
    after_midnight(small)
    done = seal_all(small.daemon)
    assert all_rows(small) == before
    assert [len(referenced(small, level)) for level in (0, 2)] == [1, 1]
    assert not any(each.trouble for each in done), "that is no damage"


@pytest.mark.parametrize("window_bytes", [1, 3000])
def test_files_end_where_they_are_long_enough(small: Scene, window_bytes: int) -> None:
    for _ in range(12):
        small.send(10, noise=True, size=900)
    before = all_rows(small)
    after_midnight(small)
    done = seal_all(small.daemon, segment_bytes=20_000, row_group_bytes=4000, window_bytes=window_bytes)
    assert all_rows(small) == before
    files = [int(each.figures["written_bytes"] or 0) for each in done if each.figures]
    assert len(files) > 3
    assert max(files) < 60_000, "with the run that was full, filters and footer"
    assert not referenced(small, 0)


@pytest.mark.parametrize("late", [("tags",), ("tags", "unique_key")], ids="-".join)
def test_columns_that_have_nulls_after_all(small: Scene, late: tuple[str, ...]) -> None:
    """Files declare what the first row group is without; where a later one has some a file is begun again, and no further file
    of that topic."""
    names = {"tags": "TAGS", "unique_key": "UNIQ_KEY"}
    every = dict.fromkeys(names.values(), "a")
    for count in range(len(late) + 1):
        gone = [names[column] for column in late[:count]]
        small.send(10, noise=True, size=900, properties={k: v for k, v in every.items() if k not in gone})
    small.broker.time_ms = MIDNIGHT_MS + 1000
    small.send(10, noise=True, size=900, properties=every)
    before = all_rows(small)
    after_midnight(small, 2)
    made: list[tuple[str, ...]] = []
    task = sealing(small.daemon, row_group_bytes=4000)
    turn = AtOnceTurn(small.daemon)
    while task.run_once(turn).more:
        pass
    assert all_rows(small) == before
    for item in sorted(referenced(small, 2), key=lambda item: item.path):
        data = small.provider.get(KEYS.key(item.path)).data
        schema = pq.read_schema(io.BytesIO(data))
        made.append(tuple(name for name in names if schema.field(name).nullable))
        assert schema.field("queue_offset").nullable is schema.field("commit_seq").nullable is False
        assert schema.field("body_size").nullable is (len(late) > 1)
    assert made == [late, late]


def test_a_job_reads_no_more_objects_and_replaces_no_more_runs_than_it_may(small: Scene) -> None:
    spread(small, 9)
    before = all_rows(small)
    after_midnight(small)
    for options in ({"job_objects": 2}, {"job_runs": 3}):
        done = sealing(small.daemon, **options).run_once(AtOnceTurn(small.daemon))
        assert int(done.figures["read_objects"] or 0) <= options.get("job_objects", 99)
        assert int(done.figures["sealed_runs"] or 0) <= options.get("job_runs", 99)
    done_all = seal_all(small.daemon, job_objects=2)
    assert len(done_all) > 4
    assert all_rows(small) == before
    assert not referenced(small, 0)


def test_what_is_left_to_other_days_is_bounded(small: Scene) -> None:
    for queue in range(8):
        for seconds in (-1, 1):
            small.broker.time_ms = MIDNIGHT_MS + seconds * 1000
            small.send(3, queue_id=queue, flush=False)
    small.daemon.settle(SETTLED_SECONDS)
    before = all_rows(small)
    after_midnight(small)
    done = seal_all(small.daemon, rest_bytes=2000)
    left = [int(each.figures["left_to_other_days_bytes"] or 0) for each in done if each.figures]
    assert len(left) > 2
    assert max(left) < 5000
    assert all_rows(small) == before


def test_a_dry_run_says_what_a_run_then_does(small: Scene) -> None:
    age(small, Stage.MERGED)
    after_midnight(small)
    plan = sealing(small.daemon).plan()
    assert [(row["topic"], row["day"]) for row in plan.rows] == [
        (topic, "2023-11-14") for topic in ("!off-queue", "Orders", "Payments")
    ]
    done = seal_all(small.daemon)
    assert sum(int(each.figures.get("sealed_runs") or 0) for each in done) == plan.figures["runs"]
    assert sum(int(each.figures.get("written_files") or 0) for each in done) == plan.jobs
    after = sealing(small.daemon).plan()
    assert (after.jobs, after.said) == (0, "no day that is over waits")


def test_a_dry_run_says_which_messages_may_be_of_later_days(small: Scene) -> None:
    """A run reaches over midnight; which of its messages are of which day only they say."""
    for days, count in ((0, 3), (1, 2)):
        small.broker.time_ms = MIDNIGHT_MS + days * ONE_DAY_MS - 1000
        small.send(count)
    merge_all(small.daemon)
    (row,) = planned(small, 2)
    assert (row["day"], row["messages"], row["mixed_messages"]) == ("2023-11-14", 5, 5)
    assert "5 of the messages are in runs that reach into later days" in sealing(small.daemon).plan().said
    seal_all(small.daemon)
    assert [day.day for _, day in places(small)] == [14, 15]
    for days in (2, 2):
        small.broker.time_ms = MIDNIGHT_MS + days * ONE_DAY_MS - 1000
        small.send(2)
    (row,) = planned(small, 3)
    assert (row["day"], row["messages"], row["mixed_messages"]) == ("2023-11-16", 4, 0)
    assert "later days" not in sealing(small.daemon).plan().said


def test_nothing_to_do_is_nothing_done(small: Scene) -> None:
    spread(small, 2)
    head = small.state.head()
    assert [each.more for each in seal_all(small.daemon)] == [False]
    assert small.state.head() == head


def test_it_is_due_an_interval_after_the_last_round(small: Scene) -> None:
    task = sealing(small.daemon)
    assert not task.due(small.clock.monotonic())
    small.clock.advance(3601)
    assert task.due(small.clock.monotonic())
    while task.run_once(AtOnceTurn(small.daemon)).more:
        pass
    assert not task.due(small.clock.monotonic())


def test_without_pyarrow_it_is_off_and_says_why(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    spread(small, 1)
    after_midnight(small)
    task = sealing(small.daemon)
    assert task.plan().said == "off: pyarrow is not installed (pip install 'rocketmq-tiered[parquet]')"
    small.clock.advance(3601)
    assert not task.due(small.clock.monotonic())
    assert not task.run_once(AtOnceTurn(small.daemon)).more
    assert not referenced(small, 2)


# ---- what changes between plan and commit, and what cannot be read


def test_a_queue_that_was_trimmed_meanwhile_is_left_out(small: Scene) -> None:
    spread(small, 4)
    after_midnight(small)
    turn = AtOnceTurn(small.daemon, before=lambda: Edits(small).trim(ORDERS, 3) and None)
    task = sealing(small.daemon)
    task.run_once(AtOnceTurn(small.daemon))  # half messages
    task.run_once(turn)
    runs = {run.queue: run.object for run in small.state.runs_all()}
    sealed = {item.ref for item in referenced(small, 2)}
    assert runs[ORDERS] not in sealed
    assert runs[QUEUES[1]] in sealed, "other queues are sealed"
    before = all_rows(small)
    seal_all(small.daemon)
    assert all_rows(small) == before
    assert not referenced(small, 0)


def test_a_job_all_of_whose_sources_changed_takes_no_place(small: Scene) -> None:
    small.send(5)
    small.send(5)
    after_midnight(small)
    own = OwnKeys()
    turn = AtOnceTurn(small.daemon, before=lambda: Edits(small).trim(ORDERS, 3) and None)
    done = sealing(small.daemon, own_keys=own).run_once(turn)
    assert done.figures == {"dropped_jobs": 1}
    (path,) = own.given_up()
    assert path.startswith("segment/topic=Orders/day=2023-11-14/")
    assert not referenced(small, 2)


def test_a_job_of_an_epoch_that_is_over_is_dropped(small: Scene) -> None:
    small.send(5)
    after_midnight(small)
    task, old = sealing(small.daemon), small.daemon

    def another() -> None:
        start_again(small)
        old.log.follow()

    done = task.run_once(AtOnceTurn(old, before=another))
    assert done.figures == {"dropped_jobs": 1}
    assert not referenced(small, 2)


def test_a_source_that_is_damaged_is_left_out_and_told(small: Scene) -> None:
    small.send(5)
    damaged = referenced(small, 0)[0]
    small.send(5)
    key = KEYS.key(damaged.path)
    small.provider.spoil = lambda asked, start, data: (
        bytes(byte ^ 1 for byte in data) if asked == key else data
    )
    after_midnight(small)
    done = seal_all(small.daemon)
    assert [each.trouble for each in done if each.trouble]
    assert damaged.path in next(str(each.trouble) for each in done if each.trouble)
    assert [run.start for run in small.state.runs_all() if run.object == damaged.ref] == [0]
    assert [run.start for run in small.state.runs_all() if run.object != damaged.ref] == [5]
    assert len(referenced(small, 2)) == 1
    small.provider.spoil = lambda asked, start, data: data
    before = all_rows(small)
    seal_all(small.daemon)
    assert len(referenced(small, 2)) == 2, "tried again in the next round"
    assert all_rows(small) == before


def test_blocks_are_opened_when_their_records_are_wanted_and_those_between_are_not() -> None:
    fields = dict.fromkeys(
        ("queue_id", "flag", "queue_offset", "transaction", "bits", "reconsume_times", "prepared"), 0
    )
    fields |= {"born_timestamp": 1, "store_timestamp": 1}
    host = bytes(8)
    raw = [
        laid({**fields, "physical_offset": 1000 * n}, topic=b"T", body=b"x", properties=b"", born=host, store=host, v2=False)
        for n in range(10)
    ]  # fmt: skip
    size = len(raw[0])
    rows = np.zeros(len(raw), ROW_DTYPE)
    rows["size"], rows["physical_offset"] = size, 1000 * np.arange(len(raw))
    opened: list[int] = []

    class Noted(Piece):
        def records(self) -> Buffer:
            opened.append(self.position)
            return super().records()

    blocks = [b"".join(raw[at : at + 2]) for at in range(0, len(raw), 2)]
    pieces = [Noted(b, "k", i, len(b), CODEC_NONE, crc32c(b), 0, len(b)) for i, b in enumerate(blocks)]
    none = np.zeros(0, np.int64)
    gathered = Gathered(rows, none, none, none, [], pieces, none.astype(np.uint64), none, none, none)
    records = SourceRecords(gathered, size * np.arange(len(raw) + 1))
    assert records.between(0, size) == raw[0]
    assert records.between(7 * size, 9 * size) == raw[7] + raw[8]
    assert opened == [0, 3, 4]
    rows["physical_offset"][9] += 1
    with pytest.raises(Corrupt, match="disagree"):
        records.until(10 * size)


def test_a_full_disk_while_sealing_changes_nothing(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small.send(5)
    before, head = all_rows(small), small.state.head()
    after_midnight(small)

    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **options: Full())
    with pytest.raises(Unavailable, match=r"local disk.*No space left"):
        seal_all(small.daemon)
    assert (all_rows(small), small.state.head()) == (before, head)
    monkeypatch.undo()
    seal_all(small.daemon)
    assert all_rows(small) == before
    assert not referenced(small, 0)


def test_a_store_that_fails_while_sealing_changes_nothing(small: Scene) -> None:
    small.send(5)
    before = all_rows(small)
    after_midnight(small)

    def away(key: str, start: int, length: int) -> None:
        raise Unavailable("away")

    small.provider.gate = away
    with pytest.raises(Unavailable):
        seal_all(small.daemon)
    small.provider.gate = lambda key, start, length: None
    assert all_rows(small) == before
    seal_all(small.daemon)
    assert all_rows(small) == before


def test_everything_that_is_read_and_written_is_told(small: Scene) -> None:
    for queue_id in range(5):
        small.send(5, noise=True, queue_id=queue_id)
    merge_all(small.daemon)  # into one object, which is read in several windows
    after_midnight(small)
    small.provider.gets.clear()
    turn = AtOnceTurn(small.daemon)
    done = seal_all(small.daemon, turn, window_bytes=2000)
    written = sum(int(each.figures.get("written_bytes") or 0) for each in done)
    assert sum(turn.spent) >= small.provider.bytes + written


def test_a_window_asks_its_source_for_neighbouring_blocks_and_no_columns_twice(small: Scene) -> None:
    for queue_id in range(8):
        small.send(30, noise=True, size=900, queue_id=queue_id, flush=False)
    small.daemon.settle(SETTLED_SECONDS)
    (source,) = referenced(small, 0)
    before = all_rows(small)
    after_midnight(small)
    small.provider.gets.clear()
    seal_all(small.daemon, window_bytes=70_000, segment_bytes=1 << 30)
    asked = [length for key, _, length in small.provider.gets if key == KEYS.key(source.path)]
    tables = 3  # with the footer, where columns lie, and columns
    windows = 4
    assert len(asked) == tables + windows
    assert all_rows(small) == before


def test_of_what_is_kept_of_objects_the_newest_stays(small: Scene) -> None:
    small.provider.put("many", [bytes(range(100))])
    small.provider.put("one", [bytes(100)])
    spent: list[int] = []
    held = Held(small.provider, spent.append, kept_bytes=25)
    for key, start in (("one", 0), ("many", 0), ("many", 5)):
        held.keep(key, start, start + 10)
        held.forget(key)
    assert spent == [10, 10, 10]
    assert held.read("many", 6, 15) == bytes(range(6, 15)), "in place of what was kept before"
    assert held.read("one", 0, 10) == bytes(10)
    assert spent == [10, 10, 10]
    held.keep("many", 20, 40)
    held.forget("many")
    held.read("many", 20, 40)
    assert spent == [10, 10, 10, 20]
    held.read("one", 0, 10)
    assert spent == [10, 10, 10, 20, 10], "there is no room for both"


@pytest.mark.parametrize("noise", [True, False])
def test_windows_are_as_long_as_their_blocks_are_short(
    small: Scene, monkeypatch: pytest.MonkeyPatch, noise: bool
) -> None:
    for queue_id in range(40):
        small.send(10, noise=noise, size=900, queue_id=queue_id, flush=False)
    small.daemon.settle(SETTLED_SECONDS)
    after_midnight(small)
    runs: list[int] = []
    gather = Sources.gather_for_segment

    def noted(self: Sources, job: Job) -> Gathered:
        runs.append(len(job.runs))
        return gather(self, job)

    monkeypatch.setattr(Sources, "gather_for_segment", noted)
    seal_all(small.daemon, window_bytes=44_000)
    assert sum(runs) == 40
    first, *others, _ = runs
    assert all((number == first) if noise else (2 * first < number < 4 * first) for number in others[1:])


# ---- uploads that a writer did not live to complete


class Uploads:
    """Uploads of a store, by key; ``refusal`` is what it answers instead of listing them."""

    def __init__(self, *keys: str) -> None:
        self.left = [UnfinishedUpload(key, str(number)) for number, key in enumerate(keys)]
        self.refusal: TieredError | None = None

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        if self.refusal is not None:
            raise self.refusal
        yield from [upload for upload in self.left if upload.key.startswith(prefix)]

    def give_up(self, upload: UnfinishedUpload) -> None:
        self.left.remove(upload)


def test_uploads_of_writers_before_and_those_given_up_are_given_up(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.send(1)
    start_again(small)  # epoch 2
    day, own = date(2023, 11, 14), OwnKeys()
    before, ours, given_up, in_hand = (
        segment_key("Orders", day, epoch, bytes([number]) * 16) for number, epoch in enumerate((1, 2, 2, 2))
    )
    with own.making(build(given_up)):
        pass
    foreign = "segment/somebody's"
    uploads = Uploads(
        *(KEYS.key(build(key)) for key in (before, ours, given_up, in_hand)), KEYS.key(foreign),
        KEYS.key(build(ObjectKey(Area.DATA, 1, bytes(16)))), "other/archive/segment/x",
    )  # fmt: skip
    monkeypatch.setattr(
        Ranges, "capabilities", replace(small.provider.capabilities, uploads=uploads), raising=False
    )
    with own.making(build(in_hand)):
        seal_all(small.daemon, own_keys=own)
        assert [upload.upload_id for upload in uploads.left] == ["1", "3", "4", "6"]


def test_a_store_that_does_not_list_uploads_is_told_and_days_are_sealed(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.send(5)
    after_midnight(small)
    uploads = Uploads()
    uploads.refusal = Invalid("no rights to list uploads")
    monkeypatch.setattr(
        Ranges, "capabilities", replace(small.provider.capabilities, uploads=uploads), raising=False
    )
    done = seal_all(small.daemon)
    assert "no rights" in str(done[-1].trouble)
    assert len(referenced(small, 2)) == 1


def test_a_file_that_is_long_on_its_way_is_no_silent_step(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.send(5)
    after_midnight(small)
    told = threading.Event()

    class Heard(AtOnceTurn):
        def spend(self, byte_count: int) -> None:
            if on_its_way.is_set():
                told.set()

    on_its_way = threading.Event()

    def slow(*arguments: Any) -> None:
        on_its_way.set()
        assert told.wait(5), "somebody says so while it goes up"
        put_own(*arguments)

    monkeypatch.setattr("tiered.archive.rewrite.seal.put_own", slow)
    monkeypatch.setattr("tiered.archive.rewrite.seal.LOOK_SECONDS", 0.01)
    sealing(small.daemon).run_once(Heard(small.daemon))
    assert len(referenced(small, 2)) == 1
