"""A projection by key: of one queue the newest message of each key up to some message, as hashes and queue offsets (FORMAT.md,
"Projection"). It holds no messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import crc32c
from tiered.codec.format.encryption import OBJECT_FOOTER_BYTES, encrypted_footer
from tiered.codec.format.intpack import pack_table, unpack_table
from tiered.codec.format.sections import (
    NAME_A_KEY,
    TRAILER_BYTES,
    Section,
    check_length_and_crc,
    checked,
    close_footer,
    open_footer,
    unwrap,
    wrap,
)
from tiered.codec.format.wire import pack, unpack
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Refused
from tiered.model import MessageQueue

KEY_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("message", "<i8")])
"""A key's hash (128 bits of XXH3) and a message that carries it: twice its queue offset, and one more if it has a body."""

MAGIC = b"RMQTPRJ\n"
_FOOTER = struct.Struct("<QII")  # position, length, CRC of the head
FOOTER_BYTES = _FOOTER.size + TRAILER_BYTES
CHUNK_ENTRIES = 1 << 16
_WHAT = "a projection"
_COLUMNS = ("high", "low", "offset")


@dataclass(frozen=True, slots=True)
class ProjectionHead:
    """What a projection says of itself.

    It was made at commit ``seq`` (``commit_id``), of the messages of ``generation`` of ``queue`` below queue offset ``end``;
    commit ``last_commit`` archived the last of them. ``without_key``: those that have no key. ``chunks``: where its
    ``entries`` lie.
    """

    archive_id: bytes
    seq: int
    commit_id: bytes
    queue: MessageQueue
    generation: int
    end: int
    last_commit: int
    without_key: int
    entries: int = 0
    chunks: tuple[Section, ...] = ()


def encode_chunks(entries: npt.NDArray[np.void]) -> Iterator[bytes]:
    """The stored form of some entries, all of messages with a body."""
    for first in range(0, len(entries), CHUNK_ENTRIES):
        some = entries[first : first + CHUNK_ENTRIES]
        columns = {"high": some["high"], "low": some["low"], "offset": some["message"] >> 1}
        yield wrap(pack_table(columns))


def decode_chunk(data: Buffer, section: Section, *, key: str) -> npt.NDArray[np.void]:
    """The entries of a chunk. ``Corrupt`` if it is damaged."""
    stored = checked(data, section, what=_WHAT, key=key)
    content = unwrap(stored, key=key, position=section.position)
    columns, rest = unpack_table(content, _COLUMNS, key=key, position=section.position)
    if len(rest):
        raise _malformed(key)
    found = np.empty(len(columns["offset"]), KEY_ENTRY)
    for half in ("high", "low"):
        found[half] = columns[half].view("<u8")
    found["message"] = columns["offset"] * 2 + 1
    return found


def encode_head(head: ProjectionHead, position: int) -> bytes:
    """What follows the chunks, which end at ``position``."""
    sections = np.array(head.chunks, np.int64).reshape(-1, 3)
    value = [
        head.archive_id, head.seq, head.commit_id, head.queue.topic, head.queue.queue_id, head.generation, head.end,
        head.last_commit, head.without_key, head.entries,
        pack_table({"position": sections[:, 0], "length": sections[:, 1], "crc": sections[:, 2]}),
    ]  # fmt: skip
    stored = wrap(pack(value))
    return stored + close_footer(_FOOTER.pack(position, len(stored), crc32c(stored)), MAGIC)


def head_bytes(tail: Buffer, *, key: str) -> int:
    """How many of a projection's last bytes its head and footer take. Errors as of ``decode_head``."""
    return _footer(tail, key=key)[1] + FOOTER_BYTES


def decode_head(tail: Buffer, *, key: str) -> ProjectionHead:
    """The head, from an object's last bytes: at least ``head_bytes``. ``Corrupt`` if it is damaged, ``Refused`` if a newer
    program made it, or it is encrypted and no key is named."""
    position, length, crc = _footer(tail, key=key)
    view = memoryview(tail)
    stored = view[max(0, len(view) - FOOTER_BYTES - length) : len(view) - FOOTER_BYTES]
    check_length_and_crc(stored, length=length, crc=crc, what=_WHAT, key=key, position=position)
    value = unpack(unwrap(stored, key=key, position=position), what=_WHAT, key=key, position=position)
    match value:
        case [
            bytes(archive_id),
            int(seq),
            bytes(commit_id),
            str(topic),
            int(queue_id),
            int(generation),
            int(end),
            int(last_commit),
            int(without_key),
            int(entries),
            bytes(packed),
        ]:
            return ProjectionHead(
                archive_id, seq, commit_id, MessageQueue(topic, queue_id), generation, end, last_commit, without_key, entries,
                tuple(_chunks(packed, position, key)),
            )  # fmt: skip
    raise _malformed(key)


def _chunks(packed: Buffer, position: int, key: str) -> Iterator[Section]:
    columns, rest = unpack_table(packed, ("position", "length", "crc"), key=key, position=position)
    at = 0
    for start, length, crc in zip(*(columns[n].tolist() for n in ("position", "length", "crc")), strict=True):
        if start != at or length <= 0:
            raise _malformed(key)
        yield Section(start, length, crc)
        at += length
    if at != position or len(rest):
        raise _malformed(key)


def _footer(tail: Buffer, *, key: str) -> tuple[int, int, int]:
    if encrypted_footer(tail, footer_bytes=OBJECT_FOOTER_BYTES, key=key) is not None:
        raise Refused("a projection is encrypted, and no key is named", hint=NAME_A_KEY, key=key)
    body, _ = open_footer(tail, MAGIC, FOOTER_BYTES, what=_WHAT, key=key, position=None)
    position, length, crc = _FOOTER.unpack(body)
    return int(position), int(length), int(crc)


def _malformed(key: str) -> Corrupt:
    return Corrupt("a projection is malformed", key=key, expected="what FORMAT.md says of one")
