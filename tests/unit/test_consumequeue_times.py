"""When the local consume-queue index may answer a search by time in the archive, and when it must not."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from tiered.archive.state.values import ObjectRef, RunId, RunState
from tiered.clock import ManualClock
from tiered.consumequeue.layout import QueueRows, queue_key, stamp_of
from tiered.consumequeue.lookup import ConsumeQueueIndex
from tiered.consumequeue.place import index_directory
from tiered.consumequeue.writer import ConsumeQueueWriter
from tiered.metadata.base import RedoStore
from tiered.metadata.memory import MemoryRedoStore
from tiered.metadata.open import open_redo
from tiered.metadata.peek import peek_redo
from tiered.model import MessageQueue
from tiered.settings import ConsumeQueue, Settings, State
from tiered.store.timeindex import LocalTimes, _first_since

ARCHIVE = bytes(range(16))
FIRST, COUNT, BYTES = 100, 50, 1000
"""Queue offsets from FIRST on, a message of BYTES bytes each from physical offset 0 on, stored at 10 ms each."""


def fill(store: RedoStore, lineage: int = 1) -> None:
    writer = ConsumeQueueWriter(store, 10)
    writer.begin(lineage, 0)
    number = np.arange(COUNT, dtype=np.int64)
    ones = np.ones(COUNT, np.int64)
    rows = QueueRows(FIRST + number, ones, number * BYTES, ones * BYTES, ones * 0, number * 10)
    writer.add([queue_key("Orders", 0)], np.array([0, COUNT]), rows, COUNT * BYTES)
    writer.flush()


def run(first: int = FIRST, end: int = FIRST + COUNT, *, lineage: int = 1, shift: int = 0) -> RunState:
    """Messages [first, end), as the archive has them; ``shift``: that much further on in the log."""
    low, high = (first - FIRST) * BYTES + shift, (end - FIRST) * BYTES + shift
    return RunState(
        MessageQueue("Orders", 0), 1, lineage, RunId(7, 0), ObjectRef(7, 0), first, end - first, first, end, end - first,
        0, high - low, 0, COUNT * 10, 0, 0, 1, low, high, None,
    )  # fmt: skip


@pytest.fixture
def index() -> ConsumeQueueIndex:
    store = MemoryRedoStore()
    fill(store)
    return ConsumeQueueIndex(store)


def test_what_the_run_has_is_found(index: ConsumeQueueIndex) -> None:
    assert _first_since(index, run(), 0) == FIRST
    assert _first_since(index, run(), 101) == FIRST + 11
    assert _first_since(index, run(FIRST + 5, FIRST + 20), 101) == FIRST + 11


def test_what_is_not_sure_is_left_to_the_archive(index: ConsumeQueueIndex) -> None:
    assert _first_since(index, run(lineage=2), 101) is None, "another broker"
    assert _first_since(index, run(FIRST - 1, FIRST + 20), 101) is None, "the index begins later"
    forgotten = run(FIRST - 1, FIRST + 20, shift=BYTES)
    assert _first_since(index, forgotten, 101) is None, "covered, but the queue's beginning was forgotten"
    assert _first_since(index, run(FIRST + 20, FIRST + 40), 101) is None, (
        "found before the run: it was trimmed"
    )
    assert _first_since(index, run(FIRST, FIRST + 5), 101) is None, "found behind the run"
    assert _first_since(index, run(end=FIRST + COUNT + 1), 101) is None, "not covered to its end"
    assert _first_since(index, run(FIRST, FIRST + 10, shift=BYTES * 20), 5) is None, (
        "other records with these offsets"
    )
    assert _first_since(index, run(), COUNT * 10) is None


def settings(directory: Path) -> Settings:
    return Settings(
        state=State(directory=str(directory)), consumequeue=ConsumeQueue(enabled=True, flush_ms=30_000)
    )


def test_it_is_looked_at_again_after_a_while_and_a_damaged_one_is_not_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    times = LocalTimes(settings(tmp_path), ARCHIVE, clock)
    assert times.first_since(run(), 101) is None, "nobody has made one"
    store = open_redo("rocksdb", index_directory(str(tmp_path)), 1 << 20, stamp=stamp_of(ARCHIVE))
    fill(store)
    assert times.first_since(run(), 101) is None, "looked for just now"
    clock.advance(31)
    assert times.first_since(run(), 101) == FIRST + 11, "beside the process that writes it"
    assert LocalTimes(settings(tmp_path), bytes(16), clock).first_since(run(), 101) is None, (
        "of another archive"
    )
    store.put_many([(key, b"") for key, _ in list(store.iterate(b"c"))])
    store.close()
    clock.advance(31)
    with caplog.at_level(logging.WARNING):
        assert times.first_since(run(), 101) is None
    assert "is not asked" in caplog.text


def test_a_look_into_a_store_walks_as_the_store_does(tmp_path: Path) -> None:
    store = open_redo("rocksdb", tmp_path, 1 << 20, stamp="s")
    keys = [b"a", b"b\x00", b"b1", b"b2", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"]
    store.put_many([(key, key) for key in keys], applied=b"here")
    store.flush()
    look = peek_redo(tmp_path, "s")
    assert look.applied() == b"here"
    for prefix in (b"a", b"b", b"bb", b"c", b"\xff", b"d"):
        for start in (None, prefix, prefix + b"1", prefix + b"2\x00", prefix + b"\xff\xff\xff"):
            for reverse in (False, True):
                expected = list(store.iterate(prefix, start=start, reverse=reverse))
                assert list(look.iterate(prefix, start=start, reverse=reverse)) == expected, (
                    prefix,
                    start,
                    reverse,
                )
    store.close()
