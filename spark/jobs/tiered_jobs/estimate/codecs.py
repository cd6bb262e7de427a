"""How small blocks would be with other levels of zstd: measured on a bounded sample of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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


def measure(snapshots: Sequence[Snapshot], count: int, levels: Sequence[int], clock: Clock) -> Sample:
    """Fetches at most ``count`` blocks, spread evenly over all bytes of records, one after the other: memory is that of one."""
    now: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    made = {level: [0, 0] for level in levels}
    seconds = dict.fromkeys(levels, 0.0)
    for snapshot, ref, number in _chosen(snapshots, count):
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


def _chosen(snapshots: Sequence[Snapshot], count: int) -> Iterator[tuple[Snapshot, ObjectRef, int]]:
    """Blocks that hold the bytes in the middle of ``count`` equal parts; each once."""
    total = sum(live_bytes(run) for snapshot in snapshots for run in snapshot.view.state.runs_all())
    before, number, last = 0, 0, None
    for snapshot in snapshots:
        for run in snapshot.view.state.runs_all():
            size = live_bytes(run)
            while number < count and (at := total * (2 * number + 1) // (2 * count)) < before + size:
                block = run.first_block + (at - before) * run.block_count // size
                if (run.object, block) != last:
                    yield snapshot, run.object, block
                last = (run.object, block)
                number += 1
            before += size
