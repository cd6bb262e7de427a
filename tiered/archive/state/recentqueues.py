"""Records of the queues that commits touched last, as arrays, so that the next plans do not look them up in the store.

With very many queues a look-up takes longer than all else that a plan does for a queue, and most of a commit's queues were in
one of those before it. A queue is a number here (its topic's, and its id), so that a commit's queues are found, and put back,
together: an object for each would take three times the memory, and nearly as long as what it spares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import QUEUE, prefixed, queue_keys, queue_of
from tiered.archive.state.layers import Changes, Pair
from tiered.archive.state.layout import QUEUE_DTYPE, packed_table
from tiered.codec.types import Bools, Ints
from tiered.metadata.base import MetadataView

RECENT_QUEUES = 131_072
"""See ``RecentQueues``: some 32 MB at most, where many commits are folded in a row."""

MOST_REMEMBERED = 65_536
"""Look-ups of one plan that are remembered: some 20 MB at most."""
_FIRST_ROWS = 1024


class _Age:
    """Queues of one age: their numbers ascending, the row of each, and the rows, of which ``used`` are taken."""

    def __init__(self) -> None:
        self._numbers: Ints = np.zeros(0, np.int64)
        self._row: Ints = np.zeros(0, np.int64)
        self._records = np.zeros(_FIRST_ROWS, QUEUE_DTYPE)
        self._known = np.zeros(_FIRST_ROWS, np.bool_)
        self.used = 0

    def find(self, numbers: Ints) -> tuple[Bools, Ints]:
        """Which are here, and the rows of these."""
        if not len(self._numbers):
            return np.zeros(len(numbers), np.bool_), numbers[:0]
        at = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        here = self._numbers[at] == numbers
        return here, self._row[at[here]]

    def rows(self, rows: Ints) -> tuple[npt.NDArray[np.void], Bools]:
        """What is kept in these rows: a copy."""
        return self._records[rows], self._known[rows]

    def put(self, numbers: Ints, records: npt.NDArray[np.void], known: Bools) -> None:
        """Keep these, which are distinct."""
        here, rows = self.find(numbers)
        self._records[rows], self._known[rows] = records[here], known[here]
        fresh = np.flatnonzero(~here)
        if not len(fresh):
            return
        fresh = fresh[np.argsort(numbers[fresh])]
        begin, end = self.used, self.used + len(fresh)
        self._make_room(end)
        self._records[begin:end], self._known[begin:end] = records[fresh], known[fresh]
        self.used = end
        at = np.searchsorted(self._numbers, numbers[fresh])
        self._numbers = np.insert(self._numbers, at, numbers[fresh])
        self._row = np.insert(self._row, at, np.arange(begin, end))

    def drop(self, numbers: Ints) -> None:
        """Keep none of these; what their rows took is free once this age is."""
        kept = ~np.isin(self._numbers, numbers)
        self._numbers, self._row = self._numbers[kept], self._row[kept]

    def _make_room(self, rows: int) -> None:
        room = len(self._records)
        if rows > room:
            more = max(rows, 2 * room) - room
            self._records = np.concatenate((self._records, np.zeros(more, QUEUE_DTYPE)))
            self._known = np.concatenate((self._known, np.zeros(more, np.bool_)))


class RecentQueues:
    """What was not touched for longest is forgotten; kept are at most twice ``most`` queues, and one commit's.

    It holds what the fold will hold once all that is planned is proven. So whoever plans is alone with it: it is asked, and
    told what came of a plan, by the one who has the next place in the log.
    """

    def __init__(self, most: int = RECENT_QUEUES) -> None:
        self._most = most
        self._topics: dict[str, int] = {}
        self._young, self._old = _Age(), _Age()

    def __len__(self) -> int:
        """Records that are kept."""
        return self._young.used + self._old.used

    def table(
        self, topics: Sequence[str], queue_ids: npt.NDArray[np.integer], below: MetadataView
    ) -> tuple[npt.NDArray[np.void], Bools]:
        """As ``ArchiveState.queue_table`` of distinct queues; ``below`` is asked for what is not kept, which then is."""
        numbers = self._numbers(topics, queue_ids)
        records, known = np.zeros(len(numbers), QUEUE_DTYPE), np.zeros(len(numbers), np.bool_)
        absent = np.arange(len(numbers))
        for age in (self._young, self._old):
            here, rows = age.find(numbers[absent])
            records[absent[here]], known[absent[here]] = age.rows(rows)
            absent = absent[~here]
        if len(absent):
            names = [topics[row] for row in absent.tolist()]
            keys = prefixed(QUEUE, queue_keys(names, np.asarray(queue_ids)[absent]))
            found = packed_table(below.get_many(keys))
            records[absent], known[absent] = found
            self._put(numbers[absent], *found)
        return records, known

    def planned(self, changes: Changes) -> None:
        """A commit is planned, on top of what was: these are its changes."""
        if changes.queues is None:
            self._drop([key for key in changes.values if key[:1] == QUEUE])
            return
        for batch in changes.queues:
            numbers = self._numbers(batch.topics, batch.queue_ids)
            self._put(numbers, batch.records, np.ones(len(numbers), np.bool_))

    def clear(self) -> None:
        """The store was written to by others."""
        self._topics = {}
        self._young, self._old = _Age(), _Age()

    def _numbers(self, topics: Sequence[str], queue_ids: npt.NDArray[np.integer]) -> Ints:
        if len(self._topics) > 2 * self._most:
            self.clear()
        known = self._topics
        for topic in dict.fromkeys(topics):
            known.setdefault(topic, len(known))
        topic_numbers = np.fromiter(map(known.__getitem__, topics), np.int64, len(topics))
        return (topic_numbers << 32) | np.asarray(queue_ids).astype(np.int64)

    def _put(self, numbers: Ints, records: npt.NDArray[np.void], known: Bools) -> None:
        if self._young.used >= self._most:
            self._young, self._old = _Age(), self._young
        self._young.put(numbers, records, known)

    def _drop(self, keys: Sequence[bytes]) -> None:
        queues = [queue_of(key[1:]) for key in keys]
        ids = np.array([queue.queue_id for queue in queues], np.int64)
        numbers = self._numbers([queue.topic for queue in queues], ids)
        self._young.drop(numbers)
        self._old.drop(numbers)


class Planning:
    """A view to plan one commit on: records of queues are found in ``recent`` first, and what else was looked up is remembered
    up to a bound, since a plan and its commit ask for the same. See ``RecentQueues``."""

    def __init__(self, base: MetadataView, recent: RecentQueues, most: int = MOST_REMEMBERED) -> None:
        self._base = base
        self._recent = recent
        self._most = most
        self._found: dict[bytes, bytes | None] = {}

    def queue_table(
        self, topics: Sequence[str], queue_ids: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.void], Bools]:
        """As ``ArchiveState.queue_table``, of distinct queues."""
        return self._recent.table(topics, queue_ids, self._base)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of ``keys``."""
        if len(self._found) + len(keys) > self._most:
            return self._base.get_many(keys)
        absent = [key for key in keys if key not in self._found]
        self._found.update(zip(absent, self._base.get_many(absent), strict=True))
        return list(map(self._found.__getitem__, keys))

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        """As ``MetadataView.iterate``."""
        return self._base.iterate(prefix, start=start, reverse=reverse)

    def applied(self) -> bytes | None:
        """As ``MetadataView.applied``."""
        return self._base.applied()
