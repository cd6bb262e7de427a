"""Projections by key in one thread; and what a fold over every message of a queue by a dict keeps of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene
from tests.kit.merging import AtOnceTurn
from tests.kit.pipeline import INNER_BATCH
from tiered.archive.keys import Area
from tiered.archive.log.maintenance import Done, OwnKeys
from tiered.archive.read.compaction import CompactedQueue
from tiered.archive.read.projection import newest_projection
from tiered.archive.read.view import View
from tiered.archive.rewrite.projecting import Projecting, ProjectingOptions
from tiered.archive.rewrite.projectionbuild import BuildBounds
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


def projecting(
    made: Scene,
    own_keys: OwnKeys | None = None,
    asked: Callable[[], Collection[str]] | None = None,
    **options: Any,
) -> Projecting:
    """The task, with bounds that fit a small archive. ``options``: of ``ProjectingOptions`` and ``BuildBounds``."""
    bounds = BuildBounds(
        options.pop("memory_bytes", 4096),
        options.pop("directory", None),
        options.pop("turn_bytes", 2000),
        options.pop("messages", 100),
    )
    options = {
        "patterns": ("Ord*",),
        "interval_seconds": 600.0,
        "min_messages": 1,
        "renew_percent": 0,
        **options,
    }
    damaged = options.pop("damaged", tuple)
    return Projecting(
        made.daemon.log, made.clock, ProjectingOptions(**options, bounds=bounds), own_keys or OwnKeys(), asked,
        damaged=damaged,
    )  # fmt: skip


def project_all(made: Scene, task: Projecting, rounds: int = 200) -> list[Done]:
    """Turns until nothing is left; what each did."""
    found: list[Done] = []
    while not found or found[-1].more:
        found.append(task.run_once(AtOnceTurn(made.daemon)))
        assert len(found) < rounds, "it comes to an end"
    return found


def view_of(made: Scene) -> View:
    """The archive as it is now."""
    log = made.daemon.log
    return View(log.proven().head(), made.state, made.objects(), log.reader)


def projected(made: Scene, view: View | None = None, queue: MessageQueue = ORDERS) -> list[tuple[int, bytes]]:
    """What a reader is answered who takes what there is of projections."""
    seen = view or view_of(made)
    found = CompactedQueue(seen, queue, memory_bytes=4096, projection=newest_projection(seen, queue))
    return [pair for offsets in found.offsets() for pair in found.records(offsets)]


def newest_by_key(rows: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Of a queue's messages the newest of each key by a dict; a message that a trim begins inside counts from there."""
    newest: dict[str, tuple[int, bytes, bool]] = {}
    for offset, raw in rows:
        message = decode_message(raw)
        key = message.properties.get("KEYS", "")
        if key.strip():
            newest[key] = offset, raw, bool(message.body)
    return sorted((offset, raw) for offset, raw, lives in newest.values() if lives)


def folded(made: Scene, queue: MessageQueue = ORDERS) -> list[tuple[int, bytes]]:
    """``newest_by_key`` over the raw archive, read record by record."""
    found = made.state.queue(queue)
    current = None if found is None else found.generation
    rows = made.daemon.rows().get(queue, [])
    return newest_by_key([(offset, raw) for generation, offset, raw in rows if generation == current])


def stored_projections(made: Scene) -> list[str]:
    """Paths of the projections in the bucket."""
    return [str(KEYS.path(item.key)) for item in made.provider.list(KEYS.prefix(Area.PROJECTION))]
