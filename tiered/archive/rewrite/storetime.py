"""What the store's clock says of commits: the only clock by which anything becomes old enough to go (law 6)."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.archive.log.reader import LogReader
from tiered.archive.state.values import Head
from tiered.errors import NotFound, Refused

_HOLE_COMMITS = 16
"""Behind a commit that is missing so many are looked at; `tiered repair` stands in for those, without their times."""


def store_now_ms(reader: LogReader) -> int:
    """The store's clock."""
    return reader.provider.get(reader.keys.identity, -1).date_ms  # see commit_time


@dataclass(frozen=True, slots=True)
class CommitTime:
    """When a commit came into the store, and the store's clock at the answer that said so."""

    modified_ms: int
    date_ms: int

    @property
    def age_ms(self) -> int:
        """How long the store has had it."""
        return self.date_ms - self.modified_ms


def commit_time(reader: LogReader, seq: int) -> CommitTime | None:
    """``None`` for a commit that is not there. ``Refused`` where the store tells no times of objects."""
    key = reader.keys.commit(seq)
    try:
        found = reader.provider.get(key, -1)  # the fast engine for S3 dates its answers by this host's clock
    except NotFound:
        return None
    if found.last_modified_ms is None:
        raise Refused(
            "the store does not say when its objects were written: nothing is trimmed or deleted",
            hint="this needs a store with a clock of its own, such as S3", key=key,
        )  # fmt: skip
    return CommitTime(found.last_modified_ms, found.date_ms)


def aged_commit(reader: LogReader, head: Head, age_ms: int) -> int:
    """The last commit that the store has had for ``age_ms`` or longer, by bisection; -1 for none.

    Of a commit that is missing nothing is known but that it is older than the next: without one it counts as too young.
    """
    low, high = head.floor - 1, head.seq
    while low < high:
        middle = (low + high + 1) // 2
        at, found = middle, commit_time(reader, middle)
        while found is None and at < min(high, middle + _HOLE_COMMITS):
            at += 1
            found = commit_time(reader, at)
        if found is not None and found.age_ms >= age_ms:
            low = at
        else:
            high = middle - 1
    return -1 if low < head.floor else low
