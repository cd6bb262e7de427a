"""What a gateway asks a read node every second, and what it is answered: a heartbeat (code 34) with fields of our own.

It says which versions of questions a node understands, and whether it drains. A node of the first version, which knows no
beats, answers that the request is not supported: it is there, and that is all that is known of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiered.codec.remoting.codes import RequestCode, ResponseCode, number_field, truth
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.nodepull import ARCHIVE, COMMIT, TOKEN, archive_id_field
from tiered.errors import BadRequest, Corrupt, Refused

WIRE, WIRE_FROM, STATE, VERSION = "rtWire", "rtWireFrom", "rtState", "rtVersion"
CLIENTS, BROKER_ID, RECHECK, HOLD, TICK = "rtClients", "rtBrokerId", "rtRecheckMs", "rtHoldMs", "rtTick"

MOST_RECHECK_MS = 60_000
MOST_HOLD_MS = 180_000
MOST_TICK = 64

FIRST_WIRE, LAST_WIRE = 1, 2
"""Versions of questions that this program asks and understands: reads alone, and beats beside them."""

LIVE, JOINING, DRAINING = "live", "joining", "draining"
_STATES = (LIVE, JOINING, DRAINING)


@dataclass(frozen=True, slots=True)
class Vouch:
    """A gateway's word that consumers may ask a node themselves: what is archived as ``archive_id`` (16 bytes), at ``commit``
    or later, is of a broker that asks nobody for rights. Routes call the node ``broker_id``; a consumer is to come back to the
    gateway after ``recheck_ms``. It holds for ``hold_ms`` from when the node said ``tick``, which the gateway heard before: so
    a node that hung, or a network that delays, makes it hold for shorter and never for longer."""

    archive_id: bytes
    commit: int
    broker_id: int
    recheck_ms: int
    hold_ms: int
    tick: str

    def fields(self) -> dict[str, str]:
        """The header fields of the question that it travels with."""
        return {
            ARCHIVE: self.archive_id.hex(),
            COMMIT: str(self.commit),
            BROKER_ID: str(self.broker_id),
            RECHECK: str(self.recheck_ms),
            HOLD: str(self.hold_ms),
            TICK: self.tick,
        }

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> Vouch | None:
        """``None``: there is none, or it makes no sense, which is the same."""
        if BROKER_ID not in fields:
            return None
        try:
            made = cls(
                archive_id_field(fields),
                number_field(fields, COMMIT),
                number_field(fields, BROKER_ID),
                number_field(fields, RECHECK, 32),
                number_field(fields, HOLD, 32),
                fields.get(TICK, "")[:MOST_TICK],
            )
        except BadRequest:
            return None
        sound = made.commit >= 0 and made.broker_id > 0
        return (
            made
            if sound and 0 < made.recheck_ms <= MOST_RECHECK_MS and 0 < made.hold_ms <= MOST_HOLD_MS
            else None
        )


def beat_command(opaque: int, token: str, vouch: Vouch | None = None) -> Command:
    """The question. ``token``: what the node wants to be shown; empty: nothing."""
    fields = {WIRE: str(LAST_WIRE), WIRE_FROM: str(FIRST_WIRE), **({TOKEN: token} if token else {})}
    if vouch is not None:
        fields |= vouch.fields()
    return Command(RequestCode.HEART_BEAT, opaque, ext=fields, binary=True)


@dataclass(frozen=True, slots=True)
class NodeBeat:
    """What a node says of itself; ``version``: its program's; ``clients``: consumers may ask it, too;
    ``tick``: its time, in its own words."""

    wire_from: int = 1
    wire_to: int = 1
    state: str = LIVE
    version: str = ""
    clients: bool = False
    tick: str = ""

    def fields(self) -> dict[str, str]:
        """The header fields of the answer."""
        return {
            WIRE: str(self.wire_to),
            WIRE_FROM: str(self.wire_from),
            STATE: self.state,
            VERSION: self.version,
            **({CLIENTS: "true"} if self.clients else {}),
            **({TICK: self.tick} if self.tick else {}),
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
        tick = fields.get(TICK, "")[:MOST_TICK]
        return cls(low, high, said, fields.get(VERSION, "")[:40], truth(fields, CLIENTS), tick)


def common_wire(low: int, high: int) -> int | None:
    """The highest version of questions that this program and one that knows ``low`` to ``high`` share; ``None``: none."""
    shared = min(LAST_WIRE, high)
    return shared if shared >= max(FIRST_WIRE, low) else None
