"""Commits: inline data, edits, footer (FORMAT.md, "Commit").

::

    inline data (an object, or nothing) | edits (one zstd frame) | footer

A reader fetches a tail, asks ``tail_length`` how much of the end it needs, fetches more if that was too
little, and decodes edits and footer without the inline data.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tiered.codec.checksum import crc32c
from tiered.codec.format.edits import Commit, EditBatch
from tiered.codec.format.editwire import MAX_EDIT_ROWS, pack_edits, unpack_edits
from tiered.codec.format.sections import (
    TRAILER_BYTES,
    check_length_and_crc,
    close_footer,
    open_footer,
    refuse_encryption,
)
from tiered.codec.types import Buffer
from tiered.codec.zstd import deflate, inflate
from tiered.errors import Corrupt, Invalid

__all__ = [
    "COMMIT_FOOTER_BYTES", "MAX_EDIT_BYTES", "MAX_EDIT_ROWS", "MAX_INLINE_BYTES", "CommitFooter",
    "decode_commit", "decode_commit_footer", "decode_edits", "encode_commit", "encode_edits", "encode_stand_in",
    "tail_length",
]  # fmt: skip

MAGIC = b"RMQTCMT\n"
COMMIT_FOOTER_BYTES = 256

MAX_EDIT_BYTES = 64 * 1024 * 1024
"""Largest edits a reader accepts, decompressed."""

MAX_INLINE_BYTES = 8 * 1024 * 1024
"""Largest inline data: 4 MiB of records and as much of tables; what would need more becomes an object of its own."""

_ZSTD_LEVEL = 3
_BODY = struct.Struct("<16s16s16s16sQQQIIII80s")
"""Archive, commit, previous and writer id; seq, epoch; inline length; edits length and raw length;
CRC32C of the inline data and of the edits; encryption field."""

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CommitFooter:
    """What a commit says of itself. Lengths in bytes, stored."""

    archive_id: bytes
    commit_id: bytes
    previous_id: bytes
    writer_id: bytes
    seq: int
    epoch: int
    inline_length: int
    edits_length: int
    edits_raw_length: int
    inline_crc32c: int
    edits_crc32c: int
    version: int

    @property
    def tail_length(self) -> int:
        """Bytes at the end of the commit that hold edits and footer."""
        return self.edits_length + COMMIT_FOOTER_BYTES

    @property
    def length(self) -> int:
        """Bytes of the whole commit."""
        return self.inline_length + self.tail_length


def encode_edits(edits: Sequence[EditBatch]) -> bytes:
    """Edits as they are stored: one zstd frame. ``Invalid`` if a reader would not accept them. Same
    input, same bytes.
    """
    return deflate(_packed(edits), level=_ZSTD_LEVEL)


def _packed(edits: Sequence[EditBatch]) -> bytes:
    raw = pack_edits(edits)
    if len(raw) > MAX_EDIT_BYTES:
        raise Invalid(
            "the edits of a commit are too large", expected=f"at most {MAX_EDIT_BYTES} bytes", found=len(raw)
        )
    return raw


def decode_edits(
    stored: Buffer, *, key: str, position: int | None = None, raw_length: int | None = None
) -> list[EditBatch]:
    """The batches in ``stored``, whose CRC must have been checked. ``Corrupt``; ``Refused`` for reserved
    kinds.
    """
    raw = inflate(stored, raw_length=raw_length, bound=MAX_EDIT_BYTES, key=key, position=position)
    return unpack_edits(raw, key=key, position=position)


def encode_commit(commit: Commit, inline: Sequence[Buffer] = ()) -> list[Buffer]:
    """The commit's bytes as parts to be put one after the other. ``inline`` is an encoded object's parts.

    ``Invalid`` if a field or the inline data breaks the format's limits, or ``inline_length`` is not theirs.
    """
    ids = (commit.archive_id, commit.commit_id, commit.previous_id, commit.writer_id)
    inline_length = sum(map(len, inline))
    if any(len(i) != 16 for i in ids) or not (0 <= commit.seq <= _LARGEST and 0 <= commit.epoch <= _LARGEST):
        raise Invalid("a commit's ids or numbers are out of range", seq=commit.seq, epoch=commit.epoch)
    if inline_length > MAX_INLINE_BYTES or inline_length != commit.inline_length:
        raise Invalid(
            "the inline data of a commit has the wrong length",
            hint="data larger than this goes into an object of its own",
            expected=f"{commit.inline_length}, at most {MAX_INLINE_BYTES}",
            found=inline_length,
        )
    inline_crc = 0
    for part in inline:
        inline_crc = crc32c(part, inline_crc)
    return [*inline, *encode_stand_in(commit, inline_crc)]


def encode_stand_in(commit: Commit, inline_crc: int = 0) -> list[Buffer]:
    """Edits and footer of a commit whose inline data, if it has any, lies elsewhere: what stands for a damaged commit."""
    raw = _packed(commit.edits)
    stored = deflate(raw, level=_ZSTD_LEVEL)
    body = _BODY.pack(
        commit.archive_id,
        commit.commit_id,
        commit.previous_id,
        commit.writer_id,
        commit.seq,
        commit.epoch,
        commit.inline_length,
        len(stored),
        len(raw),
        inline_crc,
        crc32c(stored),
        bytes(80),
    )
    footer = close_footer(body.ljust(COMMIT_FOOTER_BYTES - TRAILER_BYTES, b"\0"), MAGIC)
    return [stored, footer]


def decode_commit_footer(tail: Buffer, *, key: str) -> CommitFooter:
    """The footer at the end of ``tail`` (at least the commit's last ``COMMIT_FOOTER_BYTES``).

    ``Corrupt`` if it is not one or is damaged; ``Refused`` if a newer program wrote it or it is encrypted.
    """
    body, version = open_footer(tail, MAGIC, COMMIT_FOOTER_BYTES, what="a commit", key=key, position=None)
    fields = _BODY.unpack_from(body)
    refuse_encryption(fields[11], what="a commit", key=key)
    footer = CommitFooter(*(*fields[:11], version))
    if max(footer.seq, footer.epoch, footer.inline_length) > _LARGEST:
        raise Corrupt(
            "a commit's numbers are out of range", key=key, expected=f"at most {_LARGEST}", found=footer.seq
        )
    return footer


def tail_length(tail: Buffer, *, key: str) -> int:
    """Bytes at the end of a commit that hold edits and footer, told by the footer at the end of ``tail``."""
    return decode_commit_footer(tail, key=key).tail_length


def decode_commit(data: Buffer, *, key: str) -> Commit:
    """The commit from its last bytes: at least ``tail_length``, at most all; if all, the inline data is
    checked too.

    ``Corrupt`` or ``Refused``, as ``decode_commit_footer`` and ``decode_edits`` say.
    """
    footer = decode_commit_footer(data, key=key)
    view = memoryview(data)
    if not footer.tail_length <= len(view) <= footer.length:
        raise Corrupt(
            "a commit is not as long as its footer says",
            key=key,
            expected=f"{footer.tail_length} to {footer.length} bytes",
            found=len(view),
        )
    if len(view) == footer.length:
        check_length_and_crc(
            view[: footer.inline_length],
            length=footer.inline_length,
            crc=footer.inline_crc32c,
            what="the inline data of a commit",
            key=key,
            position=0,
        )
    stored = view[len(view) - footer.tail_length : len(view) - COMMIT_FOOTER_BYTES]
    check_length_and_crc(
        stored,
        length=footer.edits_length,
        crc=footer.edits_crc32c,
        what="the edits of a commit",
        key=key,
        position=footer.inline_length,
    )
    edits = decode_edits(stored, key=key, position=footer.inline_length, raw_length=footer.edits_raw_length)
    return Commit(
        seq=footer.seq,
        epoch=footer.epoch,
        archive_id=footer.archive_id,
        commit_id=footer.commit_id,
        previous_id=footer.previous_id,
        writer_id=footer.writer_id,
        edits=edits,
        inline_length=footer.inline_length,
    )
