"""The archive as it was: after a commit, or at a time by the store's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.keys import CommitKey, parse
from tiered.archive.log.reader import LogReader
from tiered.archive.state.scope import Scope
from tiered.archive.state.values import Head, ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.errors import Corrupt, NotFound, Refused
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.metadata.memory import MemoryStore
from tiered.text.human import second

_COMMITS_BEHIND = 1000
"""A page of the listing: so many neighbours may be lost, or put again."""


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
    """The last commit that the store has from ``time_ms`` or before. ``NotFound`` names the oldest time there is.

    A commit that is lost has no time, and one that was put again has a late one: each is older than those behind it. Halving
    ends in front of such, so what lies behind its end is looked at before that counts.
    """
    low, high = head.floor - 1, head.seq
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _came_by(reader, middle, time_ms) else (low, middle - 1)
        if low == high < head.seq:
            times = _times_behind(reader, low)
            older = [seq for seq, at_ms in times.items() if at_ms <= time_ms]
            if older:
                low, high = older[-1], head.seq
            elif low < head.floor:
                raise _nothing_by(times, time_ms)
    return low


def _came_by(reader: LogReader, seq: int, time_ms: int) -> bool:
    try:
        return reader.provider.head(reader.keys.commit(seq)).last_modified_ms <= time_ms
    except NotFound:
        return False


def _times_behind(reader: LogReader, seq: int) -> dict[int, int]:
    """When the store got each of the commits that come next; those that are lost are left out."""
    after = None if seq < 0 else reader.keys.commit(seq)
    found: dict[int, int] = {}
    for stored in reader.provider.list(reader.keys.commit_prefix, start_after=after, limit=_COMMITS_BEHIND):
        made = parse(str(reader.keys.path(stored.key)))
        if isinstance(made, CommitKey):
            found[made.seq] = stored.last_modified_ms
    return found


def _nothing_by(times: Mapping[int, int], time_ms: int) -> NotFound:
    oldest_ms = min(times.values(), default=None)
    if oldest_ms is None:
        return NotFound("no commit of the archive is left that tells its time", time_ms=time_ms)
    return NotFound(
        "the archive had no commit at this time",
        time_ms=time_ms, expected=f"{oldest_ms} ms since 1970 or later",
        hint=f"{second(oldest_ms)} is the oldest that can be chosen",
    )  # fmt: skip


def oldest_whole(reader: LogReader, seq: int) -> int:
    """The oldest commit behind ``seq`` as of which everything that runs lie in is still there; at least the log's head is.

    Objects are given up in the order in which they were, so that what is there as of a commit is there as of all later ones:
    found by halving, a fold in memory each time, and a request for each key that is named for deletion.
    """
    newest = MemoryStore()
    head = reader.fold(newest)
    if head is None:
        return seq
    left = _Left(reader, ArchiveState(newest), head)
    low, high = max(seq + 1, head.floor), head.seq
    while low < high:
        middle = (low + high) // 2
        then = MemoryStore()
        reader.fold_until(then, middle)
        if left.has_all(ArchiveState(then)):
            high = middle
        else:
            low = middle + 1
    return low


class _Left:
    """What the bucket still has of what older folds name. Each key is asked for once."""

    def __init__(self, reader: LogReader, newest: ArchiveState, head: Head) -> None:
        self._reader, self._newest, self._head = reader, newest, head
        self._asked: dict[str, bool] = {}

    def has_all(self, then: ArchiveState) -> bool:
        return all(self._has(item) for item in then.objects() if item.references)

    def _has(self, item: ObjectState) -> bool:
        if not item.path:
            sure = item.ref.commit_seq >= self._head.floor
            return sure or self._is_there(self._reader.keys.commit(item.ref.commit_seq))
        now = self._newest.object_at(item.path)
        if now is None:
            return False
        return now.retired_by is None or self._is_there(self._reader.keys.key(item.path))

    def _is_there(self, key: str) -> bool:
        if key not in self._asked:
            try:
                self._reader.provider.head(key)
                self._asked[key] = True
            except NotFound:
                self._asked[key] = False
        return self._asked[key]


def _check_floor(reader: LogReader, seq: int, folded: MetadataView | None) -> None:
    """``NotFound`` if the floor lies above ``seq``; ``folded`` is the fold there, from which the log is read on."""
    ahead = PartialStore(Scope({}))
    try:
        if folded is not None and not reader.checkpoint_above(seq):
            ahead.begin_over(folded)
        else:
            reader.begin_newest(ahead)
        head = reader.follow(ahead)
    except (Corrupt, Refused):
        return
    if head is not None and seq < head.floor:
        raise NotFound(
            "the log of the archive begins after this commit",
            commit=seq, expected=f"commits {head.floor} to {head.seq}",
            hint=f"commit {head.floor} is the oldest that can be chosen",
        )  # fmt: skip
