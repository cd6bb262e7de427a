"""The composition root: the only place that chooses. It makes every part, hands each what it needs, and runs the whole.

The order of opening is law: the broker's files are held first, then come the store, the fold, the comparison, the epoch; the
services last. Closing runs backwards.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tiered.allocator import calm_collector, keep_freed_memory
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.localfiles import check_fence, ensure_directory, forget_fence, record_fence
from tiered.backoff import Backoff
from tiered.clock import SystemClock
from tiered.daemon.askbroker import ask_broker, check_told_names
from tiered.daemon.config import Loaded
from tiered.daemon.crashing import install_crash
from tiered.daemon.gatewaychild import GatewayChild, child_environment, command_line
from tiered.daemon.lock import StateLock
from tiered.daemon.looking import Looker
from tiered.daemon.notify import Notifier
from tiered.daemon.observer import Observer, let_go
from tiered.daemon.once import PresentEnd
from tiered.daemon.outages import Outages
from tiered.daemon.parts import Choices, Parts, open_parts
from tiered.daemon.portfile import WEB_PORT_FILE
from tiered.daemon.reloading import LiveRetain
from tiered.daemon.signals import Signals
from tiered.daemon.starved import Starvation
from tiered.daemon.status import DaemonView, ProcessTotals, first_look, set_gauges
from tiered.daemon.stillness import Stillness
from tiered.daemon.watch import StallWatch
from tiered.daemon.writepath import Archiving
from tiered.errors import Denied, Fenced, NotFound, Refused, TieredError, Unavailable, exit_code
from tiered.http.health import HealthPages, HealthServer
from tiered.metrics import Metrics
from tiered.opening.compare import has_all
from tiered.opening.othername import check_other_names
from tiered.provider.base import Provider
from tiered.replay.running import ReplayServices as Replay
from tiered.service import DONE, Next, Service, pause
from tiered.source.base import CommitLogSource, Wait
from tiered.source.open import open_source
from tiered.stderr import leave

log = logging.getLogger("tiered.daemon")

STARTING = "starting"
YOUNG_OBJECTS = 50_000
"""New objects before the collector looks at them."""
FENCED_STEP_SECONDS = 1.0
FATAL_SECONDS = 20.0
"""How long closing may take after a fatal error: what made a worker hang may hold closing, too."""
PATIENCE_LOOK_SECONDS = 0.5
LEAVE_SECONDS = 3.0
"""How long a stop before archiving waits for the request under way; there is nothing yet that could be lost."""


def run(loaded: Loaded, choices: Choices, env: Mapping[str, str], again: Callable[[], Loaded]) -> int:
    """Archive until stopped (or, ``once``, until the broker's present end); the exit code. ``again`` reads the settings anew,
    for SIGHUP."""
    keep_freed_memory()
    calm_collector(YOUNG_OBJECTS)
    clock, stop, metrics = SystemClock(), threading.Event(), Metrics()
    install_crash(env)
    notifier = Notifier.from_environment(env)
    with ExitStack() as stack:
        daemon = Daemon(loaded, choices, clock, metrics, stop, notifier)
        if loaded.settings.gateway.namesrv_upstream and not choices.once:
            daemon.gateway = GatewayChild(command_line(loaded), child_environment(env, loaded), clock)
        stack.enter_context(
            Signals(stop, clock, on_first=daemon.stopping, on_hangup=lambda: daemon.retain.reload(again))
        )
        return daemon.run(stack)


class Daemon:
    """One process: its web pages, and archiving as soon as broker and store allow."""

    def __init__(
        self,
        loaded: Loaded,
        choices: Choices,
        clock: SystemClock,
        metrics: Metrics,
        stop: threading.Event,
        notifier: Notifier,
    ) -> None:
        self._settings = loaded.settings
        self.retain = LiveRetain(loaded.settings)
        self._choices = choices
        self._clock = clock
        self._metrics = metrics
        metrics.identify(loaded.settings.source.cluster, loaded.settings.source.broker)
        self._stop = stop
        self._notifier = notifier
        self._archiving: Archiving | None = None
        self._replay: Replay | None = None
        self._problem: str | None = STARTING
        self._give_up = threading.Event()
        self._closed = threading.Event()
        self._in_vain: Unavailable | None = None
        self._looker: Looker[DaemonView] | None = None
        self._away: NotFound | None = None
        self._halted: str | None = None
        self._state = Path(loaded.settings.state_directory)
        self.gateway: GatewayChild | None = None
        self.hard_exit: Callable[[int], None] = leave
        dog, dispatch = loaded.settings.watchdog, loaded.settings.dispatch
        # A flush waits for its interval on purpose: only what lasts longer than that is a stall.
        self._stillness = Stillness(clock, (dog.stall_ms + dispatch.group_commit_interval_ms) / 1000)
        self._outages = Outages(clock, dog.unavailable_ms / 1000)
        self._watch = StallWatch(clock, metrics, self._stillness, self._outages, self._why)
        self._starvation = Starvation(clock)
        self._watch.looking = self._starvation.look

    def run(self, stack: ExitStack) -> int:
        """Open everything, archive, close everything."""
        stack.callback(self._closed.set)
        ensure_directory(self._state, "state.directory")
        stack.enter_context(StateLock(self._state))
        try:
            check_fence(self._state, take_over=self._choices.take_over)
        except Fenced as fence:
            if self._choices.once:
                raise
            return self._stay_fenced(stack, fence)
        source = open_source(
            self._settings.source, self._settings.hold, self._clock, on_let_go=let_go,
            ask_broker=ask_broker(self._settings.replay, self._clock),
        )  # fmt: skip
        stack.callback(source.close)
        source.hold()
        end = PresentEnd(source, self._clock, source.max_offset()) if self._choices.once else None
        observer = Observer(
            self._metrics, log, self._clock, ProcessTotals(),
            touch=self._touch, problem=self._tell, outages=self._outages, end=end,
        )  # fmt: skip
        if self._choices.once:
            self._run_beside(stack, Service("patience", self._patience, self._clock))
        early = [
            *self._watched(stack, source), self._hold(stack, source), *self._web(stack), *self._gateway(stack)
        ]  # fmt: skip
        parts = self._open(  # None: told to stop meanwhile
            stack,
            lambda inner: open_parts(
                inner,
                self._settings,
                self._clock,
                observer,
                self._metrics,
                self._state,
                self._give_up,
                self._outages,
                has_all=partial(has_all, source),
                first=partial(self._check_names, source),
            ),
        )
        if parts is None:
            return self._stopped_early()
        archiving = Archiving(
            parts, source, self._choices, self._stop, observer, end, self._stillness, self.retain
        )
        self._archiving = archiving
        self._watch.beside, self._watch.index = (
            archiving.maintenance_stands_still,
            archiving.index_stands_still,
        )
        try:
            return archiving.run(
                stack,
                early,
                partial(self._claimed, stack),
                self._notifier.watchdog,
                self._fatal,
                lambda: self._in_vain,
            )
        except (Unavailable, Refused):
            if self._in_vain is not None:
                raise self._in_vain from None
            if self._told_to_stop and not archiving.running:
                return self._stopped_early()
            raise
        except Fenced as error:
            self._metrics.fenced.set(1)
            try:
                record_fence(self._state, error.said)
            except TieredError as unwritten:
                log.error("the fence cannot be recorded for the next start", extra={"error": str(unwritten)})
            raise
        except TieredError as error:
            self._problem = str(error)
            raise
        finally:
            self._give_up.set()

    def _check_names(self, source: CommitLogSource, provider: Provider, keys: ArchiveKeys) -> None:
        """Before an archive is made: whether broker and bucket know this log by another name."""
        check_told_names(self._settings, self._clock)
        check_other_names(source, provider, keys)

    def _stay_fenced(self, stack: ExitStack, fence: Fenced) -> int:
        """Fenced before: touch nothing, and say so to whoever looks, until told to stop. An end would be started again."""
        self._problem = str(fence)
        self._metrics.fenced.set(1)
        self._web(stack)
        self._notifier.ready("fenced: another writer owns the archive")
        log.error("not archiving, until it is told to take over", extra={"error": str(fence)})
        while not self._clock.wait(FENCED_STEP_SECONDS, self._stop):
            self._notifier.watchdog()
        return self._stopped_early()

    def _stopped_early(self) -> int:
        log.info("stopped before archiving began")
        return 0

    def stopping(self, name: str) -> None:
        """The first signal: drain what archiving there is; what only waits for the store gives up now."""
        log.info(
            "stopping: the last flush is being committed; a second signal gives up", extra={"signal": name}
        )
        self._notifier.stopping()
        if self.gateway is not None:
            self.gateway.stop()
        if not self._running:
            self._give_up.set()
            Service("leave", self._leave, self._clock).start()

    @property
    def _running(self) -> bool:
        return self._archiving is not None and self._archiving.running

    @property
    def _told_to_stop(self) -> bool:
        return self._stop.is_set() or self._give_up.is_set()

    def _leave(self) -> Next:
        """End the process although something hangs: what opens has written nothing yet that an end could leave half."""
        self._clock.wait(LEAVE_SECONDS)
        if not self._running:
            log.info(
                "stopped before archiving began: a request or a disk did not come back and is not waited for"
            )
            (self._state / WEB_PORT_FILE).unlink(missing_ok=True)
            self.hard_exit(0)
        return DONE

    def _fatal(self, error: BaseException) -> None:
        """Give up what is under way, and end the process although closing hangs."""
        self._give_up.set()

        def end() -> Next:
            if not self._clock.wait(FATAL_SECONDS, self._closed):
                self.hard_exit(exit_code(error))
            return DONE

        Service("leave", end, self._clock).start()

    def _patience(self) -> Next:
        """``--once`` waits for a store or a disk for as long as a step may take: then whoever called is told to try again."""
        failing = self._outages.worst(self._settings.watchdog.stuck_ms / 1000)
        if failing is None:
            return pause(PATIENCE_LOOK_SECONDS)
        self._in_vain = Unavailable(str(failing))
        self._give_up.set()
        return DONE

    def _tell(self, problem: str) -> None:
        """What opening waits for."""
        self._problem = problem

    def _touch(self) -> None:
        if self._archiving is not None:
            self._archiving.touch()

    def _open(self, stack: ExitStack, make: Callable[[ExitStack], Parts]) -> Parts | None:
        """Open the store's side. If this archive was opened here before, the address is right: wait while the store is away."""
        pauses = Backoff(1.0).pauses()
        while True:
            wait = next(pauses)
            with ExitStack() as inner:
                try:
                    parts = make(inner)
                    stack.push(inner.pop_all())
                    return parts
                except Unavailable as error:
                    if self._in_vain is not None:
                        raise self._in_vain from error
                    if self._told_to_stop:
                        return None
                    if self._choices.once or not (self._state / "metadata").exists():
                        raise
                    self._problem = str(error)
                    refuses = "refuses" if isinstance(error, Denied) else "does not answer"
                    log.warning(
                        f"the store {refuses}; trying again", extra={"error": str(error), "wait": wait}
                    )
                if self._clock.wait(wait, self._stop):
                    return None

    def _watched(self, stack: ExitStack, source: CommitLogSource) -> tuple[Service, ...]:
        """What looks, and what says when nothing moves: from now on, whatever opening waits for."""

        def look() -> DaemonView:
            if self._archiving is None:
                return first_look(source, self._stillness)
            return self._archiving.look()

        self._looker = Looker(look, self._clock, self._metrics)
        for service in (self._looker.service, self._watch.service):
            self._run_beside(stack, service)
        return self._looker.service, self._watch.service

    def _run_beside(self, stack: ExitStack, service: Service) -> Service:
        """Start a service that runs until the daemon closes."""
        service.start()
        stack.callback(service.join, 2.0)
        stack.callback(service.stop)
        return service

    def _why(self) -> str:
        """What is known of the reason why nothing moves; touches no file and no lock of a worker that may hang."""
        known = (
            self._outages.cause(),
            str(self._away) if self._away is not None else None,
            self._halted,
            self._problem,
            self._archiving.waits_for() if self._archiving is not None else None,
            self._looker.trouble if self._looker is not None else None,
        )
        said = (next((said for said in known if said), None), self._starvation.said())
        return "; ".join(filter(None, said)) or "the reason is unknown; see the log"

    def _hold(self, stack: ExitStack, source: CommitLogSource) -> Service:
        """Links the broker's new files and keeps the budget, whatever else waits: for the store, another writer, room."""
        pause_seconds = self._settings.source.restart_check_ms / 1000

        def step() -> Next:
            source.hold()
            self._notice(source.away)
            self._notice_halt(source.waiting)
            return pause(pause_seconds)

        return self._run_beside(stack, Service("hold", step, self._clock, metrics=self._metrics))

    def _notice(self, away: NotFound | None) -> None:
        """Say once that the broker's directory went away, and once that it is back. What the hold has is archived meanwhile."""
        if away is not None and self._away is None:
            log.error(
                "the broker's commitlog went away: what the hold has of it is archived, and it is looked for",
                extra={"error": str(away)},
            )
        elif away is None and self._away is not None:
            log.warning("the broker's commitlog is back: comparing it with the archive")
        self._away = away

    def _notice_halt(self, waiting: Wait | None) -> None:
        """Say once that reading waits for an operator, and once that it goes on."""
        problem = waiting.problem if waiting is not None else None
        said = None if problem is None else str(problem)
        if said is not None and self._halted is None:
            log.error("archiving waits for an operator", extra={"error": said})
        elif said is None and self._halted is not None:
            log.warning("archiving goes on")
        self._halted = said

    def _web(self, stack: ExitStack) -> tuple[Service, ...]:
        """The HTTP server, bound now so that a bad port is known at once; its port is written to the state directory."""
        pages = HealthPages(live=self._live, ready=self._is_ready, metrics=self._expose, status=self._status)
        server = HealthServer(self._settings.web, pages, self._clock)
        if not server.enabled:
            return ()
        server.open()
        stack.callback(server.close)
        port = server.address[1]
        port_file = self._state / WEB_PORT_FILE
        try:
            port_file.write_text(f"{port}\n")
        except OSError as error:  # a full disk, say; the log names the port, too
            log.warning("the port cannot be written", extra={"path": str(port_file), "error": error.strerror})
        stack.callback(lambda: port_file.unlink(missing_ok=True))
        log.info("web pages", extra={"address": f"http://{server.address[0]}:{port}"})
        return (self._run_beside(stack, Service("web", server.step, self._clock, metrics=self._metrics)),)

    def _gateway(self, stack: ExitStack) -> tuple[Service, ...]:
        """The gateway's process, if one is wanted: from now on, whatever becomes of the store."""
        if self.gateway is None:
            return ()
        stack.enter_context(self.gateway)
        step = self.gateway.step
        return (self._run_beside(stack, Service("gateway", step, self._clock, metrics=self._metrics)),)

    def _claimed(self, stack: ExitStack) -> None:
        """The epoch is ours, proven: what fenced us before is past.

        Replay runs beside the one writer only, two would send everything twice; a failure there does not stop
        the daemon.
        """
        forget_fence(self._state)
        self._ready()
        if self._settings.replay.enabled and not self._choices.once:
            self._replay = Replay(self._settings, self._clock, self._metrics, self._state)
            self._replay.start(stack)

    def _ready(self) -> None:
        self._problem = None
        if self.gateway is not None:
            self.gateway.outlives = True
        self._metrics.ready.set(1)
        self._notifier.ready("archiving")
        log.info("archiving")

    def _live(self) -> tuple[bool, str]:
        health = self._archiving.health() if self._archiving is not None else None
        if health is None or health.live:
            return True, "live"
        return False, f"fatal: {health.fatal}" if health.fatal else f"stuck: {', '.join(health.stuck)}"

    def _is_ready(self) -> tuple[bool, str]:
        """One line for ``/readyz`` and ``/status``, of what is known already: nothing is looked at and nothing waited for."""
        if self._away is not None:
            return False, str(self._away)
        if self._halted is not None:
            return False, self._halted
        own = self._problem if self._problem != STARTING else None
        problem = own or self._watch.problem() or self._problem
        if problem is not None:
            return False, problem
        sinks = None if self._archiving is None else self._archiving.sinks
        beside = None if sinks is None else sinks.standstill()
        return True, "ready" if beside is None else f"ready; {beside}"

    def _view(self) -> DaemonView | None:
        """What a look finds now, or the last one found when this one does not come back; the time goes on all the same."""
        view = self._looker.fresh() if self._looker is not None else None
        return None if view is None else replace(view, still_seconds=self._stillness.seconds())

    def _expose(self) -> bytes:
        view = self._view()
        if view is not None:
            set_gauges(self._metrics, view)
        self._watch.set_gauges()
        if self._archiving is not None and self._archiving.sinks is not None:
            self._archiving.sinks.show()
        self._metrics.ready.set(1 if self._is_ready()[0] else 0)
        return self._metrics.expose()

    def _status(self) -> Mapping[str, object]:
        view = self._view()
        ready, why = self._is_ready()
        said: dict[str, object] = {"ready": ready, "problem": None if ready else why}
        said["stalled"] = self._stillness.stall() is not None
        if self._archiving is not None and self._looker is not None and view is not None:
            said |= self._archiving.status(view, count=not self._looker.late)
        elif view is not None:
            said |= {"local_end": view.local_end, "lag": view.lag_document()}
        if self._replay is not None:
            said["replay"] = self._replay.status()
        return said
