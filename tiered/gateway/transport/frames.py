"""A byte stream walked frame by frame while it flows: nothing is kept that nobody asked for.

``FrameWalk.feed`` takes what a socket gave and returns what may go on to the other side, in order, usually the very same
bytes object. A ``Judge`` says per frame, from its header alone, what is to happen to it. Only a header that is cut in two by
the end of a chunk is kept back, and frames that are held.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import Enum
from typing import Protocol

from tiered.codec.remoting.frame import (
    BINARY_HEADER,
    LENGTH_BYTES,
    PREFIX_BYTES,
    Bytes,
    frame_length,
    header_word,
)
from tiered.errors import Refused
from tiered.gateway.ports import PEEK_BYTES

MAX_HEADER_BYTES = 1 << 20
"""RocketMQ's properties, the longest part of a header, have at most 32 KiB; JSON makes them at most six times longer."""

_PREFIX = struct.Struct(">iI")
_HEADER_LENGTH = 0xFFFFFF
_CODE_KEY = b'{"code":'
_NO_BODY = memoryview(b"")


class Fate(Enum):
    """What happens to one frame."""

    PASS = 0  # goes on as it comes
    COPY = 1  # goes on as it comes, and the judge gets it whole
    PEEK = 2  # is held until its first body bytes are there; then the judge decides again
    HOLD = 3  # does not go on; the judge gets it whole


# Before Python 3.12 each `Fate.PASS` is a call, of which a frame would make a dozen.
_PASS, _COPY, _PEEK, _HOLD = Fate.PASS, Fate.COPY, Fate.PEEK, Fate.HOLD


class Judge(Protocol):
    """Decides about frames of one direction."""

    def head(self, header: memoryview, encoding: int, body_bytes: int) -> Fate:
        """The header of a frame whose body is ``body_bytes`` long. The view is good during the call only."""
        ...

    def peek(self, first: memoryview, body: memoryview | None) -> Fate:
        """The first body bytes of the frame that ``head`` wanted to peek into: ``PASS`` or ``HOLD``. Good during the call.

        ``body``: all of it, if it is here already and need not be kept to be looked at.
        """
        ...

    def whole(self, header: bytes, body: memoryview) -> None:
        """A frame that was copied or held, complete: its first eight bytes and header, and its body."""
        ...


class FrameWalk:
    """One direction of one connection. After an error it must not be fed again."""

    __slots__ = (
        "_fate",
        "_head",
        "_inserts",
        "_judge",
        "_kept",
        "_kept_head",
        "_left",
        "_max",
        "_need",
        "frames",
    )

    def __init__(self, judge: Judge, max_frame_bytes: int) -> None:
        self.frames = 0
        self._inserts: list[Bytes] = []  # whole frames to go between two of the stream
        self._judge = judge
        self._max = max_frame_bytes
        self._head = bytearray()  # start of a frame whose header is not complete; not sent on yet
        self._need = 0  # bytes of it that are worth another look
        self._left = 0  # bytes of the frame under way that are still to come
        self._fate = Fate.PASS
        self._kept = bytearray()  # body so far of a frame that is copied, peeked into or held
        self._kept_head = b""

    @property
    def between(self) -> bool:
        """The bytes sent on so far end with a whole frame."""
        return not self._left or self._fate in (_PEEK, _HOLD)

    @property
    def kept_bytes(self) -> int:
        """Bytes kept back."""
        return len(self._head) + len(self._kept)

    @property
    def inserts(self) -> bool:
        """Whether frames wait to be inserted."""
        return bool(self._inserts)

    def insert(self, pieces: Iterable[Bytes]) -> None:
        """Put whole frames between frames of the stream, at the next chance."""
        self._inserts += pieces

    def take_inserts(self) -> list[Bytes]:
        """The frames that wait to be inserted, for the caller to send, ``between`` two of the stream."""
        taken, self._inserts = self._inserts, []
        return taken

    def feed(self, data: bytes) -> list[Bytes]:
        """Walk over ``data``; the pieces that go on now. Raises ``Corrupt`` or ``Refused``."""
        out: list[Bytes] = []
        if self._head:
            self._head += data
            if len(self._head) < self._need:
                return out
            data = bytes(self._head)
            self._head.clear()
        view = memoryview(data)
        position = start = 0  # start: what lies before is either in ``out`` or held
        size = len(data)
        while position < size:
            if self._left:
                take = min(self._left, size - position)
                start = self._body(view, start, position, take, out)
                position += take
                continue
            if self._inserts:
                if start < position:
                    out.append(view[start:position])
                out += self.take_inserts()
                start = position
            found = self._header_at(data, position, size)
            if found is None:
                self._head += view[position:]
                size = position
                break
            encoding, header, body = found
            at = position + PREFIX_BYTES
            end = at + header
            self.frames += 1
            self._fate = self._judge.head(view[at:end], encoding, body)
            if self._fate is _PEEK and size - end >= min(body, PEEK_BYTES):  # no need to keep anything
                whole = view[end : end + body] if body <= size - end else None
                self._fate = self._judge.peek(view[end : end + min(body, PEEK_BYTES)], whole)
            if self._fate is not _PASS:
                start = self._keep(view, start, position, end, body, out)
            if self._fate is _PASS and body <= size - end:  # the common case: all of it is here
                end += body
                self._left = 0
            else:
                self._left = body
            position = end
        if start < size:
            out.append(data if start == 0 and size == len(data) else view[start:size])
        return out

    def _header_at(self, data: bytes, position: int, size: int) -> tuple[int, int, int] | None:
        """Encoding and length of the header at ``position`` and length of the body; ``None`` while the header is not all there.

        Lengths are checked at once.
        """
        have = size - position
        if have < PREFIX_BYTES:
            self._need = PREFIX_BYTES
            if have >= LENGTH_BYTES:
                frame_length(data[position : position + LENGTH_BYTES], self._max)
            return None
        length, word = _PREFIX.unpack_from(data, position)
        if not 4 <= length <= self._max - LENGTH_BYTES:
            frame_length(data[position : position + LENGTH_BYTES], self._max)
        encoding, header = word >> 24, word & _HEADER_LENGTH
        if encoding > BINARY_HEADER or header > length - 4:
            header_word(word, length + LENGTH_BYTES)  # raises
        if header > MAX_HEADER_BYTES:
            raise Refused("a remoting header is too long", expected=f"≤ {MAX_HEADER_BYTES}", found=header)
        if have < PREFIX_BYTES + header:
            self._need = PREFIX_BYTES + header
            return None
        return encoding, header, length - 4 - header

    def _keep(
        self, view: memoryview, start: int, position: int, end: int, body: int, out: list[Bytes]
    ) -> int:
        """Begin to keep the frame whose header is ``view[position:end]``; returns where unsent bytes start."""
        self._kept_head = bytes(view[position:end])
        if self._fate is not _COPY:
            if start < position:
                out.append(view[start:position])
            start = end
        if not body:
            self._judge.whole(self._kept_head, _NO_BODY)
        return start

    def _body(self, view: memoryview, start: int, position: int, take: int, out: list[Bytes]) -> int:
        """``take`` body bytes at ``position`` of the frame under way; returns where unsent bytes start."""
        self._left -= take
        if self._fate is _PASS:
            return start
        if self._fate is _PEEK:
            return self._peek(view, position, take, out)
        self._kept += view[position : position + take]
        if not self._left:
            body, self._kept = bytes(self._kept), bytearray()
            self._judge.whole(self._kept_head, memoryview(body))
        return start if self._fate is _COPY else position + take

    def _peek(self, view: memoryview, position: int, take: int, out: list[Bytes]) -> int:
        self._kept += view[position : position + take]
        if len(self._kept) < PEEK_BYTES and self._left:
            return position + take
        self._fate = self._judge.peek(memoryview(bytes(self._kept[:PEEK_BYTES])), None)
        if self._fate is _PASS:
            out += [self._kept_head, bytes(self._kept)]
            self._kept = bytearray()
        elif not self._left:
            body, self._kept = bytes(self._kept), bytearray()
            self._judge.whole(self._kept_head, memoryview(body))
        return position + take


def code_of(header: bytes | memoryview, encoding: int) -> int | None:
    """The code of a header without decoding it, when it is written the way Java writes it; ``None``: decode it."""
    if encoding == BINARY_HEADER:
        return int.from_bytes(header[:2], "big", signed=True) if len(header) >= 2 else None
    start = bytes(header[:24])
    if not start.startswith(_CODE_KEY):
        return None
    digits, comma, _ = start[len(_CODE_KEY) :].partition(b",")
    return int(digits) if comma and digits.isdigit() else None
