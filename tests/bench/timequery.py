"""Searches by time in one queue of very many messages: the local consume-queue index, as a reader beside its writer opens it,
each search at a random time of its own."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from tests.bench.run import Row
from tiered.consumequeue.layout import QueueRows, queue_key
from tiered.consumequeue.lookup import ConsumeQueueIndex
from tiered.consumequeue.writer import ConsumeQueueWriter
from tiered.metadata.open import open_redo
from tiered.metadata.peek import peek_redo
from tiered.settings import ConsumeQueue

TOPIC, QUEUE, STAMP = "Bench", 7, "bench"
RECORD_BYTES = 1_000
AT_ONCE = 250_000
A_MS = 10
"""Messages of a millisecond."""
ROUNDS, SEARCHES = 3, 3_000


def time_query(work: Path, messages: int) -> list[Row]:
    """``messages`` in a queue; each of three rounds is another 3,000 searches, its percentiles by the clock and by CPU."""
    directory = work / "index"
    store = open_redo("rocksdb", directory, ConsumeQueue().cache_bytes, stamp=STAMP)
    began = time.process_time()
    _fill(ConsumeQueueWriter(store, AT_ONCE), messages)
    filled = time.process_time() - began
    store.close()
    index = ConsumeQueueIndex(peek_redo(directory, STAMP))
    drawn = np.random.default_rng(1)
    rounds = [_searches(index, drawn.integers(0, messages // A_MS, SEARCHES)) for _ in range(ROUNDS)]
    clock, cpu = (sorted(float(np.percentile(each[kind], 99)) for each in rounds) for kind in (0, 1))
    middle = sorted(float(np.percentile(each[0], 50)) for each in rounds)[ROUNDS // 2]
    return [
        Row(
            f"search by time in a queue of {messages:,} messages, local index: p99 by the clock, of {ROUNDS} rounds",
            f"{clock[ROUNDS // 2]:.2f} ms ({clock[0]:.2f}–{clock[-1]:.2f}), p50 {middle:.2f} ms",
            f"{cpu[ROUNDS // 2]:.2f} ms of CPU (p99)",
            "-",
            "≤ 1 ms",
        ),
        Row("the same, written: CPU a message", f"{filled / messages * 1e6:.2f} µs", "-", "-", "-"),
    ]


def _fill(writer: ConsumeQueueWriter, messages: int) -> None:
    writer.begin(1, 0)
    for first in range(0, messages, AT_ONCE):
        offsets = np.arange(first, min(first + AT_ONCE, messages), dtype=np.int64)
        ones = np.ones(len(offsets), np.int64)
        rows = QueueRows(
            offsets, ones, offsets * RECORD_BYTES, ones * RECORD_BYTES, ones * 0, offsets // A_MS
        )
        end = int(offsets[-1] + 1) * RECORD_BYTES
        writer.add([queue_key(TOPIC, QUEUE)], np.array([0, len(offsets)]), rows, end)
    writer.flush()


def _searches(index: ConsumeQueueIndex, times_ms: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray:
    """Milliseconds of each search: by the clock, and of this thread's CPU. ``SystemExit`` for an answer that is not right."""
    took = np.empty((2, len(times_ms)))
    for number, store_time_ms in enumerate(times_ms.tolist()):
        clock, cpu = time.perf_counter_ns(), time.thread_time_ns()
        found = index.offset_by_time(TOPIC, QUEUE, store_time_ms)
        took[:, number] = time.perf_counter_ns() - clock, time.thread_time_ns() - cpu
        if found != store_time_ms * A_MS:
            raise SystemExit(f"time {store_time_ms}: found offset {found} and not {store_time_ms * A_MS}")
    return took / 1e6
