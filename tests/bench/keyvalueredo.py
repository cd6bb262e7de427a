"""Redo of the key-value view as a whole: a commitlog's files, read, checked, decided and put into the store."""

from __future__ import annotations

import random
import struct
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.bench.run import Row, expect
from tests.kit.brokerlog import record
from tiered.allocator import calm_collector, keep_freed_memory
from tiered.clock import SystemClock
from tiered.codec.record.message import encode_properties
from tiered.daemon.keyvalue import open_view
from tiered.keyvalue import ALWAYS
from tiered.metrics import Metrics
from tiered.settings import GIB, Settings
from tiered.view.operation import PUT, properties_of

NAMESPACE = "bench"
VALUE_BYTES = 100
FILE_BYTES = GIB
_BLANK = 0xCBD43194
_NOISE = random.Random(1).randbytes(1 << 20)


def write_log(store: Path, count: int, *, at_random: bool) -> int:
    """So many puts of as many keys, as a broker stores them; where the log ends."""
    (store / "commitlog").mkdir(parents=True)
    numbers = random.Random(2).sample(range(count), count) if at_random else range(count)
    start, data = 0, bytearray()
    for offset, number in enumerate(numbers):
        at = number * 97 % (len(_NOISE) - VALUE_BYTES)
        told = properties_of(PUT, b"%012d" % number, f"{offset:032X}", ALWAYS, None)
        made = record(
            start + len(data),
            _NOISE[at : at + VALUE_BYTES],
            topic=b"KV_" + NAMESPACE.encode(),
            queue_offset=offset,
            properties=encode_properties(told),
        )
        if len(data) + len(made) + 8 > FILE_BYTES:
            data += struct.pack(">iI", FILE_BYTES - len(data), _BLANK)
            _file(store, start, data)
            start, data = start + FILE_BYTES, bytearray()
            made = made[:28] + struct.pack(">q", start) + made[36:]
        data += made
    _file(store, start, data)
    return start + len(data)


def _file(store: Path, start: int, data: bytearray) -> None:
    with (store / "commitlog" / f"{start:020d}").open("wb") as file:
        file.write(data)
        file.truncate(FILE_BYTES)


def redo(work: Path, messages: int) -> list[Row]:
    """From the first byte of the log to its end, into an empty store, in this process; nothing is asked meanwhile."""
    keep_freed_memory()  # as the view's process does
    calm_collector()
    rows = []
    for order in ("ascending", "at random"):
        log = work / order.replace(" ", "-")
        end = write_log(log, messages, at_random=order == "at random")
        for kind, target in (("rocksdb", 300_000), ("map", 500_000)):
            alone, whole, busy, flushing = _redone(work / f"{kind}-{order}", log, kind, messages, end)
            rows.append(
                Row(
                    f"redo of {messages:,} messages, keys {order}, {kind} (flush then: {flushing:.1f} s)",
                    f"{messages / whole:,.0f}/s ({messages / busy:,.0f}/s by its CPU time)",
                    f"{messages / alone:,.0f}/s, the log read and checked alone",
                    f"{alone / whole:.2f}",
                    f"≥ {target:,}/s",
                )
            )
    return rows


def _redone(state: Path, log: Path, kind: str, messages: int, end: int) -> tuple[float, float, float, float]:
    """Seconds of the feed alone; of feed and redo, and their thread's CPU; of the flush at the end."""
    with ExitStack() as stack:
        state.mkdir()
        base = Settings()
        settings = replace(
            base,
            source=replace(base.source, store_dir=str(log)),
            kv=replace(base.kv, store=kind, map_bytes=8 * GIB, flush_ms=3_600_000),
        )
        clock = SystemClock()
        view = open_view(stack, settings, clock, Metrics(), state, threading.Event()).view
        alone = _read(view._open_feed(view._redo.position), end)
        started, busy = time.perf_counter(), time.thread_time()
        while view.progress.physical < end:
            _rested(view.step().wait_seconds)
        whole, busy = time.perf_counter() - started, time.thread_time() - busy
        expect(view.states()[NAMESPACE].next, messages, "messages were applied")
        started = time.perf_counter()
        view.finish()
        return alone, whole, busy, time.perf_counter() - started


def _read(feed: object, end: int) -> float:
    started, reached = time.perf_counter(), 0
    while reached < end:
        batch = feed.poll()  # type: ignore[attr-defined]
        reached = reached if batch is None else int(batch.position.physical)
        _rested(0 if batch is not None else 0.001)
    return time.perf_counter() - started


def _rested(seconds: float | None) -> None:
    if seconds:
        time.sleep(seconds)
