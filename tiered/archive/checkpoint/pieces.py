"""All queues of an archive behind its checkpoint, a stretch of their keys after the other: for who lists them and may stop.

What commits behind a checkpoint changed lies anywhere among the queues: to fold it for all of them reads nearly every shard,
even if a page of twenty is shown. So the topics are cut where shards of the checkpoint begin, and the commits are
folded for the topics of each piece alone, as for a reader of one topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tiered.archive.checkpoint.format import Manifest
from tiered.archive.checkpoint.partial import PartialView
from tiered.archive.state.keys import QUEUE, topic_beginning, topic_key
from tiered.archive.state.layers import Pair
from tiered.archive.state.scope import OF_QUEUES, Scope
from tiered.metadata.base import MetadataView
from tiered.metadata.prefix import prefix_end

PIECE_BYTES = 8 * 1024 * 1024
"""Of the records of queues in a piece, at most about so much; the first piece is one shard, and each twice the one before."""

_TOPIC_END = topic_key("")
Listed = TypeVar("Listed")


def in_pieces(
    view: MetadataView,
    listed: Callable[[MetadataView], Iterator[Listed]],
    *,
    prefix: str = "",
    after: str | None = None,
) -> Iterator[Listed]:
    """What ``listed`` finds in ``view`` about topics that begin with ``prefix``, from the topic ``after`` on, in order.

    ``listed`` is asked of one piece after the other, each a view of the queues of some topics as wholes; or of ``view`` where
    nothing lies behind a checkpoint.
    """
    for piece in _pieces(view, prefix, after):
        yield from listed(piece)


def _pieces(view: MetadataView, prefix: str, after: str | None) -> Iterator[MetadataView]:
    manifest = view.behind() if isinstance(view, PartialView) else None
    if manifest is None or not isinstance(view, PartialView):
        yield view
        return
    low = topic_beginning(prefix)
    end = prefix_end(low)
    if after is not None:
        low = max(low, topic_key(after))
    for first, until in _stretches(manifest, low, end):
        yield _Piece(view.part(Scope.between(first, until)), first, until)


def _stretches(manifest: Manifest, low: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes | None]]:
    """[``low``, ``end``) of the keys of topics, cut where shards begin."""
    most, size, first = 0, 0, low
    for shard in manifest.shards:
        if shard.first_key[:1] != QUEUE:
            continue
        key = shard.first_key[1:]
        # The topic that a shard begins in belongs to what is behind.
        start = key[: key.index(_TOPIC_END) + len(_TOPIC_END)]
        if end is not None and start >= end:
            break
        if start > first and size > most:
            yield first, start
            first, size, most = start, 0, min(max(2 * most, shard.raw_bytes), PIECE_BYTES)
        size = size + shard.raw_bytes if start >= low else shard.raw_bytes
    yield first, end


class _Piece:
    """A ``MetadataView`` of the queues of a stretch of topics, and of what is of no queue."""

    def __init__(self, view: PartialView, first: bytes, end: bytes | None) -> None:
        self._view = view
        self._first = first
        self._end = end

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._view.get_many(keys)

    def iterate(self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False) -> Iterator[Pair]:
        kind = prefix[:1]
        if reverse or kind not in OF_QUEUES:
            return self._view.iterate(prefix, start=start, reverse=reverse)
        low = max(prefix, kind + self._first, b"" if start is None else start)
        return self._view.walk(prefix, low, None if self._end is None else kind + self._end)

    def applied(self) -> bytes | None:
        return self._view.applied()
