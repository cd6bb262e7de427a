"""Value types of replay: whose queue, where a group stands, what it is owed and how much of that is done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

RETRY_PREFIX = "%RETRY%"
"""Begins the names of retry topics: of a group, and of a group and a topic when it pops."""

MAX_NAMED_HOLES = 16
"""Holes of one debt that are kept as ranges; more are only counted."""


class DebtReason(Enum):
    """Why something is owed."""

    SKIPPED = "skipped"  # the broker deleted it before the group was handed it
    ASKED = "asked"  # an operator asked
    FIFO = "fifo"  # skipped, by a group that wants order: told, never sent


@dataclass(frozen=True, slots=True, order=True)
class GroupQueue:
    """A queue as one group sees it."""

    group: str
    topic: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.group}:{self.topic}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """What was seen of a group in a queue. ``reported``: next offset the broker said it hands out. ``covered``: everything
    below is consumed or owed. ``minimum``: first offset the broker has."""

    reported: int
    covered: int
    minimum: int


@dataclass(frozen=True, slots=True)
class NewDebt:
    """A debt that has no number yet: [start, end) of a queue."""

    queue: GroupQueue
    start: int
    end: int
    reason: DebtReason = DebtReason.SKIPPED


@dataclass(frozen=True, slots=True)
class Debt:
    """[start, end) of a queue is owed to a group, and how far that is done.

    Everything in [start, drained) is settled: ``sent`` and acknowledged, ``filtered`` out by the group's own expression, one of
    the ``holes`` (in no archive, and never will be; the first are named in ``hole_ranges``), or ``refused``, which the broker
    will never take. ``generation``: the archive's, of the queue whose messages are owed; a topic that is deleted and made
    again has another one. ``None`` until the archive is read for it.
    """

    number: int
    queue: GroupQueue
    start: int
    end: int
    reason: DebtReason
    noticed_ms: int
    drained: int
    sent: int = 0
    filtered: int = 0
    holes: int = 0
    refused: int = 0
    hole_ranges: tuple[tuple[int, int], ...] = ()
    generation: int | None = None

    @property
    def left(self) -> int:
        """Offsets not settled yet."""
        return self.end - self.drained

    @property
    def open(self) -> bool:
        """Whether something is left to send."""
        return self.left > 0 and self.reason is not DebtReason.FIFO

    def with_hole(self, start: int, end: int) -> Debt:
        """[start, end) is in no archive."""
        named = (*self.hole_ranges, (start, end))[:MAX_NAMED_HOLES]
        return replace(self, holes=self.holes + end - start, hole_ranges=named)


@dataclass(frozen=True, slots=True)
class DebtTotals:
    """Of one group and topic, since the ledger began, debts that are done and forgotten included."""

    debts: int = 0
    sent: int = 0
    filtered: int = 0
    holes: int = 0
    refused: int = 0

    def plus(self, debt: Debt) -> DebtTotals:
        """Another debt counted in."""
        return DebtTotals(
            self.debts + 1,
            self.sent + debt.sent,
            self.filtered + debt.filtered,
            self.holes + debt.holes,
            self.refused + debt.refused,
        )


@dataclass(slots=True)
class Books:
    """Everything the ledger knows. ``debts``: by number, the open ones and the last that were done; ``done``: totals of those
    that were dropped; ``asked``: ids of operators' requests that were taken in, the newest last."""

    positions: dict[GroupQueue, GroupPosition] = field(default_factory=dict)
    debts: dict[int, Debt] = field(default_factory=dict)
    done: dict[tuple[str, str], DebtTotals] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    next_number: int = 1

    def totals(self) -> dict[tuple[str, str], DebtTotals]:
        """By group and topic, all debts together."""
        found = dict(self.done)
        for debt in self.debts.values():
            key = (debt.queue.group, debt.queue.topic)
            found[key] = found.get(key, DebtTotals()).plus(debt)
        return found

    def lanes(self) -> set[GroupQueue]:
        """Retry queues that something was ever sent to."""
        return {
            GroupQueue(group, retry_topic(GroupQueue(group, topic, 0)), 0)
            for (group, topic), total in self.totals().items()
            if total.sent
        }


def retry_topic(queue: GroupQueue) -> str:
    """The topic from which the group pops again what it did not acknowledge, by the old (V1) name: every 5.x broker reads it.

    A retry topic is its own; one by the newer name, which no client may write to, has the old one.
    """
    if not queue.topic.startswith(RETRY_PREFIX):
        return f"{RETRY_PREFIX}{queue.group}_{queue.topic}"
    newer = f"{RETRY_PREFIX}{queue.group}+"
    if queue.topic.startswith(newer):
        return f"{RETRY_PREFIX}{queue.group}_{queue.topic[len(newer) :]}"
    return queue.topic
