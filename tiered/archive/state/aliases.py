"""Alias runs: what the fold keeps of a lite queue's records (DESIGN.md, "Lite queues").

The stored form is a head, its aliases as fixed-size rows, and the queue generations that they point to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.state.keys import (
    ALIAS,
    LITE_QUEUE,
    U4,
    U8,
    generation_prefix,
    offset_key,
    prefixed,
    queue_key,
    queue_keys,
    queue_of,
    topic_beginning,
    topic_key,
)
from tiered.archive.state.layout import damaged, packed_table, unpack_queue
from tiered.archive.state.values import QueueState, queue_state
from tiered.codec.format.aliases import LITE_QUEUE_ID
from tiered.codec.types import Ints
from tiered.metadata.base import MetadataView, PointLookups
from tiered.model import MessageQueue

ALIAS_HEAD = np.dtype(
    [
        ("commit_seq", "<i8"),
        ("lineage", "<i4"),
        ("rows", "<u4"),
        ("targets", "<u4"),
        ("min_store_time", "<i8"),
        ("max_store_time", "<i8"),
        ("physical_start", "<i8"),  # of the first record
        ("physical_end", "<i8"),  # one byte behind where the last record begins
    ]
)
ALIAS_ROW = np.dtype(
    [("target", "<u4"), ("offset", "<i8"), ("physical_offset", "<i8"), ("store_time", "<i8")]
)


@dataclass(frozen=True, slots=True)
class AliasRun:
    """Aliases at offsets of a lite queue that follow each other, from ``first_offset`` on.

    ``rows`` (``ALIAS_ROW``) are the aliases, their physical offsets ascend. ``target`` counts in ``targets``: keys of queues,
    each with a generation behind it.
    """

    first_offset: int
    commit_seq: int
    lineage: int
    targets: Sequence[bytes]
    rows: npt.NDArray[np.void]

    @property
    def end(self) -> int:
        """The offset behind the last alias."""
        return self.first_offset + len(self.rows)

    @property
    def physical_end(self) -> int:
        """One byte behind where the last record begins."""
        return int(self.rows["physical_offset"][-1]) + 1

    def target(self, number: int) -> tuple[MessageQueue, int]:
        """Queue and generation of a target."""
        return target_of(self.targets[number])

    def between(self, first: int, end: int) -> AliasRun:
        """The aliases at offsets [first, end), at least one."""
        rows = self.rows[first - self.first_offset : end - self.first_offset]
        used, renumbered = np.unique(rows["target"], return_inverse=True)
        rows = rows.copy()
        rows["target"] = renumbered
        return AliasRun(first, self.commit_seq, self.lineage, [self.targets[t] for t in used.tolist()], rows)

    def pack(self) -> bytes:
        """The stored form."""
        head = alias_heads(self.rows, np.zeros(1, np.int64), np.array([len(self.targets)]))
        head["commit_seq"], head["lineage"] = self.commit_seq, self.lineage
        return head.tobytes() + self.rows.tobytes() + pack_targets(self.targets)


def joined(runs: Sequence[AliasRun]) -> AliasRun:
    """Runs of one generation that follow each other as one, of the last one's commit."""
    targets = {t: n for n, t in enumerate(dict.fromkeys(t for run in runs for t in run.targets))}
    rows = np.concatenate([run.rows for run in runs])
    rows["target"] = np.concatenate(
        [np.array([targets[t] for t in run.targets], np.uint32)[run.rows["target"]] for run in runs]
    )
    return AliasRun(runs[0].first_offset, runs[-1].commit_seq, runs[0].lineage, list(targets), rows)


def target_of(key: bytes) -> tuple[MessageQueue, int]:
    """Queue and generation of a target's key."""
    return queue_of(key[:-4]), U4.unpack_from(key, len(key) - 4)[0]


def alias_heads(rows: npt.NDArray[np.void], starts: Ints, targets: Ints) -> npt.NDArray[np.void]:
    """Heads of runs whose rows lie side by side; ``starts``: where each begins, ``targets``: how many it has."""
    heads = np.zeros(len(starts), ALIAS_HEAD)
    heads["rows"] = np.diff(np.append(starts, len(rows)))
    heads["targets"] = targets
    heads["min_store_time"] = np.minimum.reduceat(rows["store_time"], starts)
    heads["max_store_time"] = np.maximum.reduceat(rows["store_time"], starts)
    last = starts + heads["rows"] - 1
    heads["physical_start"] = rows["physical_offset"][starts]
    heads["physical_end"] = rows["physical_offset"][last] + 1
    return heads


def pack_targets(targets: Sequence[bytes]) -> bytes:
    """The end of a run's stored form: each target with its length before it."""
    return b"".join([U4.pack(len(target)) + target for target in targets])


def head_of(value: bytes) -> np.void:
    """The head of a stored run; ``Corrupt`` if it has none."""
    if len(value) < ALIAS_HEAD.itemsize:
        raise damaged("an alias run", expected=f"≥ {ALIAS_HEAD.itemsize} bytes", found=f"{len(value)} bytes")
    head: np.void = np.frombuffer(value, ALIAS_HEAD, 1)[0]
    return head


def unpack_alias_run(first_offset: int, value: bytes) -> AliasRun:
    """Inverse of ``AliasRun.pack``; ``Corrupt`` if it is damaged."""
    head = head_of(value)
    at = ALIAS_HEAD.itemsize + int(head["rows"]) * ALIAS_ROW.itemsize
    targets: list[bytes] = []
    if head["rows"] > 0 and at <= len(value):
        rows = np.frombuffer(value, ALIAS_ROW, int(head["rows"]), ALIAS_HEAD.itemsize)
        while at + 4 <= len(value):
            length = U4.unpack_from(value, at)[0]
            targets.append(value[at + 4 : at + 4 + length])
            at += 4 + length
        if at == len(value) and len(targets) == head["targets"] > rows["target"].max():
            return AliasRun(first_offset, int(head["commit_seq"]), int(head["lineage"]), targets, rows)
    raise damaged("an alias run", expected=f"{head['rows']} aliases", found=f"{len(value)} bytes")


def lite_queue(view: MetadataView, queue: MessageQueue) -> QueueState | None:
    """A lite queue's current generation; ``None`` for one never seen. ``messages`` counts aliases, ``bytes`` and ``flat_end``
    are 0."""
    value = view.get_many((LITE_QUEUE + queue_key(queue),))[0]
    return None if value is None else queue_state(queue, unpack_queue(value))


def lite_queue_table(
    view: PointLookups, names: Sequence[str]
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.bool_]]:
    """``QUEUE_DTYPE`` records of many lite queues in order, zeros where unknown; and which are known."""
    keys = queue_keys(names, np.full(len(names), LITE_QUEUE_ID))
    return packed_table(view.get_many(prefixed(LITE_QUEUE, keys)))


def lite_queues(
    view: MetadataView, *, name: str | None = None, prefix: str = "", after: MessageQueue | None = None
) -> Iterator[QueueState]:
    """Lite queues by name (UTF-8 byte order): the one of this name, or those whose names begin with ``prefix``; above
    ``after``. Read lazily."""
    beginning = topic_beginning(prefix) if name is None else topic_key(name)
    start = None if after is None else LITE_QUEUE + queue_key(after) + b"\0"
    for key, value in view.iterate(LITE_QUEUE + beginning, start=start):
        yield queue_state(queue_of(key[1:]), unpack_queue(value))


def alias_runs(
    view: MetadataView, queue: MessageQueue, generation: int, from_offset: int = 0
) -> Iterator[AliasRun]:
    """Alias runs of a generation, ascending, from the one that holds ``from_offset`` on, or else the first above it."""
    key = queue_key(queue)
    prefix = generation_prefix(ALIAS, key, generation)
    start = offset_key(ALIAS, key, generation, from_offset)
    before = next(view.iterate(prefix, start=start, reverse=True), None)
    if before is not None:
        run = _run(*before)
        if run.end > from_offset:
            yield run
        start = before[0] + b"\0"
    for pair in view.iterate(prefix, start=start):
        yield _run(*pair)


def _run(key: bytes, value: bytes) -> AliasRun:
    return unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)
