"""A sink whose history others give, beside a writer in one thread: the job's work done by hand, part by part."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.kit.assemble import KEYS
from tests.kit.sinkrunning import ARCHIVE, KindScene
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.state.listing import list_queues
from tiered.archive.state.offsetmap import OffsetMap
from tiered.archive.state.sinkmaps import sink_maps
from tiered.archive.state.sinks import sink, sink_queues
from tiered.errors import Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.sink.backfill import BackfillBook, BackfillPlan, QueueRange
from tiered.sink.base import Sink
from tiered.sink.book import SinkBackfill, SinkBook, StoredSink
from tiered.sink.giving import PartPace, give_part, open_part
from tiered.sink.held import HeldSink
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase


class Backfilled:
    """A scene whose sink has a history to be given. Queues have a part each."""

    def __init__(self, directory: Path, order: SinkOrder) -> None:
        self.id = os.urandom(16)
        self.scene = KindScene(directory, order)
        self.book = BackfillBook(self.scene.provider, KEYS, ARCHIVE)
        self.place = self.scene.stored.place(ARCHIVE, "DefaultCluster", "broker-a", 1)
        self.hold()

    def hold(self) -> None:
        """Let the sink's runner, which a restart makes anew, know of backfills."""
        runner = self.scene.runner
        runner._held = HeldSink(self.book, self.scene.clock, runner.progress)

    def put(self, count: int) -> None:
        """Messages of two topics, archived six at a time."""
        for number in range(count):
            self.scene.put(topic="Bills" if number % 3 == 0 else "Orders")
            if number % 6 == 5 or number == count - 1:
                self.scene.archive()

    def ask(self) -> None:
        """The backfill is asked for, and the archive knows where the sink waits."""
        self.scene.change(backfill=SinkBackfill(self.id, self.scene.stored.revision + 1))
        assert self.scene.run() is SinkPhase.BACKFILLING
        self.scene.commit()

    def plan(self, **changed: int) -> BackfillPlan:
        """Everything behind where the sink is. ``changed``: fields of the plan."""
        state = self.scene.daemon.log.frozen()
        known, head = sink(state.view, self.scene.stored.sink_id), state.head()
        assert known is not None
        assert head is not None
        had = dict(sink_queues(state.view, self.scene.stored.sink_id))
        ranges = [
            QueueRange(q.queue, had[q.queue].next if q.queue in had else 0, q.max_offset, q.generation or 0)
            for q in (listed.queue for listed in list_queues(state.view))
        ]
        total = sum(each.end - each.first for each in ranges)
        made = BackfillPlan(
            self.id, os.urandom(16), self.scene.stored.sink_id, len(ranges), total, head.seq, known.revision,
            known.looked, known.lineage, 1, 5,
        )  # fmt: skip
        return self.book.put_plan(replace(made, **changed), [[each] for each in ranges])

    def open(self, plan: BackfillPlan, number: int) -> Sink:
        """What an attempt at a part opens."""
        return open_part(self.scene.stored, plan, number, self.place)

    def give(
        self,
        plan: BackfillPlan,
        number: int,
        *,
        flush_bytes: int = 1,
        fail_after: int = 0,
        opened: Sink | None = None,
        view: View | None = None,
    ) -> None:
        """An attempt at a part; ``fail_after``: it ends before this flush, counted from 1. ``opened`` stays open. ``view``:
        that it reads; the newest."""
        calls = [0]

        def check() -> None:
            calls[0] += 1
            if calls[0] == fail_after:
                raise Unavailable("the task is killed")

        ranges, pace = self.book.ranges(plan, number), PartPace(flush_bytes, check)
        if opened is None:
            with closing(self.open(plan, number)) as made:
                done = give_part(number, view or self.scene.view, made, ranges, pace)
        else:
            done = give_part(number, view or self.scene.view, opened, ranges, pace)
        self.book.put_done(plan, done, 6)

    def planned_view(self, plan: BackfillPlan) -> View:
        """The archive as it was when it was planned."""
        reader = ArchiveReader(self.scene.provider, KEYS, MemoryStore(), table_cache_bytes=1 << 20)
        return reader.at(plan.commit)

    def orders(self) -> SinkBook:
        """The bucket's orders, with the sink's in force."""
        book = SinkBook(self.scene.provider, KEYS, ARCHIVE)
        book._put(os.urandom(16), self.scene.stored)
        return book

    def follow(self, stored: StoredSink) -> None:
        """An order that another put."""
        self.scene.stored = stored
        self.scene.runner.change(stored)

    def finish(self) -> SinkPhase:
        """The job says that everything is given; what the sink is at then."""
        backfill = self.scene.stored.backfill
        assert backfill is not None
        self.scene.change(backfill=replace(backfill, done=self.scene.stored.revision + 1))
        return self.scene.run()

    def maps(self) -> dict[MessageQueue, OffsetMap]:
        """Where the archive says that messages lie."""
        return dict(sink_maps(self.scene.daemon.log.frozen().view, self.scene.stored.sink_id))
