"""The key-value view of a read node: a store of its own that follows the archive, and is made again where it is lost.

It writes nothing to the bucket, asks no broker, and reads no commitlog. What goes wrong with it never ends the node, which
reads messages all the same: the view stands still, says so, and tries again.
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tiered.archive.log.localfiles import ensure_directory
from tiered.clock import Clock
from tiered.daemon.keyvalue import DIRECTORY, open_view
from tiered.daemon.lock import StateLock
from tiered.daemon.viewhealth import publish_view, view_ready, view_status
from tiered.errors import Invalid, Refused, TieredError, Unavailable
from tiered.metrics import Metrics
from tiered.service import Next, Service, pause
from tiered.settings import Settings
from tiered.view.view import KeyValueView

log = logging.getLogger("tiered.node")

AGAIN_SECONDS = 10.0
"""Until what an error stopped is tried again."""


def view_directory(settings: Settings) -> Path:
    """Where the node's view has its store. ``Invalid`` without a place."""
    if settings.kv.state_directory:
        return Path(settings.kv.state_directory)
    if settings.serve.state_directory:
        return Path(settings.serve.state_directory) / DIRECTORY
    raise Invalid(
        "the read node's view has no place for its store", key="kv.state_directory",
        hint="set it, or serve.state_directory; it may be emptied whenever the node does not run",
    )  # fmt: skip


def of_the_archive(settings: Settings) -> Settings:
    """Settings of a view that follows the archive alone, and writes nothing there."""
    return replace(
        settings,
        source=replace(settings.source, store_dir="", commitlog_dirs=""),
        kv=replace(settings.kv, broker_address="", namesrv="", ask_end=False, snapshot_ms=0),
    )


class NodeView:
    """``step`` is the step of a service that opens the view and applies; all else is for any thread."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics, give_up: threading.Event) -> None:
        """``Invalid`` if there is no place for its store, ``Refused`` if another view has it."""
        self.problem: str | None = "the view is being opened"
        """Why it stands still."""
        self._settings = of_the_archive(settings)
        self._clock = clock
        self._metrics = metrics
        self._give_up = give_up
        self._stack = ExitStack()
        self._view: KeyValueView | None = None
        self._directory = view_directory(settings)
        ensure_directory(self._directory, "kv.state_directory")
        self._stack.enter_context(StateLock(self._directory))

    def service(self) -> Service:
        """The one that steps; not started."""
        made = Service("redo", self.step, self._clock, finish=self._finish, metrics=self._metrics)
        made.on_failure = lambda ended: self._ended(ended.error)
        return made

    def step(self) -> Next:
        """Open it, or apply what the archive has more. ``Unavailable``: the bucket, or the disk, is away."""
        try:
            if self._view is None:
                self._view = self._open()
            self._check_room(self._view)
            wanted = self._view.step()
        except Unavailable as error:
            self._stands(str(error))
            raise
        except TieredError as error:
            self._stands(str(error))
            if self._view is not None:
                self._view.go_back()
            return pause(AGAIN_SECONDS)
        if self.problem is not None:
            log.info("the key-value view follows the archive")
        self.problem = None
        return wanted

    def values(self) -> KeyValueView:
        """The view. ``Unavailable`` while it is not open."""
        if self._view is None:
            raise Unavailable("the key-value view is not open", found=self.problem, hint="ask again later")
        return self._view

    def stale_ms(self) -> int | None:
        """See ``KeyValueView``; ``None`` also while it is not open."""
        return None if self._view is None else self._view.stale_ms()

    def ready(self) -> tuple[bool, str]:
        """Whether it is up to date, and why not."""
        if self.problem is not None:
            return False, f"the key-value view stands still: {self.problem}"
        return view_ready(self.values())

    def publish(self) -> None:
        """Set its gauges."""
        self._metrics.kv_standing.set(0 if self.problem is None else 1)
        if self._view is not None:
            publish_view(self._view, self._metrics)

    def status(self) -> dict[str, object]:
        """For ``/status``."""
        ready, said = self.ready()
        told = {} if self._view is None else view_status(self._view)
        return {"ready": ready, "said": said, "problem": self.problem, **told}

    def close(self) -> None:
        """Close the store; the service has ended."""
        self._view = None
        self._stack.close()

    def _open(self) -> KeyValueView:
        with ExitStack() as inner:
            made = open_view(
                inner, self._settings, self._clock, self._metrics, self._directory, self._give_up
            )
            self._stack.push(inner.pop_all())
        return made.view

    def _check_room(self, view: KeyValueView) -> None:
        most, found = self._settings.serve.key_value_bytes, view.stored_bytes()
        if found > most:
            raise Refused(
                "the store of the read node's view is larger than it may be: nothing more is applied",
                expected=f"at most {most} bytes", found=f"{found} bytes", hint="raise serve.key_value_bytes",
            )  # fmt: skip

    def _stands(self, why: str) -> None:
        if why != self.problem:
            log.error("the key-value view stands still: %s", why)
        self.problem = why

    def _ended(self, error: BaseException | None) -> None:
        """A fault of ours: the view is not tried again, and what waits for it is told."""
        self._stands(f"it ended: {error!r}; restart the node")
        if self._view is not None:
            self._view.progress.end(str(error))

    def _finish(self) -> None:
        if self._view is not None:
            self._view.finish()
