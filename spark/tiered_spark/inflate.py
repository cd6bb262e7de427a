"""Bodies that clients compressed, inflated as RocketMQ's own clients do it."""

from __future__ import annotations

import zlib

import pyarrow as pa
import zstandard

from tiered.codec.record.layout import SYS_COMPRESSION_TYPE

MAX_BODY_BYTES = 256 << 20
"""Largest body that is decompressed: the largest message that a broker can be told to take."""

_LZ4, _ZSTD, _ZLIB = 0x100, 0x200, 0x300  # 0: zlib, as brokers before 5.0 wrote it

_ZSTD_PIECE = 1 << 10
"""Fed at once: 4 bytes of a frame may stand for 128 KiB."""

_LZ4_STEP = 1 << 17

_EARLY = "it ends early"


class Inflater:
    """Inflates bodies, one after the other. Not for several threads.

    As the Java client does, what follows the end of a zlib stream is left out; of zstd and LZ4 all frames count, and what
    follows them and is not a stream is an error.
    """

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def inflate(self, body: memoryview, flags: int) -> bytes:
        """The whole content of a body with these system flags. ``ValueError`` says what is wrong with it."""
        method = flags & SYS_COMPRESSION_TYPE
        try:
            if method in (0, _ZLIB):
                return _from_zlib(body)
            if method == _ZSTD:
                return self._from_zstd(body)
            if method == _LZ4:
                return _from_lz4(body)
        except (zlib.error, zstandard.ZstdError, OSError, pa.ArrowException) as error:
            raise ValueError(str(error)) from error
        raise ValueError(f"unknown method {method >> 8}")

    def _from_zstd(self, body: memoryview) -> bytes:
        made, at = _Parts(), 0
        while at < len(body):
            frame = self._zstd.decompressobj()
            while not frame.eof:
                piece = body[at : at + _ZSTD_PIECE]
                if not piece:
                    raise ValueError(_EARLY)
                made.add(frame.decompress(piece))
                at += len(piece)
            at -= len(frame.unused_data)
        return made.joined()


def _from_zlib(body: memoryview) -> bytes:
    stream = zlib.decompressobj()
    found = stream.decompress(body, MAX_BODY_BYTES + 1)
    _check_size(len(found))
    if not stream.eof:
        raise ValueError(_EARLY)
    return found


def _from_lz4(body: memoryview) -> bytes:
    made = _Parts()
    with pa.CompressedInputStream(pa.py_buffer(body), "lz4") as stream:
        while part := stream.read(_LZ4_STEP):
            made.add(part)
    return made.joined()


class _Parts:
    """What was inflated so far, never much more than a body may have."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        """``ValueError`` if it is too much."""
        self._parts.append(part)
        self._size += len(part)
        _check_size(self._size)

    def joined(self) -> bytes:
        """All of it."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def _check_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise ValueError(f"more than {MAX_BODY_BYTES} bytes")
