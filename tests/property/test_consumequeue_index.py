"""Random lives of a consume-queue index beside a plain model: lists of messages, searched one by one."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.consumequeue import writer as writing
from tiered.consumequeue.layout import QueueRows, queue_key
from tiered.consumequeue.lookup import ConsumeQueueIndex, QueueSpan
from tiered.consumequeue.writer import ConsumeQueueWriter
from tiered.metadata.memory import MemoryRedoStore

QUEUES = [("A", 0), ("A", 1), ("A" * 127, 2**31 - 1), ("A\x01", 0), ("日本", 7), ("", 0)]


class Message(NamedTuple):
    offset: int
    owned: int
    physical: int
    size: int
    tags_code: int
    time: int


def columns(messages: list[Message]) -> QueueRows:
    arrays = [np.array(column, np.int64) for column in zip(*messages, strict=True)]
    return QueueRows(*(arrays or [np.empty(0, np.int64)] * 6))


def messages_of(rows: QueueRows) -> list[Message]:
    names = ("offset", "owned", "physical", "size", "tags_code", "time")
    return [Message(*row) for row in zip(*(getattr(rows, n).tolist() for n in names), strict=True)]


@dataclass
class Life:
    """The index and the model; ``log`` is the broker's, for redo."""

    seed: int
    store: MemoryRedoStore = field(default_factory=MemoryRedoStore)
    model: dict[tuple[str, int], list[Message]] = field(default_factory=lambda: defaultdict(list))
    next_offset: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    physical: int = 1000
    time: int = 1_000_000

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.writer = ConsumeQueueWriter(self.store, self.chance.choice([1, 20, 10**6]))
        self.writer.begin(1, self.physical)

    def add(self) -> None:
        """Some messages of some queues, as a flush has them: by queue."""
        new: dict[tuple[str, int], list[Message]] = defaultdict(list)
        for _ in range(self.chance.randrange(60)):
            queue = self.chance.choice(QUEUES[: self.chance.randrange(1, 7)])
            kind = self.chance.random()
            if kind < 0.02:
                self.next_offset[queue] += self.chance.randrange(1, 10**9)
            elif kind < 0.03 and self.next_offset[queue]:
                self.next_offset[queue] = 0
                self.model[queue].clear()
                new[queue].append(self.message(queue))
                self.model[queue].clear()
            message = self.message(queue)
            new[queue].append(message)
        for queue, some in new.items():
            self.model[queue] += some[self.begins(some) :]
        starts = np.cumsum([0, *map(len, new.values())])
        rows = columns([m for some in new.values() for m in some])
        self.writer.add([queue_key(*q) for q in new], starts, rows, self.physical)

    def begins(self, some: list[Message]) -> int:
        """Where the last generation among these begins."""
        return max((i for i in range(1, len(some)) if some[i].offset <= some[i - 1].offset), default=0)

    def message(self, queue: tuple[str, int]) -> Message:
        owned = self.chance.choice([1] * 20 + [5])
        size = self.chance.randrange(90, 2000)
        self.time += self.chance.choice([0, 0, 1, 5, -50, 1000])
        found = Message(
            self.next_offset[queue],
            owned,
            self.physical,
            size,
            self.chance.choice([0, 0, 2**62, -7]),
            self.time,
        )
        self.next_offset[queue] += owned
        self.physical += size
        return found

    def cut(self) -> None:
        everything = [m.physical for some in self.model.values() for m in some]
        if not everything:
            return
        at = self.chance.choice(sorted(everything)[-20:])
        self.writer.cut(at)
        for queue, some in self.model.items():
            self.model[queue] = [m for m in some if m.physical < at]
            self.next_offset[queue] = max((m.offset + m.owned for m in self.model[queue]), default=0)
        self.physical = at

    def check(self) -> None:
        self.writer.spill()
        index = ConsumeQueueIndex(self.store)
        assert index.coverage() == self.writer.coverage
        for queue in QUEUES:
            some = self.model[queue]
            span = index.span(*queue)
            if not some:
                assert span is None
                assert index.offset_by_time(*queue, 0) is None
                continue
            assert span == QueueSpan(some[0].offset, some[-1].offset + some[-1].owned)
            read = [m for rows in index.rows(*queue, 0, 2**62) for m in messages_of(rows)]
            assert read == some
            first, end = sorted(
                (self.chance.choice(some).offset + self.chance.randrange(3), self.chance.choice(some).offset)
            )
            read = [m for rows in index.rows(*queue, first, end) for m in messages_of(rows)]
            assert read == [m for m in some if m.offset < end and m.offset + m.owned > first]
            for time in (0, 2**62, *(self.chance.choice(some).time + d for d in (-1, 0, 1))):
                expected = next((m.offset for m in some if m.time >= time), None)
                assert index.offset_by_time(*queue, time) == expected


def live(seed: int, chunk_rows: int, steps: int) -> None:
    with patch.object(writing, "CHUNK_ROWS", chunk_rows):
        life = Life(seed)
        for _ in range(steps):
            step = life.chance.random()
            if step < 0.75:
                life.add()
            elif step < 0.85:
                life.cut()
            elif step < 0.9:
                life.writer = (
                    ConsumeQueueWriter(life.store, 20) if life.writer.spill() is None else life.writer
                )
            life.check() if step > 0.6 else None
        life.check()


@given(seed=st.integers(0, 2**32), chunk_rows=st.sampled_from([1, 2, 7, 64, 4096]), steps=st.integers(1, 12))
def test_the_index_answers_as_the_model(seed: int, chunk_rows: int, steps: int) -> None:
    live(seed, chunk_rows, steps)


@pytest.mark.parametrize("seed", range(5))
def test_long_lives(seed: int) -> None:
    live(seed, 7, 60)
