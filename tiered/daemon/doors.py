"""What the processes that serve readers have in common: health pages, the archive's pages, and whether the event loop turns."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tiered.clock import Clock
from tiered.daemon.notify import Notifier
from tiered.gateway.knowledge.opening import LateStore
from tiered.http.archive.pages import ArchivePages
from tiered.http.archive.server import ArchiveServer
from tiered.http.health import HealthPages, HealthServer
from tiered.metrics import Metrics
from tiered.service import Service
from tiered.settings import Web
from tiered.text.addresses import split_address

SILENT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PageDoor:
    """Where pages are served: the address, the setting that names it, and what readers must show (empty: nothing)."""

    listen: str
    key: str
    token: str = ""

    @property
    def address(self) -> tuple[str, int]:
        """Host and port. ``Invalid`` names the setting."""
        return split_address(self.listen, key=self.key, listening=True)


class LoopBeat:
    """Whether the event loop turns: told to the service manager every second, and to whoever asks for health."""

    def __init__(self, clock: Clock, notifier: Notifier) -> None:
        self._clock = clock
        self._notifier = notifier
        self._beaten = clock.monotonic()

    async def run(self) -> None:
        """Beat for ever."""
        while True:
            self._beaten = self._clock.monotonic()
            self._notifier.watchdog()
            await asyncio.sleep(1.0)

    def live(self) -> tuple[bool, str]:
        """For ``/healthz``. From any thread."""
        silent = self._clock.monotonic() - self._beaten
        if silent > SILENT_SECONDS:
            return False, f"the event loop has not turned for {silent:.0f} s"
        return True, "live"


def health_service(
    stack: ExitStack, door: PageDoor, pages: HealthPages, clock: Clock, log: logging.Logger, file: Path | None
) -> Service | None:
    """The service that answers health and metrics, bound but not started; ``None`` without an address. ``file`` has the port
    for as long as ``stack`` is open. ``Invalid`` if the address cannot be bound."""
    if not door.listen:
        return None
    server = HealthServer(Web(*door.address), pages, clock, key=door.key)
    server.open()
    stack.callback(server.close)
    if file is not None:
        write_port(stack, file, server.address[1])
    log.info("web pages", extra={"address": "http://{}:{}".format(*server.address)})
    return Service("web", server.step, clock)


async def archive_pages(
    door: PageDoor,
    store: LateStore,
    clock: Clock,
    pool: Executor,
    metrics: Metrics,
    log: logging.Logger,
    read_timeout_ms: int,
) -> ArchiveServer | None:
    """The archive's read-only pages for people and tools, served on this event loop; ``None`` without an address."""
    if not door.listen:
        return None
    server = ArchiveServer(
        door.address,
        ArchivePages(store, clock),
        pool,
        metrics,
        token=door.token,
        read_timeout_ms=read_timeout_ms,
    )
    await server.start()
    log.info("archive pages", extra={"address": "http://{}:{}".format(*server.address)})
    return server


def background(stack: ExitStack, service: Service | None) -> None:
    """Start a service, if there is one, and stop it when ``stack`` is closed."""
    if service is None:
        return
    service.start()
    stack.callback(service.join, 2.0)
    stack.callback(service.stop)


def write_port(stack: ExitStack, file: Path, port: int) -> None:
    """Tell other processes a port for as long as ``stack`` is open."""
    file.write_text(f"{port}\n")
    stack.callback(file.unlink, missing_ok=True)
