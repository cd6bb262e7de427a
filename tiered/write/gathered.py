"""A flush before the fold is asked: sorted by queue, cut into blocks, gathered, its columns and keys made.

All this is known from the records alone, so that it can be done while earlier flushes are still on their way.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from tiered.codec.format.messagerows import message_rows
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.lite import NO_PLACES, LitePlaces
from tiered.codec.record.properties import PropertyColumns
from tiered.codec.record.ragged import copy_ranges
from tiered.codec.types import Ints
from tiered.settings import Dispatch
from tiered.write.aliases import GatheredAliases, gather_aliases
from tiered.write.cutter import Cut, cut_rows
from tiered.write.inlining import tables_fit
from tiered.write.router import CountsInner, Routed, RowOffsets, cut_segments, row_offsets, unknown_ends

_NO_MEMORY = memoryview(b"")


@dataclass(frozen=True, slots=True)
class GatheredFlush:
    """A flush before the fold is asked, in sorted order; nothing here points into the copy it was made from.

    ``memory``: what they were gathered in; ``gathered``: the records' bytes; ``edges``: where each block begins in them, one
    more entry at the end. ``offsets``: see ``place``. ``inline``: travels inside the commit.
    """

    routed: Routed
    offsets: RowOffsets
    cut: Cut
    rows: npt.NDArray[np.void]
    tags: tuple[bytes, ...]
    memory: memoryview
    gathered: memoryview
    edges: Ints
    inline: bool
    key_position: npt.NDArray[np.int32]
    key_hash: npt.NDArray[np.uint64]
    aliases: GatheredAliases | None = None

    @property
    def raw_bytes(self) -> int:
        """Bytes of its records."""
        return int(self.cut.byte_start[-1])


def gather_flush(
    messages: MessageBatch,
    properties: PropertyColumns,
    routed: Routed,
    settings: Dispatch,
    counts_inner: CountsInner,
    memory: memoryview = _NO_MEMORY,
    places: LitePlaces = NO_PLACES,
) -> GatheredFlush:
    """Everything about a flush that does not depend on the fold. ``routed`` must hold at least one row.

    Its records are gathered at the start of ``memory``, over whatever was there, if they fit. ``places``: those of its records
    in lite queues.
    """
    sizes = messages.headers["size"][routed.order].astype(np.int64)
    total = int(sizes.sum())
    inline = total <= settings.inline_bytes
    offsets = row_offsets(messages, properties, routed, counts_inner)
    stretches = cut_segments(routed, offsets, unknown_ends(len(routed.topics)))
    object_bytes = 0 if inline else settings.object_bytes
    pieces = cut_rows(sizes, stretches, block_bytes=settings.block_bytes, object_bytes=object_bytes)
    if inline and not _tables_fit(properties, routed, pieces, settings.dictionary_bytes):
        inline = False
        pieces = cut_rows(
            sizes, stretches, block_bytes=settings.block_bytes, object_bytes=settings.object_bytes
        )
    gathered, memory = _gather(messages, routed.order, pieces.byte_start, memory)
    position_of = np.full(len(messages.headers), -1, dtype=np.int32)
    position_of[routed.order] = np.arange(len(routed.order), dtype=np.int32)
    key_position, key_hash = _keys(properties, position_of)
    return GatheredFlush(
        routed, offsets, pieces, message_rows(messages, properties, routed.order, offsets.owned), properties.tags,
        memory, gathered, pieces.byte_start[pieces.block_start], inline, key_position, key_hash,
        gather_aliases(places, position_of),
    )  # fmt: skip


def _gather(
    messages: MessageBatch, order: Ints, byte_start: Ints, into: memoryview
) -> tuple[memoryview, memoryview]:
    """The records' bytes in sorted order, at the start of ``into`` (or of a new one): each at its ``byte_start``."""
    total = int(byte_start[-1])
    memory = into if len(into) >= total else np.empty(total + total // 4, np.uint8).data
    starts = messages.headers["position"][order]
    copy_ranges(messages.buffer, starts, np.diff(byte_start), memory, byte_start[:-1])
    return memory[:total], memory


def _tables_fit(properties: PropertyColumns, routed: Routed, pieces: Cut, dictionary: int) -> bool:
    """Whether the tables, too, are small enough for inline data."""
    names = chain((4 * len(topic) for topic in set(routed.topics)), map(len, properties.tags))
    return tables_fit(
        rows=len(routed.order),
        keys=len(properties.key_hash),
        runs=len(pieces.run_start) - 1,
        blocks=len(pieces.block_start) - 1,
        names=names,
        dictionary=dictionary,
    )


def _keys(
    properties: PropertyColumns, position_of: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
    """Sorted position and hash of every key, ascending by position; keys of excluded rows left out."""
    position, hashes = position_of[properties.key_row], properties.key_hash
    kept = position >= 0
    if not kept.all():
        position, hashes = position[kept], hashes[kept]
    by_position = np.argsort(position, kind="stable")
    return position[by_position], hashes[by_position]
