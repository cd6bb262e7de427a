"""The drain: archived messages of what is owed go to the group's retry topic, a window at a time, and each answer is entered.

A *lane* is one retry queue. In a lane debts are paid oldest first; lanes take turns. Up to ``BATCH`` messages are sent before
their answers are waited for, and what the broker stored of them is in the ledger before the next are sent: a crash repeats at
most one batch. Nothing is sent over a connection before it is known who answers there: it is asked as a step begins, and a
connection that is lost ends the step. A broker that is busy or whose disk is full stops everything (``Unavailable``: the
service waits, twice as long each time); trouble with one debt or lane stops that one alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tiered.backoff import Backoff
from tiered.broker.client import Request
from tiered.broker.questions import Broker, BrokerFacts
from tiered.broker.send import STORED
from tiered.clock import Clock
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.crashpoint import ReplayPoint, reach
from tiered.errors import TieredError, Unavailable
from tiered.metrics import Metrics
from tiered.replay.base import RETRY_PREFIX, Debt, retry_topic
from tiered.replay.cold import Batch, read_debt
from tiered.replay.groups import Groups
from tiered.replay.ledger import Ledger, Settled
from tiered.replay.troubles import Troubles
from tiered.replay.window import SendWindow
from tiered.settings.reading import Replay
from tiered.store import MessageStore

log = logging.getLogger("tiered.replay")

BATCH = 32
"""Messages on their way at once; also the most that a crash makes come twice."""
BATCH_BYTES = 4 * 1024 * 1024
BATCHES_A_TURN = 16
SEND_SECONDS = 15.0
"""Answers to sends are waited for at least this long, and longer than the broker waits for its disk and its slave: what it
stores and answers too late would be sent again."""
STORE_MARGIN_SECONDS = 5.0

RESTS = Backoff(0.1, 5.0)
"""When a full window is measured again: later each time its group has not moved."""

_BUSY = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLOW_CONTROL})


@dataclass(slots=True)
class BatchOutcome:
    """What the broker did with a batch: offsets settled, in any order, and the first complaint."""

    stored: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    complaint: Command | None = None
    unanswered: bool = False


class Drain:
    """``archive`` gives the store when it is first needed. ``check`` is told what broker answers whenever the connection is
    new; it raises if nothing may be sent to it. ``send_seconds``: answers to sends are waited for this long; ``None``: longer
    than the broker takes for them at most."""

    def __init__(
        self,
        broker: Broker,
        ledger: Ledger,
        groups: Groups,
        archive: Callable[[], MessageStore],
        clock: Clock,
        metrics: Metrics,
        settings: Replay,
        *,
        check: Callable[[BrokerFacts], None],
        send_seconds: float | None = None,
    ) -> None:
        self._broker = broker
        self._ledger = ledger
        self._groups = groups
        self._archive = archive
        self._clock = clock
        self._metrics = metrics
        self._settings = settings
        self._windows: dict[tuple[str, str], SendWindow] = {}
        self._check = check
        self._send_seconds = send_seconds
        self._connection = 0
        self._at_once = BATCH
        """Messages that may be sent at once now."""
        self._troubles = Troubles(clock)
        self._rests: dict[object, float] = {}
        self._ahead: dict[int, set[int]] = {}
        """Offsets of a debt that are stored although one before them is not settled."""
        self._turn = 0

    def step(self) -> int:
        """One turn of every lane; messages settled. ``Unavailable`` when the broker takes nothing now."""
        lanes = self._lanes()
        self._metrics.replay_owed.set(sum(debt.left for debts in lanes.values() for debt in debts))
        self._forget(lanes)
        if lanes:
            self._meet()
        keys = list(lanes)
        self._turn += 1
        settled = 0
        for key in keys[self._turn % len(keys) :] + keys[: self._turn % len(keys)] if keys else ():
            if self._troubles.free(key):
                settled += self._troubles.guarded(key, partial(self._lane, key, lanes[key]))
        return settled

    def troubles(self) -> list[str]:
        """What is in the way now."""
        return self._troubles.told()

    @property
    def waits_for_groups(self) -> bool:
        """Whether a window is full: room may be there within milliseconds."""
        return any(not window.open for window in self._windows.values())

    def _meet(self) -> None:
        """Look who answers. What was measured over another connection may be of queues that are gone."""
        self._broker.known(self._check)
        if self._broker.client.connections != self._connection:
            self._windows.clear()
            self._connection = self._broker.client.connections

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
        self._troubles.keep({*lanes, *numbers})

    def _lane(self, key: tuple[str, str], debts: list[Debt]) -> int:
        if self._rests.get(key, 0.0) > self._clock.monotonic():
            return 0
        window = self._measured(key)
        settled = 0
        for debt in debts:
            if window.open and self._troubles.free(debt.number):
                settled += self._troubles.guarded(debt.number, partial(self._pay, key, debt, window))
        if not window.open:
            self._rests[key] = self._clock.monotonic() + RESTS.seconds(window.still + 1)
        return settled

    def _measured(self, key: tuple[str, str]) -> SendWindow:
        """The window of a lane: messages between its retry queue's end and where the group stands there."""
        group, topic = key
        if key not in self._windows:
            self._windows[key] = SendWindow(self._settings.window_messages, self._settings.window_bytes)
        try:
            end = self._broker.offset_at(RequestCode.GET_MAX_OFFSET, topic, 0) or 0
            first = self._broker.offset_at(RequestCode.GET_MIN_OFFSET, topic, 0) or 0
            stands = self._broker.committed(group, topic, 0) or 0
        except Unavailable as error:
            if error.fields.get("code") in (None, *_BUSY):
                raise
            raise LaneRefused(error.message, hint=error.hint, **error.fields) from error
        self._windows[key].measure(end, max(first, stands))
        return self._windows[key]

    def _pay(self, key: tuple[str, str], debt: Debt, window: SendWindow) -> int:
        """Batches of one debt until it is done, the window is full or the turn is over; messages settled."""
        start = debt.drained
        for _ in range(BATCHES_A_TURN):
            debt = self._send(key, debt, self._read(debt, window, key[1]))
            if not debt.open or not window.open:
                break
        return debt.drained - start

    # ---- one batch

    def _read(self, debt: Debt, window: SendWindow, topic: str) -> Batch:
        """The next messages of a debt, as requests. ``NotFound`` while the archive does not have them yet."""
        name = debt.queue.topic
        plain = not name.startswith(RETRY_PREFIX)
        return read_debt(
            self._archive(),
            debt,
            topic,
            min(self._at_once, window.messages, debt.left),
            min(BATCH_BYTES, window.bytes),
            self._groups.row_filter(debt.queue.group, name) if plain else None,
        )

    def _send(self, key: tuple[str, str], debt: Debt, batch: Batch) -> Debt:
        """Send a batch and enter what became of it: the debt after it."""
        ahead = self._ahead.setdefault(debt.number, set())
        todo = [
            (offset, request)
            for offset, request in batch.items
            if request is not None and offset not in ahead
        ]
        answers = self._asked([request for _, request in todo]) if todo else []
        outcome = BatchOutcome(
            stored=set(ahead), refused={offset for offset, request in batch.items if request is None}
        )
        for (offset, request), answer in zip(todo, answers, strict=True):
            size = len(request.body) + len(str(request.ext["properties"]))
            self._note(outcome, key, offset, size, answer)
        if todo:
            reach(ReplayPoint.AFTER_SEND)
        self._ahead[debt.number] = outcome.stored  # also if the ledger cannot be written now
        after = self._settle(debt, batch, outcome)
        self._ahead[debt.number] = {offset for offset in outcome.stored if offset >= after.drained}
        self._complain(key, outcome)
        return after

    def _asked(self, requests: list[Request]) -> list[Command | None]:
        """Answers to sends. When one is missing the next is sent alone, and then twice as many each time: a broker that stores
        and answers too late gets one message again and again, and not all of them."""
        at_once, self._at_once = self._at_once, 1
        answers = self._broker.client.ask_all(requests, timeout_seconds=self._patience())
        if None not in answers:
            self._at_once = min(BATCH, at_once * 2)
        return answers

    def _patience(self) -> float:
        """Seconds to wait for answers to sends."""
        if self._send_seconds is not None:
            return self._send_seconds
        stores = self._broker.known(self._check).store_seconds + STORE_MARGIN_SECONDS
        return max(SEND_SECONDS, stores, self._settings.timeout_ms / 1000)

    def _note(
        self, outcome: BatchOutcome, key: tuple[str, str], offset: int, size: int, answer: Command | None
    ) -> None:
        if answer is None:
            outcome.unanswered = True
        elif answer.code in STORED:
            outcome.stored.add(offset)
            self._windows[key].stored(int(answer.ext.get("queueOffset", "0")), size)
        elif answer.code == ResponseCode.MESSAGE_ILLEGAL:
            outcome.refused.add(offset)
            log.error(
                "the broker refuses a message for good: it is not replayed",
                extra={"retry_topic": key[1], "offset": offset, "remark": (answer.remark or "")[:200]},
            )
        elif outcome.complaint is None:
            outcome.complaint = answer

    def _settle(self, debt: Debt, batch: Batch, outcome: BatchOutcome) -> Debt:
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
        after = self._ledger.settle(
            Settled(debt.number, drained, sent, filtered, refused, batch.holes, batch.generation)
        )
        reach(ReplayPoint.AFTER_SETTLED)
        for name, count in (("sent", sent), ("filtered", filtered), ("hole", holes), ("refused", refused)):
            self._metrics.replay_settled.labels(name).inc(count)
        for start, end in batch.holes:
            log.error(
                batch.lost,
                extra={"queue": str(debt.queue), "start": start, "end": end, "messages": end - start},
            )
        return after

    def _complain(self, key: tuple[str, str], outcome: BatchOutcome) -> None:
        """Raise what the broker had against it."""
        if outcome.unanswered:
            raise Unavailable(
                "the broker did not answer every message in time", retry_topic=key[1],
                hint="check whether the broker is overloaded; unanswered messages are sent again",
            )  # fmt: skip
        if outcome.complaint is None:
            return
        code, remark = outcome.complaint.code, (outcome.complaint.remark or "")[:200]
        if code in _BUSY:
            raise Unavailable(
                "the broker takes no messages now", code=code, remark=remark,
                hint="it is busy, or its disk is full; replay goes on when it takes messages again",
            )  # fmt: skip
        if code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            name = key[1][len(RETRY_PREFIX) :]
            log.warning(
                "the broker wants a subscription group of the retry topic's name: making it",
                extra={"group": name},
            )
            self._broker.create_group(name)
            return
        raise LaneRefused(
            "the broker refuses messages to a retry topic", retry_topic=key[1], code=code, remark=remark,
            hint="check that the topic exists and allows writing, and that replay.access_key may write to it",
        )  # fmt: skip


class LaneRefused(TieredError):
    """The broker takes messages, and not these."""
