"""The sink that Spark calls: rows of a frame become messages of a broker's topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceReader, WriterCommitMessage
from pyspark.sql.types import StructType

from tiered.broker.client import Dial
from tiered.broker.routes import Routes
from tiered.broker.tls import client_context
from tiered.clock import Clock, SystemClock
from tiered.codec.remoting.frame import DEFAULT_MAX_FRAME_BYTES
from tiered.codec.types import Ints
from tiered.errors import Invalid, TieredError, Unavailable
from tiered_spark.errors import plainly
from tiered_spark.replay.options import ReplayOptions, parse_replay_options
from tiered_spark.replay.progress import ReplayProgress, claim
from tiered_spark.replay.rows import Outgoing, check_rows, outgoing
from tiered_spark.replay.sender import Sender

log = logging.getLogger("tiered.spark")


class TieredReplay(DataSource):
    """Messages sent again, to a topic of a broker; see ``spark/replay.md`` for the options."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rocketmq_tiered_replay"

    @plainly()
    def schema(self) -> StructType | str:
        """Refuses: the target of a replay cannot be read."""
        raise Invalid("this format only sends", hint="read with format('rocketmq_tiered')")

    @plainly()
    def reader(self, schema: StructType) -> DataSourceReader:
        """``Invalid``: nothing can be read."""
        raise Invalid("this format only sends", hint="read with format('rocketmq_tiered')")

    @plainly()
    def writer(self, schema: StructType, overwrite: bool) -> ReplayWriter:
        """``Invalid`` for options or columns that cannot be used, ``NotFound`` for a target that is known not to be there.
        Binds the replay id to its target."""
        if overwrite:
            raise Invalid("a topic cannot be overwritten", hint="write.mode('append')")
        options = parse_replay_options(self.options)
        check_rows(schema)
        _look_for_target(options)
        claim(options)
        return ReplayWriter(options)


@dataclass
class Sent(WriterCommitMessage):
    """What one task did: messages stored, left out as acknowledged before, sent again for want of an answer, refused."""

    stored: int
    before: int
    again: int
    refused: int


class ReplayWriter(DataSourceArrowWriter):
    """Travels to the executors; no connection, secret or clock of it does."""

    def __init__(self, options: ReplayOptions) -> None:
        self._options = options

    @plainly()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send one partition's rows. Its errors name the row's place and what to do."""
        return send(self._options, iterator, SystemClock(), _partition())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to be done: say what was."""
        done = [m for m in messages if isinstance(m, Sent)]
        log.info(
            "replay to %s: %d messages stored, %d acknowledged before, %d tries repeated, %d refused",
            self._options.topic, sum(m.stored for m in done), sum(m.before for m in done), sum(m.again for m in done),
            sum(m.refused for m in done),
        )  # fmt: skip

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back: say how to go on."""
        how = (
            f"run it again with replayId {self._options.replay_id}: what was acknowledged is left out"
            if self._options.checkpoint
            else "without a checkpoint it begins anew, and all is sent again"
        )
        log.warning("replay to %s ended early; %s", self._options.topic, how)


def send(options: ReplayOptions, batches: Iterator[pa.RecordBatch], clock: Clock, partition: int) -> Sent:
    """One task: rows to messages, messages to the broker, and its progress noted. ``partition``: the task's number.

    What is acknowledged is noted even if the task then fails; a task that is killed leaves out at most the last
    ``checkpointEvery`` messages or ten seconds of them.
    """
    if options.rate is not None and partition >= options.tasks:
        raise Invalid(
            "the query has more tasks than share messagesPerSecond", option="tasks", found=options.tasks,
            hint=f"coalesce({options.tasks}) before write, or set tasks to the number of partitions",
        )  # fmt: skip
    dial = _dial(options)
    progress = ReplayProgress(options, clock) if options.checkpoint else None
    before = 0

    def stored(message: Outgoing) -> None:
        if progress is not None:
            progress.add(message.queue, message.offset)

    known = progress.sent if progress is not None else _nothing
    sender = Sender(options, clock, dial, stored)
    try:
        for batch in batches:
            taken = 0
            for message in outgoing(batch, options.queue, options.replay_id, clock.now_ms(), known):
                sender.add(message)
                taken += 1
                if progress is not None:
                    progress.keep_up()
            before += batch.num_rows - taken
        sender.send()
    except BaseException:
        if progress is not None:
            _note_what_was_done(progress)
        raise
    finally:
        sender.close()
    if progress is not None:
        progress.flush()
    counts = sender.counts
    return Sent(counts.stored, before, counts.again, counts.refused)


def _look_for_target(options: ReplayOptions) -> None:
    """``NotFound`` if the name servers do not know the topic. A driver that cannot ask them, or has not the executors' keys and
    certificates, leaves it to the tasks."""
    clock = SystemClock()
    with contextlib.suppress(Unavailable, Invalid):
        routes = Routes(options.name_servers, options.topic, clock, _dial(options))
        try:
            routes.ask()
        finally:
            routes.close()


def _dial(options: ReplayOptions) -> Dial:
    context = None
    if options.tls:
        context = client_context(
            options.tls_ca, refusal="the certificates in tlsCa cannot be read on this executor",
            hint="option('tlsCa', …) names a PEM file that every executor has",
        )  # fmt: skip
    return Dial(options.timeout_ms / 1000, context, options.credentials(), DEFAULT_MAX_FRAME_BYTES)


def _note_what_was_done(progress: ReplayProgress) -> None:
    """Before a task ends with an error, which counts more than one of the checkpoint."""
    try:
        progress.flush()
    except TieredError as error:
        log.warning("some messages that were acknowledged will be sent again: %s", error)


def _nothing(queue: str, offsets: Ints) -> npt.NDArray[np.bool_]:
    """Without a checkpoint, nothing was sent before."""
    return np.zeros(len(offsets), np.bool_)


def _partition() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()
