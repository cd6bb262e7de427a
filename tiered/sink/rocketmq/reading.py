"""What is at the brokers of a destination, read back by pulls of a tools' consumer: no group is made, and nothing is committed.

A message says by its properties where it was first. Those that came to the source through another sink name that sink's source,
not ours: they cannot be told by their place in our archive, so neither side counts them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tiered.broker.client import Dial, RemotingClient, Request
from tiered.broker.questions import Broker
from tiered.broker.send import NEW_MESSAGE
from tiered.clock import Clock
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import scan
from tiered.codec.remoting.codes import SYS_SUBSCRIPTION, PullBounds, RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.errors import Corrupt, Invalid, Unavailable
from tiered.model import MessageQueue
from tiered.sink.base import SinkBatch
from tiered.sink.comparison.base import ANOTHER_SINKS, Marks
from tiered.sink.comparison.content import content_of, marks_of, origin_of
from tiered.sink.deadletters import DeadLetters
from tiered.sink.kinds import SinkPlace
from tiered.sink.messages import SinkMessages, messages_of
from tiered.sink.rocketmq.carried import MESSAGE_ID, OFFSET, ORIGINS, QUEUE, SINK, BrokerOrigin, came_from
from tiered.sink.rocketmq.cluster import DestinationCluster

GROUP = "TOOLS_CONSUMER"
"""Every broker knows it, and lets it pull without a heartbeat."""
_AT_ONCE = 16
"""Queues of a broker that are pulled side by side: an answer has at most some hundred KiB."""
_MOST_MESSAGES = 1_024
_MOST_RECORD = 64 << 20
_PAUSE_SECONDS = 0.1
_MOVED = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED}
)
_LEFT_OUT = frozenset({MESSAGE_ID, QUEUE, OFFSET, ORIGINS, SINK, "UNIQ_KEY"})
"""What the sink adds, and what a broker gives to a message that has none."""


@dataclass(slots=True)
class _Pulled:
    """A queue of the destination, read from ``next`` on up to ``end``."""

    broker: str
    topic: str
    queue_id: int
    next: int
    end: int

    def request(self) -> Request:
        """The pull of what comes next."""
        ext = {
            "consumerGroup": GROUP, "topic": self.topic, "queueId": self.queue_id, "queueOffset": self.next,
            "maxMsgNums": _MOST_MESSAGES, "sysFlag": SYS_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subscription": "*", "subVersion": 0, "expressionType": "TAG",
        }  # fmt: skip
        return Request(RequestCode.PULL_MESSAGE, ext)


class BrokerReadBack:
    """Of one sink. ``ordered``: until messages of one queue are met in two queues of the destination, between which there is
    no order."""

    def __init__(
        self, cluster: DestinationCluster, place: SinkPlace, clock: Clock, dial: Dial,
        dead_letters: DeadLetters | None = None,
    ) -> None:  # fmt: skip
        self.ordered = True
        self._clock, self._dial, self._dead_letters = clock, dial, dead_letters
        self._sink = place.short_id
        self._ours = str(BrokerOrigin(place.cluster, place.broker, ""))
        self._origins = cluster.origins()
        self._masters: dict[str, str] = {}
        self._headless: list[str] = []
        for broker in cluster.brokers():
            if (master := broker.master) is None:
                self._headless.append(broker.name)
            else:
                self._masters[broker.name] = master
        self._late: set[str] = set()
        self._lies: dict[MessageQueue, tuple[str, int]] = {}
        self._spread: set[MessageQueue] = set()
        self._hopped = self._lost_while_read = False

    def position(self) -> None:
        return None

    def target(self, queue: MessageQueue) -> MessageQueue:
        return queue

    def lane(self, queue: MessageQueue) -> str:
        return queue.topic

    def given(self, batch: SinkBatch) -> Marks:
        messages = messages_of(batch)
        queues: list[tuple[str, int]] = []
        offsets: list[int] = []
        origins: list[int] = []
        contents: list[int] = []
        rows = zip(
            _texts(messages), messages.bodies(), messages.topic.tolist(), messages.queue_id.tolist(),
            messages.queue_offset.tolist(), messages.message_id, strict=True,
        )  # fmt: skip
        for properties, body, topic, number, offset, message_id in rows:
            if ORIGINS in properties:  # not sent at all, or under a place in another log
                self._hopped |= not came_from(properties, self._origins)
                continue
            queues.append((messages.topics[topic], number))
            offsets.append(offset)
            origins.append(origin_of(message_id))
            contents.append(_content(body.content, properties))
        return marks_of(queues, offsets, origins, contents)

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        """The bounds of all queues are asked for before anything is read: what comes later is not looked at."""
        topics = sorted({queue.topic for queue in queues})
        clients = {name: RemotingClient(at, self._clock, self._dial) for name, at in self._masters.items()}
        try:
            waiting = {
                name: [
                    _Pulled(name, topic, number, first, end)
                    for topic in topics
                    for number, (first, end) in sorted((Broker(client).bounds(topic) or {}).items())
                ]
                for name, client in clients.items()
            }
            self._late = {pulled.topic for each in waiting.values() for pulled in each if pulled.next > 0}
            for name, client in clients.items():
                yield from self._pull(client, [p for p in waiting[name] if p.next < p.end])
        finally:
            for client in clients.values():
                client.close()

    def buried(self) -> Iterator[Marks]:
        if self._dead_letters is None:
            return
        for lines in self._dead_letters.all():
            told = [json.loads(line) for line in lines.splitlines()]
            queues = [(str(one["topic"]), int(one["queue_id"])) for one in told]
            nothing = [0] * len(told)
            yield marks_of(
                queues,
                [int(one["queue_offset"]) for one in told],
                [origin_of(one["msg_id"]) for one in told],
                nothing,
            )

    def begins_late(self, queue: MessageQueue) -> bool:
        return queue.topic in self._late

    def unread(self) -> str | None:
        said = []
        if self._headless:
            said.append(f"no master to ask of the brokers {', '.join(self._headless[:5])}")
        if self._hopped:
            said.append("messages that came to the source by another sink are not compared")
        if self._lost_while_read:
            said.append("the destination deleted messages while they were read")
        if self._spread:
            said.append(
                f"messages of {len(self._spread)} queues lie in several queues of the destination: no order is compared"
            )
        return "; ".join(said) or None

    def close(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.close()

    # ---- pulling

    def _pull(self, client: RemotingClient, waiting: list[_Pulled]) -> Iterator[Marks]:
        """All of these queues, some side by side, each in its order."""
        deadline = self._clock.monotonic() + self._dial.timeout_seconds
        while waiting:
            now = waiting[:_AT_ONCE]
            moved = False
            for pulled, answer in zip(now, client.ask_all([each.request() for each in now]), strict=True):
                before = pulled.next
                marks = None if answer is None else self._took(client, pulled, answer)
                moved |= pulled.next > before
                if marks is not None:
                    yield marks
            waiting = [each for each in now if each.next < each.end] + waiting[len(now) :]
            if moved:
                deadline = self._clock.monotonic() + self._dial.timeout_seconds
            elif self._clock.monotonic() > deadline:
                raise Unavailable(
                    "a broker of a sink's destination does not give its messages", broker=client.address,
                    place=f"{now[0].topic}/{now[0].queue_id} at {now[0].next}", expected=f"up to {now[0].end}",
                    found=client.trouble or "nothing", hint="see the broker's log there",
                )  # fmt: skip
            else:
                self._clock.wait(_PAUSE_SECONDS)

    def _took(self, client: RemotingClient, pulled: _Pulled, answer: Command) -> Marks | None:
        """Go on by an answer. ``Invalid``: the broker refuses."""
        if answer.code == ResponseCode.SUCCESS:
            bounds = PullBounds.parse(answer.ext)
            marks = self._marks(pulled, bytes(answer.body))
            pulled.next = max(pulled.next, bounds.next_offset)
            return marks
        if answer.code in _MOVED:
            there = PullBounds.parse(answer.ext)
            if there.min_offset > pulled.next:
                self._lost_while_read = True
                pulled.next = min(there.min_offset, pulled.end)
            elif answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY and there.next_offset > pulled.next:
                self._lost_while_read = True  # its file is on its way out
                pulled.next = there.next_offset
            return None
        found = client.without_keys(answer.remark or "")[:200]
        if answer.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE):
            return None
        raise Invalid(
            "the destination of a sink does not let its messages be read", broker=client.address, topic=pulled.topic,
            found=f"code {answer.code}: {found}", hint="the keys need the right to pull the topic, and it must be readable",
        )  # fmt: skip

    def _marks(self, pulled: _Pulled, body: bytes) -> Marks:
        """Of the records that this sink gave, and no others."""
        frames = scan(body, base=None, max_record_bytes=_MOST_RECORD)
        if frames.end != len(body):
            raise Corrupt(
                "what a broker gave is not records alone", place=f"{pulled.topic}/{pulled.queue_id} at {pulled.next}",
                expected=f"{len(body)} bytes", found=f"records in {frames.end}; {frames.detail}",
            )  # fmt: skip
        messages = messages_of(SinkBatch(decode_headers(body, frames), np.arange(len(frames))))
        queues: list[tuple[str, int]] = []
        offsets: list[int] = []
        origins: list[int] = []
        contents: list[int] = []
        lane = pulled.broker, pulled.queue_id
        for properties, body_of in zip(_texts(messages), messages.bodies(), strict=True):
            came_by = properties.get(ORIGINS, "")
            if not came_by.startswith(self._ours) or "," in came_by:
                self._hopped |= came_by.rpartition(",")[2].startswith(self._ours)
                continue
            place = _first_place(properties)
            if place is None or place[0].topic != pulled.topic:
                continue
            queue, offset = place
            mine = properties.get(SINK, self._sink) == self._sink
            if mine and self._lies.setdefault(queue, lane) != lane:
                self._spread.add(queue)
                self.ordered = False
            queues.append((queue.topic, queue.queue_id))
            offsets.append(offset)
            origins.append(origin_of(properties.get(MESSAGE_ID, "")) if mine else ANOTHER_SINKS)
            contents.append(_content(body_of.content, properties))
        return marks_of(queues, offsets, origins, contents)


def _texts(messages: SinkMessages) -> list[dict[str, str]]:
    return [{name: value.decode("utf-8", "replace") for name, value in each} for each in messages.properties]


def _content(body: bytes, properties: Mapping[str, str]) -> int:
    """Of what travels: not of what brokers note of their own."""
    kept = ((n, v) for n, v in properties.items() if n not in _LEFT_OUT and n not in NEW_MESSAGE)
    return content_of(body, kept)


def _first_place(properties: Mapping[str, str]) -> tuple[MessageQueue, int] | None:
    """Where a message was first; ``None``: somebody else wrote these properties."""
    topic, _, number = properties.get(QUEUE, "").rpartition("/")
    offset = properties.get(OFFSET, "")
    if not (topic and number.isascii() and number.isdigit() and offset.isascii() and offset.isdigit()):
        return None
    return MessageQueue(topic, int(number)), int(offset)
