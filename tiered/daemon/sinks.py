"""The writer's sinks: looked for in the bucket, each run by a service of its own, and their progress brought into the archive.

Nothing here may reach archiving: a sink that fails stands still and says so. Threads: ``sinks`` looks for orders and offers
commits, ``sink-NAME`` runs one sink.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tiered.archive.log.flush import Proven
from tiered.archive.log.line import CommitLine
from tiered.archive.state.sinks import sinks as known_sinks
from tiered.clock import Clock
from tiered.codec.format.edits import SinkStep
from tiered.crashpoint import SinkPoint, reach
from tiered.daemon.parts import Parts
from tiered.daemon.sinkfile import SinkFile
from tiered.errors import TieredError
from tiered.filter.topicpolicy import TopicPolicy
from tiered.service import DONE, Next, Service, pause
from tiered.sink.backfill import BackfillBook
from tiered.sink.base import Sink
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.kinds import find_kind
from tiered.sink.ledger import SinkAdvance, SinkCommit, SinkLedger
from tiered.sink.progress import STANDING
from tiered.sink.running import SinkRunner
from tiered.sink.source import SinkPace
from tiered.sink.writersource import writer_source
from tiered.source.local import LocalCommitLog
from tiered.source.open import open_source

log = logging.getLogger("tiered.sink")

OFFER_SECONDS = 0.0
"""Nobody waits for a place in the line: the next step tries again."""
STOP_SECONDS = 5.0
"""How long a sink's last flush is waited for, when the daemon stops or the sink is removed."""


@dataclass(frozen=True, slots=True)
class _Running:
    runner: SinkRunner
    service: Service
    tail: LocalCommitLog


def start_sinks(
    parts: Parts, ledger: SinkLedger, line: CommitLine, told_to_stop: Callable[[], bool], stack: ExitStack
) -> SinkServices | None:
    """Sinks of the one writer, from now on until ``stack`` closes; ``None`` where settings want none."""
    if not parts.settings.sinks.enabled:
        return None
    made = SinkServices(parts, ledger, line, lambda: told_to_stop() or parts.give_up.is_set())
    made.start(stack)
    return made


class SinkServices:
    """All sinks of one writer. ``ledger`` rides on its line."""

    def __init__(
        self, parts: Parts, ledger: SinkLedger, line: CommitLine, stopping: Callable[[], bool]
    ) -> None:
        identity = parts.log.reader.identity
        self._parts = parts
        self._clock: Clock = parts.clock
        self._settings = parts.settings.sinks
        self._ledger = ledger
        self._line = line
        self._stopping = stopping
        self._archive_id = identity.archive_id
        self._book = SinkBook(parts.provider, parts.log.reader.keys, identity.archive_id)
        self._backfills = BackfillBook(parts.provider, parts.log.reader.keys, identity.archive_id)
        self._file = SinkFile(self._settings.orders_file, self._book, parts.clock)
        self._swept: list[tuple[bytes, int]] | None = None
        """Sinks with the revisions of their orders, as they were when what is left of backfills was looked for."""
        self._running: dict[bytes, _Running] = {}
        self._look_at = self._commit_at = 0.0
        self._looked = parts.clock.monotonic()
        self._offered: Future[Proven | None] | None = None
        self.trouble: str | None = None
        """Why orders cannot be followed: sinks go on as they were ordered before."""
        self.service = Service("sinks", self.step, parts.clock, metrics=parts.metrics)

    def start(self, stack: ExitStack) -> None:
        """Start; ``stack`` ends everything."""
        stack.callback(self._stop_all)
        self.service.start()
        stack.callback(self.service.join, STOP_SECONDS)
        stack.callback(self.service.stop)

    def step(self) -> Next:
        """Look for orders, if it is time, and offer a commit, if one is due."""
        if self._stopping():
            return DONE
        try:
            self._step()
        except TieredError as error:  # of the broker's files, say, which are away while it starts
            self._tell(str(error))
        except (
            Exception
        ) as error:  # nothing of sinks may reach archiving, and a thread that ended would tell nobody
            if self.trouble is None:
                log.exception("looking after sinks failed unexpectedly")
            self._tell(f"unexpected: {error!r}")
        return pause(min(self._settings.look_ms, self._settings.commit_ms, 1000) / 1000)

    def _step(self) -> None:
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + self._settings.look_ms / 1000
            self._look()
        if now >= self._commit_at:
            self._commit(now)

    # ------------------------------------------------------------------ orders

    def _look(self) -> None:
        self._file.look()
        try:
            stored = {each.sink_id: each for each in self._book.sinks()}
        except TieredError as error:
            self._tell(str(error))
            return
        for sink_id in [sink_id for sink_id in self._running if sink_id not in stored]:
            self._remove(self._running.pop(sink_id))
        for each in stored.values():
            running = self._running.get(each.sink_id)
            if running is None:
                self._begin(each)
            elif running.runner.stored.revision != each.revision:
                running.runner.change(each)
                running.service.wake()
        known = {state.sink_id: state for state in known_sinks(self._parts.log.frozen().view)}
        for state in known.values():
            if state.sink_id not in stored:
                self._ledger.keep(SinkAdvance(state.sink_id, state.name, 0, 0, 0, step=SinkStep.REMOVED))
        self._looked = self._clock.monotonic()
        self._tell(None)
        reached = {state.sink_id: state.revision for state in known.values()}
        if all(reached.get(each.sink_id, 0) >= each.given for each in stored.values()):
            self._sweep(stored)

    def _sweep(self, stored: Mapping[bytes, StoredSink]) -> None:
        """Delete what backfills have left in the bucket that nobody wants; all that was given is taken up."""
        now = sorted((each.sink_id, each.revision) for each in stored.values())
        if now == self._swept:
            return
        wanted = {
            (each.sink_id, each.under_way.backfill_id)
            for each in stored.values()
            if each.under_way is not None
        }
        try:
            gone = self._backfills.sweep(lambda *ids: ids in wanted)
        except TieredError as error:
            log.warning("what a backfill left cannot be deleted now", extra={"error": str(error)})
            return
        self._swept = now
        if gone:
            log.info("what backfills left is deleted", extra={"objects": gone})

    def _tell(self, trouble: str | None) -> None:
        if trouble is not None and self.trouble is None:
            log.error("orders of sinks cannot be followed: sinks go on as before", extra={"error": trouble})
        elif trouble is None and self.trouble is not None:
            log.warning("orders of sinks are followed again")
        self.trouble = trouble

    def _begin(self, stored: StoredSink) -> None:
        settings, pace = self._parts.settings, self._settings
        source = settings.source if pace.ahead_of_archive else replace(settings.source, confirm_reread_ms=1)
        tail = open_source(source, settings.hold, self._clock)
        policy = TopicPolicy(cluster=settings.source.cluster, broker=settings.source.broker)
        feeds = writer_source(
            self._parts.log, self._parts.objects, tail, policy,
            batch_bytes=pace.batch_bytes, ahead=pace.ahead_of_archive, runs_ahead=pace.backfill_ahead,
            in_order_bytes=pace.in_order_bytes,
        )  # fmt: skip
        runner = SinkRunner(
            stored, self._open_sink, feeds, self._ledger, self._clock,
            SinkPace(
                pace.flush_bytes, pace.flush_ms / 1000, pace.backfill_flush_ms / 1000, pace.poll_ms / 1000,
                pace.commit_ms / 1000, pace.backfill_bytes_per_second,
            ),
            backfills=BackfillBook(self._parts.provider, self._parts.log.reader.keys, self._archive_id),
        )  # fmt: skip
        service = Service(
            f"sink-{stored.name}", runner.step, self._clock, finish=runner.finish, metrics=self._parts.metrics
        )
        self._running[stored.sink_id] = _Running(runner, service, tail)
        log.info("a sink begins", extra={"sink": stored.name, "kind": stored.order.kind})
        service.start()

    def _open_sink(self, stored: StoredSink, anew: bool) -> Sink:
        head = self._parts.log.tip
        source, epoch = self._parts.settings.source, 0 if head is None else head.epoch
        place = stored.place(self._archive_id, source.cluster, source.broker, epoch, anew=anew)
        kind = find_kind(stored.order.kind)
        kind.check(stored.order)
        return kind.open(stored.order, place)

    def _remove(self, running: _Running) -> None:
        log.warning("a sink is removed", extra={"sink": running.runner.stored.name})
        self._end(running)

    def _stop_all(self) -> None:
        for running in self._running.values():
            running.service.stop()
        for running in self._running.values():
            self._end(running)

    @staticmethod
    def _end(running: _Running) -> None:
        running.service.stop()
        if running.service.join(STOP_SECONDS):
            running.tail.close()
        else:
            log.warning("a sink does not come back, and is left", extra={"sink": running.runner.stored.name})

    # ------------------------------------------------------------------ progress

    def _commit(self, now: float) -> None:
        """A commit of its own for what no commit of messages carried meanwhile."""
        if self._offered is not None:
            if not self._offered.done():
                return
            error = self._offered.exception()
            if error is not None:
                log.warning("a commit of sinks' progress could not be made", extra={"error": str(error)})
            elif self._offered.result() is not None:
                reach(SinkPoint.AFTER_SINK_COMMIT)
            self._offered = None
        if not self._ledger.waits:
            return
        reach(SinkPoint.BEFORE_SINK_COMMIT)
        self._offered = self._line.offer(SinkCommit(self._ledger, now), OFFER_SECONDS)
        if self._offered is not None:
            self._commit_at = now + self._settings.commit_ms / 1000

    # ------------------------------------------------------------------ what is shown

    def standstill(self) -> str | None:
        """Which sinks stand still, and why; from plain values."""
        said = [] if self.trouble is None else [f"orders of sinks cannot be followed: {self.trouble}"]
        if self._file.trouble is not None:
            said.append(f"the file of sinks is not in force: {self._file.trouble}")
        if self._ledger.trouble is not None:
            said.append(f"progress of sinks is not kept: {self._ledger.trouble}")
        for running in list(self._running.values()):
            progress = running.runner.progress
            if progress.phase in STANDING:
                said.append(f"sink {running.runner.stored.name} is {progress.phase.value}: {progress.why}")
        return "; ".join(said) or None

    def status(self) -> Mapping[str, object]:
        """For ``/status``."""
        rows = [
            {
                "sink": running.runner.stored.name,
                "kind": running.runner.stored.order.kind,
                "required": running.runner.stored.order.required,
                **running.runner.progress.document(),
            }
            for running in list(self._running.values())
        ]
        return {
            "orders": self.trouble,
            "file": self._file.trouble,
            "progress": self._ledger.trouble,
            "sinks": rows,
        }

    def show(self) -> None:
        """Set the gauges, as things stand now: asked by who reads them, so that no figure stands still with a thread."""
        self._parts.metrics.sinks.show(
            self.figures(),
            self._clock.monotonic() - self._looked,
            progress_refused=self._ledger.trouble is not None,
            file_refused=self._file.trouble is not None,
        )

    def figures(self) -> dict[str, dict[str, float | None]]:
        """For metrics, by sink."""
        return {
            running.runner.stored.name: {
                **running.runner.progress.figures(),
                "required": float(running.runner.stored.holds_retention),
            }
            for running in list(self._running.values())
        }
