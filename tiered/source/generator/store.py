"""Writes a broker-format store as a broker does: for demos, benchmarks and tests that need a live log without
a broker.

Append to pre-allocated commitlog files, blank record and next file when a record does not fit, consume-queue
units after the record, ``lock`` and ``abort`` while open, ``checkpoint`` at a clean stop; an existing store
is continued at its end. Tests also make it fail like a broker: lose its tail, expire files, stop uncleanly,
show half-written records.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from types import TracebackType

import numpy as np

from tiered.clock import Clock
from tiered.codec.javahash import java_hashes
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.consumequeue import CQ_DTYPE, UNIT_BYTES, Units, encode_units
from tiered.codec.record.frame import Frames, Stop, scan
from tiered.codec.record.layout import BLANK_HEADER_BYTES, SYS_COMMIT, SYS_TRANSACTION
from tiered.codec.record.message import Message, encode_message
from tiered.codec.record.properties import property_columns
from tiered.codec.types import Buffer, Ints
from tiered.errors import Invalid, Unavailable
from tiered.source.generator.options import GeneratorOptions, topic_names
from tiered.source.generator.recordbatch import BatchPlan, BatchRenderer
from tiered.source.generator.storefiles import (
    MAX_RECORD_BYTES,
    CommitLogFiles,
    ConsumeQueueFiles,
    numbered,
    scan_file,
    write_broker_checkpoint,
)
from tiered.source.generator.traffic import NextOffsets, QueueTraffic, occurrences

__all__ = ["GeneratorOptions", "StoreGenerator", "topic_names"]

_BATCH_BYTES = 16 << 20
_MAX_BATCH_BYTES = 64 << 20
_PACE_SECONDS = 0.02


class StoreGenerator:
    """One broker's store being written. Use as a context manager, or ``open`` and then ``close`` or
    ``crash``. One thread.
    """

    def __init__(
        self, options: GeneratorOptions, clock: Clock, rng: np.random.Generator | None = None
    ) -> None:
        self.options = options
        self.clock = clock
        self.rng = rng if rng is not None else np.random.default_rng(options.seed)
        self.physical_offset = options.start_physical_offset
        """Where the next record goes."""
        self.next_offsets = NextOffsets(options.topics, options.queues, options.start_queue_offset)
        self.log = CommitLogFiles(options.store_dir / "commitlog", options.file_bytes, ahead=options.ahead)
        self.consume_queues = ConsumeQueueFiles(options.store_dir / "consumequeue", options.queue_file_units)
        self._renderer: BatchRenderer | None = None
        self._traffic = QueueTraffic(len(options.topics) * options.queues, options.zipf)
        self._sequence = 0
        self._lock_fd: int | None = None

    # -- life ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> StoreGenerator:
        """``open``."""
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """``close``, or ``crash`` when an error passes through."""
        if kind is None:
            self.close()
        else:
            self.crash()

    def open(self) -> None:
        """Create the store or find its end, as a broker starting does: zero bytes end it, missing units are
        added.

        Raises ``Unavailable`` if another process holds the store's lock.
        """
        root = self.options.store_dir
        self.log.directory.mkdir(parents=True, exist_ok=True)
        self._lock_fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock_fd)
            self._lock_fd = None
            raise Unavailable(
                "another process writes this store", path=str(root), hint="stop it first"
            ) from error
        os.pwrite(self._lock_fd, b"lock", 0)
        (root / "abort").write_text(f"{os.getpid()}")
        self._find_end()
        self._sequence = sum(self.next_offsets.values())

    def close(self) -> None:
        """A clean stop: checkpoint written, the unused next file and ``abort`` removed."""
        root = self.options.store_dir
        write_broker_checkpoint(
            root / "checkpoint", store_time_ms=self.clock.now_ms(), flushed_offset=self.physical_offset
        )
        self.log.drop_unused(self.physical_offset)
        (root / "abort").unlink(missing_ok=True)
        self._let_go()

    def crash(self) -> None:
        """An unclean stop: everything stays as it is, ``abort`` too."""
        self._let_go()

    def _let_go(self) -> None:
        self.log.release()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    # -- writing ------------------------------------------------------------------------------------------------

    def run(self, stop: threading.Event | None = None, progress: Callable[[int], None] | None = None) -> int:
        """Append ``options.messages`` at ``options.rate``; returns how many were written before ``stop`` was
        set.
        """
        begun, done, total = self.clock.monotonic(), 0, self.options.messages
        while done < total and not (stop is not None and stop.is_set()):
            due = total - done
            if self.options.rate is not None:
                due = min(due, int((self.clock.monotonic() - begun) * self.options.rate) - done)
            if due > 0:
                due = min(due, self._batch_records())
                self.append(due)
                done += due
                if progress is not None:
                    progress(done)
            if self.options.rate is not None and done < total:
                self.clock.wait(_PACE_SECONDS, stop)
        return done

    def append(self, count: int) -> int:
        """Append ``count`` messages round robin over all queues; returns the end of the log."""
        while count > 0:
            plan = self._plan(min(count, self._batch_records()))
            fits = self._fitting(plan.size)
            if fits == 0:
                self._roll(int(plan.size[0]))
                continue
            plan = plan.head(fits)
            data = self._render_with().render(plan)
            self.log.write(self.physical_offset, data.data)
            self._put_planned(plan)
            self.physical_offset += len(data)
            self._sequence += fits
            count -= fits
        return self.physical_offset

    def append_message(self, message: Message) -> Message:
        """Append one message of any kind; returns it with its offsets, its store time if it had none.

        Prepared and rollback records (``sys_flag``) get queue offset 0 and no consume-queue unit.
        """
        placed, record = self._place(message)
        self.log.write(placed.physical_offset, record)
        self._finish(record)
        return placed

    def append_bodies(self, count: int, body_bytes: int) -> list[Message]:
        """``count`` messages of another body size (4 MiB, say), on the first queue of the first topic."""
        sequence = np.arange(self._sequence, self._sequence + count, dtype=np.int64)
        bodies = self._render_with().bodies(np.full(count, body_bytes, np.int64), sequence)
        return [self.append_message(Message(self.options.topics[0], 0, 0, 0, body)) for body in bodies]

    def tear(self, message: Message, *, pieces: int = 4, shuffled: bool = False) -> Iterator[int]:
        """Append one message in pieces; yields its physical offset after each piece but the last, so that a
        reader can look.

        ``shuffled`` writes the pieces in random order: pages of a mapped file may reach a reader in any
        order.
        """
        placed, record = self._place(message)
        cuts = np.linspace(0, len(record), pieces + 1).astype(int).tolist()
        order = self.rng.permutation(pieces).tolist() if shuffled else list(range(pieces))
        for number, piece in enumerate(order):
            self.log.write(placed.physical_offset + cuts[piece], record[cuts[piece] : cuts[piece + 1]])
            if number < pieces - 1:
                yield placed.physical_offset
        self._finish(record)

    # -- what happens to brokers --------------------------------------------------------------------------------

    def min_offset(self) -> int:
        """First byte of the oldest commitlog file."""
        files = numbered(self.log.directory)
        return files[0][0] if files else self.options.start_physical_offset

    def delete_oldest(self) -> int:
        """Delete the oldest commitlog file, and consume-queue files wholly below what remains, as retention
        does.

        Returns the new minimum. Raises ``Invalid`` if only the file being written is left.
        """
        files = numbered(self.log.directory)
        if not files or files[0][0] >= self.log.base_of(self.physical_offset):
            raise Invalid("only the commitlog file being written is left", path=str(self.log.directory))
        files[0][1].unlink()
        minimum = self.min_offset()
        for _, _, directory in self.consume_queues.queues():
            self.consume_queues.delete_below(directory, minimum)
        return minimum

    def truncate_tail(self, to_physical: int, *, zero: bool = True) -> None:
        """Lose everything from ``to_physical`` (a record's start) on, as a broker recovering after power loss
        does.

        Later files go, queues end before it, and the same offsets are used again. Without ``zero`` the old
        bytes stay in the file until overwritten.
        """
        if not self.min_offset() <= to_physical <= self.physical_offset:
            raise Invalid(
                "the log cannot be cut there",
                found=to_physical,
                expected=f"{self.min_offset()} to {self.physical_offset}",
            )
        if not self.options.consume_queues:
            raise Invalid(
                "a store without consume queues cannot lose its tail: they say where each queue ends then"
            )
        self.log.truncate(to_physical, zero=zero)
        for topic, queue_id, directory in self.consume_queues.queues():
            self.next_offsets[topic, queue_id] = self.consume_queues.truncate(directory, to_physical)
        self.physical_offset = to_physical

    # -- inside -------------------------------------------------------------------------------------------------

    def _render_with(self) -> BatchRenderer:
        if self._renderer is None:
            o = self.options
            self._renderer = BatchRenderer(
                o.topics, o.tags, o.born_host, o.store_host, self.rng, o.compressible
            )
        return self._renderer

    def _batch_records(self) -> int:
        record = self.options.body_bytes + 256
        slots = len(self.options.topics) * self.options.queues
        # Few writes per consume queue: with many queues a batch holds several messages of each.
        wanted = max(_BATCH_BYTES, 4 * slots * record)
        return max(1, min(wanted, _MAX_BATCH_BYTES) // record)

    def _plan(self, count: int) -> BatchPlan:
        """The next ``count`` messages, were the commitlog file endless."""
        topics = len(self.options.topics)
        sequence = np.arange(self._sequence, self._sequence + count, dtype=np.int64)
        slot = self._traffic.slots_of(sequence, self.rng)
        topic, queue_id = slot % topics, slot // topics
        body_length = np.full(count, self.options.body_bytes, np.int64)
        if self.options.vary_bodies:
            body_length -= body_length // 2 * self.rng.integers(0, 8, count) // 7
        size = self._render_with().record_sizes(topic, body_length)
        place = self.physical_offset + np.cumsum(size) - size
        offset = self.next_offsets.of_slots()[slot] + occurrences(slot)
        tag = self.rng.integers(0, len(self.options.tags), count)
        return BatchPlan(
            topic, queue_id, offset, place, body_length, size, sequence, tag, self.clock.now_ms()
        )

    def _fitting(self, sizes: Ints) -> int:
        """How many records fit this file before one would leave less than a blank's header."""
        room = self.log.base_of(self.physical_offset) + self.options.file_bytes - self.physical_offset
        return int(np.searchsorted(np.cumsum(sizes) + BLANK_HEADER_BYTES, room, "right"))

    def _roll(self, size: int) -> None:
        if size + BLANK_HEADER_BYTES > self.options.file_bytes:
            raise Invalid(
                "a record is larger than a commitlog file", found=size,
                expected=f"at most {self.options.file_bytes - BLANK_HEADER_BYTES} bytes",
                hint="make --body-bytes smaller, or --file-bytes larger",
            )  # fmt: skip
        self.physical_offset = self.log.write_blank(self.physical_offset)

    def _place(self, message: Message) -> tuple[Message, bytes]:
        """The message with its offsets, and its record; rolls to the next file when it does not fit."""
        size = len(encode_message(message))
        if not self._fitting(np.array([size], np.int64)):
            self._roll(size)
        owns_offset = message.sys_flag & SYS_TRANSACTION in (0, SYS_COMMIT)
        placed = replace(
            message,
            physical_offset=self.physical_offset,
            queue_offset=self.next_offsets[message.topic, message.queue_id] if owns_offset else 0,
            store_timestamp=message.store_timestamp or self.clock.now_ms(),
        )
        return placed, encode_message(placed)

    def _finish(self, record: bytes) -> None:
        """Count a record written whole and put it on its queue."""
        frames = scan(record, base=self.physical_offset, max_record_bytes=MAX_RECORD_BYTES)
        self._dispatch(record, frames, missing_only=False)
        self.physical_offset += len(record)
        self._sequence += 1

    def _put_planned(self, plan: BatchPlan) -> None:
        """Consume-queue units straight from the plan: the records just rendered are not read again."""
        if not self.options.consume_queues:
            slots = plan.queue_id * len(self.options.topics) + plan.topic
            self.next_offsets.raise_slots(slots, plan.queue_offset + 1)
            return
        units = np.empty(len(plan.size), CQ_DTYPE)
        units["phys"], units["size"] = plan.physical_offset, plan.size
        units["tags_code"] = java_hashes([tag.encode() for tag in self.options.tags])[plan.tag]
        after = plan.queue_offset + 1
        self._put_units(self.options.topics, plan.topic, plan.queue_id, after, units, missing_only=False)

    def _dispatch(self, data: Buffer, frames: Frames, *, missing_only: bool) -> None:
        """Consume-queue units of records read from the log, as a broker's reput does.

        An inner batch moves its queue's end but gets no unit: brokers keep such queues in another kind of
        file.
        """
        batch = decode_headers(data, frames)
        columns = property_columns(batch)
        for row in np.flatnonzero(columns.queue_offsets > 1).tolist():
            header = batch.headers[row]
            queue = batch.topics[header["topic_index"]], int(header["queue_id"])
            end = int(header["queue_offset"]) + int(columns.queue_offsets[row])
            self.next_offsets[queue] = max(self.next_offsets[queue], end)
            self.consume_queues.make_batch_queue(*queue)
        rows = np.flatnonzero(columns.queue_offsets == 1)
        headers = batch.headers[rows]
        units = np.empty(len(rows), CQ_DTYPE)
        units["phys"], units["size"] = headers["physical_offset"], headers["size"]
        units["tags_code"] = columns.tags_code[rows]
        after = headers["queue_offset"] + columns.queue_offsets[rows].astype(np.int64)
        topic, queue_id = headers["topic_index"].astype(np.int64), headers["queue_id"].astype(np.int64)
        self._put_units(batch.topics, topic, queue_id, after, units, missing_only=missing_only)

    def _put_units(
        self,
        names: Sequence[str],
        topic: Ints,
        queue_id: Ints,
        after: Ints,
        units: Units,
        *,
        missing_only: bool,
    ) -> None:
        """Write units queue by queue and move the queues' ends to ``after`` (the queue offset behind each
        record).
        """
        if len(units) == 0:
            return
        order = np.lexsort((queue_id, topic))
        topic, queue_id, after = topic[order], queue_id[order], after[order]
        encoded = encode_units(units[order])
        cuts = np.flatnonzero((np.diff(topic) != 0) | (np.diff(queue_id) != 0)) + 1
        edges = [0, *cuts.tolist(), len(order)]
        for low, high in pairwise(edges):
            queue = names[topic[low]], int(queue_id[low])
            first = int(after[low]) - 1
            skip = max(0, self.next_offsets[queue] - first) if missing_only else 0
            if skip < high - low:
                if self.options.consume_queues:
                    part = encoded[(low + skip) * UNIT_BYTES : high * UNIT_BYTES]
                    self.consume_queues.write(*queue, first + skip, part)
                self.next_offsets[queue] = int(after[high - 1])

    def _find_end(self) -> None:
        """Set the end of the log and of every queue from the files. Units missing for the newest file are written; where there
        are no consume queues at all, those of every file, or none if none are wanted.
        """
        self.next_offsets.clear()
        counted = self.consume_queues.directory.is_dir()
        if counted and not self.options.consume_queues:
            raise Invalid(
                "the store has consume queues: continue it with them", path=str(self.consume_queues.directory)
            )
        for topic, queue_id, directory in self.consume_queues.queues():
            self.next_offsets[topic, queue_id] = self.consume_queues.end(directory)
        self.physical_offset = self.options.start_physical_offset
        files = numbered(self.log.directory)
        for number, (base, path) in reversed(list(enumerate(files))):
            data, frames = scan_file(base, path, self.options.file_bytes)
            if len(frames) == 0 and frames.stop is Stop.ZERO and base > self.min_offset():
                continue  # allocated ahead
            for older in () if counted else files[:number]:
                self._dispatch(*scan_file(*older, self.options.file_bytes), missing_only=True)
            self._dispatch(data, frames, missing_only=True)
            self.physical_offset = base + (len(data) if frames.stop is Stop.BLANK else frames.end)
            return
