"""The upload buffer: references into held files, never bodies. What lies here can be read again from the hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiered.codec.types import Ints
from tiered.model import PhysicalOffset
from tiered.source.base import Chunk


@dataclass(frozen=True, slots=True)
class Extent:
    """One contiguous physical range of confirmed records, all in one commitlog file: what one flush takes.

    ``starts`` are relative to ``start``. ``next_offset`` is where the log goes on: ``end``, or the next file.
    """

    start: PhysicalOffset
    end: PhysicalOffset
    next_offset: PhysicalOffset
    starts: Ints
    sizes: Ints
    blank_header: bytes
    first_seen: float
    file_finished: bool

    @property
    def length(self) -> int:
        """Bytes of records."""
        return self.end - self.start


class UploadBuffer:
    """Chunks gathered until a flush is due: by bytes, by count, by age of the oldest, or at a commitlog file's end."""

    def __init__(self, *, max_bytes: int, max_count: int, max_age_seconds: float) -> None:
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._max_age = max_age_seconds
        self._chunks: list[Chunk] = []
        self._first_seen = 0.0
        self._dropped_since: float | None = None
        """When the oldest was seen of what was dropped, and is read again."""
        self.bytes = 0
        self.count = 0

    def __bool__(self) -> bool:
        return bool(self._chunks)

    @property
    def room_bytes(self) -> int:
        """Bytes that may still be taken before a flush is due."""
        return max(0, self._max_bytes - self.bytes)

    @property
    def room_count(self) -> int:
        """Messages that may still be taken before a flush is due."""
        return max(0, self._max_count - self.count)

    def add(self, chunk: Chunk, now: float) -> None:
        """Take a chunk that begins where the last one ended, in the same file; ``ValueError`` otherwise."""
        if self._chunks and (self._chunks[-1].next_offset != chunk.start or self._chunks[-1].file_finished):
            raise ValueError("a flush is one contiguous physical range inside one file")
        if not self._chunks:
            seen = now if self._dropped_since is None else self._dropped_since
            self._first_seen = max(seen, now - self._max_age)  # the broker may have lost what was dropped
            self._dropped_since = None
        self._chunks.append(chunk)
        self.bytes += chunk.end - chunk.start
        self.count += len(chunk.starts)

    def due(self, now: float) -> bool:
        """Whether it is time to flush."""
        if not self._chunks:
            return False
        full = self.bytes >= self._max_bytes or self.count >= self._max_count
        return full or self._chunks[-1].file_finished or now >= self._first_seen + self._max_age

    def due_in(self, now: float) -> float | None:
        """Seconds until the oldest message is of age; ``None`` when empty."""
        return max(0.0, self._first_seen + self._max_age - now) if self._chunks else None

    def take(self) -> Extent:
        """Everything gathered, as one extent; the buffer is empty afterwards."""
        chunks = self._chunks
        start, last = chunks[0].start, chunks[-1]
        extent = Extent(
            start=start,
            end=last.end,
            next_offset=last.next_offset,
            starts=np.concatenate([c.starts + (c.start - start) for c in chunks]),
            sizes=np.concatenate([c.sizes for c in chunks]),
            blank_header=last.blank_header,
            first_seen=self._first_seen,
            file_finished=last.file_finished,
        )
        self._empty()
        return extent

    def drop(self) -> None:
        """Forget what was gathered: it is read again."""
        if self._chunks:
            self.read_again(self._first_seen)
        self._empty()

    def read_again(self, first_seen: float) -> None:
        """What is added next was seen at that time already, and does not wait for longer because it is read once more."""
        self._dropped_since = first_seen

    def _empty(self) -> None:
        self._chunks = []
        self.bytes = 0
        self.count = 0
