"""How small blocks would be with other levels of zstd: measured on a bounded sample of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tiered.archive.state.keys import RUN
from tiered.archive.state.layout import RUN_RECORD_DTYPE
from tiered.archive.state.tallies import records
from tiered.clock import Clock
from tiered.codec.format.block import compress
from tiered.codec.format.sections import CODEC_NONE
from tiered.model import ObjectRef
from tiered_jobs.estimate.stats import live_bytes
from tiered_spark.snapshot import Snapshot

NAMES = {CODEC_NONE: "none"}


@dataclass(frozen=True, slots=True)
class Codec:
    """Blocks of the sample with a codec: bytes before and after, and seconds to compress (``None``: as they lie there)."""

    name: str
    blocks: int
    raw: int
    stored: int
    seconds: float | None = None

    @property
    def ratio(self) -> float:
        """Stored for each raw byte."""
        return self.stored / self.raw if self.raw else 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """``now``: by the codec that blocks have; ``whole``: all of them; ``levels``: compressed again, by level."""

    now: tuple[Codec, ...]
    whole: Codec
    levels: dict[int, Codec]

    def factor(self, level: int) -> float:
        """How much longer blocks would be than now."""
        return self.levels[level].stored / self.whole.stored if self.whole.stored else 1.0


def measure(
    snapshots: Sequence[Snapshot], total: int, count: int, levels: Sequence[int], clock: Clock
) -> Sample:
    """Fetches at most ``count`` blocks, spread evenly over all ``total`` bytes of records, one after the other: the memory is
    that of one."""
    now: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    made = {level: [0, 0] for level in levels}
    seconds = dict.fromkeys(levels, 0.0)
    for snapshot, ref, number in _chosen(snapshots, total, count):
        item, objects = snapshot.object(ref), snapshot.view.objects
        row = objects.block_table(item)[number]
        (raw,) = objects.block_bytes(item, number, number + 1)
        there = now[NAMES.get(int(row["codec"]), "zstd")]
        for at, value in enumerate((1, len(raw), int(row["stored_length"]))):
            there[at] += value
        for level in levels:
            began = clock.monotonic()
            stored, _, _ = compress(raw, level=level)
            seconds[level] += clock.monotonic() - began
            made[level][0] += len(raw)
            made[level][1] += len(stored)
    blocks = sum(found[0] for found in now.values())
    return Sample(
        tuple(Codec(name, *found) for name, found in sorted(now.items())),
        Codec(
            "now", blocks, sum(found[1] for found in now.values()), sum(found[2] for found in now.values())
        ),
        {n: Codec(f"zstd-{n}", blocks, made[n][0], made[n][1], seconds[n]) for n in levels},
    )


def _chosen(
    snapshots: Sequence[Snapshot], total: int, count: int
) -> Iterator[tuple[Snapshot, ObjectRef, int]]:
    """Blocks that hold the bytes in the middle of ``count`` equal parts of all ``total``; each once. One walk, as arrays."""
    wanted = np.array([total * (2 * number + 1) // (2 * count) for number in range(count)], np.int64)
    before, last = 0, None
    for snapshot in snapshots:
        for _, runs in records(snapshot.view.state.view, RUN, RUN_RECORD_DTYPE):
            sizes = live_bytes(runs)
            ends = before + np.cumsum(sizes)
            here = wanted[np.searchsorted(wanted, before) : np.searchsorted(wanted, ends[-1])]
            rows = np.searchsorted(ends, here, side="right")
            inside = here - (ends[rows] - sizes[rows])
            blocks = runs["first_block"][rows] + inside * runs["block_count"][rows] // sizes[rows]
            places = zip(
                runs["commit_seq"][rows].tolist(), runs["object"][rows].tolist(), blocks.tolist(), strict=True
            )
            for place in places:
                if place != last:
                    yield snapshot, ObjectRef(*place[:2]), place[2]
                last = place
            before = int(ends[-1])
