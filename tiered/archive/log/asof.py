"""The archive as it was: after a commit, or at a time by the store's clock."""

from __future__ import annotations

from collections.abc import Callable

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.log.reader import LogReader
from tiered.archive.state.scope import Scope
from tiered.archive.state.values import Head
from tiered.errors import Corrupt, NotFound, Refused
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.text.human import second


def fold_as_of(
    reader: LogReader, store: MetadataStore, seq: int, progress: Callable[[int], None] | None = None
) -> Head:
    """``LogReader.fold_until``; ``NotFound`` also for a commit below the log's floor: it may be removed at any moment.

    Where later commits are damaged nothing says where the floor is: then what is there is read.
    """
    try:
        head = reader.fold_until(store, seq, progress)
    except (NotFound, Corrupt):
        _check_floor(reader, seq, None)
        raise
    _check_floor(reader, seq, store)
    return head


def commit_at(reader: LogReader, head: Head, time_ms: int) -> int:
    """The last commit that the store has from ``time_ms`` or before. ``NotFound`` names the oldest time there is."""
    low, high = head.floor, head.seq
    first = reader.provider.head(reader.keys.commit(low)).last_modified_ms
    if first > time_ms:
        raise NotFound(
            "the archive had no commit at this time",
            time_ms=time_ms, expected=f"{first} ms since 1970 or later",
            hint=f"{second(first)} is the oldest that can be chosen",
        )  # fmt: skip
    while low < high:
        middle = (low + high + 1) // 2
        if reader.provider.head(reader.keys.commit(middle)).last_modified_ms <= time_ms:
            low = middle
        else:
            high = middle - 1
    return low


def _check_floor(reader: LogReader, seq: int, folded: MetadataView | None) -> None:
    """``NotFound`` if the floor lies above ``seq``; ``folded`` is the fold there, from which the log is read on."""
    ahead = PartialStore(Scope({}))
    try:
        if folded is not None and not reader.checkpoint_above(seq):
            ahead.begin_over(folded)
        else:
            reader.begin_newest(ahead)
        head = reader.to_end(ahead)
    except (Corrupt, Refused):
        return
    if head is not None and seq < head.floor:
        raise NotFound(
            "the log of the archive begins after this commit",
            commit=seq, expected=f"commits {head.floor} to {head.seq}",
            hint=f"commit {head.floor} is the oldest that can be chosen",
        )  # fmt: skip
