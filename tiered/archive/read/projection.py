"""Projections by key that lie in the bucket: the newest one of a queue that holds at a commit, and what it says.

Nothing depends on one being there: what a projection says is in the messages, too, which are read where none holds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import Area, ProjectionKey, parse, queue_folder
from tiered.archive.read.flatfile import RunReader
from tiered.archive.read.view import View
from tiered.codec.format.projection import ProjectionHead, decode_chunk, decode_head, head_bytes
from tiered.codec.format.sections import Section
from tiered.errors import Corrupt, NotFound, Refused
from tiered.model import MessageQueue
from tiered.provider.base import Provider, Stored

TAIL_BYTES = 16 * 1024
"""Asked for first: the head of a projection of a million keys."""
READ_BYTES = 8 * 1024 * 1024
MOST_TRIED = 4
"""Projections of a queue that are looked at, the newest first. Whatever made one not hold made older ones the same, mostly."""


@dataclass(frozen=True, slots=True)
class Projection:
    """A projection in the bucket. ``path`` is relative to the broker's root."""

    path: str
    key: str
    head: ProjectionHead
    provider: Provider

    def entries(self) -> Iterator[npt.NDArray[np.void]]:
        """The newest message of each key, as hashes and offsets, some at a time. ``Corrupt`` if it is damaged, ``NotFound`` if
        it is gone."""
        chunks = list(self.head.chunks)
        while chunks:
            some = _at_once(chunks)
            del chunks[: len(some)]
            start = some[0].position
            length = some[-1].range.end - start
            data = memoryview(self.provider.get(self.key, start, length).data)
            for chunk in some:
                at = chunk.position - start
                yield decode_chunk(data[at : at + chunk.length], chunk, key=self.key)


def read_projection(provider: Provider, key: str, path: str) -> Projection:
    """The projection under a key. ``Corrupt``, ``Refused`` or ``NotFound`` if it cannot be read; its entries are read later."""
    tail = memoryview(provider.get(key, -TAIL_BYTES).data)
    wanted = head_bytes(tail, key=key)
    if wanted > len(tail):
        tail = memoryview(provider.get(key, -wanted).data)
    return Projection(path, key, decode_head(tail, key=key), provider)


def newest_projection(view: View, queue: MessageQueue, *, without: Collection[str] = ()) -> Projection | None:
    """The newest projection of a queue's current generation that holds at the commit of the view; ``None`` if there is none.
    ``without``: paths that are known to be damaged."""
    known, keys = view.known(queue), view.keys
    if known is None or view.head is None:
        return None
    found = []
    for stored in listed_projections(view.log.provider, keys.prefix(Area.PROJECTION), queue):
        path = str(keys.path(stored.key))
        made = parse(path)
        if isinstance(made, ProjectionKey) and made.seq <= view.head.seq and path not in without:
            found.append(path)
    for path in reversed(found[-MOST_TRIED:]):
        with contextlib.suppress(Corrupt, Refused, NotFound):
            projection = read_projection(view.log.provider, keys.key(path), path)
            if holds(view, queue, projection.head):
                return projection
    return None


def listed_projections(provider: Provider, prefix: str, queue: MessageQueue) -> Iterator[Stored]:
    """What is stored of a queue's projections, the oldest first. ``prefix``: of all projections."""
    return provider.list(f"{prefix}{queue_folder(queue)}/")


def holds(view: View, queue: MessageQueue, head: ProjectionHead) -> bool:
    """Whether what a projection says is true at the commit of the view: it is not younger, and the last message that it knows
    is the queue's own, archived by the same commit. Then so are all before it: a rewind cuts a queue's end, never its middle,
    and what is archived in the place of what was cut came with another commit."""
    if view.head is None or head.archive_id != view.identity.archive_id or head.queue != queue:
        return False
    known = archived_by(view, queue, head.generation, head.end) if head.seq <= view.head.seq else None
    return known is not None and known == head.last_commit


def archived_by(view: View, queue: MessageQueue, generation: int, end: int) -> int | None:
    """The commit that archived the message below queue offset ``end``; ``None`` where this generation has none, or is not the
    current one."""
    known = view.known(queue)
    if known is None or known.generation != generation:
        return None
    run = next(view.state.runs(queue, generation, from_offset=end - 1), None)
    if run is None or not run.start < end <= run.end:
        return None
    return RunReader(view.state, view.objects).commit_of(run, end - 1)


def _at_once(chunks: list[Section]) -> list[Section]:
    """As many of the first chunks as are read by one request; at least one."""
    count = 1
    while count < len(chunks) and chunks[count].range.end - chunks[0].position <= READ_BYTES:
        count += 1
    return chunks[:count]
