"""Java's ``String.hashCode``, which RocketMQ uses for tags and keys: h = 31 h + UTF-16 unit, in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_LAST_ASCII = 0x7F


def java_hash(text: str) -> int:
    """``text.hashCode()`` as Java computes it: a signed 32-bit int over UTF-16 code units."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").astype(np.uint32)
    if len(units) == 0:
        return 0
    return int(_fold(units, np.array([0]), np.array([len(units)]))[0])


def java_hashes(texts: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """``java_hash`` of many UTF-8 texts at once (malformed bytes count as U+FFFD, as Java decodes them)."""
    hashes = np.zeros(len(texts), np.int32)
    blob = b"".join(texts)
    if not blob.isascii():
        plain = [row for row, text in enumerate(texts) if text.isascii()]
        for row, text in enumerate(texts):
            if not text.isascii():
                hashes[row] = java_hash(text.decode("utf-8", "replace"))
        hashes[plain] = java_hashes([texts[row] for row in plain])
        return hashes
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    some = np.flatnonzero(lengths)
    if len(some):
        ends = np.cumsum(lengths[some])
        hashes[some] = _fold(np.frombuffer(blob, np.uint8).astype(np.uint32), ends - lengths[some], ends)
    return hashes


def java_hashes_alike(texts: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32] | None:
    """``java_hash`` of texts of one length, a row of bytes each, without an object for any; ``None`` if one is not ASCII."""
    if texts.size and texts.max() > _LAST_ASCII:
        return None
    hashes = np.zeros(len(texts), np.uint32)
    for units in texts.T:
        hashes *= np.uint32(31)
        hashes += units
    return hashes.view(np.int32)


def _fold(
    units: npt.NDArray[np.uint32], starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.int32]:
    """Sum of unit × 31^(units after it), modulo 2^32, over adjacent, non-empty ranges that cover
    ``units``.
    """
    lengths = ends - starts
    powers = np.ones(int(lengths.max()), np.uint32)
    powers[1:] = 31
    powers = np.cumprod(powers, dtype=np.uint32)
    after = np.repeat(ends, lengths) - 1 - np.arange(len(units))
    sums = np.add.reduceat(units * powers[after], starts, dtype=np.uint32)
    return sums.view(np.int32)
