"""What a gateway asks a read node every second, and what it is answered: a heartbeat (code 34) with fields of our own.

It says which versions of questions a node understands, and whether it drains. A node of the first version, which knows no
beats, answers that the request is not supported: it is there, and that is all that is known of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiered.codec.remoting.codes import RequestCode, ResponseCode, number_field
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.nodepull import TOKEN
from tiered.errors import BadRequest, Corrupt, Refused

WIRE, WIRE_FROM, STATE, VERSION = "rtWire", "rtWireFrom", "rtState", "rtVersion"

FIRST_WIRE, LAST_WIRE = 1, 2
"""Versions of questions that this program asks and understands: reads alone, and beats beside them."""

LIVE, JOINING, DRAINING = "live", "joining", "draining"
_STATES = (LIVE, JOINING, DRAINING)


def beat_command(opaque: int, token: str) -> Command:
    """The question. ``token``: what the node wants to be shown; empty: nothing."""
    fields = {WIRE: str(LAST_WIRE), WIRE_FROM: str(FIRST_WIRE), **({TOKEN: token} if token else {})}
    return Command(RequestCode.HEART_BEAT, opaque, ext=fields, binary=True)


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """What a node says of itself; ``version``: its program's."""

    wire_from: int = 1
    wire_to: int = 1
    state: str = LIVE
    version: str = ""

    def fields(self) -> dict[str, str]:
        """The header fields of the answer."""
        return {
            WIRE: str(self.wire_to),
            WIRE_FROM: str(self.wire_from),
            STATE: self.state,
            VERSION: self.version,
        }

    @classmethod
    def parse(cls, answer: Command) -> NodeBeat:
        """``Refused`` for another token; ``Corrupt`` if it makes no sense. States that are not known are as draining."""
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return cls()
        if answer.code == ResponseCode.NO_PERMISSION:
            raise Refused("a read node wants another token", found=(answer.remark or "")[:200])
        fields: Mapping[str, str] = answer.ext
        try:
            low, high = number_field(fields, WIRE_FROM, 32), number_field(fields, WIRE, 32)
        except BadRequest as error:
            raise Corrupt(
                "a read node's answer to a beat makes no sense", code=answer.code, found=str(error)[:200]
            ) from None
        state = fields.get(STATE, LIVE)
        said = state if state in _STATES else DRAINING
        return cls(low, high, said, fields.get(VERSION, "")[:40])


def common_wire(low: int, high: int) -> int | None:
    """The highest version of questions that this program and one that knows ``low`` to ``high`` share; ``None``: none."""
    shared = min(LAST_WIRE, high)
    return shared if shared >= max(FIRST_WIRE, low) else None
