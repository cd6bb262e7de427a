"""All queues of an archive behind its checkpoint, a stretch of their keys after the other: for who lists them and may stop.

What commits behind a checkpoint changed lies anywhere among the queues: to fold it for all of them reads nearly every shard,
even if a page of twenty is shown. So the topics are cut where shards of the checkpoint begin, and the commits are
folded for the topics of each piece alone, as for a reader of one topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
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

LARGE_PIECE_BYTES = 48 * 1024 * 1024
"""Of all that is kept of queues in a piece, for who goes through everything: each piece folds all commits once more."""

_TOPIC_END = topic_key("")
Listed = TypeVar("Listed")


def in_pieces(
    view: MetadataView,
    listed: Callable[[MetadataView], Iterator[Listed]],
    *,
    prefix: str = "",
    after: str | None = None,
    kind: bytes = QUEUE,
) -> Iterator[Listed]:
    """What ``listed`` finds in ``view`` about topics that begin with ``prefix``, from the topic ``after`` on, in order.

    ``listed`` is asked of one piece after the other, each a view of the queues of some topics as wholes; or of ``view`` where
    nothing lies behind a checkpoint. ``kind`` (``QUEUE``, ``LITE_QUEUE``): what it goes through.
    """
    low = topic_beginning(prefix)
    end = prefix_end(low)
    if after is not None:
        low = max(low, topic_key(after))
    for piece in _pieces(view, lambda manifest: _stretches(_begins(manifest, (kind,)), low, end)):
        yield from listed(piece)


def all_pieces(view: MetadataView) -> Iterator[MetadataView]:
    """Pieces as of ``in_pieces``, of all that is kept of queues; or ``view`` where nothing lies behind a checkpoint."""
    kinds = sorted(OF_QUEUES)
    return _pieces(
        view,
        lambda manifest: _stretches(
            _begins(manifest, kinds), b"", None, LARGE_PIECE_BYTES, LARGE_PIECE_BYTES
        ),
    )


def _pieces(
    view: MetadataView, cut: Callable[[Manifest], Iterator[tuple[bytes, bytes | None]]]
) -> Iterator[MetadataView]:
    manifest = view.behind() if isinstance(view, PartialView) else None
    if manifest is None or not isinstance(view, PartialView):
        yield view
        return
    for first, until in cut(manifest):
        yield _Piece(view.part(Scope.between(first, until)), first, until)


def _begins(manifest: Manifest, kinds: Collection[bytes]) -> list[tuple[bytes, int]]:
    """Keys of topics in which shards of these kinds begin, ascending, and the bytes of the shards."""
    found = []
    for shard in manifest.shards:
        if shard.first_key[:1] in kinds:
            key = shard.first_key[1:]
            # The topic that a shard begins in belongs to what is behind.
            found.append((key[: key.index(_TOPIC_END) + len(_TOPIC_END)], shard.raw_bytes))
    return sorted(found)


def _stretches(
    begins: Sequence[tuple[bytes, int]],
    low: bytes,
    end: bytes | None,
    most: int = 0,
    largest: int | None = None,
) -> Iterator[tuple[bytes, bytes | None]]:
    """[``low``, ``end``) of the keys of topics, cut where shards begin. ``most``: bytes of the first, ``largest`` of any."""
    size, first, bound = 0, low, PIECE_BYTES if largest is None else largest
    for start, raw_bytes in begins:
        if end is not None and start >= end:
            break
        if start > first and size > most:
            yield first, start
            first, size, most = start, 0, min(max(2 * most, raw_bytes), bound)
        size = size + raw_bytes if start >= low else raw_bytes
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
