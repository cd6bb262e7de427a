"""Sends messages in rounds: some go out at once, all answers are awaited, what was not stored goes again before anything new.

In order (``same``, ``hash``) a queue of the target has one message of a round at most: brokers store what comes together in any
order. Repeats come from answers that were lost, never from one that says that the message is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tiered.backoff import Backoff
from tiered.broker.client import Dial, RemotingClient, Request
from tiered.broker.routes import Route, Routes, TargetQueue
from tiered.broker.send import AGAIN, STORED, Sending, refused_for_good
from tiered.clock import Clock
from tiered.codec.record.layout import SYS_INNER_BATCH
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import DEFAULT_MAX_FRAME_BYTES, Command
from tiered.errors import Invalid, NotFound, TieredError, Unavailable
from tiered.settings import MIB
from tiered_spark.replay.options import ReplayOptions
from tiered_spark.replay.rows import Outgoing

log = logging.getLogger("tiered.spark")

ROUND_BYTES = 8 * MIB
MAX_MESSAGE_BYTES = DEFAULT_MAX_FRAME_BYTES - 256 * 1024
"""Largest body that is tried: brokers close the connection at longer frames, and a header has its properties in it."""

SLACK_SECONDS = 0.1
PAUSES = Backoff(0.1, 10.0)


@dataclass(slots=True)
class Counts:
    """What a sender did: messages stored, messages sent again, messages that the broker would not have."""

    stored: int = 0
    again: int = 0
    refused: int = 0


class Pace:
    """At most ``per_second`` messages a second, evenly. Of what was not used, a tenth of a second's is made up for, since waits
    end late. ``None``: no limit."""

    def __init__(self, per_second: float | None, clock: Clock) -> None:
        self._per_second, self._clock = per_second, clock
        self._next = clock.monotonic()

    @property
    def at_once(self) -> int:
        """Most messages of a round: a tenth of a second's, at least one."""
        return 1 << 30 if self._per_second is None else max(1, int(self._per_second * SLACK_SECONDS))

    def wait(self, messages: int) -> None:
        """Until so many may go."""
        if self._per_second is None:
            return
        now = self._clock.monotonic()
        if self._next > now:
            self._clock.wait(self._next - now)
        self._next = max(now - SLACK_SECONDS, self._next) + messages / self._per_second


class Sender:
    """One task's. ``stored`` is told of each message that the broker has. Every error names the row's place."""

    def __init__(
        self, options: ReplayOptions, clock: Clock, dial: Dial, stored: Callable[[Outgoing], None]
    ) -> None:
        self.counts = Counts()
        self._options, self._clock, self._dial, self._stored = options, clock, dial, stored
        self._pace = Pace(options.task_rate, clock)
        self._most = min(options.in_flight, self._pace.at_once)
        self._routes = Routes(options.name_servers, options.topic, clock, dial)
        self._route: Route | None = None
        self._connections: dict[str, RemotingClient] = {}
        self._round: list[tuple[Outgoing, TargetQueue]] = []
        self._taken: set[TargetQueue] = set()
        self._bytes = 0
        self._turn = 0

    def add(self, message: Outgoing) -> None:
        """Take a message; sends the round that it completes, or that it must not be part of."""
        if message.sys_flag & SYS_INNER_BATCH:
            self._refuse(message, "it is a batch of messages in one record", "filter('sys_flag & 128 = 0')")
            return
        if len(message.body) > MAX_MESSAGE_BYTES:
            self._refuse(message, "it is longer than RocketMQ's frames", "filter('body_size < 4194304')")
            return
        target = self._target(message)
        ordered = self._options.queue != "spread"
        full = len(self._round) >= self._most or self._bytes + len(message.body) > ROUND_BYTES
        if self._round and (full or (ordered and target in self._taken)):
            self.send()
            target = self._target(message)
        self._round.append((message, target))
        self._taken.add(target)
        self._bytes += len(message.body)

    def send(self) -> None:
        """Send what was taken. ``Unavailable`` if a message is not stored after all tries, ``Invalid`` if it never will be."""
        waiting, self._round = self._round, []
        self._taken.clear()
        self._bytes = 0
        tries = 0
        while waiting:
            self._pace.wait(len(waiting))
            left = self._once(waiting)
            if not left:
                return
            if tries >= self._options.retries:
                (message, target), found = left[0]
                raise Unavailable(
                    "the broker does not take a message", row=message.place, topic=self._options.topic,
                    broker=target.address, found=found, tries=tries + 1,
                    hint="see the broker's log; run the query again with the same replayId, or raise the option retries",
                )  # fmt: skip
            self._clock.wait(PAUSES.seconds(tries + 1))
            tries += 1
            self.counts.again += len(left)
            self._route = None
            waiting = [(message, self._again(message, tries)) for (message, _), _ in left]

    def close(self) -> None:
        """Close all connections; what was taken and not sent is forgotten."""
        self._routes.close()
        for connection in self._connections.values():
            connection.close()

    def _once(
        self, waiting: list[tuple[Outgoing, TargetQueue]]
    ) -> list[tuple[tuple[Outgoing, TargetQueue], str]]:
        """One try of a round: what has to be sent again, and why. Brokers work at the same time."""
        shares: dict[str, list[tuple[Outgoing, TargetQueue]]] = {}
        for item in waiting:
            shares.setdefault(item[1].address, []).append(item)
        for address, share in shares.items():
            if address not in self._connections:
                self._connections[address] = RemotingClient(address, self._clock, self._dial)
            self._connections[address].begin([self._request(*item) for item in share])
        left, error = [], None
        for address, share in shares.items():
            connection = self._connections[address]
            for item, answer in zip(share, connection.end(), strict=True):
                try:
                    found = self._judge(item[0], answer, connection)
                except TieredError as refused:  # the other answers of the round are still to be told
                    error = error or refused
                    continue
                if found is not None:
                    left.append((item, found))
        if error is not None:
            raise error
        return left

    def _judge(self, message: Outgoing, answer: Command | None, connection: RemotingClient) -> str | None:
        """``None`` if the message is done with, else why it must be sent again."""
        if answer is None:
            return connection.trouble
        if answer.code in STORED:
            self.counts.stored += 1
            self._stored(message)
            return None
        remark = connection.without_keys(answer.remark or "")[:300]
        found = f"code {answer.code}: {remark}"
        if answer.code in AGAIN and not refused_for_good(answer.code, remark):
            return found
        if answer.code == ResponseCode.MESSAGE_ILLEGAL:
            self._refuse(
                message, found,
                "leave such messages out (filter on body_size), raise maxMessageSize of the broker, or read with "
                "decodeBody=false if bodies were compressed",
            )  # fmt: skip
            return None
        raise Invalid(
            "the broker refuses to store messages", row=message.place, topic=self._options.topic,
            broker=connection.address, found=found, hint="see the broker's log, and check its rights and the option topic",
        )  # fmt: skip

    def _refuse(self, message: Outgoing, found: str, hint: str) -> None:
        """A single message that no sender could send."""
        refused = Invalid(
            "a message cannot be sent", row=message.place, body_bytes=len(message.body),
            properties_bytes=len(message.properties.encode()), found=found, hint=f"{hint}; or option('onError', 'skip')",
        )  # fmt: skip
        if self._options.on_error != "skip":
            raise refused
        self.counts.refused += 1
        log.warning("left out: %s", refused)

    # ---- where to

    def _again(self, message: Outgoing, tries: int) -> TargetQueue:
        """The target by a new route; while none can be had, that is one more failure of the tries that are left."""
        while True:
            try:
                return self._target(message)
            except (Unavailable, NotFound) as error:
                if tries >= self._options.retries:
                    raise
                log.warning("asked again: %s", error)
                self._clock.wait(PAUSES.seconds(tries + 1))
                tries += 1

    def _target(self, message: Outgoing) -> TargetQueue:
        if self._route is None:
            self._route = self._routes.ask()
        if self._options.queue == "same":
            return self._route.same(message.broker, message.queue_id)
        if self._options.queue == "hash":
            return self._route.at(message.lane)
        self._turn += 1
        return self._route.at(self._turn)

    def _request(self, message: Outgoing, target: TargetQueue) -> Request:
        return Sending(
            self._options.topic,
            target.queue_id,
            message.body,
            message.properties,
            self._options.group,
            sys_flag=message.sys_flag,
            flag=message.flag,
            born_ms=message.born_ms,
        ).request()
