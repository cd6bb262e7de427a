"""Archiving itself: from the claimed epoch to the drained stop. Composes dispatcher and committer and answers for them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tiered.archive.care.notes import Notebook
from tiered.archive.care.scrub import Scrubber
from tiered.archive.checkpoint.store import checkpoint_keys
from tiered.archive.log.beat import beat_seconds
from tiered.archive.log.line import CommitLine
from tiered.archive.log.localfiles import record_distrust
from tiered.archive.log.maintenance import OwnKeys
from tiered.backoff import Backoff
from tiered.daemon.beating import Beating
from tiered.daemon.checkpointer import Checkpointer
from tiered.daemon.groups import GroupsFollower, follow_groups
from tiered.daemon.indexing import Indexing, NoIndexing, open_indexing
from tiered.daemon.maintenance import MaintenanceLoop, state_of, tasks_of
from tiered.daemon.observer import Observer
from tiered.daemon.once import PresentEnd
from tiered.daemon.parts import Choices, Parts
from tiered.daemon.sinks import SinkServices, start_sinks
from tiered.daemon.status import DaemonView, Names, Reporter, Workers
from tiered.daemon.stillness import Stillness
from tiered.daemon.sweeping import Sweeper
from tiered.errors import Unavailable
from tiered.filter.topicpolicy import TopicPolicy, restore_loss
from tiered.model import PhysicalOffset
from tiered.opening.claim import Claimant
from tiered.opening.open import Opened, Opening
from tiered.service import AGAIN, DONE, Health, Next, Service, ServiceState, Supervisor, WatchLimits, pause
from tiered.settings import Retain
from tiered.sink.ledger import SinkLedger
from tiered.source.base import CommitLogSource
from tiered.table.keeping import Tabling
from tiered.table.progress import TablesProgress
from tiered.write.compression import Compression
from tiered.write.dispatcher import Dispatcher, DispatchPace, unheard
from tiered.write.preparer import Preparer

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
        source: CommitLogSource,
        choices: Choices,
        stop: threading.Event,
        observer: Observer,
        end: PresentEnd | None = None,
        stillness: Stillness | None = None,
        retain: Callable[[], Retain] | None = None,
    ) -> None:
        """``end``: where ``--once`` ends; ``None`` for a daemon, which has no end. ``retain``: that section, as it is now."""
        self._end = end
        self._retain = retain
        self._parts = parts
        self._source = source
        self._choices = choices
        self._stop = stop
        self._observer = observer
        self._supervisor: Supervisor | None = None
        self._finished = False
        self._own_keys = OwnKeys()
        self._lender: str | None = None
        self._services: list[Service] = []
        self._early: tuple[Service, ...] = ()
        self._start: PhysicalOffset | None = None
        self._dispatcher: Dispatcher | None = None
        self._checkpointer: Checkpointer | None = None
        self._indexing: Indexing | NoIndexing | None = None
        self._groups: GroupsFollower | None = None
        wait_ms = parts.settings.archive.takeover_wait_ms
        self._beating = Beating(parts.log, parts.clock, beat_seconds(wait_ms))
        self.maintenance: MaintenanceLoop | None = None
        self.scrub: Scrubber | None = None
        self.tables: TablesProgress | None = None
        self.sinks: SinkServices | None = None
        self._ledger = SinkLedger()
        names = Names(
            parts.settings.source.cluster, parts.settings.source.broker, parts.provider.url, parts.weak
        )
        self._reporter = Reporter(parts.log, source, parts.clock, names, observer.totals, stillness)

    def run(
        self,
        stack: ExitStack,
        early: Sequence[Service],
        on_ready: Callable[[], None],
        beat: Callable[[], None],
        on_fatal: Callable[[BaseException], None],
        hopeless: Callable[[], BaseException | None],
    ) -> int:
        """Claim, then run the services until stopped, done (``once``) or a fatal error, which is raised; the exit code.

        ``on_fatal`` and ``hopeless``: see ``Supervisor``. ``early``: services that run since before the archive was opened and
        have no end of their own.
        """
        parts = self._parts
        line = self._make_line(stack)
        opening = self._make_opening(line)
        dispatcher = self._compose(stack, line, opening, self._open(opening))
        self._early = tuple(early)
        stack.enter_context(self._beating)
        self._services = [*early, *self._make_services(line, dispatcher)]
        self._maintain(stack, line)
        if not self._choices.once:
            self._groups = follow_groups(parts, stack)
            self.sinks = start_sinks(parts, self._ledger, line, self._stop.is_set, stack)
        on_ready()
        watchdog = parts.settings.watchdog
        self._supervisor = Supervisor(
            self._services,
            parts.clock,
            WatchLimits(
                stuck_seconds=watchdog.stuck_ms / 1000,
                fatal_seconds=watchdog.fatal_ms / 1000,
                drain_seconds=watchdog.drain_ms / 1000,
            ),
            metrics=parts.metrics,
            on_fatal=on_fatal,
            beat=beat,
            hopeless=hopeless,
        )
        code = self._supervisor.run(self._stop)
        if self._supervisor.health.fatal is not None:
            raise self._supervisor.health.fatal
        if line.idle:
            self._beating.end()
        verdict = self._end.verdict() if self._end is not None else None
        if self._end is not None:
            self._sum_up(complete=verdict is None and self._finished)
        if verdict is not None and code == 0:
            raise verdict
        return code

    def _maintain(self, stack: ExitStack, line: CommitLine) -> None:
        """Work in the background, beside the one writer: no watchdog ends the process because of it."""
        parts, settings = self._parts, self._parts.settings
        if not settings.maintenance.enabled or self._choices.once:
            return
        notebook = Notebook(state_of(settings), parts.log.reader.identity.archive_id)
        tasks = tasks_of(
            parts.log, parts.clock, settings, self._own_keys, parts.weak,
            retain=self._retain, archives=True, notebook=notebook, local=self._source,
        )  # fmt: skip
        self.tables = next(task.progress for task in tasks if isinstance(task, Tabling))
        self.scrub = Scrubber(parts.log.reader, parts.log.proven, parts.clock, settings.scrub, notebook)
        if overdue := self.scrub.overdue():  # a process that ends before its first turn has said so
            log.warning("the scrub is behind", extra={"why": overdue})
        self.maintenance = MaintenanceLoop(
            (*tasks, self.scrub), line, parts.clock, settings, parts.metrics,
            lambda: self._stop.is_set() or parts.give_up.is_set(), failed=self.scrub.heard,
        )  # fmt: skip
        self.maintenance.start(stack)

    def _sum_up(self, *, complete: bool) -> None:
        """The last words of ``--once``: how much it archived."""
        totals = self._observer.totals.counted
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

    def look(self) -> DaemonView:
        """One look at what pages show. It reads files: not for callers that may not hang."""
        view = self._reporter.look()
        if self.scrub is not None:
            self._parts.metrics.scrub(self.scrub.figures(), overdue=self.scrub.overdue() is not None)
        if self._indexing is not None:
            self._indexing.show(self._parts.metrics)
        if self.tables is not None:
            self._parts.metrics.tables(self.tables.figures())
        start, target = self._start, self._end.target if self._end is not None else None
        if start is not None and view.proven is not None and target is not None and target > start:
            self._choices.progress(min(100, 100 * (view.proven - start) // (target - start)))
        return view

    def status(self, view: DaemonView, *, count: bool) -> Mapping[str, object]:
        """The part of ``/status`` that speaks of archiving; ``count`` as ``Reporter.status``."""
        said: Mapping[str, object] = self._reporter.status(view, count=count)
        if self._checkpointer is not None:
            unsaved = round(self._checkpointer.unsaved_seconds(), 1)
            checkpoint = {"unsaved_seconds": unsaved, "problem": self._checkpointer.standstill()}
            said = {**said, "checkpoint": checkpoint}
        looked = {"maintenance": self.maintenance, "consumequeue": self._indexing, "groups": self._groups}
        beside = {**looked, "sinks": self.sinks}
        said = {**said, **{name: each.status() for name, each in beside.items() if each is not None}}
        if self.tables is not None and (tables := self.tables.figures()):
            said = {**said, "tables": tables}
        return said if self.scrub is None else {**said, "scrub": self.scrub.document()}

    def maintenance_stands_still(self) -> str | None:
        """Why work in the background does not move, if it does not; from plain values."""
        asked = (self.maintenance, self._checkpointer)
        return next((why for each in asked if each and (why := each.standstill())), None)

    def index_stands_still(self) -> str | None:
        """Why the consume-queue index does not move, if it should."""
        return None if self._indexing is None else self._indexing.standstill()

    def waits_for(self) -> str | None:
        """What keeps the workers, as far as they know, from plain values; ``None`` if they know nothing."""
        known = []
        for service in self._services:
            busy = service.busy_seconds()
            if busy >= LONG_STEP_SECONDS:
                known.append(f"one step of {service.name} has been under way for {busy:.0f} s")
            elif service.state is ServiceState.BACKING_OFF:
                known.append(f"{service.name} waits: {service.last_unavailable}")
        if self._dispatcher is not None and self._dispatcher.waiting_for:
            known.append(f"the source gives no records: {self._dispatcher.waiting_for}")
        return "; ".join(known) or None

    def _make_line(self, stack: ExitStack) -> CommitLine:
        parts, dispatch = self._parts, self._parts.settings.dispatch
        uploads = ThreadPoolExecutor(dispatch.upload_threads, thread_name_prefix="upload")
        stack.callback(uploads.shutdown, wait=False, cancel_futures=True)
        return CommitLine(
            parts.log, uploads,
            depth=dispatch.pipeline_flushes, release=partial(parts.log.read_back.release, self._source.release),
            events=self._observer, riders=self._ledger,
        )  # fmt: skip

    def _make_opening(self, line: CommitLine) -> Opening:
        parts, archive = self._parts, self._parts.settings.archive
        claimant = Claimant(
            parts.log,
            archive.takeover_wait_ms,
            self._choices.take_over,
            self._stop.is_set,
            self._observer,
            parts.settings.dispatch.lite_queues,
            forgets_queues=parts.settings.retain.forgets_queues,
            stands_by=not self._choices.once,
        )
        return Opening(
            line,
            parts.objects,
            self._source,
            claimant,
            self._observer,
            start=parts.settings.source.start,
            accept_new_lineage=archive.new_lineage,
        )

    def _open(self, opening: Opening) -> Opened:
        parts = self._parts
        loss = restore_loss(parts.settings.source.exclude_topics)
        if loss:
            log.warning(loss)
        opened = self._open_patiently(opening)
        head = parts.log.tip
        assert head is not None
        parts.metrics.epoch.set(head.epoch)
        parts.metrics.epochs.inc()
        self._start = opened.position
        return opened

    def _open_patiently(self, opening: Opening) -> Opened:
        """Open; a store that does not answer meanwhile is waited for (a standby may stand here for days)."""
        pauses = Backoff(1.0).pauses()
        while True:
            wait = next(pauses)
            try:
                reader = self._parts.log.reader
                self._lender = next(checkpoint_keys(reader.provider, reader.keys), None)
                return opening.open()
            except Unavailable as error:
                if self._choices.once or self._stop.is_set() or self._parts.give_up.is_set():
                    raise
                self._observer.problem(f"opening the archive failed: {error}")
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
            log.warning("the log cannot be read now", extra={"error": str(error)})

    def _compose(self, stack: ExitStack, line: CommitLine, opening: Opening, opened: Opened) -> Dispatcher:
        parts, settings = self._parts, self._parts.settings
        blocks = ThreadPoolExecutor(settings.dispatch.threads, thread_name_prefix="compress")
        stack.callback(blocks.shutdown, wait=False, cancel_futures=True)
        policy = TopicPolicy(
            settings.source.exclude_topics, cluster=settings.source.cluster, broker=settings.source.broker
        )
        level = settings.dispatch.compression_level if settings.dispatch.compression == "zstd" else 0
        preparer = Preparer(
            self._source,
            settings.dispatch,
            compression=Compression(
                blocks, settings.dispatch.threads, level, settings.dispatch.dictionary_bytes
            ),
            excluded=policy.is_excluded,
            lineage=opened.lineage,
        )
        self._indexing = open_indexing(
            settings, parts.log.reader.identity.archive_id, self._source, parts.clock,
            policy.is_excluded, opened, lambda: self._finished, stack,
            lost=lambda lineage: ((gap.start, gap.end) for gap in parts.log.planned().phys_gaps(lineage)),
        )  # fmt: skip
        self._dispatcher = Dispatcher(
            self._source,
            preparer,
            line,
            parts.clock,
            DispatchPace.of(settings),
            opening,
            self._observer,
            mark=opened.mark,
            broker_mark=opened.broker,
            drafted=unheard if self._indexing is None else self._indexing.submitted,
        )
        self._reporter.set_workers(Workers(self._dispatcher, line))
        return self._dispatcher

    def _at_end(self, dispatcher: Dispatcher) -> bool:
        """Whether everything is read that ``--once`` asks for."""
        waiting_for = dispatcher.waiting_for if dispatcher.caught_up else None
        return self._end is not None and self._end.done(dispatcher.position, waiting_for)

    def _make_services(self, line: CommitLine, dispatcher: Dispatcher) -> list[Service]:
        parts = self._parts
        checkpointer = Checkpointer(
            parts.log, parts.settings.archive, parts.clock, os.urandom,
            shadow=parts.shadow,
            events=self._observer,
            own_keys=self._own_keys,
            lender=self._lender,
            distrust=lambda: record_distrust(Path(parts.settings.state_directory)),
        )  # fmt: skip
        parts.metrics.checkpoint_unsaved.set_function(checkpointer.unsaved_seconds)
        self._checkpointer = checkpointer

        sweeper = Sweeper(parts.provider, parts.log.reader.keys.root, lambda: self._finished)

        read_back = parts.log.read_back

        def commit() -> Next:
            if line.step(IDLE_STEP_SECONDS):
                checkpointer.count()
            elif self._finished:
                read_back.step()
                checkpointer.step()
                for service in self._early:  # the process ends when every service has
                    service.stop()
                return DONE
            read_back.step_if_due()
            return AGAIN

        def dispatch() -> Next:
            self._beating.check()
            wait = dispatcher.step()
            if self._at_end(dispatcher):
                dispatcher.drain(ONCE_DRAIN_SECONDS)
                # Asked again: the flush may have met a broker that had cut its log, and gone back.
                if line.idle and not dispatcher.buffer and self._at_end(dispatcher):
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

        index = [] if self._indexing is None else self._indexing.services(parts.metrics)
        return [
            *index,
            Service("sweeper", sweeper.step, parts.clock, metrics=parts.metrics),
            Service("checkpointer", save, parts.clock, metrics=parts.metrics),
            Service("committer", commit, parts.clock, finish=read_back.step_once, metrics=parts.metrics),
            Service("dispatcher", dispatch, parts.clock, finish=drain, metrics=parts.metrics),
        ]
