"""An answer belongs to the request whose opaque it carries, so an opaque stands for one request at a time.

An answer names no topic and no code. If a request that a client may make shared its opaque with one that it may not, the
broker's answer to the first would open the archive for the second. Where requests are signed, rights differ from request to
request: such a connection is *strict*, the opaque of every request on it is tracked, and a second use in flight ends it.

Requests without a signature all have the same rights, those of nobody. So before the first signature nothing is tracked but
what is decoded anyway. That holds as long as the broker refuses nobody's requests whatever they ask for: with a white list of
codes for nobody in its ACL, an answer to one of those could still be taken for another one's.
"""

from __future__ import annotations

import json
import re
import struct
from typing import NamedTuple

from tiered.codec.remoting.frame import BINARY_HEADER, ONEWAY, RESPONSE
from tiered.errors import Corrupt, Refused
from tiered.gateway.transport.limits import OPAQUES_PER_CONNECTION

_ACCESS_KEY = b"AccessKey"
_other_escape = re.compile(rb"\\(?!u000)").search
"""Another escape than those between the properties of a send. Quick; what it finds is looked at again."""

_ODD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u00[01][0-9a-fA-F]|u[1-9a-fA-F][0-9a-fA-F]{3})')
"""An escape that may stand for a letter. Brokers take more for one than JSON knows: backslash-x41 and backslash-u+041 are A.

A backslash that is escaped itself may count too: a connection that is strict for nothing is only slower."""

_FIXED = struct.Struct(">hbhii")  # code, language, version, opaque, flag
_KEYS = frozenset(
    {"code", "extFields", "flag", "language", "opaque", "remark", "serializeTypeCurrentRPC", "version"}
)
_NEVER_ANSWERED = frozenset({10, 15, 34, 35, 36, 37, 41, 42, 310, 320, 324, 325})
"""Codes that clients send one-way. None that reads records: brokers answer a one-way pull or query all the same."""


class Envelope(NamedTuple):
    """What says whose answer a frame is, or whose request."""

    code: int
    opaque: int
    flag: int


class Opaques:
    """The opaques of a connection's requests in flight.

    Only its answer ends one: how long a broker holds a request is for the client to say.
    """

    __slots__ = ("_in_flight", "strict")

    def __init__(self) -> None:
        self.strict = False  # a signature was seen
        self._in_flight: set[int] = set()

    def __len__(self) -> int:
        return len(self._in_flight)

    def begin(self, opaque: int) -> None:
        """A request goes to the broker. Raises ``Refused`` if another one with this opaque is there, or too many are."""
        in_flight = self._in_flight
        if opaque in in_flight:
            raise Refused("an opaque is used again before its answer came", found=opaque)
        if len(in_flight) >= OPAQUES_PER_CONNECTION:
            raise Refused(
                "too many requests without an answer on one connection",
                found=len(in_flight),
                expected=f"≤ {OPAQUES_PER_CONNECTION}",
            )
        in_flight.add(opaque)

    def end(self, opaque: int) -> None:
        """The broker has answered; it may have been a request that was not tracked."""
        self._in_flight.discard(opaque)

    def clear(self) -> None:
        """The connection is gone."""
        self._in_flight.clear()


def gets_answer(code: int, flag: int) -> bool:
    """Whether a broker may answer the request."""
    return not flag & ONEWAY or code not in _NEVER_ANSWERED


def is_response(flag: int) -> bool:
    """Whether ``flag`` is an answer's."""
    return bool(flag & RESPONSE)


def shows_signature(header: bytes, encoding: int) -> bool:
    """Whether a request is signed, or may be: never false for one that is. Asked for every frame before the first such one."""
    if _ACCESS_KEY in header:
        return True
    if encoding == BINARY_HEADER or _other_escape(header) is None:
        return False
    return _ODD_ESCAPE.search(header) is not None


def envelope(header: bytes, encoding: int) -> Envelope:
    """What a broker takes a request's header for. ``Corrupt`` if brokers differ in that.

    A key that is there twice counts the first time for some and the last time for others, one in another spelling may count
    as the right one, and without an opaque a broker answers with a number of its own.
    """
    if encoding == BINARY_HEADER:
        if len(header) < _FIXED.size:
            raise _corrupt("is too short", found=len(header), expected=f"≥ {_FIXED.size}")
        code, _, _, opaque, flag = _FIXED.unpack_from(header)
        return Envelope(code, opaque, flag)
    try:
        fields = json.loads(str(header, "utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise _corrupt("is not JSON", found=str(error)[:200]) from None
    if not isinstance(fields, dict) or not fields.keys() <= _KEYS:
        raise _corrupt("has fields that no client writes", expected=", ".join(sorted(_KEYS)))
    code, opaque, flag = fields.get("code"), fields.get("opaque"), fields.get("flag", 0)
    if type(code) is not int or type(opaque) is not int or type(flag) is not int:
        raise _corrupt("lacks a number", expected="code, opaque and flag")
    return Envelope(code, opaque, flag)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _corrupt("has a field twice")
    return fields


def _corrupt(what: str, **fields: object) -> Corrupt:
    hint = "after a signed request every header of the connection must have one meaning only"
    return Corrupt(f"a remoting header {what}", hint=hint, **fields)
