"""Bodies that clients compressed, and records that hold several messages, as RocketMQ's own consumers read them. Pure."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import zstandard

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import SYS_COMPRESSED, SYS_COMPRESSION_TYPE, SYS_INNER_BATCH
from tiered.codec.types import Buffer, Ints
from tiered.errors import Invalid

SYS_NEED_UNWRAP = 0x40
"""With ``SYS_INNER_BATCH``: consumers take the record's body for messages. Without it they see the body as it is."""
_BOTH = SYS_INNER_BATCH | SYS_NEED_UNWRAP
_LZ4, _ZSTD, _ZLIB = 0x100, 0x200, 0x300  # none of the bits: zlib, as clients before 5.0 compress
_INNER_HEAD = struct.Struct(">i8xii")  # size, magic and CRC that nobody writes, flag, body length
_SHORT = struct.Struct(">h")
_STEP = 1 << 16


class InnerMessage(NamedTuple):
    """A message of an inner batch: ``properties`` as they are stored."""

    flag: int
    body: bytes
    properties: bytes


def is_unwrapped(sys_flag: int) -> bool:
    """Whether consumers take a record with these flags apart into the messages that it holds."""
    return sys_flag & _BOTH == _BOTH


def inflated(body: Buffer, sys_flag: int, most: int) -> bytes | None:
    """The content of a compressed body. ``None`` if it cannot be read, or has more than ``most`` bytes: more are not made.

    What follows the end of a zlib stream is left out; of zstd and LZ4 all frames count. ``Invalid``: LZ4 takes a library that
    is not installed.
    """
    kind = sys_flag & SYS_COMPRESSION_TYPE
    try:
        if kind in (0, _ZLIB):
            stream = zlib.decompressobj()
            plain = stream.decompress(body, most + 1)
            return plain if stream.eof and len(plain) <= most else None
        if kind == _ZSTD:
            return _by_frames(body, most, _zstd_frame)
        if kind == _LZ4:
            return _by_frames(body, most, _lz4_frame())
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError):
        return None
    return None


def plain_bodies(messages: MessageBatch, rows: Ints, most: int) -> Iterator[tuple[bytes, bool]]:
    """Each row's body as consumers see it, made when it is its turn; and whether it is compressed all the same: it cannot be
    read, or would have more than ``most`` bytes."""
    chosen = messages.headers[rows]
    flags = chosen["sys_flag"].tolist()
    for begin, length, flag in zip(
        chosen["body_position"].tolist(), chosen["body_length"].tolist(), flags, strict=True
    ):
        stored = bytes(messages.buffer[begin : begin + length])
        plain = inflated(stored, flag, most) if flag & SYS_COMPRESSED else stored
        yield (stored, True) if plain is None else (plain, False)


def inner_messages(body: Buffer) -> list[InnerMessage] | None:
    """The messages of an inner batch's body, in order; ``None`` if it is not made of such."""
    view, at, found = memoryview(body), 0, []
    try:
        while at < len(view):
            size, flag, length = _INNER_HEAD.unpack_from(view, at)
            begin = at + _INNER_HEAD.size
            end = begin + length
            (properties,) = _SHORT.unpack_from(view, end)
            if length < 0 or properties < 0 or end + 2 + properties != at + size or at + size > len(view):
                return None
            found.append(InnerMessage(flag, bytes(view[begin:end]), bytes(view[end + 2 : at + size])))
            at += size
    except struct.error:
        return None
    return found


Step = Callable[[memoryview, int], tuple[bytes, bool, int]]
"""Feeds some bytes and asks for at most so many: what came, whether the frame is at its end, and bytes not used."""


def _by_frames(body: Buffer, most: int, frame: Callable[[], Step]) -> bytes | None:
    view, at, parts, size = memoryview(body), 0, [], 0
    while at < len(view):
        step, ended = frame(), False
        while not ended:
            piece = view[at : at + _STEP]
            if not len(piece):
                return None
            part, ended, unused = step(piece, most - size + 1)
            parts.append(part)
            size += len(part)
            at += len(piece) - unused
            if size > most:
                return None
    return b"".join(parts)


def _zstd_frame() -> Step:
    stream = zstandard.ZstdDecompressor().decompressobj()

    def step(piece: memoryview, _most: int) -> tuple[bytes, bool, int]:
        piece = piece[:1024]  # 4 bytes of a frame may stand for 128 KiB
        part = stream.decompress(piece)
        return part, stream.eof, len(stream.unused_data)

    return step


def _lz4_frame() -> Callable[[], Step]:
    try:
        import lz4.frame
    except ImportError:
        raise Invalid(
            "a message is compressed by LZ4, for which a library is not installed",
            missing="lz4",
            hint="pip install lz4 where the daemon runs",
        ) from None

    def opened() -> Step:
        stream = lz4.frame.LZ4FrameDecompressor()

        def step(piece: memoryview, most: int) -> tuple[bytes, bool, int]:
            part: bytes = stream.decompress(piece, max_length=most)
            return part, stream.eof, len(stream.unused_data or b"")

        return step

    return opened
