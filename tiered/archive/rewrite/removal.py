"""Which commits may be removed: below the floor for long enough, and without data that anybody still reads (DESIGN.md, "Commits
below the floor")."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from tiered.archive.checkpoint.shardview import ShardCache, ShardView
from tiered.archive.checkpoint.store import checkpoint_keys, checkpoint_number, read_manifest
from tiered.archive.keys import CommitKey, RepairKey, parse
from tiered.archive.log.reader import LogReader
from tiered.archive.state.view import ArchiveState
from tiered.errors import Corrupt

_SHARD_CACHE_BYTES = 16 * 1024 * 1024

Over = Callable[[int], bool]
"""Whether a commit is old enough, by the store's clock."""


def removable(
    reader: LogReader, state: ArchiveState, past_retention: Over, past_grace: Over
) -> Iterator[str]:
    """Keys of commits that may be removed, from the lowest number up, and then of what stands for such.

    ``past_retention``: of the commits that moved the floor; ``past_grace``: of those that checkpoints were made of.
    """
    below = _aged_floor(state, past_retention)
    noted = _noted(reader, below, past_grace) if below else None
    if noted is None:
        return iter(())
    return _listed(reader, min(below, noted[0] + 1), noted[1] | set(state.inline_kept(below)))


def _listed(reader: LogReader, below: int, kept: set[int]) -> Iterator[str]:
    """Keys of commits under ``below``, and of what stands for such, but those ``kept``."""
    for stored in reader.provider.list(reader.keys.commit_prefix):
        made = parse(str(reader.keys.path(stored.key)))
        if isinstance(made, CommitKey):
            if made.seq >= below:
                break
            if made.seq not in kept:
                yield stored.key
    for stored in reader.provider.list(reader.keys.repair_prefix()):
        made = parse(str(reader.keys.path(stored.key)))
        if isinstance(made, RepairKey):
            if made.seq >= below:
                break
            if made.seq not in kept:
                yield stored.key


def _aged_floor(state: ArchiveState, past_retention: Over) -> int:
    """The highest floor that the log moved to long enough ago; 0 for none."""
    moves = list(state.floors())
    aged = bisect_left(range(len(moves)), True, key=lambda i: not past_retention(moves[i][1]))
    return moves[aged - 1][0] if aged else 0


def _noted(reader: LogReader, below: int, past_grace: Over) -> tuple[int, set[int]] | None:
    """What the fold named a grace ago (hole H11): a commit of then, and the commits below ``below`` whose data was in use.

    A checkpoint keeps that note for every process; ``None`` while none is old enough.
    """
    numbers = [checkpoint_number(key) for key in checkpoint_keys(reader.provider, reader.keys)]
    young = bisect_left(range(len(numbers)), True, key=lambda i: past_grace(numbers[i]))
    cache = ShardCache(reader.provider, _SHARD_CACHE_BYTES)
    for number in numbers[young:]:
        try:
            manifest = read_manifest(reader.provider, reader.keys.checkpoint(number))
            return number, set(ArchiveState(ShardView(cache, manifest)).inline_kept(below))
        except Corrupt:
            continue
    return None
