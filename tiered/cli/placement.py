"""``tiered placement``: which read node each busy queue should have, by what the archive's history predicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated

import typer

from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.values import RunState
from tiered.cli.access import reading
from tiered.cli.members import Fleet, fleet_of
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.clock import SystemClock
from tiered.errors import Corrupt
from tiered.gateway.nodes.placement import ranked
from tiered.model import MessageQueue
from tiered.placement.assign import assign, imbalance
from tiered.placement.forecast import forecast
from tiered.placement.history import MOST_QUEUES, MOST_STEPS, load_history
from tiered.placement.readloads import node_loads
from tiered.placement.table import (
    PlacementTable,
    newest_table,
    publish_table,
    queue_digest,
    table_numbers,
    with_quiet_homes,
)
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.text.human import Kind
from tiered.text.output import Column, Output

COLUMNS = (
    Column("topic"),
    Column("queue_id", "queue", Kind.COUNT),
    Column("predicted_bytes", "written an hour, predicted", Kind.SIZE),
    Column("read_bytes", "read an hour", Kind.SIZE),
    Column("node"),
    Column("by_hash", "by hashing", less=1),
    Column("moved", less=2),
)


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="NAME,NAME=CAPACITY",
            help="Read nodes, instead of those that have announced themselves; capacity 1 if not said.",
        ),
    ] = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Put the table into the bucket, where gateways find it.")
    ] = False,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Forecast the load of queues from the archive's history, and place busy ones on read nodes.

    Nodes are those that have announced themselves where gateways look (gateway.membership), or those of gateway.read_nodes.
    They say their capacity, and what was read of them; a node of capacity 2 gets twice as much as one of 1.

    A queue stays where the newest table has it unless moving it gains enough, so that caches stay warm. With --publish the new
    table is put behind that one; gateways with gateway.placement=table follow within half a minute. Run it once an hour, on
    one host.
    """
    out = output(json)
    clock = SystemClock()
    with reading(out, config, archive, sets) as opened:
        settings = opened.loaded.settings
        fleet = fleet_of(nodes, settings)
        now = clock.now_ms()
        read: dict[MessageQueue, int] = {}
        runs = _noting(opened.view.state.runs_all(), fleet.reads, read)
        history = load_history(runs, now, steps=MOST_STEPS)
    found = forecast(history)
    written = dict(zip(history.queues, found.loads.tolist(), strict=True))
    loads = _busy(node_loads(written, read))
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    provider = open_provider(settings.archive.url, settings.store, clock)
    try:
        number, table = _newest(provider, keys)
        homes = {} if table is None else table.homes
        before = {queue: homes[digest] for queue in loads if (digest := queue_digest(queue)) in homes}
        placed = assign(loads, fleet.capacity, before, partial(ranked, capacity=fleet.capacity))
        hashed = {queue: ranked(queue, list(fleet.capacity), fleet.capacity)[0] for queue in loads}
        out.table(
            COLUMNS,
            (
                (
                    queue.topic, queue.queue_id, round(written.get(queue, 0.0)), read.get(queue), placed[queue],
                    hashed[queue], queue in before and before[queue] != placed[queue],
                )
                for queue in sorted(loads, key=lambda queue: (-loads[queue], queue))
            ),
        )  # fmt: skip
        out.note(f"the forecast's error of late: {100 * found.error:.0f}%")
        _say_fleet(out, fleet, len(read))
        out.note(
            "fullest node over the mean, for its capacity:"
            f" {imbalance(loads, placed, fleet.capacity):.2f}, by hashing {imbalance(loads, hashed, fleet.capacity):.2f}"
        )
        if publish:
            made = _table(loads, placed, homes, fleet, now)
            out.note(f"table {publish_table(provider, keys, made, number)} is published")
    finally:
        provider.close()


def _table(
    loads: Mapping[MessageQueue, float],
    placed: Mapping[MessageQueue, str],
    homes: Mapping[int, str],
    fleet: Fleet,
    now_ms: int,
) -> PlacementTable:
    """The table of what is placed, and of ``homes`` that stay; see ``with_quiet_homes``."""
    digests = {queue_digest(queue): queue for queue in loads}
    names = sorted(fleet.capacity)
    return PlacementTable(
        tuple(names),
        with_quiet_homes({digest: placed[queue] for digest, queue in digests.items()}, homes, names),
        {digest: round(loads[queue]) for digest, queue in digests.items()},
        now_ms,
    )


def _noting(
    runs: Iterable[RunState], wanted: Mapping[int, int], found: dict[MessageQueue, int]
) -> Iterator[RunState]:
    """``runs`` as they are; ``found`` gets what is read of queues whose digest is in ``wanted``."""
    last: MessageQueue | None = None
    for run in runs:
        if wanted and run.queue != last:
            last = run.queue
            load = wanted.get(queue_digest(last), 0)
            if load:
                found[last] = load
        yield run


def _busy(loads: Mapping[MessageQueue, float]) -> dict[MessageQueue, float]:
    """The busiest ones, as many as a table may have."""
    ranks = sorted(loads, key=lambda queue: (-loads[queue], queue))[:MOST_QUEUES]
    return {queue: loads[queue] for queue in ranks if loads[queue] >= 1}


def _say_fleet(out: Output, fleet: Fleet, read: int) -> None:
    """On whom it was placed, and who was left out."""
    reads = f"; {read} queues are read, by what nodes say" if read else ""
    out.note(f"{len(fleet.capacity)} nodes of capacity {sum(fleet.capacity.values())} together{reads}")
    for name, why in sorted(fleet.left_out.items()):
        out.note(f"{name} gets no queue: {why}")


def _newest(provider: Provider, keys: ArchiveKeys) -> tuple[int, PlacementTable | None]:
    """The newest table; one that is damaged counts as none, behind whose number the next one goes."""
    try:
        return newest_table(provider, keys)
    except Corrupt:
        return table_numbers(provider, keys)[-1], None
