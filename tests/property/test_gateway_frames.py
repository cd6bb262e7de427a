"""The walk over a byte stream: against a slow walk that has all bytes at once."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.errors import Corrupt, Refused
from tiered.gateway.ports import PEEK_BYTES
from tiered.gateway.transport.frames import MAX_HEADER_BYTES, Fate, FrameWalk, code_of


@dataclass
class Script:
    """Says what the header's first byte says: the fate, then the fate after a peek."""

    heads: list[tuple[bytes, int]] = field(default_factory=list)
    peeks: list[bytes] = field(default_factory=list)
    wholes: list[tuple[bytes, bytes]] = field(default_factory=list)
    bodies: list[bytes | None] = field(default_factory=list)  # what came with each peek
    after: Fate = Fate.PASS

    def head(self, header: memoryview, encoding: int, body_bytes: int) -> Fate:
        self.heads.append((bytes(header), body_bytes))
        self.after = Fate.HOLD if bytes(header).endswith(b"!") else Fate.PASS
        return Fate(header[0] % 4) if len(header) else Fate.PASS

    def peek(self, first: memoryview, body: memoryview | None) -> Fate:
        self.peeks.append(bytes(first))
        self.bodies.append(None if body is None else bytes(body))
        return self.after

    def whole(self, header: bytes, body: memoryview) -> None:
        self.wholes.append((header, bytes(body)))


def frame(header: bytes, body: bytes, encoding: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), encoding << 24 | len(header)) + header + body


frames = st.lists(
    st.tuples(
        st.binary(max_size=12).flatmap(lambda b: st.sampled_from([b, b + b"!"])),
        st.one_of(st.binary(max_size=5), st.binary(min_size=50, max_size=300)),
    ),
    max_size=8,
)


@given(frames, st.lists(st.integers(1, 100), min_size=1, max_size=20))
def test_any_cut_gives_the_same(sent: list[tuple[bytes, bytes]], sizes: list[int]) -> None:
    stream = b"".join(frame(*one) for one in sent)
    script = Script()
    walk = FrameWalk(script, 1 << 20)
    out, position, turn = bytearray(), 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        for piece in walk.feed(stream[position : position + size]):
            out += piece
        position, turn = position + size, turn + 1
    passed, wholes, peeks, bodies = bytearray(), [], [], []
    for header, body in sent:
        fate = Fate(header[0] % 4) if header else Fate.PASS
        if fate is Fate.PEEK:
            peeks.append(body[:PEEK_BYTES])
            bodies.append(body)
            fate = Fate.HOLD if header.endswith(b"!") else Fate.PASS
        if fate is not Fate.HOLD:
            passed += frame(header, body)
        if fate in (Fate.COPY, Fate.HOLD):
            wholes.append((frame(header, body)[: 8 + len(header)], body))
    assert bytes(out) == bytes(passed)
    assert script.wholes == wholes
    assert script.peeks == peeks
    assert all(seen in (None, body) for seen, body in zip(script.bodies, bodies, strict=True))
    assert script.heads == [(header, len(body)) for header, body in sent]
    assert walk.between
    assert walk.kept_bytes == 0
    assert walk.frames == len(sent)


@given(frames, st.lists(st.integers(1, 60), min_size=1, max_size=20), st.data())
def test_inserted_frames_stand_between_others(
    sent: list[tuple[bytes, bytes]], sizes: list[int], data: st.DataObject
) -> None:
    stream = b"".join(frame(*one) for one in sent)
    walk = FrameWalk(Script(), 1 << 20)
    out, position, turn, inserted = bytearray(), 0, 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        for piece in walk.feed(stream[position : position + size]):
            out += piece
        if data.draw(st.booleans()):
            walk.insert([frame(b"\0new", str(inserted).encode())])
            inserted += 1
        if walk.between:
            for piece in walk.take_inserts():
                out += piece
        position, turn = position + size, turn + 1
    for piece in walk.take_inserts():
        out += piece
    check = Script()
    list(FrameWalk(check, 1 << 20).feed(bytes(out)))
    numbers = [header for header, _ in check.heads if header == b"\0new"]
    assert len(numbers) >= inserted
    assert len(check.heads) <= len(sent) + inserted


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes(data: bytes, size: int) -> None:
    walk = FrameWalk(Script(), 1000)
    sent = bytearray()
    try:
        for position in range(0, len(data), size):
            for piece in walk.feed(data[position : position + size]):
                sent += piece
            assert walk.kept_bytes <= 1000 + 50
    except (Corrupt, Refused):
        pass
    assert len(sent) <= len(data)


@given(frames)
def test_bodies_that_are_here_are_looked_at_where_they_lie(sent: list[tuple[bytes, bytes]]) -> None:
    script = Script()
    FrameWalk(script, 1 << 20).feed(b"".join(frame(*one) for one in sent))
    assert script.bodies == [body for header, body in sent if header and Fate(header[0] % 4) is Fate.PEEK]


def test_a_chunk_whose_bodies_were_looked_at_goes_on_as_the_same_object() -> None:
    walk = FrameWalk(Script(), 1 << 20)
    chunk = frame(bytes([Fate.PEEK.value]) + b"abc", b"x" * 100) * 3
    assert walk.feed(chunk)[0] is chunk


def test_an_untouched_chunk_goes_on_as_the_same_object() -> None:
    walk = FrameWalk(Script(), 1 << 20)
    chunk = frame(b"\0abc", b"x" * 100) * 3
    assert walk.feed(chunk)[0] is chunk


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x16\x03\x01\x02\x00", Refused),
        (b"PROXY TCP4", Refused),
        (b"GET / HTTP/1.1", Refused),
        (b"\0\0\0\0\0\0\0\0", Corrupt),
        (struct.pack(">iI", 10, 7), Corrupt),
        (struct.pack(">iI", 10, 0x03000001), Corrupt),
        (struct.pack(">iI", 8 << 20, MAX_HEADER_BYTES + 1), Refused),
    ],
)
def test_what_is_no_frame_is_known_at_once(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        FrameWalk(Script(), 16 << 20).feed(data)


def test_codes_without_decoding() -> None:
    assert code_of(memoryview(b'{"code":200050,"extFields":{}}'), 0) == 200050
    assert code_of(memoryview(b'{"code":11}'), 0) is None
    assert code_of(memoryview(b'{"flag":0,"code":11}'), 0) is None
    assert code_of(memoryview(b'{"code":"11","a":1}'), 0) is None
    assert code_of(memoryview(b"\x00\x0b\x00"), 1) == 11
    assert code_of(memoryview(b""), 1) is None


def test_a_header_that_trickles_in_is_copied_once() -> None:
    """A megabyte of header byte by byte: quadratic work would take minutes."""
    walk = FrameWalk(Script(), 4 << 20)
    data = frame(b"\0" + b"h" * (MAX_HEADER_BYTES - 1), b"")
    out = [
        piece for position in range(0, len(data), 16) for piece in walk.feed(data[position : position + 16])
    ]
    assert b"".join(out) == data
