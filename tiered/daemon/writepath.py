"""Archiving itself: from the claimed epoch to the drained stop. Composes dispatcher and committer and answers for them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tiered.archive.log.localfiles import record_distrust
from tiered.backoff import Backoff
from tiered.daemon.checkpointer import Checkpointer
from tiered.daemon.observer import Observer
from tiered.daemon.once import PresentEnd
from tiered.daemon.parts import Choices, Parts
from tiered.daemon.status import Reporter, View
from tiered.daemon.stillness import Stillness
from tiered.daemon.sweeping import Sweeper
from tiered.errors import Unavailable
from tiered.filter.topicpolicy import TopicPolicy, restore_loss
from tiered.model import PhysicalOffset
from tiered.opening.archiver import Archiver, Opened
from tiered.opening.comparison import first_local_ms
from tiered.service import AGAIN, DONE, Health, Next, Service, State, Supervisor, pause
from tiered.source.start import resolve_start
from tiered.write.committer import Committer
from tiered.write.dispatcher import Dispatcher, Hooks
from tiered.write.preparer import PooledCompression, Preparer

log = logging.getLogger("tiered.daemon")

IDLE_STEP_SECONDS = 0.2
CHECKPOINT_LOOK_SECONDS = 0.5
ONCE_DRAIN_SECONDS = 3600.0
LONG_STEP_SECONDS = 5.0
"""A step that takes longer is worth naming when archiving stands still."""


class Archiving:
    """One writer at work. ``run`` blocks; the other methods answer from any thread."""

    def __init__(
        self,
        parts: Parts,
        choices: Choices,
        stop: threading.Event,
        observer: Observer,
        end: PresentEnd | None = None,
        *,
        stillness: Stillness | None = None,
        problem: Callable[[str], None] = lambda text: None,
    ) -> None:
        """``end``: where ``--once`` ends; ``None`` for a daemon, which has no end. ``problem`` hears what opening waits for."""
        self._problem = problem
        self._end = end
        self._parts = parts
        self._choices = choices
        self._stop = stop
        self._observer = observer
        self._supervisor: Supervisor | None = None
        self._finished = False
        self._services: list[Service] = []
        self._early: tuple[Service, ...] = ()
        source = parts.settings.source
        self._reporter = Reporter(
            parts.log, parts.source, parts.clock,
            cluster=source.cluster, broker=source.broker, archive_url=parts.provider.url, stillness=stillness,
        )  # fmt: skip
        self._reporter.weak = list(parts.weak)

    def run(
        self,
        stack: ExitStack,
        early: Sequence[Service],
        on_ready: Callable[[], None],
        beat: Callable[[], None],
    ) -> int:
        """Claim, then run the services until stopped, done (``once``) or a fatal error, which is raised; the exit code.

        ``early``: services that run since before the archive was opened and have no end of their own.
        """
        parts = self._parts
        committer, dispatcher = self._compose(stack, self._open())
        self._early = tuple(early)
        self._services = [*early, *self._make_services(committer, dispatcher)]
        on_ready()
        watchdog = parts.settings.watchdog
        self._supervisor = Supervisor(
            self._services,
            parts.clock,
            stuck_seconds=watchdog.stuck_ms / 1000,
            fatal_seconds=watchdog.fatal_ms / 1000,
            drain_seconds=watchdog.drain_ms / 1000,
            metrics=parts.metrics,
            on_fatal=lambda error: parts.give_up.set(),
            beat=beat,
        )
        code = self._supervisor.run(self._stop)
        if self._supervisor.health.fatal is not None:
            raise self._supervisor.health.fatal
        verdict = self._end.verdict() if self._end is not None else None
        if self._end is not None:
            self._sum_up(complete=verdict is None and self._finished)
        if verdict is not None and code == 0:
            raise verdict
        return code

    def _sum_up(self, *, complete: bool) -> None:
        """The last words of ``--once``: how much it archived."""
        totals = self._reporter.totals
        log.info(
            "archived everything up to the broker's end" if complete else "archived what could be archived",
            extra={"messages": totals.messages, "bytes": totals.bytes, "commits": totals.commits},
        )
        if complete:
            self._choices.progress(100)

    @property
    def running(self) -> bool:
        """Whether the epoch is claimed and the services run."""
        return self._supervisor is not None

    def touch(self) -> None:
        """Somebody waits for the store, and says so: no step is wedged."""
        for service in self._services:
            service.touch()

    def health(self) -> Health | None:
        """What the watch over the workers sees; ``None`` before they run."""
        return self._supervisor.health if self._supervisor is not None else None

    def look(self) -> View:
        """One look at what pages show. It reads files: not for callers that may not hang."""
        view = self._reporter.look()
        start, target = self._reporter.start, self._end.target if self._end is not None else None
        if start is not None and view.proven is not None and target is not None and target > start:
            self._choices.progress(min(100, 100 * (view.proven - start) // (target - start)))
        return view

    def status(self, view: View, *, count: bool) -> Mapping[str, object]:
        """The part of ``/status`` that speaks of archiving; ``count`` as ``Reporter.status``."""
        return self._reporter.status(view, count=count)

    def waits_for(self) -> str | None:
        """What keeps the workers, as far as they know, from plain values; ``None`` if they know nothing."""
        known = []
        for service in self._services:
            busy = service.busy_seconds()
            if busy >= LONG_STEP_SECONDS:
                known.append(f"one step of {service.name} has been under way for {busy:.0f} s")
            elif service.state is State.BACKING_OFF:
                known.append(f"{service.name} waits: {service.last_unavailable}")
        dispatcher = self._reporter.dispatcher
        if dispatcher is not None and dispatcher.waiting_for:
            known.append(f"the source gives no records: {dispatcher.waiting_for}")
        return "; ".join(known) or None

    def _open(self) -> Opened:
        parts = self._parts
        loss = restore_loss(parts.settings.source.exclude_topics)
        if loss:
            log.warning(loss)
        self._archiver = Archiver(
            parts.log,
            parts.objects,
            parts.source,
            parts.clock,
            parts.settings.archive,
            parts.settings.source,
            resolve_start=lambda start: resolve_start(parts.source, start),
            first_local_ms=lambda: first_local_ms(parts.source),
            take_over=self._choices.take_over,
            say=self._observer.say,
            waiting=self._problem,
            stopping=self._stop.is_set,
        )
        opened = self._open_patiently()
        head = parts.log.tip
        assert head is not None
        parts.metrics.epoch.set(head.epoch)
        parts.metrics.epochs.inc()
        self._reporter.start = opened.position
        return opened

    def _open_patiently(self) -> Opened:
        """Open; a store that does not answer meanwhile is waited for (a standby may stand here for days)."""
        pauses = Backoff(1.0).pauses()
        while True:
            wait = next(pauses)
            try:
                return self._archiver.open()
            except Unavailable as error:
                if self._choices.once or self._stop.is_set() or self._parts.give_up.is_set():
                    raise
                self._problem(f"opening the archive failed: {error}")
                log.warning(
                    "opening the archive failed; trying again", extra={"error": str(error), "wait": wait}
                )
            if self._parts.clock.wait(wait, self._stop):
                raise Unavailable("stopped while the archive was opened")
            self._follow_again()

    def _follow_again(self) -> None:
        try:
            self._parts.log.follow()
        except Unavailable as error:
            log.warning("the store does not answer", extra={"error": str(error)})

    def _compose(self, stack: ExitStack, opened: Opened) -> tuple[Committer, Dispatcher]:
        parts, settings = self._parts, self._parts.settings
        blocks = ThreadPoolExecutor(settings.dispatch.threads, thread_name_prefix="compress")
        uploads = ThreadPoolExecutor(settings.dispatch.upload_threads, thread_name_prefix="upload")
        stack.callback(uploads.shutdown, wait=False, cancel_futures=True)
        stack.callback(blocks.shutdown, wait=False, cancel_futures=True)
        policy = TopicPolicy(
            settings.source.exclude_topics, cluster=settings.source.cluster, broker=settings.source.broker
        )
        level = settings.dispatch.compression_level if settings.dispatch.compression == "zstd" else 0
        preparer = Preparer(
            parts.source,
            parts.log,
            settings.dispatch,
            compression=PooledCompression(blocks, settings.dispatch.threads, level),
            excluded=policy.is_excluded,
            lineage=opened.lineage,
            mark=opened.mark,
        )
        committer = Committer(
            parts.log,
            uploads,
            clock=parts.clock,
            depth=settings.dispatch.pipeline_flushes,
            backoff=Backoff(settings.archive.resend_wait_ms / 1000),
            give_up=parts.give_up,
            release=parts.source.release,
            on_proven=self._observer.proven_by(self._reporter, parts.clock),
            on_unavailable=self._observer.resend,
        )
        dispatcher = Dispatcher(
            parts.source,
            parts.log,
            preparer,
            committer,
            parts.clock,
            settings.dispatch,
            settings.source,
            position=opened.position,
            broker_mark=opened.broker,
            reconcile=self._archiver.reconcile,
            healed=self._archiver.gap_was_rewritten,
            beat_seconds=settings.archive.takeover_wait_ms / 3000 if settings.archive.standby_beat else None,
            hooks=Hooks(gap=self._gap, changed=self._observer.changed, alive=self.touch),
        )
        self._reporter.dispatcher, self._reporter.committer = dispatcher, committer
        return committer, dispatcher

    def _at_end(self, dispatcher: Dispatcher) -> bool:
        """Whether everything is read that ``--once`` asks for."""
        waiting_for = dispatcher.waiting_for if dispatcher.caught_up else None
        return self._end is not None and self._end.done(dispatcher.position, waiting_for)

    def _gap(self, start: PhysicalOffset, end: PhysicalOffset, reason: str) -> None:
        self._observer.gap(start, end, reason)
        if self._end is not None:
            self._end.gap(start, end, reason)

    def _make_services(self, committer: Committer, dispatcher: Dispatcher) -> list[Service]:
        parts = self._parts
        checkpointer = Checkpointer(
            parts.log, parts.settings.archive, parts.clock, os.urandom,
            shadow=parts.shadow,
            written=lambda manifest: self._observer.say("checkpoint written", {"seq": manifest.seq}),
            told=self._observer.damaged,
            distrust=lambda: record_distrust(Path(parts.settings.state_directory)),
        )  # fmt: skip

        sweeper = Sweeper(parts.provider, parts.log.reader.keys.root, lambda: self._finished)

        def commit() -> Next:
            if committer.step(IDLE_STEP_SECONDS):
                checkpointer.count()
            elif self._finished:
                checkpointer.step()
                for service in self._early:  # the process ends when every service has
                    service.stop()
                return DONE
            return AGAIN

        def dispatch() -> Next:
            wait = dispatcher.step()
            if self._at_end(dispatcher):
                dispatcher.drain(ONCE_DRAIN_SECONDS)
                # Asked again: the flush may have met a broker that had cut its log, and gone back.
                if committer.idle and not dispatcher.buffer and self._at_end(dispatcher):
                    self._finished = True
                    return DONE
            return AGAIN if wait == 0 else pause(wait)

        def drain() -> None:
            if not dispatcher.drain(parts.settings.watchdog.drain_ms / 1000):
                log.warning(
                    "stopped before everything buffered was proven; it is read again at the next start"
                )

        def save() -> Next:
            checkpointer.step()
            return DONE if self._finished else pause(CHECKPOINT_LOOK_SECONDS)

        return [
            Service("sweeper", sweeper.step, parts.clock, metrics=parts.metrics),
            Service("checkpointer", save, parts.clock, metrics=parts.metrics),
            Service("committer", commit, parts.clock, metrics=parts.metrics),
            Service("dispatcher", dispatch, parts.clock, finish=drain, metrics=parts.metrics),
        ]
