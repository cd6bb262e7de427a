"""Routing and cutting against a loop: same queues, generations, gaps, flat offsets, blocks within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.header import HEADER_DTYPE
from tiered.codec.record.properties import PropertyColumns
from tiered.model import OFF_QUEUE_TOPIC
from tiered.write.cutter import cut_rows, flat_offsets, offsets_covered
from tiered.write.router import QueueEnds, cut_segments, renumbered, route, row_offsets

TOPICS = ("a", "b", "secret")


@dataclass
class Queue:
    """The naive fold of one queue."""

    generation: int = 0
    highest: int = 0
    end: int = 0
    flat: int = 0
    seen: bool = False
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)  # generation, offset, flat, batch row
    gaps: list[tuple[int, int, int]] = field(default_factory=list)

    def append(self, row: int, offset: int, owned: int, size: int) -> None:
        if not self.seen or offset < self.end:
            self.highest += 1
            self.generation, self.flat, self.seen = self.highest, 0, True
        elif offset > self.end:
            self.gaps.append((self.generation, self.end, offset))
        self.rows.append((self.generation, offset, self.flat, row))
        self.end = offset + owned
        self.flat += size


records = st.lists(
    st.tuples(
        st.integers(0, 2),  # topic
        st.integers(0, 1),  # queue id
        st.sampled_from((0, 0, 0, 0, 1, 5, -3)),  # jump of the queue offset
        st.sampled_from((0, 0, 0, 4, 8, 12)),  # sysFlag
        st.integers(1, 3),  # queue offsets owned
        st.integers(91, 400),  # size
    ),
    min_size=1,
    max_size=60,
)


def make_batch(
    rows: list[tuple[int, int, int, int, int, int]], ends: dict[tuple[str, int], Queue]
) -> tuple[MessageBatch, PropertyColumns]:
    headers = np.zeros(len(rows), dtype=HEADER_DTYPE)
    owned = np.zeros(len(rows), dtype=np.int32)
    following: dict[tuple[str, int], int] = {k: q.end for k, q in ends.items()}
    position = 0
    for i, (topic, queue_id, jump, flag, owns, size) in enumerate(rows):
        key = (TOPICS[topic], queue_id)
        offset = max(0, following.get(key, 0) + jump)
        hidden = flag in (4, 12)
        headers[i]["topic_index"], headers[i]["queue_id"], headers[i]["sys_flag"] = topic, queue_id, flag
        headers[i]["queue_offset"] = 0 if hidden else offset
        headers[i]["size"], headers[i]["position"] = size, position
        owned[i] = 0 if hidden else owns
        position += size
        if not hidden:
            following[key] = offset + owns
    empty = np.zeros(len(rows), dtype=np.int64)
    properties = PropertyColumns(
        tags_code=empty,
        tag=owned * 0,
        tags=(b"",),
        queue_offsets=owned,
        key_row=empty[:0],
        key_hash=empty[:0].astype(np.uint64),
    )
    return MessageBatch(memoryview(bytes(position)), headers, TOPICS), properties


@settings(max_examples=150, deadline=None)
@given(st.lists(records, min_size=1, max_size=3), st.integers(100, 2000), st.sampled_from((0, 700, 5000)))
def test_route_split_cut_agree_with_a_loop(flushes: list, block_bytes: int, object_bytes: int) -> None:
    model: dict[tuple[str, int], Queue] = {}
    for rows in flushes:
        batch, properties = make_batch(rows, model)
        routed = route(batch, lambda name: name == "secret")
        if not len(routed.order):
            continue
        names = list(zip(routed.topics, routed.queue_ids.tolist(), strict=True))
        known = [model.get(n, Queue()) for n in names]
        ends = QueueEnds(
            present=np.array([q.seen for q in known]),
            generation=np.array([q.generation for q in known]),
            max_offset=np.array([q.end for q in known]),
            flat_end=np.array([q.flat for q in known]),
            highest_generation=np.array([q.highest for q in known]),
        )
        before = {n: (len(model[n].rows), len(model[n].gaps)) if n in model else (0, 0) for n in names}
        for i, (topic, queue_id, _, flag, owns, size) in enumerate(rows):
            if TOPICS[topic] == "secret" and flag not in (4, 12):
                continue
            if TOPICS[topic] == "secret":
                continue
            name = (OFF_QUEUE_TOPIC, 0) if flag in (4, 12) else (TOPICS[topic], queue_id)
            queue = model.setdefault(name, Queue())
            if flag in (4, 12):
                queue.append(i, queue.end, 1, size)
            else:
                offset = int(batch.headers["queue_offset"][i])
                same = [n for n in range(i + 1, len(rows)) if rows[n][:2] == (topic, queue_id)]
                behind = [n for n in same if rows[n][3] not in (4, 12)][:1]
                refuted = any(int(batch.headers["queue_offset"][n]) == offset + 1 for n in behind)
                queue.append(i, offset, 1 if refuted else owns, size)
        placed = row_offsets(batch, properties, routed, lambda topic, queue_id: True)
        offsets = renumbered(placed, routed, ends)
        segments = cut_segments(routed, offsets, ends)
        sizes = batch.headers["size"][routed.order].astype(np.int64)
        pieces = cut_rows(sizes, segments, block_bytes=block_bytes, object_bytes=object_bytes)
        found: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {n: [] for n in names}
        lead, covered = offsets_covered(pieces, offsets)
        for run in range(len(pieces.run_start) - 1):
            a, b = pieces.run_start[run : run + 2].tolist()
            segment = pieces.run_segment[run]
            name = names[segments.group[segment]]
            flat = int(flat_offsets(pieces, segments, ends)[run])
            assert int(lead[run]) == int(offsets.queue_offset[a])
            assert int(covered[run]) == int(offsets.owned[a:b].sum())
            for p in range(a, b):
                found[name].append(
                    (
                        int(segments.generation[segment]),
                        int(offsets.queue_offset[p]),
                        flat,
                        int(routed.order[p]),
                    )
                )
                flat += int(sizes[p])
            blocks = pieces.block_start[pieces.run_block[run] : pieces.run_block[run + 1] + 1].tolist()
            assert blocks[0] == a
            assert blocks[-1] == b
            for x, y in pairwise(blocks):
                assert int(sizes[x : y - 1].sum()) < block_bytes, "a block is full before its last record"
        gaps: dict[tuple[str, int], list[tuple[int, int, int]]] = {n: [] for n in names}
        for s in np.flatnonzero(segments.gap_start != segments.first_offset).tolist():
            gaps[names[segments.group[s]]].append(
                (int(segments.generation[s]), int(segments.gap_start[s]), int(segments.first_offset[s]))
            )
        for n in names:
            assert found[n] == model[n].rows[before[n][0] :], n
            assert gaps[n] == model[n].gaps[before[n][1] :], n
