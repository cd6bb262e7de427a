"""Many queues of a fold side by side, as arrays: a million of them are no million objects.

Topics are an Arrow array, in the order of their bytes, which is that of the fold's keys. What a walk over the fold makes on its
way, keys and names, it makes for some thousand queues at a time.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tiered.archive.checkpoint.partial import PartialView
from tiered.archive.state.keys import QUEUE, packed, queue_of, topic_key
from tiered.archive.state.layout import QUEUE_DTYPE, table
from tiered.archive.state.view import ArchiveState
from tiered.codec.types import Bools, Ints
from tiered.model import MessageQueue
from tiered_spark.choice import Choice

CHUNK = 8192
"""Keys of a walk that are looked at together."""

_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Queues:
    """Queues, ascending by topic and id: topic (an index of ``topics``), id, and generation."""

    topics: pa.StringArray
    topic: npt.NDArray[np.int32]
    queue_id: npt.NDArray[np.int32]
    generation: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.topic)

    def names(self) -> list[MessageQueue]:
        """Each as topic and id."""
        topics = self.topics.to_pylist()
        pairs = zip(self.topic.tolist(), self.queue_id.tolist(), strict=True)
        return [MessageQueue(topics[topic], queue_id) for topic, queue_id in pairs]

    def keys(self) -> list[bytes]:
        """Each as the key of its generation (``generation_prefix``) without the prefix byte."""
        used, topic = np.unique(self.topic, return_inverse=True)
        heads = [topic_key(name) for name in self.topics.take(pa.array(used)).to_pylist()]
        tails = np.empty(len(self), [("id", ">u4"), ("generation", ">u4")])
        tails["id"], tails["generation"] = self.queue_id, self.generation
        return list(map(operator.add, map(heads.__getitem__, topic.tolist()), packed(tails)))

    def queue_keys(self) -> list[bytes]:
        """``keys`` without the generation."""
        return [key[:-_ID_BYTES] for key in self.keys()]

    def only(self, rows: npt.NDArray[Any] | slice) -> Queues:
        """Some of them, in their order."""
        used, topic = np.unique(self.topic[rows], return_inverse=True)
        topics = self.topics.take(pa.array(used))
        return Queues(topics, topic.astype(np.int32), self.queue_id[rows], self.generation[rows])

    def each(self, rows: Ints) -> Queues:
        """Some of them, in this order, with all topics; one may come several times."""
        return replace(
            self, topic=self.topic[rows], queue_id=self.queue_id[rows], generation=self.generation[rows]
        )

    def of_topics(self, names: Collection[str]) -> Ints:
        """Rows of the queues of these topics."""
        named = pc.is_in(self.topics, value_set=pa.array(sorted(names), pa.string()))
        return np.flatnonzero(named.to_numpy(zero_copy_only=False)[self.topic])

    def rows_in(self, other: Queues) -> Ints:
        """Of each queue its row in another table; -1: it is not there."""
        code, there = self._codes(other.topics), other._codes(other.topics)
        row = np.minimum(np.searchsorted(there, code), max(len(there) - 1, 0))
        return np.where(there[row] == code, row, -1) if len(there) else np.full(len(self), -1)

    def _codes(self, topics: pa.StringArray) -> Ints:
        """A number for each queue by its topic's index in ``topics`` and its id; negative where that has no such topic."""
        numbers = pc.fill_null(pc.index_in(self.topics, value_set=topics), -1).to_numpy().astype(np.int64)
        codes: Ints = (numbers[self.topic] << 8 * _ID_BYTES) + self.queue_id
        return codes


@dataclass(frozen=True, slots=True)
class Walked:
    """Queues that a walk has found, ``columns`` of their records by name, and ``place``: which of all that the walk passed each
    was."""

    queues: Queues
    place: Ints
    columns: Mapping[str, Ints]

    def only(self, rows: npt.NDArray[np.bool_]) -> Walked:
        """Some of them."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return Walked(self.queues.only(rows), self.place[rows], columns)

    def stretches(self, apart: int) -> Iterator[slice]:
        """Rows of neighbours, ``CHUNK`` at most: between two of them fewer than ``apart`` queues were left out."""
        cuts = np.flatnonzero(np.diff(self.place) > apart) + 1
        for first, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(self.queues)], strict=True):
            for start in range(first, end, CHUNK):
                yield slice(start, min(end, start + CHUNK))


def read_queues(state: ArchiveState, choice: Choice, *names: str, gone: bool = False) -> Walked:
    """The queues chosen that have a current generation, with these columns of their records (``QUEUE_DTYPE``). ``gone``: the
    others too, with generation 0."""
    walks = (state.view.iterate(QUEUE + prefix) for prefix in choice.prefixes)
    return gathered(walks, choice, *names, gone=gone)


def put_since(state: ArchiveState, kind: bytes, choice: Choice, seq: int) -> list[tuple[bytes, bytes]] | None:
    """What lies under ``kind`` (``QUEUE``, ``RUN``) of what may be chosen and was put by commits behind number ``seq``, and
    perhaps before, ascending. ``None`` where only a walk over all of it would tell."""
    view = state.view
    if not isinstance(view, PartialView):
        return None
    found = [view.put_since(kind + prefix, seq) for prefix in choice.prefixes]
    pairs = [pair for some in found if some is not None for pair in some]
    return None if None in found else pairs


def gathered(
    walks: Iterable[Iterator[tuple[bytes, bytes]]], choice: Choice, *names: str, gone: bool = False
) -> Walked:
    """``read_queues`` among these pairs, ascending."""
    topics = _Topics(choice)
    found: list[npt.NDArray[np.int64]] = [np.zeros((4 + len(names), 0), np.int64)]
    walked = 0
    for pairs in walks:
        while chunk := list(islice(pairs, CHUNK)):
            records = table([value for _, value in chunk], QUEUE_DTYPE)
            ids = np.frombuffer(b"".join([key[-_ID_BYTES:] for key, _ in chunk]), ">u4").astype(np.int64)
            good = choice.takes(ids) & (gone | (records["generation"] > 0))
            numbers = topics.numbers([key[1:-_ID_BYTES] for key, _ in chunk], good)
            good &= numbers >= 0
            columns = (
                numbers,
                ids,
                *(records[name] for name in ("generation", *names)),
                np.arange(walked, walked + len(chunk)),
            )
            found.append(np.array([column[good] for column in columns], np.int64))
            walked += len(chunk)
        walked += CHUNK  # what the next prefix begins with is no neighbour
    topic, queue_id, generation, *more, place = np.concatenate(found, axis=1)
    queues = Queues(topics.all(), *(column.astype(np.int32) for column in (topic, queue_id, generation)))
    return Walked(queues, place, dict(zip(names, more, strict=True)))


@dataclass(frozen=True, slots=True)
class KeyedValues:
    """Some thousand values of the fold that lie under a queue, a generation and an offset: of each its queue and generation (a
    row of ``queues``, where a queue comes as often as it has values), offset and bytes."""

    queues: Queues
    offsets: Ints
    values: Sequence[bytes]


def values_of(state: ArchiveState, kind: bytes, choice: Choice) -> Iterator[KeyedValues]:
    """What is kept under ``kind`` (``GAP``, ``RUN``) of the queues chosen, of all their generations, in the order of keys."""
    for prefix in choice.prefixes:
        pairs = state.view.iterate(kind + prefix)
        while chunk := list(islice(pairs, CHUNK)):
            tails = np.frombuffer(b"".join([key[-_TAIL.itemsize :] for key, _ in chunk]), _TAIL)
            good, topics = choice.takes(tails["id"]), _Topics(choice)
            numbers = topics.numbers([key[1 : -_TAIL.itemsize] for key, _ in chunk], good)
            good &= numbers >= 0
            columns = (
                column[good].astype(np.int32) for column in (numbers, tails["id"], tails["generation"])
            )
            values = list(compress((value for _, value in chunk), good.tolist()))
            if values:
                yield KeyedValues(
                    Queues(topics.all(), *columns), tails["offset"][good].astype(np.int64), values
                )


_TAIL = np.dtype([("id", ">u4"), ("generation", ">u4"), ("offset", ">u8")])
"""What the key of a run or a gap ends with."""


class _Topics:
    """Topics as a walk in the order of keys meets them: those that are shown are numbered."""

    def __init__(self, choice: Choice) -> None:
        self._shown = choice.shown
        self._found: list[pa.Array] = [pa.array([], pa.string())]
        self._count, self._last = 0, b""

    def numbers(self, heads: Sequence[bytes], good: Bools) -> Ints:
        """Of each of some consecutive topics, as keys, its number; negative where it is not shown or never ``good``."""
        numbers = {self._last: self._count - 1}
        names = []
        for head in dict.fromkeys(compress(heads, good.tolist())):
            if head not in numbers:
                name = queue_of(head + bytes(_ID_BYTES)).topic
                numbers[head] = -1
                if self._shown(name):
                    names.append(name)
                    numbers[head], self._last = self._count, head
                    self._count += 1
        self._found.append(pa.array(names, pa.string()))
        return np.fromiter(map(numbers.get, heads, repeat(-1)), np.int64, len(heads))

    def all(self) -> pa.StringArray:
        """Those that have a number, in its order."""
        return pa.concat_arrays(self._found)
