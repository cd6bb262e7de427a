"""Work in the background, one task at a time, behind archiving: which tasks there are, their turns, and the daemon's loop.

Turns begin in quiet moments of the line. Where there are none, and where other tasks always go before, nothing waits for ever:
what has waited for ``maintenance.max_wait_ms`` goes before all other tasks, and beside a busy line for a tenth of the time, or
more where a turn was so long that the others would wait too long for its rest.

Whatever goes wrong in a task is counted, shown and tried again with growing pauses; nothing of it reaches what archives.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from pathlib import Path

from tiered.archive.care.commitlog import LocalLog, LocalRecords
from tiered.archive.care.mend import Mend
from tiered.archive.care.notes import Notebook
from tiered.archive.care.quarantine import Quarantine
from tiered.archive.encryption.provider import encrypted
from tiered.archive.log.flush import Proven, Unsettled
from tiered.archive.log.line import CommitLine
from tiered.archive.log.maintenance import Done, OwnKeys, Stopped, Task
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.aliascare import AliasCare
from tiered.archive.rewrite.collection import Collection
from tiered.archive.rewrite.forgetting import Forget
from tiered.archive.rewrite.merge import Merge, MergeOptions
from tiered.archive.rewrite.retention import Retention
from tiered.archive.rewrite.seal import Sealing, SealOptions
from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.daemon.brokertopics import BrokersTopics
from tiered.daemon.taskrecord import TaskRecord
from tiered.errors import TieredError
from tiered.metrics import Metrics
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.provider.wrap import TokenBucket
from tiered.service import AGAIN, DONE, Next, Service, pause
from tiered.settings import Retain, Settings
from tiered.sink.required import required_sinks
from tiered.table.keeping import Tabling

log = logging.getLogger("tiered.daemon")

LOOK_SECONDS = 1.0
OFFER_SECONDS = 0.5
MOST_WAIT_SECONDS = 300.0
"""Pause before a task that keeps failing is tried again."""
REST_FACTOR = 9.0
"""Nothing begins beside a busy line for so many times as long as the last turn there worked."""
REST_WAITS = 4.0
"""Nor is that longer than so many times ``maintenance.max_wait_ms``: one turn that a slow machine or a store that was away made
long would silence all others for hours."""
LATE_WAITS = 5.0
"""A task that has waited so many times ``maintenance.max_wait_ms`` is told: it should have come to its turn."""
LONG_TURN_SECONDS = 3600.0
"""A turn that takes longer is told, whatever it waits for."""


TaskMaker = Callable[[CommitLog, Clock, Settings, OwnKeys, Sequence[str]], tuple[Task, ...]]


def tasks_of(
    commit_log: CommitLog,
    clock: Clock,
    settings: Settings,
    own_keys: OwnKeys,
    weak: Sequence[str] = (),
    *,
    retain: Callable[[], Retain] | None = None,
    archives: bool = False,
    notebook: Notebook | None = None,
    local: LocalLog | None = None,
) -> tuple[Task, ...]:
    """All tasks that change an archive, in the order in which their turns come. ``weak``: promises that the store was seen to
    break; ``retain``: that section, where it may change; ``archives``: this process archives beside the broker; ``notebook``:
    of the scrub, whose findings are left alone, where it is not to be read anew; ``local``: the broker's log, compared with
    the archive."""
    reader, archive_id = commit_log.reader, commit_log.reader.identity.archive_id
    required = required_sinks(reader.provider, reader.keys, archive_id)
    broker = BrokersTopics(settings, archive_id, notes=archives)
    notes = notebook or Notebook(state_of(settings), archive_id)
    damaged = Quarantine(notes)
    seal, kept = SealOptions.of(settings), retain or (lambda: settings.retain)
    if archives and settings.seal.enabled and seal.off:
        log.warning("days are not sealed", extra={"why": seal.off})
    off = settings.gc.off(collected=reader.identity.collected)
    if archives and off and settings.gc.enabled != "false":
        log.warning("what nothing refers to is not deleted", extra={"why": off})
    return (
        Merge(commit_log, clock, MergeOptions.of(settings), own_keys, damaged=damaged.objects),
        Sealing(commit_log, clock, seal, own_keys, damaged=damaged.objects),
        Retention(commit_log, clock, kept, broker, required=required),
        AliasCare(commit_log, clock, settings.maintenance.merge_interval_ms / 1000),
        Collection(commit_log, clock, settings.gc, own_keys, weak, damaged=damaged.paths),
        Forget(commit_log, clock, kept, settings.gc.grace_ms, broker, opens_epoch=not archives),
        Tabling(commit_log, clock, settings),
        mending(commit_log, clock, settings, own_keys, notes, local),
    )  # fmt: skip


def mending(
    commit_log: CommitLog,
    clock: Clock,
    settings: Settings,
    own_keys: OwnKeys,
    notebook: Notebook,
    local: LocalLog | None = None,
) -> Mend:
    """The task that mends what ``notebook`` lists: from the copy that ``scrub.copy_url`` names, from the broker's ``local``
    log, or from what objects were made of."""

    def copy() -> Provider:
        return encrypted(open_provider(settings.scrub.copy_url, settings.store, clock), settings.encryption)

    records = None if local is None else LocalRecords(local, settings.source.max_record_bytes)
    return Mend(
        commit_log, clock, MergeOptions.of(settings), own_keys, notebook,
        copy if settings.scrub.copy_url else None, local=records,
    )  # fmt: skip


def state_of(settings: Settings) -> Path | None:
    """Where the state lies; ``None`` if no setting says so."""
    return Path(settings.state_directory) if settings.state_directory else None


class LineTurn:
    """A turn beside a line that somebody else steps, or ``step`` does. ``stopping``: the process ends."""

    def __init__(
        self,
        line: CommitLine,
        clock: Clock,
        settings: Settings,
        stopping: Callable[[], bool],
        *,
        touch: Callable[[], None] = lambda: None,
        step: Callable[[float], object] | None = None,
    ) -> None:
        self._line = line
        self._clock = clock
        rate = settings.maintenance.max_bytes_per_second
        self._bytes = TokenBucket(rate, clock) if rate else None
        self._stopping = stopping
        self._touch = touch
        self._step = step
        self.patient_until = math.inf
        """When it no longer waits for a quiet moment of the line to commit in."""
        self.waited_seconds = 0.0
        """How long all turns together waited, for the line or as the bound of bytes asks for: nobody was kept from anything."""

    def commit(self, flush: Unsettled) -> Proven | None:
        """See ``Turn``."""
        began = self._clock.monotonic()
        try:
            return self._commit(flush)
        finally:
            self.waited_seconds += self._clock.monotonic() - began

    def _commit(self, flush: Unsettled) -> Proven | None:
        offered: Future[Proven | None] | None = None
        overdue = False
        while offered is None:
            self._go_on()
            offered = self._line.offer(flush, OFFER_SECONDS, overdue=overdue)
            overdue = self._clock.monotonic() >= self.patient_until
        while not offered.done():
            self._go_on()
            if self._step is not None:
                self._step(OFFER_SECONDS)
            else:
                self._wait_for(offered)
        return offered.result()

    def spend(self, byte_count: int) -> None:
        """See ``Turn``."""
        self._go_on()
        left = 0.0 if self._bytes is None or not byte_count else self._bytes.take(byte_count)
        until = self._clock.monotonic() + left
        self.waited_seconds += left
        while (left := until - self._clock.monotonic()) > 0:
            self._clock.wait(min(OFFER_SECONDS, left))
            self._go_on()

    def _wait_for(self, offered: Future[Proven | None]) -> None:
        done = threading.Event()
        offered.add_done_callback(lambda _: done.set())
        self._clock.wait(OFFER_SECONDS, done)

    def _go_on(self) -> None:
        """Somebody waits here, and knows for what."""
        self._touch()
        if self._stopping():
            raise Stopped


class MaintenanceLoop:
    """The daemon's loop over its tasks, in a thread that no watchdog ends; ``status`` and ``problem`` from any thread."""

    def __init__(
        self,
        tasks: Sequence[Task],
        line: CommitLine,
        clock: Clock,
        settings: Settings,
        metrics: Metrics,
        stopping: Callable[[], bool],
        *,
        failed: Callable[[TieredError], None] = lambda error: None,
    ) -> None:
        """``failed`` hears of every error that a turn ends in."""
        self._tasks = tuple(tasks)
        self._heard = failed
        self._line = line
        self._clock = clock
        self._metrics = metrics
        self._stuck_seconds = settings.watchdog.stuck_ms / 1000
        self._wait_seconds = settings.maintenance.max_wait_ms / 1000
        self.service = Service("maintenance", self.step, clock, metrics=metrics)
        self._turn = LineTurn(line, clock, settings, stopping, touch=self.service.touch)
        self._stopping = stopping
        now = clock.monotonic()
        self._records = {task.name: TaskRecord(task.name, now, now) for task in tasks}
        self._rest_until = now
        self._backoff = Backoff(LOOK_SECONDS, MOST_WAIT_SECONDS)
        for record in self._records.values():
            self._show_ages(record)

    def start(self, stack: ExitStack) -> None:
        """Start the loop; ``stack`` ends it."""
        self.service.start()
        stack.callback(self.service.join, 2.0)
        stack.callback(self.service.stop)

    def step(self) -> Next:
        """One turn of a task that is due, in a quiet moment of the line, or when it has waited for long enough."""
        if self._stopping():
            return DONE
        now = self._clock.monotonic()
        task = self._next(now)
        if task is None:
            return pause(LOOK_SECONDS)
        record, quiet = self._records[task.name], self._line.quiet
        if not quiet and not self._may_go_beside(record, now):
            return pause(LOOK_SECONDS)
        self._turn.patient_until = now + self._wait_seconds if quiet else now
        waited = self._turn.waited_seconds
        record.begin(now)
        try:
            done = task.run_once(self._turn)
        except Stopped:
            return DONE
        except TieredError as error:
            with suppress(TieredError):  # a store that is away is away here, too
                self._heard(error)
            return self._failed(record, error)
        except Exception as error:
            log.exception("maintenance met a bug; archiving goes on", extra={"task": task.name})
            return self._failed(record, error)
        finally:
            now = self._clock.monotonic()
            seconds = record.end(now)
            if not quiet:
                worked = seconds - (self._turn.waited_seconds - waited)
                self._rest_until = now + min(REST_FACTOR * worked, REST_WAITS * self._wait_seconds)
        self._count(record, done, seconds)
        return AGAIN if done.more else pause(LOOK_SECONDS)

    def status(self) -> Mapping[str, object]:
        """The part of ``/status`` that speaks of work in the background."""
        now = self._clock.monotonic()
        return {
            "busy_seconds": round(self.service.busy_seconds(), 1),
            "problem": self.problem(),
            "tasks": {name: record.document(now) for name, record in self._records.items()},
        }

    def problem(self) -> str | None:
        """What keeps it from its work; ``None`` while all is well. Touches no lock of the workers."""
        return self.standstill() or next((r.problem for r in self._records.values() if r.problem), None)

    def standstill(self) -> str | None:
        """Why it does not move at all, or one of its tasks does not, if that is so."""
        busy, now = self.service.busy_seconds(), self._clock.monotonic()
        if busy >= self._stuck_seconds:
            return f"a turn of maintenance has not come back for {busy:.0f} s"
        if self.service.error is not None:
            return f"maintenance ended: {self.service.error}"
        at_work = max(self._records.values(), key=lambda r: r.turn_seconds(now), default=None)
        turn_seconds = 0.0 if at_work is None else at_work.turn_seconds(now)
        if at_work is not None and turn_seconds >= LONG_TURN_SECONDS:
            return f"a turn of {at_work.name} has been under way for {turn_seconds:.0f} s"
        late = max(self._records.values(), key=lambda r: r.waiting_seconds(now), default=None)
        if late is None or late.waiting_seconds(now) - turn_seconds < LATE_WAITS * self._wait_seconds:
            return None
        return (
            f"{late.name} has been due for {late.waiting_seconds(now):.0f} s without a turn:"
            " archiving leaves it no quiet moment, nor do other tasks"
        )

    def _next(self, now: float) -> Task | None:
        """The first task that is due; before it, what has waited for too long, the longest first."""
        for task in self._tasks:
            self._records[task.name].look(task.due(now), now)
        ready = [task for task in self._tasks if self._records[task.name].ready(now)]
        return max(ready, key=lambda task: self._overdue_seconds(task, now), default=None)

    def _overdue_seconds(self, task: Task, now: float) -> float:
        """How much longer it has waited than it should; 0 for all that did not."""
        return max(0.0, self._records[task.name].waiting_seconds(now) - self._wait_seconds)

    def _may_go_beside(self, record: TaskRecord, now: float) -> bool:
        """Whether a turn may begin although archiving is busy."""
        return now >= self._rest_until and record.waiting_seconds(now) >= self._wait_seconds

    def _show_ages(self, record: TaskRecord) -> None:
        """Ages are made when they are asked for: nothing that stands still can keep them from growing."""
        metrics, now = self._metrics, self._clock.monotonic
        metrics.maintenance_waiting.labels(record.name).set_function(lambda: record.waiting_seconds(now()))
        metrics.maintenance_turn_age.labels(record.name).set_function(lambda: now() - record.turned)
        metrics.maintenance_success_age.labels(record.name).set_function(lambda: now() - record.rounded)

    def _count(self, record: TaskRecord, done: Done, seconds: float) -> None:
        """One turn came to its end."""
        name = record.name
        record.failures = 0
        figures = {what: n for what, n in done.figures.items() if isinstance(n, int)}
        record.done.update(figures)
        self._metrics.maintenance_turns.labels(name).inc()
        self._metrics.maintenance_seconds.labels(name).inc(seconds)
        for what, n in figures.items():
            self._metrics.maintenance_done.labels(name, what).inc(n)
        record.left = {**record.left, **done.left}
        for what, n in done.left.items():
            self._metrics.maintenance_left.labels(name, what).set(n)
        if done.figures:
            log.info("maintenance", extra={"task": name, **done.figures})
        if done.trouble is not None:
            record.trouble = done.trouble
            self._tell(record, done.trouble)
        if not done.more and record.complete(record.turned):
            log.info("maintenance works again", extra={"task": name})
            self._metrics.maintenance_problem.labels(name).set(0)

    def _failed(self, record: TaskRecord, error: Exception) -> Next:
        """One turn ended in an error; the next one waits. The end of the line is everybody's, and raised."""
        _ = self._line.room
        record.failures += 1
        record.not_before = self._clock.monotonic() + self._backoff.seconds(record.failures)
        self._metrics.service_errors.labels("maintenance", type(error).__name__).inc()
        self._tell(record, str(error) or type(error).__name__)
        return pause(LOOK_SECONDS)

    def _tell(self, record: TaskRecord, what: str) -> None:
        if record.problem != what:
            log.warning(
                "maintenance cannot do its work now; archiving goes on",
                extra={"task": record.name, "error": what},
            )
        record.problem = what
        self._metrics.maintenance_problem.labels(record.name).set(1)
