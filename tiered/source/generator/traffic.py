"""Which queue each message of the generator goes to, and where each queue ends: arrays, so that a million queues cost nothing a
message.

A *slot* is the number of one of the queues that the generator fills by itself: queue id × topics + topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Ints

_UNKNOWN = -1
_PLACES_SEED = 0x5EED


class NextOffsets:
    """Queue offset of each queue's next message, by (topic, queue id): an array for slots, a dict for all other queues.

    A queue that nothing was said of yet begins at ``first``.
    """

    def __init__(self, topics: Sequence[str], queues: int, first: int) -> None:
        self._topics = {topic: number for number, topic in enumerate(topics)}
        self._queues = queues
        self._first = first
        self._slots: Ints = np.full(len(topics) * queues, _UNKNOWN, np.int64)
        self._others: defaultdict[tuple[str, int], int] = defaultdict(lambda: first)

    def __getitem__(self, queue: tuple[str, int]) -> int:
        slot = self._slot(queue)
        if slot is None:
            return self._others[queue]
        known = int(self._slots[slot])
        return self._first if known == _UNKNOWN else known

    def __setitem__(self, queue: tuple[str, int], offset: int) -> None:
        slot = self._slot(queue)
        if slot is None:
            self._others[queue] = offset
        else:
            self._slots[slot] = offset

    def values(self) -> Iterator[int]:
        """The next offsets of all queues of which one is known."""
        yield from self._slots[self._slots != _UNKNOWN].tolist()
        yield from self._others.values()

    def of_slots(self) -> Ints:
        """The next offset of each slot."""
        return np.where(self._slots == _UNKNOWN, self._first, self._slots)

    def raise_slots(self, slots: Ints, offsets: Ints) -> None:
        """Move slots to ``offsets`` where these are higher; a slot may come several times."""
        np.maximum.at(self._slots, slots, offsets)

    def clear(self) -> None:
        """Nothing is known of any queue."""
        self._slots.fill(_UNKNOWN)
        self._others.clear()

    def _slot(self, queue: tuple[str, int]) -> int | None:
        topic = self._topics.get(queue[0])
        if topic is None or not 0 <= queue[1] < self._queues:
            return None
        return queue[1] * len(self._topics) + topic


class QueueTraffic:
    """Which slot each message goes to: round robin, or, with an exponent, only until each has one; then the k-th busiest gets a
    share in proportion to 1 / k^``zipf``.

    Which slot is the k-th is the same for all stores with as many slots: one that is continued keeps its busy queues.
    """

    def __init__(self, slots: int, zipf: float | None) -> None:
        self._count = slots
        self._zipf = zipf
        self._shares: tuple[npt.NDArray[np.float64], Ints] | None = None

    def slots_of(self, sequence: Ints, rng: np.random.Generator) -> Ints:
        """The slot of each message, by its running number."""
        slots = sequence % self._count
        if self._zipf is not None and (late := np.flatnonzero(sequence >= self._count)).size:
            bounds, places = self._bounds_and_places(self._zipf)
            ranks = np.searchsorted(bounds, rng.random(len(late)) * bounds[-1], "right")
            slots[late] = places[np.minimum(ranks, self._count - 1)]
        return slots

    def _bounds_and_places(self, exponent: float) -> tuple[npt.NDArray[np.float64], Ints]:
        """Upper bounds of the shares, the busiest queue first, and the slot of each."""
        if self._shares is None:
            shares = np.arange(1, self._count + 1, dtype=np.float64) ** -exponent
            self._shares = np.cumsum(shares), np.random.default_rng(_PLACES_SEED).permutation(self._count)
        return self._shares


def occurrences(slots: Ints) -> Ints:
    """How often each slot came before in the same array."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    found = np.empty(len(slots), np.int64)
    found[order] = np.arange(len(slots)) - np.repeat(first, np.diff(np.append(first, len(slots))))
    return found
