"""Looking behind unreadable bytes for the next place that can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from tiered.codec.record.layout import MAGIC_AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, store_times
from tiered.model import PhysicalOffset
from tiered.source.files import LogFile
from tiered.source.walk import Chain, HeadKind

_WINDOW_BYTES = 4 * 1024 * 1024
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


def next_readable(
    chain: Chain, file: LogFile, bad: int, *, written_in_ms: int | None, blank_counts: bool
) -> PhysicalOffset | None:
    """The first place above ``bad`` in this file where a valid record begins, or (``blank_counts``) the closing blank.

    With ``written_in_ms`` a record counts only if one stored at or after that time lies there or behind it: a proof that the
    running broker itself has gone past the bad bytes, and will not come back to overwrite them.
    """
    first: PhysicalOffset | None = None
    passed = bad
    for place in _candidates(chain, file, bad + 1):
        if place < passed:
            continue
        head = chain.head(file, place)
        if head.kind is HeadKind.BLANK and blank_counts:
            return first if first is not None else PhysicalOffset(place)
        if head.kind is not HeadKind.RECORD or not chain.whole(file, place):
            continue
        first = PhysicalOffset(place) if first is None else first
        if written_in_ms is None:
            return first
        passed = place
        for start, view, frames in chain.walk(file, place):
            if bool((store_times(view, frames.starts) >= written_in_ms).any()):
                return first
            passed = start + frames.end
    return None


def _candidates(chain: Chain, file: LogFile, position: int) -> Iterator[int]:
    """Physical offsets from ``position`` on, ascending, four bytes behind which a magic code stands.

    Only what is stored is read: a file is allocated long before the broker writes it.
    """
    while position + MAGIC_AT < file.end:
        stored = chain.next_stored(file, position + MAGIC_AT)
        if stored is None:
            return
        position = max(position, stored[0] - MAGIC_AT - 3)
        behind = min(position + _WINDOW_BYTES, stored[1] - MAGIC_AT)
        data = chain.peek(file, position, behind - position + MAGIC_AT + 3)
        found = set()
        for magic in _MAGICS:
            at = data.find(magic, MAGIC_AT)
            while at >= 0:
                found.add(position + at - MAGIC_AT)
                at = data.find(magic, at + 1)
        yield from sorted(place for place in found if place < behind)
        position = behind
