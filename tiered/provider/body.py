"""An upload's body: several buffers seen as one stream, without joining them."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from tiered.codec.types import Buffer

READ_BYTES = 256 * 1024
"""Least size of a piece handed out: HTTP clients ask for 16 KiB at a time, which costs a system call each."""

JOIN_BYTES = 12 * 1024 * 1024
"""Bodies up to this size are joined: one copy is cheaper than a stream and its extra round trip (100-continue)."""


MAX_BUFFERS = 1024
"""Buffers a system call takes: IOV_MAX on Linux."""


def views(parts: Sequence[Buffer]) -> list[memoryview]:
    """Flat byte views of the parts, empty ones left out."""
    out = []
    for part in parts:
        view = memoryview(part)
        if view.nbytes:
            out.append(view if view.format == "B" and view.ndim == 1 else view.cast("B"))
    return out


def body_length(parts: Sequence[Buffer]) -> int:
    """Bytes in all parts."""
    return sum(memoryview(part).nbytes for part in parts)


def joined(parts: Sequence[Buffer]) -> bytes:
    """The parts as one ``bytes``; no copy if it is one already."""
    if len(parts) == 1 and isinstance(parts[0], bytes):
        return parts[0]
    return b"".join(parts)


def split(parts: Sequence[Buffer], size: int) -> Iterator[list[memoryview]]:
    """Cut the concatenation into pieces of ``size`` bytes (the last one shorter), as views."""
    piece: list[memoryview] = []
    room = size
    for view in views(parts):
        while view.nbytes:
            taken, view = view[:room], view[room:]
            piece.append(taken)
            room -= taken.nbytes
            if not room:
                yield piece
                piece, room = [], size
    if piece:
        yield piece


class PartsStream:
    """A seekable, file-like reader over several buffers.

    ``read(n)`` may hand out up to ``READ_BYTES`` even when asked for less, and hands out views: its readers (hashing and
    the HTTP client) take any piece they get. It never hands out bytes of two parts at once, so nothing is copied.
    """

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self._views = views(parts)
        self._length = sum(view.nbytes for view in self._views)
        self._index = 0
        self._within = 0
        self._position = 0

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return True

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; as in ``io``."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        target = max(0, min(base + offset, self._length))
        self._position, self._index, rest = target, 0, target
        while self._index < len(self._views) and rest >= self._views[self._index].nbytes:
            rest -= self._views[self._index].nbytes
            self._index += 1
        self._within = rest
        return target

    def read(self, size: int | None = None) -> bytes | memoryview:
        """The next piece; ``b""`` at the end. Without a size: all that is left, joined."""
        if size is None or size < 0:
            rest = (
                [self._views[self._index][self._within :], *self._views[self._index + 1 :]]
                if self._index < len(self._views)
                else []
            )
            self.seek(0, io.SEEK_END)
            return b"".join(rest)
        if size == 0 or self._index >= len(self._views):
            return b""
        view = self._views[self._index]
        end = min(self._within + max(size, READ_BYTES), view.nbytes)
        piece = view[self._within : end]
        self._position += piece.nbytes
        self._within = end
        if end == view.nbytes:
            self._index, self._within = self._index + 1, 0
        return piece


class CutStream(PartsStream):
    """A body that breaks off half way, for the probe: reads ``whole_passes`` times to the end (an HTTP client that signs the
    body reads it once before), and fails in the middle of the next pass."""

    def __init__(self, parts: Sequence[Buffer], *, whole_passes: int) -> None:
        # Pieces of an eighth: a read hands out one at most, so that the break comes near the middle.
        whole = body_length(parts)
        super().__init__([view for piece in split(parts, max(1, whole // 8)) for view in piece])
        self._passes_left = whole_passes

    def read(self, size: int | None = None) -> bytes | memoryview:
        """As ``PartsStream.read``, then ``ConnectionAbortedError``."""
        if self._passes_left <= 0 and self.tell() * 2 >= len(self):
            raise ConnectionAbortedError("cut on purpose by the probe")
        piece = super().read(size)
        if not piece:
            self._passes_left -= 1
        return piece


def digest(algorithm: str, parts: Sequence[Buffer]) -> str:
    """Base64 of a checksum over the parts, as S3's ``x-amz-checksum-*`` headers want it (big-endian for the CRCs)."""
    if algorithm in ("CRC32", "CRC32C"):
        update: Callable[[Buffer, int], int] = zlib.crc32 if algorithm == "CRC32" else crc32c
        value = 0
        for view in views(parts):
            value = update(view, value)
        raw = value.to_bytes(4, "big")
    else:
        hasher = hashlib.new(algorithm.lower(), usedforsecurity=False)
        for view in views(parts):
            hasher.update(view)
        raw = hasher.digest()
    return base64.b64encode(raw).decode("ascii")


def write_all(descriptor: int, left: list[memoryview]) -> int:
    """Write the views to a file, however often it takes; the bytes written. ``left`` is used up."""
    total = sum(view.nbytes for view in left)
    at = 0
    while at < len(left):
        written = os.writev(descriptor, left[at : at + MAX_BUFFERS])
        while at < len(left) and written >= left[at].nbytes:
            written -= left[at].nbytes
            at += 1
        if written:
            left[at] = left[at][written:]
    return total


def pread(descriptor: int, position: int, length: int) -> bytes:
    """Read ``length`` bytes; fewer only if the file is shorter by now. One system call where the kernel allows it."""
    data = os.pread(descriptor, length, position)
    if len(data) == length or not data:
        return data
    pieces = [data]
    done = len(data)
    while done < length:
        piece = os.pread(descriptor, length - done, position + done)
        if not piece:
            break
        pieces.append(piece)
        done += len(piece)
    return b"".join(pieces)
