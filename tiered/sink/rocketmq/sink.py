"""The sink: rounds of sends, in each the next message of every queue of the destination that has one waiting.

A broker stores what comes together in any order, so a queue has one message on its way at most; queues go side by side.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tiered.backoff import Backoff
from tiered.broker.client import Dial, RemotingClient
from tiered.broker.routes import Route, TargetQueue
from tiered.broker.send import (
    AGAIN,
    KEPT_SYS_FLAGS,
    NEW_MESSAGE,
    STORED,
    Sending,
    properties_text,
    refused_for_good,
)
from tiered.clock import Clock
from tiered.codec.record.layout import SYS_INNER_BATCH
from tiered.codec.record.message import Message, decode_message
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.errors import Invalid, Refused, Unavailable
from tiered.model import MessageQueue
from tiered.sink.base import Accepted, Placed, SafePoint, SinkBatch, SinkPosition
from tiered.sink.deadletters import DeadLetters
from tiered.sink.fields import json_lines
from tiered.sink.kinds import SinkPlace
from tiered.sink.rocketmq.carried import BrokerOrigin, came_from, carrying
from tiered.sink.rocketmq.cluster import DestinationCluster

ROUND_BYTES = 8 << 20
ROUND_MESSAGES = 256
MAX_PLACED = 10_000


@dataclass(slots=True)
class Leaving:
    """A message on its way: ``row`` of its batch, and what is sent."""

    row: int
    message: Message
    properties: str


@dataclass(frozen=True, slots=True)
class BrokerSending:
    """``group``: the producer group named in sends. ``attempts``: of one message before the destination counts as away."""

    group: str
    attempts: int = 8


class BrokerSink:
    """``origins``: the destination's brokers, as messages carry them; what one of them had is not sent back."""

    def __init__(
        self, cluster: DestinationCluster, place: SinkPlace, clock: Clock, dial: Dial, sending: BrokerSending,
        dead_letters: DeadLetters | None = None,
    ) -> None:  # fmt: skip
        self._cluster, self._place, self._clock, self._dial = cluster, place, clock, dial
        self._sending, self._dead_letters = sending, dead_letters
        self._origins = cluster.origins()
        self._routes: dict[str, Route] = {}
        self._connections: dict[str, RemotingClient] = {}
        self._pauses = Backoff(0.1, 10.0)
        self._placed: list[Placed] = []
        self._came_back = 0
        """Messages of this opening that were not sent because one of the destination's brokers had them before."""

    def position(self) -> None:
        return None

    def write(self, batch: SinkBatch) -> Accepted:
        before, came_back = self._buried, self._came_back
        lanes: dict[TargetQueue, deque[Leaving]] = {}
        waiting = size = 0
        for leaving in self._leaving(batch):
            target = self._target(leaving.message)
            lanes.setdefault(target, deque()).append(leaving)
            waiting, size = waiting + 1, size + len(leaving.message.body)
            if size > ROUND_BYTES or waiting >= 4 * ROUND_MESSAGES:
                self._drain(lanes, batch)
                waiting = size = 0
        self._drain(lanes, batch)
        return Accepted(len(batch.rows), self._buried - before, came_back=self._came_back - came_back)

    def flush(self, position: SinkPosition) -> SafePoint:
        placed, self._placed = tuple(self._placed), []
        return SafePoint(position, placed)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        if self._dead_letters is not None:
            self._dead_letters.close()

    @property
    def _buried(self) -> int:
        return 0 if self._dead_letters is None else self._dead_letters.buried

    # ---- what is sent

    def _leaving(self, batch: SinkBatch) -> Iterator[Leaving]:
        for row in batch.rows.tolist():
            message = decode_message(batch.messages.record(row))
            origin = BrokerOrigin(self._place.cluster, self._place.broker, message.store_host)
            if str(origin) in self._origins:
                raise Refused(
                    "a sink would feed its own source", broker=str(origin), queue=f"{message.topic}/{message.queue_id}",
                    hint="name the name servers of another cluster, and remove this sink",
                )  # fmt: skip
            if came_from(message.properties, self._origins):
                self._came_back += 1
                continue
            carried = carrying(
                message.properties, origin, message.message_id, f"{message.topic}/{message.queue_id}", message.queue_offset,
                self._place.short_id,
            )  # fmt: skip
            leaving = Leaving(row, message, properties_text(carried, NEW_MESSAGE))
            if message.sys_flag & SYS_INNER_BATCH:
                self._refuse(
                    leaving, batch, "it is a batch of messages in one record, as no producer sends it"
                )
            elif not message.body:
                self._refuse(leaving, batch, "its body is empty, and brokers fail at such a send")
            else:
                yield leaving

    def _target(self, message: Message) -> TargetQueue:
        route = self._routes.get(message.topic)
        if route is None:
            route = self._cluster.route(message.topic, message.queue_id + 1)
            self._routes[message.topic] = route
        return route.same(self._place.broker, message.queue_id)

    # ---- sending

    def _drain(self, lanes: dict[TargetQueue, deque[Leaving]], batch: SinkBatch) -> None:
        """Send all that waits; a message that is not stored stays the first of its queue."""
        failures = 0
        while lanes:
            found = self._round(lanes, batch)
            for target in [target for target, lane in lanes.items() if not lane]:
                del lanes[target]
            if found is None:
                failures = 0
                continue
            failures += 1
            if failures >= self._sending.attempts:
                raise Unavailable(
                    "the destination of a sink does not store a message", found=found, tries=failures,
                    hint="see the log of the broker there",
                )  # fmt: skip
            self._clock.wait(self._pauses.seconds(failures))
            self._move(lanes)

    def _round(self, lanes: dict[TargetQueue, deque[Leaving]], batch: SinkBatch) -> str | None:
        """One message of each queue; why one was not stored, if one was not."""
        shares: dict[str, list[TargetQueue]] = {}
        size = 0
        for target in list(lanes)[:ROUND_MESSAGES]:
            size += len(lanes[target][0].message.body)
            if size > ROUND_BYTES and shares:
                break
            shares.setdefault(target.address, []).append(target)
        for address, targets in shares.items():
            if address not in self._connections:
                self._connections[address] = RemotingClient(address, self._clock, self._dial)
            requests = [self._sent(target, lanes[target][0]).request() for target in targets]
            self._connections[address].begin(requests)
        trouble: str | None = None
        error: Exception | None = None
        for address, targets in shares.items():
            connection = self._connections[address]
            for target, answer in zip(targets, connection.end(), strict=True):
                try:
                    found = self._judge(target, lanes[target][0], answer, connection, batch)
                except Invalid as refused:  # the other answers of the round are still to be heard
                    error = error or refused
                    continue
                if found is None:
                    lanes[target].popleft()
                trouble = trouble or found
        if error is not None:
            raise error
        return trouble

    def _sent(self, target: TargetQueue, leaving: Leaving) -> Sending:
        message = leaving.message
        return Sending(
            message.topic, target.queue_id, message.body, leaving.properties, self._sending.group,
            sys_flag=message.sys_flag & KEPT_SYS_FLAGS, flag=message.flag, born_ms=message.born_timestamp,
        )  # fmt: skip

    def _judge(
        self,
        target: TargetQueue,
        leaving: Leaving,
        answer: Command | None,
        connection: RemotingClient,
        batch: SinkBatch,
    ) -> str | None:
        """``None`` if the message is done with, else why it must be sent again. ``Invalid``."""
        if answer is None:
            return connection.trouble or "no answer"
        if answer.code in STORED:
            self._note(target, leaving, answer)
            return None
        remark = connection.without_keys(answer.remark or "")[:300]
        found = f"code {answer.code}: {remark}"
        if answer.code in AGAIN and not refused_for_good(answer.code, remark):
            return found
        if answer.code == ResponseCode.MESSAGE_ILLEGAL:
            self._refuse(leaving, batch, found)
            return None
        raise Invalid(
            "the destination of a sink refuses to store messages", topic=leaving.message.topic,
            broker=connection.address, found=found, hint="see the broker's log there, and check the rights of the keys",
        )  # fmt: skip

    def _refuse(self, leaving: Leaving, batch: SinkBatch, found: str) -> None:
        message = leaving.message
        if self._dead_letters is None:
            raise Invalid(
                "the destination of a sink does not take a message", found=found,
                place=f"{message.topic}/{message.queue_id} at {message.queue_offset}", bytes=len(message.body),
                hint="raise maxMessageSize there, or give the option dead_letters=URL, where such messages then go",
            )  # fmt: skip
        [line] = json_lines(SinkBatch(batch.messages, batch.rows[batch.rows == leaving.row]))
        self._dead_letters.bury(message.message_id, line + b"\n", 1)

    def _move(self, lanes: dict[TargetQueue, deque[Leaving]]) -> None:
        """Ask for routes again: a queue's master may be another broker by now. Queues keep their numbers."""
        self._routes.clear()
        waiting = [leaving for lane in lanes.values() for leaving in lane]
        waiting.sort(key=lambda leaving: leaving.row)
        lanes.clear()
        for leaving in waiting:
            lanes.setdefault(self._target(leaving.message), deque()).append(leaving)

    def _note(self, target: TargetQueue, leaving: Leaving, answer: Command) -> None:
        """Where a message lies now, joined to the run that it goes on with."""
        offset, message = answer.ext.get("queueOffset", ""), leaving.message
        if not (offset.isascii() and offset.isdigit()):
            return
        queue, at = MessageQueue(message.topic, message.queue_id), int(offset)
        name = f"{message.topic}@{target.broker}"
        for number in range(len(self._placed) - 1, max(-1, len(self._placed) - 64), -1):
            run = self._placed[number]
            if run.queue == queue:
                goes_on = (
                    (run.target, run.partition) == (name, target.queue_id)
                    and run.first_offset + run.messages == message.queue_offset
                    and run.target_offset + run.messages == at
                )
                if goes_on:
                    self._placed[number] = run._replace(messages=run.messages + 1)
                    return
                break
        if len(self._placed) < MAX_PLACED:
            self._placed.append(Placed(queue, message.queue_offset, 1, name, target.queue_id, at))
