"""Work in the background, one task at a time, behind archiving: which tasks there are, their turns, and the daemon's loop.

Whatever goes wrong in a task is counted, shown and tried again with growing pauses; nothing of it reaches what archives.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

from tiered.archive.care.mend import Mend
from tiered.archive.care.notes import Notebook
from tiered.archive.care.quarantine import Quarantine
from tiered.archive.encryption.provider import encrypted
from tiered.archive.log.flush import Proven, Unsettled
from tiered.archive.log.line import CommitLine
from tiered.archive.log.maintenance import Done, OwnKeys, Stopped, Task
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.collection import Collection
from tiered.archive.rewrite.merge import Merge, MergeOptions
from tiered.archive.rewrite.proposals import Proposals
from tiered.archive.rewrite.retention import Retention
from tiered.archive.rewrite.seal import Sealing, SealOptions
from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.daemon.brokertopics import BrokersTopics
from tiered.errors import TieredError
from tiered.metrics import Metrics
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.provider.wrap import TokenBucket
from tiered.service import AGAIN, DONE, Next, Service, pause
from tiered.settings import Retain, Settings
from tiered.table.keeping import Tabling

log = logging.getLogger("tiered.daemon")

LOOK_SECONDS = 1.0
OFFER_SECONDS = 0.5
MOST_WAIT_SECONDS = 300.0
"""Pause before a task that keeps failing is tried again."""
LATE_SECONDS = 3600.0
"""A task that has been due for so long without coming to an end is told: the line may never be quiet."""


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
) -> tuple[Task, ...]:
    """All tasks that change an archive, in the order in which their turns come. ``weak``: promises that the store was seen to
    break; ``retain``: that section, where it may change; ``archives``: this process archives beside the broker; ``notebook``:
    of the scrub, whose findings are left alone, where it is not to be read anew."""
    archive_id = commit_log.reader.identity.archive_id
    broker = BrokersTopics(settings, archive_id, notes=archives)
    notes = notebook or Notebook(state_of(settings), archive_id)
    damaged = Quarantine(notes)
    seal = SealOptions.of(settings)
    if archives and settings.seal.enabled and seal.off:
        log.warning("days are not sealed", extra={"why": seal.off})
    mend = () if not settings.scrub.copy_url else (mending(commit_log, clock, settings, own_keys, notes),)
    return (
        Merge(commit_log, clock, MergeOptions.of(settings), own_keys, damaged=damaged.objects),
        Sealing(commit_log, clock, seal, own_keys, damaged=damaged.objects),
        Proposals(commit_log, clock, settings.seal.proposal_interval_ms, own_keys),
        Retention(commit_log, clock, retain or (lambda: settings.retain), broker),
        Collection(commit_log, clock, settings.gc, own_keys, weak, damaged=damaged.paths),
        Tabling(commit_log, clock, settings),
        *mend,
    )


def mending(
    commit_log: CommitLog, clock: Clock, settings: Settings, own_keys: OwnKeys, notebook: Notebook
) -> Mend:
    """The task that mends what ``notebook`` lists from the copy that ``scrub.copy_url`` names."""

    def copy() -> Provider:
        return encrypted(open_provider(settings.scrub.copy_url, settings.store, clock), settings.encryption)

    return Mend(commit_log, clock, MergeOptions.of(settings), own_keys, notebook, copy)


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

    def commit(self, flush: Unsettled) -> Proven | None:
        """See ``Turn``."""
        offered: Future[Proven | None] | None = None
        while offered is None:
            self._go_on()
            offered = self._line.offer(flush, OFFER_SECONDS)
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
    ) -> None:
        self._tasks = tuple(tasks)
        self._line = line
        self._clock = clock
        self._metrics = metrics
        self._stuck_seconds = settings.watchdog.stuck_ms / 1000
        self.service = Service("maintenance", self.step, clock, metrics=metrics)
        self._turn = LineTurn(line, clock, settings, stopping, touch=self.service.touch)
        self._stopping = stopping
        self._done = {task.name: Counter[str]() for task in tasks}
        self._problems: dict[str, str] = {}
        self._troubles: dict[str, str] = {}  # of the round under way
        self._due_since: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._failures = Counter[str]()
        self._backoff = Backoff(LOOK_SECONDS, MOST_WAIT_SECONDS)

    def start(self, stack: ExitStack) -> None:
        """Start the loop; ``stack`` ends it."""
        self.service.start()
        stack.callback(self.service.join, 2.0)
        stack.callback(self.service.stop)

    def step(self) -> Next:
        """One turn of the first task that is due, in a quiet moment of the line."""
        if self._stopping():
            return DONE
        now = self._clock.monotonic()
        for each in self._tasks:
            if each.due(now):
                self._due_since.setdefault(each.name, now)
            else:
                self._due_since.pop(each.name, None)
        task = next((t for t in self._tasks if self._ready(t.name, now)), None)
        if task is None or not self._line.quiet:
            return pause(LOOK_SECONDS)
        try:
            done = task.run_once(self._turn)
        except Stopped:
            return DONE
        except TieredError as error:
            return self._failed(task.name, error)
        except Exception as error:
            log.exception("maintenance met a bug; archiving goes on", extra={"task": task.name})
            return self._failed(task.name, error)
        self._count(task.name, done, now)
        return AGAIN if done.more else pause(LOOK_SECONDS)

    def status(self) -> Mapping[str, object]:
        """The part of ``/status`` that speaks of work in the background."""
        return {
            "busy_seconds": round(self.service.busy_seconds(), 1),
            "problem": self.problem(),
            "tasks": {
                name: {
                    "due": name in self._due_since,
                    "problem": self._problems.get(name),
                    "done": dict(done),
                }
                for name, done in list(self._done.items())
            },
        }

    def problem(self) -> str | None:
        """What keeps it from its work; ``None`` while all is well. Touches no lock of the workers."""
        return self.standstill() or next(iter(self._problems.values()), None)

    def standstill(self) -> str | None:
        """Why it does not move at all, if it does not."""
        busy = self.service.busy_seconds()
        if busy >= self._stuck_seconds:
            return f"a turn of maintenance has not come back for {busy:.0f} s"
        if self.service.error is not None:
            return f"maintenance ended: {self.service.error}"
        late = min(self._due_since.values(), default=self._clock.monotonic())
        if self._clock.monotonic() - late >= LATE_SECONDS:
            return f"maintenance has been due for {self._clock.monotonic() - late:.0f} s: archiving leaves it no quiet moment"
        return None

    def _ready(self, name: str, now: float) -> bool:
        return name in self._due_since and now >= self._not_before.get(name, now)

    def _count(self, name: str, done: Done, began: float) -> None:
        """One turn came to its end."""
        self._failures[name] = 0
        figures = {what: n for what, n in done.figures.items() if isinstance(n, int)}
        self._done[name].update(figures)
        self._metrics.maintenance_turns.labels(name).inc()
        self._metrics.maintenance_seconds.labels(name).inc(self._clock.monotonic() - began)
        for what, n in figures.items():
            self._metrics.maintenance_done.labels(name, what).inc(n)
        if done.figures:
            log.info("maintenance", extra={"task": name, **done.figures})
        if done.trouble is not None:
            self._troubles[name] = done.trouble
            self._tell(name, done.trouble)
        if not done.more:
            self._due_since.pop(name, None)
            if self._troubles.pop(name, None) is None and self._problems.pop(name, None) is not None:
                log.info("maintenance works again", extra={"task": name})
                self._metrics.maintenance_problem.labels(name).set(0)

    def _failed(self, name: str, error: Exception) -> Next:
        """One turn ended in an error; the next one waits. The end of the line is everybody's, and raised."""
        _ = self._line.room
        self._failures[name] += 1
        self._not_before[name] = self._clock.monotonic() + self._backoff.seconds(self._failures[name])
        self._metrics.service_errors.labels("maintenance", type(error).__name__).inc()
        self._tell(name, str(error) or type(error).__name__)
        return pause(LOOK_SECONDS)

    def _tell(self, name: str, what: str) -> None:
        if self._problems.get(name) != what:
            log.warning(
                "maintenance cannot do its work now; archiving goes on", extra={"task": name, "error": what}
            )
        self._problems[name] = what
        self._metrics.maintenance_problem.labels(name).set(1)
