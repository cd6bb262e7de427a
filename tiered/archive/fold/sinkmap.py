"""``SinkMap``: where sinks put messages becomes part of the archive (DESIGN.md, "Sinks", J8 and J9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiered.archive.fold.context import Fold
from tiered.archive.state.keys import SINK, SINK_MAP, SINK_QUEUE, prefixed, queue_keys, queue_of
from tiered.archive.state.offsetmap import OffsetMap
from tiered.archive.state.sinkmaps import pack_map, unpack_map
from tiered.archive.state.sinks import SINK_ID_BYTES, SINK_MAPS, sink_queue
from tiered.codec.format.edits import EditBatch


def sink_map(fold: Fold, batch: EditBatch) -> None:
    """Rows of queues. The first one that an archive is given makes it one that programs without maps refuse to open."""
    fold.check_numbers(batch)
    if len(batch) and SINK_MAPS not in fold.head.required_features:
        fold.head = replace(fold.head, required_features=(*fold.head.required_features, SINK_MAPS))
    if not fold.scope.everything or not len(batch):
        return
    ids: Sequence[bytes] = batch.columns["sink_id"]
    for sink_id in set(ids):
        fold.check(len(sink_id) == SINK_ID_BYTES, "a sink's id is 16 bytes", expected=16, found=len(sink_id))
    queues = queue_keys(batch.columns["topic"], batch.ints("queue_id"))
    names = [sink_id + queue for sink_id, queue in zip(ids, queues, strict=True)]
    rule = "a commit maps a queue of a sink once"
    fold.check(len(set(names)) == len(names), rule, expected="once", found="twice")
    keys = prefixed(SINK_MAP, names)
    befores, reached = fold.draft.get_many(keys), fold.draft.get_many(prefixed(SINK_QUEUE, names))
    made = []
    for row, (before, at) in enumerate(zip(befores, reached, strict=True)):
        told = _told(fold, batch, row)
        following = None if at is None else sink_queue(at).next
        rule = "a sink's map ends where the sink is"
        fold.check(
            told.end == following, rule, queue=queue_of(queues[row]), expected=following, found=told.end
        )
        made.append(pack_map(told if before is None else unpack_map(before).then(told)))
    fold.draft.put_all(keys, made)
    fold.unmapped.difference_update(keys)


def moved(fold: Fold, sink_id: bytes, queues: Sequence[bytes], nexts: Sequence[int]) -> None:
    """A sink is elsewhere in queues: maps end there at most, and where it went on its map is to follow in the same commit."""
    if SINK_MAPS not in fold.head.required_features:
        return
    keys = prefixed(SINK_MAP + sink_id, queues)
    for key, value, following in zip(keys, fold.draft.get_many(keys), nexts, strict=True):
        if value is None:
            continue
        known = unpack_map(value)
        if following < known.end:
            fold.draft.put(key, pack_map(known.cut(following)))
        elif following > known.end:
            fold.unmapped.add(key)


def check_mapped(fold: Fold) -> None:
    """No progress without its map: of a queue that has one it would be wrong ever after, and nobody would know."""
    for key in fold.unmapped:
        queue = queue_of(key[len(SINK_MAP) + SINK_ID_BYTES :])
        rule = "a sink that is further in a queue says where it put the messages"
        fold.fail(rule, queue=queue, expected="a row of SinkMap", found="none")


def trim_maps(fold: Fold, trimmed: Mapping[bytes, int]) -> None:
    """Retention moved the first offsets of queues up: runs of maps go with their messages."""
    if not trimmed or not fold.scope.everything or SINK_MAPS not in fold.head.required_features:
        return
    for sink, _ in list(fold.draft.iterate(SINK)):
        keys = prefixed(SINK_MAP + sink[1:], list(trimmed))
        for key, value, first in zip(keys, fold.draft.get_many(keys), trimmed.values(), strict=True):
            if value is not None:
                fold.draft.put(key, pack_map(unpack_map(value).trimmed(first)))


def _told(fold: Fold, batch: EditBatch, row: int) -> OffsetMap:
    values = batch.row(row)
    return OffsetMap.of(
        values["start"], values["end"], values["target"], values["target_id"], values["partition"],
        values["target_offset"], values["map_runs"], key=f"commit {fold.commit.seq}",
    )  # fmt: skip
