"""Retention: policies as people write them, the moment, the share that a run may take, what readers see afterwards."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import plan as plan_commit
from tests.kit.fetchscene import ORDERS, scene
from tests.kit.histories import History
from tests.kit.readstore import cold
from tiered.archive.rewrite.policy import (
    LegalHold,
    Moment,
    RetentionPolicy,
    RetentionRule,
    agreed_now,
    policy_from,
)
from tiered.archive.rewrite.retain import check_share, narrowed, plan_retention
from tiered.archive.rewrite.trims import TrimReason
from tiered.errors import Invalid, Refused
from tiered.model import GetMessageStatus
from tiered.settings import Retain, Settings

DAY = 86_400_000
S = GetMessageStatus


def test_nothing_set_keeps_everything_for_ever() -> None:
    policy = policy_from(Settings().retain)
    assert policy.forever
    assert policy.rule("Orders") == RetentionRule()


def test_the_first_pattern_that_fits_decides() -> None:
    rules = ("Audit=forever", "Orders*=30d 100GiB", "Trace=2d", "*=1GiB")
    policy = policy_from(Retain(keep_ms=7 * DAY, topics=rules))
    assert policy.rule("Audit") == RetentionRule()
    assert policy.rule("Orders-eu") == RetentionRule(30 * DAY, 100 << 30)
    assert policy.rule("Trace") == RetentionRule(2 * DAY)
    assert policy.rule("Other") == RetentionRule(None, 1 << 30)
    assert not policy.forever


@pytest.mark.parametrize(
    "entry",
    [
        "Orders",
        "=3d",
        "Orders=",
        "Orders=3d 4d",
        "Orders=soon",
        "Orders=0d",
        "Orders=forever 3d",
        "Orders=3x",
    ],
)
def test_what_is_not_a_rule_is_named_with_the_form(entry: str) -> None:
    with pytest.raises(Invalid, match="what is not a rule") as found:
        policy_from(Retain(topics=(entry,)))
    assert (found.value.fields["key"], found.value.fields["found"]) == ("retain.topics", entry)
    assert "Orders*=30d" in str(found.value.hint)


def test_a_rule_below_the_least_age_is_refused() -> None:
    with pytest.raises(Invalid, match="shorter than the least age") as found:
        policy_from(Retain(keep_ms=DAY - 1))
    assert found.value.fields["key"] == "retain.keep_ms"
    with pytest.raises(Invalid, match="shorter than the least age") as found:
        policy_from(Retain(topics=("Orders=23h",)))
    assert found.value.fields["found"] == "Orders=23h"
    policy_from(Retain(topics=("Orders=23h",), min_age_ms=3_600_000))


@pytest.mark.parametrize(
    ("earlier", "later", "hidden"),
    [
        ("*", "Orders", True), ("Orders*", "Orders-*", True), ("Order?", "Orders", True), ("Orders", "Orders", True),
        ("Orders", "Orders*", False), ("Order?", "Order*", False), ("Orders-*", "Trace", False),
    ],
)  # fmt: skip
def test_a_rule_that_never_decides_is_refused(earlier: str, later: str, hidden: bool) -> None:
    settings = Retain(topics=(f"{earlier}=3d", f"{later}=4d"))
    if not hidden:
        policy_from(settings)
        return
    with pytest.raises(Invalid, match="never decides") as found:
        policy_from(settings)
    assert found.value.fields["found"] == f"{later}=4d"


def test_now_is_the_earlier_clock_and_clocks_far_apart_stop_everything() -> None:
    assert agreed_now(1_000_000, 1_200_000) == agreed_now(1_200_000, 1_000_000) == 1_000_000
    for local, store in ((1_000_000, 1_300_001), (1_300_001, 1_000_000)):
        with pytest.raises(Refused, match="too far apart"):
            agreed_now(local, store)


def grown() -> History:
    history = History(random.Random(5))
    for _ in range(30):
        history.step()
    return history


def test_a_run_that_takes_too_much_asks_first_with_the_figure_that_allows_it() -> None:
    history = grown()
    everything = plan_retention(history.state, RetentionPolicy(RetentionRule(0)), Moment(10_000, 100))
    assert everything.trimmed_bytes == everything.live_bytes > 0
    with pytest.raises(Refused, match="more of the archive than it may") as found:
        check_share(everything, 10)
    assert found.value.fields["found"] == "100 %"
    assert "--max-trim-percent 100" in str(found.value.hint)
    check_share(everything, 100)
    check_share(replace(everything, trimmed_bytes=0), 0)


def test_a_plan_says_why_who_stopped_it_and_which_patterns_fit_nothing() -> None:
    history = grown()
    hold = LegalHold("case-7", "topic-0", 0, 10_000)
    policy = RetentionPolicy(
        RetentionRule(0),
        (("no-such", RetentionRule(1)), ("topic-1", RetentionRule(keep_bytes=1))),
        0,
        (hold,),
    )
    plan = plan_retention(history.state, policy, Moment(10_000, 100))
    assert plan.unmatched == ("no-such",)
    reasons = {trim.queue.topic: trim.reason for trim in plan.trims}
    assert reasons == {"topic-1": TrimReason.SIZE, "topic-2": TrimReason.AGE}


def test_what_a_later_commit_made_young_again_is_left_out_when_the_trims_are_committed() -> None:
    history = grown()
    seq = len(history.commits) - 1
    policy, moment = RetentionPolicy(RetentionRule(0)), Moment(10_000, seq)
    plan = plan_retention(history.state, policy, moment)
    before = history.state
    while not (edits := history.replace()):
        pass
    history.add(edits)  # a merge: its runs are of a commit that the moment does not know as aged
    merged = {run.queue for run in before.runs_all() if run.id.commit_seq > seq}
    made = narrowed(history.state, plan.trims, policy, moment.aged_seq)
    assert merged
    assert list(made) != list(plan.trims)
    for trim in made:
        starts = [
            r.start
            for r in history.state.runs(trim.queue, trim.generation)
            if r.id.commit_seq > moment.aged_seq
        ]
        assert all(trim.first_offset <= start for start in starts)
    history.add([made.edit()])


def test_a_queue_whose_tail_was_rewound_meanwhile_loses_nothing_that_was_written_anew() -> None:
    history = grown()
    policy, moment = RetentionPolicy(RetentionRule(0)), Moment(10_000, len(history.commits) - 1)
    plan = plan_retention(history.state, policy, moment)
    for _ in range(20):
        if edits := history.rewind():
            history.add(edits)
    for _ in range(5):
        history.add(history.flush())
    young = {
        (run.queue, run.generation): run.start
        for run in reversed(list(history.state.runs_all()))
        if run.id.commit_seq > moment.aged_seq
    }
    made = narrowed(history.state, plan.trims, policy, moment.aged_seq)
    assert any(trim.first_offset > young.get((trim.queue, trim.generation), 1 << 60) for trim in plan.trims)
    assert all(trim.first_offset <= young.get((trim.queue, trim.generation), 1 << 60) for trim in made)
    history.add([made.edit()])


def test_below_the_new_minimum_the_answer_is_too_small_and_above_it_every_byte_is_as_before(
    tmp_path: Path,
) -> None:
    with cold(tmp_path) as archive:
        for number in range(60):
            archive.broker.time_ms += 1
            archive.broker.send(body=b"%d" % number * 20)
            if number % 10 == 9:
                archive.archive()
        before = [bytes(r) for r in archive.get("Orders", 0, 0, 60).records]
        assert len(before) == 60
        runs = list(archive.daemon.state.runs(ORDERS, 1))
        cutoff_ms = runs[2].max_store_time
        policy = RetentionPolicy(RetentionRule(keep_ms=1000))
        plan = plan_retention(archive.daemon.state, policy, Moment(cutoff_ms + 1000, 1 << 40))
        (trim,) = plan.trims
        assert (trim.first_offset, trim.messages, trim.runs) == (runs[2].start, runs[2].start, 2)
        log = archive.daemon.log
        log.put(plan_commit(log, plan.trims.edit()))
        archive.fresh()
        archive.store.follow()
        for offset in (0, trim.first_offset - 1):
            answer = archive.get("Orders", 0, offset)
            assert (answer.status, answer.next_begin_offset) == (S.OFFSET_TOO_SMALL, trim.first_offset)
            assert (answer.min_offset, answer.max_offset, len(answer.records)) == (trim.first_offset, 60, 0)
        after = archive.get("Orders", 0, trim.first_offset, 60)
        assert [bytes(r) for r in after.records] == before[trim.first_offset :]


def test_trims_end_where_runs_end(tmp_path: Path) -> None:
    with scene(tmp_path) as s:
        for _ in range(3):
            s.broker.time_ms += 1
            s.send(7)
        runs = list(s.state.runs(ORDERS, 1))
        policy = RetentionPolicy(RetentionRule(keep_bytes=runs[2].flat_end - runs[2].first_flat_offset + 1))
        (trim,) = plan_retention(s.state, policy, Moment(1 << 50, 1 << 40)).trims
        assert (trim.first_offset, trim.reason) == (runs[1].start, TrimReason.SIZE)
