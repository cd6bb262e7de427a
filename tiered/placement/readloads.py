"""What a node was read of late: bytes by queue, of few queues, as an average that forgets.

Reads are in no archive's history, so nodes count what they give, and tell the busiest queues with their leases
(``Card.reads``); who makes a table of placement adds up what all say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from tiered.model import MessageQueue
from tiered.placement.history import MOST_QUEUES
from tiered.placement.table import queue_digest

STEP_SECONDS = 300.0
"""Of so long each step of the average is; what is told changes no more often."""
STEPS_AN_HOUR = 12
FORGOTTEN = 0.5 ** (2 / STEPS_AN_HOUR)
"""What is left of a step's weight after another one: half after half an hour. Whoever is far behind reads for hours, and when
he has caught up nobody reads there: longer averages were worse (``tests/bench/README.md``)."""
WRITTEN_SHARE = 0.1
"""Where reads are known: what queues are written, all together, beside what they are read. By it queues are spread that nobody
reads yet; more of it was worse."""
LEAST_BYTES = 1.0
"""An average below it is as none."""


class ReadLoads:
    """Of one node. ``count`` and ``said`` from any thread; at most twice ``MOST_QUEUES`` queues are known at any time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic``: seconds."""
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._step_end = monotonic() + STEP_SECONDS
        self._now: dict[MessageQueue, float] = {}
        self._hourly: dict[MessageQueue, float] = {}  # averages, bytes an hour

    def count(self, queue: MessageQueue, size: int) -> None:
        """So many bytes of a queue were given."""
        with self._lock:
            self._move_on()
            self._now[queue] = self._now.get(queue, 0) + size
            if len(self._now) > 2 * MOST_QUEUES:
                self._now = dict(_busiest(self._now, MOST_QUEUES))

    def said(self, most: int) -> tuple[tuple[int, int], ...]:
        """The busiest queues by their digest, and bytes an hour; of steps that are over."""
        with self._lock:
            self._move_on()
            found = _busiest(self._hourly, most)
        return tuple((queue_digest(queue), round(load)) for queue, load in found)

    def _move_on(self) -> None:
        """Take steps that are over into the averages."""
        over = int((self._monotonic() - self._step_end) // STEP_SECONDS) + 1
        if over <= 0:
            return
        self._step_end += over * STEP_SECONDS
        left, late = FORGOTTEN**over, FORGOTTEN ** (over - 1)
        made = {queue: load * left for queue, load in self._hourly.items()}
        for queue, size in self._now.items():
            made[queue] = made.get(queue, 0.0) + (1 - FORGOTTEN) * late * size * STEPS_AN_HOUR
        kept = ((queue, load) for queue, load in made.items() if load >= LEAST_BYTES)
        self._hourly, self._now = dict(_busiest(dict(kept), MOST_QUEUES)), {}


def _busiest(loads: Mapping[MessageQueue, float], most: int) -> list[tuple[MessageQueue, float]]:
    return sorted(loads.items(), key=lambda item: (-item[1], item[0]))[:most]


def node_loads(
    written: Mapping[MessageQueue, float], read: Mapping[MessageQueue, float]
) -> dict[MessageQueue, float]:
    """What queues will cost nodes: what they are read, and a share of what they will be written; the latter alone where nobody
    says what is read."""
    known, whole = sum(read.values()), sum(written.values())
    share = WRITTEN_SHARE * known / whole if known > 0 and whole > 0 else 1.0
    return {queue: share * written.get(queue, 0.0) + read.get(queue, 0.0) for queue in {*written, *read}}


def read_loads(said: Iterable[Iterable[tuple[int, int]]]) -> dict[int, int]:
    """Bytes an hour by digest of a queue, of what several nodes say."""
    found: dict[int, int] = {}
    for one in said:
        for digest, load in one:
            found[digest] = found.get(digest, 0) + load
    return found
