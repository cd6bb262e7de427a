"""Heads of row groups: what the bands of a row group of a segment share, kept with the tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tiered.archive.read.tables import NEVER_KEPT, TableCache
from tiered.codec.types import Buffer
from tiered.model import ByteRange

if TYPE_CHECKING:
    from tiered.codec.segment.reader import Segment

FetchHead = Callable[[ByteRange, Callable[[Buffer], bool]], Buffer]
"""Brings bytes; the second argument says whether some are what was written."""


class RowGroupHeads:
    """Thread-safe. ``fetch`` brings bytes of a key."""

    def __init__(self, tables: TableCache, fetch: Callable[[str, ByteRange], Buffer]) -> None:
        self._tables, self._fetch = tables, fetch

    def get(self, segment: Segment, group: int, fetch: FetchHead | None = None) -> Buffer | None:
        """The head of a row group, unchecked; ``None`` where the row group is one band. ``fetch``: a way to it of one's own.

        It is kept only where every page of it is right: a damaged one may be right when it is fetched again, and until then
        what is in its other pages can be read.
        """
        key, place = segment.key, segment.head_range(group)
        if place is None:
            return None
        sound = partial(segment.is_sound_head, group)

        def make() -> Buffer:
            return self._fetch(key, place) if fetch is None else fetch(place, sound)

        def size(made: Buffer) -> int:
            return len(made) if sound(made) else NEVER_KEPT

        return self._tables.once(key, _name(group), make, size)

    def coming_bytes(self, segment: Segment, group: int) -> int:
        """How many bytes ``get`` would fetch."""
        place = segment.head_range(group)
        kept = place is None or self._tables.find(segment.key, _name(group)) is not None
        return 0 if place is None or kept else place.length


def _name(group: int) -> str:
    return f"head {group}"
