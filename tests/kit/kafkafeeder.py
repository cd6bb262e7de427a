"""A process that gives a log to a sink of kind *kafka* and may be killed: ``python -m tests.kit.kafkafeeder``.

The log is made up: queue q of topic T has messages 0, 1, 2 … whose body says which they are. Each batch is so many of every
queue; lines tell how far it is. It stands still behind the line ``--halt``, until it is killed.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Sequence
from dataclasses import replace

from tests.kit.sinkscene import PLACE
from tiered.codec.record.message import Message
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue, PhysicalOffset
from tiered.sink.base import SinkPosition
from tiered.sink.contract.samples import batch_of, message_of
from tiered.sink.kafka.kind import KafkaKind
from tiered.sink.order import SinkOrder

TOPIC = "Fed"


def body_of(queue: int, offset: int) -> bytes:
    """What a message of the log says."""
    return b"%d %d " % (queue, offset) + b"x" * (offset % 97)


def stretch(queues: int, first: int, end: int) -> list[Message]:
    """The messages [``first``, ``end``) of every queue, the queues in turn."""
    return [
        message_of(TOPIC, queue, at, body_of(queue, at), physical=1_000 * at + queue)
        for at in range(first, end)
        for queue in range(queues)
    ]


def feeder_order(name: str, brokers: str, **options: str) -> SinkOrder:
    """The sink that is fed."""
    return SinkOrder(
        name, "kafka", {"brokers": brokers, "topic": f"{name}.{{topic}}", "partitions": "2", **options}
    )


def feed(
    order: SinkOrder, queues: int, until: int, step: int, *, flush_every: int = 2, halt: str = ""
) -> None:
    """Give the log from the sink's position up to ``until`` in each queue."""

    def say(line: str) -> None:
        print(line, flush=True)
        while line == halt:
            signal.pause()

    place = replace(PLACE, name=order.name)
    sink = KafkaKind().open(order, place)
    position = sink.position()
    nexts = {follow.next for follow in position.queues.values()} if position else set()
    assert len(nexts) <= 1, "queues were flushed together, and are not as far"
    at = nexts.pop() if nexts else 0
    say(f"opened at {at}")
    written = 0
    while at < until:
        end = min(at + step, until)
        sink.write(batch_of(stretch(queues, at, end))[0])
        at, written = end, written + 1
        say(f"written {at}")
        if written % flush_every == 0 or at == until:
            queue_ends = {MessageQueue(TOPIC, q): Follow(at, 1_000 * (at - 1) + q) for q in range(queues)}
            sink.flush(SinkPosition(FeedPosition(PhysicalOffset(at)), queue_ends))
            say(f"flushed {at}")
    sink.close()
    say("done")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    for name in ("name", "brokers"):
        parser.add_argument(name)
    for name, default in (("--queues", 4), ("--until", 400), ("--step", 20), ("--flush-every", 2)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--halt", default="")
    told = parser.parse_args(arguments)
    order = feeder_order(told.name, told.brokers, timeout_ms="20000")
    feed(order, told.queues, told.until, told.step, flush_every=told.flush_every, halt=told.halt)


if __name__ == "__main__":
    main()
