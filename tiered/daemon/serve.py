"""A read node's process: the archive, opened in the background, and the doors to it. No broker, no lock, nothing kept on disk,
but for the store of the key-value view where it has one (``nodekv``).

The order of opening: the pages, the node's address, then the archive, which may come later or go away and come again: until it
is open reads are answered *busy*, and gateways read elsewhere. Where there is a membership the node announces itself in it.
When it stops it says that it drains, goes on answering until gateways have turned away, and leaves. Threads: the event loop
(the calling thread), ``archive``, ``member``, ``web``, a pool ``answer`` that compiles filters and makes pages, and the store's
own pools.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import uvloop

from tiered.allocator import calm_collector, keep_freed_memory
from tiered.archive.log.localfiles import ensure_directory
from tiered.clock import Clock, SystemClock
from tiered.codec.remoting.nodebeat import DRAINING, JOINING, LIVE
from tiered.daemon.announcing import Announcer, node_card
from tiered.daemon.config import Loaded
from tiered.daemon.doors import LoopBeat, PageDoor, archive_pages, background, health_service
from tiered.daemon.nodekv import NodeKeyValues
from tiered.daemon.notify import Notifier
from tiered.daemon.portfile import NODE_PORT_FILE, WEB_PORT_FILE
from tiered.daemon.signals import Signals
from tiered.errors import TieredError
from tiered.gateway.knowledge.opening import LateArchive
from tiered.http.health import HealthPages
from tiered.membership.base import MOST_READS, RENEWALS, Membership
from tiered.membership.open import open_membership
from tiered.metrics import Metrics
from tiered.model import ArchiveCommit
from tiered.node.answers import NodeAnswers
from tiered.node.server import NodeServer
from tiered.service import Service
from tiered.settings import Settings
from tiered.store import MessageStore

log = logging.getLogger("tiered.node")

LEAVE_SECONDS = 5.0
"""How long a node that stops waits for its lease to be taken back."""


def run_node(loaded: Loaded, env: Mapping[str, str]) -> int:
    """Serve until a signal; the exit code."""
    keep_freed_memory()
    clock, stop = SystemClock(), threading.Event()
    with ExitStack() as stack:
        process = NodeProcess(loaded.settings, clock, Metrics(), Notifier.from_environment(env))
        signals = stack.enter_context(Signals(stop, clock, on_first=process.stopping))
        process.open(stack)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(process.serve(signals.rearm))
    return 0


class NodeProcess:
    """One read node. ``open`` makes every part, ``serve`` binds and runs on the calling thread's event loop."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics, notifier: Notifier) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        metrics.identify(settings.source.cluster, settings.source.broker)
        self._notifier = notifier
        self._state = Path(settings.serve.state_directory) if settings.serve.state_directory else None
        self._archive = LateArchive(self._open_store, settings.fetch)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopped = False
        self._draining = False
        self._membership: Membership | None = None
        self._announcer: Announcer | None = None
        self._beat = LoopBeat(clock, notifier)
        self._give_up = threading.Event()
        self._key_values: NodeKeyValues | None = None
        self._pool: ThreadPoolExecutor
        self._server: NodeServer
        self._answers: NodeAnswers

    def open(self, stack: ExitStack) -> None:
        """Make the parts, and begin to open the archive. Raises ``Invalid`` for settings."""
        settings = self._settings
        if self._state is not None:
            ensure_directory(self._state, "serve.state_directory")
        self._pool = ThreadPoolExecutor(settings.fetch.threads, "answer")
        stack.callback(self._pool.shutdown, wait=False, cancel_futures=True)
        stack.callback(self._archive.close)
        if settings.serve.key_values:
            self._key_values = NodeKeyValues(stack, settings, self._clock, self._metrics, self._give_up)
        door = None if self._key_values is None else self._key_values.door
        self._answers = NodeAnswers(
            self._archive.store,
            settings.serve,
            self._metrics,
            self._clock,
            self._pool,
            self._life,
            door,
        )
        self._server = NodeServer(settings.serve, self._answers, self._clock, self._metrics, settings.tenants)
        background(stack, Service("archive", self._archive.step, self._clock))
        if settings.serve.membership:
            every = settings.serve.lease_ms / 1000 / RENEWALS
            self._membership = open_membership(
                settings, self._clock, look_seconds=every, observer=self._metrics
            )
            stack.callback(self._membership.close)
        self._web(stack)

    async def serve(self, begun: Callable[[], None] = lambda: None) -> None:
        """Bind, and serve until ``stopping`` is called. ``begun`` is called first, on the loop's thread."""
        begun()
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopped:
            return
        settings = self._settings.serve
        pages = await archive_pages(
            PageDoor(settings.http_listen, "serve.http_listen", settings.http_token),
            self._archive.store,
            self._clock,
            self._pool,
            self._metrics,
            log,
            settings.read_timeout_ms,
        )
        if self._key_values is not None:
            await self._key_values.start()
        self._server.open()
        if self._state is not None:
            port = self._server.address.rpartition(":")[2]
            (self._state / NODE_PORT_FILE).write_text(f"{port}\n")
        log.info("listening for gateways", extra={"address": self._server.address})
        service = self._announce()
        self._notifier.ready("serving")
        beat = asyncio.create_task(self._beat.run())
        try:
            await self._stop.wait()
        finally:
            self._draining = True
            if self._announcer is not None and service is not None:
                self._announcer.drain()
                service.wake()
            await self._server.quiet(settings.drain_ms / 1000)
            beat.cancel()
            await self._server.close()
            if self._announcer is not None and service is not None:
                service.stop()
                with suppress(TimeoutError):  # the lease ends by itself
                    leaving = self._loop.run_in_executor(self._pool, self._announcer.close)
                    await asyncio.wait_for(leaving, LEAVE_SECONDS)
            if self._state is not None:
                (self._state / NODE_PORT_FILE).unlink(missing_ok=True)
            if pages is not None:
                await pages.close()
            if self._key_values is not None:
                await self._key_values.close_pages()
        log.info("the read node has stopped")

    def _announce(self) -> Service | None:
        """Have gateways learn of the node, if there is a membership."""
        if self._membership is None:
            return None
        card = node_card(self._settings.serve, self._server.address, os.urandom(16))
        self._announcer = Announcer(
            self._membership, card, lambda: self._archive.problem is None, self._clock, self._metrics,
            lambda: self._answers.loads.said(MOST_READS),
        )  # fmt: skip
        service = Service("member", self._announcer.step, self._clock)
        service.start()
        return service

    def _life(self) -> str:
        """What beats are told."""
        if self._draining:
            return DRAINING
        return LIVE if self._archive.problem is None else JOINING

    def stopping(self, name: str) -> None:
        """The first signal, on a thread of its own."""
        log.info("stopping: what was asked is answered; a second signal gives up", extra={"signal": name})
        self._notifier.stopping()
        self._stopped = True
        self._give_up.set()
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    def _open_store(self, stack: ExitStack) -> MessageStore:
        store = MessageStore.open(
            self._settings, self._clock, self._metrics, stack=stack, name="serve", wait_for_archive=True
        )
        calm_collector()
        return store

    def _web(self, stack: ExitStack) -> None:
        """Health and metrics; the port is written to the state directory."""
        pages = HealthPages(
            live=self._beat.live, ready=self._ready, metrics=self._expose, status=self._status
        )
        door = PageDoor(self._settings.serve.web_listen, "serve.web_listen")
        file = None if self._state is None else self._state / WEB_PORT_FILE
        background(stack, health_service(stack, door, pages, self._clock, log, file))

    def _ready(self) -> tuple[bool, str]:
        """Ready to answer: not before the archive is open, nor while it cannot be read."""
        problem = self._archive.problem
        if problem is not None:
            return False, f"the archive cannot be read: {problem}"
        return (True, "ready") if self._key_values is None else self._key_values.view.ready()

    def _expose(self) -> bytes:
        self._metrics.gateway_archive_open.set(1 if self._archive.problem is None else 0)
        self._metrics.ready.set(1 if self._ready()[0] else 0)
        if self._announcer is not None:
            self._announcer.publish()
        if self._key_values is not None:
            self._key_values.view.publish()
        return self._metrics.expose()

    def _status(self) -> Mapping[str, object]:
        ready, why = self._ready()
        place = self._place()
        return {
            "ready": ready,
            "said": why,
            "archive": None if place is None else place.archive_id.hex(),
            "commit": None if place is None else place.commit,
            "state": self._life(),
            "membership": None if self._announcer is None else self._announcer.status(),
            "connections": len(self._server.sessions),
            "answer_bytes": self._server.budget.taken,
            "tenants": self._archive.store.tenants(),
            "key_values": None if self._key_values is None else self._key_values.view.status(),
        }

    def _place(self) -> ArchiveCommit | None:
        try:
            return self._archive.store.place()
        except TieredError:
            return None
