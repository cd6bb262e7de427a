"""The one file of a map store: blocks of pairs, each behind a sum that goes on from the one before it, and an end.

Little endian. The file begins with ``MAGIC``; a frame is::

    u4 pairs, u4 bytes of keys, u8 bytes of values | u4 × pairs: lengths of keys | u4 × pairs: of values | keys | values | u4
    sum

``sum`` is the CRC-32C of ``MAGIC`` and everything behind it up to there, sums left out: so a frame that is changed, missing,
twice or elsewhere shows in the sum of its own or of the next. Keys ascend over all frames. The last frame says 0 pairs; its
"keys" are the position (``applied``) and its "values" JSON: ``pairs`` (of the whole file), ``stamp`` and ``applied`` (whether
there is a position). Nothing follows it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from tiered.codec.checksum import crc32c
from tiered.codec.format.pairs import Columns, join_pairs, split_pairs
from tiered.errors import Corrupt

MAGIC = b"RMQTMAP1"
BLOCK_PAIRS = 4 * 1024
"""Most of a frame that is written; a reader takes any number that the file has bytes for."""
_HEAD = struct.Struct("<IIQ")
_SUM = struct.Struct("<I")
_HINT = "stop the process and delete this directory: it is made again"


@dataclass(frozen=True, slots=True)
class MapEnd:
    """What the last frame says."""

    pairs: int
    stamp: str
    applied: bytes | None


def encode(blocks: Iterable[Columns], stamp: str, applied: bytes | None) -> Iterator[bytes]:
    """The file, piece by piece. Keys ascend over all ``blocks``, each of which has some."""
    value, count = crc32c(MAGIC), 0
    yield MAGIC
    for keys, values in blocks:
        sizes = sum(map(len, keys)), sum(map(len, values))
        frame = _HEAD.pack(len(keys), *sizes) + join_pairs(keys, values)
        value, count = crc32c(frame, value), count + len(keys)
        yield frame
        yield _SUM.pack(value)
    told = json.dumps(
        {"applied": applied is not None, "pairs": count, "stamp": stamp}, sort_keys=True
    ).encode()
    frame = _HEAD.pack(0, len(applied or b""), len(told)) + (applied or b"") + told
    yield frame
    yield _SUM.pack(crc32c(frame, value))


class MapReader:
    """A file, block by block. ``blocks`` first; when it is through, ``end`` says the rest."""

    def __init__(self, file: IO[bytes], path: str, length: int) -> None:
        self._file, self._path, self._left = file, path, length
        self.end: MapEnd | None = None

    def blocks(self) -> Iterator[Columns]:
        """Keys and values of each frame. ``Corrupt`` at the first thing that is not as it was written."""
        value, count, last = crc32c(self._taken(len(MAGIC))), 0, None
        if value != crc32c(MAGIC):
            raise self._damaged("a file that begins with the format's name", "another beginning")
        while self.end is None:
            head = self._taken(_HEAD.size)
            pairs, key_bytes, value_bytes = _HEAD.unpack(head)
            body = self._taken(8 * pairs + key_bytes + value_bytes)
            value = crc32c(body, crc32c(head, value))
            if self._taken(_SUM.size) != _SUM.pack(value):
                raise self._damaged("the sum of what stands before it", "another one")
            if pairs:
                keys, values = self._pairs(body, pairs, key_bytes)
                if last is not None and keys[0] <= last:
                    raise self._damaged("keys that ascend", keys[0].hex())
                count, last = count + pairs, keys[-1]
                yield keys, values
            else:
                self.end = self._told(body, key_bytes, count)
        if self._left:
            raise self._damaged("the end of the file", f"{self._left} bytes more")

    def _taken(self, count: int) -> bytes:
        data = self._file.read(count) if count <= self._left else b""
        if len(data) != count:
            raise self._damaged(f"{count} bytes more", f"{self._left}")
        self._left -= count
        return data

    def _pairs(self, body: bytes, pairs: int, key_bytes: int) -> Columns:
        try:
            keys, values = split_pairs(body, pairs)
        except ValueError as e:
            raise self._damaged("pairs behind their lengths", str(e)) from e
        if sum(map(len, keys)) != key_bytes:
            raise self._damaged(f"{key_bytes} bytes of keys", "others")
        return keys, values

    def _told(self, body: bytes, key_bytes: int, count: int) -> MapEnd:
        try:
            told = json.loads(body[key_bytes:])
            end = MapEnd(
                int(told["pairs"]), str(told["stamp"]), body[:key_bytes] if told["applied"] else None
            )
        except (ValueError, KeyError, TypeError) as e:
            raise self._damaged("an end of JSON", str(e)) from e
        if end.pairs != count:
            raise self._damaged(f"{end.pairs} pairs", f"{count}")
        return end

    def _damaged(self, expected: str, found: str) -> Corrupt:
        return Corrupt(
            "the file of a map store is damaged", hint=_HINT, path=self._path, expected=expected, found=found
        )
