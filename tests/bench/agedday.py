"""Objects, state and checkpoint of a day of 10,000 queues with a message a second each: a piece measured, the day computed."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

from tests.bench.agedpiece import QUEUES, TOPICS, Piece, Seen, Weight, simulate
from tests.bench.run import Row
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


def files_of(objects: float, runs: float, stored_bytes: float) -> int:
    """Sealed files of a day of all topics, made out of so many objects with so many runs. A job reads the oldest
    ``JOB_OBJECTS`` of them, replaces at most ``merge_runs`` runs of one topic, and ends its file at ``segment_bytes``."""
    settings = Settings()
    slabs = max(1, ceil(objects / JOB_OBJECTS))
    by_runs = ceil(runs / TOPICS / slabs / settings.maintenance.merge_runs)
    by_bytes = ceil(stored_bytes / TOPICS / slabs / settings.seal.segment_bytes)
    return TOPICS * slabs * max(1, by_runs, by_bytes)


def _rows(piece: Piece, seen: Seen) -> list[Row]:
    assert seen.sealed is not None
    hours, messages = piece.seconds / 3600, piece.queues * piece.seconds
    before, after = seen.rounds[-1]
    how = f"measured: {hours:.2g} h of {piece.queues} queues, bounds ÷ {piece.scale}"
    live_by_round = ", ".join(f"{one.fresh + one.merged}" for _, one in seen.rounds)
    runs_by_round = ", ".join(f"{one.runs / piece.queues:.0f}" for _, one in seen.rounds)
    checked = files_of(after.fresh + after.merged, after.runs * piece.scale, seen.file_bytes * piece.scale)
    name = f"{QUEUES:,} queues × 1 message/s, records of {seen.record_bytes / messages:.0f} bytes"
    return [
        _limited(f"{name}: objects an hour, before merging", seen.made / hours, FRESH_OBJECTS, how),
        _free("… live right before the last round", f"{before.fresh + before.merged:,}", how),
        _free("… live after each round", live_by_round, how),
        _free("… runs of a queue after each round", runs_by_round, how),
        _free("… a message is written again by merges", f"{seen.rewritten / messages:.1f} times", how),
        _free("… the piece sealed: live objects", f"{seen.sealed.sealed + seen.sealed.merged + seen.sealed.fresh}", how),
        _free("… the same by the formula of the day", f"{checked}", "computed"),
        _free("… sealed bytes of a message", f"{seen.file_bytes / messages:.0f}", how),
        *_day(piece, seen),
    ]  # fmt: skip


def _day(piece: Piece, seen: Seen) -> list[Row]:
    """What a day would be if every round of it added what those measured did."""
    first, last = seen.rounds[0][1], seen.rounds[-1][1]
    times = DAY_SECONDS / piece.seconds
    more = (DAY_SECONDS / piece.round_seconds - len(seen.rounds)) / max(1, len(seen.rounds) - 1)
    merged, runs, dead = (
        getattr(last, name) + more * (getattr(last, name) - getattr(first, name))
        for name in ("merged", "runs", "dead")
    )
    runs *= piece.scale
    stored = seen.file_bytes * piece.scale * times
    before, after, sealed = seen.weights
    grown = runs / (last.runs * piece.scale) - 1
    added = (after.raw - after.rest) * grown + after.rest * (times - 1)
    end = Weight(
        before.raw + added,
        before.rocksdb + added * after.rocksdb / after.raw,
        before.checkpoint + added * after.checkpoint / after.raw,
        before.rest * times,
    )
    each = f"computed: each queue's pairs × {piece.scale}"
    of_day = f"computed: {runs / 1e6:.1f} M runs, {dead:,.0f} objects that nothing refers to"
    by = f"computed: {stored / 1e9:.0f} GB in {TOPICS} topics, {runs / 1e6:.1f} M runs before"
    return [
        _free("… a day: objects before merging", f"{seen.made * times:,.0f}", "computed"),
        _free("… merged objects at its end", f"{merged:,.0f}", "computed: every round adds as many"),
        _limited("… live after sealing it", files_of(merged + last.fresh, runs, stored), DAY_OBJECTS, by),
        *_state("before the last round of the piece", before, each),
        *_state("after it", after, each),
        *_state("before the last round of a day", end, of_day),
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
