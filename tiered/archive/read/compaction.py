"""Compaction by key, computed when it is asked for: which of a queue's messages are the newest of their keys (DESIGN.md,
"Compaction by key"). The queue itself stays what it is.

Memory is bounded whatever a queue holds: keys are hashed and kept as arrays; what is more than the bound is divided by hash
into local files, each of which is then small enough; the outcome is one bit for each queue offset.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiered.archive.read.flatfile import RunReader, Stretch
from tiered.archive.read.view import View
from tiered.archive.state.values import RunState
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.properties import whole_keys
from tiered.codec.types import Ints
from tiered.errors import TieredError, of_local_disk
from tiered.model import MessageQueue

KEY_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("message", "<i8")])
"""A key's hash (128 bits of XXH3) and a message that carries it: twice its queue offset, and one more if it has a body."""

_MOST_PARTS = 4096
_PREFIX = "tiered-compact-"
_OFFSETS_AT_ONCE = 1 << 16


class CompactedQueue:
    """The messages of a queue that are the newest of their keys, at the commit of a view: those of the current generation, a
    key being all of the property ``KEYS``. A newest message without a body says that its key is gone, and neither is kept; a
    message without a key is not kept either. Of one thread.

    ``memory_bytes`` bounds what keys take in memory; ``directory`` is where more of them lie (``None``: where the system keeps
    temporary files). ``start``: messages from this offset on alone, which is all that it takes to know what is kept of them.
    ``offsets`` is asked first of all: it reads every record once.
    """

    def __init__(
        self,
        view: View,
        queue: MessageQueue,
        *,
        memory_bytes: int,
        directory: str | None = None,
        start: int = 0,
        progress: Callable[[int], None] = lambda offsets: None,
    ) -> None:
        self._reader = RunReader(view.state, view.objects)
        self._start = start
        known = view.known(queue)
        generation = None if known is None else known.generation
        self._runs = [] if generation is None else list(view.state.runs(queue, generation, from_offset=start))
        self._memory_bytes = memory_bytes
        self._directory = directory
        self._progress = progress
        self.without_key = 0
        """Messages that have no key: a compaction topic of RocketMQ takes none."""

    def offsets(self) -> Iterator[Ints]:
        """Queue offsets of what is kept, ascending, some at a time. ``Corrupt`` where a record cannot be read: nothing is
        answered then, since the newest of a key may be what is missing."""
        if not self._runs:
            return
        first, end = max(self._start, self._runs[0].start), self._runs[-1].end
        with ExitStack() as stack:
            bits = self._bits(stack, end - first)
            entries = KeyEntries(
                stack, self._memory_bytes, sum(run.rows for run in self._runs), self._directory
            )
            for run in self._runs:
                for stretch in self._reader.stretches(run, max(first, run.start), run.end):
                    found = key_entries(stretch, run.start)
                    self.without_key += len(stretch) - len(found)
                    entries.add(found[found["message"] >= 2 * first])
                    self._progress(stretch.next_offset - first)
            for part in entries.parts():
                at = newest_messages(part) - first
                np.bitwise_or.at(bits, at >> 3, np.left_shift(1, at & 7).astype(np.uint8))
            for low in range(0, len(bits), _OFFSETS_AT_ONCE >> 3):
                some = np.unpackbits(bits[low : low + (_OFFSETS_AT_ONCE >> 3)], bitorder="little")
                kept = np.flatnonzero(some)
                if len(kept):
                    yield kept + (first + (low << 3))

    def records(self, offsets: Ints) -> Iterator[tuple[int, bytes]]:
        """The records that own these queue offsets (ascending, as ``offsets`` gives them)."""
        for run in self._within(int(offsets[0]), int(offsets[-1])):
            low, high = np.searchsorted(offsets, (run.start, run.end)).tolist()
            if low < high:
                yield from self._reader.records(run, offsets[low:high])

    def _within(self, first: int, last: int) -> Iterator[RunState]:
        return (run for run in self._runs if run.start <= last and run.end > first)

    def _bits(self, stack: ExitStack, offsets: int) -> npt.NDArray[np.uint8]:
        """A bit for each offset: in memory, or in a local file where they are more than half of the bound."""
        length = (offsets + 7) >> 3
        if length <= self._memory_bytes // 2:
            return np.zeros(length, np.uint8)
        try:
            made = tempfile.TemporaryFile(dir=self._directory, prefix=_PREFIX)  # noqa: SIM115 - the stack closes it
            file = stack.enter_context(made)
            os.posix_fallocate(file.fileno(), 0, length)  # a page that finds no room later ends the process
        except OSError as error:
            raise _unwritable(error) from error
        return np.memmap(file, np.uint8, "r+", shape=(length,))


def key_entries(stretch: Stretch, start: int) -> npt.NDArray[np.void]:
    """An entry for each record of a stretch that has a key. ``start``: where its run does; a trim may begin inside an inner
    batch, which then counts from there."""
    frames = Frames(stretch.starts, stretch.sizes, len(stretch.data), Stop.END)
    batch = decode_headers(stretch.data, frames)
    rows, digests = whole_keys(batch)
    found = np.empty(len(rows), KEY_ENTRY)
    halves = np.frombuffer(digests, "<u8").reshape(-1, 2)
    found["high"], found["low"] = halves[:, 1], halves[:, 0]
    offsets = np.maximum(stretch.queue_offsets, start)
    found["message"] = offsets[rows] * 2 + (batch.headers["body_length"][rows] > 0)
    return found


def straddling_offset(reader: RunReader, run: RunState) -> int:
    """Where the first record of a queue's first run begins: before the run's own start, if a trim ended inside it."""
    if run.dense or run.start == run.first_queue_offset:
        return run.start
    return int(next(reader.stretches(run, run.start, run.start + 1)).queue_offsets[0])


def archived_by(view: View, queue: MessageQueue, generation: int, end: int) -> int | None:
    """The commit that archived the message below queue offset ``end``; ``None`` where this generation has none, or is not the
    current one."""
    known = view.known(queue)
    if known is None or known.generation != generation:
        return None
    run = next(view.state.runs(queue, generation, from_offset=end - 1), None)
    if run is None or not run.start < end <= run.end:
        return None
    return RunReader(view.state, view.objects).commit_of(run, end - 1)


class KeyEntries:
    """Entries of all messages, the newest of each key known so far: in memory, or divided by hash into local files."""

    def __init__(self, stack: ExitStack, memory_bytes: int, messages: int, directory: str | None) -> None:
        self._room = max(1, memory_bytes // (4 * KEY_ENTRY.itemsize))  # sorting takes copies
        parts = -(-messages // self._room)
        self._bits = min(
            max(0, (parts - 1).bit_length() + 1 if parts > 1 else 0), _MOST_PARTS.bit_length() - 1
        )
        self._stack, self._directory = stack, directory
        self._waiting: list[npt.NDArray[np.void]] = []
        self._count = 0
        self._folder: Path | None = None
        self._spilled: dict[str, int] = {}  # entries by file; behind them may lie half of one: a full disk

    def add(self, entries: npt.NDArray[np.void]) -> None:
        """Take some in."""
        self._waiting.append(entries)
        self._count += len(entries)
        if self._count < self._room:
            return
        kept = newest_entries(np.concatenate(self._waiting))
        self._waiting, self._count = [kept], len(kept)
        if self._count > self._room // 2:  # else many messages share few keys
            self._spill(kept)
            self._waiting, self._count = [], 0

    def parts(self) -> Iterator[npt.NDArray[np.void]]:
        """All of them, those of one key in one part."""
        rest = np.concatenate([*self._waiting, np.empty(0, KEY_ENTRY)])
        if self._folder is None:
            yield rest
            return
        self._spill(rest)
        self._waiting = []
        for name in sorted(self._spilled):
            yield np.fromfile(self._folder / name, KEY_ENTRY, self._spilled[name])

    def _spill(self, entries: npt.NDArray[np.void]) -> None:
        try:
            if self._folder is None:
                made = tempfile.TemporaryDirectory(dir=self._directory, prefix=_PREFIX)
                self._folder = Path(self._stack.enter_context(made))
            number = (
                entries["high"] >> np.uint64(64 - self._bits)
                if self._bits
                else np.zeros(len(entries), np.uint64)
            )
            order = np.argsort(number, kind="stable")
            bounds = np.flatnonzero(np.diff(number[order], prepend=np.uint64(0xFFFF_FFFF)))
            for some in np.split(order, bounds[1:]) if len(order) else ():
                name = f"{int(number[some[0]]):04d}"
                whole = self._spilled.get(name, 0)
                with (self._folder / name).open("r+b" if whole else "wb") as file:
                    file.seek(whole * KEY_ENTRY.itemsize)
                    file.write(entries[some].tobytes())
                self._spilled[name] = whole + len(some)
        except OSError as error:
            raise _unwritable(error) from error


def newest_entries(entries: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
    """Of each key the entry of its newest message."""
    ordered = entries[np.lexsort((entries["message"], entries["low"], entries["high"]))]
    last = np.ones(len(ordered), np.bool_)
    last[:-1] = (ordered["high"][1:] != ordered["high"][:-1]) | (ordered["low"][1:] != ordered["low"][:-1])
    return ordered[last]


def newest_messages(entries: npt.NDArray[np.void]) -> Ints:
    """Queue offsets of the newest message of each key, unless that has no body."""
    newest = newest_entries(entries)["message"]
    found: Ints = newest[(newest & 1) == 1] >> 1
    return found


def _unwritable(error: OSError) -> TieredError:
    return of_local_disk(
        "keys cannot be kept on the local disk",
        error,
        hint="set TMPDIR to a directory with room",
        path=tempfile.gettempdir(),
    )
