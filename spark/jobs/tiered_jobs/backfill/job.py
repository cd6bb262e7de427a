"""A sink's history, given by executors through the sink's own driver, where one process would take too long.

The daemon's sink waits meanwhile, and goes on where this ends. Each task gives whole queues, up to where the archive ended when
the job planned; a part that is done is written down in the bucket, so a job that was ended is run again and does what is left.
Of two jobs at once the later does, and the earlier ends. A task that Spark tries again goes on where it was; of http, rocketmq
and kafka with mode=idempotent it gives its part again. Needs a daemon that runs: it says where the sink is, before, and takes
it up, behind. tiered sink backfill --end gives it up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.state.listing import list_queues
from tiered.archive.state.sinks import SinkState, sink, sink_queues
from tiered.errors import Conflict, Invalid, Unavailable
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metadata.memory import MemoryStore
from tiered.sink.backfill import BackfillBook, BackfillPlan, QueueRange
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.comparison.verifying import taking
from tiered.sink.kinds import PartedKind, find_kind
from tiered.sink.reconciling import tells_apart
from tiered.text.values import size_bytes
from tiered_jobs.backfill.parts import PartTask, give, shared_out
from tiered_jobs.work import SharedFlags, Work, number_flag, whole_flag
from tiered_spark.snapshot import TABLE_CACHE_BYTES, shared_provider

if TYPE_CHECKING:
    from tiered_spark.snapshot import Snapshot

LOOK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Flags(SharedFlags):
    """Which sink, in how many parts, and how long the daemon is waited for."""

    sink: Annotated[str, typer.Option("--sink", metavar="NAME", help="What the sink is called.")]
    tasks: Annotated[int, whole_flag("--tasks", 1, 4096, "Parts of a new plan at most.")] = 200
    flush_bytes: Annotated[
        str, typer.Option("--flush-bytes", metavar="SIZE", help="Bytes at which a task flushes.")
    ] = "16MiB"
    wait_seconds: Annotated[
        float, number_flag("--wait-seconds", 1, 86_400, "How long the daemon is waited for.")
    ] = 300.0


def writes(work: Work) -> list[str]:
    """What a plan would be, by what the archive knows of the sink now."""
    _, stored, books = _found(work)
    view = books.archive.at()
    known = sink(view.state.view, stored.sink_id)
    ranges = books.ranges(view, known, stored)
    messages = sum(each.end - each.first for each in ranges)
    return [f"sink {stored.name}: {messages} messages of {len(ranges)} queues"]


def run(work: Work) -> None:
    """Ask for the backfill, wait until the sink waits, give everything, and say that it is given."""
    snapshot, stored, books = _found(work)
    flush_bytes = size_bytes("--flush-bytes", work.args.flush_bytes)
    _check_session(work)
    stored = books.asked(work, stored)
    assert stored.backfill is not None
    plan = books.planned(work, stored)
    before = books.backfills.done(plan)
    left = [number for number in range(plan.parts) if number not in before]
    work.say(f"{plan.messages} messages in {plan.parts} parts, {len(before)} of them done before")
    if left:
        at = books.backfills.begin_job(plan, os.urandom(16), work.clock.now_ms())
        tasks = [PartTask(snapshot.place, stored, plan, number, flush_bytes, at) for number in left]
        work.spark.sparkContext.parallelize(tasks, len(tasks)).map(give).collect()
    done = books.backfills.done(plan)
    books.sinks.change(stored.name, work.clock.now_ms(), os.urandom, backfilled=stored.backfill.backfill_id)
    work.out.record(
        {
            "sink": stored.name, "commit": plan.commit, "parts": plan.parts, "parts_done_before": len(before),
            "messages": sum(each.messages for each in done.values()), "planned": plan.messages,
            "missing": sum(each.lost for each in done.values()),
            "dead_letters": sum(each.dead_letters for each in done.values()),
            "left_out": sum(each.left_out for each in done.values()),
        },
        title="given",
    )  # fmt: skip


def _check_session(work: Work) -> None:
    """``Invalid`` where Spark would run a slow task twice at once: the two would take the destination from each other."""
    if work.spark.conf.get("spark.speculation", "false") == "true":
        raise Invalid(
            "tasks of a backfill must not run twice at once", setting="spark.speculation", found="true", expected="false",
            hint="--conf spark.speculation=false",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Books:
    sinks: SinkBook
    backfills: BackfillBook
    archive: ArchiveReader
    policy: TopicPolicy

    def asked(self, work: Work, stored: StoredSink) -> StoredSink:
        """The sink with a backfill that is under way."""
        if stored.under_way is not None:
            return stored
        known = sink(self.archive.at().state.view, stored.sink_id)
        if stored.given and (known is None or known.revision < stored.given):
            raise Conflict(
                "the backfill before this one is not taken up yet", sink=stored.name,
                hint="see tiered sink status; a daemon must run, and the sink not be paused",
            )  # fmt: skip
        return self.sinks.change(stored.name, work.clock.now_ms(), os.urandom, backfill_id=os.urandom(16))

    def planned(self, work: Work, stored: StoredSink) -> BackfillPlan:
        """The plan in force; made once the archive knows where the sink waits."""
        assert stored.backfill is not None
        plan = self.backfills.plan(stored.backfill.backfill_id)
        if plan is not None:
            return plan
        view, known = self._waiting(work, stored)
        head = view.head
        assert head is not None  # it knows the sink
        ranges = self.ranges(view, known, stored)
        parts = shared_out(ranges, work.args.tasks)
        made = BackfillPlan(
            stored.backfill.backfill_id, os.urandom(16), stored.sink_id, len(parts),
            sum(each.end - each.first for each in ranges), head.seq, known.revision, known.looked, known.lineage,
            head.epoch, work.clock.now_ms(),
        )  # fmt: skip
        return self.backfills.put_plan(made, parts)

    def ranges(self, view: View, known: SinkState | None, stored: StoredSink) -> list[QueueRange]:
        """What the archive has behind where the sink is."""
        takes: Callable[[str], bool] = taking(stored, self.policy)
        had = {} if known is None else dict(sink_queues(view.state.view, stored.sink_id))
        made = []
        for listed in list_queues(view.state.view):
            state = listed.queue
            if state.generation is None or not takes(state.queue.topic):
                continue
            there = had.get(state.queue)
            first = 0 if there is None else there.next
            if first < state.max_offset:
                made.append(QueueRange(state.queue, first, state.max_offset, state.generation))
        return made

    def _waiting(self, work: Work, stored: StoredSink) -> tuple[View, SinkState]:
        assert stored.backfill is not None
        until = work.clock.monotonic() + work.args.wait_seconds
        view = self.archive.at()
        while True:
            known = sink(view.state.view, stored.sink_id)
            heard = known is not None and known.revision >= stored.backfill.asked
            if known is not None and heard and not tells_apart(known, view.state):
                return view, known
            if work.clock.monotonic() > until:
                raise Unavailable(
                    "no daemon says where the sink is", sink=stored.name, waited=f"{work.args.wait_seconds:g} s",
                    hint="see that tiered run runs and the sink is neither paused nor stopped, and run the job again",
                )  # fmt: skip
            work.clock.wait(LOOK_SECONDS)
            view = self.archive.follow()


def _found(work: Work) -> tuple[Snapshot, StoredSink, _Books]:
    args = work.args
    if args.start is not None or args.end is not None or args.as_of_commit is not None or args.topics != "*":
        raise Invalid(
            "a sink is given all that it takes", flags="--from, --to, --as-of-commit, --topics",
            hint="leave them out; tiered sink topics narrows what a sink takes",
        )  # fmt: skip
    snapshot = work.snapshot_of_sink()
    place = snapshot.place
    provider, keys = shared_provider(place.url), ArchiveKeys(place.cluster, place.broker)
    books = _Books(
        SinkBook(provider, keys, place.archive_id),
        BackfillBook(provider, keys, place.archive_id),
        ArchiveReader(provider, keys, MemoryStore(), table_cache_bytes=TABLE_CACHE_BYTES),
        TopicPolicy(cluster=place.cluster, broker=place.broker),
    )
    stored = books.sinks.sink(args.sink)
    if stored.paused:
        raise Conflict("the sink is paused", sink=stored.name, hint="tiered sink resume")
    if stored.order.in_order:
        raise Invalid(
            "executors give queues side by side, and this sink keeps the order of the whole log", sink=stored.name,
            hint="the daemon backfills it by itself",
        )  # fmt: skip
    kind = find_kind(stored.order.kind)
    assert isinstance(kind, PartedKind)  # which all are, and say whether they can
    if not kind.check_parts(stored.order):
        work.say("at least once: a part that is tried again is given again")
    return snapshot, stored, books
