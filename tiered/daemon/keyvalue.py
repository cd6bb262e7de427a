"""The key-value view's process: a reader of the commitlog beside it, and of the archive, with a store and doors of its own.

The order of opening: the local lock, the store, source and archive, the view; its service first, so that redo begins; then the
doors. It takes no epoch, writes nothing to the archive but snapshots that it is asked for, and holds no file of the broker's.
Threads: ``redo`` (one: applies), ``web`` (health and metrics), the doors' event loop and their pool.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from tiered.allocator import calm_collector, keep_freed_memory
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.localfiles import ensure_directory
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.scope import Scope
from tiered.broker.client import Dial, RemotingClient
from tiered.broker.master import MasterFinder
from tiered.clock import Clock, SystemClock
from tiered.codec.remoting.signing import Credentials
from tiered.daemon.config import Loaded
from tiered.daemon.doors import PageDoor, health_service, write_port
from tiered.daemon.lock import StateLock
from tiered.daemon.notify import Notifier
from tiered.daemon.portfile import KEY_VALUE_PORT_FILE, WEB_PORT_FILE
from tiered.daemon.signals import Signals
from tiered.daemon.viewhealth import publish_view, view_ready, view_status
from tiered.errors import Invalid, TieredError
from tiered.feed.archived import ArchivedFeed
from tiered.feed.joined import JoinedFeed
from tiered.feed.live import LiveFeed
from tiered.feed.remote import RemoteFeed
from tiered.http.health import HealthPages
from tiered.http.kv.server import KeyValueServer
from tiered.http.server import OwnLoop
from tiered.metadata.base import RedoStore
from tiered.metadata.open import open_redo
from tiered.metrics import Metrics
from tiered.model import PhysicalOffset
from tiered.provider.open import open_provider
from tiered.service import Service, Supervisor
from tiered.settings import Settings
from tiered.source.open import open_source
from tiered.text.addresses import split_addresses
from tiered.view.keeping import SnapshotKeeper, SnapshotPlace, begin_with_snapshot
from tiered.view.progress import ViewProgress
from tiered.view.putting import Connections, PutLimits, Putter
from tiered.view.redo import Applied, KeyValueRedo
from tiered.view.view import KeyValueView, OpenFeed, ViewPace

log = logging.getLogger("tiered.view")

DIRECTORY = "kv"
POOL_THREADS = 64
"""Calls of doors that wait at one time: for the broker, for redo, for the store's disk."""
STAMP = "kv-1"
SETTLE_SECONDS = 0.001


def state_directory(settings: Settings) -> Path:
    """Where the view keeps its store and its lock. ``Invalid`` without a place."""
    if settings.kv.state_directory:
        return Path(settings.kv.state_directory)
    if settings.state_directory:
        return Path(settings.state_directory) / DIRECTORY
    raise Invalid(
        "the view has no place for its store", key="kv.state_directory", hint="set it, or source.store_dir"
    )


@dataclass(frozen=True, slots=True)
class OpenedView:
    """A view, the service that applies, and who takes snapshots of it, if anybody does."""

    view: KeyValueView
    redo: Service
    keeper: SnapshotKeeper | None


def open_view(
    stack: ExitStack,
    settings: Settings,
    clock: Clock,
    metrics: Metrics,
    state: Path,
    give_up: threading.Event,
) -> OpenedView:
    """The view and its parts; nothing is started yet, and ``stack`` closes all of it. An empty store begins with the newest
    snapshot."""
    kv = settings.kv
    store = open_store(stack, settings, state)
    place = open_place(stack, settings, clock, metrics, give_up)
    if place is not None:
        begin_with_snapshot(place, store)
    redo = KeyValueRedo(store, kv.topic_prefix, kv.max_value_bytes)
    archive = None if place is None else _archive(settings, place)
    live = _live(settings, clock, redo)
    feed = _feeds(settings, clock, redo, archive, live)
    physical = redo.position.physical
    progress = ViewProgress(clock, redo.states, int(physical or 0), usable=physical is not None)
    pace = ViewPace(kv.poll_ms / 1000, SETTLE_SECONDS, kv.flush_ms / 1000, kv.timeout_ms / 1000)
    view = KeyValueView(store, redo, feed, progress, pace, clock, lambda done: _count(metrics, done))
    service = Service("redo", view.step, clock, finish=view.finish, metrics=metrics)
    view.nudge = service.wake
    stack.callback(progress.end, "the view has stopped")
    if kv.broker_address or kv.namesrv:
        # Where name servers say who is the master, the log beside this process may end where another's goes on.
        elsewhere = bool(kv.ask_end or kv.namesrv)
        view.putter = _putter(
            stack, settings, clock, progress, _stored(service.wake, None if elsewhere else live)
        )
        view.end = view.putter.log_end if elsewhere else None
    return OpenedView(view, service, _keeper(settings, clock, view, place))


def _keeper(
    settings: Settings, clock: Clock, view: KeyValueView, place: SnapshotPlace | None
) -> SnapshotKeeper | None:
    kv = settings.kv
    if place is None or not kv.snapshot_ms:
        return None
    every_seconds = kv.snapshot_ms / 1000
    return SnapshotKeeper(
        place, view.frozen, clock, os.urandom, every_seconds=every_seconds, keep=kv.snapshots_kept
    )


def _live(settings: Settings, clock: Clock, redo: KeyValueRedo) -> LiveFeed | None:
    """The commitlog beside this process, if there is one."""
    if not settings.commitlog_directories:
        return None
    tail = replace(settings.source, confirm_reread_ms=settings.kv.confirm_ms)
    return LiveFeed(open_source(tail, settings.hold, clock), redo.wanted, settings.kv.batch_bytes)


def _stored(wake: Callable[[], None], beside: LiveFeed | None) -> Callable[[int | None], None]:
    """What is done when a broker stored a write: ``beside`` reads the log of that very broker, and is told where it lies."""

    def stored(place: int | None) -> None:
        if beside is not None and place is not None:
            beside.stored(PhysicalOffset(place))
        wake()

    return stored


def _feeds(
    settings: Settings, clock: Clock, redo: KeyValueRedo, archive: ArchiveReader | None, live: LiveFeed | None
) -> OpenFeed:
    """What is followed: the commitlog beside this process and the archive behind it, or the archive alone."""
    kv = settings.kv

    def archived(reader: ArchiveReader) -> ArchivedFeed:
        return ArchivedFeed(reader, kv.topic_prefix, redo.following)

    if live is not None:
        return lambda position: JoinedFeed(live, None if archive is None else archived(archive), position)
    if archive is None:
        raise Invalid(
            "there is nothing to follow", key="source.store_dir",
            hint="set it to a broker's storePathRootDir, or archive.url to its archive, or both",
        )  # fmt: skip
    every_seconds = settings.fetch.follow_ms / 1000
    return lambda position: RemoteFeed(archived(archive), position, clock, every_seconds)


def open_store(stack: ExitStack, settings: Settings, state: Path) -> RedoStore:
    """The view's own store; ``stack`` closes it. Its directory must be locked."""
    kv = settings.kv
    store = open_redo(
        kv.store, state, kv.cache_bytes, stamp=STAMP, map_bytes=kv.map_bytes, read_one_by_one=True
    )
    stack.callback(store.close)
    return store


def open_place(
    stack: ExitStack, settings: Settings, clock: Clock, metrics: Metrics, give_up: threading.Event
) -> SnapshotPlace | None:
    """The bucket that has what the broker no longer has, and snapshots; ``None`` if no archive is named."""
    if not settings.archive.url:
        return None
    opened = open_provider(settings.archive.url, settings.store, clock, observer=metrics, stop=give_up)
    stack.callback(opened.close)
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    return SnapshotPlace(encrypted(opened, settings.encryption), keys)


def _archive(settings: Settings, place: SnapshotPlace) -> ArchiveReader:
    scope = Scope.beginning(settings.kv.topic_prefix)
    return ArchiveReader(
        place.provider, place.keys, PartialStore(scope), table_cache_bytes=settings.fetch.table_cache_bytes
    )


def _putter(
    stack: ExitStack,
    settings: Settings,
    clock: Clock,
    progress: ViewProgress,
    stored: Callable[[int | None], None],
) -> Putter:
    kv = settings.kv
    keys = Credentials(kv.access_key, kv.secret_key) if kv.access_key else None
    dial = Dial(kv.timeout_ms / 1000, credentials=keys, section="kv")
    connections = Connections(
        lambda address: RemotingClient(address, clock, dial),
        _master(stack, settings, clock, dial),
        kv.connections,
        kv.timeout_ms / 1000,
    )
    stack.callback(connections.close)
    limits = PutLimits(kv.timeout_ms / 1000, kv.max_value_bytes)
    return Putter(connections, kv.topic_prefix, progress, stored, limits, os.urandom, clock)


def _master(stack: ExitStack, settings: Settings, clock: Clock, dial: Dial) -> Callable[[], str]:
    """Who takes writes: the one that is named, or whom the name servers name."""
    kv = settings.kv
    if not kv.namesrv:
        return lambda: kv.broker_address
    servers = [f"{host}:{port}" for host, port in split_addresses(kv.namesrv, key="kv.namesrv")]
    finder = MasterFinder(servers, settings.source.broker, clock, dial)
    stack.callback(finder.close)
    return finder.ask


def _count(metrics: Metrics, done: Applied) -> None:
    metrics.kv_messages.inc(done.messages)
    metrics.kv_malformed.inc(done.malformed)
    metrics.kv_off_queue.inc(done.off_queue)
    metrics.kv_rejected.inc(sum(map(len, done.rejections.values())))
    metrics.kv_applied_offset.set(done.position.physical or 0)


def run_key_values(loaded: Loaded, env: Mapping[str, str]) -> int:
    """Serve until a signal; the exit code."""
    keep_freed_memory()
    clock, stop = SystemClock(), threading.Event()
    with ExitStack() as stack:
        process = KeyValueProcess(loaded.settings, clock, Metrics(), Notifier.from_environment(env), stop)
        signals = stack.enter_context(Signals(stop, clock, on_first=process.stopping))
        process.open(stack)
        signals.rearm()
        return process.run()


class KeyValueProcess:
    """One view with its doors. ``open`` makes and binds everything, ``run`` serves until ``stop`` is set."""

    def __init__(
        self, settings: Settings, clock: Clock, metrics: Metrics, notifier: Notifier, stop: threading.Event
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        metrics.identify(settings.source.cluster, settings.source.broker)
        self._notifier = notifier
        self._stop = stop
        self._view: KeyValueView
        self._progress: ViewProgress
        self._keeper: SnapshotKeeper | None = None
        self._services: list[Service] = []
        self._supervisor: Supervisor

    def open(self, stack: ExitStack) -> None:
        """``Refused`` if another view has the lock; ``Invalid``, ``NotFound``, ``Unavailable`` of what it is made of."""
        settings = self._settings
        state = state_directory(settings)
        ensure_directory(state, "kv.state_directory")
        stack.enter_context(StateLock(state))
        opened = open_view(stack, settings, self._clock, self._metrics, state, self._stop)
        self._view, self._keeper = opened.view, opened.keeper
        self._progress = self._view.progress
        calm_collector()
        pool = ThreadPoolExecutor(POOL_THREADS, "answer")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        self._services = [opened.redo, *self._doors(stack, state, pool), *self._web(stack, state)]
        if opened.keeper is not None:
            self._services.append(Service("snapshot", opened.keeper.step, self._clock))
        self._supervisor = Supervisor(
            self._services,
            self._clock,
            metrics=self._metrics,
            on_fatal=self._fatal,
            beat=self._notifier.watchdog,
        )

    def run(self) -> int:
        """Serve; the exit code."""
        self._notifier.ready("serving")
        code = self._supervisor.run(self._stop)
        log.info("the key-value view has stopped")
        return code

    def stopping(self, name: str) -> None:
        """The first signal, on a thread of its own."""
        log.info("stopping; a second signal gives up", extra={"signal": name})
        self._notifier.stopping()

    def _fatal(self, error: BaseException) -> None:
        log.error("the view ends: %s", error, exc_info=None if isinstance(error, TieredError) else error)
        self._progress.end(str(error))

    def _doors(self, stack: ExitStack, state: Path, pool: ThreadPoolExecutor) -> list[Service]:
        """The pages of ``/v1/kv``; their port is written to the state directory."""
        if not self._settings.kv.http_listen:
            return []
        pages = KeyValueServer(
            self._view, self._settings.kv, pool, self._metrics, stale_ms=self._view.stale_ms
        )
        server = OwnLoop(pages, uvloop.new_event_loop)
        server.open()
        stack.callback(server.close)
        write_port(stack, state / KEY_VALUE_PORT_FILE, server.address[1])
        log.info("key-value pages", extra={"address": "http://{}:{}".format(*server.address)})
        return [Service("doors", server.step, self._clock)]

    def _web(self, stack: ExitStack, state: Path) -> list[Service]:
        """Health and metrics; the port is written to the state directory."""
        pages = HealthPages(live=self._live, ready=self._ready, metrics=self._expose, status=self._status)
        door = PageDoor(self._settings.kv.web_listen, "kv.web_listen")
        service = health_service(stack, door, pages, self._clock, log, state / WEB_PORT_FILE)
        return [] if service is None else [service]

    def _live(self) -> tuple[bool, str]:
        health = self._supervisor.health
        return health.live, "live" if health.live else f"stuck: {', '.join(health.stuck)}"

    def _ready(self) -> tuple[bool, str]:
        return view_ready(self._view)

    def _expose(self) -> bytes:
        publish_view(self._view, self._metrics)
        self._metrics.ready.set(1 if self._ready()[0] else 0)
        return self._metrics.expose()

    def _status(self) -> Mapping[str, object]:
        ready, why = self._ready()
        return {
            "ready": ready,
            "said": why,
            **view_status(self._view),
            "snapshot_taken_ms": None if self._keeper is None else self._keeper.taken_ms,
            "snapshot_trouble": None if self._keeper is None else self._keeper.trouble,
        }
