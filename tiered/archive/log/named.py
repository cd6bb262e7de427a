"""Which commits a listing names: a hint how far the log goes, for reading ahead, and what lies behind its end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import takewhile

from tiered.archive.ahead import NAMES_AT_ONCE
from tiered.archive.keys import ArchiveKeys, CommitKey, parse
from tiered.errors import TieredError
from tiered.provider.base import Provider, Stored

log = logging.getLogger("tiered.archive")


def commits_named(provider: Provider, keys: ArchiveKeys, seq: int) -> int:
    """The last commit that a page of the listing names in a row from ``seq`` on; ``seq - 1`` if it names none, or fails."""
    after, wanted = keys.commit(seq - 1) if seq else None, seq
    try:
        for stored in provider.list(keys.commit_prefix, start_after=after, limit=NAMES_AT_ONCE):
            if stored.key != keys.commit(wanted):
                break
            wanted += 1
    except TieredError as error:  # the commits are read all the same, fewer at once
        log.debug("the listing of commits did not answer", extra={"reason": error.message})
    return wanted - 1


def commits_listed(provider: Provider, keys: ArchiveKeys, first: int, last: int) -> dict[int, int]:
    """The lengths of commits ``first`` to ``last``, as they are stored, of those that the listing names."""
    listed = takewhile(lambda found: found[0] <= last, _listed_behind(provider, keys, first - 1))
    return {seq: stored.length for seq, stored in listed}


def first_behind(provider: Provider, keys: ArchiveKeys, seq: int) -> int | None:
    """The first commit that is named behind ``seq``; one listing."""
    return next((found for found, _ in _listed_behind(provider, keys, seq)), None)


def last_named(provider: Provider, keys: ArchiveKeys) -> int:
    """The last commit that is named, -1 if none is; a listing of all."""
    return max((found for found, _ in _listed_behind(provider, keys, -1)), default=-1)


def _listed_behind(provider: Provider, keys: ArchiveKeys, seq: int) -> Iterator[tuple[int, Stored]]:
    """Commits that the listing names behind ``seq``, ascending; all for -1."""
    after = keys.commit(seq) if seq >= 0 else None
    for stored in provider.list(keys.commit_prefix, start_after=after):
        found = parse(str(keys.path(stored.key)))
        if isinstance(found, CommitKey):
            yield found.seq, stored
