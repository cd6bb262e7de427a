"""Snapshots of a key-value view: pieces and manifests, bytes to values and back (FORMAT.md, "Snapshot of a key-value view")."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tiered.codec.checksum import crc32c
from tiered.codec.format.pairs import Columns, join_pairs, split_pairs
from tiered.codec.summedline import decode_line, encode_line
from tiered.codec.zstd import deflate, inflate
from tiered.errors import Corrupt, Refused

KEYVALUE_VERSION = 1
PIECE_MAGIC = b"RMQTKVP1"
MAX_RAW_BYTES = 128 * 1024 * 1024
"""Largest raw body of a piece that is believed."""
MAX_PIECE_BYTES = MAX_RAW_BYTES + 1024 * 1024
MAX_SNAPSHOT_MANIFEST_BYTES = 64 * 1024 * 1024

_HEAD = struct.Struct(
    "<8sI16sIIII"
)  # magic, number, snapshot id, pairs, raw bytes, stored bytes, CRC of the stored body
_SUM = struct.Struct("<I")
_LEVEL = 1
_DELETE = "delete this snapshot, and take another one or let the view be made from the log"


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """What a manifest says of a piece. ``crc32c``: of the whole object."""

    pairs: int
    raw_bytes: int
    stored_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class KeyValueSnapshot:
    """The store of a view as of one position. ``namespace``: the one that it covers, ``None``: all. ``entries``: their number
    by namespace. ``applied``: the position, as the view's store has it. ``layout``: version of the store's keys and values."""

    snapshot_id: bytes
    cluster: str
    broker: str
    created_ms: int
    namespace: str | None
    layout: int
    applied: bytes
    entries: dict[str, int]
    pieces: Sequence[SnapshotPiece] = field(default=())

    @property
    def pairs(self) -> int:
        """Entries, and what is known of namespaces."""
        return sum(piece.pairs for piece in self.pieces)

    @property
    def stored_bytes(self) -> int:
        """Of all pieces."""
        return sum(piece.stored_bytes for piece in self.pieces)


def encode_piece(columns: Columns, snapshot_id: bytes, number: int) -> tuple[bytes, SnapshotPiece]:
    """The object of some pairs whose keys ascend, and what the manifest says of it."""
    keys, values = columns
    body = join_pairs(keys, values)
    stored = deflate(body, level=_LEVEL)
    head = _HEAD.pack(PIECE_MAGIC, number, snapshot_id, len(keys), len(body), len(stored), crc32c(stored))
    data = b"".join((head, _SUM.pack(crc32c(head)), stored))
    return data, SnapshotPiece(len(keys), len(body), len(data), crc32c(data))


def open_piece(data: bytes, snapshot_id: bytes, number: int, key: str) -> Columns:
    """The pairs of a piece. ``Corrupt`` unless it is whole, and this one."""
    start = _HEAD.size + _SUM.size
    if len(data) < start or data[_HEAD.size : start] != _SUM.pack(crc32c(data[: _HEAD.size])):
        raise _damaged("a piece of a snapshot does not begin as one", key, found=data[:8].hex())
    magic, found_number, found_id, pairs, raw_bytes, stored_bytes, sum_of_body = _HEAD.unpack_from(data)
    if magic != PIECE_MAGIC:
        raise _damaged("a piece of a snapshot does not begin as one", key, found=magic.hex())
    if (found_id, found_number) != (snapshot_id, number):
        raise _damaged(
            "a piece of a snapshot is stored under another's key", key,
            expected=f"{number} of {snapshot_id.hex()}", found=f"{found_number} of {found_id.hex()}",
        )  # fmt: skip
    body = memoryview(data)[start:]
    if len(body) != stored_bytes:
        raise _damaged(
            "a piece of a snapshot is cut off, or goes on", key, expected=stored_bytes, found=len(body)
        )
    if crc32c(body) != sum_of_body:
        raise _damaged(
            "a piece of a snapshot fails its checksum", key, expected=sum_of_body, found=crc32c(body)
        )
    raw = inflate(body, raw_length=raw_bytes, bound=MAX_RAW_BYTES, key=key, position=start)
    try:
        return split_pairs(raw, pairs)
    except ValueError as error:
        raise _damaged("a piece of a snapshot holds no pairs", key, found=str(error)) from error


def encode_snapshot(snapshot: KeyValueSnapshot) -> bytes:
    """The manifest's bytes."""
    pieces = [[p.pairs, p.raw_bytes, p.stored_bytes, p.crc32c] for p in snapshot.pieces]
    return encode_line(
        {
            "format": KEYVALUE_VERSION,
            "snapshot_id": snapshot.snapshot_id.hex(),
            "cluster": snapshot.cluster,
            "broker": snapshot.broker,
            "created_ms": snapshot.created_ms,
            "namespace": snapshot.namespace,
            "layout": snapshot.layout,
            "applied": snapshot.applied.hex(),
            "entries": snapshot.entries,
            "pieces": pieces,
        }
    )


def decode_snapshot(data: bytes, key: str) -> KeyValueSnapshot:
    """What ``encode_snapshot`` made. ``Corrupt``; ``Refused`` for one of a later format."""
    try:
        told = decode_line(data)
        if int(told["format"]) > KEYVALUE_VERSION:
            raise Refused(
                "a snapshot of a key-value view was written by a newer program",
                hint="install that program's version or a later one",
                key=key, expected=f"format ≤ {KEYVALUE_VERSION}", found=told["format"],
            )  # fmt: skip
        return KeyValueSnapshot(
            bytes.fromhex(told["snapshot_id"]),
            str(told["cluster"]),
            str(told["broker"]),
            int(told["created_ms"]),
            None if told["namespace"] is None else str(told["namespace"]),
            int(told["layout"]),
            bytes.fromhex(told["applied"]),
            {str(name): int(count) for name, count in told["entries"].items()},
            tuple(_piece(*piece) for piece in told["pieces"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged("the manifest of a snapshot is damaged", key, found=str(error)) from error


def _piece(pairs: int, raw_bytes: int, stored_bytes: int, sum_of_all: int) -> SnapshotPiece:
    found = SnapshotPiece(int(pairs), int(raw_bytes), int(stored_bytes), int(sum_of_all))
    if not (
        0 < found.pairs <= found.raw_bytes <= MAX_RAW_BYTES and 0 < found.stored_bytes <= MAX_PIECE_BYTES
    ):
        raise ValueError(f"a piece of {found}")
    return found


def _damaged(message: str, key: str, **fields: Any) -> Corrupt:
    return Corrupt(message, hint=_DELETE, key=key, **fields)
