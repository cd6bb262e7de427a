"""Merging in one thread: the task, its turns taken at once, over the daemon of ``assemble``; and what it must not change."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tests.kit.assemble import Assembly
from tests.kit.fetchscene import SETTLED_SECONDS, Scene
from tests.kit.pipeline import INNER_BATCH, PREPARED
from tiered.archive.log.flush import Proven, Unsettled
from tiered.archive.log.maintenance import Done, OwnKeys
from tiered.archive.read.flatfile import RunReader
from tiered.archive.rewrite.merge import Merge, MergeOptions
from tiered.archive.rewrite.mergeplan import Bounds
from tiered.archive.rewrite.plan import KnownObjects, LeftOut, none_damaged
from tiered.archive.rewrite.writing import Layout
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.model import MessageQueue, ObjectRef
from tiered.settings import MIB

QUEUES = [MessageQueue(topic, queue_id) for topic in ("Orders", "Payments") for queue_id in (0, 1)]


@dataclass
class AtOnceTurn:
    """A turn that never waits. ``before`` runs before a flush is offered; ``spent`` is what was told of bytes."""

    daemon: Assembly
    before: Callable[[], None] = lambda: None
    spent: list[int] = field(default_factory=list)

    def commit(self, flush: Unsettled) -> Proven | None:
        self.before()
        self.daemon.commit_all()
        offered = self.daemon.line.offer(flush, 0)
        assert offered is not None
        self.daemon.commit_all()
        return offered.result(0)

    def spend(self, byte_count: int) -> None:
        self.spent.append(byte_count)


def merging(
    daemon: Assembly,
    *,
    block_bytes: int = 4096,
    job_bytes: int = 64 * MIB,
    job_runs: int = 100_000,
    growth: int = 2,
    waiting_runs: int = 500_000,
    **options: Any,
) -> Merge:
    """The task, with bounds that fit a small archive."""
    layout = Layout(block_bytes, 1, options.pop("window_bytes", 1 << 16), options.pop("dictionary_bytes", 0))
    bounds = Bounds(block_bytes, options.pop("settled_bytes", block_bytes), growth, job_bytes, job_runs)
    return Merge(
        daemon.log,
        daemon.clock,
        MergeOptions(600.0, waiting_runs, bounds, layout),
        options.pop("own_keys", OwnKeys()),
        damaged=options.pop("damaged", none_damaged),
    )


def merge_all(daemon: Assembly, turn: AtOnceTurn | None = None, **options: Any) -> list[Done]:
    """Turns until nothing is left; what each did."""
    task = merging(daemon, **options)
    found = []
    while True:
        done = task.run_once(turn or AtOnceTurn(daemon))
        found.append(done)
        if not done.more:
            return found
        assert len(found) < 1000, "merging comes to an end"


def archiving_beside_plans(made: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on something is archived whenever a plan has looked at the objects, and not at the runs yet."""
    known = KnownObjects.of

    def of(state: ArchiveState, left_out: LeftOut, before: KnownObjects | None = None) -> KnownObjects:
        found = known(state, left_out, before)
        spread(made, 1)
        return found

    monkeypatch.setattr(KnownObjects, "of", staticmethod(of))


def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[ObjectRef]:
    """Objects that plans take out of the fold from now on, each as often as it is taken."""
    taken, objects = list[ObjectRef](), ArchiveState.objects

    def told(self: ArchiveState, behind: ObjectRef | None = None) -> Iterator[ObjectState]:
        for item in objects(self, behind):
            taken.append(item.ref)
            yield item

    monkeypatch.setattr(ArchiveState, "objects", told)
    return taken


def spread(made: Scene, flushes: int, seed: int = 1, most: int = 30) -> None:
    """Flushes of some messages in several queues: plain ones, with tags and keys or without; inner batches; half messages."""
    chance = random.Random(seed)
    for _ in range(flushes):
        for _ in range(chance.randint(1, most)):
            queue, number = chance.choice(QUEUES), len(made.broker.sent)
            tags = {} if number % 5 == 0 else {"TAGS": f"tag-{number % 3}"}
            keys = (
                {} if number % 3 == 0 else {"KEYS": f"k{number % 7} only-{number}", "UNIQ_KEY": f"u{number}"}
            )
            body, properties = b"%d " % chance.getrandbits(64) * 12, {**tags, **keys}
            flags = 0
            if queue.topic == "Payments" and number % 4 == 0:
                flags, properties = INNER_BATCH, {**properties, "INNER_NUM": str(2 + number % 3)}
            elif number % 11 == 0:
                flags = PREPARED
            made.broker.send(queue.topic, queue.queue_id, body, sys_flag=flags, properties=properties)
        made.daemon.settle(SETTLED_SECONDS)


def closed_rows(made: Scene) -> dict[tuple[object, ...], list[tuple[int, bytes]]]:
    """Offsets and records of closed parts, by queue, generation and closing commit."""
    reader, found = RunReader(made.state, made.objects()), {}
    for part in made.state.closed_parts():
        for stretch in reader.stretches(part, part.start, part.end):
            rows = found.setdefault((part.queue, part.generation, part.closed_by), [])
            rows += [(int(o), bytes(stretch.record(i))) for i, o in enumerate(stretch.queue_offsets)]
    return found


def commits_of_rows(made: Scene) -> dict[tuple[MessageQueue, int], list[int]]:
    """The commit that each live row came with, in order, by queue and generation."""
    objects, found = made.objects(), {}
    for run in made.state.runs_all():
        item = made.state.object(run.object)
        assert item is not None
        own = [run.id.commit_seq] * run.rows
        if item.level:
            own = objects.columns(item, ("commit_seq",), run.first_row, run.rows)["commit_seq"].tolist()
        offsets = np.concatenate([rows for rows, _ in RunReader(made.state, objects).times(run)])
        live = (offsets >= run.start) & (offsets < run.end)
        found.setdefault((run.queue, run.generation), []).extend(np.array(own)[live].tolist())
    return found
