"""Looking behind unreadable bytes for the next place that can be trusted."""

from __future__ import annotations

from collections.abc import Iterator

from tiered.codec.header import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from tiered.model import PhysicalOffset
from tiered.source.chain import Chain, HeadKind, store_times
from tiered.source.files import LogFile

_WINDOW_BYTES = 4 * 1024 * 1024
_MAGIC_AT = 4
_MAGICS = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))


def next_readable(
    chain: Chain, file: LogFile, bad: int, *, written_in_ms: int | None, blank_counts: bool
) -> PhysicalOffset | None:
    """The first place above ``bad`` in this file where a valid record begins, or (``blank_counts``) the closing blank.

    With ``written_in_ms`` a record counts only if the chain from it on reaches one stored at or after that time: a proof that
    the running broker itself has gone past the bad bytes, and will not come back to overwrite them.
    """
    for place in _candidates(chain, file, bad + 1):
        head = chain.head(file, place)
        if head.kind is HeadKind.BLANK and blank_counts:
            return PhysicalOffset(place)
        if head.kind is HeadKind.RECORD and chain.whole(file, place):
            if written_in_ms is None or _reaches(chain, file, place, written_in_ms):
                return PhysicalOffset(place)
            return None
    return None


def _candidates(chain: Chain, file: LogFile, position: int) -> Iterator[int]:
    """Physical offsets from ``position`` on, ascending, four bytes behind which a magic code stands."""
    while position < file.end:
        data = chain.peek(file, position, _WINDOW_BYTES + _MAGIC_AT + 3)
        found = set()
        for magic in _MAGICS:
            at = data.find(magic, _MAGIC_AT)
            while at >= 0:
                found.add(position + at - _MAGIC_AT)
                at = data.find(magic, at + 1)
        yield from sorted(place for place in found if place < position + _WINDOW_BYTES)
        position += _WINDOW_BYTES


def _reaches(chain: Chain, file: LogFile, place: int, time_ms: int) -> bool:
    return any(
        bool((store_times(view, frames.starts) >= time_ms).any())
        for _, view, frames in chain.walk(file, place)
    )
