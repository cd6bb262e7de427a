"""The watch: looks at every position of every POP group, and at what the broker still has; makes debts of what lies between.

One look is one request for all positions (43) and one for each topic's bounds (202), in this order; why, says ``rule``. A look
that fails half-way changes nothing: the next one then covers a longer time.

The broker names no position where a group never popped. In a retry queue that the drain has sent to, such a group stands at the
begin, or where it was seen last: what is deleted there before it comes is owed again. Any other position that the broker does
not name any more is forgotten after some minutes: its group or topic is gone, and one made anew has nothing to do with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path

from tiered.broker.questions import AllOffsets, Broker, BrokerFacts
from tiered.clock import Clock
from tiered.crashpoint import ReplayPoint, reach
from tiered.metrics import Metrics
from tiered.replay import inbox
from tiered.replay.base import Debt, DebtReason, GroupPosition, GroupQueue, NewDebt
from tiered.replay.groups import Groups, positions
from tiered.replay.ledger import Ledger
from tiered.replay.roster import Row, roster, write
from tiered.replay.rule import Aging, judge, without
from tiered.replay.unwatched import Unwatched

log = logging.getLogger("tiered.replay")

DELETING_SECONDS = 10.0
"""Deleting a batch of files takes the broker some seconds; that much longer than its pause a position must be old."""

FORGET_SECONDS = 300.0
"""A position that the broker's answers lack for this long is forgotten: its group or topic was deleted."""

ROSTER_MS = 30_000
"""The list of groups is written again after this long, so that it shows that the daemon still looks."""

Bounds = Mapping[str, Mapping[int, tuple[int, int]]]
"""Topic → queue id → (minimum, maximum)."""


class Watch:
    """``check`` is told what broker answers whenever the connection is new; it raises if nothing can be replayed through it."""

    def __init__(
        self,
        broker: Broker,
        ledger: Ledger,
        groups: Groups,
        directory: Path,
        clock: Clock,
        metrics: Metrics,
        *,
        check: Callable[[BrokerFacts], None],
    ) -> None:
        self._broker = broker
        self._ledger = ledger
        self._groups = groups
        self._directory = directory
        self._clock = clock
        self._metrics = metrics
        self._check = check
        self._facts: BrokerFacts | None = None
        self._connection = 0
        self._unwatched = Unwatched(groups, clock, metrics)
        self._written: tuple[list[Row], int] = ([], 0)
        self._absent: dict[GroupQueue, float] = {}
        """Since when the broker's answers lack a position."""
        self._aging: dict[GroupQueue, Aging] = {}
        self._refused: set[str] = set()
        self.seen: tuple[str, ...] = ()
        """Groups that have offsets at the broker."""
        self.roster: list[Row] = []
        """Each of them, whether it is watched and why not."""
        self.looked_ms: int | None = None

    @property
    def facts(self) -> BrokerFacts | None:
        """The broker, once it has answered."""
        return self._facts

    def step(self) -> None:
        """One look, and the operators' requests."""
        self.look()
        self.take_requests()

    def look(self) -> list[Debt]:
        """One look; the debts it made."""
        facts = self._known_broker()
        now = self._clock.monotonic()
        offsets = self._broker.offsets()
        self.seen = tuple(sorted(offsets.topics()))
        books = self._ledger.books()
        known, lanes = books.positions, books.lanes()
        reported = positions(offsets, self._groups, known, facts, lanes)
        queues = {*reported, *lanes}
        for group in sorted({queue.group for queue in queues}):
            # whether it wants order must be known before it is owed anything
            if not self._groups.asked(group):
                self._groups.learn(self._broker, group)
        bounds = {topic: self._broker.bounds(topic) or {} for topic in sorted({q.topic for q in queues})}
        reported |= {lane: _stands(lane, known, bounds) for lane in lanes - reported.keys()}
        aged = self._aged(reported, now, facts.clean_seconds + DELETING_SECONDS)
        changed, wanted = self._judge(reported, bounds, known, aged)
        debts = self._ledger.look(changed, wanted) if changed or wanted else []
        self._hold_ordered()
        self._forget(offsets, known.keys() - lanes, now)
        self.looked_ms = self._clock.now_ms()
        self._metrics.replay_look_age.set(self.looked_ms / 1000)
        self._metrics.replay_watched.set(len(reported))
        self._tell(wanted)
        self._look_at_others(offsets, facts, reported.keys())
        return debts

    def _look_at_others(self, offsets: AllOffsets, facts: BrokerFacts, watched: Iterable[GroupQueue]) -> None:
        """What becomes of groups that are not watched, and the list of all."""
        pairs = {(queue.group, queue.topic) for queue in watched}
        aged = facts.clean_seconds + DELETING_SECONDS
        self._unwatched.look(self._broker, offsets, facts, pairs, aged)
        mine: dict[str, set[str]] = {}
        for group, topic in pairs:
            mine.setdefault(group, set()).add(topic)
        self.roster = roster(self._groups, offsets.topics(), mine, self._unwatched.skipped)
        looked_ms = self.looked_ms or 0
        if self.roster != self._written[0] or looked_ms - self._written[1] >= ROSTER_MS:
            write(self._directory, looked_ms, self.roster)
            self._written = self.roster, looked_ms

    def take_requests(self) -> None:
        """Enter what operators asked for, and take it out of the inbox."""
        requests, wrong = inbox.waiting(self._directory)
        for error in wrong:
            if str(error) not in self._refused:
                self._refused.add(str(error))
                log.error("a request cannot be taken", extra={"error": str(error)})
        for request in requests:
            if self._groups.facts(request.group).ordered or self._broker.is_ordered(request.group):
                log.error(
                    "a group that wants order never reads a retry topic: the request is dropped",
                    extra={"group": request.group, "topic": request.topic, "request": request.name},
                )
            elif not self._ledger.was_asked(request.name):
                owed = self._owed()
                wanted = [
                    NewDebt(queue, part.start, part.stop, DebtReason.ASKED)
                    for asked in request.ranges
                    for queue in (GroupQueue(request.group, request.topic, asked.queue_id),)
                    for part in without(range(asked.start, asked.end), owed.get(queue, ()))
                ]
                self._ledger.look({}, wanted, request=request.name)
                self._tell(wanted)
            reach(ReplayPoint.AFTER_REQUEST)
            inbox.take_out(self._directory, [request])

    def _known_broker(self) -> BrokerFacts:
        """Who answers, asked again on each new connection."""
        self._facts = self._broker.known(self._check)
        if self._broker.client.connections != self._connection:
            self._absent.clear()
            self._connection = self._broker.client.connections
        return self._facts

    def _judge(
        self,
        reported: Mapping[GroupQueue, int],
        bounds: Bounds,
        known: Mapping[GroupQueue, GroupPosition],
        aged: Mapping[GroupQueue, int | None],
    ) -> tuple[dict[GroupQueue, GroupPosition], list[NewDebt]]:
        changed: dict[GroupQueue, GroupPosition] = {}
        wanted: list[NewDebt] = []
        owed = self._owed()
        for queue, offset in reported.items():
            bound = bounds[queue.topic].get(queue.queue_id)
            if bound is None or offset < 0:
                continue
            position, range_owed = judge(known.get(queue), offset, bound[0], aged[queue])
            if position != known.get(queue):
                changed[queue] = position
            if range_owed is not None:
                reason = DebtReason.FIFO if self._groups.facts(queue.group).ordered else DebtReason.SKIPPED
                parts = without(range_owed, owed.get(queue, ()))
                wanted += [NewDebt(queue, part.start, part.stop, reason) for part in parts]
        return changed, wanted

    def _forget(self, offsets: AllOffsets, known: Set[GroupQueue], now: float) -> None:
        """Positions that the broker lacks for ``FORGET_SECONDS`` on end. A broker that knows none at all says nothing."""
        if not self.seen:
            self._absent.clear()
            return
        named = {
            GroupQueue(group, topic, queue_id)
            for table in (offsets.committed, offsets.pulled)
            for (group, topic), queues in table.items()
            for queue_id in queues
        }
        self._absent = {queue: self._absent.get(queue, now) for queue in known - named}
        gone = [queue for queue, since in self._absent.items() if now - since >= FORGET_SECONDS]
        if gone:
            self._ledger.forget(gone)
            log.info(
                "forgetting positions that the broker does not name any more", extra={"queues": len(gone)}
            )
        books = self._ledger.books()
        owed = {debt.queue.group for debt in books.debts.values() if debt.open}
        self._groups.keep({*self.seen, *owed, *(queue.group for queue in (*books.positions, *books.lanes()))})

    def _aged(
        self, reported: Mapping[GroupQueue, int], now: float, seconds: float
    ) -> dict[GroupQueue, int | None]:
        """Positions as they were ``seconds`` ago; ``None`` where nobody knows."""
        self._aging = {queue: self._aging.get(queue) or Aging() for queue in reported}
        return {queue: self._aging[queue].note(now, offset, seconds) for queue, offset in reported.items()}

    def _owed(self) -> dict[GroupQueue, list[range]]:
        """What is owed and not sent yet."""
        found: dict[GroupQueue, list[range]] = {}
        for debt in self._ledger.debts():
            found.setdefault(debt.queue, []).append(range(debt.drained, debt.end))
        return found

    def _hold_ordered(self) -> None:
        """A group that turns out to want order is sent nothing more."""
        for debt in self._ledger.debts():
            if self._groups.facts(debt.queue.group).ordered:
                held = self._ledger.hold(debt.number)
                self._tell([NewDebt(held.queue, held.start, held.end, DebtReason.FIFO)])

    def _tell(self, wanted: Iterable[NewDebt]) -> None:
        """Count and log what is in the ledger now."""
        for one in wanted:
            count = one.end - one.start
            self._metrics.replay_debts.labels(one.reason.value).inc()
            told = {
                "group": one.queue.group, "topic": one.queue.topic, "queue_id": one.queue.queue_id,
                "start": one.start, "end": one.end, "messages": count,
            }  # fmt: skip
            if one.reason is DebtReason.FIFO:
                self._metrics.replay_fifo_skipped.inc(count)
                log.error(
                    "a group that wants order was skipped over deleted messages; they are archived and are not replayed",
                    extra=told,
                )
            elif one.reason is DebtReason.ASKED:
                log.info("replay asked for by an operator", extra=told)
            else:
                self._metrics.replay_skipped.inc(count)
                log.warning(
                    "the broker deleted messages before a POP group read them; they will be replayed",
                    extra=told,
                )


def _stands(lane: GroupQueue, known: Mapping[GroupQueue, GroupPosition], bounds: Bounds) -> int:
    """Where a group stands in a retry queue that the broker names no position in: where it was seen last, or at the start if it
    never was, or if the queue ends below and so was made anew."""
    position, bound = known.get(lane), bounds[lane.topic].get(lane.queue_id)
    if position is None or bound is None or position.reported > bound[1]:
        return 0
    return position.reported
