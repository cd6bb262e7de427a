"""Blocks compressed in a pool, and the memory that their records are gathered in, used again and again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from itertools import pairwise
from typing import TypeVar

import numpy as np

from tiered.codec.format.block import StoredBlocks, compress_pieces
from tiered.codec.types import Ints
from tiered.write.dictionaries import Dictionaries

TASKS_PER_THREAD = 2
"""Pieces a flush's blocks are compressed in, per thread: enough that a thread that started late does not hold up the flush."""

QUICK_BYTES = 512
"""Blocks below this are compressed quickly: with very many queues nearly each is one message, merging puts it among others
soon, and zstd's tables of such a block cost more than all else that archiving does for it."""

PLAIN_BYTES = 256
"""Blocks below this, a short message alone, are not compressed until they are merged: it would save a sixth to a quarter of
them, and take longer than all that is done with their bytes besides."""

Result = TypeVar("Result")


class SpareMemory:
    """Memory that flushes gathered their records in, for the next ones. A piece above ``keep_bytes`` is given back instead."""

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        self.pieces: list[memoryview] = []

    def take(self) -> memoryview:
        """A piece, of any size; empty if there is none."""
        try:
            return self.pieces.pop()
        except IndexError:
            return memoryview(b"")

    def give(self, memory: memoryview) -> None:
        """Nothing looks at ``memory`` any more."""
        if len(memory) <= self._keep_bytes:
            self.pieces.append(memory)


class Compressing:
    """Blocks of one flush that are being compressed."""

    def __init__(self, tasks: list[Future[StoredBlocks]], memory: memoryview, spare: SpareMemory) -> None:
        """``memory`` is what the blocks lie in: once all are compressed, it goes to ``spare``."""
        self._tasks = tasks
        self._memory = memory
        self._spare = spare
        self._stored: StoredBlocks | None = None

    def result(self) -> StoredBlocks:
        """The compressed blocks, waited for. It may be asked again, by one thread at a time."""
        if self._stored is None:
            self._stored = StoredBlocks.joined([task.result() for task in self._tasks])
            self._spare.give(self._memory)
        return self._stored


class Compression:
    """Drafting and compression in a pool: compression in a few tasks of about equal bytes rather than one per block."""

    def __init__(self, pool: Executor, threads: int, level: int, dictionary_bytes: int = 0) -> None:
        """``level``: zstd's, 0 for none. ``dictionary_bytes``: of the dictionary for small blocks, 0 for none."""
        self._pool = pool
        self._tasks = threads * TASKS_PER_THREAD
        self._level = level
        self._dictionaries = Dictionaries(dictionary_bytes if level else 0)

    def start(self, work: Callable[[], Result]) -> Future[Result]:
        """Have something made in the pool."""
        return self._pool.submit(work)

    def begin(self, raw: memoryview, edges: Ints) -> list[Future[StoredBlocks]]:
        """Start on the blocks ``raw[edges[i]:edges[i + 1]]``."""
        parts = min(len(edges) - 1, self._tasks)
        cuts = np.searchsorted(edges, np.linspace(0, edges[-1], parts + 1)[1:-1])
        bounds = sorted({0, *cuts.tolist(), len(edges) - 1})
        dictionary = self._dictionaries.for_blocks(raw, edges)
        return [
            self._pool.submit(
                compress_pieces,
                raw,
                edges[a : b + 1],
                level=self._level,
                quick_below=QUICK_BYTES,
                plain_below=PLAIN_BYTES,
                dictionary=dictionary,
            )
            for a, b in pairwise(bounds)
        ]
