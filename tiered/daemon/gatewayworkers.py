"""A gateway of several processes: this one starts them, looks after them and gives out ports; it passes no traffic itself.

Every worker listens at the same ports (``SO_REUSEPORT``: the kernel gives each connection to one of them) and is a gateway
with its share of the budgets. What an answer to one client needs of what another one did travels as notes: this process passes
each on to the other workers, and keeps what is in force for those that are started later. A worker that ends is started again;
one whose event loop stands still is killed. When this process ends, however it does, the workers drain and end.

Threads: the event loop (the calling thread) and the pages'.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from tiered.archive.log.localfiles import ensure_directory
from tiered.backoff import Backoff
from tiered.clock import Clock, SystemClock
from tiered.daemon.config import Loaded
from tiered.daemon.doors import PageDoor, background, health_service
from tiered.daemon.gatewaychild import child_environment, command_line
from tiered.daemon.keptnotes import KeptNotes
from tiered.daemon.lock import StateLock
from tiered.daemon.notify import Notifier
from tiered.daemon.portfile import GATEWAY_WEB_PORT_FILE
from tiered.daemon.signals import Signals
from tiered.daemon.workerpages import WorkersMetrics, merged
from tiered.daemon.workerports import WorkerPorts
from tiered.daemon.workerwire import Message, Wire
from tiered.errors import Invalid, TieredError
from tiered.http.health import HealthPages
from tiered.settings import Settings

log = logging.getLogger("tiered.gateway")

LOOK_SECONDS = 0.1
SILENT_SECONDS = 60.0
"""A worker whose event loop has not turned for so long is killed."""
STOP_SECONDS = 15.0
RELAY_SECONDS = 1.5
REPORT_SECONDS = 4.0
HEALTHY_SECONDS = 60.0
BACKOFF = Backoff(0.5, 30.0)


@dataclass(slots=True)
class Worker:
    """One child, and the time until it is started again if it is not there."""

    index: int
    process: subprocess.Popen[bytes] | None = None
    wire: Wire | None = None
    serving: bool = False
    started: float = 0.0
    beaten: float = 0.0
    failures: int = 0
    next_start: float = 0.0
    missing: str | None = "it is being started"
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


def run_workers(loaded: Loaded, env: Mapping[str, str], directory: Path | None) -> int:
    """Look after workers until a signal; the exit code. ``directory``: where the gateway has its lock and its ports."""
    clock, stop = SystemClock(), threading.Event()
    command = command_line(loaded)
    with ExitStack() as stack:
        workers = GatewayWorkers(
            loaded.settings,
            lambda index, descriptor: [*command, "--worker", f"{index}:{descriptor}"],
            child_environment(env, loaded),
            clock,
            Notifier.from_environment(env),
        )
        signals = stack.enter_context(
            Signals(stop, clock, on_first=workers.stopping, on_hangup=workers.reload)
        )
        workers.open(stack, directory)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(workers.serve(signals.rearm))


class GatewayWorkers:
    """``gateway.workers`` children. ``command`` starts one: it is given the index and the descriptor of its channel."""

    def __init__(
        self,
        settings: Settings,
        command: Callable[[int, int], Sequence[str]],
        env: Mapping[str, str],
        clock: Clock,
        notifier: Notifier,
        silent_seconds: float = SILENT_SECONDS,
    ) -> None:
        self._silent_seconds = silent_seconds
        self._settings = settings
        self._command = command
        self._env = dict(env)
        self._clock = clock
        self._notifier = notifier
        self._metrics = WorkersMetrics()
        self._kept = KeptNotes()
        self.workers = [Worker(index) for index in range(settings.gateway.workers)]
        self._ports: WorkerPorts
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._stopped = False
        self._beaten = clock.monotonic()
        self._served = False
        self._was_ready = False
        self._fatal: int | None = None

    # ---- from any thread

    def stopping(self, name: str) -> None:
        """The first signal, on a thread of its own."""
        log.info("stopping: the workers end their connections", extra={"signal": name})
        self._notifier.stopping()
        self._stopped = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    def reload(self) -> None:
        """SIGHUP: every worker reads the settings again."""
        for worker in self.workers:
            _signal(worker, signal.SIGHUP)

    # ---- life

    def open(self, stack: ExitStack, directory: Path | None) -> None:
        """Take lock and ports, open the pages. ``Invalid`` for settings, ``Refused`` if another gateway has the lock."""
        if directory is not None:
            ensure_directory(directory, "gateway.state_directory")
            stack.enter_context(StateLock(directory))
        else:
            log.warning("the ports given to brokers are not remembered: gateway.state_directory is not set")
        self._ports = WorkerPorts(self._settings.gateway, directory, self._clock)
        stack.callback(self._ports.close)
        self._ports.open()
        pages = HealthPages(live=self._live, ready=self._ready, metrics=self._expose, status=self._status)
        door = PageDoor(self._settings.gateway.web_listen, "gateway.web_listen")
        file = None if directory is None else directory / GATEWAY_WEB_PORT_FILE
        background(stack, health_service(stack, door, pages, self._clock, log, file))

    async def serve(self, begun: Callable[[], None]) -> int:
        """Look after the workers until ``stopping`` is called; the exit code."""
        begun()
        self._loop = asyncio.get_running_loop()
        try:
            while not self._stopped and self._fatal is None:
                self._beaten = self._clock.monotonic()
                for worker in self.workers:
                    await self._look(worker)
                self._said()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), LOOK_SECONDS)
        finally:
            await self._end()
        return self._fatal or 0

    async def _look(self, worker: Worker) -> None:
        """Start one that is not there, if it is time; see whether one that is has ended or stands still."""
        now = self._clock.monotonic()
        if worker.process is None:
            if now >= worker.next_start:
                await self._start(worker)
            return
        code = worker.process.poll()
        if code is not None:
            self._ended(worker, code)
        elif now - worker.beaten > self._silent_seconds:
            log.error("a worker's event loop stands still; it is killed", extra={"worker": worker.index})
            worker.process.kill()
            worker.beaten = now
        elif worker.serving and now - worker.started > HEALTHY_SECONDS:
            worker.failures = 0

    async def _start(self, worker: Worker) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                worker.process = subprocess.Popen(
                    self._command(worker.index, theirs.fileno()), env=self._env, stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()], start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                ours.close()
                self._away(worker, f"it cannot be started: {error.strerror}")
                return
        worker.started = worker.beaten = self._clock.monotonic()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        worker.wire = Wire(reader, writer, partial(self._take, worker), f"worker {worker.index}")
        worker.wire.send({"op": "notes", "notes": self._kept.all()})
        worker.wire.send({"op": "begin", "namesrv_port": self._ports.namesrv_port, **self._ports.said()})
        task = asyncio.create_task(worker.wire.run())
        worker.tasks.add(task)
        task.add_done_callback(worker.tasks.discard)
        log.info("worker started", extra={"worker": worker.index, "pid": worker.process.pid})

    def _ended(self, worker: Worker, code: int) -> None:
        worker.process = None
        if code == Invalid.exit_code and not self._served:
            self._fatal = code  # no start again cures a setting; the worker has said it
        self._away(worker, f"exit code {code}" if code >= 0 else f"signal {-code}")

    def _away(self, worker: Worker, why: str) -> None:
        worker.serving = False
        if worker.wire is not None:
            worker.wire.close()
            worker.wire = None
        worker.failures += 1
        wait = BACKOFF.seconds(worker.failures)
        worker.next_start = self._clock.monotonic() + wait
        worker.missing = why
        self._metrics.ends.inc()
        log.error(
            "a worker ended; it is started again", extra={"worker": worker.index, "why": why, "wait": wait}
        )

    def _said(self) -> None:
        """Tell systemd that everything is there, once, and that this loop turns."""
        if not self._served and all(worker.serving for worker in self.workers):
            self._served = True
            self._notifier.ready(f"serving with {len(self.workers)} workers")
        self._notifier.watchdog()

    async def _end(self) -> None:
        """SIGTERM to all; those that do not end in time are killed."""
        for worker in self.workers:
            _signal(worker, signal.SIGTERM)
        deadline = self._clock.monotonic() + STOP_SECONDS
        while any(worker.process is not None and worker.process.poll() is None for worker in self.workers):
            if self._clock.monotonic() >= deadline:
                for worker in self.workers:
                    if worker.process is not None and worker.process.poll() is None:
                        log.warning("a worker does not end; it is killed", extra={"worker": worker.index})
                        worker.process.kill()
                        worker.process.wait()
                break
            await asyncio.sleep(0.02)
        for worker in self.workers:
            if worker.wire is not None:
                worker.wire.close()
        log.info("the gateway has stopped")

    # ---- what workers say

    def _take(self, worker: Worker, message: Message) -> Any:
        match message["op"]:
            case "beat":
                worker.beaten = self._clock.monotonic()
            case "serving":
                worker.serving, worker.missing = True, None
            case "ports":
                return self._ports.given(message["found"])
            case "notes":
                return self._relayed(worker, message["notes"], wanted="id" in message)
            case "settle":  # what the others told before their answer has been passed on before this one
                serving = self._others([w for w in self.workers if w.serving], worker)
                return self._heard([(wire, wire.asked({"op": "settle"})) for wire in serving])
        return None

    def _relayed(self, origin: Worker, notes: Sequence[Any], *, wanted: bool) -> Any:
        """Pass notes on, in the order in which they came. ``wanted``: the answer says when all have them."""
        self._kept.take(notes)
        others, message = self._others(self.workers, origin), {"op": "notes", "notes": notes}
        if not wanted:
            for wire in others:
                wire.send(message)
            return None
        return self._heard([(wire, wire.asked(message)) for wire in others])

    def _others(self, workers: Sequence[Worker], than: Worker) -> list[Wire]:
        return [w.wire for w in workers if w is not than and w.wire is not None]

    async def _heard(self, asked: Sequence[tuple[Wire, asyncio.Future[Message]]]) -> Message:
        """Whether all have taken it. One that has ended meanwhile hears it when it is started again."""
        if asked:
            await asyncio.wait([future for _, future in asked], timeout=RELAY_SECONDS)
        for _, future in asked:
            if future.done():
                future.exception()  # seen
        return {"all": all(future.done() or not wire.open for wire, future in asked)}

    # ---- pages, on threads of their own

    def _live(self) -> tuple[bool, str]:
        silent = self._clock.monotonic() - self._beaten
        if silent > self._silent_seconds / 2:
            return False, f"the event loop has not turned for {silent:.0f} s"
        for worker in self.workers:
            quiet = self._clock.monotonic() - worker.beaten
            if worker.serving and quiet > self._silent_seconds / 2:
                return False, f"worker {worker.index}: its event loop has not turned for {quiet:.0f} s"
        return True, "live"

    def _ready(self) -> tuple[bool, str]:
        """Whether clients are served: by all workers that are there at first, by any later. What ails others is said."""
        return self._judged(self._reports())

    def _judged(self, reports: Mapping[int, Message]) -> tuple[bool, str]:
        said = [f"worker {index} is missing: {why}" for index, why in self._missing().items()]
        serving = [worker.index for worker in self.workers if worker.serving]
        said += [f"worker {index} does not answer" for index in serving if index not in reports]
        said += [f"worker {index}: {report['said']}" for index, report in reports.items()]
        ready = [report["ready"] for report in reports.values()]
        # One that was started again has its archive to open: that is said, and no reason to send everybody away.
        self._was_ready |= all(ready) and all(w.index in reports or w.failures for w in self.workers)
        return self._was_ready and any(ready), "; ".join(said)

    def _missing(self) -> dict[int, str]:
        return {w.index: w.missing for w in self.workers if w.missing is not None}

    def _reports(self) -> dict[int, Message]:
        """What the workers say of themselves; one that does not answer in time is left out."""
        if self._loop is None:
            return {}
        asking = asyncio.run_coroutine_threadsafe(self._ask_all(), self._loop)
        try:
            return asking.result(REPORT_SECONDS + 0.5)
        except TimeoutError:
            return {}

    async def _ask_all(self) -> dict[int, Message]:
        async def one(wire: Wire) -> Message | None:
            try:
                return await wire.ask({"op": "report"}, REPORT_SECONDS)
            except TieredError:
                return None

        wires = {w.index: w.wire for w in self.workers if w.wire is not None and w.serving}
        answers = await asyncio.gather(*(one(wire) for wire in wires.values()))
        return {index: answer for index, answer in zip(wires, answers, strict=True) if answer is not None}

    def _expose(self) -> bytes:
        missing = len(self._missing())
        self._metrics.workers.labels("missing").set(missing)
        self._metrics.workers.labels("there").set(len(self.workers) - missing)
        pages = {index: report["metrics"].encode() for index, report in self._reports().items()}
        return merged(self._metrics.expose(), pages)

    def _status(self) -> Mapping[str, object]:
        reports = self._reports()
        good, why = self._judged(reports)
        return {
            "ready": good,
            "said": why,
            "missing": self._missing(),
            "workers": {
                w.index: {
                    "pid": None if w.process is None else w.process.pid,
                    "status": reports.get(w.index, {}).get("status"),
                }
                for w in self.workers
            },
        }


def _signal(worker: Worker, number: signal.Signals) -> None:
    process = worker.process
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
