"""Retention over random histories, against lists of records that know nothing of runs: what is in range stays (S6), what is out
of range goes run by run, and what went never comes back.

One test walks through ``SEEDS`` histories, in ``PARTS`` parts; each is cheap, since nothing but the fold takes part. What
must have happened must have happened in each part.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from tests.kit.histories import History, Record
from tests.kit.plainretention import plain_trims
from tiered.archive.rewrite.policy import LegalHold, Moment, RequiredSink, RetentionPolicy, RetentionRule
from tiered.archive.rewrite.retain import RetentionPlan, narrowed, plan_retention
from tiered.codec.format.edits import EditKind
from tiered.model import MessageQueue

pytestmark = [pytest.mark.depends_only_on_imports, pytest.mark.no_cover]
SEEDS = 1050
PARTS = 5
STEPS = 8
TOPICS = ("topic-0", "topic-1", "topic-2")


def a_policy(chance: random.Random) -> RetentionPolicy:
    """Rules and holds over the times (1000 to 9000) and sizes that histories have."""

    def rule() -> RetentionRule:
        return RetentionRule(
            chance.choice([None, chance.randint(500, 9000)]), chance.choice([None, chance.randint(1, 3000)])
        )

    holds = []
    for number in range(chance.choice([0, 0, 1, 2])):
        start = chance.randint(0, 9000)
        topic = chance.choice(["topic-*", *TOPICS])
        holds.append(LegalHold(f"hold-{number}", topic, start, start + chance.randint(1, 3000)))
    patterns = ((chance.choice(TOPICS), rule()),) if chance.random() < 0.5 else ()
    return RetentionPolicy(rule(), patterns, chance.choice([0, 0, 500]), tuple(holds))


def a_moment(chance: random.Random, history: History) -> Moment:
    last = len(history.commits) - 1
    return Moment(chance.randint(2000, 14_000), chance.choice([last, last, chance.randint(-1, last)]))


@dataclass(frozen=True)
class Kept:
    """Every record of a history that has not gone, live or closed, by its number, which no other of the history has; its queue,
    and the commit that served it last."""

    live: dict[int, Record]
    closed: dict[int, Record]
    queues: dict[int, MessageQueue]
    commits: dict[int, int]

    @property
    def all(self) -> dict[int, Record]:
        return {**self.closed, **self.live}


def kept(history: History) -> Kept:
    """What the fold serves, read through its runs into the naive records."""
    live, closed, queues, commits = {}, {}, {}, {}
    for place, runs in ((live, history.state.runs_all()), (closed, history.state.closed_parts())):
        for run in runs:
            content = history.contents[run.id.commit_seq, run.id.index]
            for offset in range(run.start, run.end):
                record = content[offset]
                place[record.number] = record
                queues[record.number] = run.queue
                commits[record.number] = max(run.id.commit_seq, commits.get(record.number, -1))
    return Kept(live, closed, queues, commits)


def live_bytes(found: Kept, topic: str) -> int:
    return sum(record.size for number, record in found.live.items() if found.queues[number].topic == topic)


def must_stay(policy: RetentionPolicy, moment: Moment, topic: str, record: Record, commit: int) -> bool:
    """Whether a rule by age, the least age or a hold protects a record; sizes are judged by topic."""
    rule = policy.rule(topic)
    aged = rule.keep_ms is not None and record.time < moment.now_ms - rule.keep_ms
    held = any(h.covers(topic) and h.start_ms <= record.time < h.end_ms for h in policy.holds)
    young = commit > moment.aged_seq or record.time >= moment.now_ms - policy.min_age_ms
    return held or young or not (aged or rule.keep_bytes is not None)


def apply_plan(history: History, plan: RetentionPlan) -> None:
    """Commit the trims, and do the same to the history's own lists."""
    for trim in plan.trims:
        generation = history.model.queues[trim.queue].generations[trim.generation]
        generation.minimum = min(max(generation.minimum, trim.first_offset), generation.maximum)
        generation.gaps = {g for g in generation.gaps if g >= trim.first_offset}
        for name, rows in list(history.model.closed.items()):
            if name[:2] == (trim.queue, trim.generation):
                history.model.closed[name] = {o: n for o, n in rows.items() if o >= trim.first_offset}
    if plan.trims:
        history.add([plan.trims.edit()])


def check(history: History, policy: RetentionPolicy, moment: Moment, done: Counter[str]) -> set[int]:
    """One run of retention; numbers of what it took. ``done`` counts what happened, so that no test is idle unnoticed."""
    before = kept(history)
    plan = plan_retention(history.state, policy, moment)
    plain = plain_trims(history.state, policy, moment)
    assert list(plan.trims) == plain
    assert (plan.count, plan.trimmed_bytes) == (len(plain), sum(trim.bytes for trim in plain))
    assert list(plan_retention(history.state, policy, moment, most=2).trims) == plain[:2]
    assert list(narrowed(history.state, plan.trims, policy, moment.aged_seq)) == list(plan.trims)
    assert plan.live_bytes == sum(g.bytes for q in history.names for g in history.state.generations(q))
    apply_plan(history, plan)
    after = kept(history)
    assert history.folded(history.state) == history.readable()
    assert history.folded_closed(history.state) == history.closed()
    gone = before.all.keys() - after.all.keys()
    was = before.all
    for number in gone:
        queue, record = before.queues[number], was[number]
        assert not must_stay(policy, moment, queue.topic, record, before.commits[number]), (queue, record)
    for topic in TOPICS:
        rule = policy.rule(topic)
        lost = [was[n] for n in gone if before.queues[n].topic == topic]
        by_size = [r for r in lost if rule.keep_ms is None or r.time >= moment.now_ms - rule.keep_ms]
        if by_size:
            assert rule.keep_bytes is not None
            done["size"] += 1
            if any(before.queues[n].topic == topic for n in before.live.keys() & gone):
                assert live_bytes(after, topic) >= min(rule.keep_bytes, live_bytes(before, topic))
        done["age"] += len(lost) > len(by_size)
    assert plan.trims or not gone
    done["trims"] += len(plan.trims)
    done["closed"] += len(before.closed.keys() & gone)
    done["held"] += sum(trim.kept_by is not None for trim in plan.trims)
    assert not plan_retention(history.state, policy, moment).trims
    nothing_expired_in_front(history, policy, moment)
    return gone


def nothing_expired_in_front(history: History, policy: RetentionPolicy, moment: Moment) -> None:
    """Under a rule by age alone the first run left of a current generation is one with a record that must stay."""
    for queue in history.names:
        rule, state = policy.rule(queue.topic), history.state.queue(queue)
        if rule.keep_ms is None or rule.keep_bytes is not None or state is None or state.generation is None:
            continue
        parts = [p for p in history.state.closed_parts(queue) if p.generation == state.generation]
        first = next(history.state.runs(queue, state.generation), None)
        if first is None or any(part.start < first.end for part in parts):
            continue
        content = history.contents[first.id.commit_seq, first.id.index].values()
        seq = first.id.commit_seq
        held = [h for h in policy.holds if h.covers(queue.topic)]
        assert any(must_stay(policy, moment, queue.topic, r, seq) for r in content) or any(
            first.max_store_time >= h.start_ms and first.min_store_time < h.end_ms for h in held
        )


def histories(count: int, part: int = 0, parts: int = 1) -> Iterator[tuple[random.Random, History]]:
    for seed in range(part, count, parts):
        chance = random.Random(seed)
        history = History(chance)
        for _ in range(STEPS):
            history.step()
        yield chance, history


@pytest.fixture(autouse=True)
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of a run, of some, and of all, by the part."""
    called = getattr(request.node, "callspec", None)
    size = (1, 3, None)[0 if called is None else called.params.get("part", 0) % 3]
    if size is not None:
        monkeypatch.setattr("tiered.archive.state.walking.RUNS_OF_A_PAGE", size)
        monkeypatch.setattr("tiered.archive.state.tallies.RECORDS_AT_ONCE", size)
        monkeypatch.setattr("tiered.archive.state.walking._MISSES", size - 1)


@pytest.mark.history
@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_in_range_stays_and_what_went_never_comes_back(part: int) -> None:
    done: Counter[str] = Counter()
    for chance, history in histories(SEEDS, part, PARTS):
        gone = check(history, a_policy(chance), a_moment(chance, history), done)
        for _ in range(3):
            done["rewinds"] += any(e.kind is EditKind.REWIND for e in history.step().edits)
        assert not gone & kept(history).all.keys()
    assert min(done[name] for name in ("age", "size", "held", "closed", "rewinds")) >= 40 // PARTS, done


def test_what_a_required_sink_was_not_given_stays() -> None:
    """Of the generation that is current: nothing at or above the sink's next offset goes, and all else as without it."""
    kept = gone = 0
    sink_id = bytes([1]) * 16
    for seed in range(200):
        chance = random.Random(seed)
        history = History(chance, sinks=True)
        for _ in range(STEPS):
            history.step()
        while sink_id not in history.model.sinks and chance.random() < 0.8:
            history.add(history.sink_progress())
        free, moment = a_policy(chance), a_moment(chance, history)
        taken = frozenset(chance.sample(TOPICS, 2))
        policy = replace(free, sinks=(RequiredSink(sink_id, "s", taken.__contains__),))
        without = {(t.queue, t.generation): t for t in plan_retention(history.state, free, moment).trims}
        made = plan_retention(history.state, policy, moment).trims
        found = {(t.queue, t.generation): t for t in made}
        assert found.keys() <= without.keys()
        reached = history.model.sinks.get(sink_id, (0, 0, {}))[2]
        for name, trim in without.items():
            queue, generation = name
            state = history.state.queue(queue)
            current = state is not None and state.generation == generation and queue.topic in taken
            if not current:
                assert found[name].first_offset == trim.first_offset
                continue
            now = found[name].first_offset if name in found else trim.min_offset
            records = history.model.queues[queue].generations[generation].live()
            assert all(r.end <= reached.get(queue, 0) for r in records if r.offset < now)
            kept += now < trim.first_offset
            gone += now > trim.min_offset
        again = narrowed(
            history.state, plan_retention(history.state, free, moment).trims, policy, moment.aged_seq
        )
        assert {(t.queue, t.generation): t.first_offset for t in again} == {
            n: t.first_offset for n, t in found.items()
        }
    assert (kept > 20, gone > 5) == (True, True), (kept, gone)


def test_later_and_stricter_takes_no_less() -> None:
    """Monotone in time, in age and in size; a hold only ever keeps more."""
    for chance, history in histories(150):
        policy, moment = a_policy(chance), a_moment(chance, history)
        rule = policy.default
        free = RetentionPolicy(rule, policy.patterns, policy.min_age_ms)
        later = Moment(moment.now_ms + chance.randint(0, 3000), moment.aged_seq + chance.randint(0, 5))
        firsts = [
            {(t.queue, t.generation): t.first_offset for t in plan_retention(history.state, p, m).trims}
            for p, m in ((policy, moment), (policy, later), (free, moment))
        ]
        for more in firsts[1:]:
            assert all(more.get(name, -1) >= first for name, first in firsts[0].items())


@pytest.mark.parametrize(
    "rule", [RetentionRule(), RetentionRule(keep_ms=10**9), RetentionRule(keep_bytes=10**9)]
)
def test_a_rule_that_nothing_breaks_trims_nothing(rule: RetentionRule) -> None:
    for _, history in histories(20):
        plan = plan_retention(history.state, RetentionPolicy(rule), Moment(20_000, len(history.commits)))
        assert not plan.trims


@pytest.mark.history
@pytest.mark.parametrize("part", range(PARTS))
def test_a_rewind_into_what_was_trimmed_in_part_brings_nothing_back(part: int) -> None:
    """Trims that end inside runs, of live and of earlier generations; rewinds into the commits of those, and further."""
    done: Counter[str] = Counter()
    for chance, history in histories(300, part, PARTS):
        before = kept(history).all.keys()
        for make in (
            history.trim,
            history.trim,
            history.rewind,
            history.flush,
            history.rewind,
            history.replace,
        ):
            edits = make()
            if not edits:
                continue
            cut = sum(run.start > run.first_queue_offset for run in history.state.runs_all())
            gone = before - kept(history).all.keys()
            history.add(edits)
            done["inside"] += cut
            assert not gone & kept(history).all.keys()
            assert history.folded(history.state) == history.readable()
            assert history.folded_closed(history.state) == history.closed()
            done["into"] += make == history.rewind and bool(gone)
            runs = list(history.state.runs_all())
            for lineage in range(1, history.lineages + 1):
                position = chance.choice([0, *sorted(history.edges.get(lineage, ()))])
                above = [run for run in runs if run.lineage == lineage and run.physical_end > position]
                assert sorted(map(repr, history.state.runs_above(lineage, position))) == sorted(
                    map(repr, above)
                )
            for run in runs:
                lower = [
                    r
                    for r in runs
                    if (r.queue, r.generation) == (run.queue, run.generation) and r.start < run.start
                ]
                found = history.state.run_before(run.queue, run.generation, run.first_queue_offset)
                assert found == max(lower, key=lambda r: r.start, default=None)
    assert min(done["inside"], done["into"]) >= 100 // PARTS, done
