"""The unmodified Python gRPC client, run by the interpreter that has it: ``grpcclient KIND ENDPOINT TOPIC GROUP OUT IDLE N``.

KIND: ``push`` (PushConsumer) or ``simple`` (SimpleConsumer). One JSON line per delivery goes to OUT, before it is acknowledged.
Ends IDLE seconds after the last one, or ``LINGER_SECONDS`` after N. Imports nothing of this repository.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TextIO

BATCH = 32
INVISIBLE_SECONDS = 30
POLL_SECONDS = 3
LINGER_SECONDS = 6.0
"""What a PushConsumer was given it acknowledges on its own time: what it left would come again to the next one."""
ACKS_AT_ONCE = 4
ACK_TRIES = 3
"""A Proxy on a busy machine lets a call run into its 3 s; the message is invisible for longer than all tries take."""


class Notes:
    """What was delivered, written down; when the last was; how many are ``wanted``."""

    def __init__(self, out: TextIO, wanted: int) -> None:
        self._out = out
        self._missing = wanted
        self._last = time.monotonic()

    def take(self, message: Any) -> None:
        """Write one delivery down."""
        line = {
            "seq": int(message.properties["seq"]),
            "attempt": message.delivery_attempt,
            "tags": message.tag,
            "body": message.body.decode(),
        }
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()
        self._missing -= 1
        self._last = time.monotonic()

    def quiet(self, seconds: float) -> bool:
        """Whether nothing has come for so long, or for a moment since all came."""
        return time.monotonic() - self._last >= (seconds if self._missing > 0 else LINGER_SECONDS)


def main() -> None:
    """Consume until nothing comes any more."""
    from rocketmq.v5.client import ClientConfiguration, Credentials  # type: ignore[import-not-found]
    from rocketmq.v5.model import FilterExpression  # type: ignore[import-not-found]

    kind, endpoint, topic, group, path, idle, wanted = sys.argv[1:8]
    consume = {"push": push, "simple": simple}[kind]
    with open(path, "a", encoding="utf-8") as out:
        configuration = ClientConfiguration(endpoint, Credentials())
        consume(configuration, group, {topic: FilterExpression()}, Notes(out, int(wanted)), float(idle))


def push(configuration: Any, group: str, topics: dict[str, Any], notes: Notes, idle: float) -> None:
    """Messages are handed to a listener."""
    from rocketmq.v5.consumer.push import (  # type: ignore[import-not-found]
        ConsumeResult,
        MessageListener,
        PushConsumer,
    )

    class Noting(MessageListener):  # type: ignore[misc]
        def consume(self, message: Any) -> Any:
            notes.take(message)
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration, group, Noting(), topics)
    consumer.startup()
    while not notes.quiet(idle):
        time.sleep(0.1)
    consumer.shutdown()


def simple(configuration: Any, group: str, topics: dict[str, Any], notes: Notes, idle: float) -> None:
    """Messages are asked for and acknowledged one by one."""
    from rocketmq.v5.consumer import SimpleConsumer  # type: ignore[import-not-found]

    consumer = SimpleConsumer(configuration, group, topics, await_duration=POLL_SECONDS)
    consumer.startup()
    with ThreadPoolExecutor(ACKS_AT_ONCE) as acks:
        while not notes.quiet(idle):
            try:
                messages = consumer.receive(BATCH, INVISIBLE_SECONDS)
            except Exception as error:  # a poll of one queue that found nothing, or that the Proxy cut off
                print(f"receive: {error}", file=sys.stderr, flush=True)
                time.sleep(0.1)
                continue
            for message in messages or ():
                notes.take(message)
            list(acks.map(lambda message: acknowledge(consumer, message), messages or ()))
    consumer.shutdown()


def acknowledge(consumer: Any, message: Any) -> None:
    """Acknowledge one message."""
    for left in reversed(range(ACK_TRIES)):
        try:
            consumer.ack(message)
            return
        except Exception as error:
            print(f"ack: {error}", file=sys.stderr, flush=True)
            if not left:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
