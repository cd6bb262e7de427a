"""Many runs of a fold as one table, of which plans are made. No object is made for a run until one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import QUEUE, RUN, U4, queue_of, topic_key
from tiered.archive.state.layout import QUEUE_DTYPE, RUN_RECORD_DTYPE, table
from tiered.archive.state.values import RunState, run_state
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Ints
from tiered.model import MessageQueue, ObjectRef

_CHUNK = 8192
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True)
class Queues:
    """Queues side by side: topic (an index of ``topics``), id, and generation."""

    topics: tuple[str, ...]
    topic: Ints
    queue_id: Ints
    generation: Ints

    def __len__(self) -> int:
        return len(self.topic)

    def names(self) -> list[MessageQueue]:
        """Each as topic and id."""
        pairs = zip(self.topic.tolist(), self.queue_id.tolist(), strict=True)
        return [MessageQueue(self.topics[topic], queue_id) for topic, queue_id in pairs]

    def only(self, rows: npt.NDArray[Any]) -> Queues:
        """Some of them."""
        used, topic = np.unique(self.topic[rows], return_inverse=True)
        names = tuple(self.topics[i] for i in used.tolist())
        return Queues(names, topic, self.queue_id[rows], self.generation[rows])


@dataclass(frozen=True, slots=True)
class RunTable:
    """Runs: of each its queue (an index of ``queues``) and its record (``RUN_RECORD_DTYPE``)."""

    queues: Queues
    queue: Ints
    records: npt.NDArray[np.void]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[RunState]:
        q = self.queues
        names = q.names()
        generations = q.generation.tolist()
        for queue, record in zip(self.queue.tolist(), self.records, strict=True):
            yield run_state(names[queue], generations[queue], record.tobytes())

    @property
    def sizes(self) -> Ints:
        """Bytes of the live records of each."""
        found: Ints = self.records["flat_end"] - self.records["first_flat_offset"]
        return found

    @property
    def messages(self) -> Ints:
        """Queue offsets that are alive in each."""
        found: Ints = self.records["end"] - self.records["start"]
        return found

    def only(self, rows: npt.NDArray[Any]) -> RunTable:
        """Some of them, with all queues."""
        return replace(self, queue=self.queue[rows], records=self.records[rows])

    def of(self, choose: Callable[[Queues], npt.NDArray[np.bool_]]) -> RunTable:
        """Those of the queues chosen, and these queues only, with runs or without."""
        good = choose(self.queues)
        mine = good[self.queue]
        place = np.cumsum(good) - 1
        return RunTable(self.queues.only(np.flatnonzero(good)), place[self.queue[mine]], self.records[mine])

    def compact(self) -> RunTable:
        """The same with none but their own queues."""
        used, queue = np.unique(self.queue, return_inverse=True)
        return RunTable(self.queues.only(used), queue, self.records)


def read_queues(state: ArchiveState) -> tuple[Queues, dict[bytes, int]]:
    """Queues that have a current generation, by topic and id; and where each is, by its key with the generation."""
    keys: list[bytes] = []
    numbers: list[bytes] = []
    pairs = state.view.iterate(QUEUE)
    while chunk := list(islice(pairs, _CHUNK)):
        generations = table([value for _, value in chunk], QUEUE_DTYPE)["generation"].tolist()
        for (key, _), generation in zip(chunk, generations, strict=True):
            if generation > 0:
                keys.append(key[1:])
                numbers.append(U4.pack(generation))
    heads = dict.fromkeys(key[:-4] for key in keys)
    topics = tuple(queue_of(head + bytes(4)).topic for head in heads)
    index = {head: number for number, head in enumerate(heads)}
    found = Queues(
        topics,
        np.array([index[key[:-4]] for key in keys], np.int64),
        np.frombuffer(b"".join(key[-4:] for key in keys), ">u4").astype(np.int64),
        np.frombuffer(b"".join(numbers), ">u4").astype(np.int64),
    )
    return found, {key + number: place for place, (key, number) in enumerate(zip(keys, numbers, strict=True))}


def read_runs(
    state: ArchiveState, choose: Callable[[Queues], npt.NDArray[np.bool_]] | None = None
) -> RunTable:
    """Live runs of current generations, by queue and offset; of the queues chosen, whose runs alone are loaded, or of all."""
    queues, places = read_queues(state)
    good = np.ones(len(queues), np.bool_) if choose is None else choose(queues)
    found: list[Ints] = []
    records: list[npt.NDArray[np.void]] = []
    pairs = chain.from_iterable(state.view.iterate(prefix) for prefix in _prefixes(queues, good))
    while chunk := list(islice(pairs, _CHUNK)):
        place = np.array([places.get(key[1:-_OFFSET_BYTES], -1) for key, _ in chunk], np.int64)
        current = place >= 0
        found.append(place[current])
        records.append(table([value for _, value in chunk], RUN_RECORD_DTYPE)[current])
    if not found:
        made = RunTable(queues, np.zeros(0, np.int64), np.zeros(0, RUN_RECORD_DTYPE))
    else:
        made = RunTable(queues, np.concatenate(found), np.concatenate(records))
    return made.of(lambda _: good)


def _prefixes(queues: Queues, good: npt.NDArray[np.bool_]) -> Iterator[bytes]:
    """Of the keys of the chosen queues' runs, ascending: all at once, or topic by topic."""
    if good.all():
        yield RUN
        return
    for topic in np.unique(queues.topic[good]).tolist():
        yield RUN + topic_key(queues.topics[topic])


def objects_of(runs: RunTable) -> tuple[list[ObjectRef], Ints]:
    """Objects that runs lie in, and of each run its object (an index)."""
    seqs, seq = np.unique(runs.records["commit_seq"], return_inverse=True)
    numbers = runs.records["object"].astype(np.int64)
    width = int(numbers.max(initial=0)) + 1
    codes, mine = np.unique(seq * width + numbers, return_inverse=True)
    pairs = zip(seqs[codes // width].tolist(), (codes % width).tolist(), strict=True)
    return [ObjectRef(*pair) for pair in pairs], mine
