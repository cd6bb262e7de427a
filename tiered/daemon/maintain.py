"""``tiered maintain``: work in the background done at once, by a process that opens an epoch of its own for it."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from tiered.archive.checkpoint.store import checkpoint_keys
from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.beat import beat_seconds
from tiered.archive.log.line import CommitLine
from tiered.archive.log.localfiles import (
    check_fence,
    ensure_directory,
    forget_fence,
    record_distrust,
    record_fence,
)
from tiered.archive.log.maintenance import Done, Outlook, OwnKeys, Stopped, Task
from tiered.archive.log.reader import LogReader
from tiered.archive.log.resending import Resending
from tiered.archive.log.writer import MAINTAINER, ZERO_ID, CommitLog
from tiered.archive.read.find import find_identity
from tiered.archive.rewrite.collection import Collection
from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.daemon.beating import Beating
from tiered.daemon.checkpointer import Checkpointer
from tiered.daemon.lock import StateLock
from tiered.daemon.maintenance import LineTurn, TaskMaker, tasks_of
from tiered.daemon.observer import Observer
from tiered.daemon.outages import Outages
from tiered.daemon.parts import Parts, open_parts
from tiered.daemon.saving import Saving
from tiered.daemon.status import ProcessTotals
from tiered.errors import Fenced, Refused, TieredError
from tiered.metadata.memory import MemoryStore
from tiered.metrics import Metrics
from tiered.opening.claim import Claimant
from tiered.provider.open import open_provider
from tiered.settings import Settings

log = logging.getLogger("tiered.daemon")

MOST_ROUNDS = 16
"""What one task does is work for others, seldom for more than one round; what is left after so many waits for the next run."""


@dataclass(slots=True)
class TaskReport:
    """What was to be done for a task, and what was. ``complete``: a look after all turns found nothing to do; ``left``: what it
    found otherwise. ``error``: the task ended in one, which keeps no other task from its work."""

    name: str
    outlook: Outlook
    turns: int = 0
    complete: bool = False
    figures: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    left: str | None = None
    error: TieredError | None = None

    @classmethod
    def of(cls, task: Task) -> TaskReport:
        """What a task would do, or why it cannot say so."""
        try:
            found = task.plan()
        except TieredError as error:
            return cls(task.name, Outlook(0, f"cannot be done: {error}"), error=error)
        return cls(task.name, found)

    def add(self, done: Done) -> None:
        """Another turn."""
        self.turns += 1
        self.figures.update({what: n for what, n in done.figures.items() if isinstance(n, int)})
        self.tell(done.trouble)

    def tell(self, trouble: str | None) -> None:
        """Note once what could not be done."""
        if trouble is not None and trouble not in self.troubles:
            self.troubles.append(trouble)


@dataclass(slots=True)
class _Work:
    """A task, and what is known of it. ``seen``: what the last look found."""

    task: Task
    report: TaskReport
    seen: Outlook

    def look(self) -> bool:
        """Look anew; whether another round makes sense: there is something to do, and not the same as before."""
        report, before = self.report, self.seen
        if report.error is not None:
            return False
        try:
            self.seen = found = self.task.plan()
        except TieredError as error:
            report.error = error
            return False
        report.tell(found.trouble)
        report.complete, report.left = not found.jobs, found.said if found.jobs else None
        return not report.complete and found != before


def outlooks(settings: Settings, clock: Clock, make_tasks: TaskMaker | None = None) -> list[TaskReport]:
    """What there is to do, of the archive as it is now: nothing is written, no lock is taken, a daemon may run."""
    provider = encrypted(open_provider(settings.archive.url, settings.store, clock), settings.encryption)
    try:
        keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
        reader = LogReader(provider, keys, find_identity(provider, keys))
        give_up, metrics = threading.Event(), Metrics()
        observer = Observer(metrics, log, clock, ProcessTotals())
        seen = CommitLog(
            reader, MemoryStore(), Resending(clock, Backoff(), give_up, observer),
            writer_id=ZERO_ID, random_bytes=os.urandom,
        )  # fmt: skip
        reader.fold(seen.store)
        tasks = _tasks(make_tasks, seen, clock, settings, OwnKeys(), (), lambda: False)
        reports = list(map(TaskReport.of, tasks))
        for report in reports:
            report.tell(report.outlook.trouble)
        return reports
    finally:
        provider.close()


def maintain(
    settings: Settings,
    clock: Clock,
    stop: threading.Event,
    *,
    take_over: bool,
    progress: Callable[[int], None] = lambda turns: None,
    make_tasks: TaskMaker | None = None,
) -> list[TaskReport]:
    """Do all that there is to do, or as much as there is time for until ``stop``. An archive with nothing to do is not written
    to. ``Refused`` where a daemon works on this state directory; ``progress`` hears how many turns were taken. What one task
    cannot do, or leaves, stands in its report."""
    state = Path(settings.state_directory)
    ensure_directory(state, "state.directory")
    with ExitStack() as stack:
        stack.enter_context(_lock(state))
        check_fence(state, take_over=take_over)
        metrics, give_up = Metrics(), threading.Event()
        outages = Outages(clock, settings.watchdog.unavailable_ms / 1000)
        observer = Observer(metrics, log, clock, ProcessTotals(), outages=outages)
        parts = open_parts(stack, settings, clock, observer, metrics, state, give_up, outages, create=False)
        own_keys = OwnKeys()
        save = _saver(parts, observer, own_keys)
        tasks = _tasks(make_tasks, parts.log, clock, settings, own_keys, parts.weak, save)
        reports = list(map(TaskReport.of, tasks))
        if not any(report.outlook.jobs for report in reports):
            for report in reports:
                report.complete = report.error is None
                report.tell(report.outlook.trouble)
            return reports
        try:
            _claim(parts, observer, stop, take_over=take_over)
            forget_fence(state)
            with Beating(parts.log, clock, beat_seconds(settings.archive.takeover_wait_ms)) as beating:
                _run(stack, parts, observer, stop, list(zip(tasks, reports, strict=True)), progress)
                beating.end()
        except Fenced as error:
            record_fence(state, error.said)
            raise
        return reports


def _tasks(
    make_tasks: TaskMaker | None,
    commit_log: CommitLog,
    clock: Clock,
    settings: Settings,
    own_keys: OwnKeys,
    weak: Sequence[str],
    save: Callable[[], bool],
) -> tuple[Task, ...]:
    """Those that are asked for; else all, with the floor moved before collection looks what lies below it."""
    if make_tasks is not None:
        return make_tasks(commit_log, clock, settings, own_keys, weak)
    tasks = tasks_of(commit_log, clock, settings, own_keys, weak)
    at = next(n for n, task in enumerate(tasks) if isinstance(task, Collection))
    return (*tasks[:at], Saving(commit_log, clock, settings, own_keys, weak, save), *tasks[at:])


def _saver(parts: Parts, observer: Observer, own_keys: OwnKeys) -> Callable[[], bool]:
    """What makes a checkpoint at once. To be called before the epoch is opened."""
    reader, settings = parts.log.reader, parts.settings
    checkpointer = Checkpointer(
        parts.log, replace(settings.archive, checkpoint_commits=1), parts.clock, os.urandom,
        shadow=parts.shadow, events=observer, own_keys=own_keys,
        lender=next(checkpoint_keys(reader.provider, reader.keys), None),
        distrust=lambda: record_distrust(Path(settings.state_directory)),
    )  # fmt: skip

    def save() -> bool:
        checkpointer.count()
        return checkpointer.step()

    return save


def _lock(state: Path) -> StateLock:
    lock = StateLock(state)
    try:
        lock.acquire()
    except Refused as error:
        raise Refused(
            "a daemon, or another command like this one, works on this state directory", **error.fields,
            hint="a daemon does this by itself: tiered status shows what it did, maintenance.* say when; a command is over"
            " soon; --dry-run only looks",
        ) from error  # fmt: skip
    return lock


def _claim(parts: Parts, observer: Observer, stop: threading.Event, *, take_over: bool) -> None:
    """Open an epoch in the lineage that there is: nothing is archived, so nothing is compared with a broker."""
    head = parts.log.tip
    assert head is not None  # there was something to do
    waiting = parts.settings.archive.takeover_wait_ms
    forgets = parts.settings.retain.forgets_queues
    Claimant(
        parts.log, waiting, take_over, stop.is_set, observer, forgets_queues=forgets, role=MAINTAINER, stands_by=False
    ).claim(head.lineage)  # fmt: skip


def _run(
    stack: ExitStack,
    parts: Parts,
    observer: Observer,
    stop: threading.Event,
    tasks: list[tuple[Task, TaskReport]],
    progress: Callable[[int], None],
) -> None:
    """Rounds of all tasks, one after the other, through a line that this thread steps, until a look at all of them finds
    nothing, or nothing but what a round did not change."""
    dispatch = parts.settings.dispatch
    pool = ThreadPoolExecutor(1, thread_name_prefix="upload")
    stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    line = CommitLine(
        parts.log, pool, depth=dispatch.pipeline_flushes, release=lambda up_to: None, events=observer
    )
    turn = LineTurn(line, parts.clock, parts.settings, stop.is_set, step=line.step)
    everything = [_Work(task, report, report.outlook) for task, report in tasks]
    waiting = everything
    try:
        for _ in range(MOST_ROUNDS):
            for work in waiting:
                _round(work, line, turn, lambda: progress(sum(each.report.turns for each in everything)))
            waiting = [work for work in everything if work.look()]
            if not waiting:
                return
    except Stopped:
        log.info("stopped; what is left is done by the next run")
        for work in everything:
            work.report.complete = False  # nobody looked since
        return
    for work in waiting:
        work.report.tell(
            f"after {MOST_ROUNDS} rounds there is more to do, for another run: {work.report.left}"
        )


def _round(work: _Work, line: CommitLine, turn: LineTurn, told: Callable[[], None]) -> None:
    """Turns of a task until it has no more to do at once."""
    report, more = work.report, True
    while more and report.error is None:
        try:
            done = work.task.run_once(turn)
        except TieredError as error:
            _ = line.room  # its end is everybody's
            report.error = error
            break
        report.add(done)
        told()
        more = done.more
