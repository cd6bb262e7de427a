"""Reads of the key-value view on a read node: the view that follows the archive, and its doors, HTTP and remoting."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tiered.clock import Clock
from tiered.daemon.doors import background, write_port
from tiered.daemon.nodeview import NodeView
from tiered.daemon.portfile import KEY_VALUE_PORT_FILE
from tiered.gateway.answers.keyvalues import KeyValueDoor
from tiered.http.kv.server import KeyValueServer
from tiered.metrics import Metrics
from tiered.node.keyvalues import ArchiveValues, LocalCalls
from tiered.settings import Settings

log = logging.getLogger("tiered.node")

POOL_THREADS = 32
"""Reads of the view at one time, of both doors: more wait for their turn."""


class NodeKeyValues:
    """The parts; ``stack`` ends them. ``start`` and ``close_pages`` on the node's event loop."""

    def __init__(
        self,
        stack: ExitStack,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        give_up: threading.Event,
    ) -> None:
        """``Invalid``, ``Refused``: see ``NodeView``."""
        self.view = NodeView(settings, clock, metrics, give_up)
        stack.callback(self.view.close)
        pool = ThreadPoolExecutor(POOL_THREADS, "kv")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        values = ArchiveValues(self.view.values, settings.serve.key_value_writer)
        token = settings.kv.http_token
        self.door = KeyValueDoor(
            lambda shown: LocalCalls(values, token, shown),
            pool,
            metrics,
            self.view.stale_ms,
            settings.kv.max_value_bytes,
            settings.kv.topic_prefix,
        )
        self._pages: KeyValueServer | None = None
        if settings.kv.http_listen:
            self._pages = KeyValueServer(values, settings.kv, pool, metrics, stale_ms=self.view.stale_ms)
        self._stack = stack
        state = settings.serve.state_directory
        self._file = Path(state) / KEY_VALUE_PORT_FILE if state else None
        background(stack, self.view.service())

    async def start(self) -> None:
        """Bind the pages, if there is an address for them. ``Invalid`` names ``kv.http_listen``."""
        if self._pages is None:
            return
        await self._pages.start()
        if self._file is not None:
            write_port(self._stack, self._file, self._pages.address[1])
        log.info("key-value pages", extra={"address": "http://{}:{}".format(*self._pages.address)})

    async def close_pages(self) -> None:
        """Stop listening."""
        if self._pages is not None:
            await self._pages.close()
