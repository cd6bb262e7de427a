"""``read-nodes``: what more read nodes bring, when what takes the time is waiting for the store and not the CPU.

An archive on a server that answers every GET late; nodes with few requests at once and next to no cache; a reader of every
queue at the same time, by the gateway's own way to its nodes. The baseline is one node, times their number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from tests.bench.cold import TOPIC, ColdArchive, cold
from tests.bench.run import Row, expect, whole
from tests.kit.faultproxy import Action, FaultProxy, Rule
from tests.kit.measured import cpu_seconds
from tests.kit.nodeproc import ReadNode
from tests.kit.s3server import REGION
from tiered.clock import SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.nodes.reads import Reads, open_reads
from tiered.metrics import Metrics
from tiered.model import GetMessageResult
from tiered.settings import KIB, Gateway
from tiered.store import MessageStore

LATE_SECONDS = 0.25
NODES = (1, 2, 4)
AT_ONCE = 2
"""Requests of one node to the store at one time: so waiting is the limit."""
PULL_MESSAGES, PULL_BYTES = 32, 256 * KIB
SECONDS = 60.0
FEW = {
    "fetch.threads": AT_ONCE,
    "fetch.read_ahead": "false",
    "fetch.budget_bytes": "8MiB",
    "fetch.cache_expiry_ms": 100,
    "serve.read_timeout_ms": 60_000,
}


class NotHere:
    """A gateway's archive whose commit is known, and that is not read: whoever reads here is no node."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.place = store.place

    def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
        raise SystemExit(f"no node gave {pull.queue} from {pull.offset} on")


@dataclass(frozen=True, slots=True)
class Round:
    """Messages a second over all nodes, CPU of the nodes by the clock, and reads of the busiest node over the mean."""

    rate: float
    cpu: float
    busiest: float


def read_nodes(work: Path, messages: int, queues: int) -> list[Row]:
    """Rows for each number of nodes."""
    with cold(work, messages, queues) as archive, ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(archive.server.endpoint.removeprefix("http://"), seed=1))
        proxy.add(Rule(Action.DELAY, seconds=LATE_SECONDS, method="GET"))
        late = f"{archive.url.partition('?')[0]}?endpoint={proxy.url}&region={REGION}"
        fleet = [
            stack.enter_context(
                ReadNode(
                    work, late, f"node-{number}",
                    environment=archive.server.environment(), **FEW,  # type: ignore[arg-type]
                ).running()
            )
            for number in range(max(NODES))
        ]  # fmt: skip
        rounds = {count: whole(lambda number, count=count: _round(archive, fleet[:count])) for count in NODES}
    alone = rounds[1].rate
    return [
        Row(
            f"{count} read nodes, {queues} queues, GETs {LATE_SECONDS * 1000:.0f} ms away, {AT_ONCE} at once a node",
            f"{found.rate:,.0f} messages/s; CPU {found.cpu:.2f} of a core; busiest node {found.busiest:.2f} of its share",
            f"{alone * count:,.0f} messages/s, one node × {count}",
            f"{found.rate / (alone * count):.2f}",
            "≥ 0.8" if count > 1 else "–",
        )
        for count, found in rounds.items()
    ]


def _round(archive: ColdArchive, nodes: Sequence[ReadNode]) -> Round:
    """Everything once. A node that was asked before has nothing of it: its cache holds less than a block of each queue."""
    before, cpu = [node.given() for node in nodes], _cpu(nodes)
    with ThreadPoolExecutor(4) as pool, archive.opened() as (store, _):
        began = time.monotonic()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_all(store, pool, nodes, archive.queues))
        seconds = time.monotonic() - began
    expect(found, archive.messages)
    given = [node.given() - one for node, one in zip(nodes, before, strict=True)]
    return Round(found / seconds, (_cpu(nodes) - cpu) / seconds, max(given) * len(nodes) / sum(given))


def reads_of(store: MessageStore, pool: ThreadPoolExecutor, nodes: Sequence[ReadNode]) -> Reads:
    """A gateway's way to its nodes, and to nobody else."""
    settings = replace(
        Gateway(), read_nodes=tuple(node.address for node in nodes), read_node_timeout_ms=int(SECONDS * 1000)
    )
    asking = Asking(pool, SECONDS)
    return open_reads(NotHere(store), asking, settings, SystemClock(), Metrics())  # type: ignore[arg-type]


async def _all(store: MessageStore, pool: ThreadPoolExecutor, nodes: Sequence[ReadNode], queues: int) -> int:
    reads = reads_of(store, pool, nodes)

    async def queue(queue_id: int) -> int:
        end = store.max_offset(TOPIC, queue_id) or 0
        offset = messages = 0
        while offset < end:
            pull = Pull(ReaderId("bench"), TOPIC, queue_id, offset, PULL_MESSAGES, PULL_BYTES)
            result = await reads.read(pull, None, SECONDS)
            messages += len(result.records)
            offset = int(result.next_begin_offset)
        return messages

    return sum(await asyncio.gather(*(queue(queue_id) for queue_id in range(queues))))


def _cpu(nodes: Sequence[ReadNode]) -> float:
    return sum(cpu_seconds(node.child.pid) for node in nodes)
