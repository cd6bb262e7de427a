"""Retention over fresh, merged and sealed archives: sizes are those of the records, a dry run is the run, whole files go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.collecting import HOUR_MS, Sweeping, needed, stored
from tests.kit.fetchscene import SETTLED_SECONDS, Scene, scene
from tests.kit.merging import QUEUES, AtOnceTurn, merge_all
from tests.kit.sealing import MIDNIGHT_MS, Rows, after_midnight, all_rows, seal_all
from tiered.archive.rewrite import retention
from tiered.archive.rewrite.policy import Moment, RetentionPolicy, RetentionRule
from tiered.archive.rewrite.retain import plan_retention
from tiered.archive.rewrite.retention import Retention
from tiered.errors import Refused
from tiered.settings import ONE_DAY_MS, Retain

LATE = Moment(1 << 60, 1 << 40)
DAYS = 4


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    """Four days of messages in four queues, a few commits a day."""
    with scene(tmp_path) as made:
        chance = random.Random(2)
        for day in range(DAYS):
            for part in range(3):
                made.broker.time_ms = MIDNIGHT_MS + day * ONE_DAY_MS + part * 7 * HOUR_MS
                made.clock.set_wall(made.broker.time_ms)
                for _ in range(16):
                    queue = chance.choice(QUEUES)
                    made.broker.send(queue.topic, queue.queue_id, b"%d " % chance.getrandbits(64) * 20)
                made.daemon.settle(SETTLED_SECONDS)
        after_midnight(made, DAYS + 1)
        yield made


def fresh(made: Scene) -> None:
    """As the daemon wrote it."""


def merged(made: Scene) -> None:
    merge_all(made.daemon)


def sealed(made: Scene) -> None:
    merge_all(made.daemon)
    for _ in range(DAYS):  # what one day leaves of a run is the next one's
        seal_all(made.daemon)
    assert {item.level for item in made.state.objects() if item.references} == {2}


STAGES: tuple[Callable[[Scene], None], ...] = (fresh, merged, sealed)


def segments(made: Scene) -> set[str]:
    return {str(KEYS.path(item.key)) for item in made.provider.list(KEYS.key("segment/"))}


def gone(before: Rows, after: Rows) -> int:
    return sum(map(len, before.values())) - sum(map(len, after.values()))


@pytest.mark.parametrize("stage", STAGES)
def test_bytes_are_those_of_the_records_whatever_they_take_at_rest(
    small: Scene, stage: Callable[[Scene], None]
) -> None:
    total = {t: sum(len(raw) for m, raw in small.broker.sent if m.topic == t) for t in ("Orders", "Payments")}
    stage(small)
    plan = plan_retention(small.state, RetentionPolicy(RetentionRule(keep_bytes=1 << 30)), LATE)
    assert (plan.live_bytes, len(plan.trims)) == (sum(total.values()), 0)
    keep_bytes = total["Orders"] // 2
    plan = plan_retention(small.state, RetentionPolicy(RetentionRule(keep_bytes=keep_bytes)), LATE)
    for topic, size in total.items():
        left = size - sum(trim.bytes for trim in plan.trims if trim.queue.topic == topic)
        assert left >= keep_bytes, "at least what the rule names"
    assert stage is not fresh or plan.trimmed_bytes > 0


@pytest.mark.parametrize("stage", STAGES)
def test_a_dry_run_says_exactly_what_the_run_does(small: Scene, stage: Callable[[Scene], None]) -> None:
    stage(small)
    small.clock.advance(26 * 3600)
    keep_ms = ONE_DAY_MS if stage is merged else 4 * ONE_DAY_MS  # a run of four days goes when all of it may
    sweeping = Sweeping.of(small, keep_ms=keep_ms, min_age_ms=ONE_DAY_MS)
    before, outlook = all_rows(small), sweeping.retention.plan()
    assert outlook.rows
    begins = {(q.queue.topic, q.queue.queue_id): q.min_offset for q in small.state.queues()}
    assert sweeping.count(sweeping.retention) == {"trimmed_queues": len(outlook.rows)}
    planned = {(row["topic"], row["queue_id"]): row["first_offset"] for row in outlook.rows}
    now = {(q.queue.topic, q.queue.queue_id): q.min_offset for q in small.state.queues()}
    assert now == {**begins, **planned}
    assert gone(before, all_rows(small)) == sum(int(row["messages"] or 0) for row in outlook.rows)
    assert sum(int(row["bytes"] or 0) for row in outlook.rows) == outlook.figures["trimmed_bytes"]
    cutoff_ms = small.clock.now_ms() - keep_ms
    young = [raw for m, raw in small.broker.sent if m.store_timestamp >= cutoff_ms]
    left = {raw for rows in all_rows(small).values() for _, raw, _ in rows}
    assert left >= set(young), "nothing that is in range"
    assert sweeping.retention.plan().jobs == 0


@pytest.mark.parametrize("alone", [True, False])
def test_what_a_store_time_of_the_future_keeps_is_told(tmp_path: Path, alone: bool) -> None:
    """A broker whose clock was wrong for a moment."""
    with scene(tmp_path) as made:
        began_ms = made.clock.now_ms()
        for ahead_ms, count in ((0, 5), (3650 * ONE_DAY_MS, 1), (1000, 20)):
            made.broker.time_ms = began_ms + ahead_ms
            made.send(count, flush=alone)
        made.daemon.settle(SETTLED_SECONDS)
        sweeping = Sweeping.of(made, keep_ms=ONE_DAY_MS)
        assert sweeping.retention.plan().figures["queues_ahead"] == 0, "nothing is old yet"
        made.clock.advance(30 * 86_400)
        sweeping.all(sweeping.retention)
        (done,) = sweeping.all(sweeping.retention)
        assert done.left == {"queues_ahead": 1}
        assert (
            "1 queues keep old messages behind one whose store time lies ahead"
            in sweeping.retention.plan().said
        )
        made.clock.advance(3651 * 86_400)
        assert sweeping.count(sweeping.retention) == {"trimmed_queues": 1}
        assert sweeping.retention.plan().figures["queues_ahead"] == 0


def test_a_rule_that_changes_within_a_run_is_judged_as_one_that_changed_before_it(
    small: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TRIMS", "COMMITS"):
        monkeypatch.setattr(retention, name, 1)
    small.clock.advance(26 * 3600)
    sections = [Retain(keep_ms=4 * ONE_DAY_MS + 12 * HOUR_MS, min_age_ms=HOUR_MS, max_trim_percent=30)]
    task = Retention(small.daemon.log, small.clock, lambda: sections[-1])
    jobs = task.plan().jobs
    assert jobs > 1
    assert task.run_once(AtOnceTurn(small.daemon)).more
    before = all_rows(small)
    sections.append(replace(sections[0], keep_ms=HOUR_MS))
    with pytest.raises(Refused, match="more of the archive than it may"):
        task.run_once(AtOnceTurn(small.daemon))
    assert all_rows(small) == before
    del sections[1]
    turns = 1
    while task.run_once(AtOnceTurn(small.daemon)).more:
        turns += 1
    assert turns == jobs - 1


def test_of_segments_whole_files_go(small: Scene) -> None:
    sealed(small)
    files = segments(small)
    assert len(files) == 2 * DAYS
    small.clock.advance(26 * 3600)
    sweeping = Sweeping.of(small, keep_ms=4 * ONE_DAY_MS, min_age_ms=ONE_DAY_MS)
    sweeping.all(sweeping.retention)
    rows = all_rows(small)
    sweeping.all(sweeping.gc)
    small.clock.advance(25 * 3600)
    sweeping.all(sweeping.gc)
    left = segments(small)
    assert left < files
    assert {path for path in files - left if f"day={first_day()}" in path} == files - left
    assert left == {path for path in needed(small) if path.startswith("segment/")}
    assert stored(small) == needed(small)
    assert all_rows(small) == rows


def first_day() -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(MIDNIGHT_MS / 1000, UTC).date().isoformat()
