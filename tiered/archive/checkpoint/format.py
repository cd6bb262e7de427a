"""Checkpoint shards and manifests: bytes to pairs and back (``CHECKPOINT.md``). Pure; no store in here.

A shard holds consecutive pairs of the fold. Where one ends depends on the keys alone (a hash of the key that
begins the next), so a change in one place leaves the shards elsewhere byte for byte the same, and they are
not written again.
"""

from __future__ import annotations

import operator
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress, islice
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import xxhash

from tiered.archive.keys import Area, ObjectKey, parse
from tiered.archive.state.layout import FOLD_VERSION
from tiered.codec.checksum import crc32c
from tiered.codec.format.encryption import OBJECT_FOOTER_BYTES, encrypted_footer
from tiered.codec.format.sections import NAME_A_KEY
from tiered.codec.zstd import deflate, inflate
from tiered.errors import Corrupt, Refused

Pair = tuple[bytes, bytes]

CHECKPOINT_VERSION = 1
SHARD_MAGIC = b"RMQTSHD1"
MANIFEST_MAGIC = b"RMQTCKP1"
SHARD_BYTES = 4 * 1024 * 1024
"""Raw bytes of an average shard."""
MAX_RAW_BYTES = 64 * 1024 * 1024
"""Largest raw shard believed when reading."""
MAX_MANIFEST_BYTES = 64 * 1024 * 1024

_SHARD_HEAD = struct.Struct("<8sIII")  # magic, pairs, stored body bytes, CRC32C of the stored body
_MANIFEST_TAIL = struct.Struct("<II8s")  # bytes before, CRC32C of them, magic
_TYPICAL_PAIR_BYTES = 192
_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a manifest. ``path`` is relative to the broker's root; ``digest`` is XXH3-128 of the raw
    body."""

    path: str
    first_key: bytes
    last_key: bytes
    pairs: int
    raw_bytes: int
    stored_bytes: int
    crc32c: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint: a fold up to and including commit ``seq``, in shards. ``key`` is where it lies in the
    store."""

    key: str
    archive_id: bytes
    seq: int
    commit_id: bytes
    epoch: int
    shards: Sequence[Shard]
    version: int = field(default=CHECKPOINT_VERSION)

    @property
    def root(self) -> str:
        """What stands before every path of this archive in the store's keys."""
        return self.key[: self.key.rindex("checkpoint/")]


def cut(pairs: Iterable[Pair], shard_bytes: int) -> Iterator[list[Pair]]:
    """Ascending pairs in pieces of about ``shard_bytes``: a new piece begins at a key whose hash says so, or
    when a piece has grown to four times that."""
    odds = max(1, shard_bytes // _TYPICAL_PAIR_BYTES)
    mask = (1 << (odds.bit_length() - 1)) - 1
    limit, size = shard_bytes * 4, 0
    piece: list[Pair] = []
    hashed = xxhash.xxh3_64_intdigest
    for pair in pairs:
        if piece and (hashed(pair[0]) & mask == 0 or size >= limit):
            yield piece
            piece, size = [], 0
        piece.append(pair)
        size += len(pair[0]) + len(pair[1])
    if piece:
        yield piece


def encode_body(pairs: Sequence[Pair]) -> bytes:
    """The raw body: key lengths u4, value lengths u4, keys, values."""
    keys, values = [k for k, _ in pairs], [v for _, v in pairs]
    lengths = np.fromiter(map(len, keys + values), dtype="<u4", count=2 * len(pairs))
    return b"".join((lengths.tobytes(), *keys, *values))


def encode_shard(body: bytes, pairs: int) -> bytes:
    """The object: head, then the body as one zstd frame."""
    stored = deflate(body, level=_LEVEL)
    return _SHARD_HEAD.pack(SHARD_MAGIC, pairs, len(stored), crc32c(stored)) + stored


def describe(path: str, pairs: Sequence[Pair], body: bytes, data: bytes) -> Shard:
    """The manifest's entry for an encoded shard."""
    return Shard(
        path, pairs[0][0], pairs[-1][0], len(pairs), len(body), len(data), crc32c(data), digest(body)
    )


def digest(body: bytes) -> bytes:
    """XXH3-128 of a raw body: equal bodies are not written twice."""
    return xxhash.xxh3_128_digest(body)


class ShardPairs:
    """The pairs of one shard, ascending, as they lie in its body: nothing is made for a pair until it is asked for."""

    __slots__ = ("_body", "_count", "_edges")

    def __init__(self, body: bytes, count: int, edges: npt.NDArray[np.int64]) -> None:
        self._body, self._count, self._edges = (
            body,
            count,
            edges,
        )  # where keys, then values, begin; and the end

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return len(self._body) + self._edges.nbytes

    def place(self, key: bytes) -> int:
        """How many keys are below ``key``."""
        return bisect_left(range(self._count), key, key=self._key)

    def get(self, key: bytes) -> bytes | None:
        """One value."""
        at = self.place(key)
        if at == self._count or self._key(at) != key:
            return None
        start, end = self._edges[self._count + at : self._count + at + 2].tolist()
        return self._body[start:end]

    def pairs(self, first: int = 0, end: int | None = None) -> list[Pair]:
        """Pairs [first, end) by place; all by default."""
        stop = self._count if end is None else end
        return list(
            zip(self._cut(first, stop), self._cut(self._count + first, self._count + stop), strict=True)
        )

    def values(self, places: npt.NDArray[np.int64]) -> list[bytes]:
        """Values by place."""
        starts, ends = (self._edges[self._count + places + behind].tolist() for behind in (0, 1))
        return list(map(self._body.__getitem__, map(slice, starts, ends)))

    def keys(self) -> list[bytes]:
        """All keys."""
        return self._cut(0, self._count)

    def _key(self, at: int) -> bytes:
        start, end = self._edges[at : at + 2].tolist()
        return self._body[start:end]

    def _cut(self, first: int, end: int) -> list[bytes]:
        edges = self._edges[first : end + 1].tolist()
        return list(map(self._body.__getitem__, map(slice, edges[:-1], edges[1:])))


class Named:
    """A shard's pairs with its keys made: for very many look-ups."""

    __slots__ = ("_keys", "_pairs")

    def __init__(self, pairs: ShardPairs) -> None:
        self._pairs, self._keys = pairs, pairs.keys()

    @property
    def nbytes(self) -> int:
        """Of the shard. Keys of queues take about two thirds as much again."""
        return self._pairs.nbytes

    def get_many(self, wanted: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key; ``None`` where it is not there."""
        keys, count = self._keys, len(self._keys)
        places = [bisect_left(keys, key) for key in wanted]
        there = [at < count and keys[at] == key for at, key in zip(places, wanted, strict=True)]
        values = iter(self._pairs.values(np.array(list(compress(places, there)), np.int64)))
        return [next(values) if known else None for known in there]


def open_shard(data: bytes, shard: Shard, key: str) -> ShardPairs:
    """Pairs of a shard; ``Corrupt`` unless everything that its manifest and its own head say holds."""

    def check(ok: bool, what: str, expected: object, found: object) -> None:
        if not ok:
            raise Corrupt(f"a checkpoint shard is damaged: {what}", key=key, expected=expected, found=found)

    check(len(data) == shard.stored_bytes, "length", shard.stored_bytes, len(data))
    check(len(data) >= _SHARD_HEAD.size, "length", f"≥ {_SHARD_HEAD.size}", len(data))
    check(crc32c(data) == shard.crc32c, "checksum", shard.crc32c, crc32c(data))
    magic, count, stored, crc = _SHARD_HEAD.unpack_from(data)
    check(magic == SHARD_MAGIC, "magic", SHARD_MAGIC, magic)
    body_data = memoryview(data)[_SHARD_HEAD.size :]
    check(stored == len(body_data), "body length", len(body_data), stored)
    check(crc == crc32c(body_data), "body checksum", crc, crc32c(body_data))
    body = inflate(
        body_data, raw_length=shard.raw_bytes, bound=MAX_RAW_BYTES, key=key, position=_SHARD_HEAD.size
    )
    check(digest(body) == shard.digest, "digest", shard.digest.hex(), digest(body).hex())
    check(count == shard.pairs and 8 * count <= len(body), "number of pairs", shard.pairs, count)
    lengths = np.frombuffer(body, dtype="<u4", count=2 * count).astype(np.int64)
    ends = 8 * count + np.cumsum(lengths)
    total = int(ends[-1]) if count else 0
    check(total == len(body), "lengths of keys and values", len(body), total)
    edges = np.concatenate([[8 * count], ends])
    found = ShardPairs(body, count, edges)
    keys = found.keys()
    rising = all(map(operator.lt, keys, islice(keys, 1, None)))
    check(rising, "order of keys", "ascending", "not ascending")
    outer = (keys[0], keys[-1]) if keys else (b"", b"")
    check(
        outer == (shard.first_key, shard.last_key),
        "first and last key",
        shard.first_key.hex(),
        outer[0].hex(),
    )
    return found


def encode_manifest(manifest: Manifest) -> bytes:
    """msgpack, then its length, CRC32C and magic."""
    shards = [
        [s.path, s.first_key, s.last_key, s.pairs, s.raw_bytes, s.stored_bytes, s.crc32c, s.digest]
        for s in manifest.shards
    ]
    tree = [
        manifest.version, FOLD_VERSION, manifest.archive_id, manifest.seq, manifest.commit_id, manifest.epoch, shards,
    ]  # fmt: skip
    body: bytes = msgpack.packb(tree)
    return body + _MANIFEST_TAIL.pack(len(body), crc32c(body), MANIFEST_MAGIC)


def decode_manifest(data: bytes, key: str) -> Manifest:
    """``Corrupt`` for anything that is not a whole manifest, ``Refused`` for one of a newer program."""
    size = len(data) - _MANIFEST_TAIL.size
    if size < 0:
        raise Corrupt(
            "a checkpoint manifest is too short", key=key, expected=_MANIFEST_TAIL.size, found=len(data)
        )
    length, crc, magic = _MANIFEST_TAIL.unpack_from(data, size)
    body = data[:size]
    if encrypted_footer(data, footer_bytes=OBJECT_FOOTER_BYTES, key=key) is not None:
        raise Refused("a checkpoint is encrypted, and no key is named", hint=NAME_A_KEY, key=key)
    if (length, crc, magic) != (size, crc32c(body), MANIFEST_MAGIC):
        raise Corrupt(
            "a checkpoint manifest is damaged",
            key=key,
            expected=f"{size} bytes, CRC {crc32c(body)}",
            found=f"{length} bytes, CRC {crc}",
        )
    try:
        version, fold, *rest = msgpack.unpackb(body, strict_map_key=False)
        if version > CHECKPOINT_VERSION or fold > FOLD_VERSION:
            raise Refused(
                "a checkpoint was written by a newer program",
                hint="install a newer version of this program",
                key=key,
                expected=f"≤ {CHECKPOINT_VERSION}/{FOLD_VERSION}",
                found=f"{version}/{fold}",
            )
        if fold < FOLD_VERSION:
            raise Corrupt(
                "a checkpoint holds a fold of an older layout", key=key, expected=FOLD_VERSION, found=fold
            )
        archive_id, seq, commit_id, epoch, rows = rest
        shards = tuple(_typed_shard(row) for row in rows)
        if not (
            isinstance(archive_id, bytes) and isinstance(commit_id, bytes) and isinstance(seq + epoch, int)
        ):
            raise TypeError("types of the plain fields")
    except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as e:
        raise Corrupt(
            "a checkpoint manifest makes no sense", key=key, expected="a manifest", found=str(e)
        ) from e
    return Manifest(key, archive_id, seq, commit_id, epoch, shards, version)


def _typed_shard(row: Sequence[Any]) -> Shard:
    path, first, last, pairs, raw, stored, crc, raw_digest = row
    texts, blobs = isinstance(path, str), all(isinstance(x, bytes) for x in (first, last, raw_digest))
    if not texts or not blobs or not all(type(x) is int and x >= 0 for x in (pairs, raw, stored, crc)):
        raise TypeError("types of a shard's fields")
    named = parse(path)
    if not isinstance(named, ObjectKey) or named.area is not Area.SHARD:
        raise ValueError(f"{path[:120]!r} is not a shard's path")
    return Shard(path, first, last, pairs, raw, stored, crc, raw_digest)
