"""zstd, one-shot and bounded: the only door to the compression library (but for ``dictionary``), and to its way of naming many
pieces of a buffer.

Compressors and decompressors are costly to make and must not be shared by two threads at once, so idle ones
wait in free lists (``list.pop`` and ``list.append`` are atomic). Both directions let go of the
interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from tiered.codec.dictionary import Dictionary
from tiered.codec.types import Buffer
from tiered.errors import Corrupt

_SMALLEST_BLOCK, _LARGEST_CONTENT = 4, 128 * 1024  # of a zstd block: no frame expands more than this


_idle_compressors: dict[int, list[zstandard.ZstdCompressor]] = {}
_idle_decompressors: list[zstandard.ZstdDecompressor] = []


def deflate(raw: Buffer, *, level: int) -> bytes:
    """One zstd frame with its content size in the header and no checksum of its own. Thread-safe."""
    idle = _idle_compressors.setdefault(level, [])
    try:
        compressor = idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=level, write_content_size=True, write_checksum=False)
    stored = compressor.compress(raw)
    idle.append(compressor)
    return stored


def deflate_pieces(
    raw: Buffer,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    *,
    level: int,
    dictionary: Dictionary | None = None,
) -> list[Buffer]:
    """``deflate`` of every ``raw[starts[i]:starts[i] + lengths[i]]``, byte for byte; no piece may be empty. Thread-safe.
    ``dictionary``: what frames refer to, without naming it.

    The interpreter lock is let go of once for all of them and not twice for each: taking it back from a busy
    thread costs milliseconds.
    """
    if "multi_compress_to_buffer" not in zstandard.backend_features:
        view = memoryview(raw)
        one = deflate if dictionary is None else partial(_deflate_with, dictionary)
        return [
            one(view[a : a + n], level=level) for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)
        ]
    compressor = _compressor(level, dictionary)
    made: Any = compressor.multi_compress_to_buffer(_segments(raw, starts, lengths), threads=1)
    return list(map(made.__getitem__, range(len(made))))


def _deflate_with(dictionary: Dictionary, raw: Buffer, *, level: int) -> bytes:
    return _compressor(level, dictionary).compress(raw)


def _compressor(level: int, dictionary: Dictionary | None) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(
        level=level,
        dict_data=None if dictionary is None else dictionary.made,
        write_content_size=True,
        write_checksum=False,
        write_dict_id=False,  # four bytes of some seventy, and the object says it
    )


def each_piece(
    raw: Buffer, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> Iterable[Buffer]:
    """Every ``raw[starts[i]:starts[i] + lengths[i]]``, not copied, to go through once, in C: a quarter of what views and slices
    cost. ``ValueError`` if a piece lies outside of ``raw``."""
    if ((starts < 0) | (lengths < 0) | (lengths > memoryview(raw).nbytes - starts)).any():
        raise ValueError("a piece lies outside of its buffer")
    if "buffer_types" not in zstandard.backend_features:
        view = memoryview(raw)
        return map(view.__getitem__, map(slice, starts.tolist(), (starts + lengths).tolist()))
    pieces: Any = _segments(raw, starts, lengths)  # a sequence: it has a length and items
    found: Iterable[Buffer] = iter(pieces)
    return found


def _segments(
    raw: Buffer, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> zstandard.BufferWithSegments:
    """The library trusts numbers above 2⁶³: whoever asks has seen that pieces lie inside."""
    return zstandard.BufferWithSegments(raw, np.stack([starts, lengths], axis=1).astype("=u8").tobytes())


def inflate(
    stored: Buffer,
    *,
    raw_length: int | None,
    bound: int,
    key: str,
    position: int | None,
    dictionary: Dictionary | None = None,
) -> bytes:
    """The content of exactly one frame; nothing may follow it. ``dictionary``: the one that it was compressed with.

    The frame must state its content size: ``raw_length`` if that is given, in any case at least 1, at most
    ``bound`` bytes, and no more than zstd could make of so few bytes; all this is looked at before a byte is
    allocated. ``Corrupt`` otherwise. Thread-safe.
    """
    try:
        stated = zstandard.frame_content_size(stored)
    except zstandard.ZstdError as error:
        raise Corrupt(
            "bytes that should be a zstd frame are not one",
            key=key,
            position=position,
            expected="a frame header",
            found=str(error),
        ) from error
    bound = min(bound, len(stored) // _SMALLEST_BLOCK * _LARGEST_CONTENT)
    if not 1 <= stated <= bound or (raw_length is not None and stated != raw_length):
        raise Corrupt(
            "a zstd frame states a content size that cannot be right",
            key=key,
            position=position,
            expected=f"1 to {bound} bytes" if raw_length is None else f"{raw_length} bytes, at most {bound}",
            found="no size" if stated < 0 else stated,
        )
    try:
        decompressor = _taken(dictionary)
        raw = decompressor.decompress(stored, max_output_size=stated, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Corrupt(
            "a zstd frame does not decompress",
            key=key,
            position=position,
            expected=f"{stated} bytes",
            found=str(error),
        ) from error
    if dictionary is None:
        _idle_decompressors.append(decompressor)
    else:
        dictionary.give_back(decompressor)
    if len(raw) != stated:
        raise Corrupt(
            "a zstd frame is shorter than it states",
            key=key,
            position=position,
            expected=stated,
            found=len(raw),
        )
    return raw


def _taken(dictionary: Dictionary | None) -> zstandard.ZstdDecompressor:
    if dictionary is not None:
        return dictionary.take()
    try:
        return _idle_decompressors.pop()
    except IndexError:
        return zstandard.ZstdDecompressor()
