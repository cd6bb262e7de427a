"""Hostile topic names as keys: every driver keeps each queue apart, and a checkpoint of them is the same fold everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from tests.kit.assemble import KEYS, memory
from tests.kit.histories import ARCHIVE_ID, open_epoch
from tiered.archive.checkpoint.store import fold_pairs, load_checkpoint, write_checkpoint
from tiered.archive.fold.apply import apply
from tiered.archive.state.cached import open_fold
from tiered.archive.state.layers import store_changes
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.format.edits import Commit, EditKind, Rows, batch
from tiered.metadata.base import MetadataStore
from tiered.metadata.open import open_redo
from tiered.model import MessageQueue

CACHE = 1 << 20
LAST_QUEUE = 2**31 - 1
TOPICS = [
    "\0", "\0\x01", "\0\xff", "\x01", "a", "a\0", "a\0\x01", "a\0\x01\0\0\0\0", "a\x01", "a\xff", "ab", "%RETRY%g", "%LMQ%a/b",
    "../..", "q", "r", "h", "\x7f" * 127, "é" * 63 + "x", "\U0010ffff" * 31 + "xyz", " ", "\n", "!off-queue",
    "a" * 126, "a" * 127,
]  # fmt: skip
IDS = (0, 1, 255, 256, LAST_QUEUE)
QUEUES = [MessageQueue(topic, number) for topic in TOPICS for number in IDS]


@pytest.fixture(params=["memory", "json", "rocksdb", "map"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    kind = request.param
    opened = open_redo(kind, tmp_path, CACHE) if kind == "map" else open_fold(kind, tmp_path, CACHE)
    yield opened
    opened.close()


def fill(store: MetadataStore) -> None:
    """One run in each queue; its first offset is the queue's number."""
    opening, writer = open_epoch(1, b"w" * 16, 1), b"w" * 16
    first = Commit(0, 1, ARCHIVE_ID, b"1" * 16, bytes(16), writer, [opening])
    store_changes(store, [apply(store, first)])
    number = np.arange(len(QUEUES))
    same = {
        "topic": [queue.topic for queue in QUEUES],
        "queue_id": np.array([queue.queue_id for queue in QUEUES]), "generation": np.ones_like(number),
        "first_queue_offset": number,
    }  # fmt: skip
    edits = [
        batch(
            EditKind.ADD_OBJECT, key=f"data/0000000001-00000000-0000-4000-8000-{1:012d}", object_id=b"o" * 16, level=0,
            length=1000, sections=Rows([{1: [0, 10, 1]}]),
        ),
        batch(EditKind.NEW_GENERATION, **same, lineage=np.ones_like(number), physical_offset=number * 10),
        batch(
            EditKind.APPEND_RUN, **same, physical_start=number * 10, physical_end=number * 10 + 10, first_row=number,
            first_block=number, rows=np.ones_like(number), queue_offsets=np.ones_like(number), bytes=np.full_like(number, 10),
            first_flat_offset=np.zeros_like(number), min_store_time=number, max_store_time=number,
            object=np.zeros_like(number), block_count=np.ones_like(number),
        ),
        batch(EditKind.PROGRESS, lineage=1, physical_offset=len(QUEUES) * 10, mark_crc=7, crc_from=0),
    ]  # fmt: skip
    second = Commit(1, 1, ARCHIVE_ID, b"2" * 16, b"1" * 16, writer, edits)
    store_changes(store, [apply(store, second)])


def check(store: MetadataStore) -> None:
    state = ArchiveState(store)
    expected = sorted(QUEUES, key=lambda queue: (queue.topic.encode(), queue.queue_id))
    assert [found.queue for found in state.queues()] == expected
    for number, queue in enumerate(QUEUES):
        found = state.queue(queue)
        assert found is not None
        assert (found.min_offset, found.max_offset) == (number, number + 1)
        assert [run.start for run in state.runs(queue, 1)] == [number]
    for topic in TOPICS:
        assert [found.queue for found in state.queues(topic)] == [
            MessageQueue(topic, number) for number in IDS
        ]
    assert list(state.queues("b")) == []
    table, known = state.queue_table([q.topic for q in QUEUES], np.array([q.queue_id for q in QUEUES]))
    assert known.all()
    assert table["min_offset"].tolist() == list(range(len(QUEUES)))


def test_each_queue_is_kept_apart(store: MetadataStore) -> None:
    fill(store)
    check(store)
    check_again = store.snapshot()
    assert list(fold_pairs(check_again)) == list(fold_pairs(store))


def test_a_checkpoint_of_them_loads_as_the_same_fold(store: MetadataStore) -> None:
    fill(store)
    saved = list(fold_pairs(store))
    provider, number = memory(ManualClock()), count(1)
    manifest = write_checkpoint(
        provider, KEYS, store.snapshot(), None, lambda: KEYS.shard(1, next(number).to_bytes(16, "big")),
        shard_bytes=2048,
    )  # fmt: skip
    assert len(manifest.shards) > 3
    store.clear()
    load_checkpoint(provider, manifest, store)
    assert list(fold_pairs(store)) == saved
    check(store)
