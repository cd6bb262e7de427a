"""The drain: archived messages of what is owed go to the group's retry topic, a window at a time, and each answer is entered.

A *lane* is one retry queue. In a lane debts are paid oldest first; lanes take turns. Up to ``BATCH`` messages are sent before
their answers are waited for, and what the broker stored of them is in the ledger before the next are sent: a crash repeats at
most one batch. A broker that is busy or whose disk is full stops everything (``Unavailable``: the service waits, twice as long
each time); trouble with one debt or lane stops that one alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tiered.clock import Clock
from tiered.codec.remoting import Command
from tiered.crashpoint import ReplayPoint, reach
from tiered.errors import NotFound, TieredError, Unavailable
from tiered.fetch.base import ReaderId
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus
from tiered.replay.base import RETRY_PREFIX, Debt, retry_topic
from tiered.replay.broker import Broker, Code, Said
from tiered.replay.client import Request
from tiered.replay.groups import Groups
from tiered.replay.ledger import Ledger, Settled
from tiered.replay.records import request_for
from tiered.replay.window import Window
from tiered.settings.reading import Replay
from tiered.store import MessageStore

log = logging.getLogger("tiered.replay")

BATCH = 32
"""Messages on their way at once; also the most that a crash makes come twice."""
BATCH_BYTES = 4 * 1024 * 1024
BATCHES_A_TURN = 16
WAIT_SECONDS = 5.0
"""A debt or lane in trouble is looked at again after this long; twice as long each time, up to ``MOST_WAIT_SECONDS``."""
MOST_WAIT_SECONDS = 60.0

REST_SECONDS = 0.1
"""A full window is measured again after this long; twice as long each time its group has not moved, up to
``MOST_REST_SECONDS``."""
MOST_REST_SECONDS = 5.0

_STORED = frozenset(
    {Said.SUCCESS, Said.FLUSH_DISK_TIMEOUT, Said.SLAVE_NOT_AVAILABLE, Said.FLUSH_SLAVE_TIMEOUT}
)
_BUSY = frozenset({Said.SYSTEM_BUSY, Said.SERVICE_NOT_AVAILABLE, Said.FLOW_CONTROL})
_NOT_YET = frozenset(
    {
        GetMessageStatus.OFFSET_OVERFLOW_ONE,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
        GetMessageStatus.NO_MESSAGE_IN_QUEUE,
    }
)


@dataclass(slots=True)
class Trouble:
    """What keeps a debt or lane from going on, and when to look again."""

    what: str
    again: float
    wait: float


@dataclass(slots=True)
class Batch:
    """Messages of one read: offsets and requests; up to ``end`` everything is one of them, filtered, or a hole."""

    items: list[tuple[int, Request | None]]
    end: int
    holes: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Outcome:
    """What the broker did with a batch: offsets settled, in any order, and the first complaint."""

    stored: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    complaint: Command | None = None
    unanswered: bool = False


class Drain:
    """``archive`` gives the store when it is first needed."""

    def __init__(
        self,
        broker: Broker,
        ledger: Ledger,
        groups: Groups,
        archive: Callable[[], MessageStore],
        clock: Clock,
        metrics: Metrics,
        settings: Replay,
    ) -> None:
        self._broker = broker
        self._ledger = ledger
        self._groups = groups
        self._archive = archive
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._windows: dict[tuple[str, str], Window] = {}
        self._troubles: dict[object, Trouble] = {}
        self._rests: dict[object, float] = {}
        self._ahead: dict[int, set[int]] = {}
        """Offsets of a debt that are stored although one before them is not settled."""
        self._turn = 0

    def step(self) -> int:
        """One turn of every lane; messages settled. ``Unavailable`` when the broker takes nothing now."""
        lanes = self._lanes()
        self._metrics.replay_owed.set(sum(debt.left for debts in lanes.values() for debt in debts))
        self._forget(lanes)
        keys = list(lanes)
        self._turn += 1
        settled = 0
        for key in keys[self._turn % len(keys) :] + keys[: self._turn % len(keys)] if keys else ():
            if self._free(key):
                settled += self._guarded(key, partial(self._lane, key, lanes[key]))
        return settled

    def troubles(self) -> list[str]:
        """What is in the way now."""
        return sorted({trouble.what for trouble in list(self._troubles.values())})

    @property
    def waits_for_groups(self) -> bool:
        """Whether a window is full: room may be there within milliseconds."""
        return any(not window.open for window in self._windows.values())

    # ---- lanes

    def _lanes(self) -> dict[tuple[str, str], list[Debt]]:
        lanes: dict[tuple[str, str], list[Debt]] = {}
        for debt in self._ledger.debts():
            lanes.setdefault((debt.queue.group, retry_topic(debt.queue)), []).append(debt)
        return lanes

    def _forget(self, lanes: dict[tuple[str, str], list[Debt]]) -> None:
        """Drop what is remembered of lanes and debts that are done."""
        numbers = {debt.number for debts in lanes.values() for debt in debts}
        self._windows = {key: w for key, w in self._windows.items() if key in lanes}
        self._ahead = {number: offsets for number, offsets in self._ahead.items() if number in numbers}
        self._rests = {key: at for key, at in self._rests.items() if key in lanes}
        self._troubles = {k: t for k, t in self._troubles.items() if k in lanes or k in numbers}

    def _lane(self, key: tuple[str, str], debts: list[Debt]) -> int:
        if self._rests.get(key, 0.0) > self._clock.monotonic():
            return 0
        window = self._measured(key)
        settled = 0
        for debt in debts:
            if window.open and self._free(debt.number):
                settled += self._guarded(debt.number, partial(self._pay, key, debt, window))
        if not window.open:
            rest = min(MOST_REST_SECONDS, REST_SECONDS * 2.0 ** min(window.still, 10))
            self._rests[key] = self._clock.monotonic() + rest
        return settled

    def _measured(self, key: tuple[str, str]) -> Window:
        """The window of a lane: messages between its retry queue's end and where the group stands there."""
        group, topic = key
        if key not in self._windows:
            self._windows[key] = Window(self._settings.window_messages, self._settings.window_bytes)
        end = self._broker.offset_at(Code.GET_MAX_OFFSET, topic, 0) or 0
        first = self._broker.offset_at(Code.GET_MIN_OFFSET, topic, 0) or 0
        self._windows[key].measure(end, max(first, self._broker.committed(group, topic, 0) or 0))
        return self._windows[key]

    def _pay(self, key: tuple[str, str], debt: Debt, window: Window) -> int:
        """Batches of one debt until it is done, the window is full or the turn is over; messages settled."""
        start = debt.drained
        for _ in range(BATCHES_A_TURN):
            debt = self._send(key, debt, self._read(debt, window, key[1]))
            if not debt.open or not window.open:
                break
        return debt.drained - start

    # ---- one batch

    def _read(self, debt: Debt, window: Window, topic: str) -> Batch:
        """The next messages of a debt, as requests. ``NotFound`` while the archive does not have them yet."""
        queue = debt.queue
        name = queue.topic
        plain = not name.startswith(RETRY_PREFIX)
        found = self._archive().get_message(
            ReaderId(queue.group),
            name,
            queue.queue_id,
            debt.drained,
            min(BATCH, window.messages, debt.left),
            max_bytes=min(BATCH_BYTES, window.bytes),
            row_filter=self._groups.row_filter(queue.group, name) if plain else None,
        )
        return self._batch(debt, found, topic)

    def _batch(self, debt: Debt, found: GetMessageResult, topic: str) -> Batch:
        end = min(found.next_begin_offset, debt.end)
        if found.status in _NOT_YET or end <= debt.drained:
            raise NotFound(
                "what is owed is not archived yet", queue=str(debt.queue), offset=debt.drained,
                hint="is the topic excluded by source.exclude_topics? otherwise it is sent as soon as it is archived",
            )  # fmt: skip
        if found.status in (GetMessageStatus.OFFSET_FOUND_NULL, GetMessageStatus.OFFSET_TOO_SMALL):
            return Batch([], end, holes=((debt.drained, end),))
        items = [
            (int(offset), request_for(record, debt.queue.group, topic))
            for offset, record in zip(found.queue_offsets, found.records, strict=True)
            if offset < debt.end
        ]
        return Batch(items, end)

    def _send(self, key: tuple[str, str], debt: Debt, batch: Batch) -> Debt:
        """Send a batch and enter what became of it: the debt after it."""
        ahead = self._ahead.setdefault(debt.number, set())
        todo = [
            (offset, request)
            for offset, request in batch.items
            if request is not None and offset not in ahead
        ]
        answers = self._broker.client.ask_all([request for _, request in todo]) if todo else []
        outcome = Outcome(
            stored=set(ahead), refused={offset for offset, request in batch.items if request is None}
        )
        for (offset, request), answer in zip(todo, answers, strict=True):
            size = len(request.body) + len(str(request.ext["properties"]))
            self._note(outcome, key, offset, size, answer)
        if todo:
            reach(ReplayPoint.AFTER_SEND)
        after = self._settle(debt, batch, outcome)
        self._ahead[debt.number] = {offset for offset in outcome.stored if offset >= after.drained}
        self._complain(key, outcome)
        return after

    def _note(
        self, outcome: Outcome, key: tuple[str, str], offset: int, size: int, answer: Command | None
    ) -> None:
        if answer is None:
            outcome.unanswered = True
        elif answer.code in _STORED:
            outcome.stored.add(offset)
            self._windows[key].stored(int(answer.ext.get("queueOffset", "0")), size)
        elif answer.code == Said.MESSAGE_ILLEGAL:
            outcome.refused.add(offset)
            log.error(
                "the broker refuses a message for good: it is not replayed",
                extra={"retry_topic": key[1], "offset": offset, "remark": (answer.remark or "")[:200]},
            )
        elif outcome.complaint is None:
            outcome.complaint = answer

    def _settle(self, debt: Debt, batch: Batch, outcome: Outcome) -> Debt:
        """Enter the batch up to the first message that is not settled."""
        left = next((o for o, _ in batch.items if o not in outcome.stored and o not in outcome.refused), None)
        drained = batch.end if left is None else left
        done = [offset for offset, _ in batch.items if offset < drained]
        sent = sum(1 for offset in done if offset in outcome.stored)
        refused = len(done) - sent
        holes = sum(end - start for start, end in batch.holes)
        filtered = drained - debt.drained - len(done) - holes
        if drained == debt.drained:
            return debt
        after = self._ledger.settle(Settled(debt.number, drained, sent, filtered, refused, batch.holes))
        reach(ReplayPoint.AFTER_SETTLED)
        for name, count in (("sent", sent), ("filtered", filtered), ("hole", holes), ("refused", refused)):
            self._metrics.replay_settled.labels(name).inc(count)
        for start, end in batch.holes:
            log.error(
                "owed messages are in no archive: they are lost to the group",
                extra={"queue": str(debt.queue), "start": start, "end": end, "messages": end - start},
            )
        return after

    def _complain(self, key: tuple[str, str], outcome: Outcome) -> None:
        """Raise what the broker had against it."""
        if outcome.unanswered:
            raise Unavailable(
                "the broker did not answer every message in time", retry_topic=key[1],
                hint="look whether the broker is overloaded; what it did not answer is sent again",
            )  # fmt: skip
        if outcome.complaint is None:
            return
        code, remark = outcome.complaint.code, (outcome.complaint.remark or "")[:200]
        if code in _BUSY:
            raise Unavailable(
                "the broker takes no messages now", code=code, remark=remark,
                hint="it is busy, or its disk is full; replay goes on when it takes messages again",
            )  # fmt: skip
        if code == Said.GROUP_NOT_EXIST:
            name = key[1][len(RETRY_PREFIX) :]
            log.warning(
                "the broker wants a subscription group of the retry topic's name: making it",
                extra={"group": name},
            )
            self._broker.create_group(name)
            return
        raise LaneRefused(
            "the broker refuses messages to a retry topic", retry_topic=key[1], code=code, remark=remark,
            hint="does the topic exist and allow writing, and may replay.access_key write to it?",
        )  # fmt: skip

    # ---- trouble

    def _free(self, key: object) -> bool:
        trouble = self._troubles.get(key)
        return trouble is None or trouble.again <= self._clock.monotonic()

    def _guarded(self, key: object, work: Callable[[], int]) -> int:
        """Do the work of one lane or debt; trouble with it is remembered and waited for, without holding up others."""
        try:
            done = work()
        except Unavailable:
            raise
        except TieredError as error:
            before = self._troubles.get(key)
            wait = min(MOST_WAIT_SECONDS, before.wait * 2) if before is not None else WAIT_SECONDS
            if before is None:
                log.warning("replay waits", extra={"error": str(error)})
            self._troubles[key] = Trouble(str(error), self._clock.monotonic() + wait, wait)
            return 0
        self._troubles.pop(key, None)
        return done


class LaneRefused(TieredError):
    """The broker takes messages, and not these."""
