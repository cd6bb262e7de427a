"""A step made into a loop, and the watch over all loops of the process.

A ``Service`` owns one thread and one step: a function that does one unit of work and says what comes next
(``AGAIN``, ``pause(seconds)`` or ``DONE``). The loop adds waiting, back-off and counting on ``Unavailable``,
state and the last error. Every other error ends the service, and a dead service is fatal for the process:
half alive is worse than restarted. Tests call ``Service.step()`` with a ``ManualClock`` and start no thread.

The ``Supervisor`` starts services, looks at them at a fixed interval, shows a step that does not return
(``stuck``) and, beyond a limit, treats it as fatal, so that a wedged worker cannot hide behind a quiet gauge.
Its threads: one per service; the supervisor itself runs in the thread that calls ``run``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.errors import Unavailable, exit_code

if TYPE_CHECKING:
    from tiered.metrics import Metrics  # Prometheus takes its time to come


@dataclass(frozen=True, slots=True)
class Next:
    """What a step wants next: to run again after ``wait_seconds``, or, with ``None``, never again."""

    wait_seconds: float | None


AGAIN = Next(0.0)
DONE = Next(None)


def pause(seconds: float) -> Next:
    """Run again after ``seconds``, or sooner if somebody calls ``Service.wake``."""
    return Next(max(0.0, seconds))


class ServiceState(Enum):
    """Where a service is in its life."""

    NEW = "new"  # never started
    RUNNING = "running"  # a step is under way, or about to be
    WAITING = "waiting"  # the last step asked for a pause
    BACKING_OFF = "backing_off"  # the last step met Unavailable
    STOPPED = "stopped"  # finished as asked
    FAILED = "failed"  # a fatal error; see Service.error


class Service:
    """A named step with a loop around it.

    ``step`` runs in the service's own thread. ``finish`` runs there once, after the last step of a service
    that was asked to stop *with* drain (the last flush); never after an error. ``on_failure`` may be set
    before ``start``: it is told about a fatal error, from the service's thread.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], Next],
        clock: Clock,
        *,
        finish: Callable[[], None] | None = None,
        backoff: Backoff | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self.state = ServiceState.NEW
        self.error: BaseException | None = None
        self.last_unavailable: Unavailable | None = None
        self.failures_in_a_row = 0
        self.on_failure: Callable[[Service], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self._step = step
        self._clock = clock
        self._finish = finish
        self._backoff = backoff or Backoff()
        self._metrics = metrics
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._drain = True
        self._busy_since: float | None = None
        self._thread: threading.Thread | None = None  # noqa: TID251

    @property
    def stopping(self) -> bool:
        """True once somebody asked the service to stop."""
        return self._stop.is_set()

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def busy_seconds(self) -> float:
        """How long the step under way has been running; 0 between steps."""
        since = self._busy_since
        return 0.0 if since is None else max(0.0, self._clock.monotonic() - since)

    def step(self) -> Next:
        """One guarded unit of work: ``Unavailable`` becomes a pause that doubles; any other error is raised."""
        self.state = ServiceState.RUNNING
        self._busy_since = self._clock.monotonic()
        try:
            wanted = self._step()
        except Unavailable as error:
            self.failures_in_a_row += 1
            self.last_unavailable = error
            self.state = ServiceState.BACKING_OFF
            self._count(error)
            return pause(self._backoff.seconds(self.failures_in_a_row))
        finally:
            self._busy_since = None
        self.failures_in_a_row = 0
        if wanted.wait_seconds:
            self.state = ServiceState.WAITING
        return wanted

    def run(self) -> None:
        """The loop, in the calling thread: steps until done, stopped or failed. Never raises; see ``error``."""
        try:
            self._loop()
            self.state = ServiceState.STOPPED
        except BaseException as error:  # noqa: BLE001  (a worker's death is caught here only)
            self.error = error
            self.state = ServiceState.FAILED
            self._count(error)
            if self.on_failure is not None:
                self.on_failure(self)
        if self.on_end is not None:
            self.on_end()

    def start(self) -> None:
        """Start the thread; a second call does nothing."""
        if self._thread is not None:
            return
        self._thread = threading.Thread(  # noqa: TID251  (this is the door)
            target=self.run, name=self.name, daemon=True
        )
        self._thread.start()

    def stop(self, *, drain: bool = True) -> None:
        """Ask the loop to end after the step under way; ``drain=False`` skips ``finish``."""
        if not drain:
            self._drain = False
        self._stop.set()
        self._wake.set()

    def touch(self) -> None:
        """The step under way is waiting for somebody else and not wedged: count its time from now."""
        if self._busy_since is not None:
            self._busy_since = self._clock.monotonic()

    def wake(self) -> None:
        """End the current pause early: there is work."""
        self._wake.set()

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the thread to end; false if it did not in time."""
        if self._thread is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            wanted = self.step()
            if wanted.wait_seconds is None:
                return
            if wanted.wait_seconds > 0 and not self._stop.is_set():
                self._clock.wait(wanted.wait_seconds, self._wake)
        if self._finish is not None and self._drain:
            self._busy_since = self._clock.monotonic()
            try:
                self._finish()
            finally:
                self._busy_since = None

    def _count(self, error: BaseException) -> None:
        if self._metrics is not None:
            self._metrics.service_errors.labels(self.name, type(error).__name__).inc()


@dataclass(frozen=True, slots=True)
class Health:
    """What the watch sees: ``fatal`` ends the process, ``stuck`` names services whose step does not return."""

    fatal: BaseException | None
    stuck: tuple[str, ...]

    @property
    def live(self) -> bool:
        """False when something is fatal or stuck."""
        return self.fatal is None and not self.stuck


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How long a service may take.

    ``stuck_seconds``: a step running longer is shown. ``fatal_seconds``: a step running longer is fatal. ``drain_seconds``: the
    time all services together have for ``finish`` after a graceful stop. ``look_seconds``: between two looks at them.
    """

    stuck_seconds: float = 60.0
    fatal_seconds: float = 600.0
    drain_seconds: float = 30.0
    look_seconds: float = 0.5


WATCH_LIMITS = WatchLimits()


class Supervisor:
    """Starts services, watches them, stops them in reverse order, and turns the outcome into an exit code.

    A failed service stops all others at once, from its own thread and without drain. ``on_fatal`` is called once with the first
    fatal error; ``beat`` at every look while the process is live (systemd's watchdog). ``hopeless`` is asked at every look:
    what it names is fatal, because nobody should wait for it any longer.
    """

    def __init__(
        self,
        services: Sequence[Service],
        clock: Clock,
        limits: WatchLimits = WATCH_LIMITS,
        *,
        metrics: Metrics | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
        beat: Callable[[], None] | None = None,
        hopeless: Callable[[], BaseException | None] = lambda: None,
    ) -> None:
        self._services = tuple(services)
        self._clock = clock
        self._limits = limits
        self._metrics = metrics
        self._on_fatal = on_fatal
        self._beat = beat
        self._hopeless = hopeless
        self.health = Health(None, ())
        for service in self._services:
            service.on_failure = self._halt

    def _ended(self, stop: threading.Event) -> None:
        """Called by a service that ends: with the last one there is nothing left to watch."""
        if all(s.state is ServiceState.STOPPED for s in self._services):
            stop.set()

    def check(self) -> Health:
        """One look at every service; the first fatal error sticks."""
        stuck: list[str] = []
        fatal = self.health.fatal
        for service in self._services:
            busy = service.busy_seconds()
            if busy >= self._limits.stuck_seconds:
                stuck.append(service.name)
            if self._metrics is not None:
                self._metrics.stuck.labels(service.name).set(1 if busy >= self._limits.stuck_seconds else 0)
            fatal = fatal or self._verdict(service, busy)
        fatal = fatal or self._hopeless()
        if fatal is not None and self.health.fatal is None and self._on_fatal is not None:
            self._on_fatal(fatal)
        self.health = Health(fatal, tuple(stuck))
        return self.health

    def _halt(self, failed: Service) -> None:
        for service in self._services:
            if service is not failed:
                service.stop(drain=False)

    def _verdict(self, service: Service, busy: float) -> BaseException | None:
        if service.state is ServiceState.FAILED:
            return service.error
        if busy >= self._limits.fatal_seconds:
            return Unavailable(
                f"the worker {service.name} has not come back from one step",
                seconds=round(busy),
                limit_seconds=round(self._limits.fatal_seconds),
                hint="check for a store or disk that hangs; the limit is watchdog.fatal_ms",
            )
        return None

    def run(self, stop: threading.Event) -> int:
        """Start all, watch until ``stop`` is set, all are done or one is fatal; returns the exit code."""
        for service in self._services:
            service.on_end = partial(self._ended, stop)
            service.start()
        while not stop.is_set():
            health = self.check()
            if health.fatal is not None or all(s.state is ServiceState.STOPPED for s in self._services):
                break
            if health.live and self._beat is not None:
                self._beat()
            self._clock.wait(self._limits.look_seconds, stop)
        return self.stop_all()

    def stop_all(self) -> int:
        """Stop in reverse order of starting, each joined before the next; without drain once something is
        fatal.
        """
        patience = (
            self._limits.drain_seconds if self.check().fatal is None else min(5.0, self._limits.drain_seconds)
        )
        deadline = self._clock.monotonic() + patience
        late: list[str] = []
        for service in reversed(self._services):
            service.stop(drain=self.check().fatal is None)
            if not service.join(max(0.05, deadline - self._clock.monotonic())):
                late.append(service.name)
        fatal = self.check().fatal
        if fatal is not None:
            return exit_code(fatal)
        return Unavailable.exit_code if late else 0
