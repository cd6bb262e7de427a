"""What objects and commits have in common: the closing trailer, small whole sections, where sections lie.

An *envelope* holds a section that is always read whole (FORMAT.md, "Envelope")::

    u1  codec         0 none, 1 zstd
    u1 × 3            zero
    u4  raw length    of the content
    …   content       stored

A *trailer* closes every footer, 16 bytes that no later version may move or change in meaning::

    u2  format version
    u2  its complement, so that a flipped bit is damage and not "a newer program"
    u4  CRC32C of the footer's bytes before this field
    8   magic
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from tiered.codec.checksum import crc32c
from tiered.codec.types import Buffer
from tiered.codec.zstd import deflate, inflate
from tiered.errors import Corrupt, Invalid, Refused
from tiered.model import ByteRange
from tiered.version import FORMAT_VERSION

MAX_SECTION_BYTES = 64 * 1024 * 1024
"""Largest content of an envelope, decompressed."""

ZSTD_LEVEL = 1
"""For everything but blocks: narrow columns, where higher levels gain a percent for twice the time."""

CODEC_NONE = 0
CODEC_ZSTD = 1
CODEC_ZSTD_DICTIONARY = 2  # of a block: the object's own dictionary

_ENVELOPE = struct.Struct("<BxxxI")
_TRAILER = struct.Struct("<HHI8s")
TRAILER_BYTES = _TRAILER.size


class SectionKind(IntEnum):
    """Numbers of sections. Below 32: a reader that does not know it refuses; from 32: it may be skipped."""

    DIRECTORY = 1
    BLOCK_TABLE = 2
    COLUMNS = 3
    COLUMN_INDEX = 4
    KEYS = 5
    KEY_INDEX = 6
    KEY_FILTER = 7
    SEGMENT_FOOTER = 8  # of a segment, and its only one
    DICTIONARY = 10  # of the object's blocks of codec 2; 9 is what is encrypted
    TAG_SETS = 32  # reserved: per block, up to 16 tag hash codes
    TAG_BLOOM = 33  # reserved: per block
    BLOCK_KEY_FILTER = 34  # reserved: per block


FIRST_OPTIONAL_SECTION = 32

NAME_A_KEY = (
    "name the archive's key by encryption.key_file, encryption.key_env or encryption.key_command; for Spark by"
    " TIERED_ENCRYPTION_KEY_FILE, TIERED_ENCRYPTION_KEY_ENV or TIERED_ENCRYPTION_KEY_COMMAND in the environment of driver and"
    " executors"
)
"""What helps whoever meets something encrypted and has no key."""


class Section(NamedTuple):
    """Where a section lies in its object and the CRC32C of its stored bytes, as in ``AddObject``."""

    position: int
    length: int
    crc32c: int

    @property
    def range(self) -> ByteRange:
        """Its bytes in the object."""
        return ByteRange(self.position, self.position + self.length)


Sections = Mapping[int, Section]


def section_of(sections: Sections, kind: SectionKind, *, key: str) -> Section:
    """The section of this kind; ``Corrupt`` if the object has none."""
    found = sections.get(kind)
    if found is None:
        raise Corrupt("an object lacks a section", key=key, expected=kind.name, found=sorted(sections))
    return found


def wrap(content: Buffer) -> bytes:
    """The envelope of ``content``. ``Invalid`` if it is larger than a reader would accept."""
    if len(content) > MAX_SECTION_BYTES:
        raise Invalid(
            "a section would be too large to be read again",
            hint="write smaller objects",
            expected=f"at most {MAX_SECTION_BYTES} bytes",
            found=len(content),
        )
    packed = deflate(content, level=ZSTD_LEVEL) if len(content) else b""
    if len(packed) < len(content):
        return _ENVELOPE.pack(CODEC_ZSTD, len(content)) + packed
    return _ENVELOPE.pack(CODEC_NONE, len(content)) + bytes(content)


def unwrap(stored: Buffer, *, key: str, position: int | None) -> Buffer:
    """The content of an envelope; its CRC must have been checked. ``Corrupt`` if it is not one."""
    view = memoryview(stored)
    codec, raw_length = _ENVELOPE.unpack_from(view) if len(view) >= _ENVELOPE.size else (-1, 0)
    if codec not in (CODEC_NONE, CODEC_ZSTD) or bytes(view[1:4]) != b"\0\0\0":
        raise Corrupt(
            "a section does not start with an envelope",
            key=key,
            position=position,
            expected="codec 0 or 1, three zero bytes, a length",
            found=bytes(view[:8]).hex(" "),
        )
    content = view[_ENVELOPE.size :]
    if codec == CODEC_ZSTD:
        return inflate(content, raw_length=raw_length, bound=MAX_SECTION_BYTES, key=key, position=position)
    if len(content) != raw_length:
        raise Corrupt(
            "a section is not as long as it states",
            key=key,
            position=position,
            expected=raw_length,
            found=len(content),
        )
    return content


def checked(data: Buffer, section: Section, *, what: str, key: str) -> memoryview:
    """``data`` once its length and CRC32C are those of ``section``; ``Corrupt`` otherwise."""
    view = memoryview(data)
    check_length_and_crc(
        view, length=section.length, crc=section.crc32c, what=what, key=key, position=section.position
    )
    return view


def check_length_and_crc(
    data: Buffer, *, length: int, crc: int, what: str, key: str, position: int | None
) -> None:
    """``Corrupt`` unless ``data`` has this length and this CRC32C."""
    if len(data) != length:
        raise Corrupt(
            f"{what} does not have the right length",
            key=key,
            position=position,
            expected=length,
            found=len(data),
        )
    found = crc32c(data)
    if found != crc:
        raise Corrupt(
            f"{what} fails its checksum",
            key=key,
            position=position,
            expected=f"crc32c {crc:08x}",
            found=f"{found:08x}",
        )


def close_footer(body: bytes, magic: bytes) -> bytes:
    """A footer: ``body`` and its trailer."""
    covered = body + struct.pack("<HH", FORMAT_VERSION, FORMAT_VERSION ^ 0xFFFF)
    return covered + struct.pack("<I8s", crc32c(covered), magic)


def open_footer(
    tail: Buffer, magic: bytes, footer_bytes: int, *, what: str, key: str, position: int | None
) -> tuple[memoryview, int]:
    """Body and format version of the footer at the end of ``tail``, checked.

    ``Corrupt`` if it is not one or is damaged, ``Refused`` if a newer program wrote it.
    """
    view = memoryview(tail)
    if len(view) < TRAILER_BYTES:
        raise Corrupt(
            f"{what} is too short", key=key, position=position, expected=footer_bytes, found=len(view)
        )
    version, complement, crc, found_magic = _TRAILER.unpack(view[-TRAILER_BYTES:])
    if found_magic != magic or version ^ complement != 0xFFFF or version == 0:
        raise Corrupt(
            f"{what} does not end as one",
            key=key,
            position=position,
            expected=f"magic {magic!r}, a version and its complement",
            found=f"{found_magic!r}, {version:#06x}, {complement:#06x}",
        )
    if version > FORMAT_VERSION:
        raise Refused(
            f"{what} was written by a newer program",
            hint="install that program's version or a later one",
            key=key,
            expected=f"format version ≤ {FORMAT_VERSION}",
            found=version,
        )
    if len(view) < footer_bytes:
        raise Corrupt(
            f"{what} is too short", key=key, position=position, expected=footer_bytes, found=len(view)
        )
    footer = view[-footer_bytes:]
    check_length_and_crc(
        footer[:-12],
        length=footer_bytes - 12,
        crc=crc,
        what=f"the footer of {what}",
        key=key,
        position=position,
    )
    return footer[:-TRAILER_BYTES], version


def refuse_encryption(field: Buffer, *, what: str, key: str) -> None:
    """``Refused`` if the encryption field (80 bytes: algorithm, key id, wrapped key) is not all zero."""
    if any(bytes(field)):
        raise Refused(
            f"{what} is encrypted, and no key is named",
            hint=NAME_A_KEY,
            key=key,
        )
