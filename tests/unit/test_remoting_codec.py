"""Remoting frames: recorded ones, both encodings, and whatever bytes."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiered.codec.remoting.frame import (
    Command,
    FrameReader,
    decode_command,
    encode_command,
    frame_length,
)
from tiered.errors import Corrupt, Invalid, Refused

WIRE = Path(__file__).parent.parent / "data" / "wire"
FRAMES = sorted(WIRE.glob("*.bin"))
JSON_ROUTE = (
    b"\0\0\0\x7f\0\0\0\x7b"
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":1,'
    b'"serializeTypeCurrentRPC":"JSON","version":401}'
)
BINARY_ROUTE = bytes.fromhex(
    "00000025 01000021 0069 00 0191 00000001 00000000 00000000 0000000c 0005 746f706963 00000001 54"
)

int32 = st.integers(-(1 << 31), (1 << 31) - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
commands = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    opaque=int32,
    flag=int32,
    remark=st.none() | text.filter(bool),
    ext=st.dictionaries(text, text, max_size=6),
    body=st.binary(max_size=200),
    version=st.integers(0, 600),
    language=st.integers(0, 13),
    binary=st.booleans(),
)


def joined(command: Command) -> bytes:
    return b"".join(encode_command(command))


@pytest.mark.parametrize("path", FRAMES, ids=lambda path: path.stem)
def test_recorded_frames(path: Path) -> None:
    """Every field comes out as written, and what is written again reads back the same."""
    data = path.read_bytes()
    command = decode_command(data[4:])
    (total, length) = struct.unpack(">ii", data[:8])
    header = json.loads(data[8 : 8 + length])
    assert total + 4 == len(data)
    assert (command.code, command.opaque, command.flag) == (header["code"], header["opaque"], header["flag"])
    assert (command.version, command.language, command.binary) == (513, 0, False)
    assert command.remark == header.get("remark")
    assert command.ext == header.get("extFields", {})
    assert command.body == data[8 + length :]
    assert command.is_response == path.name.endswith(".answer.bin")
    assert command.is_oneway == ("oneway" in path.name)
    assert decode_command(joined(command)[4:]) == command
    number = re.search(r"-(\d+)", path.stem)
    if number is not None and not command.is_response:
        assert command.code == int(number[1])


def test_frames_are_written_as_java_writes_them() -> None:
    """Byte for byte, unless there are no fields: Java then writes ``{}`` or nothing, depending on how the command was made."""
    frames = {path.name: path.read_bytes() for path in FRAMES}
    different = {name for name, frame in frames.items() if joined(decode_command(frame[4:])) != frame}
    assert not any(decode_command(frames[name][4:]).ext for name in different)
    assert len(different) < len(frames) / 2


def test_vectors() -> None:
    expected = Command(code=105, opaque=1, version=401, ext={"topic": "T"})
    assert decode_command(JSON_ROUTE[4:]) == expected
    assert joined(expected) == JSON_ROUTE
    expected.binary = True
    assert decode_command(BINARY_ROUTE[4:]) == expected
    assert joined(expected) == BINARY_ROUTE


@given(commands)
def test_round_trip(command: Command) -> None:
    frame = joined(command)
    assert decode_command(frame[4:]) == command
    view = decode_command(memoryview(frame)[4:])
    assert view == command
    assert isinstance(view.body, memoryview)


@given(st.binary(max_size=120))
def test_any_bytes(data: bytes) -> None:
    try:
        decode_command(data)
    except Corrupt:
        pass
    else:
        assert len(data) >= 4


@given(st.sampled_from([JSON_ROUTE, BINARY_ROUTE]), st.data())
def test_mutated_frames(frame: bytes, data: st.DataObject) -> None:
    changed = bytearray(frame[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(changed)))
    try:
        command = decode_command(bytes(changed[:cut]))
    except Corrupt:
        return
    assert all(isinstance(value, str) for value in command.ext.values())


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"7",
        b"{",
        b'{"code":"11"}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":4294967296}',
        b'{"code":1' + b"0" * 5000 + b"}",
        b'{"remark":7}',
        b'{"extFields":[]}',
        b'{"extFields":{"a":{}}}',
        b"[" * 100_000,
        b'\xff\xfe{"code":1}',
    ],
)
def test_wrong_json_headers(header: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_command(struct.pack(">i", len(header)) + header)


def test_lenient_json() -> None:
    """What other languages' clients write: numbers as fields, nulls, an unknown language, missing keys."""
    header = b' {"code":11,"language":"KLINGON","extFields":{"a":1,"b":true,"c":null,"d":1.5},"remark":null}'
    command = decode_command(struct.pack(">i", len(header)) + header)
    assert command == Command(code=11, language=7, ext={"a": "1", "b": "true", "d": "1.5"})


def test_headers_are_written_as_one_json_writer_and_another_would() -> None:
    """Every character below 0x300, and one of each plane: quotes, controls, and what is not ASCII."""
    hostile = "".join(map(chr, (*range(0x300), 0x2028, 0xFEFF, 0xFFFF, 0x1F600, 0x10FFFF)))
    command = Command(11, opaque=-1, flag=1, remark=hostile, ext={hostile: hostile, "": ""}, version=513)
    (head,) = encode_command(command)
    fields = {
        "code": 11, "extFields": command.ext, "flag": 1, "language": "JAVA", "opaque": -1, "remark": hostile,
        "serializeTypeCurrentRPC": "JSON", "version": 513,
    }  # fmt: skip
    assert bytes(head[8:]) == json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def test_unpaired_surrogates_survive() -> None:
    header = b'{"code":1,"remark":"\\ud800"}'
    command = decode_command(struct.pack(">i", len(header)) + header)
    assert decode_command(joined(command)[4:]).remark == "\ud800"


@pytest.mark.parametrize("word", [0x02000000, 0xFF000001, 0x00000005])
def test_wrong_header_words(word: int) -> None:
    with pytest.raises(Corrupt):
        decode_command(struct.pack(">I", word) + b"{}")


def test_what_does_not_fit_a_binary_header() -> None:
    with pytest.raises(Invalid):
        encode_command(Command(code=200050, binary=True))
    with pytest.raises(Invalid):
        encode_command(Command(code=1, ext={"k" * 40_000: ""}, binary=True))
    assert decode_command(joined(Command(code=200050))[4:]).code == 200050


@given(st.lists(commands, max_size=5), st.lists(st.integers(1, 60), min_size=1, max_size=30))
@settings(max_examples=60)
def test_frames_out_of_any_pieces(sent: list[Command], sizes: list[int]) -> None:
    stream = b"".join(map(joined, sent))
    reader, got, position, turn = FrameReader(), [], 0, 0
    while position < len(stream):
        size = sizes[turn % len(sizes)]
        got += [decode_command(frame) for frame in reader.feed(stream[position : position + size])]
        position, turn = position + size, turn + 1
    assert got == sent
    assert reader.pending_bytes == 0


@pytest.mark.parametrize(
    ("prefix", "error"),
    [
        (b"\x01\0\0\0", Refused),
        (b"\x7f\xff\xff\xff", Refused),
        (b"\0\0\0\x03", Corrupt),
        (b"\xff\xff\xff\xff", Corrupt),
    ],
)
def test_lengths_are_checked_before_anything_is_kept(prefix: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        FrameReader(1 << 20).feed(prefix)


def test_the_largest_frame() -> None:
    assert frame_length((1 << 20).to_bytes(4, "big"), (1 << 20) + 4) == (1 << 20) + 4
    with pytest.raises(Refused):
        frame_length((1 << 20).to_bytes(4, "big"), (1 << 20) + 3)
