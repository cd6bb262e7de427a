"""Which blocks a filter may want, told from columns before a body is fetched, where columns are cheaper than bodies."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import BlockRef
from tiered.codec.format.chunks import ROWS_PER_CHUNK
from tiered.codec.format.object import ROW_DTYPE
from tiered.codec.format.sections import SectionKind
from tiered.fetch.allowance import Account
from tiered.fetch.loader import Loader
from tiered.filter.base import RowFilter
from tiered.model import ObjectRef

Mask = npt.NDArray[np.bool_]

_COLUMNS = len(ROW_DTYPE.names or ())
_MASKS = 64
"""Row groups whose answers are kept: those around the place that is read."""

_WORTH = 32
"""Columns are fetched when the run's records are at least this many times as long: room for compression and for blocks that
match all the same."""

_WORTH_BYTES = 64 * 1024
"""Below this a run comes as quickly as the tables that could spare it."""


class Sieve:
    """One filter over one read's blocks. Not thread-safe: one read, or one walk ahead, has one."""

    def __init__(
        self, objects: ObjectReader, loader: Loader, row_filter: RowFilter, account: Account
    ) -> None:
        self._objects = objects
        self._loader = loader
        self._account = account
        self._filter = row_filter
        self._names = row_filter.columns
        self._groups: LRUCache[tuple[ObjectRef, int], Mask] = LRUCache(_MASKS)
        self._tags: dict[ObjectRef, tuple[tuple[bytes, ...], bool]] = {}

    def ask(self, ref: BlockRef, *, foreground: bool) -> Mask | Future[Any] | None:
        """Rows of a block that the filter may want. A future: something must come first, ask again then. ``None``: columns tell
        nothing, there is no memory for them now, or they come with the bodies, as in a segment.
        """
        if ref.group is not None or not self._names or not (self._at_hand(ref) or self._worth_it(ref)):
            return None
        tags: tuple[bytes, ...] = ()
        if "tag" in self._names:
            known = self._tags_of(ref, foreground=foreground)
            if known is None or isinstance(known, Future):
                return known
            tags, hopeful = known
            if not hopeful:
                return np.zeros(ref.rows, np.bool_)
        parts: list[Mask] = []
        row, end = ref.first_row, ref.first_row + ref.rows
        while row < end:
            group = row // ROWS_PER_CHUNK
            mask = self._group(ref, group, tags, foreground=foreground)
            if mask is None or isinstance(mask, Future):
                return mask
            start = group * ROWS_PER_CHUNK
            stop = min(end, start + ROWS_PER_CHUNK)
            parts.append(mask[row - start : stop - start])
            row = stop
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _tags_of(
        self, ref: BlockRef, *, foreground: bool
    ) -> tuple[tuple[bytes, ...], bool] | Future[Any] | None:
        """The object's tags, and whether any of them may match."""
        known = self._tags.get(ref.item.ref)
        if known is not None:
            return known
        directory = self._objects.cached_directory(ref.item)
        if directory is None:
            coming = self._loader.directory(ref.item, self._account, foreground=foreground)
            if coming is None or not coming.done():
                return coming
            directory = coming.result()  # here already, so it does not wait
        tags = tuple(directory.tags)
        hopeful = True
        if self._names == ("tag",):
            hopeful = bool(self._filter.may_match({"tag": np.arange(len(tags), dtype=np.int32)}, tags).any())
        self._tags[ref.item.ref] = (tags, hopeful)
        return tags, hopeful

    def _group(
        self, ref: BlockRef, group: int, tags: tuple[bytes, ...], *, foreground: bool
    ) -> Mask | Future[Any] | None:
        name = (ref.item.ref, group)
        mask = self._groups.get(name)
        if mask is not None:
            return mask
        rows = self._objects.cached_row_group(ref.item, self._names, group)
        if rows is None:
            coming = self._loader.row_group(
                ref.item, self._names, group, self._account, foreground=foreground
            )
            if coming is None or not coming.done():
                return coming
            rows = coming.result()
        mask = self._filter.may_match(rows, tags)
        self._groups[name] = mask
        return mask

    def _at_hand(self, ref: BlockRef) -> bool:
        """Whether it costs no request."""
        group = ref.first_row // ROWS_PER_CHUNK
        if group != (ref.first_row + ref.rows - 1) // ROWS_PER_CHUNK:
            return False
        if "tag" in self._names and self._objects.cached_directory(ref.item) is None:
            return False
        return self._objects.cached_row_group(ref.item, self._names, group) is not None

    def _worth_it(self, ref: BlockRef) -> bool:
        """By sizes alone: columns of the groups that the run touches, against the run's records."""
        run, sections = ref.run, ref.item.sections
        if run.flat_end - run.first_flat_offset < _WORTH_BYTES:
            return False
        touched = (-(-run.rows // ROWS_PER_CHUNK) + 1) * ROWS_PER_CHUNK
        share = min(1.0, touched / (run.first_row + run.rows))
        columns = sections[SectionKind.COLUMNS][1] * share * len(self._names) / _COLUMNS
        tables = sections[SectionKind.COLUMN_INDEX][1] + sections[SectionKind.DIRECTORY][1]
        return _WORTH * (columns + tables) <= run.flat_end - run.first_flat_offset
