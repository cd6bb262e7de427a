"""Objects, state and checkpoint of a day of 10,000 queues with a message a second each: a piece measured, the day computed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import numpy as np

from tests.bench.agedpiece import QUEUES, TOPICS, Piece, Seen, Weight, simulate
from tests.bench.run import Row
from tiered.archive.rewrite.merge import MergeOptions
from tiered.archive.rewrite.mergeplan import due_runs
from tiered.archive.rewrite.seal import JOB_OBJECTS
from tiered.settings import Settings

DAY_SECONDS = 86_400
FRESH_OBJECTS, DAY_OBJECTS, STATE_BYTES = 200, 400, 200e6
"""What must be reached."""


def aged_day(work: Path, pieces: Sequence[Piece]) -> list[Row]:
    """Rows of every piece."""
    rows = []
    for number, piece in enumerate(pieces):
        directory = work / str(number)
        directory.mkdir()
        rows += _rows(piece, simulate(directory, piece))
    return rows


def files_of(of_topic: float, runs: float, stored_bytes: float) -> int:
    """Sealed files of a day of all topics, ``of_topic`` objects to a topic, with so many runs. A job reads the oldest
    ``JOB_OBJECTS`` of these, replaces at most ``merge_runs`` runs, and ends its file at ``segment_bytes``."""
    settings = Settings()
    slabs = max(1, ceil(of_topic / JOB_OBJECTS))
    by_runs = ceil(runs / TOPICS / slabs / settings.maintenance.merge_runs)
    by_bytes = ceil(stored_bytes / TOPICS / slabs / settings.seal.segment_bytes)
    return TOPICS * slabs * max(1, by_runs, by_bytes)


def runs_of_day(round_seconds: float, bytes_of_round: float) -> tuple[int, int, float]:
    """Merged runs of one queue at the end of a day of such rounds, the most there were, and how often merges wrote a message:
    by the plan's own rule."""
    bounds = MergeOptions.of(Settings()).bounds
    sizes = np.zeros(0, np.int64)
    written, most = 0.0, 0
    for _ in range(round(DAY_SECONDS / round_seconds)):
        sizes = np.append(sizes, int(bytes_of_round))
        written += bytes_of_round
        begin = int(
            np.flatnonzero(np.append(True, sizes >= bounds.settled_bytes))[-1]
        )  # behind the last that has settled
        small = sizes[begin:]
        due = due_runs(small, np.zeros(len(small), np.int64), bounds.growth) if len(small) else small
        if len(due):
            grown = int(small[due].sum())
            written += grown
            sizes = np.append(sizes[: begin + int(due[0])], grown)
        most = max(most, len(sizes))
    return len(sizes), most, written / (bytes_of_round * round(DAY_SECONDS / round_seconds))


def _rows(piece: Piece, seen: Seen) -> list[Row]:
    assert seen.sealed is not None
    hours, messages = piece.seconds / 3600, piece.queues * piece.seconds
    before, after = seen.rounds[-1]
    how = f"measured: {hours:.2g} h of {piece.queues} queues, bounds ÷ {piece.scale}"
    every = max(1, len(seen.rounds) // 6)
    shown = [*seen.rounds[every - 1 :: every]]
    live_by_round = ", ".join(f"{one.live}" for _, one in shown)
    runs_by_round = ", ".join(f"{one.runs / piece.queues:.0f}" for _, one in shown)
    checked = files_of(after.of_topic, after.runs * piece.scale, seen.file_bytes * piece.scale)
    name = f"{QUEUES:,} queues × 1 message/s, records of {seen.record_bytes / messages:.0f} bytes"
    fresh = max(one.fresh for one, _ in seen.rounds)
    return [
        _free(f"{name}: rounds of merging", f"{len(seen.rounds)}, one in {piece.seconds / len(seen.rounds):.0f} s", how),
        _free("… objects that archiving made in an hour", f"{seen.made / hours:,.0f}", how),
        _limited("… live objects that wait for a merge, right before a round, at most", fresh, FRESH_OBJECTS, how),
        _limited("… all live objects right before the last round", before.live, FRESH_OBJECTS, how),
        _free(f"… live after each {every}. round", live_by_round, how),
        _free(f"… runs of a queue after each {every}. round", runs_by_round, how),
        _free("… a message is written again by merges", f"{seen.rewritten / messages:.1f} times", how),
        _free("… the piece sealed: live objects", f"{seen.sealed.live}", how),
        _free("… the same by the formula of the day", f"{checked}", "computed"),
        _free("… sealed bytes of a message", f"{seen.file_bytes / messages:.0f}", how),
        *_day(piece, seen),
    ]  # fmt: skip


def _day(piece: Piece, seen: Seen) -> list[Row]:
    """What a day would be if it went on as the second half of the piece went, and its runs grew as the rule says."""
    half, last = seen.rounds[len(seen.rounds) // 2][1], seen.rounds[-1][1]
    times = DAY_SECONDS / piece.seconds
    halves = (DAY_SECONDS - piece.seconds) / (piece.seconds / 2)
    merged, dead, of_topic = (
        getattr(last, name) + halves * (getattr(last, name) - getattr(half, name))
        for name in ("merged", "dead", "of_topic")
    )
    every = piece.seconds / len(seen.rounds)
    of_queue, most, written = runs_of_day(every, seen.record_bytes / piece.queues / len(seen.rounds))
    waiting = (seen.rounds[-1][0].runs - seen.rounds[-2][1].runs) * piece.scale
    stored = seen.file_bytes * piece.scale * times
    before, after, sealed = seen.weights
    grown = (most * QUEUES + waiting) / (seen.rounds[-1][0].runs * piece.scale)
    raw = (before.raw - before.rest) * grown + before.rest * times
    end = Weight(
        raw, before.rocksdb * raw / before.raw, before.checkpoint * raw / before.raw, before.rest * times
    )
    each = f"computed: each queue's pairs × {piece.scale}"
    runs = most * QUEUES + waiting
    of_day = f"computed: {runs / 1e6:.1f} M runs, {dead:,.0f} objects that nothing refers to"
    by = f"computed: {stored / 1e9:.0f} GB in {TOPICS} topics, {of_topic:,.0f} objects to a topic"
    rule = "computed by the rule"
    return [
        _free("… a day: objects that archiving makes", f"{seen.made * times:,.0f}", "computed"),
        _free("… merged objects at its end", f"{merged:,.0f}", "computed: each half hour adds as many"),
        _free("… merged runs of a queue at its end, and at most", f"{of_queue}, {most}", rule),
        _free("… a message is written again by merges of a day", f"{written:.1f} times", rule),
        _limited("… live after sealing it", files_of(of_topic, of_queue * QUEUES, stored), DAY_OBJECTS, by),
        *_state("before the last round of the piece", before, each),
        *_state("after it", after, each),
        *_state("before a round at the end of a day", end, of_day),
        *_state("the piece sealed", sealed, each),
    ]


def _state(moment: str, weight: Weight, how: str) -> list[Row]:
    """RocksDB holds the fold twice: as the daemon made it, and as it is read back for checkpoints."""
    twice, limit = 2 * weight.rocksdb, "≤ 200 MB"
    said = f"{twice / 1e6:,.0f} MB, of {2 * weight.raw / 1e6:,.0f} MB of pairs"
    share = f"{weight.checkpoint / STATE_BYTES:.2f} of the limit"
    return [
        Row(
            f"… state {moment}, in RocksDB twice", said, how, f"{twice / STATE_BYTES:.2f} of the limit", limit
        ),
        Row("… its checkpoint", f"{weight.checkpoint / 1e6:,.0f} MB", how, share, limit),
    ]


def _free(what: str, found: str, how: str) -> Row:
    return Row(what, found, how, "-", "-")


def _limited(what: str, found: float, limit: int, how: str) -> Row:
    return Row(what, f"{found:,.0f}", how, f"{found / limit:.2f} of the limit", f"≤ {limit}")
