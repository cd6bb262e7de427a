"""Retention as a pure function: a fold, a policy and a moment give the trims, each with its reason.

Trims end where runs end. The fold knows each run's store times and nothing of what lies between them, so this needs no request;
a run is about a second of a queue when fresh and at most a day of it when merged, and only a whole run frees an object. So a
message may stay that much longer than its rule says, and none goes earlier.

A queue is trimmed from its front only: the first run that must stay, by age, by size or by a legal hold, keeps everything
behind it. Closed parts lie in the same offsets and are judged like runs: one that must stay keeps what lies above its start.

All this is done for pages of queues, as arrays: an object for each of a million queues would cost minutes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from tiered.archive.rewrite.cutting import Judged, cut
from tiered.archive.rewrite.histories import Histories, histories
from tiered.archive.rewrite.policy import (
    MOST_APART_MS,
    LegalHold,
    Moment,
    RetentionPolicy,
    RetentionRule,
)
from tiered.archive.rewrite.required import given_up_to
from tiered.archive.rewrite.trims import REASONS, TrimReason, Trims
from tiered.archive.state.forgotten import occupied
from tiered.archive.state.keys import CLOSED, GENERATION, QUEUE, prefixed, topic_of
from tiered.archive.state.layout import packed_table
from tiered.archive.state.tallies import records
from tiered.archive.state.view import ArchiveState
from tiered.archive.state.walking import QUEUE_ID_BYTES, Page, pages
from tiered.codec.types import Bools, Ints
from tiered.errors import Refused
from tiered.metadata.base import MetadataView

_NEVER = -(1 << 62)
"""A cutoff that nothing is older than."""

_AGE, _SIZE, _DELETED = map(REASONS.index, (TrimReason.AGE, TrimReason.SIZE, TrimReason.DELETED))


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """What a run of retention does: ``trims``, or the first of them; ``count`` in all, of ``queues``, take ``trimmed_bytes`` of
    records from readers. ``live_bytes``: records of the archive before it. ``unmatched``: patterns, of rules and holds, that no
    topic of the archive fits. ``ahead``: queues that keep what is old behind a message whose store time lies ahead of now."""

    trims: Trims
    live_bytes: int
    unmatched: tuple[str, ...]
    count: int
    queues: int
    trimmed_bytes: int
    ahead: int = 0


@dataclass(slots=True)
class _Made:
    """A plan on its way: at most ``most`` trims are kept, all are counted."""

    most: int | None
    pages: list[Trims] = field(default_factory=list)
    kept: int = 0
    live_bytes: int = 0
    count: int = 0
    queues: int = 0
    trimmed_bytes: int = 0
    ahead: int = 0

    def add(self, trims: Trims) -> None:
        self.count += len(trims)
        self.queues += len(set(trims.queues))
        self.trimmed_bytes += int(trims.rows["bytes"].sum())
        some = trims if self.most is None else trims[: self.most - self.kept]
        if len(some):
            self.kept += len(some)
            self.pages.append(some)


@dataclass(frozen=True, slots=True)
class _Rules:
    """What holds for the topics of a page, by their numbers there. ``keep_bytes``: -1 for no limit; ``covered``: by a hold."""

    forever: Bools
    expired: Bools
    aged_ms: Ints
    keep_bytes: Ints
    covered: Bools


def plan_retention(
    state: ArchiveState, policy: RetentionPolicy, moment: Moment, *, most: int | None = None
) -> RetentionPlan:
    """The trims that ``policy`` asks for at ``moment``, by topic, queue and generation, or the first ``most``. Nothing is
    changed."""
    view, made = state.view, _Made(most)
    unmatched = dict.fromkeys(
        [*(pattern for pattern, _ in policy.patterns), *(hold.pattern for hold in policy.holds)]
    )
    by_size = policy.default.keep_bytes is not None or any(
        rule.keep_bytes is not None for _, rule in policy.patterns
    )
    for keys, found in pages(view, whole_topics=by_size):
        made.live_bytes += int(found["bytes"].sum())
        heads = [key[:-QUEUE_ID_BYTES] for key in keys]
        number = {head: at for at, head in enumerate(dict.fromkeys(heads))}
        topics = list(map(topic_of, number))
        for pattern in [p for p in unmatched if any(fnmatchcase(topic, p) for topic in topics)]:
            del unmatched[pattern]
        rules = _rules(topics, policy, moment)
        topic = np.array([number[head] for head in heads], np.int64)
        chosen = _worth_a_look(view, (keys, found), rules, topic)
        if len(chosen):
            seen = histories(view, [keys[at] for at in chosen.tolist()], found[chosen])
            given = given_up_to(view, seen, policy.sinks)
            judged = _judged(seen, rules, topic[chosen], policy, moment, given)
            made.add(_trims(seen, rules, topic[chosen], policy, moment, judged))
            made.ahead += _ahead(seen, judged, moment)
    made.live_bytes += sum(int(found["bytes"].sum()) for _, found in records(view, GENERATION))
    trims = Trims.joined(made.pages)
    return RetentionPlan(
        trims, made.live_bytes, tuple(unmatched), made.count, made.queues, made.trimmed_bytes, made.ahead
    )


def check_share(plan: RetentionPlan, max_trim_percent: int) -> None:
    """``Refused``, with the figures, for a plan that takes more of the archive than this share."""
    if plan.trimmed_bytes * 100 > plan.live_bytes * max_trim_percent:
        share = -(-plan.trimmed_bytes * 100 // plan.live_bytes)
        raise Refused(
            "this run would trim more of the archive than it may without being asked",
            hint=f"look at `tiered retain --dry-run`; if it is right, run `tiered retain --max-trim-percent {share}`",
            expected=f"at most {max_trim_percent} % (retain.max_trim_percent)", found=f"{share} %",
            bytes=plan.trimmed_bytes, of=plan.live_bytes, queues=plan.queues,
        )  # fmt: skip


def narrowed(state: ArchiveState, trims: Trims, policy: RetentionPolicy, aged_seq: int) -> Trims:
    """The trims as this later fold allows them: each as far as it was planned, or less where a run was merged or a tail rewound
    meanwhile; those that nothing is left of are gone."""
    queues = list(dict.fromkeys(trims.queues))
    found, known = packed_table(state.view.get_many(prefixed(QUEUE, queues)))
    seen = histories(state.view, [queues[at] for at in np.flatnonzero(known).tolist()], found[known])
    planned = {
        name: row
        for row, name in enumerate(zip(trims.queues, trims.rows["generation"].tolist(), strict=True))
    }
    names = zip(
        (seen.queues[at] for at in seen.queue.tolist()), seen.generations["generation"].tolist(), strict=True
    )
    rows = np.fromiter((planned.get(name, -1) for name in names), np.int64, len(seen.queue))
    covers = _covered([topic_of(queue[:-QUEUE_ID_BYTES]) for queue in seen.queues], policy.holds)
    cutoff_ms = np.where(rows < 0, _NEVER, trims.rows["cutoff_ms"][rows])
    given = given_up_to(state.view, seen, policy.sinks)
    judged = Judged(cutoff_ms, cutoff_ms, covers[:, seen.queue], given)
    made, at = cut(
        seen, judged, policy.holds, aged_seq, np.where(rows < 0, -1, trims.rows["first_offset"][rows])
    )
    before = trims.rows[rows[at]]
    made["reason"], made["kept_by"] = before["reason"], before["kept_by"]
    return Trims([seen.queues[number] for number in seen.queue[at].tolist()], made, trims.holds)


def _rules(topics: Sequence[str], policy: RetentionPolicy, moment: Moment) -> _Rules:
    expired = [policy.expired(topic) for topic in topics]
    rules = [
        RetentionRule(keep_ms=0) if gone else policy.rule(topic)
        for topic, gone in zip(topics, expired, strict=True)
    ]
    now_ms, youngest_ms = moment.now_ms, moment.now_ms - policy.min_age_ms
    aged = [_NEVER if rule.keep_ms is None else min(now_ms - rule.keep_ms, youngest_ms) for rule in rules]
    sizes = [-1 if rule.keep_bytes is None else rule.keep_bytes for rule in rules]
    return _Rules(
        np.array([rule.forever for rule in rules], np.bool_),
        np.array(expired, np.bool_),
        np.array(aged, np.int64),
        np.array(sizes, np.int64),
        _covered(topics, policy.holds),
    )


def _covered(topics: Sequence[str], holds: Sequence[LegalHold]) -> Bools:
    return np.array([[hold.covers(topic) for topic in topics] for hold in holds], np.bool_).reshape(
        len(holds), len(topics)
    )


def _worth_a_look(view: MetadataView, page: Page, rules: _Rules, topic: Ints) -> Ints:
    """Queues of which something may go, by their places in the page: of one that is judged by age alone, only if its oldest
    message is old enough, or if it has more than its live runs."""
    keys, found = page
    ruled = ~rules.forever[topic]
    looked = ruled & ((rules.keep_bytes[topic] >= 0) | (found["min_store_time"] < rules.aged_ms[topic]))
    rest = np.flatnonzero(ruled & ~looked).tolist()
    others = [keys[at] for at in rest]

    def walk(prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        return view.iterate(prefix, start=start)

    more: Collection[bytes] = {
        queue for prefix in (GENERATION, CLOSED) for queue in occupied(walk, prefix, others)
    }
    if more:
        looked[[at for at, queue in zip(rest, others, strict=True) if queue in more]] = True
    return np.flatnonzero(looked)


def _judged(
    seen: Histories, rules: _Rules, topic: Ints, policy: RetentionPolicy, moment: Moment, given: Ints
) -> Judged:
    """What holds for their generations. ``topic``: of each of their queues, its number in the page."""
    of = topic[seen.queue]
    cutoff_ms = _cutoffs(seen, of, rules, moment.now_ms - policy.min_age_ms)
    return Judged(rules.aged_ms[of], cutoff_ms[of], rules.covered[:, of], given)


def _trims(
    seen: Histories, rules: _Rules, topic: Ints, policy: RetentionPolicy, moment: Moment, judged: Judged
) -> Trims:
    """What goes of these."""
    rows, at = cut(seen, judged, policy.holds, moment.aged_seq)
    rows["reason"] = np.where(rows["newest_ms"] < judged.aged_ms[at], _AGE, _SIZE)
    rows["reason"][rules.expired[topic[seen.queue][at]]] = _DELETED
    queues = [seen.queues[number] for number in seen.queue[at].tolist()]
    return Trims(queues, rows, [hold.name for hold in policy.holds])


def _ahead(seen: Histories, judged: Judged, moment: Moment) -> int:
    """How many of these queues keep what is old enough to go, since a message before it or beside it was stored at a time that
    is yet to come: a broker's clock was wrong."""
    old = seen.items["min_store_time"] < judged.cutoff_ms[seen.row]
    ahead = old & (seen.newest > moment.now_ms + MOST_APART_MS)
    return len(np.unique(seen.queue[seen.row[ahead]]))


def _cutoffs(seen: Histories, of: Ints, rules: _Rules, youngest_ms: int) -> Ints:
    """Of each topic what is older may go, by age or size: the time that at least as many bytes as it keeps are at or above, as
    late as it can be; the least age bounds both. ``of``: the topic of each generation."""
    topic = of[seen.row]
    some = np.flatnonzero(rules.keep_bytes[topic] >= 0)
    found = np.full(len(rules.aged_ms), _NEVER, np.int64)
    if len(some):
        order = some[np.lexsort((seen.newest[some], topic[some]))[::-1]]  # of a topic, the newest first
        topics, kept = topic[order], np.cumsum(seen.sizes[order])
        first = np.flatnonzero(np.diff(topics, prepend=-1))
        before = np.repeat(kept[first] - seen.sizes[order][first], np.diff(np.append(first, len(order))))
        enough = np.flatnonzero(kept - before >= rules.keep_bytes[topics])
        done, at = np.unique(topics[enough], return_index=True)
        found[done] = np.minimum(seen.newest[order[enough[at]]], youngest_ms)
    return np.maximum(rules.aged_ms, found)
