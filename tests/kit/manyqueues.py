"""An archive of very many queues, made of commits and a checkpoint alone: no object that they name is there, so it can be
planned and not read. A million queues take half a minute."""

from __future__ import annotations

import random
import uuid

import numpy as np

from tests.kit.assemble import KEYS, open_log, put
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.log.writer import Claim, CommitLog
from tiered.clock import ManualClock
from tiered.codec.format.edits import EditBatch, EditKind, Rows, batch
from tiered.provider.base import Provider

ROWS, RECORD_BYTES = 4, 100
_SIZE = ROWS * RECORD_BYTES


def topic_name(number: int) -> str:
    """The topic of queues ``number``, ``number + topics``, and so on."""
    return f"Topic-{number:07d}"


def many_queues(
    provider: Provider,
    *,
    queues: int,
    topics: int,
    flushes: int = 3,
    commit_queues: int = 20_000,
    behind: int = 0,
    shard_bytes: int = 4 << 20,
) -> CommitLog:
    """In each flush a run of every queue, ``commit_queues`` in a commit and its object; a checkpoint; ``behind`` commits more
    of a thousand queues each."""
    clock, chance = ManualClock(), random.Random(1)
    log = open_log(provider, clock)
    log.claim(Claim(lineage=1, host="many"), 0, before_try=lambda head: None)
    for flush in range(flushes):
        for first in range(0, queues, commit_queues):
            some = np.arange(first, min(queues, first + commit_queues))
            put(log, *flushed(some, topics, flush, queues, chance))
    write_checkpoint(
        provider,
        KEYS,
        log.store.snapshot(),
        None,
        lambda: KEYS.shard(1, chance.randbytes(16)),
        shard_bytes=shard_bytes,
    )
    for number in range(behind):
        some = np.arange(number * 1000, min(queues, number * 1000 + 1000))
        put(log, *flushed(some, topics, flushes, queues, chance))
    return log


def flushed(
    queues: np.typing.NDArray[np.int64],
    topics: int,
    flush: int,
    all_queues: int,
    chance: random.Random,
    epoch: int = 1,
) -> list[EditBatch]:
    """One run of each of these queues, in one object."""
    count = len(queues)
    start = (flush * all_queues + queues) * _SIZE
    named = {
        "topic": [topic_name(number) for number in (queues % topics).tolist()],
        "queue_id": queues // topics,
    }
    same = {name: np.full(count, value) for name, value in (
        ("generation", 1), ("first_queue_offset", flush * ROWS), ("rows", ROWS), ("queue_offsets", ROWS),
        ("first_flat_offset", flush * _SIZE), ("bytes", _SIZE), ("min_store_time", flush), ("max_store_time", flush + 1),
        ("object", 0), ("block_count", 1),
    )}  # fmt: skip
    new = batch(
        EditKind.NEW_GENERATION, **named, generation=same["generation"], lineage=same["generation"],
        first_queue_offset=same["first_queue_offset"], physical_offset=start,
    )  # fmt: skip
    path = f"data/{epoch:010d}-{uuid.UUID(int=chance.getrandbits(128), version=4)}"
    added = batch(
        EditKind.ADD_OBJECT, key=path, object_id=chance.randbytes(16), level=0, length=1000 * count,
        sections=Rows([{1: [0, 10, 1]}]),
    )  # fmt: skip
    runs = batch(
        EditKind.APPEND_RUN, **named, **same, physical_start=start, physical_end=start + _SIZE,
        first_row=np.arange(count) * ROWS, first_block=np.arange(count),
    )  # fmt: skip
    end = int(start[-1]) + _SIZE
    progress = batch(EditKind.PROGRESS, lineage=1, physical_offset=end, mark_crc=7, crc_from=0)
    return [*(() if flush else (new,)), added, runs, progress]
