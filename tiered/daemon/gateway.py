"""The gateway's process: fronts, answers, archive, pages. A process of its own and a plain reader of the archive.

The order of opening: the local lock, the fronts' ports, the pages; the archive last and in the background, so that hot traffic
flows whatever it does. Threads: the event loop (the calling thread; uvloop's, with which a call spends half the time here that
it does with Python's own), ``archive``, ``web``, a pool ``answer`` for questions that block, and the store's own pools.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import uvloop
from msgspec import structs

from tiered.allocator import calm_collector, keep_freed_memory
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.localfiles import ensure_directory
from tiered.client.sync import KeyValueClient
from tiered.clock import Clock, SystemClock
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.signing import Credentials, signature
from tiered.daemon.config import Loaded, differing
from tiered.daemon.doors import LoopBeat, PageDoor, archive_pages, background, health_service
from tiered.daemon.following import Following
from tiered.daemon.lock import StateLock
from tiered.daemon.notify import Notifier
from tiered.daemon.placing import BY_TABLE, Placing
from tiered.daemon.portfile import GATEWAY_WEB_PORT_FILE
from tiered.daemon.signals import Signals
from tiered.errors import Invalid, TieredError
from tiered.gateway.answers.answers import Answers
from tiered.gateway.answers.keyvalues import MOST_AT_ONCE, KeyValueDoor
from tiered.gateway.app import GatewayApp
from tiered.gateway.knowledge.opening import LateArchive
from tiered.gateway.knowledge.questions import Floors
from tiered.gateway.knowledge.samebroker import SameBroker
from tiered.gateway.nodes.fleet import NodePlace
from tiered.gateway.nodes.reads import Reads, node_addresses
from tiered.http.health import HealthPages
from tiered.membership.open import open_membership
from tiered.metrics import Metrics
from tiered.provider.open import open_provider
from tiered.service import Service
from tiered.settings import Settings
from tiered.store import MessageStore

log = logging.getLogger("tiered.gateway")

DIRECTORY = "gateway"
LIVE = frozenset({"fetch.storage_level", "fetch.topic_storage_levels", "gateway.read_nodes"})
"""Settings that a SIGHUP takes over."""


def run_gateway(loaded: Loaded, env: Mapping[str, str], again: Callable[[], Loaded]) -> int:
    """Serve until a signal; the exit code. ``again`` reads the settings anew, for SIGHUP."""
    keep_freed_memory()
    clock, stop = SystemClock(), threading.Event()
    with ExitStack() as stack:
        process = GatewayProcess(loaded.settings, clock, Metrics(), Notifier.from_environment(env))
        signals = stack.enter_context(
            Signals(stop, clock, on_first=process.stopping, on_hangup=lambda: process.reload(again))
        )
        process.open(stack)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(process.serve(signals.rearm))
    return 0


def state_directory(settings: Settings) -> Path | None:
    """Where the gateway keeps its lock and its ports; ``None`` without a place."""
    if settings.gateway.state_directory:
        return Path(settings.gateway.state_directory)
    return Path(settings.state_directory) / DIRECTORY if settings.state_directory else None


class GatewayProcess:
    """One gateway. ``open`` makes every part but binds nothing, ``serve`` binds and runs on the calling thread's event loop."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics, notifier: Notifier) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        metrics.identify(settings.source.cluster, settings.source.broker)
        self._notifier = notifier
        self._state = state_directory(settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopped = False
        self._beat = LoopBeat(clock, notifier)
        self._app: GatewayApp
        self._pool: ThreadPoolExecutor
        self._same: SameBroker
        self._reads: Reads
        self._keys = _credentials(settings)
        self._following: Following | None = None
        self._places: Sequence[NodePlace] = ()
        self._listed: Sequence[str] | None = None
        """Read nodes that a SIGHUP named."""
        self._placing: Placing | None = None
        open_store = partial(_open_store, settings, clock, metrics)
        self._archive = LateArchive(open_store, settings.fetch)

    def open(self, stack: ExitStack) -> None:
        """Take the lock and make the parts. Raises ``Invalid`` for settings, ``Refused`` if another gateway has the lock."""
        settings = self._settings
        if self._state is not None:
            ensure_directory(self._state, "gateway.state_directory")
            stack.enter_context(StateLock(self._state))
        else:
            log.warning("the ports given to brokers are not remembered: gateway.state_directory is not set")
        self._pool = ThreadPoolExecutor(settings.fetch.threads, "answer")
        stack.callback(self._pool.shutdown, wait=False, cancel_futures=True)
        stack.callback(self._archive.close)
        store, floors = self._archive.store, Floors(self._ask, self._clock)
        self._same = SameBroker(store, floors, self._pool, self._metrics, self._clock)
        answers = Answers(
            store, settings, self._metrics, self._clock, self._pool,
            floor=floors, broker=self._same, key_values=self._key_values(stack),
        )  # fmt: skip
        self._reads = answers.reads
        self._app = GatewayApp(
            settings.gateway, self._clock, self._metrics, answers, self._state, settings.source.broker,
            settings.tenants,
        )  # fmt: skip
        background(stack, Service("archive", self._archive.step, self._clock))
        self._follow(stack)
        self._place(stack)
        self._web(stack)

    async def serve(self, begun: Callable[[], None] = lambda: None) -> None:
        """Bind, and serve until ``stopping`` is called. ``begun`` is called first, on the loop's thread."""
        begun()
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._stopped:
            return
        if self._places:
            self._reads.fleet.set_nodes(self._places)
        if self._listed is not None:
            self._reads.set_nodes(self._listed)
        settings = self._settings.gateway
        pages = await archive_pages(
            PageDoor(settings.http_listen, "gateway.http_listen", settings.http_token),
            self._archive.store,
            self._clock,
            self._pool,
            self._metrics,
            log,
            settings.read_timeout_ms,
        )
        self._app.open()
        self._notifier.ready("serving")
        beside = [
            asyncio.create_task(self._beat.run()),
            asyncio.create_task(self._same.watch(self._app.brokers.archived)),
            asyncio.create_task(self._reads.fleet.watch()),
        ]
        try:
            await self._app.run(self._stop)
        finally:
            for task in beside:
                task.cancel()
            self._reads.fleet.close()
            if pages is not None:
                await pages.close()
        log.info("the gateway has stopped")

    def stopping(self, name: str) -> None:
        """The first signal, on a thread of its own."""
        if self._stopped:
            return
        log.info("stopping: connections are being ended; a second signal gives up", extra={"signal": name})
        self._notifier.stopping()
        self._stopped = True
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)

    def reload(self, again: Callable[[], Loaded]) -> None:
        """Take over what can change while it runs, storage levels and read nodes; said in the log, what cannot as well."""
        try:
            found = again().settings
            changed = [key for key in differing(self._settings, found) if key not in LIVE]
            nodes = node_addresses(found.gateway)
            self._archive.set_levels(found.fetch)
        except TieredError as error:
            log.error("the settings were read again and are not taken over: %s", error)
            return
        levels = {"default": found.fetch.storage_level, "topics": list(found.fetch.topic_storage_levels)}
        log.info("storage levels", extra=levels)
        listed = self._following is None
        if listed and tuple(self._reads.nodes()) != nodes:
            self._listed = (
                nodes  # before the loop is looked for: one that is not there yet takes them when it begins
            )
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._reads.set_nodes, nodes)
            log.info("read nodes", extra={"nodes": nodes})
        if changed:
            log.warning("changed settings that wait for a restart", extra={"keys": changed})

    async def _ask(self, address: str, request: Command, seconds: float) -> Command:
        if self._keys is not None:
            signed = {**request.ext, **signature(self._keys, request.ext, request.body)}
            request = structs.replace(request, ext=signed)
        return await self._app.brokers.ask(address, request, seconds)

    def _key_values(self, stack: ExitStack) -> KeyValueDoor | None:
        """The door to a key-value view. Its calls wait for broker and redo, so they have a pool of their own."""
        url = self._settings.gateway.kv_url
        if not url:
            return None
        pool = ThreadPoolExecutor(MOST_AT_ONCE, "kv")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        KeyValueClient(url).close()  # what makes no sense is said now
        door = KeyValueDoor(lambda token: KeyValueClient(url, token=token), pool, self._metrics)
        stack.callback(door.close)
        return door

    def _follow(self, stack: ExitStack) -> None:
        """Have the read nodes be those of the membership, if there is one; then the settings' list is not looked at."""
        settings = self._settings
        if not settings.gateway.membership:
            return
        every = settings.gateway.member_poll_ms / 1000
        membership = open_membership(settings, self._clock, look_seconds=every, observer=self._metrics)
        self._following = Following(membership, self._take, self._clock, self._metrics, every)
        background(stack, Service("members", self._following.step, self._clock))
        stack.callback(self._following.stop)

    def _place(self, stack: ExitStack) -> None:
        """Have busy queues where the newest table of placement says, if that is wanted."""
        settings = self._settings
        if settings.gateway.placement != BY_TABLE:
            return
        if not settings.archive.url:
            raise Invalid(
                "a table of placement lies in an archive",
                key="archive.url",
                hint="set archive.url, or gateway.placement = hash",
            )
        provider = open_provider(settings.archive.url, settings.store, self._clock, observer=self._metrics)
        stack.callback(provider.close)
        keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
        self._placing = Placing(provider, keys, self._reads.fleet, self._clock)
        background(stack, Service("placement", self._placing.step, self._clock))

    def _take(self, places: Sequence[NodePlace]) -> None:
        self._places = places
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended: nobody reads any more
                self._loop.call_soon_threadsafe(self._reads.fleet.set_nodes, places)

    def _web(self, stack: ExitStack) -> None:
        """Health and metrics; the port is written to the state directory."""
        pages = HealthPages(
            live=self._beat.live, ready=self._ready, metrics=self._expose, status=self._status
        )
        door = PageDoor(self._settings.gateway.web_listen, "gateway.web_listen")
        file = None if self._state is None else self._state / GATEWAY_WEB_PORT_FILE
        background(stack, health_service(stack, door, pages, self._clock, log, file))

    def _ready(self) -> tuple[bool, str]:
        """Ready to pass traffic and to answer what is cold: not before the archive was open, nor for another broker's archive.

        An archive that goes away later is only said: taking the gateway out of service would cut hot traffic too.
        """
        ready, why = self._app.ready()
        problem = self._problem()
        if problem is None:
            return ready, why
        return ready and self._archive.was_open and self._same.problem is None, f"{why}; {problem}"

    def _problem(self) -> str | None:
        """Why nothing cold is answered, or not for everybody; ``None``: it is."""
        if self._archive.problem is not None:
            return f"the archive cannot be read: {self._archive.problem}"
        if self._same.problem is not None:
            return f"nothing archived is served: {self._same.problem}"
        if self._same.unknown is not None:
            return f"it is not known whether the archive is of this broker: {self._same.unknown}"
        return None

    def _expose(self) -> bytes:
        self._app.publish()
        self._reads.fleet.publish()
        if self._following is not None:
            self._following.publish()
        self._metrics.gateway_archive_open.set(1 if self._archive.problem is None else 0)
        self._metrics.ready.set(1 if self._ready()[0] else 0)
        return self._metrics.expose()

    def _status(self) -> Mapping[str, object]:
        ready, why = self._ready()
        return {
            "ready": ready,
            "said": why,
            "problem": self._problem(),
            "archive": self._archive.problem or "open",
            "read_nodes": self._reads.nodes(),
            "tenants": self._archive.store.tenants(),
            "fleet": self._reads.fleet.status(),
            "placement": None if self._placing is None else self._placing.status(),
            "membership": None if self._following is None else self._following.status(),
            **self._app.status(),
        }


def _credentials(settings: Settings) -> Credentials | None:
    keys = settings.gateway
    return Credentials(keys.access_key, keys.secret_key) if keys.access_key else None


def _open_store(settings: Settings, clock: Clock, metrics: Metrics, stack: ExitStack) -> MessageStore:
    store = MessageStore.open(settings, clock, metrics, stack=stack, name="gateway", wait_for_archive=True)
    calm_collector()
    return store
