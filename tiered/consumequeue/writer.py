"""The index's writer: columns of many messages in log order go in, chunks by queue come out.

Rows are gathered until there are enough of them, so that a queue's messages of many flushes share a chunk. What is gathered is
lost by a crash, as is what the engine did not flush: ``IndexedRange`` says from where both are made again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Ints
from tiered.consumequeue.layout import (
    CHUNK_ROWS,
    COLUMNS,
    HEAD,
    HEAD_DTYPE,
    NO_TIME,
    TAIL,
    TAIL_DTYPE,
    IndexedRange,
    QueueRows,
    chunk_key,
    decode_columns,
    encode_columns,
    first_of,
    queue_of,
)
from tiered.errors import Corrupt
from tiered.metadata.base import RedoStore

_MERGE_FACTOR = 8
"""A chunk grows while it has at most so many times the rows that are added: it is written again a few times in all, and a queue
with few messages at a time gets chunks of nine times as many."""
_ABOVE = b"\xff" * 8
_AT_ONCE = 1000

Pair = tuple[bytes, bytes]
Heads = npt.NDArray[np.void]


@dataclass(slots=True)
class _Batch:
    """What is written at once."""

    puts: list[Pair]
    ranges: list[Pair]
    deletes: list[bytes]

    @classmethod
    def empty(cls) -> _Batch:
        return cls([], [], [])

    def drop(self, queue: bytes) -> None:
        """All chunks of a queue."""
        self.ranges += [(kind + queue, kind + queue + _ABOVE) for kind in (HEAD, COLUMNS)]


class ConsumeQueueWriter:
    """One writer of an index. ``buffer_rows`` bounds what is gathered; a row takes some hundred bytes until it is written."""

    def __init__(self, store: RedoStore, buffer_rows: int) -> None:
        """``Corrupt`` if the store does not name what it covers."""
        self._store = store
        self._buffer_rows = buffer_rows
        applied = store.applied()
        self._coverage = None if applied is None else IndexedRange.decode(applied)
        self._parts: list[QueueRows] = []
        self._numbers: dict[bytes, int] = {}
        self._groups: list[Ints] = []
        self._rows = 0

    @property
    def coverage(self) -> IndexedRange | None:
        """What was added, written or not; ``None`` before anything was."""
        return self._coverage

    def begin(self, lineage: int, physical: int) -> None:
        """Forget everything; what is added next begins here."""
        self._forget_buffer()
        self._store.clear()
        self._coverage = IndexedRange(lineage, physical, physical)

    def add(self, queues: Sequence[bytes], starts: Ints, rows: QueueRows, end: int) -> None:
        """Messages of the log from where the coverage ends up to ``end``: those of ``queues[i]`` lie in ``rows`` from
        ``starts[i]`` on (one more entry at the end), in log order. ``begin`` was called once before."""
        assert self._coverage is not None
        if len(rows):
            numbers = self._numbers
            ids = np.fromiter((numbers.setdefault(q, len(numbers)) for q in queues), np.int64, len(queues))
            self._groups.append(np.repeat(ids, np.diff(starts)))
            self._parts.append(rows)
            self._rows += len(rows)
        self._coverage = replace(self._coverage, end=end)
        if self._rows >= self._buffer_rows:
            self.spill()

    def spill(self) -> None:
        """Write what is gathered; it is durable after ``flush``."""
        coverage = self._coverage
        if coverage is None:
            return
        batch = _Batch.empty()
        if self._rows:
            self._chunks(batch)
        self._forget_buffer()
        self._store.put_many(batch.puts, batch.deletes, ranges=batch.ranges, applied=coverage.encode())

    def flush(self) -> None:
        """Write what is gathered, and make everything durable."""
        self.spill()
        self._store.flush()

    def cut(self, physical: int) -> None:
        """Forget what lies at or above a physical offset: the broker writes there anew."""
        if self._coverage is None or physical >= self._coverage.end:
            return
        if physical <= self._coverage.begin:
            self.begin(self._coverage.lineage, physical)
            return
        self.spill()
        batch = _Batch.empty()
        for key, value in self._store.iterate(TAIL):
            tail = np.frombuffer(value, TAIL_DTYPE)[0]
            if int(tail["head"]["end_physical"]) > physical:
                self._cut_queue(batch, queue_of(key), int(tail["first"]), physical)
        self._coverage = replace(self._coverage, end=physical)
        self._store.put_many(batch.puts, batch.deletes, ranges=batch.ranges, applied=self._coverage.encode())

    def forget(self, before_ms: int) -> int:
        """Forget chunks all of whose messages were stored before a time, from each queue's beginning; how many. A queue's last
        chunk stays."""
        forgotten, batch = 0, _Batch.empty()
        for key, value in self._store.iterate(TAIL):
            queue, tail = queue_of(key), np.frombuffer(value, TAIL_DTYPE).copy()
            first, last = int(tail["first"][0]), int(tail["chunk_first"][0])
            kept = first
            for head_key, head in self._store.iterate(HEAD + queue):
                kept = first_of(head_key)
                if kept >= last or int(np.frombuffer(head, HEAD_DTYPE)["max_time"][0]) >= before_ms:
                    break
                forgotten += 1
            if kept > first:
                batch.ranges += [
                    (chunk_key(k, queue, first), chunk_key(k, queue, kept)) for k in (HEAD, COLUMNS)
                ]
                tail["first"] = kept
                batch.puts.append((key, tail.tobytes()))
            if len(batch.puts) >= _AT_ONCE:
                self._store.put_many(batch.puts, ranges=batch.ranges)
                batch = _Batch.empty()
        if batch.puts:
            self._store.put_many(batch.puts, ranges=batch.ranges)
        return forgotten

    def _forget_buffer(self) -> None:
        self._parts, self._groups, self._rows = [], [], 0
        self._numbers = {}

    # ------------------------------------------------------------------ chunks of what is gathered

    def _chunks(self, batch: _Batch) -> None:
        queues = list(self._numbers)
        group, rows = _by_queue(np.concatenate(self._groups), QueueRows.join(self._parts))
        tails, known = self._tails(queues)
        group, rows, again = _last_lives(group, rows)
        first = np.searchsorted(group, np.arange(len(queues)))
        anew = known & ((rows.offset[first] < tails["head"]["end"]) | again)
        for number in np.flatnonzero(anew).tolist():
            batch.drop(queues[number])
        known &= ~anew
        added = np.bincount(group, minlength=len(queues))
        grown = known & (tails["head"]["rows"] + added <= CHUNK_ROWS)
        grown &= tails["head"]["rows"] <= _MERGE_FACTOR * added
        if grown.any():
            group, rows = self._with_tails(queues, tails, np.flatnonzero(grown), group, rows)
        before = np.where(grown, tails["running_before"], tails["head"]["running_max"])
        before = np.where(known, before, NO_TIME)
        _put_chunks(batch, queues, group, rows, before, np.where(known, tails["first"], -1))

    def _tails(self, queues: Sequence[bytes]) -> tuple[Heads, npt.NDArray[np.bool_]]:
        found = self._store.get_many([TAIL + queue for queue in queues])
        none = bytes(TAIL_DTYPE.itemsize)
        data = b"".join(none if value is None else value for value in found)
        known = np.fromiter((value is not None for value in found), bool, len(found))
        return np.frombuffer(data, TAIL_DTYPE), known

    def _with_tails(
        self, queues: Sequence[bytes], tails: Heads, grown: Ints, group: Ints, rows: QueueRows
    ) -> tuple[Ints, QueueRows]:
        """The rows, those of the last chunks of some queues before them."""
        firsts, counts = tails["chunk_first"].tolist(), tails["head"]["rows"].tolist()
        numbers = grown.tolist()
        found = self._store.get_many([chunk_key(COLUMNS, queues[i], firsts[i]) for i in numbers])
        parts = []
        for number, value in zip(numbers, found, strict=True):
            if value is None:
                raise Corrupt("a chunk of the consume-queue index is missing", queue=queues[number].hex())
            parts.append(decode_columns(value, firsts[number], counts[number]))
        groups = [np.repeat(grown, tails["head"]["rows"][grown]), group]
        return _by_queue(np.concatenate(groups), QueueRows.join([*parts, rows]))

    def _cut_queue(self, batch: _Batch, queue: bytes, first: int, physical: int) -> None:
        """Rewrite the end of one queue."""
        for key, value in self._store.iterate(HEAD + queue, reverse=True):
            head, chunk_first = np.frombuffer(value, HEAD_DTYPE)[0], first_of(key)
            if int(head["first_physical"]) >= physical:
                batch.deletes += [key, chunk_key(COLUMNS, queue, chunk_first)]
                continue
            columns = self._store.get_many([chunk_key(COLUMNS, queue, chunk_first)])[0]
            rows = decode_columns(columns or b"", chunk_first, int(head["rows"]))
            left = rows.take(slice(0, int(np.searchsorted(rows.physical, physical))))
            # The largest time before this chunk is only known to be at most this, and at least what it must be.
            before = _running_before(self._store, queue, chunk_first)
            _put_chunks(
                batch, [queue], np.zeros(len(left), np.int64), left, np.array([before]), np.array([first])
            )
            return
        batch.deletes.append(TAIL + queue)


def _running_before(store: RedoStore, queue: bytes, chunk_first: int) -> int:
    """The running maximum of the chunk before this one."""
    for key, value in store.iterate(HEAD + queue, start=chunk_key(HEAD, queue, chunk_first), reverse=True):
        if first_of(key) < chunk_first:
            return int(np.frombuffer(value, HEAD_DTYPE)["running_max"][0])
    return NO_TIME


def _by_queue(group: Ints, rows: QueueRows) -> tuple[Ints, QueueRows]:
    order = np.argsort(group, kind="stable")
    return group[order], rows.take(order)


def _last_lives(group: Ints, rows: QueueRows) -> tuple[Ints, QueueRows, npt.NDArray[np.bool_]]:
    """The rows of each queue's last generation, and which queues began one among these rows: its offsets went back there."""
    same = group[1:] == group[:-1]
    back = np.flatnonzero(same & (rows.offset[1:] < rows.offset[:-1] + rows.owned[:-1])) + 1
    again = np.zeros(int(group[-1]) + 1, bool)
    if not len(back):
        return group, rows, again
    start = np.zeros(len(again), np.int64)
    start[group[back]] = back  # of several the last one stays
    again[group[back]] = True
    kept = np.arange(len(group)) >= start[group]
    return group[kept], rows.take(kept), again


def _put_chunks(
    batch: _Batch, queues: Sequence[bytes], group: Ints, rows: QueueRows, before: Ints, firsts: Ints
) -> None:
    """Cut sorted rows into chunks; ``before``: each queue's running maximum in front of its rows, ``firsts``: its first offset,
    -1 if that is here."""
    count = np.bincount(group, minlength=len(queues))
    begin = np.cumsum(count) - count
    pieces = -(-count // CHUNK_ROWS)
    owner = np.repeat(np.arange(len(queues)), pieces)
    ordinal = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    start = begin[owner] + ordinal * CHUNK_ROWS
    last = np.append(start[1:], len(rows)) - 1
    heads = np.zeros(len(start), HEAD_DTYPE)
    heads["end"] = rows.offset[last] + rows.owned[last]
    heads["rows"] = last + 1 - start
    heads["min_time"] = np.minimum.reduceat(rows.time, start)
    heads["max_time"] = np.maximum.reduceat(rows.time, start)
    heads["first_physical"] = rows.physical[start]
    heads["end_physical"] = rows.physical[last] + rows.size[last]
    running_before = _running(heads["max_time"], owner, ordinal, before)
    heads["running_max"] = np.maximum(running_before, heads["max_time"])
    data, size = heads.tobytes(), HEAD_DTYPE.itemsize
    chunk_first = rows.offset[start]
    for i, (number, first, low, high) in enumerate(
        zip(owner.tolist(), chunk_first.tolist(), start.tolist(), (last + 1).tolist(), strict=True)
    ):
        queue = queues[number]
        batch.puts.append((chunk_key(COLUMNS, queue, first), encode_columns(rows.take(slice(low, high)))))
        batch.puts.append((chunk_key(HEAD, queue, first), data[i * size : (i + 1) * size]))
    ends = np.flatnonzero(np.append(owner[1:] != owner[:-1], True))
    tails = np.zeros(len(ends), TAIL_DTYPE)
    own = firsts[owner[ends]]
    tails["first"] = np.where(own >= 0, own, rows.offset[begin[owner[ends]]])
    tails["chunk_first"] = chunk_first[ends]
    tails["running_before"] = running_before[ends]
    tails["head"] = heads[ends]
    batch.puts += _rows_of(tails, (TAIL + queues[n] for n in owner[ends].tolist()))


def _running(times: Ints, owner: Ints, ordinal: Ints, before: Ints) -> Ints:
    """The largest store time before each chunk: of its queue's chunks here, and of those in front of them."""
    found = before[owner].astype(np.int64)
    for i in np.flatnonzero(ordinal).tolist():  # queues with several chunks at once
        found[i] = max(int(found[i - 1]), int(times[i - 1]))
    return found


def _rows_of(values: Heads, keys: Iterator[bytes]) -> Iterator[Pair]:
    data, size = values.tobytes(), values.dtype.itemsize
    return ((key, data[i * size : (i + 1) * size]) for i, key in enumerate(keys))
