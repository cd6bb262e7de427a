"""Messages with keys; and what a fold over every message of a queue by a dict keeps of it."""

from __future__ import annotations

import random

from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene
from tests.kit.pipeline import INNER_BATCH
from tiered.archive.read.compaction import CompactedQueue
from tiered.archive.read.view import View
from tiered.codec.record.message import decode_message
from tiered.model import MessageQueue


def send_keyed(made: Scene, chance: random.Random, count: int, keys: int) -> None:
    """Messages with keys, of which some come again, some with an empty body; without any, and with a blank one."""
    for _ in range(count):
        kind = chance.random()
        properties = {"KEYS": f"k{chance.randrange(keys)}" + (" more" if kind < 0.2 else "")}
        if kind > 0.95:
            properties = {"KEYS": "  \t"} if kind > 0.97 else {"TAGS": "none"}
        flags, body = 0, b"" if chance.random() < 0.2 else b"%d " % chance.getrandbits(40) * 9
        if chance.random() < 0.05:
            flags, properties = INNER_BATCH, {**properties, "INNER_NUM": str(chance.randint(2, 4))}
        made.broker.send(ORDERS.topic, ORDERS.queue_id, body, sys_flag=flags, properties=properties)
    made.daemon.settle(SETTLED_SECONDS)


def view_of(made: Scene) -> View:
    """The archive as it is now."""
    log = made.daemon.log
    return View(log.proven().head(), made.state, made.objects(), log.reader)


def compacted(made: Scene, memory_bytes: int = 4096, queue: MessageQueue = ORDERS) -> list[tuple[int, bytes]]:
    """What a reader is answered who asks for the newest message of each key."""
    found = CompactedQueue(view_of(made), queue, memory_bytes=memory_bytes)
    return [pair for offsets in found.offsets() for pair in found.records(offsets)]


def folded(made: Scene, queue: MessageQueue = ORDERS) -> list[tuple[int, bytes]]:
    """The same by a dict over the raw archive, read record by record; a message that a trim begins inside counts from there."""
    found = made.state.queue(queue)
    current = None if found is None else found.generation
    newest: dict[str, tuple[int, bytes, bool]] = {}
    for generation, offset, raw in made.daemon.rows().get(queue, []):
        message = decode_message(raw)
        key = message.properties.get("KEYS", "")
        if generation == current and key.strip():
            newest[key] = offset, raw, bool(message.body)
    return sorted((offset, raw) for offset, raw, lives in newest.values() if lives)
