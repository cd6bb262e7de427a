"""Lite queues: ``QueueAlias``, and what a ``Rewind`` leaves of them (DESIGN.md, "Lite queues", L1 to L3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tiered.archive.fold.context import COUNT_LIMIT, NUMBER_LIMIT, OFFSET_LIMIT, Fold
from tiered.archive.state.aliases import (
    ALIAS_HEAD,
    ALIAS_ROW,
    AliasRun,
    alias_heads,
    pack_targets,
    unpack_alias_run,
)
from tiered.archive.state.keys import (
    ALIAS,
    LITE_QUEUE,
    U4,
    U8,
    generation_prefix,
    offset_keys,
    packed,
    prefixed,
    queue_keys,
    queue_of,
    split_run_key,
)
from tiered.archive.state.layout import (
    NO_TIME_HIGH,
    NO_TIME_LOW,
    QUEUE_DTYPE,
    QueueRecord,
    pack_queue,
    packed_table,
    table,
    unpack_queue,
)
from tiered.codec.format.aliases import LITE_QUEUE_ID, LITE_QUEUES, Aliases
from tiered.codec.format.edits import EditBatch
from tiered.codec.types import Bools, Ints
from tiered.model import MessageQueue

_SCAN = 4096
_NAMES_RECORD = "an alias names an archived record"


@dataclass(frozen=True, slots=True)
class _ByQueue:
    """Alias runs of the lite queues that are folded.

    ``group``: number of each run's queue; ``first``: whether it is its queue's first, ``heads``: where those are; ``starts``:
    where each run's rows begin. ``record``: the queues' records, writable.
    """

    names: list[str]
    queues: list[bytes]
    record: npt.NDArray[np.void]
    group: Ints
    first: Bools
    heads: Ints
    starts: Ints
    runs: Mapping[str, Ints]
    rows: Mapping[str, Ints]

    @property
    def tails(self) -> Ints:
        """Each queue's last run."""
        return np.append(self.heads[1:], len(self.group)) - 1

    def after(self, values: Ints, name: str) -> Ints:
        """Of each run the value of the run before it in its queue, for a queue's first run the record's field."""
        before = np.empty_like(values)
        before[1:] = values[:-1]
        before[self.first] = self.record[name][self.group[self.first]]
        return before


def queue_aliases(fold: Fold, batch: EditBatch) -> None:
    """Records that are in lite queues, too."""
    rule = "aliases stand in an epoch that requires their feature"
    required = fold.head.required_features
    fold.check(LITE_QUEUES in required, rule, expected=LITE_QUEUES, found=", ".join(required) or "none")
    for i in range(len(batch)):
        aliases = Aliases.of(batch, i, commit=fold.commit.seq)
        _check_shape(fold, aliases)
        _check_targets(fold, aliases)
        by = _by_queue(fold, aliases)
        if by is not None:
            begun = _check_ends(fold, by)
            _store(fold, aliases, by)
            _move_ends(fold, by, begun)


def _check_shape(fold: Fold, aliases: Aliases) -> None:
    """Rules that look at the edit alone."""
    names, runs, rows = aliases.queues, aliases.runs, aliases.rows
    distinct = len(set(names)) == len(names) and "" not in names
    fold.check(distinct, "lite queues are named once", expected="distinct names", found=f"{len(names)} names")
    rule = "numbers of aliases are in range"
    for column, limit in (
        (runs["queue"], len(names) - 1), (rows["target"], len(aliases.topics) - 1), (runs["rows"], COUNT_LIMIT),
        (runs["generation"], NUMBER_LIMIT), (runs["first_offset"], OFFSET_LIMIT),
        *((rows[name], OFFSET_LIMIT) for name in ("offset", "physical_offset", "store_time")),
    ):  # fmt: skip
        least = -OFFSET_LIMIT if column is rows["store_time"] else 0
        if len(column):
            low, high = int(column.min()), int(column.max())
            good = low >= least and high <= limit
            fold.check(good, rule, expected=f"{least} to {limit}", found=f"{low} to {high}")
    for number in (*aliases.queue_ids, *aliases.generations):
        fold.check(0 <= number <= NUMBER_LIMIT, rule, expected=f"0 to {NUMBER_LIMIT}", found=number)
    held, count = int(runs["rows"].sum()), len(rows["target"])
    whole = held == count and bool((runs["rows"] >= 1).all())
    fold.check(whole, "alias runs hold all aliases, and each one some", expected=count, found=held)
    together = not (np.diff(runs["queue"]) < 0).any()
    fold.check(
        together, "alias runs of a lite queue lie together", expected="ascending", found="not ascending"
    )
    lowest = int(rows["physical_offset"].min(initial=OFFSET_LIMIT))
    rule = "an alias's record lies above what earlier commits archived"
    fold.check(lowest >= fold.settled, rule, expected=f"≥ {fold.settled}", found=lowest)


def _check_targets(fold: Fold, aliases: Aliases) -> None:
    """Every target is a generation of the epoch's lineage that reaches beyond the offsets named in it."""
    highest = np.full(len(aliases.topics), -1, np.int64)
    np.maximum.at(highest, aliases.rows["target"], aliases.rows["offset"])
    keys = queue_keys(aliases.topics, np.array(aliases.queue_ids, np.int64))
    for key, generation, offset in zip(keys, aliases.generations, highest.tolist(), strict=True):
        if not fold.scope.has_key(key):
            continue
        record, _ = fold.load_generation(key, generation, _NAMES_RECORD)
        good = offset < record.max_offset and record.lineage == fold.head.lineage
        expected = f"< {record.max_offset}, lineage {fold.head.lineage}"
        found = f"{offset}, lineage {record.lineage}"
        fold.check(good, _NAMES_RECORD, queue=queue_of(key), expected=expected, found=found)


def _by_queue(fold: Fold, aliases: Aliases) -> _ByQueue | None:
    """What is of queues that are folded; ``None``: nothing."""
    runs, rows = aliases.runs, aliases.rows
    if not fold.scope.everything:
        inside = np.array([fold.scope.has(name, LITE_QUEUE_ID) for name in aliases.queues], np.bool_)
        mine = inside[runs["queue"]] if len(inside) else np.zeros(0, np.bool_)
        each = np.repeat(mine, runs["rows"])
        runs = {name: column[mine] for name, column in runs.items()}
        rows = {name: column[each] for name, column in rows.items()}
    numbers = runs["queue"]
    if not len(numbers):
        return None
    first = np.append(True, numbers[1:] != numbers[:-1])
    heads = np.flatnonzero(first)
    names = [aliases.queues[q] for q in numbers[heads].tolist()]
    queues = queue_keys(names, np.full(len(names), LITE_QUEUE_ID))
    record, _ = packed_table(fold.draft.get_many(prefixed(LITE_QUEUE, queues)))
    starts = np.cumsum(runs["rows"]) - runs["rows"]
    return _ByQueue(names, queues, record, np.cumsum(first) - 1, first, heads, starts, runs, rows)


def _check_ends(fold: Fold, by: _ByQueue) -> Bools:
    """Each run lies behind the one before it in its lite queue, or begins a generation: which do."""

    def check(ok: Bools, rule: str, expected: Ints, found: Ints, group: Ints) -> None:
        if not ok.all():
            at = int(np.flatnonzero(~ok)[0])
            queue = MessageQueue(by.names[int(group[at])], LITE_QUEUE_ID)
            fold.fail(rule, queue=queue, expected=int(expected[at]), found=int(found[at]))

    generation, first = by.runs["generation"], by.runs["first_offset"]
    before = by.after(generation, "generation").astype(np.int64)
    highest = by.record["highest_generation"].astype(np.int64)[by.group]
    begun: Bools = generation == np.maximum(before, highest) + 1
    rule = "generations of a lite queue count up"
    check(begun | ((generation == before) & (before > 0)), rule, before, generation, by.group)
    end = by.after(first + by.runs["rows"], "max_offset")
    rule = "alias runs of a generation ascend"
    check(begun | (first >= end), rule, end, first, by.group)
    lineage = by.after(np.full(len(first), fold.head.lineage), "lineage")
    rule = "aliases go to a generation of the epoch's lineage"
    check(
        begun | (lineage == fold.head.lineage),
        rule,
        np.full_like(lineage, fold.head.lineage),
        lineage,
        by.group,
    )
    physical = by.rows["physical_offset"]
    of_row = np.repeat(by.group, by.runs["rows"])
    lowest = np.append(0, physical[:-1] + 1)
    leads = by.starts[by.heads]
    same = by.record["lineage"] == fold.head.lineage
    lowest[leads] = np.where(same, by.record["last_physical_end"], 0)
    check(physical >= lowest, "physical offsets ascend within a lite queue", lowest, physical, of_row)
    return begun


def _store(fold: Fold, aliases: Aliases, by: _ByQueue) -> None:
    """The runs themselves; each has a list of the targets that it uses."""
    rows = np.zeros(len(by.rows["target"]), ALIAS_ROW)
    for name in ("offset", "physical_offset", "store_time"):
        rows[name] = by.rows[name]
    number = np.repeat(np.arange(len(by.starts)), by.runs["rows"])
    width = len(aliases.topics)
    used, place = np.unique(number * width + by.rows["target"], return_inverse=True)
    begins = np.searchsorted(used, np.arange(len(by.starts) + 1) * width)
    rows["target"] = place - begins[number]
    heads = alias_heads(rows, by.starts, np.diff(begins))
    heads["commit_seq"], heads["lineage"] = fold.commit.seq, fold.head.lineage
    named = queue_keys(aliases.topics, np.array(aliases.queue_ids, np.int64))
    named = [key + U4.pack(generation) for key, generation in zip(named, aliases.generations, strict=True)]
    targets = [named[t] for t in (used % width).tolist()]
    stored = rows.tobytes()
    edges = (np.append(by.starts, len(rows)) * ALIAS_ROW.itemsize).tolist()
    lists = begins.tolist()
    values = [
        head + stored[edges[i] : edges[i + 1]] + pack_targets(targets[lists[i] : lists[i + 1]])
        for i, head in enumerate(packed(heads))
    ]
    keys = [by.queues[g] for g in by.group.tolist()]
    names = offset_keys(ALIAS, keys, by.runs["generation"], by.runs["first_offset"])
    fold.draft.put_all(names, values)


def _move_ends(fold: Fold, by: _ByQueue, begun: Bools) -> None:
    """The records of the lite queues: what is said of the generation that each is in now."""
    record, runs, rows, tails = by.record, by.runs, by.rows, by.tails
    last_begun = np.full(len(by.queues), -1, np.int64)
    np.maximum.at(last_begun, by.group[begun], np.flatnonzero(begun))
    fresh = last_begun >= 0
    lead = np.where(fresh, last_begun, by.heads)
    counted = np.arange(len(by.group)) >= lead[by.group]
    for name in ("messages", "runs"):
        record[name][fresh] = 0
    record["min_store_time"][fresh], record["max_store_time"][fresh] = NO_TIME_LOW, NO_TIME_HIGH
    record["min_offset"][fresh] = record["first_offset"][fresh] = runs["first_offset"][lead][fresh]
    record["birth_physical"][fresh] = rows["physical_offset"][by.starts[lead]][fresh]
    record["lineage"][fresh] = fold.head.lineage
    record["generation"] = runs["generation"][tails]
    record["highest_generation"] = np.maximum(record["highest_generation"], record["generation"])
    record["max_offset"] = (runs["first_offset"] + runs["rows"])[tails]
    ends = by.starts + runs["rows"]
    record["last_physical_end"] = rows["physical_offset"][ends[tails] - 1] + 1
    np.add.at(record["messages"], by.group[counted], runs["rows"][counted])
    np.add.at(record["runs"], by.group[counted], 1)
    low = np.minimum.reduceat(rows["store_time"], by.starts)
    high = np.maximum.reduceat(rows["store_time"], by.starts)
    np.minimum.at(record["min_store_time"], by.group[counted], low[counted])
    np.maximum.at(record["max_store_time"], by.group[counted], high[counted])
    fold.draft.put_all(prefixed(LITE_QUEUE, by.queues), packed(record))


def cut_aliases(fold: Fold, lineage: int, position: int) -> None:
    """A ``Rewind``: aliases of records at and above a physical offset go. Looks at every lite queue's record, in pieces."""
    above: list[bytes] = []
    pairs = fold.scope.walk(fold.draft.scan, LITE_QUEUE)
    while chunk := list(islice(pairs, _SCAN)):
        found = table([value for _, value in chunk], QUEUE_DTYPE)
        mine = (found["lineage"] == lineage) & (found["last_physical_end"] > position)
        # Of a lite queue that is in another lineage now, earlier generations may reach up there.
        mine |= (found["lineage"] != lineage) & (found["highest_generation"] > 1)
        above.extend(chunk[i][0][1:] for i in np.flatnonzero(mine).tolist())
    for queue in above:
        _cut_queue(fold, queue, lineage, position)


def _cut_queue(fold: Fold, queue: bytes, lineage: int, position: int) -> None:
    """One lite queue: from its end back to the first alias of the lineage that stays."""
    cut: list[tuple[bytes, AliasRun | None]] = []
    last: tuple[int, AliasRun] | None = None
    for key, value in fold.draft.scan(ALIAS + queue, reverse=True):
        run = unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)
        if run.lineage != lineage:
            continue
        stay = int(np.searchsorted(run.rows["physical_offset"], position))
        left = run.between(run.first_offset, run.first_offset + stay) if stay else None
        if stay < len(run.rows):
            cut.append((key, left))
        if left is not None:
            last = split_run_key(key)[1], left
            break
    for key, left in cut:
        fold.draft.put(key, None if left is None else left.pack())
    old = unpack_queue(fold.draft.get(LITE_QUEUE + queue) or b"")
    if old.lineage == lineage:
        fold.draft.put(LITE_QUEUE + queue, pack_queue(_cut_record(fold, queue, old, last)))


def _cut_record(fold: Fold, queue: bytes, old: QueueRecord, last: tuple[int, AliasRun] | None) -> QueueRecord:
    """A lite queue's record once its last run of the lineage is ``last``; without one, no generation is current."""
    new = QueueRecord(highest_generation=old.highest_generation)
    if last is None:
        return new
    new.generation, run = last
    pairs = fold.draft.iterate(generation_prefix(ALIAS, queue, new.generation))
    heads = table([value[: ALIAS_HEAD.itemsize] for _, value in pairs], ALIAS_HEAD)
    new.lineage, new.max_offset, new.last_physical_end = old.lineage, run.end, run.physical_end
    new.messages, new.runs = int(heads["rows"].sum()), len(heads)
    new.min_store_time = int(heads["min_store_time"].min())
    new.max_store_time = int(heads["max_store_time"].max())
    if new.generation == old.generation:
        new.first_offset, new.birth_physical = old.first_offset, old.birth_physical
        new.min_offset = old.min_offset
    else:
        new.first_offset = new.min_offset = U8.unpack_from(pairs[0][0], len(pairs[0][0]) - 8)[0]
        new.birth_physical = int(heads["physical_start"][0])
    return new
