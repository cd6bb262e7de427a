"""The fold of one commit while it is made: what every edit's rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import (
    CLOSED,
    GENERATION,
    OBJECT,
    QUEUE,
    RUN,
    U8,
    closed_key,
    generation_prefix,
    object_key,
    offset_key,
    packed,
    prefixed,
    queue_of,
)
from tiered.archive.state.layers import Changes, FoldDraft, QueueBatch
from tiered.archive.state.layout import (
    QueueRecord,
    RunRecord,
    pack_queue,
    pack_run,
    unpack_queue,
    unpack_run,
)
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.archive.state.values import Head, ObjectState, pack_object, unpack_object
from tiered.codec.format.edits import Commit, EditBatch, EditKind
from tiered.codec.types import Bools, Ints
from tiered.errors import Corrupt
from tiered.model import MessageQueue, ObjectRef, Progress

OFFSET_LIMIT = 2**60
"""Largest offset, position, byte count or store time believed: sums of two cannot overflow 64 bits."""
COUNT_LIMIT = 2**32 - 1
NUMBER_LIMIT = 2**31 - 1

_LIMITS = {
    "queue_id": NUMBER_LIMIT, "generation": NUMBER_LIMIT, "lineage": NUMBER_LIMIT, "object": NUMBER_LIMIT,
    "rows": COUNT_LIMIT, "queue_offsets": COUNT_LIMIT, "first_row": COUNT_LIMIT, "first_block": COUNT_LIMIT,
    "block_count": COUNT_LIMIT, "mark_crc": COUNT_LIMIT, "level": 2, "bytes": 2**48,
}  # fmt: skip
_QUEUES_BY_BATCHES = frozenset((
    EditKind.ADD_OBJECT, EditKind.APPEND_RUN, EditKind.GAP, EditKind.NEW_GENERATION, EditKind.PROGRESS, EditKind.PHYS_GAP,
    EditKind.QUEUE_ALIAS, EditKind.SINK_PROGRESS, EditKind.SINK_MAP,
))  # fmt: skip
"""Edits of a flush: those that change records of queues do so by ``put_queues``."""
_SIGNED = frozenset(("min_store_time", "max_store_time", "store_time_ms", "physical"))


@dataclass(slots=True)
class Fold:
    """One commit being folded. ``head`` is the new head so far (of the last commit's for an ``OpenEpoch``).

    ``settled``: physical offset below which earlier commits archived everything (lowered by ``Rewind``).
    ``appended_to``: end of the physically last run appended. ``created``: generations begun here, by queue
    key. ``scope``: queues that are folded; with less than all of them, rules about the log hold all the same,
    those about a queue for these alone, references to objects are not counted, and new keys not looked up.
    ``unmapped``: keys of sinks' maps that end before their sinks so far.
    """

    draft: FoldDraft
    commit: Commit
    head: Head
    settled: int
    objects: int = 0
    runs: int = 0
    appended_to: int = 0
    created: dict[bytes, int] = field(default_factory=dict)
    references: dict[ObjectRef, int] = field(default_factory=dict)
    queues: list[QueueBatch] = field(default_factory=list)
    scope: Scope = EVERYTHING
    unmapped: set[bytes] = field(default_factory=set)

    # ---- violations

    def fail(
        self, rule: str, *, queue: MessageQueue | None = None, expected: object, found: object
    ) -> NoReturn:
        """Stop with ``Corrupt``: the rule, where, expected, found."""
        fields: dict[str, Any] = {"rule": rule, "commit": self.commit.seq}
        if queue is not None:
            fields["queue"] = str(queue)
        raise Corrupt(
            f"a commit breaks a rule of the archive: {rule}", **fields, expected=expected, found=found
        )

    def check(
        self, ok: bool, rule: str, *, queue: MessageQueue | None = None, expected: object, found: object
    ) -> None:
        """``fail`` unless ``ok``."""
        if not ok:
            self.fail(rule, queue=queue, expected=expected, found=found)

    def check_rows(
        self,
        batch: EditBatch,
        ok: Bools,
        rule: str,
        expected: Ints | str,
        found: Ints,
        order: Ints | None = None,
    ) -> None:
        """``fail`` at the first row of ``batch`` that is not ``ok``. Arrays are in ``order`` (row numbers) if
        given."""
        if ok.all():
            return
        bad = np.flatnonzero(~ok)
        rows = bad if order is None else order[bad]
        first = int(np.argmin(rows))
        at, row = int(bad[first]), int(rows[first])
        self.fail(
            rule,
            queue=MessageQueue(batch.columns["topic"][row], int(batch.ints("queue_id")[row])),
            expected=expected if isinstance(expected, str) else int(expected[at]),
            found=int(found[at]),
        )

    def check_numbers(self, batch: EditBatch) -> None:
        """Every integer column within what its records can hold."""
        for name, column in batch.columns.items():
            if not isinstance(column, np.ndarray) or not len(column):
                continue
            limit = _LIMITS.get(name, OFFSET_LIMIT)
            least = -OFFSET_LIMIT if name in _SIGNED else 0
            low = high = int(column[0])
            if len(column) > 1:
                low, high = int(column.min()), int(column.max())
            if low < least or high > limit:
                self.fail(
                    f"{batch.kind.name}: {name} is in range",
                    expected=f"{least} to {limit}",
                    found=low if low < least else high,
                )

    # ---- queues and generations

    def mine(self, batch: EditBatch) -> tuple[EditBatch, Ints]:
        """Rows of queues that are folded, and their numbers in the batch."""
        rows = self.scope.rows(batch)
        return (batch, np.arange(len(batch))) if rows is None else (batch.take(rows), rows)

    def queue_table(
        self, queues: Sequence[bytes], topics: Sequence[str], queue_ids: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.void], Bools]:
        """Records of distinct queues (their keys, and what these are made of), zeros where a queue is unknown; and which are
        known."""
        return self.draft.queue_table(prefixed(QUEUE, queues), topics, queue_ids)

    def put_queues(self, queues: Sequence[bytes], batch: QueueBatch) -> None:
        """Put records of distinct queues back, with their keys."""
        self.draft.put_all(prefixed(QUEUE, queues), packed(batch.records))
        self.queues.append(batch)

    def load_queue(self, queue: bytes) -> QueueRecord | None:
        """A queue's record."""
        value = self.draft.get(QUEUE + queue)
        return None if value is None else unpack_queue(value)

    def load_generation(self, queue: bytes, generation: int, rule: str) -> tuple[QueueRecord, bool]:
        """A generation's record and whether it is current; ``fail`` with ``rule`` if it does not exist."""
        current = self.load_queue(queue)
        if current is not None and generation > 0:
            if current.generation == generation:
                return current, True
            value = self.draft.get(generation_prefix(GENERATION, queue, generation))
            if value is not None:
                return unpack_queue(value), False
        highest = 0 if current is None else current.highest_generation
        self.fail(rule, queue=queue_of(queue), expected=f"a generation up to {highest}", found=generation)

    def store_generation(self, queue: bytes, record: QueueRecord, *, current: bool) -> None:
        """Put a generation's record back where ``load_generation`` found it."""
        key = QUEUE + queue if current else generation_prefix(GENERATION, queue, record.generation)
        self.draft.put(key, pack_queue(record))

    # ---- runs

    def closed_parts(self, queue: bytes, generation: int) -> list[tuple[bytes, RunRecord]]:
        """Closed parts of a generation, by closing commit, then offset."""
        pairs = self.draft.iterate(generation_prefix(CLOSED, queue, generation))
        return [(k, unpack_run(v)) for k, v in pairs]

    def put_live(self, queue: bytes, generation: int, run: RunRecord) -> None:
        """Store a live run."""
        self.draft.put(offset_key(RUN, queue, generation, run.first_queue_offset), pack_run(run))

    def put_closed(self, queue: bytes, generation: int, run: RunRecord) -> None:
        """Store a closed part."""
        key = closed_key(queue, generation, run.closed_by, run.start, run.commit_seq, run.index)
        self.draft.put(key, pack_run(run))

    # ---- objects

    def refer(self, ref: ObjectRef, by: int) -> None:
        """Count runs that lie in an object."""
        if not self.scope.everything:
            return
        self.references[ref] = self.references.get(ref, 0) + by

    def load_object(self, ref: ObjectRef) -> ObjectState:
        """An object that runs refer to."""
        value = self.draft.get(object_key(ref))
        if value is None:
            self.fail("a run's object is known", expected="an object", found=f"none at {ref}")
        return unpack_object(ref, value)

    def settle_references(self) -> None:
        """Write the counts. Inline data that nothing refers to is forgotten once its commit is below the
        floor."""
        for ref, by in self.references.items():
            if by == 0:
                continue
            found = self.load_object(ref)
            count = found.references + by
            self.check(count >= 0, "no object has fewer than no runs", expected="0 or more", found=count)
            rule = "a retired object is never referred to"
            self.check(count == 0 or found.retired_by is None, rule, expected=0, found=count)
            if count == 0 and not found.path and ref.commit_seq < self.head.floor:
                self.draft.put(object_key(ref), None)
            else:
                self.draft.put(object_key(ref), pack_object(replace(found, references=count)))
        self.references.clear()

    def forget_inline(self, low: int, high: int) -> None:
        """Forget unreferenced inline data of commits in [low, high), which are now below the floor."""
        if not self.scope.everything:
            return
        for key, value in self.draft.iterate(OBJECT, start=OBJECT + U8.pack(low)):
            seq, index = U8.unpack_from(key, 1)[0], int.from_bytes(key[9:13], "big")
            if seq >= high:
                break
            found = unpack_object(ObjectRef(seq, index), value)
            if not found.path and found.references == 0:
                self.draft.put(key, None)

    # ---- head

    def set_progress(self, progress: Progress) -> None:
        """Move a lineage's progress."""
        self.head = replace(self.head, progress={**self.head.progress, progress.lineage: progress})

    def changes(self) -> Changes:
        """All of it."""
        whole = all(batch.kind in _QUEUES_BY_BATCHES for batch in self.commit.edits)
        return Changes(self.draft.values, self.head, tuple(self.queues) if whole else None)

    # ---- columns inside OBJ values, which the codec does not look into

    def obj_columns(
        self, what: str, value: object, ints: Sequence[str], texts: Sequence[str] = ()
    ) -> dict[str, list[Any]]:
        """Columns of a dict-of-lists value: all there, of one length, integers within range and text as
        ``str``."""
        names = (*ints, *texts)
        if not isinstance(value, Mapping) or set(value) != set(names):
            found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            self.fail(f"{what} has its columns", expected=sorted(names), found=found)
        columns = {n: list(value[n]) if isinstance(value[n], list | tuple) else None for n in names}
        lengths = {None if c is None else len(c) for c in columns.values()}
        if None in lengths or len(lengths) != 1:
            self.fail(f"{what} has columns of one length", expected="lists of one length", found=str(lengths))
        made = {n: c for n, c in columns.items() if c is not None}
        for name in texts:
            if not all(isinstance(x, str) for x in made[name]):
                self.fail(f"{what}: {name} is text", expected="text", found="something else")
        for name in ints:
            limit, least = _LIMITS.get(name, OFFSET_LIMIT), -OFFSET_LIMIT if name in _SIGNED else 0
            nullable = name in ("closed_by", "physical")
            for x in made[name]:
                if nullable and x is None:
                    continue
                if type(x) is not int or not least <= x <= limit:
                    self.fail(
                        f"{what}: {name} is in range", expected=f"{least} to {limit}", found=repr(x)[:40]
                    )
        return made
