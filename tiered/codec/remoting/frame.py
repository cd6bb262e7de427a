"""RocketMQ's remoting frames: commands ↔ bytes, in both header encodings.

A frame is ``int32 length | int32 header word | header | body``, big-endian; ``length`` counts everything behind itself. The
header word holds the encoding in its top byte (0 JSON, 1 "ROCKETMQ" binary) and the header's length in the other three.
Source: RocketMQ's ``RemotingCommand`` and ``RocketMQSerializable``; recorded frames are in ``tests/data/wire``.

Whatever bytes come: a value or ``Corrupt``; a frame longer than allowed is ``Refused`` when its length word is seen, before
anything is allocated for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

from tiered.errors import Corrupt, Invalid, Refused

Bytes = bytes | memoryview
"""A piece of a frame on its way to a socket."""

RESPONSE = 1
"""Bit of ``flag``: an answer."""

ONEWAY = 2
"""Bit of ``flag``: nobody waits for an answer."""

LENGTH_BYTES = 4
PREFIX_BYTES = 8
"""Length word and header word."""

DEFAULT_MAX_FRAME_BYTES = 16 * 1024 * 1024
"""RocketMQ's own limit of a whole frame, length word included."""

JSON_HEADER = 0
BINARY_HEADER = 1

JAVA = 0
OTHER = 7
LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)
"""Names in JSON headers, by the number that binary headers carry."""

_CODE_OF_LANGUAGE: Mapping[str, int] = MappingProxyType({name: code for code, name in enumerate(LANGUAGES)})
_MAX_HEADER_BYTES = 0xFFFFFF
_PREFIX = struct.Struct(">iI")
_FIXED = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, length of the remark
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_WHAT = "a remoting header"


class Command(msgspec.Struct):
    """One request or answer.

    ``language`` is the number of binary headers (``LANGUAGES``; 7 for a name nobody knows), ``version`` the peer's release
    number, ``ext`` the ``extFields``, always text. ``binary``: the header travels in the binary encoding.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext: dict[str, str] = msgspec.field(default_factory=dict)
    body: bytes | memoryview = b""
    version: int = 0
    language: int = JAVA
    binary: bool = False

    @property
    def is_response(self) -> bool:
        """An answer, not a request."""
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """A request that gets no answer."""
        return bool(self.flag & ONEWAY)


def decode_command(frame: bytes | memoryview) -> Command:
    """The command in ``frame``, which begins behind the length word. The body is not copied when a memoryview is given."""
    view = memoryview(frame)
    if len(view) < 4:
        raise _corrupt(
            "a remoting frame is too short for its header word", expected="4 bytes", found=len(view)
        )
    encoding, length = header_word(int.from_bytes(view[:4], "big"), len(view) + LENGTH_BYTES)
    command = decode_header(view[4 : 4 + length], encoding)
    command.body = view[4 + length :] if isinstance(frame, memoryview) else frame[4 + length :]
    return command


def header_word(word: int, frame_bytes: int) -> tuple[int, int]:
    """Encoding and length of the header, checked against a whole frame of ``frame_bytes`` (length word included)."""
    encoding, length = word >> 24 & 0xFF, word & _MAX_HEADER_BYTES
    if encoding not in (JSON_HEADER, BINARY_HEADER):
        raise _corrupt("an unknown header encoding in a remoting frame", expected="0 or 1", found=encoding)
    if length > frame_bytes - PREFIX_BYTES:
        raise _corrupt(
            "a remoting header is longer than its frame", expected=f"≤ {frame_bytes - 8}", found=length
        )
    return encoding, length


def decode_header(header: bytes | memoryview, encoding: int) -> Command:
    """The command of a header alone, without body."""
    return _decode_binary(memoryview(header)) if encoding == BINARY_HEADER else _decode_json(header)


def encode_command(command: Command) -> list[Bytes]:
    """The whole frame in pieces, the length word first; the body is not copied. ``Invalid`` if it does not fit the encoding."""
    header = _encode_binary(command) if command.binary else _encode_json(command)
    if len(header) > _MAX_HEADER_BYTES:
        raise Invalid("a remoting header is too long", expected=f"≤ {_MAX_HEADER_BYTES}", found=len(header))
    encoding = BINARY_HEADER if command.binary else JSON_HEADER
    length = LENGTH_BYTES + len(header) + len(command.body)
    if length > 0x7FFFFFFF:
        raise Invalid("a remoting frame is too long", found=length)
    pieces: list[Bytes] = [_PREFIX.pack(length, encoding << 24 | len(header)) + header]
    if len(command.body):
        pieces.append(command.body)
    return pieces


def frame_length(prefix: bytes | bytearray | memoryview, max_frame_bytes: int) -> int:
    """Bytes of the whole frame whose first four bytes are ``prefix``. ``Corrupt`` if impossible, ``Refused`` if too long."""
    length = int.from_bytes(prefix[:4], "big", signed=True) + LENGTH_BYTES
    if length < PREFIX_BYTES:
        raise _corrupt(
            "a remoting frame has an impossible length",
            expected="≥ 4",
            found=length - LENGTH_BYTES,
        )
    if length > max_frame_bytes:
        raise Refused(
            "a remoting frame is too long",
            expected=f"≤ {max_frame_bytes}",
            found=length,
            hint="gateway.max_frame_bytes is the limit of the gateway; a peer that speaks another protocol looks like this too",
        )
    return length


class FrameReader:
    """Cuts a byte stream into whole frames, for peers that want every frame whole. After an error it must not be fed again."""

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[memoryview]:
        """Take ``data`` now; the frames that it completes, each without its length word, own memory."""
        self._buffer += data
        frames: list[memoryview] = []
        start = 0
        while len(self._buffer) - start >= LENGTH_BYTES:
            length = frame_length(self._buffer[start : start + LENGTH_BYTES], self._max_frame_bytes)
            if len(self._buffer) - start < length:
                break
            frames.append(memoryview(bytes(self._buffer[start + LENGTH_BYTES : start + length])))
            start += length
        del self._buffer[:start]
        return iter(frames)


_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class _JsonHeader(msgspec.Struct, gc=False):
    """A header as every known peer writes one; whatever differs is left to the slow way."""

    code: _Int32 = 0
    extFields: dict[str, str] = msgspec.field(default_factory=dict)  # noqa: N815  # a name of the wire
    flag: _Int32 = 0
    language: str = "JAVA"
    opaque: _Int32 = 0
    remark: str | None = None
    version: _Int32 = 0


_decode_usual = msgspec.json.Decoder(_JsonHeader).decode


def _decode_json(header: bytes | memoryview) -> Command:
    """Two such headers were a seventh of the CPU of a pull through the gateway when each was made a dictionary first."""
    try:
        text = str(header, "utf-8")
    except UnicodeDecodeError as error:
        raise _corrupt(f"{_WHAT} is not JSON", found=str(error)[:200]) from None
    try:
        usual = _decode_usual(text)
    except (ValueError, RecursionError):
        return _decode_unusual(text)
    return Command(
        usual.code,
        usual.opaque,
        usual.flag,
        usual.remark,
        usual.extFields,
        b"",
        usual.version,
        _CODE_OF_LANGUAGE.get(usual.language, OTHER),
    )


def _decode_unusual(text: str) -> Command:
    """A header with null, numbers among the fields, lone surrogates, NaN: all that Java's decoder takes. Or ``Corrupt``."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt(f"{_WHAT} is not JSON", found=str(error)[:200]) from None
    if not isinstance(fields, dict):
        raise _corrupt(f"{_WHAT} is not a JSON object", found=type(fields).__name__)
    remark = fields.get("remark")
    if remark is not None and not isinstance(remark, str):
        raise _corrupt(f"{_WHAT} has a remark that is not a string", found=type(remark).__name__)
    return Command(
        code=_json_int(fields, "code"),
        opaque=_json_int(fields, "opaque"),
        flag=_json_int(fields, "flag"),
        remark=remark,
        ext=_json_ext(fields.get("extFields")),
        version=_json_int(fields, "version"),
        language=_json_language(fields.get("language")),
    )


def _json_int(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if type(value) is not int or not -(1 << 31) <= value < 1 << 31:
        raise _corrupt(f"{_WHAT} has a wrong field", name=name, expected="int32", found=repr(value)[:100])
    return value


def _json_language(value: object) -> int:
    if type(value) is int:
        return value if 0 <= value < 128 else OTHER
    return _CODE_OF_LANGUAGE.get(value, OTHER) if isinstance(value, str) else JAVA


def _json_ext(fields: object) -> dict[str, str]:
    """Text values as they are; numbers and booleans as Java's decoder would make them text; nulls are left out."""
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise _corrupt(f"{_WHAT} has extFields that are not an object", found=type(fields).__name__)
    return {name: _json_text(name, value) for name, value in fields.items() if value is not None}


def _json_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return json.dumps(value)
    raise _corrupt(f"{_WHAT} has a field that is not a string", name=name[:100], found=type(value).__name__)


_encode_usual = msgspec.json.Encoder().encode


def _encode_json(command: Command) -> bytes:
    """Keys in the order of Java's writer; absent fields are left out, as there."""
    fields: dict[str, object] = {"code": command.code}
    if command.ext or command.is_response:
        fields["extFields"] = command.ext
    fields["flag"] = command.flag
    fields["language"] = LANGUAGES[command.language if 0 <= command.language < len(LANGUAGES) else OTHER]
    fields["opaque"] = command.opaque
    if command.remark is not None:
        fields["remark"] = command.remark
    fields["serializeTypeCurrentRPC"] = "JSON"
    fields["version"] = command.version
    try:
        return _encode_usual(fields)
    except UnicodeEncodeError:  # a lone surrogate that came escaped goes escaped
        return json.dumps(fields, separators=(",", ":")).encode()


def _decode_binary(view: memoryview) -> Command:
    if len(view) < _FIXED.size + 4:
        raise _corrupt(
            "a binary remoting header is too short", expected=f"≥ {_FIXED.size + 4}", found=len(view)
        )
    code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(view)
    remark, position = _binary_text(view, _FIXED.size, remark_length)
    if len(view) - position < 4:
        raise _corrupt("a binary remoting header ends before its fields", position=position, found=len(view))
    (ext_length,) = _INT.unpack_from(view, position)
    position += 4
    if not 0 <= ext_length <= len(view) - position:
        raise _corrupt(
            "the fields of a binary remoting header lie outside it",
            position=position,
            expected=f"≤ {len(view) - position}",
            found=ext_length,
        )
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        remark=remark if remark_length else None,
        ext=_binary_ext(view[: position + ext_length], position),
        version=version,
        language=language,
        binary=True,
    )


def _binary_ext(view: memoryview, position: int) -> dict[str, str]:
    found: dict[str, str] = {}
    while position < len(view):
        if len(view) - position < 2:
            raise _corrupt("a field name of a binary remoting header is cut off", position=position)
        (length,) = _SHORT.unpack_from(view, position)
        name, position = _binary_text(view, position + 2, length)
        if len(view) - position < 4:
            raise _corrupt("a field of a binary remoting header is cut off", position=position)
        (length,) = _INT.unpack_from(view, position)
        value, position = _binary_text(view, position + 4, length)
        found[name] = value
    return found


def _binary_text(view: memoryview, position: int, length: int) -> tuple[str, int]:
    """The text of ``length`` bytes at ``position``, and where it ends."""
    end = position + length
    if length < 0 or end > len(view):
        raise _corrupt(
            "a text of a binary remoting header lies outside it",
            position=position,
            expected=f"≤ {len(view) - position}",
            found=length,
        )
    try:
        return str(view[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise _corrupt(
            "a text of a binary remoting header is not UTF-8", position=position + error.start
        ) from None


def _encode_binary(command: Command) -> bytes:
    remark = (command.remark or "").encode("utf-8", "surrogatepass")
    pieces = bytearray()
    for name, value in command.ext.items():
        key, text = name.encode("utf-8", "surrogatepass"), value.encode("utf-8", "surrogatepass")
        if len(key) > 0x7FFF:
            raise Invalid("a field name is too long for a binary header", found=len(key))
        pieces += _SHORT.pack(len(key)) + key + _INT.pack(len(text)) + text
    try:
        fixed = _FIXED.pack(
            command.code, command.language, command.version, command.opaque, command.flag, len(remark)
        )
    except struct.error as error:
        raise Invalid("a command does not fit a binary header", code=command.code, found=str(error)) from None
    return fixed + remark + _INT.pack(len(pieces)) + bytes(pieces)


def _corrupt(message: str, **fields: object) -> Corrupt:
    """What a peer sent makes no sense; nothing stored is damaged."""
    hint = "the peer does not speak RocketMQ's protocol, or speaks TLS where none is set"
    return Corrupt(message, hint=hint, **fields)
