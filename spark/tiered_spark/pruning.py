"""Pruning: which blocks of an object may hold wanted messages, by the object's tables alone (block table, tags, keys)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import SeveralRuns, is_segment
from tiered.archive.state.values import ObjectState
from tiered.codec.format.directory import Directory
from tiered.codec.format.keyindex import KeyFilter
from tiered.codec.record.properties import key_hash
from tiered.codec.types import Bools, Ints
from tiered.errors import Corrupt
from tiered.model import OFF_QUEUE_TOPIC
from tiered_spark.plan import Portion
from tiered_spark.wanted import Wanted


@dataclass(frozen=True, slots=True)
class KeptBlocks:
    """Blocks of an object that may hold wanted messages, ascending: number, piece (an index), rows, first offset, size."""

    numbers: Ints
    piece_of: Ints
    rows: Ints
    first_offsets: Ints
    raw_bytes: Ints


def prune(objects: ObjectReader, broker: str, portion: Portion, wanted: Wanted) -> KeptBlocks:
    """The blocks of a portion that may hold wanted messages. ``Corrupt`` if fold and object disagree."""
    item, pieces = portion.object, portion.pieces
    if not _may_hold(objects, portion, wanted):
        none = np.zeros(0, np.int64)
        return KeptBlocks(none, none, none, none, none)
    table = objects.block_table(item)
    numbers = np.concatenate([np.arange(p.first_block, p.end_block) for p in pieces])
    if len(numbers) and numbers[-1] >= len(table):
        key, last = objects.key_of(item), int(numbers[-1])
        raise Corrupt("the block table is too short", key=key, expected=last + 1, found=len(table))
    piece_of = np.repeat(np.arange(len(pieces)), [p.end_block - p.first_block for p in pieces])
    runs = SeveralRuns([p.run for p in pieces])
    ends = runs.block_ends(table, numbers, piece_of)
    limits = wanted.limits(broker, [p.run.queue for p in pieces])[:, piece_of]
    good = wanted.blocks(table[numbers], ends, limits)
    good &= runs.live_blocks(table["first_queue_offset"][numbers], ends, piece_of)
    keep = np.flatnonzero(good)
    if wanted.tags is not None and len(keep) and not is_segment(item):
        keep = keep[_tagged(objects, item, table, numbers[keep], wanted.tags)]
    if wanted.keys is not None and len(keep) and is_segment(item):
        # Where a plan has found the rows, reading the rest of their blocks takes less than the filters do.
        if table["raw_length"][numbers[keep]].sum() > objects.sealed(item).segment.index_range.length:
            firsts = table["first_queue_offset"][numbers[keep]]
            keep = keep[_keyed_in_segment(objects, portion, piece_of[keep], firsts, ends[keep], wanted.keys)]
    elif wanted.keys is not None and len(keep):
        topics = np.array([p.run.queue.topic for p in pieces])[piece_of[keep]]
        keep = keep[_keyed(objects, item, table, numbers[keep], ends[keep], topics, wanted.keys)]
    mine = table[numbers[keep]]
    return KeptBlocks(
        numbers[keep], piece_of[keep], mine["rows"].astype(np.int64), mine["first_queue_offset"].astype(np.int64),
        mine["raw_length"].astype(np.int64),
    )  # fmt: skip


def _may_hold(objects: ObjectReader, portion: Portion, wanted: Wanted) -> bool:
    """Whether the object may hold the keys wanted, by its filter alone: most have none of them, and need no other request."""
    if wanted.keys is None or is_segment(portion.object):
        return True
    topics = {piece.run.queue.topic for piece in portion.pieces}
    found = objects.key_filter(portion.object)
    return found is not None and bool(passing(found, topics, wanted.keys) or OFF_QUEUE_TOPIC in topics)


def passing(found: KeyFilter, topics: Collection[str], keys: Collection[str]) -> set[int]:
    """Hashes of keys in these topics that a filter lets pass.

    A key's hash is one of its topic too. A record that lies off queue is indexed under its own topic, which no run names: of
    such runs a filter says nothing.
    """
    hashes = {key_hash(topic, key) for topic, key in product(topics, keys)}
    return {hashed for hashed in hashes if len(found.runs(hashed))}


def tagged(directory: Directory, wanted: frozenset[str]) -> Bools:
    """Which tags of an object, by their numbers, are wanted; number 0 stands for messages without a tag."""
    good = np.array([t.decode("utf-8", "replace") in wanted for t in directory.tags])
    good[0] = False
    return good


def _tagged(
    objects: ObjectReader, item: ObjectState, table: npt.NDArray[Any], numbers: Ints, wanted: frozenset[str]
) -> Bools:
    """Which blocks hold a message with a wanted tag, by the object's tag column."""
    good = tagged(objects.directory(item), wanted)
    if not good.any():
        return np.zeros(len(numbers), np.bool_)
    first_rows = np.cumsum(table["rows"]) - table["rows"]
    low, high = int(first_rows[numbers[0]]), int(first_rows[numbers[-1]] + table["rows"][numbers[-1]])
    codes = objects.columns(item, ("tag",), low, high - low)["tag"]
    hits = np.concatenate([[0], np.cumsum(good[codes])])
    begin = first_rows[numbers] - low
    found: Bools = hits[begin + table["rows"][numbers]] > hits[begin]
    return found


def _keyed_in_segment(
    objects: ObjectReader, portion: Portion, piece_of: Ints, firsts: Ints, ends: Ints, keys: Collection[str]
) -> Bools:
    """Which blocks of a segment hold a message with one of the keys, by its filters and then its columns."""
    topics = {piece.run.queue.topic for piece in portion.pieces}
    queue_ids = np.array([piece.run.queue.queue_id for piece in portion.pieces])[piece_of]
    generations = np.array([piece.run.generation for piece in portion.pieces])[piece_of]
    good: Bools = np.full(len(piece_of), OFF_QUEUE_TOPIC in topics)
    for topic, key in product(topics - {OFF_QUEUE_TOPIC}, keys):
        for queue_id, generation, offset in objects.key_rows(portion.object, topic, key).tolist():
            mine = (queue_ids == queue_id) & (generations == generation)
            good |= mine & (firsts <= offset) & (offset < ends)
    return good


def _keyed(
    objects: ObjectReader,
    item: ObjectState,
    table: npt.NDArray[Any],
    numbers: Ints,
    ends: Ints,
    topics: npt.NDArray[np.str_],
    keys: frozenset[str],
) -> Bools:
    """Which blocks hold a message with one of the keys, by the object's key filter and then its index of keys.

    ``topics``: of each block. Blocks of records off queue all may: their keys are indexed under topics that only they know.
    """
    filter_ = objects.key_filter(item)
    if filter_ is None:  # no message has a key
        return np.zeros(len(numbers), np.bool_)
    good: Bools = topics == OFF_QUEUE_TOPIC
    runs, firsts = table["run"][numbers], table["first_queue_offset"][numbers]
    for topic, key in product(np.unique(topics[~good]).tolist(), keys):
        hashed = key_hash(topic, key)
        of_topic = topics == topic
        if not np.isin(runs[of_topic], filter_.runs(hashed)).any():
            continue
        entries = objects.key_entries(item, hashed)
        for run in np.unique(entries["run"]):
            mine = np.flatnonzero(of_topic & (runs == run))
            offsets = entries["queue_offset"][entries["run"] == run]
            at = np.searchsorted(firsts[mine], offsets, side="right") - 1
            inside = at >= 0
            inside[inside] = offsets[inside] < ends[mine[at[inside]]]
            good[mine[at[inside]]] = True
    return good
