"""What is to be done about a lite queue's aliases, a function of the fold alone: which go because their records went, and which
alias runs become one (DESIGN.md, "Lite queues", L6 to L8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from zlib import crc32

import numpy as np

from tiered.archive.read.keptaliases import KeptAliases
from tiered.archive.rewrite.mergeplan import due_runs
from tiered.archive.state.aliases import ALIAS_HEAD, alias_runs
from tiered.archive.state.keys import (
    ALIAS,
    GENERATION,
    LITE_QUEUE,
    QUEUE,
    U8,
    generation_prefix,
    queue_of,
    split_run_key,
)
from tiered.archive.state.layout import QUEUE_DTYPE, table
from tiered.archive.state.tallies import RECORDS_AT_ONCE, records
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditBatch, EditKind, batch
from tiered.codec.types import Ints
from tiered.metadata.base import MetadataView

FULL = 4096
"""Aliases of a run that is not joined again: some 115 KB."""
GROWTH = 8
"""How much larger than its largest source a joined run is at least, but for one that is full."""
MOST_RUNS = 1024
"""Runs of a queue that are looked at together, from its end."""
MOST_ALIASES = 1 << 20
"""Aliases of a generation that one change lets go."""
QUEUES_AT_ONCE = 100_000
"""Lite queues that are looked at one by one in one turn."""


@dataclass(frozen=True, slots=True)
class AliasChange:
    """What a row of ``ReplaceAliases`` says of a generation of the lite queue with this key. ``gone``: aliases below
    ``first_offset``, which go; ``joined``: runs in [start, end), which become one."""

    queue: bytes
    generation: int
    first_offset: int = 0
    gone: int = 0
    start: int = 0
    end: int = 0
    joined: int = 0


def trims_of(state: ArchiveState, kept: KeptAliases, queue: bytes) -> Iterator[AliasChange]:
    """Of each generation of a lite queue, the oldest first, up to one that has an alias whose record is still archived."""
    for generation in _generations(state.view, queue):
        found = kept.first(alias_runs(state.view, queue_of(queue), generation), MOST_ALIASES)
        if found.passed:
            yield AliasChange(queue, generation, found.offset, found.passed)
        if found.found or found.passed >= MOST_ALIASES:
            return


def settled(state: ArchiveState, changes: Sequence[AliasChange]) -> list[AliasChange]:
    """The changes as this later fold allows them: no alias goes whose record is archived. What is to be joined is joined as far
    as it is still there (L7), so that needs no look."""
    kept, made = KeptAliases(state), []
    for change in changes:
        if change.gone:
            runs = alias_runs(state.view, queue_of(change.queue), change.generation)
            found = kept.first(runs, change.gone)
            first = min(change.first_offset, found.offset) if found.passed else 0
            change = replace(change, first_offset=first, gone=found.passed)
        if change.gone or change.joined:
            made.append(change)
    return made


def joins_of(view: MetadataView, queue: bytes, generation: int) -> Iterator[AliasChange]:
    """Runs at a generation's end to be joined: by tiers, as runs of messages are merged, so that an alias is written again once
    each time its run grew; none much larger than ``FULL``."""
    first, rows = _small_runs(view, queue, generation)
    if len(first) < GROWTH:
        return
    stretch = np.cumsum(np.append(False, first[1:] != (first + rows)[:-1]))
    due = due_runs(rows, stretch, GROWTH)
    begin = 0
    for at in range(len(due)):
        last = at + 1 == len(due) or stretch[due[at]] != stretch[due[at + 1]]
        if last or rows[due[begin : at + 1]].sum() >= FULL:
            if at > begin:
                start, end = int(first[due[begin]]), int((first + rows)[due[at]])
                yield AliasChange(queue, generation, start=start, end=end, joined=at + 1 - begin)
            begin = at + 1


def _small_runs(view: MetadataView, queue: bytes, generation: int) -> tuple[Ints, Ints]:
    """First offsets and rows of the runs at a generation's end that are not full, ascending."""
    found: list[tuple[int, int]] = []
    for key, value in view.iterate(generation_prefix(ALIAS, queue, generation), reverse=True):
        rows = int(np.frombuffer(value, ALIAS_HEAD, 1)["rows"][0])
        if rows >= FULL or len(found) == MOST_RUNS:
            break
        found.append((U8.unpack_from(key, len(key) - 8)[0], rows))
    columns = np.array(found[::-1], np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _generations(view: MetadataView, queue: bytes) -> Iterator[int]:
    """Generations of a lite queue that have aliases, ascending."""
    start = ALIAS + queue
    while (pair := next(view.iterate(ALIAS + queue, start=start), None)) is not None:
        generation = split_run_key(pair[0])[1]
        yield generation
        start = generation_prefix(ALIAS, queue, generation + 1)


@dataclass(frozen=True, slots=True)
class Sought:
    """What a walk over all lite queues looks for. ``trims``: aliases that go, too. ``lineage``, ``above``: of that lineage's
    queues only those may have runs to join that got aliases at or above this physical offset."""

    trims: bool = True
    lineage: int = 0
    above: int = 0


def changes_from(
    state: ArchiveState, sought: Sought, after: bytes, most: int
) -> tuple[list[AliasChange], bytes | None]:
    """What is to be done about lite queues above the key ``after`` (empty: all), some ``most`` changes; and the last queue that
    was looked at, ``None`` at the end."""
    kept = KeptAliases(state)
    found: list[AliasChange] = []
    looked = 0
    start = LITE_QUEUE + after + b"\0" if after else LITE_QUEUE
    pairs = state.view.iterate(LITE_QUEUE, start=start)
    while chunk := list(islice(pairs, RECORDS_AT_ONCE)):
        known = table([value for _, value in chunk], QUEUE_DTYPE)
        growing = (known["runs"] >= GROWTH) & (
            (known["lineage"] != sought.lineage) | (known["last_physical_end"] > sought.above)
        )
        worth = growing | sought.trims
        for at in np.flatnonzero(worth).tolist():
            queue = chunk[at][0][1:]
            if sought.trims:
                found += trims_of(state, kept, queue)
            if growing[at]:
                found += joins_of(state.view, queue, int(known["generation"][at]))
            looked += 1
            if len(found) >= most or looked >= QUEUES_AT_ONCE:
                return found, queue
    return found, None


def trimmed_digest(view: MetadataView) -> int:
    """A number that changes when retention trims a queue, or a queue that it trimmed is forgotten: of first offsets that are
    not those which generations began with. Reads every queue's record as arrays."""
    digest = 0
    for prefix in (QUEUE, GENERATION):
        for _, found in records(view, prefix):
            moved = np.flatnonzero(found["min_offset"] != found["first_offset"])
            digest = crc32(np.ascontiguousarray(found["min_offset"][moved]).tobytes(), digest)
    return digest


def alias_change_edit(changes: Sequence[AliasChange]) -> EditBatch:
    """The edit of these changes."""
    return batch(
        EditKind.REPLACE_ALIASES,
        topic=[queue_of(change.queue).topic for change in changes],
        generation=[change.generation for change in changes],
        first_offset=[change.first_offset for change in changes],
        start=[change.start for change in changes],
        end=[change.end for change in changes],
    )
