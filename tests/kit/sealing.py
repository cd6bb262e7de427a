"""Sealing in one thread: the task, its turns taken at once; and every row of an archive, read without the program's own readers
where it is sealed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tests.kit.assemble import KEYS, Assembly
from tests.kit.fetchscene import SETTLED_SECONDS, Scene
from tests.kit.merging import AtOnceTurn
from tests.kit.pipeline import START_MS
from tests.kit.readstore import Cold
from tests.kit.segments import opened, whole
from tiered.archive.log.maintenance import Done, OwnKeys
from tiered.archive.read.flatfile import RunReader
from tiered.archive.rewrite.seal import Sealing, SealOptions
from tiered.archive.rewrite.sealplan import SEGMENT_LEVEL, SealBounds
from tiered.archive.rewrite.writing import Layout
from tiered.archive.state.values import RunState
from tiered.codec.segment.reader import Segment
from tiered.model import MessageQueue
from tiered.settings import MIB, ONE_DAY_MS

HOUR_MS = 3_600_000
MIDNIGHT_MS = (START_MS // ONE_DAY_MS + 1) * ONE_DAY_MS
"""The end of the day on which brokers of tests begin."""

Rows = dict[tuple[MessageQueue, int, int | None], list[tuple[int, bytes, int]]]
"""Queue offset, record and commit of each row, by queue, generation and closing commit."""


def sealing(daemon: Assembly, **options: Any) -> Sealing:
    """The task, with bounds that fit a small archive. ``options``: of ``seal_options``; ``own_keys``."""
    own_keys = options.pop("own_keys", OwnKeys())
    return Sealing(daemon.log, daemon.clock, seal_options(**options), own_keys)


def seal_options(**options: Any) -> SealOptions:
    """Bounds that fit a small archive. ``options``: of ``SealBounds`` and ``SealOptions``."""
    bounds = SealBounds(
        options.pop("min_age_ms", HOUR_MS), options.pop("job_objects", 512), options.pop("job_runs", 100_000)
    )
    layout = Layout(4096, 1, 1 << 16)
    made = SealOptions(True, 3600.0, bounds, 64 * MIB, 1 << 16, 64 * MIB, layout, None)
    made = replace(made, row_group_bytes=4096, band_bytes=MIB)
    return replace(made, **options)


def seal_all(daemon: Assembly, turn: AtOnceTurn | None = None, **options: Any) -> list[Done]:
    """Turns until nothing is left; what each did."""
    task = sealing(daemon, **options)
    found = []
    while not found or found[-1].more:
        found.append(task.run_once(turn or AtOnceTurn(daemon)))
        assert len(found) < 1000, "sealing comes to an end"
    return found


def after_midnight(made: Scene | Cold, days: int = 1) -> None:
    """So many days end, and are old enough."""
    made.clock.set_wall(MIDNIGHT_MS + (days - 1) * ONE_DAY_MS + 2 * HOUR_MS)


def across_midnights(made: Scene, nights: Iterable[int]) -> None:
    """A flush over each of these midnights, 0 being that of the first day: messages of the day before and of the day behind."""
    for night in nights:
        for seconds in (-1, 1):
            made.broker.time_ms = MIDNIGHT_MS + night * ONE_DAY_MS + seconds * 1000
            made.send(2, flush=False)
        made.daemon.settle(SETTLED_SECONDS)


def all_rows(made: Scene) -> Rows:
    """Every row, live or closed, at whatever level."""
    found: Rows = {}
    segments: dict[str, list[tuple[int, bytes, int]]] = {}
    for run in [*made.state.runs_all(), *made.state.closed_parts()]:
        rows = found.setdefault((run.queue, run.generation, run.closed_by), [])
        rows += sorted(_rows(made, run, segments))
    return {name: sorted(rows) for name, rows in found.items()}


def _rows(
    made: Scene, run: RunState, segments: dict[str, list[tuple[int, bytes, int]]]
) -> Iterator[tuple[int, bytes, int]]:
    item = made.state.object(run.object)
    assert item is not None
    if item.level == SEGMENT_LEVEL:
        if item.path not in segments:
            data = bytes(made.provider.get(KEYS.key(item.path)).data)
            archive_id = made.daemon.log.reader.identity.archive_id
            segments[item.path] = segment_rows(
                opened(data, archive_id=archive_id, object_id=item.object_id), data
            )
        rows = segments[item.path][run.first_row : run.first_row + run.rows]
        yield from (row for row in rows if run.start <= row[0] < run.end)
        return
    objects = made.objects()
    commits = [run.id.commit_seq] * run.rows
    if item.level:
        commits = objects.columns(item, ("commit_seq",), run.first_row, run.rows)["commit_seq"].tolist()
    offsets = np.concatenate([rows for rows, _ in RunReader(made.state, objects).times(run)])
    came = dict(zip(offsets.tolist(), commits, strict=True))
    for stretch in RunReader(made.state, objects).stretches(run, run.start, run.end):
        for i, offset in enumerate(stretch.queue_offsets.tolist()):
            yield offset, bytes(stretch.record(i)), came[offset]


def segment_rows(segment: Segment, data: bytes) -> list[tuple[int, bytes, int]]:
    """Queue offset, record and commit of every row of a segment."""
    found: list[tuple[int, bytes, int]] = []
    for number in range(len(segment.directory.groups)):
        bands = segment.directory.bands_of(number)
        stored = whole(segment, data, bands)
        columns = segment.columns(bands, stored, ("queue_offset", "commit_seq")).to_pydict()
        records = segment.records(bands, stored)
        raws = [bytes(records.buffer[a:b]) for a, b in pairwise(records.edges.tolist())]
        found += zip(columns["queue_offset"], raws, columns["commit_seq"], strict=True)
    return found
