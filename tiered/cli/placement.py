"""``tiered placement``: which read node each busy queue should have, by what the archive's history predicts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer

from tiered.archive.keys import ArchiveKeys
from tiered.cli.access import reading
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.clock import SystemClock
from tiered.errors import Corrupt, Invalid
from tiered.gateway.nodes.placement import ranked
from tiered.placement.assign import assign, imbalance
from tiered.placement.forecast import forecast
from tiered.placement.history import MOST_STEPS, load_history
from tiered.placement.learned import OnlineRegression
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
from tiered.settings import Settings
from tiered.text.human import Kind
from tiered.text.output import Column

COLUMNS = (
    Column("topic"),
    Column("queue_id", "queue", Kind.COUNT),
    Column("predicted_bytes", "predicted an hour", Kind.SIZE),
    Column("node"),
    Column("by_hash", "by hashing", less=1),
    Column("moved", less=2),
)


class Model(Enum):
    """What predicts loads."""

    LEARNED = "learned"
    BASELINE = "baseline"


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="NAME,NAME", help="Read nodes; else those of gateway.read_nodes."),
    ] = None,
    model: Annotated[Model, typer.Option("--model", help="What predicts loads.")] = Model.LEARNED,
    publish: Annotated[
        bool, typer.Option("--publish", help="Put the table into the bucket, where gateways find it.")
    ] = False,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Forecast the load of queues from the archive's history, and place busy ones on read nodes.

    A queue stays where the newest table has it unless moving it gains enough, so that caches stay warm. With --publish the new
    table is put behind that one; gateways with gateway.placement=learned follow within half a minute. Run it once an hour, on
    one host. The model is taken only while its own error is below the baseline's; it needs the extra placement.
    """
    out = output(json)
    clock = SystemClock()
    with reading(out, config, archive, sets) as opened:
        settings = opened.loaded.settings
        names = _names(nodes, settings)
        now = clock.now_ms()
        history = load_history(opened.view.state.runs_all(), now, steps=MOST_STEPS)
    found = forecast(history, OnlineRegression if model is Model.LEARNED else None)
    loads = {queue: float(load) for queue, load in zip(history.queues, found.loads, strict=True) if load >= 1}
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    provider = open_provider(settings.archive.url, settings.store, clock)
    try:
        number, table = _newest(provider, keys)
        homes = {} if table is None else table.homes
        before = {queue: homes[digest] for queue in loads if (digest := queue_digest(queue)) in homes}
        placed = assign(loads, names, before, ranked)
        hashed = {queue: ranked(queue, names)[0] for queue in loads}
        out.table(
            COLUMNS,
            (
                (
                    queue.topic, queue.queue_id, round(loads[queue]), placed[queue], hashed[queue],
                    queue in before and before[queue] != placed[queue],
                )
                for queue in sorted(loads, key=lambda queue: (-loads[queue], queue))
            ),
        )  # fmt: skip
        by = "model" if found.by_model else "baseline"
        errors = f"{100 * found.baseline_error:.0f}% of the baseline"
        if found.model_error is not None:
            errors += f", {100 * found.model_error:.0f}% of the model"
        out.note(
            f"predicted by the {by} (error of late: {errors}); fullest node over the mean:"
            f" {imbalance(loads, placed, names):.2f}, by hashing {imbalance(loads, hashed, names):.2f}"
        )
        if publish:
            digests = {queue_digest(queue): queue for queue in loads}
            made = PlacementTable(
                tuple(sorted(names)),
                with_quiet_homes({digest: placed[queue] for digest, queue in digests.items()}, homes, names),
                {digest: round(loads[queue]) for digest, queue in digests.items()},
                by,
                now,
            )
            out.note(f"table {publish_table(provider, keys, made, number)} is published")
    finally:
        provider.close()


def _names(nodes: str | None, settings: Settings) -> Sequence[str]:
    names = [name.strip() for name in nodes.split(",")] if nodes else list(settings.gateway.read_nodes)
    if not names or not all(names):
        raise Invalid(
            "no read nodes to place queues on",
            found=nodes, hint="--nodes a,b,c, as tiered nodes or gateway.read_nodes names them",
        )  # fmt: skip
    return names


def _newest(provider: Provider, keys: ArchiveKeys) -> tuple[int, PlacementTable | None]:
    """The newest table; one that is damaged counts as none, behind whose number the next one goes."""
    try:
        return newest_table(provider, keys)
    except Corrupt:
        return table_numbers(provider, keys)[-1], None
